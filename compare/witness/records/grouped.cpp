// Records of grouped tensors and of split quantization: allocation, members, predicates, validation of
// experts' quantizers, and the dispatch with stand-ins that count.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "training/formats/formats.h"
#include "training/groups/grouped.h"
#include "training/groups/split_quantize.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;
using QPtr = training::QuantizerPtr;

[[noreturn]] void unreadable(const string& what) { throw std::invalid_argument(what); }

// Reading.

Usages usages_of(const Given& given) {
  return given.has("usages") ? given.usages("usages") : Usages{true, true};
}
std::vector<Shape> members_of(const Given& given) {
  const Given members = given.at("members", "an array of shapes, [rows, columns]");
  std::vector<Shape> out;
  int64_t count = 0;
  for (const Given& m : members.items()) {
    out.push_back(m.matrix());
    if ((count += out.back().count()) > Given::kMostElements)
      members.refuse("members of fewer elements together");
  }
  return out;
}
string variant_of(const Given& given) {
  return string(given.word("variant", {"uniform", "first", "last", "both"}));
}

// Kinds: a family and settings, "FP4_2D"; "H(a|b)" and "H(a|b;rwdq)" for hybrids.

// A quantizer that no built-in recipe and no kind of this file has: what a caller brings from outside.
class ForeignQuantizer final : public training::Quantizer {
 public:
  std::string_view class_name() const override { return "ForeignQuantizer"; }
  json::Value describe() const override { return json::object({{"class", class_name()}}); }
  QPtr copy() const override { return std::make_shared<ForeignQuantizer>(*this); }
  std::string_view compatible_recipe() const override { return "CustomRecipe"; }
  void update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) override {
    unreadable("a foreign quantizer does not quantize");
  }
  StoragePtr make_empty(Session&, const Dims&, DType) const override {
    unreadable("a foreign quantizer allocates nothing");
  }

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr&) override {
    unreadable("a foreign quantizer does not quantize");
  }
};

using Log = json::Array;

// A subclass of Identity that logs its calls.
class IdentitySubclass final : public IdentityQuantizer {
 public:
  explicit IdentitySubclass(Log* log) : log_(log) { internal = true; }
  QPtr copy() const override { return std::make_shared<IdentitySubclass>(*this); }

 protected:
  StoragePtr quantize_impl(Session& session, const ArrayPtr& x) override {
    if (log_)
      log_->push_back(json::object({{"call", "per split"},
                                    {"class", "subclass of identity"},
                                    {"rows", x->shape[0]},
                                    {"dtype", name_of(x->dtype)}}));
    return IdentityQuantizer::quantize_impl(session, x);
  }

 private:
  Log* log_;
};

QPtr family(std::string_view name, Log* log, bool subclass) {
  const auto one = [](F32Bits v) { return from_bytes({1}, DType::float32, std::as_bytes(std::span(&v, 1))); };
  if (name == "CS") return std::make_shared<Float8CurrentScalingQuantizer>();
  if (name == "DS") return std::make_shared<Float8Quantizer>(one(0x3F800000), one(0), Encoding::e4m3);
  if (name == "MX") return std::make_shared<MXFP8Quantizer>();
  if (name == "BLK1" || name == "BLK2")
    return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, name == "BLK1" ? 1 : 2);
  if (name == "FP4") return std::make_shared<NVFP4Quantizer>();
  if (name == "ID" && subclass) return std::make_shared<IdentitySubclass>(log);
  if (name == "ID") return std::make_shared<IdentityQuantizer>();
  refuse_word("a kind of quantizer", name,
              {"CS", "DS", "MX", "BLK1", "BLK2", "FP4", "ID", "HYB", "H(rows|columns)", "none"});
}

// What stands behind a family's name. A setting says false of a family that has no such thing.
struct Setting {
  std::string_view name;
  bool (*apply)(training::Quantizer&);
};
// Changes a quantizer that is one of these classes.
template <class... Classes> bool on(training::Quantizer& q, auto change) {
  const auto one = [&](auto* p) { return p && (change(*p), true); };
  return (one(dynamic_cast<Classes*>(&q)) || ...);
}
const Setting kSettings[] = {
    {"E5M2",
     [](training::Quantizer& q) {
       return on<Float8CurrentScalingQuantizer, Float8Quantizer, MXFP8Quantizer, Float8BlockQuantizer>(
           q, [](auto& p) { p.dtype = Encoding::e5m2; });
     }},
    {"pow2",
     [](training::Quantizer& q) {
       return on<Float8CurrentScalingQuantizer, Float8BlockQuantizer>(
           q, [](auto& p) { p.force_pow_2_scales = true; });
     }},
    {"eps",
     [](training::Quantizer& q) {
       return on<Float8CurrentScalingQuantizer, Float8BlockQuantizer>(
           q, [](auto& p) { p.amax_epsilon = std::bit_cast<F32Bits>(0.5f); });
     }},
    {"2D",
     [](training::Quantizer& q) {
       return on<MXFP8Quantizer, NVFP4Quantizer>(q, [](auto& p) { p.with_2d_quantization = true; });
     }},
    {"reduce",
     [](training::Quantizer& q) { return q.amax_reduction() && (q.amax_reduction()->enabled = true); }},
    {"rowonly", [](training::Quantizer& q) { return q.set_usage(true, false), true; }},
    {"colonly", [](training::Quantizer& q) { return q.set_usage(false, true), true; }},
    {"internal", [](training::Quantizer& q) { return q.internal = true; }},
    {"scale2",
     [](training::Quantizer& q) {
       return on<Float8Quantizer>(q, [](Float8Quantizer& p) {
         const float two = 2;
         std::ranges::copy(std::as_bytes(std::span(&two, 1)), p.scale->bytes().begin());
       });
     }},
    {"RS",
     [](training::Quantizer& q) {
       return on<NVFP4Quantizer>(q, [](NVFP4Quantizer& p) { p.row_scaled_nvfp4 = true; });
     }},
    {"46",
     [](training::Quantizer& q) {
       return on<NVFP4Quantizer>(q, [](NVFP4Quantizer& p) { p.set_4over6(true, "MAE", 256); });
     }},
    {"SR",
     [](training::Quantizer& q) {
       return on<NVFP4Quantizer>(q, [](NVFP4Quantizer& p) { p.stochastic_rounding = true; });
     }},
    {"RHT",
     [](training::Quantizer& q) {
       return on<NVFP4Quantizer>(q, [](NVFP4Quantizer& p) { p.with_rht = p.with_post_rht_amax = true; });
     }},
    {"nosign",
     [](training::Quantizer& q) {
       return on<NVFP4Quantizer>(q, [](NVFP4Quantizer& p) { p.set_random_sign_mask(false); });
     }},
    {"bf16",
     [](training::Quantizer& q) {
       return on<IdentityQuantizer>(q, [](IdentityQuantizer& p) { p.dtype = DType::bfloat16; });
     }},
    {"f32",
     [](training::Quantizer& q) {
       return on<IdentityQuantizer>(q, [](IdentityQuantizer& p) { p.dtype = DType::float32; });
     }},
    {"sub", [](training::Quantizer& q) { return dynamic_cast<IdentitySubclass*>(&q) != nullptr; }},
};

constexpr std::pair<std::string_view, std::string_view> kSources[] = {
    {"original", "original"},
    {"orig", "original"},
    {"rowwise_dequantized", "rowwise_dequantized"},
    {"rwdq", "rowwise_dequantized"}};

QPtr quantizer_of(std::string_view kind, Log* log = nullptr, std::string_view source = "original") {
  if (kind == "nothing" || kind == "none") return nullptr;
  if (kind == "quantizer compatible with custom recipes only") return std::make_shared<ForeignQuantizer>();
  if (kind == "HYB") return quantizer_of("H(MX|MX)", log, source);
  if (kind.starts_with("H(")) {
    const size_t bar = kind.find('|'), end = kind.find(')'), semicolon = std::min(kind.find(';'), end);
    if (bar == kind.npos || end == kind.npos || bar > semicolon)
      unreadable("expected H(rows|columns), found '" + string(kind) + "'");
    const std::string_view own = semicolon < end ? kind.substr(semicolon + 1, end - semicolon - 1) : source;
    const std::string_view row = kind.substr(2, bar - 2), col = kind.substr(bar + 1, semicolon - bar - 1);
    static constexpr std::pair<std::string_view, Usages> kRests[] = {
        {"", {true, true}}, {" row only", {true, false}}, {" column only", {false, true}}};
    const Usages wanted = row_called(kRests, kind.substr(end + 1), "what follows a hybrid")->second;
    const auto q = std::make_shared<HybridQuantizer>(
        quantizer_of(row, log), quantizer_of(col, log),
        string(row_called(kSources, own, "the source of a hybrid")->second));
    q->set_usage(wanted.rowwise, wanted.columnwise);
    return q;
  }
  std::string_view rest = kind.substr(std::min(kind.find('_'), kind.size()));
  const QPtr q = family(kind.substr(0, kind.find('_')), log, rest == "_sub");
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find('_'));
    if (!row_called(kSettings, word, "a setting of '" + string(kind) + "'")->apply(*q))
      unreadable(string(q->class_name()) + " has no setting '" + string(word) + "'");
    rest.remove_prefix(word.size());
  }
  return q;
}
QPtr quantizer_in(const Given& given, std::string_view key = "kind") { return quantizer_of(given.text(key)); }

// Answers.

json::Value offsets_json(const Offsets& v) { return v ? shown(*v) : json::Value(); }
json::Value shapes_json(const GroupedTensor& g) {
  return list_of(g.tensor_shapes, [](const Dims& s) { return shown(s); });
}
json::Value sizes(const ArrayPtr& a) { return a ? shown(int64_values(*a)) : json::Value(); }

// An error's class, and which of the words its text has, where it has any.
auto failed_with(std::vector<std::string_view> words) {
  return [words = std::move(words)](const SemanticError& e) {
    return mentioned(e.what(), words).array()->empty() ? failed(e) : failed(e, words);
  };
}

json::Value buffers_json(GroupedTensor& g) {
  json::Value out = json::object();
  for (const Field& f : g.buffers()) {
    const ArrayPtr& b = *f.slot;
    out.set(f.name, b ? json::object(
                            {{"length", b->count()}, {"dims", b->shape.size()}, {"dtype", name_of(b->dtype)}})
                      : json::Value());
  }
  return out;
}

// Where a view stands: an empty buffer has no address to stand at.
json::Value view_json(GroupedTensor& g, const Array& view) {
  for (const Field& f : g.buffers()) {
    const ArrayPtr& b = *f.slot;
    if (!b || b->memory != view.memory || b->count() == 0) continue;
    return json::object({{"in", f.name},
                         {"byte_offset", view.data() - b->data()},
                         {"shape", shown(view.shape)},
                         {"contiguous", view.contiguous()}});
  }
  return json::object({{"in", json::Value()}, {"shape", shown(view.shape)}, {"numel", view.count()}});
}

json::Value member_json(GroupedTensor& g, const Tensorlike& member) {
  if (const ArrayPtr* plain = std::get_if<ArrayPtr>(&member))
    return json::object({{"class", "Tensor"}, {"view", view_json(g, **plain)}});
  const StoragePtr s = std::get<StoragePtr>(member);
  json::Value out = json::object(
      {{"class", s->class_name()}, {"quantizer_is_copy", s->quantizer && s->quantizer != g.quantizer}});
  for (const Field& f : s->fields())
    if (*f.slot) out.set(f.name, view_json(g, **f.slot));
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get()))
    out.set("_transpose_invalid", fp8->transpose_invalid);
  return out;
}

json::Value group_json(GroupedTensor& g, const QPtr& given, bool with_members) {
  json::Value out = json::object({
      {"class", g.class_name()},
      {"logical_shape", shown(g.logical_shape)},
      {"num_tensors", g.num_tensors},
      {"tensor_shapes", shapes_json(g)},
      {"buffers", buffers_json(g)},
      {"row_and_col_scale_same_object", g.scale_inv && g.scale_inv == g.columnwise_scale_inv},
      {"first_dims", sizes(g.first_dims)},
      {"last_dims", sizes(g.last_dims)},
      {"tensor_offsets", sizes(g.tensor_offsets)},
      {"tensor_offsets_dtype",
       g.tensor_offsets ? json::Value(name_of(g.tensor_offsets->dtype)) : json::Value()},
      {"offsets", offsets_json(g.offsets)},
      {"scale_inv_offsets", offsets_json(g.scale_inv_offsets)},
      {"columnwise_scale_inv_offsets", offsets_json(g.columnwise_scale_inv_offsets)},
      {"flags", json::object({{"row_scaled_nvfp4", g.row_scaled_nvfp4},
                              {"nvfp4_use_4over6", g.nvfp4_use_4over6},
                              {"nvfp4_e4m3_max", g.nvfp4_e4m3_max}})},
      {"nominal_dtype", name_of(g.fake_dtype)},
      {"shared_quantizer_object", g.quantizer == given},
  });
  if (g.is_tensor) out.set("outer_shape", shown(g.shape()));
  if (!with_members) return out;
  json::Value members = json::array();
  for (const Tensorlike& m : g.quantized_tensors) members.push(member_json(g, m));
  out.set("members", std::move(members));
  return out;
}

// Groups.

Session session_of(const Given& given, Subject& subject) {
  Session out(subject);
  out.arch =
      given.has("arch") && given.word("arch", {"TN_only", "non_TN"}) == "non_TN" ? Arch::sm100 : Arch::sm90;
  return out;
}

// The members' sizes as the record's variant gives them: sizes that vary are passed even where they happen to
// agree.
GroupedLayout layout_of(const std::vector<Shape>& members, std::string_view variant) {
  GroupedLayout out = training::layout_of(members);
  const bool first = variant == "first" || variant == "both", last = variant == "last" || variant == "both";
  std::vector<int64_t> rows, cols;
  int64_t count = 0;
  for (Shape m : members) rows.push_back(m.rows), cols.push_back(m.cols), count += m.count();
  out.first_dims = first ? std::optional(rows) : std::nullopt;
  out.last_dims = last ? std::optional(cols) : std::nullopt;
  if (variant == "both") out.logical = {1, count};
  return out;
}

json::Value alloc(const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  return outcome(
      [&]() -> json::Value {
        const QPtr q = quantizer_in(given);
        const Usages u = usages_of(given);
        if (q) q->set_usage(u.rowwise, u.columnwise), q->internal = given.flag("internal", false);
        const std::optional<DType> nominal = !given.has("dtype") ? DType::bfloat16
                                             : given.at("dtype", "").is_null()
                                                 ? std::nullopt
                                                 : std::optional(given.at("dtype", "").dtype());
        if (given.has("logical")) {
          const Given logical = given.at("logical", "a pair of integers");
          const auto n = logical.dims(-1);  // a negative size is one that the original refuses
          if (n.size() != 2) logical.refuse("a pair of integers, [rows, columns]");
          return buffers_json(*make_grouped_tensor(
              session, {given.number("num"), std::nullopt, std::nullopt, {n[0], n[1]}}, q, nominal));
        }
        const bool capturing = given.flag("capturing", false);
        const GroupedTensorPtr g = make_grouped_tensor(
            session, layout_of(members_of(given), variant_of(given)), q, nominal, capturing);
        return capturing ? json::Value(g->class_name()) : group_json(*g, q, true);
      },
      failed_with({"rowwise", "columnwise", "Identity", "Hybrid"}));
}

json::Value shapes_helper(const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  return outcome([&] {
    const QPtr q = quantizer_in(given);
    if (q) q->internal = given.flag("internal", true);
    return group_json(*make_grouped_tensor_with_shapes(session, members_of(given), q, DType::bfloat16), q,
                      false);
  });
}

json::Value predicates(const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  const GroupedTensorPtr g =
      make_grouped_tensor(session, layout_of(members_of(given), variant_of(given)), nullptr, DType::bfloat16);
  return json::object({
      {"all_same_shape", outcome([&] { return g->all_same_shape(); })},
      {"all_same_first_dim", outcome([&] { return g->all_same_first_dim(); })},
      {"all_same_last_dim", outcome([&] { return g->all_same_last_dim(); })},
      {"varying_both_dims", outcome([&] { return g->varying_both_dims(); })},
      {"has_data", outcome([&] { return g->has_data(); })},
      {"has_columnwise_data", outcome([&] { return g->has_columnwise_data(); })},
      {"get_common_first_dim", outcome([&] { return g->get_common_first_dim(); })},
      {"get_common_last_dim", outcome([&] { return g->get_common_last_dim(); })},
  });
}

// A group of the record's kind, for what does not depend on sizes.
GroupedTensorPtr some_group(Session& session, const Given& given) {
  const string variant = given.has("variant") ? variant_of(given) : "first";
  const bool rows = variant == "first" || variant == "both", cols = variant == "last" || variant == "both";
  return make_grouped_tensor(session, layout_of({{128, 128}, {rows ? 256 : 128, cols ? 256 : 128}}, variant),
                             quantizer_in(given), DType::bfloat16);
}

// Three members of one size: which entries are there, how long they are, and what a restore makes of one
// entry too many.
json::Value save_uniform(const Given& given, Session& session) {
  const GroupedTensorPtr g =
      make_grouped_tensor(session, layout_of(std::vector<Shape>(3, {256, 384}), variant_of(given)),
                          quantizer_in(given), DType::bfloat16);
  Saved saved = g->prepare_for_saving();
  json::Value left = json::array(), names = json::array();
  for (const Field& f : g->buffers())
    if (*f.slot) left.push(f.name);
  if (given.flag("restore", false)) {
    saved.push_back(empty({1}, DType::uint8));
    const size_t tail = saved.size() - g->restore_from_saved(saved);
    for (const Field& f : g->buffers())
      if (*f.slot) names.push(f.name);
    return json::object({{"tail", tail}, {"present", std::move(names)}});
  }
  return json::object(
      {{"entries", saved.size()},
       {"present", list_of(saved, [](const ArrayPtr& a) { return a != nullptr; })},
       {"lengths",
        list_of(saved, [](const ArrayPtr& a) { return a ? json::Value(a->count()) : json::Value(); })},
       {"left", std::move(left)},
       {"members_dropped", g->quantized_tensors.empty()}});
}

json::Value save(const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  if (variant_of(given) == "uniform") return save_uniform(given, session);
  const GroupedTensorPtr g = some_group(session, given);
  std::vector<Field> all = g->buffers();
  all.insert(
      all.end(),
      {{"first_dims", &g->first_dims}, {"last_dims", &g->last_dims}, {"tensor_offsets", &g->tensor_offsets}});
  std::vector<std::pair<string, ArrayPtr>> before;
  for (const Field& f : all) before.emplace_back(f.name, *f.slot);
  json::Value order = json::array(), left = json::array();
  const Saved saved = g->prepare_for_saving();
  for (const ArrayPtr& a : saved) {
    const auto at =
        std::find_if(before.begin(), before.end(), [&](const auto& b) { return a && b.second == a; });
    order.push(at == before.end() ? json::Value() : json::Value(at->first));
  }
  for (const Field& f : all)
    if (*f.slot) left.push(f.name);
  for (size_t i = g->restore_from_saved(saved); i < saved.size(); ++i) left.push("not restored");
  for (size_t i = 0; i < all.size(); ++i)
    if (*all[i].slot != before[i].second) left.push(all[i].name + " restored elsewhere");
  return json::object({{"order", std::move(order)}, {"left", std::move(left)}});
}

json::Value clear(const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  const GroupedTensorPtr g = some_group(session, given);
  json::Value result = outcome([&] {
    g->clear();
    return json::Value();
  });
  return json::object({{"result", std::move(result)},
                       {"buffers", buffers_json(*g)},
                       {"num_tensors", g->num_tensors},
                       {"logical_shape", shown(g->logical_shape)}});
}

json::Value from_rowwise(const Given& given, Subject&) {
  return outcome([&] {
    const Given elements = given.at("elements", "an integer or null");
    const ArrayPtr data =
        elements.is_null() ? nullptr : empty({elements.number(0, Given::kMostElements)}, DType::bfloat16);
    const GroupedTensorPtr g = make_grouped_tensor_from_rowwise_data(
        given.number("num"), given.at("tensor_shape", "an array of integers").dims(), data,
        given.flag("internal", false));
    json::Value out = json::object({{"class", g->class_name()},
                                    {"logical_shape", shown(g->logical_shape)},
                                    {"tensor_shapes", shapes_json(*g)},
                                    {"shares_memory", share_memory(*g->rowwise_data, *data)},
                                    {"nominal_dtype", name_of(g->fake_dtype)},
                                    {"data_dims", g->rowwise_data->shape.size()}});
    if (g->is_tensor) out.set("outer_shape", shown(g->shape()));
    return out;
  });
}

json::Value offsets(const Given& given, Subject&) {
  const ArrayPtr out = splits_to_offsets(given.numbers("split_dims"), given.number("common_dim"));
  return json::object({{"offsets", shown(int64_values(*out))}, {"dtype", name_of(out->dtype)}});
}

json::Value validate(const Given& given, Subject&) {
  return outcome(
      [&] {
        std::vector<QPtr> experts;
        for (const Given& e : given.items("experts", "an array of kinds of quantizers"))
          experts.push_back(!experts.empty() && e.text() == "the same object" ? experts.front()
                                                                              : quantizer_of(e.text()));
        validate_split_quantizers(experts);
        return json::Value();
      },
      failed_with({"None and concrete", "HybridQuantizer and non-hybrid", "Identity-backed", "plain",
                   "rowwise", "columnwise", "source", "families", "configurations"}));
}

// A float array of `shape` whose elements are all `value`, which the dtype holds exactly.
ArrayPtr constant(const Dims& shape, DType dtype, float value) {
  const ArrayPtr out = zeros(shape, dtype);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t half = static_cast<uint16_t>(bits >> 16);
  for (int64_t i = 0; i < out->count(); ++i)
    if (dtype == DType::float32)
      std::ranges::copy(std::as_bytes(std::span(&bits, 1)), out->bytes().begin() + i * 4);
    else std::ranges::copy(std::as_bytes(std::span(&half, 1)), out->bytes().begin() + i * 2);
  return out;
}
// Nothing where x is empty.
std::optional<float> first_value(const Array& x) {
  if (x.count() == 0) return std::nullopt;
  uint32_t bits = 0;
  if (x.dtype == DType::float32) {
    std::memcpy(&bits, x.data(), 4);
  } else {
    uint16_t half = 0;
    std::memcpy(&half, x.data(), 2);
    bits = uint32_t{half} << 16;
  }
  return std::bit_cast<float>(bits);
}

// The stand-in of the native entries: an Identity storage with a copy of the split, rows raised by one so
// that a source made of them is seen.
StoragePtr stand_in(const ArrayPtr& piece, const training::Quantizer& q) {
  auto out = std::make_shared<IdentityStorage>();
  out->hp_data = clone(piece);
  if (const auto value = first_value(*piece); q.rowwise_usage && value)
    out->hp_data = constant(piece->shape, piece->dtype, *value + 1);
  out->dtype = piece->dtype;
  out->is_tensor = false;
  return out;
}

SplitEntries counting(Log& log) {
  SplitEntries out;
  out.bulk = [&log](Session&, const ArrayPtr& x, const std::vector<int64_t>& splits,
                    const std::vector<QPtr>& qs, bool disable) {
    const auto value = first_value(*x);
    log.push_back(
        json::object({{"call", "bulk"},
                      {"class", qs[0]->class_name()},
                      {"n", qs.size()},
                      {"rows", x->shape[0]},
                      {"dtype", name_of(x->dtype)},
                      {"disable_bulk_allocation", disable},
                      {"source_value", value ? json::Value(static_cast<double>(*value)) : json::Value()}}));
    std::vector<StoragePtr> pieces;
    int64_t at = 0;
    for (size_t i = 0; i < splits.size(); at += splits[i++])
      pieces.push_back(stand_in(slice(x, 0, at, at + splits[i]), *qs[i]));
    return pieces;
  };
  out.bgrad = [&log](Session&, const ArrayPtr& x, const QPtr& q) {
    log.push_back(json::object({{"call", "bgrad"},
                                {"class", q->class_name()},
                                {"rows", x->shape[0]},
                                {"dtype", name_of(x->dtype)}}));
    return std::pair(stand_in(x, *q), zeros({x->shape.back()}, x->dtype));
  };
  return out;
}

json::Value output_json(const Tensorlike& output, const Array& input) {
  if (const ArrayPtr* a = std::get_if<ArrayPtr>(&output))
    return json::object({{"class", "Tensor"},
                         {"shape", shown((*a)->shape)},
                         {"dtype", name_of((*a)->dtype)},
                         {"aliases_input", share_memory(**a, input)}});
  const StoragePtr s = std::get<StoragePtr>(output);
  const auto* hybrid = dynamic_cast<const HybridStorage*>(s.get());
  const auto child = [](const StoragePtr& c) { return c ? json::Value(c->class_name()) : json::Value(); };
  return json::object({{"class", s->class_name()},
                       {"row", hybrid ? child(hybrid->rowwise_storage) : json::Value()},
                       {"col", hybrid ? child(hybrid->columnwise_storage) : json::Value()},
                       {"nominal_dtype", name_of(s->dtype)}});
}

// Of each output its class and dtype alone.
json::Value brief_split(const Log& log, const json::Value& outputs) {
  json::Value out = json::array();
  for (const json::Value& o : *outputs.array())
    out.push(json::object({{"class", o.text("class")}, {"dtype", o.text("dtype")}}));
  return json::object({{"calls", log}, {"outputs", std::move(out)}});
}

json::Value split(const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  const bool brief = !given.has("splits");  // a record that shows of the outputs only what they are
  const std::vector<int64_t> splits = brief ? std::vector<int64_t>{3, 5} : given.numbers("splits");
  if (splits.size() > 256) given.at("splits", "").refuse("at most 256 experts");
  const auto dtype_in = [&](std::string_view key) {
    return given.has(key) ? given.at(key, "a dtype").dtype() : DType::bfloat16;
  };
  if (dtype_in("input_dtype") != DType::float32 && dtype_in("input_dtype") != DType::bfloat16)
    given.at("input_dtype", "a dtype").refuse("float32 or bfloat16");
  const ArrayPtr x =
      constant({std::accumulate(splits.begin(), splits.end(), int64_t{0}), 4}, dtype_in("input_dtype"), 5);
  const string source = given.text("source", "original");
  Log log;
  const json::Value then = outcome([&] {
    std::vector<QPtr> experts;
    for (size_t i = 0; i < given.count("quantizers", splits.size()); ++i) {
      experts.push_back(quantizer_of(given.text("kind"), &log, source));
      if (const Usages u = usages_of(given); experts.back() && given.has("usages"))
        experts.back()->set_usage(u.rowwise, u.columnwise);
    }
    const SplitOptions options{dtype_in("activation_dtype"), given.flag("bias_gradient", false),
                               given.flag("disable_bulk_allocation", false),
                               given.flag("with_quantized_output", true)};
    const SplitResult result = split_quantize(session, x, splits, experts, options, counting(log));
    json::Value outputs = json::array(), gradients = json::array();
    for (const Tensorlike& o : result.outputs) outputs.push(output_json(o, *x));
    if (brief) return brief_split(log, outputs);
    for (const ArrayPtr& b : result.bias_gradients)
      gradients.push(json::object({{"shape", shown(b->shape)}, {"dtype", name_of(b->dtype)}}));
    return json::object({{"calls", log},
                         {"outputs", std::move(outputs)},
                         {"bias_gradients", options.bias_gradient ? std::move(gradients) : json::Value()}});
  });
  return brief && then.find("ok") ? *then.find("ok") : then;
}

json::Value identity_use(const Given& given, Subject&) {
  const QPtr q = quantizer_in(given, "quantizer");
  const Usages u = identity_directions(q.get());
  return json::object({{"uses_identity", uses_identity(q.get())},
                       {"identity_directions", json::array({u.rowwise, u.columnwise})}});
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given, Subject& subject);
};
constexpr std::array kGroups = {
    Group{"alloc", alloc},
    Group{"shapes_helper", shapes_helper},
    Group{"predicates", predicates},
    Group{"save", save},
    Group{"clear", clear},
    Group{"offsets", offsets},
    Group{"from_rowwise", from_rowwise},
    Group{"validate", validate},
    Group{"split", split},
    Group{"identity_use", identity_use},
};

}  // namespace

json::Value witness_grouped(std::string_view group, const Given& given, Subject& subject) {
  const auto at =
      std::find_if(kGroups.begin(), kGroups.end(), [&](const Group& g) { return g.name == group; });
  if (at == kGroups.end()) unreadable("expected a group of grouped, found " + string(group));
  return at->then(given, subject);
}

}  // namespace assay

// Records of grouped tensors and of split quantization: allocation, members, predicates, validation of experts' quantizers, and the dispatch with stand-ins that
// count.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include "compare/witness.h"
#include "training/grouped.h"
#include "training/hybrid.h"
#include "training/split_quantize.h"

namespace assay {

namespace {

using namespace training;   // NOLINT: this file speaks of nothing else
using std::string;
using QPtr = training::QuantizerPtr;

[[noreturn]] void unreadable(const string& what) { throw std::runtime_error("witness grouped: " + what); }

// Reading.

std::vector<int64_t> numbers_of(const json::Value* v) {
  std::vector<int64_t> out;
  if (v && v->array())
    for (const json::Value& n : *v->array()) out.push_back(n.to_int().value_or(0));
  return out;
}
bool flag(const json::Value& given, std::string_view key, bool otherwise) {
  const json::Value* v = given.find(key);
  return v ? v->to_bool().value_or(otherwise) : otherwise;
}
Usages usages_of(const json::Value& given) {
  const json::Value* v = given.find("usages");
  if (!v) return {true, true};
  return {(*v->array())[0].to_bool().value(), (*v->array())[1].to_bool().value()};
}
std::vector<Shape> members_of(const json::Value& given) {
  std::vector<Shape> out;
  for (const json::Value& m : *given.find("members")->array()) {
    const auto n = numbers_of(&m);
    out.push_back({n[0], n[1]});
  }
  return out;
}

// Kinds: a family and settings, "FP4_2D"; "H(a|b)" and "H(a|b;rwdq)" for hybrids.

// A quantizer that no built-in recipe and no kind of this file has: what a caller brings from outside.
class ForeignQuantizer final : public training::Quantizer {
 public:
  std::string_view class_name() const override { return "ForeignQuantizer"; }
  json::Value describe() const override { return json::object({{"class", class_name()}}); }
  QPtr copy() const override { return std::make_shared<ForeignQuantizer>(*this); }
  std::string_view compatible_recipe() const override { return "CustomRecipe"; }
  void update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) override { unreadable("a foreign quantizer does not quantize"); }
  StoragePtr make_empty(Session&, const Dims&, DType) const override { unreadable("a foreign quantizer allocates nothing"); }

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr&) override { unreadable("a foreign quantizer does not quantize"); }
};

using Log = json::Array;

// A subclass of Identity that logs its calls.
class IdentitySubclass final : public IdentityQuantizer {
 public:
  explicit IdentitySubclass(Log* log) : log_(log) { internal = true; }
  QPtr copy() const override { return std::make_shared<IdentitySubclass>(*this); }

 protected:
  StoragePtr quantize_impl(Session& session, const ArrayPtr& x) override {
    if (log_) log_->push_back(json::object({{"call", "per split"}, {"class", "subclass of identity"}, {"rows", x->shape[0]}, {"dtype", name_of(x->dtype)}}));
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
  if (name == "BLK1" || name == "BLK2") return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, name == "BLK1" ? 1 : 2);
  if (name == "FP4") return std::make_shared<NVFP4Quantizer>();
  if (name == "ID" && subclass) return std::make_shared<IdentitySubclass>(log);
  if (name == "ID") return std::make_shared<IdentityQuantizer>();
  unreadable("expected a kind of quantizer, found '" + string(name) + "'");
}

template <class Q>
Q* as(training::Quantizer& q) { return dynamic_cast<Q*>(&q); }

// What stands behind a family's name.
struct Setting {
  std::string_view name;
  void (*apply)(training::Quantizer&);
};
void set_e5m2(training::Quantizer& q) {
  if (auto* p = as<Float8CurrentScalingQuantizer>(q)) p->dtype = Encoding::e5m2;
  if (auto* p = as<Float8Quantizer>(q)) p->dtype = Encoding::e5m2;
  if (auto* p = as<MXFP8Quantizer>(q)) p->dtype = Encoding::e5m2;
  if (auto* p = as<Float8BlockQuantizer>(q)) p->dtype = Encoding::e5m2;
}
void set_pow2(training::Quantizer& q) {
  if (auto* p = as<Float8CurrentScalingQuantizer>(q)) p->force_pow_2_scales = true;
  if (auto* p = as<Float8BlockQuantizer>(q)) p->force_pow_2_scales = true;
}
void set_eps(training::Quantizer& q) {
  const F32Bits eps = std::bit_cast<F32Bits>(0.5f);
  if (auto* p = as<Float8CurrentScalingQuantizer>(q)) p->amax_epsilon = eps;
  if (auto* p = as<Float8BlockQuantizer>(q)) p->amax_epsilon = eps;
}
void set_2d(training::Quantizer& q) {
  if (auto* p = as<MXFP8Quantizer>(q)) p->with_2d_quantization = true;
  if (auto* p = as<NVFP4Quantizer>(q)) p->with_2d_quantization = true;
}
const Setting kSettings[] = {
    {"E5M2", set_e5m2},
    {"pow2", set_pow2},
    {"eps", set_eps},
    {"2D", set_2d},
    {"reduce", [](training::Quantizer& q) { q.amax_reduction()->enabled = true; }},
    {"rowonly", [](training::Quantizer& q) { q.set_usage(true, false); }},
    {"colonly", [](training::Quantizer& q) { q.set_usage(false, true); }},
    {"internal", [](training::Quantizer& q) { q.internal = true; }},
    {"scale2",
     [](training::Quantizer& q) {
       const float two = 2;
       std::ranges::copy(std::as_bytes(std::span(&two, 1)), as<Float8Quantizer>(q)->scale->bytes().begin());
     }},
    {"RS", [](training::Quantizer& q) { as<NVFP4Quantizer>(q)->row_scaled_nvfp4 = true; }},
    {"46", [](training::Quantizer& q) { as<NVFP4Quantizer>(q)->set_4over6(true, "MAE", 256); }},
    {"SR", [](training::Quantizer& q) { as<NVFP4Quantizer>(q)->stochastic_rounding = true; }},
    {"RHT", [](training::Quantizer& q) { as<NVFP4Quantizer>(q)->with_rht = as<NVFP4Quantizer>(q)->with_post_rht_amax = true; }},
    {"nosign", [](training::Quantizer& q) { as<NVFP4Quantizer>(q)->set_random_sign_mask(false); }},
    {"bf16", [](training::Quantizer& q) { as<IdentityQuantizer>(q)->dtype = DType::bfloat16; }},
    {"f32", [](training::Quantizer& q) { as<IdentityQuantizer>(q)->dtype = DType::float32; }},
    {"sub", [](training::Quantizer&) {}},
};

QPtr quantizer_of(std::string_view kind, Log* log = nullptr, std::string_view source = "original") {
  if (kind == "nothing" || kind == "none" || kind.empty()) return nullptr;
  if (kind == "quantizer compatible with custom recipes only") return std::make_shared<ForeignQuantizer>();
  if (kind == "HYB") return quantizer_of("H(MX|MX)", log, source);
  if (kind.starts_with("H(")) {
    const size_t bar = kind.find('|'), end = kind.find(')'), semicolon = std::min(kind.find(';'), end);
    if (bar == kind.npos || end == kind.npos) unreadable("expected H(rows|columns), found '" + string(kind) + "'");
    const std::string_view own = semicolon < end ? kind.substr(semicolon + 1, end - semicolon - 1) : source, rest = kind.substr(end + 1);
    const auto q = std::make_shared<HybridQuantizer>(quantizer_of(kind.substr(2, bar - 2), log), quantizer_of(kind.substr(bar + 1, semicolon - bar - 1), log),
                                                     own == "rwdq" ? "rowwise_dequantized" : own == "orig" ? "original" : string(own));
    if (rest == " row only") q->set_usage(true, false);
    if (rest == " column only") q->set_usage(false, true);
    return q;
  }
  std::string_view rest = kind.substr(std::min(kind.find('_'), kind.size()));
  const QPtr q = family(kind.substr(0, kind.find('_')), log, rest == "_sub");
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find('_'));
    const auto at = std::find_if(std::begin(kSettings), std::end(kSettings), [&](const Setting& s) { return s.name == word; });
    if (at == std::end(kSettings)) unreadable("expected a setting of a quantizer, found '" + string(word) + "' in '" + string(kind) + "'");
    at->apply(*q);
    rest.remove_prefix(word.size());
  }
  return q;
}

// Answers.

json::Value list(const std::vector<int64_t>& v) {
  json::Value out = json::array();
  for (int64_t n : v) out.push(n);
  return out;
}
json::Value list(const Offsets& v) { return v ? list(*v) : json::Value(); }
json::Value list(Shape s) { return json::array({s.rows, s.cols}); }
json::Value sizes(const ArrayPtr& a) { return a ? list(int64_values(*a)) : json::Value(); }

// {"ok": value}, or the class of the error and which of the words its text has.
json::Value outcome(const std::function<json::Value()>& act, std::initializer_list<std::string_view> words = {}) {
  try {
    return json::object({{"ok", act()}});
  } catch (const SemanticError& e) {
    json::Value out = json::object({{"error", name_of(e.error_class)}}), found = json::array();
    for (std::string_view w : words)
      if (string(e.what()).find(w) != string::npos) found.push(w);
    if (!found.array()->empty()) out.set("message_mentions", std::move(found));
    return out;
  }
}

json::Value buffers_json(GroupedTensor& g) {
  json::Value out = json::object();
  for (const Field& f : g.buffers()) {
    const ArrayPtr& b = *f.slot;
    out.set(f.name, b ? json::object({{"length", b->count()}, {"dims", b->shape.size()}, {"dtype", name_of(b->dtype)}}) : json::Value());
  }
  return out;
}

// Where a view stands: an empty buffer has no address to stand at.
json::Value view_json(GroupedTensor& g, const Array& view) {
  for (const Field& f : g.buffers()) {
    const ArrayPtr& b = *f.slot;
    if (!b || b->memory != view.memory || b->count() == 0) continue;
    return json::object({{"in", f.name}, {"byte_offset", view.data() - b->data()}, {"shape", list(view.shape)}, {"contiguous", view.contiguous()}});
  }
  return json::object({{"in", json::Value()}, {"shape", list(view.shape)}, {"numel", view.count()}});
}

json::Value member_json(GroupedTensor& g, const Tensorlike& member) {
  if (const ArrayPtr* plain = std::get_if<ArrayPtr>(&member)) return json::object({{"class", "Tensor"}, {"view", view_json(g, **plain)}});
  const StoragePtr s = std::get<StoragePtr>(member);
  json::Value out = json::object({{"class", s->class_name()}, {"quantizer_is_copy", s->quantizer && s->quantizer != g.quantizer}});
  for (const Field& f : s->fields())
    if (*f.slot) out.set(f.name, view_json(g, **f.slot));
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get())) out.set("_transpose_invalid", fp8->transpose_invalid);
  return out;
}

json::Value group_json(GroupedTensor& g, const QPtr& given, bool with_members) {
  json::Value shapes = json::array();
  for (const Dims& s : g.tensor_shapes) shapes.push(list(s));
  json::Value out = json::object({
      {"class", g.class_name()},
      {"logical_shape", list(g.logical_shape)},
      {"num_tensors", g.num_tensors},
      {"tensor_shapes", std::move(shapes)},
      {"buffers", buffers_json(g)},
      {"row_and_col_scale_same_object", g.scale_inv && g.scale_inv == g.columnwise_scale_inv},
      {"first_dims", sizes(g.first_dims)},
      {"last_dims", sizes(g.last_dims)},
      {"tensor_offsets", sizes(g.tensor_offsets)},
      {"tensor_offsets_dtype", g.tensor_offsets ? json::Value(name_of(g.tensor_offsets->dtype)) : json::Value()},
      {"offsets", list(g.offsets)},
      {"scale_inv_offsets", list(g.scale_inv_offsets)},
      {"columnwise_scale_inv_offsets", list(g.columnwise_scale_inv_offsets)},
      {"flags", json::object({{"row_scaled_nvfp4", g.row_scaled_nvfp4}, {"nvfp4_use_4over6", g.nvfp4_use_4over6}, {"nvfp4_e4m3_max", g.nvfp4_e4m3_max}})},
      {"nominal_dtype", name_of(g.fake_dtype)},
      {"shared_quantizer_object", g.quantizer == given},
  });
  if (g.is_tensor) out.set("outer_shape", list(g.shape()));
  if (!with_members) return out;
  json::Value members = json::array();
  for (const Tensorlike& m : g.quantized_tensors) members.push(member_json(g, m));
  out.set("members", std::move(members));
  return out;
}

// Groups.

Session session_of(const json::Value& given, Subject& subject) {
  Session out(subject);
  out.arch = given.text("arch") == "non_TN" ? Arch::sm100 : Arch::sm90;
  return out;
}

// The members' sizes as the record's variant gives them: sizes that vary are passed even where they happen to agree.
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

json::Value alloc(const json::Value& given, Subject& subject) {
  Session session = session_of(given, subject);
  return outcome(
      [&]() -> json::Value {
        const QPtr q = quantizer_of(given.text("kind"));
        const Usages u = usages_of(given);
        if (q) q->set_usage(u.rowwise, u.columnwise), q->internal = flag(given, "internal", false);
        const json::Value* dtype = given.find("dtype");
        const std::optional<DType> nominal = !dtype ? DType::bfloat16 : dtype->is_null() ? std::nullopt : dtype_named(*dtype->string());
        if (const json::Value* logical = given.find("logical")) {
          const auto n = numbers_of(logical);
          return buffers_json(*make_grouped_tensor(session, {given.find("num")->to_int().value(), std::nullopt, std::nullopt, {n[0], n[1]}}, q, nominal));
        }
        const bool capturing = flag(given, "capturing", false);
        const GroupedTensorPtr g = make_grouped_tensor(session, layout_of(members_of(given), given.text("variant")), q, nominal, capturing);
        return capturing ? json::Value(g->class_name()) : group_json(*g, q, true);
      },
      {"rowwise", "columnwise", "Identity", "Hybrid"});
}

json::Value shapes_helper(const json::Value& given, Subject& subject) {
  Session session = session_of(given, subject);
  return outcome([&] {
    const QPtr q = quantizer_of(given.text("kind"));
    if (q) q->internal = flag(given, "internal", true);
    return group_json(*make_grouped_tensor_with_shapes(session, members_of(given), q, DType::bfloat16), q, false);
  });
}

json::Value predicates(const json::Value& given, Subject& subject) {
  Session session = session_of(given, subject);
  const GroupedTensorPtr g = make_grouped_tensor(session, layout_of(members_of(given), given.text("variant")), nullptr, DType::bfloat16);
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
GroupedTensorPtr some_group(Session& session, const json::Value& given) {
  const bool rows = given.text("variant") != "uniform" && given.text("variant") != "last",
             cols = given.text("variant") == "last" || given.text("variant") == "both";
  return make_grouped_tensor(session, layout_of({{128, 128}, {rows ? 256 : 128, cols ? 256 : 128}}, given.text("variant")), quantizer_of(given.text("kind")),
                             DType::bfloat16);
}

json::Value save(const json::Value& given, Subject& subject) {
  Session session = session_of(given, subject);
  const GroupedTensorPtr g = some_group(session, given);
  std::vector<Field> all = g->buffers();
  all.insert(all.end(), {{"first_dims", &g->first_dims}, {"last_dims", &g->last_dims}, {"tensor_offsets", &g->tensor_offsets}});
  std::vector<std::pair<string, ArrayPtr>> before;
  for (const Field& f : all) before.emplace_back(f.name, *f.slot);
  json::Value order = json::array(), left = json::array();
  const Saved saved = g->prepare_for_saving();
  for (const ArrayPtr& a : saved) {
    const auto at = std::find_if(before.begin(), before.end(), [&](const auto& b) { return a && b.second == a; });
    order.push(at == before.end() ? json::Value() : json::Value(at->first));
  }
  for (const Field& f : all)
    if (*f.slot) left.push(f.name);
  for (size_t i = g->restore_from_saved(saved); i < saved.size(); ++i) left.push("not restored");
  for (size_t i = 0; i < all.size(); ++i)
    if (*all[i].slot != before[i].second) left.push(all[i].name + " restored elsewhere");
  return json::object({{"order", std::move(order)}, {"left", std::move(left)}});
}

json::Value clear(const json::Value& given, Subject& subject) {
  Session session = session_of(given, subject);
  const GroupedTensorPtr g = some_group(session, given);
  json::Value result = outcome([&] {
    g->clear();
    return json::Value();
  });
  return json::object({{"result", std::move(result)}, {"buffers", buffers_json(*g)}, {"num_tensors", g->num_tensors}, {"logical_shape", list(g->logical_shape)}});
}

json::Value from_rowwise(const json::Value& given, Subject&) {
  return outcome([&] {
    const json::Value* elements = given.find("elements");
    const ArrayPtr data = elements->is_null() ? nullptr : empty({elements->to_int().value()}, DType::bfloat16);
    const GroupedTensorPtr g =
        make_grouped_tensor_from_rowwise_data(given.find("num")->to_int().value(), numbers_of(given.find("tensor_shape")), data, flag(given, "internal", false));
    json::Value shapes = json::array();
    for (const Dims& s : g->tensor_shapes) shapes.push(list(s));
    json::Value out = json::object({{"class", g->class_name()},
                                    {"logical_shape", list(g->logical_shape)},
                                    {"tensor_shapes", std::move(shapes)},
                                    {"shares_memory", share_memory(*g->rowwise_data, *data)},
                                    {"nominal_dtype", name_of(g->fake_dtype)},
                                    {"data_dims", g->rowwise_data->shape.size()}});
    if (g->is_tensor) out.set("outer_shape", list(g->shape()));
    return out;
  });
}

json::Value offsets(const json::Value& given, Subject&) {
  const ArrayPtr out = splits_to_offsets(numbers_of(given.find("split_dims")), given.find("common_dim")->to_int().value());
  return json::object({{"offsets", list(int64_values(*out))}, {"dtype", name_of(out->dtype)}});
}

json::Value validate(const json::Value& given, Subject&) {
  return outcome(
      [&] {
        std::vector<QPtr> experts;
        for (const json::Value& e : *given.find("experts")->array()) experts.push_back(quantizer_of(*e.string()));
        validate_split_quantizers(experts);
        return json::Value();
      },
      {"None and concrete", "HybridQuantizer and non-hybrid", "Identity-backed", "plain", "rowwise", "columnwise", "source", "families", "configurations"});
}

// A float array of `shape` whose elements are all `value`, which the dtype holds exactly.
ArrayPtr constant(const Dims& shape, DType dtype, float value) {
  const ArrayPtr out = zeros(shape, dtype);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t half = static_cast<uint16_t>(bits >> 16);
  for (int64_t i = 0; i < out->count(); ++i)
    if (dtype == DType::float32)
      std::ranges::copy(std::as_bytes(std::span(&bits, 1)), out->bytes().begin() + i * 4);
    else
      std::ranges::copy(std::as_bytes(std::span(&half, 1)), out->bytes().begin() + i * 2);
  return out;
}
float first_value(const Array& x) {
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

// The stand-in of the native entries: an Identity storage with a copy of the split, rows raised by one so that a source made of them is seen.
StoragePtr stand_in(const ArrayPtr& piece, const training::Quantizer& q) {
  auto out = std::make_shared<IdentityStorage>();
  out->hp_data = clone(piece);
  if (q.rowwise_usage && piece->count() > 0) out->hp_data = constant(piece->shape, piece->dtype, first_value(*piece) + 1);
  out->dtype = piece->dtype;
  out->is_tensor = false;
  return out;
}

SplitEntries counting(Log& log) {
  SplitEntries out;
  out.bulk = [&log](Session&, const ArrayPtr& x, const std::vector<int64_t>& splits, const std::vector<QPtr>& qs, bool disable) {
    log.push_back(json::object({{"call", "bulk"},
                                {"class", qs[0]->class_name()},
                                {"n", qs.size()},
                                {"rows", x->shape[0]},
                                {"dtype", name_of(x->dtype)},
                                {"disable_bulk_allocation", disable},
                                {"source_value", static_cast<double>(first_value(*x))}}));
    std::vector<StoragePtr> pieces;
    int64_t at = 0;
    for (size_t i = 0; i < splits.size(); at += splits[i++]) pieces.push_back(stand_in(slice(x, 0, at, at + splits[i]), *qs[i]));
    return pieces;
  };
  out.bgrad = [&log](Session&, const ArrayPtr& x, const QPtr& q) {
    log.push_back(json::object({{"call", "bgrad"}, {"class", q->class_name()}, {"rows", x->shape[0]}, {"dtype", name_of(x->dtype)}}));
    return std::pair(stand_in(x, *q), zeros({x->shape.back()}, x->dtype));
  };
  return out;
}

json::Value output_json(const Tensorlike& output, const Array& input) {
  if (const ArrayPtr* a = std::get_if<ArrayPtr>(&output))
    return json::object({{"class", "Tensor"}, {"shape", list((*a)->shape)}, {"dtype", name_of((*a)->dtype)}, {"aliases_input", share_memory(**a, input)}});
  const StoragePtr s = std::get<StoragePtr>(output);
  const auto* hybrid = dynamic_cast<const HybridStorage*>(s.get());
  const auto child = [](const StoragePtr& c) { return c ? json::Value(c->class_name()) : json::Value(); };
  return json::object({{"class", s->class_name()},
                       {"row", hybrid ? child(hybrid->rowwise_storage) : json::Value()},
                       {"col", hybrid ? child(hybrid->columnwise_storage) : json::Value()},
                       {"nominal_dtype", name_of(s->dtype)}});
}

json::Value split(const json::Value& given, Subject& subject) {
  Session session = session_of(given, subject);
  const std::vector<int64_t> splits = numbers_of(given.find("splits"));
  int64_t rows = 0;
  for (int64_t s : splits) rows += s;
  const ArrayPtr x = constant({rows, 4}, dtype_named(given.text("input_dtype")).value(), 5);
  Log log;
  return outcome([&] {
    std::vector<QPtr> experts;
    for (size_t i = 0; i < splits.size(); ++i) {
      experts.push_back(quantizer_of(given.text("kind"), &log, given.find("source") ? given.text("source") : "original"));
      if (const Usages u = usages_of(given); experts.back() && given.find("usages")) experts.back()->set_usage(u.rowwise, u.columnwise);
    }
    const SplitOptions options{dtype_named(given.text("activation_dtype")).value(), flag(given, "bias_gradient", false),
                               flag(given, "disable_bulk_allocation", false)};
    const SplitResult result = split_quantize(session, x, splits, experts, options, counting(log));
    json::Value outputs = json::array(), gradients = json::array();
    for (const Tensorlike& o : result.outputs) outputs.push(output_json(o, *x));
    for (const ArrayPtr& b : result.bias_gradients) gradients.push(json::object({{"shape", list(b->shape)}, {"dtype", name_of(b->dtype)}}));
    return json::object({{"calls", log}, {"outputs", std::move(outputs)}, {"bias_gradients", options.bias_gradient ? std::move(gradients) : json::Value()}});
  });
}

json::Value identity_use(const json::Value& given, Subject&) {
  const QPtr q = quantizer_of(given.text("quantizer"));
  const Usages u = identity_directions(q.get());
  return json::object({{"uses_identity", uses_identity(q.get())}, {"identity_directions", json::array({u.rowwise, u.columnwise})}});
}

struct Group {
  std::string_view name;
  json::Value (*then)(const json::Value& given, Subject& subject);
};
constexpr std::array kGroups = {
    Group{"alloc", alloc},     Group{"shapes_helper", shapes_helper}, Group{"predicates", predicates}, Group{"save", save},   Group{"clear", clear},
    Group{"offsets", offsets}, Group{"from_rowwise", from_rowwise},   Group{"validate", validate},     Group{"split", split}, Group{"identity_use", identity_use},
};

}  // namespace

json::Value witness_grouped(std::string_view group, const json::Value& given, Subject& subject) {
  const auto at = std::find_if(kGroups.begin(), kGroups.end(), [&](const Group& g) { return g.name == group; });
  if (at == kGroups.end()) unreadable("unknown group " + string(group));
  return at->then(given, subject);
}

}  // namespace assay

// Records of TransformerEngine's hybrid quantizer and of the contract that all quantizers share: JSON to
// calls of training/, results to JSON.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "training/formats/formats.h"
#include "training/formats/hybrid.h"
#include "training/formats/quantizer.h"
#include "training/formats/storage.h"

namespace assay {

namespace {

namespace tr = training;
using json::Value;
using std::string;
using tr::QuantizerPtr;

void set_usages(tr::Quantizer& q, tr::Usages u) { q.set_usage(u.rowwise, u.columnwise); }

Value pair(Value a, Value b) { return json::array({std::move(a), std::move(b)}); }
Value pair(tr::Usages u) { return pair(u.rowwise, u.columnwise); }
Value or_null(bool present, Value v) { return present ? std::move(v) : Value(); }

// The quantizers that records name.

template <class Q, class... Args> std::shared_ptr<Q> make(Args... args) {
  return std::make_shared<Q>(args...);
}

template <class Set> QuantizerPtr nvfp4(Set set) {
  auto q = make<tr::NVFP4Quantizer>();
  set(*q);
  return q;
}

struct Named {
  std::string_view name;
  QuantizerPtr (*make)();
};
const Named kQuantizers[] = {
    {"CS", [] { return QuantizerPtr(make<tr::Float8CurrentScalingQuantizer>()); }},
    {"CS_E5M2", [] { return QuantizerPtr(make<tr::Float8CurrentScalingQuantizer>(Encoding::e5m2)); }},
    {"DS",
     [] {
       return QuantizerPtr(make<tr::Float8Quantizer>(
           tr::from_bytes({}, tr::DType::float32, std::as_bytes(std::span<const float>({1.0f}))),
           tr::zeros({1}, tr::DType::float32), Encoding::e4m3));
     }},
    {"MX", [] { return QuantizerPtr(make<tr::MXFP8Quantizer>()); }},
    {"MX_2D",
     [] {
       auto q = make<tr::MXFP8Quantizer>();
       q->with_2d_quantization = true;
       return QuantizerPtr(q);
     }},
    {"BLK", [] { return QuantizerPtr(make<tr::Float8BlockQuantizer>()); }},
    {"BLK1", [] { return QuantizerPtr(make<tr::Float8BlockQuantizer>(Encoding::e4m3, 1)); }},
    {"BLK2", [] { return QuantizerPtr(make<tr::Float8BlockQuantizer>(Encoding::e4m3, 2)); }},
    {"FP4", [] { return nvfp4([](tr::NVFP4Quantizer&) {}); }},
    {"FP4_SR", [] { return nvfp4([](tr::NVFP4Quantizer& q) { q.stochastic_rounding = true; }); }},
    {"FP4_2D", [] { return nvfp4([](tr::NVFP4Quantizer& q) { q.with_2d_quantization = true; }); }},
    {"FP4_RS", [] { return nvfp4([](tr::NVFP4Quantizer& q) { q.row_scaled_nvfp4 = true; }); }},
    {"ID", [] { return QuantizerPtr(make<tr::IdentityQuantizer>()); }},
    {"ID_bf16", [] { return QuantizerPtr(make<tr::IdentityQuantizer>(tr::DType::bfloat16)); }},
    {"REF_CS", [] { return QuantizerPtr(make<tr::CurrentScalingQuantizerRef>()); }},
    {"REF_FP4", [] { return QuantizerPtr(make<tr::NVFP4QuantizerRef>()); }},
    {"HYB",
     [] {
       return QuantizerPtr(std::make_shared<tr::HybridQuantizer>(QuantizerPtr(make<tr::MXFP8Quantizer>()),
                                                                 QuantizerPtr(make<tr::MXFP8Quantizer>())));
     }},
};

std::shared_ptr<tr::HybridQuantizer> hybrid(QuantizerPtr row, QuantizerPtr col,
                                            const string& source = "original") {
  return std::make_shared<tr::HybridQuantizer>(std::move(row), std::move(col), source);
}

QuantizerPtr quantizer(std::string_view name) { return row_called(kQuantizers, name, "a quantizer")->make(); }
QuantizerPtr quantizer(const Given& name) { return name.row(kQuantizers).make(); }
QuantizerPtr quantizer(const Given& given, std::string_view key) {
  return quantizer(given.at(key, "the name of a quantizer"));
}

string source_of(const Given& given) {
  return string(given.word("source", {"original", "rowwise_dequantized"}));
}

// "plain CS", or "H(CS|MX;original)".
QuantizerPtr described_quantizer(const Given& given) {
  const Given described = given.at("quantizer", "'plain X' or 'H(X|Y;source)'");
  const std::string_view text = described.text();
  if (text.starts_with("plain ")) return quantizer(text.substr(6));
  const size_t bar = text.find('|'), semicolon = text.find(';');
  if (!text.starts_with("H(") || !text.ends_with(")") || bar == text.npos || semicolon == text.npos ||
      semicolon < bar)
    described.refuse("'plain X' or 'H(X|Y;source)'");
  return hybrid(quantizer(text.substr(2, bar - 2)), quantizer(text.substr(bar + 1, semicolon - bar - 1)),
                string(text.substr(semicolon + 1, text.size() - semicolon - 2)));
}

// The switch of amax reduction: a bool, or "absent".
Value switch_of(tr::Quantizer& q) {
  if (auto* h = dynamic_cast<tr::HybridQuantizer*>(&q)) return h->with_amax_reduction();
  return q.amax_reduction() ? Value(q.amax_reduction()->enabled) : Value("absent");
}
tr::GroupPtr group_of(tr::Quantizer& q) {
  if (auto* h = dynamic_cast<tr::HybridQuantizer*>(&q)) return h->amax_reduction_group();
  return q.amax_reduction() ? q.amax_reduction()->group : nullptr;
}
tr::GroupPtr new_group(string name) {
  auto g = std::make_shared<tr::ProcessGroup>();
  g->name = std::move(name);
  return g;
}

// Children that log what is called. A row child stores another value than it is given, so that it shows which
// one the column child received.

constexpr float kValue = 5, kRowValue = kValue + 1, kOld = 0;

tr::ArrayPtr filled(tr::Session& session, float value, tr::DType dtype = tr::DType::bfloat16) {
  const std::vector<float> values(8, value);
  return tr::cast(session, tr::from_bytes({2, 4}, tr::DType::float32, std::as_bytes(std::span(values))),
                  dtype);
}
// The first element; every dtype here holds it exactly.
float first(tr::Session& session, const tr::ArrayPtr& a) {
  float value;
  std::memcpy(&value, tr::cast(session, a, tr::DType::float32)->data(), sizeof value);
  return value;
}

using Log = std::shared_ptr<std::vector<string>>;

class CountingStorage final : public tr::IdentityStorage {
 public:
  CountingStorage(string who, Log log, tr::ArrayPtr data) : who(std::move(who)), log(std::move(log)) {
    hp_data = std::move(data);
    dtype = hp_data->dtype;
  }
  string who;
  Log log;
  tr::ArrayPtr dequantize(tr::Session& session, std::optional<tr::DType> to) override {
    log->push_back(who + ".dequantize(dtype=" + (to ? string(tr::name_of(*to)) : "None") + ")");
    return IdentityStorage::dequantize(session, to);
  }
};

class CountingQuantizer final : public tr::IdentityQuantizer {
 public:
  CountingQuantizer(string who, Log log) : who(std::move(who)), log(std::move(log)) {}
  string who;
  Log log;
  std::string_view class_name() const override { return who == "row" ? "RQ" : "KQ"; }
  QuantizerPtr copy() const override { return std::make_shared<CountingQuantizer>(*this); }
  tr::ArrayPtr stored(tr::Session& session, const tr::ArrayPtr& x) const {
    return who == "row" ? filled(session, kRowValue, x->dtype) : tr::clone(x);
  }
  void update_quantized(tr::Session& session, const tr::ArrayPtr& x, tr::Storage& dst,
                        std::optional<F32Bits> noop) override {
    log->push_back(who + ".update" + (noop ? "(flag)" : ""));
    tr::copy_into(*stored(session, x), *dynamic_cast<tr::IdentityStorage&>(dst).hp_data);
  }
  tr::StoragePtr make_empty(tr::Session&, const tr::Dims& shape, tr::DType to) const override {
    log->push_back(who + ".make_empty");
    return std::make_shared<CountingStorage>(who, log, tr::empty(shape, to));
  }

 protected:
  tr::StoragePtr quantize_impl(tr::Session& session, const tr::ArrayPtr& x) override {
    log->push_back(who + ".quantize");
    return std::make_shared<CountingStorage>(who, log, stored(session, x));
  }
};

struct Counted {
  Log log = std::make_shared<std::vector<string>>();
  std::shared_ptr<CountingQuantizer> row = std::make_shared<CountingQuantizer>("row", log),
                                     col = std::make_shared<CountingQuantizer>("col", log);
  std::shared_ptr<tr::HybridQuantizer> parent;

  explicit Counted(const Given& given) {
    parent = hybrid(row, col, source_of(given));
    if (given.has("usages")) set_usages(*parent, given.usages("usages"));
    parent->internal = given.flag("internal", false);
    parent->optimize_for_gemm = given.flag("optimize_for_gemm", false);
  }
  Value calls() const { return shown(*log); }
  std::shared_ptr<tr::HybridStorage> destination(tr::Session& session, tr::Usages present,
                                                 tr::DType dtype = tr::DType::bfloat16) const {
    const auto child = [&](const char* who, bool exists) {
      return exists ? std::make_shared<CountingStorage>(who, log, filled(session, kOld, dtype)) : nullptr;
    };
    auto dst = std::make_shared<tr::HybridStorage>(child("row", present.rowwise),
                                                   child("col", present.columnwise), parent, dtype);
    dst->is_tensor = !parent->internal;
    return dst;
  }
};

float stored_in(tr::Session& session, const tr::StoragePtr& s) {
  return first(session, dynamic_cast<tr::IdentityStorage&>(*s).hp_data);
}
Value column_source(tr::Session& session, const tr::HybridStorage& s) {
  if (!s.columnwise_storage) return {};
  const float value = stored_in(session, s.columnwise_storage);
  return value == kValue ? "original" : value == kRowValue ? "row result dequantized" : "untouched";
}

// The groups.

Value construct(const Given& given, tr::Session&) {
  const auto argument = [&](std::string_view key) -> tr::QuantizerLike {
    const std::string_view word = given.word(key, {"request", "base request", "nothing", "quantizer",
                                                   "number", "plain tensor", "quantizer class"});
    if (word == "request") return tr::DelayedScalingRequest{};
    if (word == "base request") return tr::QuantizerRequest{};
    if (word == "nothing") return std::monostate{};
    if (word == "quantizer") return quantizer("ID");
    return tr::NotAQuantizer{string(word)};
  };
  const tr::QuantizerLike row = argument("row"),
                          col = given.flag("same_object", false) ? row : argument("col");
  const string source = given.name("source").value_or("");
  try {
    if (source == "<left out>") {
      const tr::HybridQuantizer h(row, col);
      return json::object({{"ok", pair(h.usages())},
                           {"source", h.columnwise_source},
                           {"compatible_recipe", h.compatible_recipe()}});
    }
    const tr::HybridQuantizer h(row, col, source);
    return json::object({{"ok", pair(h.usages())}});
  } catch (const tr::SemanticError& e) {
    return failed(e, {"rowwise direction", "columnwise direction", "rowwise argument", "columnwise argument",
                      "columnwise_source", "distinct"});
  }
}

Value pinning(const Given& given, tr::Session&) {
  const QuantizerPtr row = quantizer("MX"), col = quantizer("MX");
  set_usages(*row, given.usages("row_usages"));
  set_usages(*col, given.usages("col_usages"));
  row->internal = given.flag("row_internal", false);
  col->internal = given.flag("col_internal", false);
  row->optimize_for_gemm = given.flag("row_optimize", false);
  const auto parent = hybrid(row, col);
  return json::object({{"row_usages", pair(row->usages())},
                       {"col_usages", pair(col->usages())},
                       {"row_internal", row->internal},
                       {"col_internal", col->internal},
                       {"row_optimize", row->optimize_for_gemm},
                       {"children_are_given_objects",
                        parent->rowwise_quantizer == row && parent->columnwise_quantizer == col},
                       {"parent_usages", pair(parent->usages())},
                       {"parent_internal", parent->internal}});
}

Value calls_quantize(const Given& given, tr::Session& session) {
  Counted c(given);
  const tr::DType dtype =
      given.has("input_dtype") ? given.at("input_dtype", "a dtype").dtype() : tr::DType::bfloat16;
  const tr::ArrayPtr x = filled(session, kValue, dtype);
  if (given.has("list_of")) {
    const std::vector<tr::ArrayPtr> all(static_cast<size_t>(given.number("list_of")), x);
    const size_t results = c.parent->multi_quantize(session, all).size();
    return json::object({{"calls", c.calls()}, {"results", results}});
  }
  if (given.flag("out_given", false)) {
    const tr::StoragePtr out = c.destination(session, {true, true}, dtype);
    const bool same = c.parent->quantize(session, x, out) == out;
    return json::object({{"calls", c.calls()}, {"returns_out", same}});
  }
  const auto result = std::dynamic_pointer_cast<tr::HybridStorage>(c.parent->quantize(session, x));
  if (given.has("input_dtype")) return json::object({{"calls", c.calls()}});
  return json::object({{"calls", c.calls()},
                       {"class", result->class_name()},
                       {"row_present", result->rowwise_storage != nullptr},
                       {"col_present", result->columnwise_storage != nullptr},
                       {"col_source", column_source(session, *result)},
                       {"result_quantizer_is_parent", result->quantizer == c.parent},
                       {"result_quantizer_usages", pair(result->quantizer->usages())}});
}

Value calls_make_empty(const Given& given, tr::Session& session) {
  Counted c(given);
  const auto result = std::dynamic_pointer_cast<tr::HybridStorage>(
      c.parent->make_empty(session, {2, 4}, tr::DType::bfloat16));
  return json::object({{"calls", c.calls()},
                       {"class", result->class_name()},
                       {"row_present", result->rowwise_storage != nullptr},
                       {"col_present", result->columnwise_storage != nullptr}});
}

Value calls_update(const Given& given, tr::Session& session) {
  const tr::ArrayPtr x = filled(session, kValue);
  if (given.has("dst_kind")) {
    tr::IdentityStorage other;
    if (given.text("dst_kind").find("hybrid") != string::npos)
      given.at("dst_kind", "")
          .refuse(
              "a storage that is not a hybrid: all of these are refused in the same way, so an identity "
              "represents them");
    other.hp_data = filled(session, kOld);
    Value got = outcome([&] {
      return hybrid(quantizer("ID"), quantizer("ID"))->update_quantized(session, x, other, std::nullopt),
             Value(true);
    });
    return got;
  }
  Counted c(given);
  const auto dst = c.destination(session, given.usages("dst"));
  c.parent->update_quantized(session, x, *dst,
                             given.flag("flag_given", false) ? std::optional<F32Bits>(0) : std::nullopt);
  const bool row = dst->rowwise_storage != nullptr;
  return json::object(
      {{"calls", c.calls()},
       {"class", dst->class_name()},
       {"row_present", row},
       {"col_present", dst->columnwise_storage != nullptr},
       {"returns_dst", true},  // an update here has no result but the object that it was given
       {"row_refreshed", or_null(row, row && stored_in(session, dst->rowwise_storage) == kRowValue)},
       {"col_source", column_source(session, *dst)}});
}

Value copy(const Given& given, tr::Session&) {
  Counted c(given);
  c.row->internal = given.flag("row_child_internal", false);
  c.row->optimize_for_gemm = given.flag("row_child_optimize", false);
  set_usages(*c.col, given.usages("col_child_usages_before"));
  const auto made = std::dynamic_pointer_cast<tr::HybridQuantizer>(c.parent->copy());
  return json::object(
      {{"usages", pair(made->usages())},
       {"internal", made->internal},
       {"optimize_for_gemm", made->optimize_for_gemm},
       {"source", made->columnwise_source},
       {"row_child", made->rowwise_quantizer->describe()},
       {"col_child", made->columnwise_quantizer->describe()},
       {"children_are_new_objects", made->rowwise_quantizer != c.row && made->columnwise_quantizer != c.col},
       {"original_col_child_usages_after", pair(c.col->usages())}});
}

Value amax(const Given& given, tr::Session&) {
  if (given.has("row_group") || given.has("col_group")) {
    std::map<string, tr::GroupPtr> groups;  // one name is one object
    const auto child = [&](const char* key) {
      const QuantizerPtr q = quantizer("CS");
      if (const auto name = given.name(key))
        q->amax_reduction()->group = groups.try_emplace(*name, new_group(*name)).first->second;
      return q;
    };
    const auto h = hybrid(child("row_group"), child("col_group"));
    return outcome([&] {
      const tr::GroupPtr g = h->amax_reduction_group();
      return or_null(g != nullptr, g ? g->name : "");
    });
  }
  const QuantizerPtr row = quantizer(given, "row"), col = quantizer(given, "col");
  const auto h = hybrid(row, col);
  Value out = json::object();
  out.set("initial_switch", outcome([&] { return Value(h->with_amax_reduction()); }));
  out.set("initial_group_none", outcome([&] { return Value(h->amax_reduction_group() == nullptr); }));
  out.set("after_set", outcome([&] {
            h->set_with_amax_reduction(true);
            h->set_amax_reduction_group(new_group("g"));
            return json::object({{"read_switch", h->with_amax_reduction()},
                                 {"read_group_is_set", h->amax_reduction_group() != nullptr},
                                 {"row_has_switch", switch_of(*row)},
                                 {"col_has_switch", switch_of(*col)},
                                 {"row_group_set", group_of(*row) != nullptr},
                                 {"col_group_set", group_of(*col) != nullptr}});
          }));
  return out;
}

Value predicates_of(tr::Quantizer& q) {
  Value safe = json::object();
  for (const char* u : {"11", "10", "01", "00"}) {
    q.set_usage(u[0] == '1', u[1] == '1');
    safe.set(u, outcome([&] { return Value(q.is_requantization_safe()); }));
  }
  return json::object(
      {{"rowwise_only_all_gather", outcome([&] { return Value(q.supports_only_rowwise_all_gather()); })},
       {"requantization_safe_by_usages_row_col", std::move(safe)}});
}

Value predicates(const Given& given, tr::Session&) {
  return predicates_of(*hybrid(quantizer(given, "row"), quantizer(given, "col"), source_of(given)));
}

Value plain_predicates(const Given& given, tr::Session&) {
  const QuantizerPtr q = quantizer(given, "quantizer");
  Value out = predicates_of(*q), quantizable = json::object();
  const std::pair<const char*, tr::Dims> shapes[] = {{"256x256", {256, 256}},
                                                     {"128x256", {128, 256}},
                                                     {"32x64", {32, 64}},
                                                     {"16x48", {16, 48}},
                                                     {"48x80", {48, 80}},
                                                     {"17x64", {17, 64}},
                                                     {"64x17", {64, 17}},
                                                     {"2x64x128", {2, 64, 128}},
                                                     {"3x16x128", {3, 16, 128}},
                                                     {"128", {128}},
                                                     {"", {}}};
  for (const auto& [text, shape] : shapes)
    quantizable.set(text, outcome([&, &shape = shape] { return Value(q->is_quantizable(shape)); }));
  out.set("compatible_recipe", outcome([&] { return Value(q->compatible_recipe()); }));
  out.set("custom", q->custom());
  out.set("quantizable", std::move(quantizable));
  return out;
}

Value plain_copy(const Given& given, tr::Session&) {
  const QuantizerPtr q = quantizer(given, "quantizer");
  q->internal = given.flag("internal", false);
  q->optimize_for_gemm = given.flag("optimize_for_gemm", false);
  set_usages(*q, given.usages("usages"));
  if (tr::AmaxReduction* r = q->amax_reduction()) *r = {true, new_group("g")};
  return outcome([&] {
    const QuantizerPtr made = q->copy();
    Value out = json::object({{"usages", pair(made->usages())},
                              {"internal", made->internal},
                              {"optimize_for_gemm", made->optimize_for_gemm},
                              {"is_new_object", made != q}});
    if (const tr::AmaxReduction* r = made->amax_reduction()) {
      out.set("switch", r->enabled);
      out.set("group_kept", r->group == q->amax_reduction()->group);
    }
    if (const auto* delayed = dynamic_cast<const tr::Float8Quantizer*>(made.get())) {
      out.set("scale_shared",
              tr::share_memory(*delayed->scale, *dynamic_cast<tr::Float8Quantizer&>(*q).scale));
      out.set("amax_shared", tr::share_memory(*delayed->amax, *dynamic_cast<tr::Float8Quantizer&>(*q).amax));
    }
    return out;
  });
}

Value set_usage(const Given& given, tr::Session&) {
  const QuantizerPtr q = quantizer("CS");
  set_usages(*q, given.usages("present"));
  const auto [row, col] = given.at("request", "a pair of true, false or null").request();
  q->set_usage(row, col);
  return json::object({{"usages", pair(q->rowwise_usage, q->columnwise_usage)},
                       {"get_usages", json::object({{"rowwise", q->usages().rowwise},
                                                    {"columnwise", q->usages().columnwise}})}});
}

Value strip(const Given& given, tr::Session& session) {
  const tr::ArrayPtr x = tr::zeros({32, 32}, tr::DType::bfloat16);
  if (given.flag("later_usage_change_on_caller", false)) {
    const QuantizerPtr q = quantizer("CS");
    const tr::StoragePtr result = q->quantize(session, x);
    q->set_usage(true, false);
    return json::object({{"result_quantizer_usages", pair(result->quantizer->usages())}});
  }
  const QuantizerPtr q = quantizer(given, "quantizer");
  const tr::GroupPtr group = new_group("g");
  if (given.flag("switch", false)) tr::set_amax_reduction_group(*q, group);
  const tr::StoragePtr result = q->quantize(session, x);
  return json::object({{"result_quantizer_is_caller", result->quantizer == q},
                       {"result_switch", switch_of(*result->quantizer)},
                       {"result_group_none", group_of(*result->quantizer) == nullptr},
                       {"caller_switch", switch_of(*q)},
                       {"caller_group_kept", group_of(*q) == group}});
}

Value update_quantizer(const Given& given, tr::Session& session) {
  tr::IdentityStorage tensor;
  tensor.hp_data = filled(session, kOld);
  const Given present = given.at("present", "the name of a quantizer, null or 'nothing'"),
              fresh = given.at("new", "the name of a quantizer, or 'same'");
  if (!present.is_null() && present.text() != "nothing") tensor.quantizer = quantizer(present);
  const QuantizerPtr now = fresh.text().find("same") != string::npos ? tensor.quantizer : quantizer(fresh);
  if (!now) fresh.refuse("the name of a quantizer");
  try {
    tr::update_quantizer(session, tensor, now);
  } catch (const tr::SemanticError& e) {
    return failed(e);
  }
  return json::object(
      {{"warnings", categories_of(session.warnings)}, {"stored_is_given", tensor.quantizer == now}});
}

// Changes one setting of a quantizer; the word is the record's.
void vary(tr::Quantizer& q, std::string_view word) {
  constexpr F32Bits kEps = 0x3A83126F;  // 0.001
  auto* current = dynamic_cast<tr::Float8CurrentScalingQuantizer*>(&q);
  auto* block = dynamic_cast<tr::Float8BlockQuantizer*>(&q);
  auto* mx = dynamic_cast<tr::MXFP8Quantizer*>(&q);
  auto* fp4 = dynamic_cast<tr::NVFP4Quantizer*>(&q);
  if (word == "none (second object)") return;
  if (word == "usage") return q.set_usage(true, false);
  if (word == "internal") return void(q.internal = true);
  if (word == "optimize") return void(q.optimize_for_gemm = true);
  if (word == "switch" && q.amax_reduction()) return void(q.amax_reduction()->enabled = true);
  if (word == "eps" && current) return void(current->amax_epsilon = kEps);
  if (word == "eps" && block) return void(block->amax_epsilon = kEps);
  if (word == "pow2" && current) return void(current->force_pow_2_scales = true);
  if (word == "pow2" && block) return void(block->force_pow_2_scales = false);
  if (word == "dtype" && current) return void(current->dtype = Encoding::e5m2);
  if (word == "dtype" && block) return void(block->dtype = Encoding::e5m2);
  if (word == "dtype" && mx) return void(mx->dtype = Encoding::e5m2);
  if ((word == "2d" || word == "dim") && block) return void(block->block_scaling_dim = 2);
  if (word == "2d" && mx) return void(mx->with_2d_quantization = true);
  if (word == "2d" && fp4) return void(fp4->with_2d_quantization = true);
  if (word == "sr" && fp4) return void(fp4->stochastic_rounding = true);
  if (word == "rs" && fp4) return void(fp4->row_scaled_nvfp4 = true);
  if (word == "rht" && fp4) return void(fp4->with_rht = true);
  if ((word == "post" || word == "post_rht") && fp4) return void(fp4->with_post_rht_amax = true);
  if ((word == "mask" || word == "sign") && fp4) return fp4->set_random_sign_mask(false);
  if (word == "o46" && fp4) return fp4->set_4over6(true, "MAE", 448);
  if (word == "mode" && fp4) return fp4->set_4over6(false, "MSE", 448);
  throw std::invalid_argument("given.variation: expected a setting of " + string(q.class_name()) +
                              " to vary, found '" + string(word) + "'");
}

Value equality(const Given& given, tr::Session&) {
  const QuantizerPtr a = quantizer(given, "family"), b = quantizer(given, "family");
  const string& variation = given.text("variation");
  if (variation == "holds a live process group") {
    // A class with no switch of amax reduction has nowhere to keep a group: it compares as ever, by value or
    // by identity.
    const tr::GroupPtr group = new_group("g");
    if (auto* h = dynamic_cast<tr::HybridQuantizer*>(a.get())) h->set_amax_reduction_group(group);
    else if (tr::AmaxReduction* r = a->amax_reduction()) r->group = group;
    const Value hash = outcome([&] { return tr::hash(*a), Value(true); }),
                equal = outcome([&] { return Value(tr::equal(*a, *b)); });
    return json::object({{"hash", hash},
                         {"equal_to_other", equal},
                         {"group_after_state_export_none", group_of(*tr::exported(*a)) == nullptr}});
  }
  const QuantizerPtr other = variation.starts_with("same") ? a : b;
  if (other == b) vary(*b, variation);
  const std::vector<string> fields = a->value_fields();
  return json::object({{"equal", tr::equal(*a, *other)},
                       {"hash_equal", outcome([&] { return Value(tr::hash(*a) == tr::hash(*other)); })},
                       {"value_fields", or_null(!fields.empty(), shown(fields))}});
}

Value nvfp4_construct(const Given& given, tr::Session&) {
  return outcome([&] {
    tr::NVFP4Quantizer q;
    const auto flags = {std::pair{"with_rht", &q.with_rht},
                        {"with_post_rht_amax", &q.with_post_rht_amax},
                        {"with_2d_quantization", &q.with_2d_quantization},
                        {"stochastic_rounding", &q.stochastic_rounding},
                        {"row_scaled_nvfp4", &q.row_scaled_nvfp4}};
    for (const auto& [key, field] : flags) *field = given.flag(key, false);
    q.set_4over6(given.flag("nvfp4_use_4over6", false), given.text("nvfp4_4over6_err_mode", "MAE"),
                 given.has("nvfp4_e4m3_max") ? static_cast<int>(given.number("nvfp4_e4m3_max")) : 448);
    q.set_random_sign_mask(given.flag("with_random_sign_mask", true));
    return q.describe();
  });
}

Value point_of_use(const Given& given, tr::Session&) {
  const QuantizerPtr q = described_quantizer(given);
  return outcome([&] {
    tr::set_amax_reduction_group(*q, new_group("g"));
    Value set = pair(switch_of(*q), group_of(*q) != nullptr);
    tr::set_amax_reduction_group(*q, nullptr);
    return json::object(
        {{"after_set", std::move(set)}, {"after_clear", pair(switch_of(*q), group_of(*q) == nullptr)}});
  });
}

Value wgrad_rebuild(const Given& given, tr::Session&) {
  return outcome([&] { return Value(tr::can_rebuild_wgrad_input(*described_quantizer(given))); });
}
Value gather_usage(const Given& given, tr::Session&) {
  return outcome([&] { return pair(tr::wgrad_gather_usages(*described_quantizer(given))); });
}

Value custom_children(const Given& given, tr::Session&) {
  std::shared_ptr<tr::HybridQuantizer> h;
  const Value made =
      outcome([&] { return h = hybrid(quantizer(given, "row"), quantizer(given, "col")), Value("ok"); });
  if (!h) return json::object({{"construct", made}});
  return json::object({{"construct", "ok"},
                       {"copy", outcome([&] { return h->copy(), Value(true); })},
                       {"empty_result_object",
                        outcome([&] { return tr::HybridStorage(nullptr, nullptr, h), Value(true); })}});
}

struct Group {
  std::string_view name;
  Value (*then)(const Given& given, tr::Session&);
};
constexpr Group kGroups[] = {
    {"construct", construct},
    {"pinning", pinning},
    {"calls_quantize", calls_quantize},
    {"calls_make_empty", calls_make_empty},
    {"calls_update", calls_update},
    {"copy", copy},
    {"amax", amax},
    {"predicates", predicates},
    {"plain_predicates", plain_predicates},
    {"plain_copy", plain_copy},
    {"set_usage", set_usage},
    {"strip", strip},
    {"update_quantizer", update_quantizer},
    {"equality", equality},
    {"nvfp4_construct", nvfp4_construct},
    {"point_of_use", point_of_use},
    {"wgrad_rebuild", wgrad_rebuild},
    {"gather_usage", gather_usage},
    {"custom_children", custom_children},
};

}  // namespace

json::Value witness_hybrid_quantizer(std::string_view group, const Given& given, Subject& subject) {
  tr::Session session(subject);
  for (const Group& g : kGroups)
    if (g.name == group) return g.then(given, session);
  throw std::runtime_error("expected a group of hybrid_quantizer, found " + string(group));
}

}  // namespace assay

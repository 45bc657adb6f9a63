#include "training/recipes/factories.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "training/formats/formats.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

// --- The quantizers that factories choose between ---

template <class Q> QuantizerPtr made(void (*set)(Q&) = nullptr) {
  auto q = std::make_shared<Q>();
  if (set) set(*q);
  return q;
}
QuantizerPtr identity() { return std::make_shared<IdentityQuantizer>(); }
QuantizerPtr current(Encoding e) { return std::make_shared<Float8CurrentScalingQuantizer>(e); }
QuantizerPtr current_e4m3() { return current(Encoding::e4m3); }
QuantizerPtr current_e5m2() { return current(Encoding::e5m2); }
QuantizerPtr mxfp8() { return std::make_shared<MXFP8Quantizer>(); }
QuantizerPtr mxfp8_e5m2() { return std::make_shared<MXFP8Quantizer>(Encoding::e5m2); }
QuantizerPtr block_1d() { return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 1); }
QuantizerPtr block_2d() { return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2); }
QuantizerPtr fp4_plain() { return std::make_shared<NVFP4Quantizer>(); }
QuantizerPtr fp4_row_scaled() {
  return made<NVFP4Quantizer>([](NVFP4Quantizer& q) { q.row_scaled_nvfp4 = true; });
}
QuantizerPtr fp4_weight() {
  return made<NVFP4Quantizer>([](NVFP4Quantizer& q) { q.with_2d_quantization = true; });
}
QuantizerPtr fp4_input() {
  return made<NVFP4Quantizer>([](NVFP4Quantizer& q) { q.with_rht = q.with_post_rht_amax = true; });
}
QuantizerPtr fp4_grad() {
  return made<NVFP4Quantizer>(
      [](NVFP4Quantizer& q) { q.with_rht = q.with_post_rht_amax = q.stochastic_rounding = true; });
}
QuantizerPtr ref_current_e4m3() { return std::make_shared<CurrentScalingQuantizerRef>(); }
QuantizerPtr ref_current_e5m2() {
  return made<CurrentScalingQuantizerRef>([](CurrentScalingQuantizerRef& q) { q.dtype = Encoding::e5m2; });
}
QuantizerPtr ref_fp4() {
  return made<NVFP4QuantizerRef>([](NVFP4QuantizerRef& q) { q.with_rht = true; });
}
QuantizerPtr ref_fp4_weight() {
  return made<NVFP4QuantizerRef>([](NVFP4QuantizerRef& q) { q.quant_tile_shape = {16, 16}; });
}

// What one cell of the tables below makes: a quantizer, a pair, or a request.
using Make = QuantizerPtr (*)();
struct Cell {
  Make row = nullptr, col = nullptr;  // col: a HybridQuantizer of both
  string_view source = "original";
  const DelayedScalingRequest* request = nullptr;
};
constexpr Cell one(Make q) { return {q, nullptr, "original", nullptr}; }
constexpr Cell pair(Make row, Make col) { return {row, col, "original", nullptr}; }
constexpr Cell from_rows(Make row, Make col) { return {row, col, "rowwise_dequantized", nullptr}; }
constexpr Cell delayed(const DelayedScalingRequest& r) { return {nullptr, nullptr, "original", &r}; }

QuantizerLike make(const Cell& cell) {
  if (cell.request) return *cell.request;
  if (!cell.col) return cell.row();
  return std::make_shared<HybridQuantizer>(cell.row(), cell.col(), string(cell.source));
}

// --- The factories of TE custom_recipes/, one row each ---

// Which roles the first three columns of a row are for; all others, and a null role, get the last one.
enum class Keys {
  linear,      // of a linear or grouped_linear module, by tensor type
  grouped,     // of a grouped_linear module
  any_module,  // by tensor type alone
};
struct Row {
  string_view name;
  Keys keys;
  Cell input, weight, grad_output, other;
};

const DelayedScalingRequest kDelayed{};
const Row kRows[] = {
    {"high_precision_factory", Keys::linear, one(identity), one(identity), one(identity), one(identity)},
    {"delayed_scaling_factory", Keys::linear, delayed(kDelayed), delayed(kDelayed), delayed(kDelayed),
     delayed(kDelayed)},
    {"current_scaling_factory", Keys::any_module, one(current_e4m3), one(current_e4m3), one(current_e5m2),
     one(current_e4m3)},
    {"float8_block_scaling_factory", Keys::linear, one(block_1d), one(block_2d), one(block_1d),
     one(block_1d)},
    {"mxfp8_factory", Keys::linear, one(mxfp8), one(mxfp8), one(mxfp8), one(mxfp8)},
    {"nvfp4_factory", Keys::linear, one(fp4_input), one(fp4_weight), one(fp4_grad), one(fp4_input)},
    {"high_precision_fwd_mxfp8_bwd_factory", Keys::linear, pair(identity, mxfp8), pair(identity, mxfp8),
     one(mxfp8), pair(identity, mxfp8)},
    {"mxfp8_fwd_nvfp4_bwd_factory", Keys::linear, pair(mxfp8, fp4_input), from_rows(mxfp8, fp4_plain),
     one(fp4_grad), one(mxfp8)},
    {"nvfp4_1d_weight_factory", Keys::linear, one(fp4_input), from_rows(fp4_plain, fp4_plain), one(fp4_grad),
     one(fp4_input)},
    {"mxfp8_fwd_high_precision_bwd_factory", Keys::linear, from_rows(mxfp8, identity),
     from_rows(mxfp8, identity), one(identity), one(mxfp8)},
    {"nvfp4_row_scaled_fwd_mxfp8_bwd_factory", Keys::grouped, from_rows(fp4_row_scaled, mxfp8),
     from_rows(fp4_plain, mxfp8), one(mxfp8), one(mxfp8)},
    {"nvfp4_row_scaled_fwd_high_precision_bwd_factory", Keys::linear, from_rows(fp4_row_scaled, identity),
     from_rows(fp4_plain, identity), one(identity), one(fp4_plain)},
    {"current_scaling_ref_factory", Keys::any_module, one(ref_current_e4m3), one(ref_current_e4m3),
     one(ref_current_e5m2), one(ref_current_e4m3)},
    {"nvfp4_ref_rht_2d_factory", Keys::linear, one(ref_fp4), one(ref_fp4_weight), one(ref_fp4), one(ref_fp4)},
};

bool is_linear(const RolePtr& role) {
  return role && (role->module_type == "linear" || role->module_type == "grouped_linear");
}

const Cell& cell_of(const Row& row, const RolePtr& role) {
  const bool keyed =
      role && (row.keys == Keys::any_module ||
               (row.keys == Keys::grouped ? role->module_type == "grouped_linear" : is_linear(role)));
  if (!keyed) return row.other;
  if (role->tensor_type == "input") return row.input;
  if (role->tensor_type == "weight") return row.weight;
  if (role->tensor_type == "grad_output") return row.grad_output;
  return row.other;
}
const Row& row_named(string_view name) {
  return *std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
}

// Linear layers in NVFP4, attention in FP8. Where no role was configured, the slots of attention's boundaries
// are known by their names alone.
QuantizerLike nvfp4_linear_fp8_dpa(const RolePtr& role) {
  static const DelayedScalingRequest kScores{.fp8_format = "HYBRID",
                                             .margin = 0,
                                             .amax_history_len = 1,
                                             .amax_compute_algo = "most_recent",
                                             .scaling_factor_compute_algo = std::nullopt,
                                             .reduce_amax = true};
  if (role && role->module_type == "dpa") {
    const string& t = role->tensor_type;
    return make(t == "s" || t == "dp" ? delayed(kScores)
                                      : one(t == "do" || t == "dqkv" ? current_e5m2 : current_e4m3));
  }
  if (role && role->module_type.empty()) {
    if (role->name.find("dpa_grad_input") != string::npos) return current_e5m2();
    if (role->name.find("dpa_output") != string::npos) return current_e4m3();
  }
  return make(cell_of(row_named("nvfp4_factory"), role));
}

// --- The factories of TE's test suites ---

QuantizerPtr nvfp4_by_role(const RolePtr& role) {
  return std::get<QuantizerPtr>(make(cell_of(row_named("nvfp4_factory"), role)));
}
QuantizerPtr block_by_role(const RolePtr& role) {
  return role && role->tensor_type == "weight" ? block_2d() : block_1d();
}
template <Make q> QuantizerPtr whatever(const RolePtr&) { return q(); }

struct SuiteRow {
  string_view name;
  QuantizerPtr (*row)(const RolePtr&);
  QuantizerPtr (*col)(const RolePtr&);  // null: rows alone, no pair
  QuantizerPtr (*grad)(const RolePtr&);
  bool everywhere = false;  // the pair also where no linear module asks
};
constexpr SuiteRow kSuiteRows[] = {
    {"hybrid_fp8_current", whatever<current_e4m3>, whatever<current_e4m3>, whatever<current_e5m2>},
    {"hybrid_mxfp8", whatever<mxfp8>, whatever<mxfp8>, whatever<mxfp8>},
    {"hybrid_float8_block", block_by_role, block_by_role, whatever<block_1d>},
    {"block_fp8_e4m3", block_by_role, block_by_role, whatever<block_1d>},
    {"hybrid_mixed_mxfp8_fp8", whatever<mxfp8>, whatever<current_e4m3>, whatever<current_e4m3>},
    {"fp8_current_identity", whatever<current_e4m3>, whatever<identity>, whatever<identity>},
    {"mxfp8_identity", whatever<mxfp8>, whatever<identity>, whatever<identity>},
    {"identity", whatever<identity>, nullptr, whatever<identity>},
    {"hybrid_nvfp4", nvfp4_by_role, nvfp4_by_role, nvfp4_by_role},
    {"tp_mxfp8_nvfp4", whatever<mxfp8>, nvfp4_by_role, nvfp4_by_role, true},
    {"fp8_mxfp8", whatever<current_e4m3>, whatever<mxfp8>, whatever<mxfp8_e5m2>},
    {"mxfp8_nvfp4", whatever<mxfp8>, nvfp4_by_role, nvfp4_by_role},
};

enum class SuiteSlot { forward, grad, other };
SuiteSlot suite_slot(const RolePtr& role) {
  if (!is_linear(role)) return SuiteSlot::other;
  const string& t = role->tensor_type;
  if (t == "input" || t == "weight" || t == "output") return SuiteSlot::forward;
  return t == "grad_output" || t == "grad_input" ? SuiteSlot::grad : SuiteSlot::other;
}

QuantizerLike suite_quantizer(const MakeQuantizer& row, const MakeQuantizer& col, const MakeQuantizer& grad,
                              bool everywhere, const RolePtr& role) {
  const SuiteSlot slot = suite_slot(role);
  if (slot == SuiteSlot::grad) return grad(role);
  if (col && (slot == SuiteSlot::forward || everywhere))
    return std::make_shared<HybridQuantizer>(row(role), col(role));
  return row(role);
}

// --- The registry ---

QFactoryPtr factory(string name, std::function<QuantizerLike(const RolePtr&)> call) {
  return std::make_shared<const QFactory>(QFactory{std::move(name), std::move(call)});
}

std::vector<QFactoryPtr> built_in() {
  std::vector<QFactoryPtr> all;
  for (const Row& row : kRows)
    all.push_back(
        factory(string(row.name), [&row](const RolePtr& role) { return make(cell_of(row, role)); }));
  all.push_back(factory("nvfp4_linear_fp8_dpa_factory", nvfp4_linear_fp8_dpa));
  for_each_mx_format([&]<FormatId F>() {
    all.push_back(factory(string(MxNames<F>::kFactory),
                          [](const RolePtr&) -> QuantizerPtr { return std::make_shared<MxQuantizer<F>>(); }));
  });
  for (const SuiteRow& s : kSuiteRows)
    all.push_back(factory(string(s.name), [&s](const RolePtr& role) {
      return suite_quantizer(s.row, s.col ? MakeQuantizer(s.col) : nullptr, s.grad, s.everywhere, role);
    }));
  return all;
}

struct Registry {
  std::mutex mutex;
  std::vector<QFactoryPtr> all = built_in();
};
Registry& registry() {
  static Registry r;
  return r;
}
QFactoryPtr found(const Registry& r, string_view name) {
  const auto at =
      std::find_if(r.all.begin(), r.all.end(), [&](const QFactoryPtr& f) { return f->name == name; });
  return at == r.all.end() ? nullptr : *at;
}

}  // namespace

QFactoryPtr factory_named(string_view name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return found(r, name);
}

QFactoryPtr register_factory(string name, std::function<QuantizerLike(const RolePtr&)> call) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (found(r, name))
    throw SemanticError(ErrorClass::value_error, "expected a new name for a factory, found '" + name +
                                                     "', which is registered: choose another");
  return r.all.emplace_back(factory(std::move(name), std::move(call)));
}

std::vector<string> factory_names() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<string> names;
  for (const QFactoryPtr& f : r.all) names.push_back(f->name);
  return names;
}

QFactoryPtr hybrid_custom_recipe(string name, MakeQuantizer row, MakeQuantizer col, MakeQuantizer grad) {
  if (!grad) grad = col;
  return factory(std::move(name),
                 [row = std::move(row), col = std::move(col), grad = std::move(grad)](const RolePtr& role) {
                   return suite_quantizer(row, col, grad, false, role);
                 });
}

}  // namespace assay::training

// What every factory returns for every role, and what attention makes of the one that gives it FP8.
#include <algorithm>

#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/modules/attention.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"
#include "training/scenarios/common.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

// ---- S-06 ---------------------------------------------------------------------------------------

// Settings by short name; those that all quantizers have are added to them, and those that all of NVFP4 have.
struct Settings {
  string_view name, json;
};
constexpr string_view kCommon =
    R"({"rowwise_usage": true, "columnwise_usage": true, "internal": false, "optimize_for_gemm": false})";
constexpr string_view kReduced = R"({"with_amax_reduction": false, "amax_reduction_group": null})";
constexpr string_view kFp4 =
    R"({"class": "NVFP4Quantizer", "dtype": "E2M1", "nvfp4_4over6_err_mode": "MAE", "nvfp4_e4m3_max": 448, "nvfp4_use_4over6": false,
  "rht_matrix_random_sign_mask_t": 55272, "row_scaled_nvfp4": false, "stochastic_rounding": false, "with_2d_quantization": false,
  "with_post_rht_amax": false, "with_rht": false})";
constexpr string_view kRefFp4 =
    R"({"class": "NVFP4QuantizerRef", "custom": true, "internal": true, "dtype": "E2M1", "eps": 0.0, "nvfp4_4over6_err_mode": "MAE",
  "nvfp4_4over6_err_use_fast_math": false, "nvfp4_e4m3_max": 448, "nvfp4_use_4over6": false, "pow_2_scales": false, "row_scaled_nvfp4": false,
  "with_random_sign_mask": true})";
constexpr Settings kSettings[] = {
    {"ID", R"({"class": "IdentityQuantizer", "dtype": null})"},
    {"CS4",
     R"({"class": "Float8CurrentScalingQuantizer", "dtype": "E4M3", "amax_epsilon": 0.0, "force_pow_2_scales": false})"},
    {"CS5",
     R"({"class": "Float8CurrentScalingQuantizer", "dtype": "E5M2", "amax_epsilon": 0.0, "force_pow_2_scales": false})"},
    {"BLK1",
     R"({"class": "Float8BlockQuantizer", "dtype": "E4M3", "amax_epsilon": 0.0, "block_len": 128, "block_scaling_dim": 1, "force_pow_2_scales": true})"},
    {"BLK2",
     R"({"class": "Float8BlockQuantizer", "dtype": "E4M3", "amax_epsilon": 0.0, "block_len": 128, "block_scaling_dim": 2, "force_pow_2_scales": true})"},
    {"MX", R"({"class": "MXFP8Quantizer", "dtype": "E4M3", "with_2d_quantization": false})"},
    {"MX6", R"({"class": "MXFP6Quantizer", "dtype": "E2M3", "packing": "bytes"})"},
    {"MX4", R"({"class": "MXFP4Quantizer", "dtype": "E2M1", "packing": "packed"})"},
    {"FP4p", "{}"},
    {"FP4rs", R"({"row_scaled_nvfp4": true})"},
    {"FP4w", R"({"with_2d_quantization": true})"},
    {"FP4i", R"({"with_rht": true, "with_post_rht_amax": true})"},
    {"FP4g", R"({"with_rht": true, "with_post_rht_amax": true, "stochastic_rounding": true})"},
    {"REF4",
     R"({"class": "CurrentScalingQuantizerRef", "custom": true, "internal": true, "dtype": "float8_e4m3fn", "eps": 0.0, "pow_2_scales": false})"},
    {"REF5",
     R"({"class": "CurrentScalingQuantizerRef", "custom": true, "internal": true, "dtype": "float8_e5m2", "eps": 0.0, "pow_2_scales": false})"},
    {"RFP4", R"({"quant_tile_shape": [1, 16], "with_rht": true})"},
    {"RFP4w", R"({"quant_tile_shape": [16, 16], "with_rht": false})"},
    {"DS",
     R"({"request": "DelayedScalingRequest", "fp8_format": "HYBRID", "margin": 0, "amax_history_len": 1024, "amax_compute_algo": "max",
               "scaling_factor_compute_algo": null, "reduce_amax": true})"},
    {"DS1",
     R"({"request": "DelayedScalingRequest", "fp8_format": "HYBRID", "margin": 0, "amax_history_len": 1, "amax_compute_algo": "most_recent",
                "scaling_factor_compute_algo": null, "reduce_amax": true})"},
};

// One factory: rules "module/tensor=quantizer", of which the first that fits a role counts. Modules: lin
// (linear or grouped_linear), grouped, dpa, any, and hint, a role without module type whose name holds the
// tensor's word; a lone * fits everything, None too.
struct FactoryRow {
  string_view name, rules;
};
constexpr FactoryRow kFactories[] = {
    {"high_precision_factory", "*=ID"},
    {"delayed_scaling_factory", "*=DS"},
    {"current_scaling_factory", "any/grad_output=CS5 *=CS4"},
    {"float8_block_scaling_factory", "lin/weight=BLK2 *=BLK1"},
    {"mxfp8_factory", "*=MX"},
    {"nvfp4_factory", "lin/weight=FP4w lin/grad_output=FP4g *=FP4i"},
    {"high_precision_fwd_mxfp8_bwd_factory", "lin/grad_output=MX *=H(ID|MX;original)"},
    {"mxfp8_fwd_nvfp4_bwd_factory",
     "lin/input=H(MX|FP4i;original) lin/weight=H(MX|FP4p;rowwise_dequantized) lin/grad_output=FP4g *=MX"},
    {"nvfp4_1d_weight_factory", "lin/weight=H(FP4p|FP4p;rowwise_dequantized) lin/grad_output=FP4g *=FP4i"},
    {"mxfp8_fwd_high_precision_bwd_factory",
     "lin/input=H(MX|ID;rowwise_dequantized) lin/weight=H(MX|ID;rowwise_dequantized) lin/grad_output=ID "
     "*=MX"},
    {"nvfp4_row_scaled_fwd_mxfp8_bwd_factory",
     "grouped/input=H(FP4rs|MX;rowwise_dequantized) grouped/weight=H(FP4p|MX;rowwise_dequantized) *=MX"},
    {"nvfp4_row_scaled_fwd_high_precision_bwd_factory",
     "lin/input=H(FP4rs|ID;rowwise_dequantized) lin/weight=H(FP4p|ID;rowwise_dequantized) lin/grad_output=ID "
     "*=FP4p"},
    {"nvfp4_linear_fp8_dpa_factory",
     "dpa/s=DS1 dpa/dp=DS1 dpa/do=CS5 dpa/dqkv=CS5 dpa/*=CS4 hint/dpa_grad_input=CS5 hint/dpa_output=CS4 "
     "lin/weight=FP4w lin/grad_output=FP4g *=FP4i"},
    {"current_scaling_ref_factory", "any/grad_output=REF5 *=REF4"},
    {"nvfp4_ref_rht_2d_factory", "lin/weight=RFP4w *=RFP4"},
    {"mxfp6_factory", "*=MX6"},
    {"mxfp4_factory", "*=MX4"},
};

bool fits(string_view module, string_view tensor, const QuantizerRole& r) {
  if (module == "hint") return r.module_type.empty() && r.name.find(tensor) != string::npos;
  const bool grouped = r.module_type == "grouped_linear", lin = grouped || r.module_type == "linear";
  if (module == "lin"       ? !lin
      : module == "grouped" ? !grouped
      : module == "dpa"     ? r.module_type != "dpa"
                            : false)
    return false;
  return tensor == "*" || tensor == r.tensor_type;
}
string_view rule_for(string_view rules, const RolePtr& role) {
  while (!rules.empty()) {
    const string_view rule = rules.substr(0, rules.find(' '));
    rules.remove_prefix(std::min(rules.size(), rule.size() + 1));
    const size_t slash = rule.find('/'), equals = rule.find('=');
    if (rule[0] == '*' ||
        (role && fits(rule.substr(0, slash), rule.substr(slash + 1, equals - slash - 1), *role)))
      return rule.substr(equals + 1);
  }
  return "";
}

// Members by name, so that two objects compare whatever order they were written in.
json::Value sorted(json::Value v) {
  if (json::Array* a = v.array())
    for (json::Value& e : *a) e = sorted(std::move(e));
  if (json::Object* o = v.object()) {
    for (auto& [key, e] : *o) e = sorted(std::move(e));
    std::sort(o->begin(), o->end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  return v;
}
json::Value merged(std::initializer_list<string_view> texts) {
  json::Value all = json::object();
  for (const string_view text : texts) {
    const json::Value part = *json::parse(text);
    for (const auto& [key, e] : *part.object()) all.set(key, e);
  }
  return all;
}
json::Value expected(string_view shorthand) {
  if (shorthand.substr(0, 2) == "H(") {
    const size_t bar = shorthand.find('|'), end = shorthand.find(';');
    json::Value row = expected(shorthand.substr(2, bar - 2)),
                col = expected(shorthand.substr(bar + 1, end - bar - 1)), out = merged({kCommon});
    row.set("columnwise_usage", false);  // construction pins each child to its direction
    col.set("rowwise_usage", false);
    out.set("class", "HybridQuantizer");
    out.set("columnwise_source", shorthand.substr(end + 1, shorthand.size() - end - 2));
    out.set("rowwise_quantizer", sorted(std::move(row)));
    out.set("columnwise_quantizer", sorted(std::move(col)));
    return sorted(std::move(out));
  }
  const string_view text = std::find_if(std::begin(kSettings), std::end(kSettings), [&](const Settings& s) {
                             return s.name == shorthand;
                           })->json;
  if (shorthand.starts_with("DS")) return sorted(merged({text}));
  if (shorthand.starts_with("FP4")) return sorted(merged({kCommon, kReduced, kFp4, text}));
  if (shorthand.starts_with("RFP4")) return sorted(merged({kCommon, kRefFp4, text}));
  if (shorthand.starts_with("CS") || shorthand.starts_with("REF"))
    return sorted(merged({kCommon, kReduced, text}));
  return sorted(merged({kCommon, text}));
}

// Every quantizer object within.
std::vector<const Quantizer*> objects(const QuantizerLike& made) {
  std::vector<const Quantizer*> out;
  if (const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made)) {
    out.push_back(q->get());
    if (const auto* h = dynamic_cast<const HybridQuantizer*>(q->get()))
      out.insert(out.end(), {h->rowwise_quantizer.get(), h->columnwise_quantizer.get()});
  }
  return out;
}
json::Value described(const QuantizerLike& made) {
  if (const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made); q && *q) return sorted((*q)->describe());
  if (const auto* r = std::get_if<DelayedScalingRequest>(&made)) return sorted(describe(*r));
  return "neither a quantizer nor a request";
}

void factory_table(ScenarioRun& run) {
  std::vector<RolePtr> roles{nullptr};
  const auto add = [&](string module, string tensor, string name) {
    roles.push_back(std::make_shared<const QuantizerRole>(
        QuantizerRole{std::move(module), std::move(tensor), std::move(name)}));
  };
  for (const char* module : {"linear", "grouped_linear", "dpa", ""})
    for (const char* tensor :
         {"input", "weight", "output", "grad_output", "grad_input", "qkv", "s", "do", "dp", ""})
      add(module, tensor, "layer");
  for (const char* tensor : {"dqkv", "o"}) add("dpa", tensor, "layer");
  for (const char* name :
       {"core.dpa_output", "core.dpa_grad_input", "dpa_grad_input.dpa_output", "dpa_output"})
    add("", "", name);
  add("", "input", "core.dpa_output");        // a hint's tensor type is not looked at
  add("linear", "input", "core.dpa_output");  // a module's name is not looked at

  for (const FactoryRow& row : kFactories) {
    const QFactoryPtr factory = factory_named(row.name);
    run.about(string(row.name));
    if (!run.expect(factory != nullptr, "is registered", "a factory", "none")) continue;
    for (const RolePtr& role : roles) {
      run.about(string(row.name) + " for " + (role ? to_text(*role) : "None"));
      const QuantizerLike made = factory->call(role), again = factory->call(role);
      run.expect_equal(described(made), expected(rule_for(row.rules, role)), "settings");
      std::vector<const Quantizer*> all = objects(made), others = objects(again);
      const size_t count = all.size();
      all.insert(all.end(), others.begin(), others.end());
      std::sort(all.begin(), all.end());
      run.expect(std::adjacent_find(all.begin(), all.end()) == all.end() && all.size() == 2 * count,
                 "two calls share no object");
    }
  }
}

// ---- S-12 ---------------------------------------------------------------------------------------

// "CS4 CS4 DS": what each slot of the core holds, by group.
string core_classes(const AttentionQuantizers& q) {
  string out;
  for (const QuantizerPtr& p : {q.qkv, q.o, q.s, q.dqkv, q.do_, q.dp}) {
    const auto* current = dynamic_cast<const Float8CurrentScalingQuantizer*>(p.get());
    out += (out.empty() ? "" : " ") + (current ? string(current->dtype == Encoding::e5m2 ? "CS5" : "CS4")
                                               : string(p ? p->class_name() : "none"));
  }
  return out;
}

void attention_in_fp8(ScenarioRun& run) {
  Session session = run.session();
  const auto recipe_of = [](bool mha) {
    const auto r = custom_recipe("nvfp4_linear_fp8_dpa_factory");
    r->fp8_dpa = true;
    r->fp8_mha = mha;
    return r;
  };
  run.about("fp8_dpa alone");
  MultiheadAttention plain(session, {"a", false, false});
  const RecipePtr recipe = recipe_of(false);
  plain.prepare(session, {recipe}, false);
  plain.core_attention.state.init_fp8_metadata(session, {recipe});
  const AttentionQuantizers q = plain.core_attention.quantizers();
  run.expect_equal(core_classes(q), "CS4 CS4 Float8Quantizer CS5 CS5 Float8Quantizer",
                   "QKV, O, S, dQKV, dO, dP");
  const auto& forward = plain.core_attention.state.quantizers(Mode::forward);
  const auto& backward = plain.core_attention.state.quantizers(Mode::backward);
  for (size_t i = 0; i < forward.size(); ++i)
    run.expect_equal(forward[i]->class_name(), i < 6 ? "Float8CurrentScalingQuantizer" : "Float8Quantizer",
                     "forward slot " + std::to_string(i));
  for (size_t i = 0; i < backward.size(); ++i)
    run.expect_equal(backward[i]->class_name(), i < 4 ? "Float8CurrentScalingQuantizer" : "Float8Quantizer",
                     "backward slot " + std::to_string(i));
  const DelayedStatePtr inner = plain.core_attention.state.state(Mode::forward)->delayed();
  if (!run.expect(inner != nullptr, "the forward state holds delayed scaling")) return;
  run.expect_equal(inner->settings().fields(),
                   make_recipe("DelayedScaling",
                               json::object({{"amax_history_len", 1}, {"amax_compute_algo", "most_recent"}}))
                       ->fields(),
                   "what S was requested with");
  run.expect_equal(static_cast<int64_t>(inner->num_quantizers()), 3, "slots of delayed scaling forward");
  std::vector<string> local;
  for (const RecipePtr& r : plain.core_attention.local_recipes()) local.emplace_back(r->class_name());
  run.expect_equal(local, {"Float8CurrentScaling", "DelayedScaling"}, "recipes that the core works by");

  // What a step of the core would write: O by current scaling, S by a scale that the amax of S moves.
  const ArrayPtr o = gradient({64, 96}, DType::bfloat16, 3);
  const auto alone = std::make_shared<Float8CurrentScalingQuantizer>();
  alone->set_usage(true, false);
  run.expect_equal(*q.o->quantize(session, o), *alone->quantize(session, o), "O");
  q.s->quantize(session, o);
  AmaxBuffers histories;
  histories.add(plain.core_attention.state.state(Mode::forward));
  const ArrayPtr before = clone(inner->scale);
  histories.reduce_and_update(session, true);
  run.expect_different(slice(inner->scale, 0, 2, 3), slice(before, 0, 2, 3),
                       "the scale of S follows its amax");
  run.expect_equal(slice(inner->scale, 0, 0, 2), slice(before, 0, 0, 2), "unused slots keep theirs");

  run.about("fp8_mha, edges wired to linear layers");
  MultiheadAttention wired(session, {"a", false, false});
  wired.prepare(session, {recipe_of(true)}, false);
  ModuleState& core = wired.core_attention.state;
  run.expect(wired.core_attention.capability().current_scaling, "QKV is current scaling still");
  for (const size_t i : {3, 4, 5})
    run.expect_equal(core.quantizers(Mode::forward)[i]->class_name(), "NVFP4Quantizer",
                     "O slot " + std::to_string(i));
  for (const size_t i : {0, 1})
    run.expect_equal(core.quantizers(Mode::backward)[i]->class_name(), "NVFP4Quantizer",
                     "dQKV slot " + std::to_string(i));
  run.expect_error(ErrorClass::type_error, "the core refuses them",
                   [&] { wired.core_attention.quantizers(); }, {"NVFP4Quantizer", "slot O"});

  run.about("what else the core refuses");
  for (const char* factory : {"high_precision_factory", "float8_block_scaling_factory", "nvfp4_factory",
                              "high_precision_fwd_mxfp8_bwd_factory"}) {
    DotProductAttention other(session, "core");
    other.state.init_fp8_metadata(session, {custom_recipe(factory)});
    run.expect_error(ErrorClass::type_error, factory, [&] { other.quantizers(); }, {"slot QKV"});
    run.expect_error(ErrorClass::type_error, string(factory) + ": its capability",
                     [&] { other.capability(); }, {"slot QKV"});
  }
  DotProductAttention unbuilt(session, "core");
  run.expect_error(ErrorClass::runtime_error, "a core without quantizers", [&] { unbuilt.quantizers(); },
                   {"QKV"});
}

constexpr Scenario kFactoryScenarios[] = {
    {"S-06", "What every factory returns for every role",
     "17 factories and 49 roles: four module types, ten tensor types, None, hints of attention",
     "each factory is called twice with each role",
     "class and every setting are those of the table, children of hybrids included; two calls share no "
     "object",
     factory_table, ""},
    {"S-12", "NVFP4 layers around attention in FP8", "the factory nvfp4_linear_fp8_dpa",
     "attention runs under fp8_dpa alone, and with edges wired to linear layers",
     "slots are current, current, delayed by group; wired edges become NVFP4, which the core refuses with a "
     "TypeError",
     attention_in_fp8, ""},
};

}  // namespace

std::span<const Scenario> factory_scenarios() { return kFactoryScenarios; }

}  // namespace assay::training

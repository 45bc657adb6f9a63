// Who quantizes what: the role lists of every producer, in slot order, the names of attention's boundaries,
// and what a list that says nothing falls back to.
#include "training/base/data.h"
#include "training/formats/mxfp8.h"
#include "training/kit/recipes.h"
#include "training/modules/attention.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/layernorm_linear.h"
#include "training/modules/layernorm_mlp.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
#include "training/modules/ops_linear.h"
#include "training/scenarios/common.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using Texts = std::vector<string>;

string lin(string_view tensor, string_view name) {
  return "module_type=linear|tensor_type=" + string(tensor) + (name.empty() ? "" : "|name=" + string(name));
}
string dpa(string_view tensor, string_view name) {
  return "module_type=dpa|tensor_type=" + string(tensor) + "|name=" + string(name);
}
Texts repeated(const Texts& once, size_t times) {
  Texts out;
  for (size_t i = 0; i < times; ++i) out.insert(out.end(), once.begin(), once.end());
  return out;
}
RolePtr role(string module_type, string tensor_type, string name) {
  return std::make_shared<const QuantizerRole>(
      QuantizerRole{std::move(module_type), std::move(tensor_type), std::move(name)});
}

// Every role that a factory is asked for, in order, while `module` runs one step: what a producer's list
// comes to in practice.
Texts asked_in_a_step(Session& session, Module& module, int64_t rows, int64_t in, int64_t out) {
  const auto asked = std::make_shared<Texts>();
  const RecipePtr recipe = recipe_around("asked", [asked](const RolePtr& r) -> QuantizerLike {
    asked->push_back(r ? to_text(*r) : "None");
    return std::static_pointer_cast<Quantizer>(std::make_shared<MXFP8Quantizer>());
  });
  fill_parameters(module, 1);
  module.step(session, drawn({rows, in}, DType::bfloat16, 2), gradient({rows, out}, DType::bfloat16, 3),
              under(recipe));
  return *asked;
}

LinearSettings linear(std::optional<string> name) {
  LinearSettings s;
  s.name = std::move(name);
  s.in_features = 64;
  s.out_features = 96;
  return s;
}

// ---- S-01 ---------------------------------------------------------------------------------------

void linear_lists(ScenarioRun& run) {
  Session session = run.session();
  Linear named(session, linear("x"));
  const Texts forward{lin("input", "x"), lin("weight", "x"), "None"},
      backward{lin("grad_output", "x"), "None"};
  run.expect_equal(texts(named.state.get_quantizer_roles(Mode::forward, 3)), forward, "forward list");
  run.expect_equal(texts(named.state.get_quantizer_roles(Mode::backward, 2)), backward, "backward list");
  Texts longer = repeated(forward, 3);
  longer.resize(7);
  run.expect_equal(texts(named.state.get_quantizer_roles(Mode::forward, 7)), longer,
                   "a list of 7 slots repeats the pattern");

  Texts both = forward;
  both.insert(both.end(), backward.begin(), backward.end());
  run.expect_equal(asked_in_a_step(session, named, 64, 64, 96), both,
                   "what a factory is asked for in a step");
  run.expect(named.record.forward_roles && named.record.backward_roles, "the step records its roles");
  run.expect_equal(texts(*named.record.forward_roles), forward, "recorded forward list");

  LayerNormLinear normed(session, {linear(std::nullopt), {}});
  run.expect_equal(normed.state.name, "Layer_1", "the first module without a name");
  run.expect_equal(
      asked_in_a_step(session, normed, 64, 64, 96),
      {lin("input", "Layer_1"), lin("weight", "Layer_1"), "None", lin("grad_output", "Layer_1"), "None"},
      "LayerNormLinear without a name");
  OpsLinear op(session, {"", 64, 96});
  run.expect_equal(asked_in_a_step(session, op, 64, 64, 96),
                   {lin("input", ""), lin("weight", ""), lin("grad_output", "")},
                   "an operation has no name and no boundary slots");

  run.about("configured boundaries");
  named.state.set_output_quantizer_role(role("dpa", "qkv", "core"));
  named.state.set_grad_input_quantizer_role(role("linear", "grad_output", "before"));
  run.expect_equal(texts(named.state.get_quantizer_roles(Mode::forward, 3)),
                   {lin("input", "x"), lin("weight", "x"), dpa("qkv", "core")}, "forward list");
  run.expect_equal(texts(named.state.get_quantizer_roles(Mode::backward, 2)),
                   {lin("grad_output", "x"), lin("grad_output", "before")}, "backward list");

  run.about("a role");
  run.expect_equal(to_text(QuantizerRole{}), "QuantizerRole()", "an empty one prints as its constructor");
  run.expect(hash_of(QuantizerRole{"a", "b", "c"}) == hash_of(QuantizerRole{"a", "b", "c"}) &&
                 hash_of(QuantizerRole{"a", "b", "c"}) != hash_of(QuantizerRole{"a", "c", "b"}),
             "hashes follow the value");
}

// ---- S-02 ---------------------------------------------------------------------------------------

void mlp_lists(ScenarioRun& run) {
  Session session = run.session();
  LayerNormMLPSettings s;
  s.name = "m";
  s.hidden_size = 64;
  s.ffn_hidden_size = 96;
  LayerNormMLP mlp(session, s);
  const Texts forward{lin("input", "m.fc1"), lin("weight", "m.fc1"), lin("input", "m.fc2"),
                      lin("input", "m.fc2"), lin("weight", "m.fc2"), "None"};
  const Texts backward{lin("grad_output", "m.fc1"), "None", lin("grad_output", "m.fc2"),
                       lin("grad_output", "m.fc1")};
  run.expect_equal(texts(mlp.state.get_quantizer_roles(Mode::forward, 6)), forward, "forward list");
  run.expect_equal(texts(mlp.state.get_quantizer_roles(Mode::backward, 4)), backward, "backward list");
  const std::vector<RolePtr> f = mlp.state.get_quantizer_roles(Mode::forward, 6),
                             b = mlp.state.get_quantizer_roles(Mode::backward, 4);
  run.expect(same_role(f[2], f[3]), "fc1's output slot is described by its consumer: slot 2 equals slot 3");
  run.expect(same_role(b[3], b[0]),
             "fc2's grad input slot is described by its consumer: backward slot 3 equals slot 0");
  Texts both = forward;
  both.insert(both.end(), backward.begin(), backward.end());
  run.expect_equal(asked_in_a_step(session, mlp, 64, 64, 64), both, "what a factory is asked for in a step");

  s.name = "";
  LayerNormMLP plain(session, s);
  run.expect_equal(texts(plain.state.get_quantizer_roles(Mode::forward, 2)),
                   {lin("input", "fc1"), lin("weight", "fc1")}, "an empty name leaves the part alone");
}

// ---- S-03 ---------------------------------------------------------------------------------------

void grouped_lists(ScenarioRun& run) {
  Session session = run.session();
  const auto grouped = [](string_view tensor) {
    return "module_type=grouped_linear|tensor_type=" + string(tensor) + "|name=g";
  };
  GroupedLinearSettings s;
  s.name = "g";
  s.num_gemms = 3;
  s.in_features = 64;
  s.out_features = 96;
  GroupedLinear module(session, s);
  module.m_splits = {32, 0, 64};
  Texts want = repeated({grouped("input"), grouped("weight"), "None"}, 3);
  run.expect_equal(texts(module.state.get_quantizer_roles(Mode::forward, 9)), want, "module: forward list");
  for (const string& t : repeated({grouped("grad_output"), "None"}, 3)) want.push_back(t);
  run.expect_equal(asked_in_a_step(session, module, 96, 64, 96), want,
                   "module: what a factory is asked for in a step");
  run.expect_equal(static_cast<int64_t>(module.state.quantizers(Mode::forward).size()), 9,
                   "module: forward quantizers");
  run.expect_equal(static_cast<int64_t>(module.state.quantizers(Mode::backward).size()), 6,
                   "module: backward quantizers");

  OpsGroupedLinearSettings o;
  o.name = "g";
  o.num_groups = 3;
  o.in_features = 64;
  o.out_features = 96;
  OpsGroupedLinear op(session, o);
  op.m_splits = module.m_splits;
  want = repeated({lin("input", "g"), lin("weight", "g")}, 3);
  for (const string& t : repeated({lin("grad_output", "g")}, 3)) want.push_back(t);
  run.expect_equal(asked_in_a_step(session, op, 96, 64, 96), want,
                   "operation: a plain linear's roles, no boundaries");
  run.expect_equal(static_cast<int64_t>(op.state.quantizers(Mode::forward).size()), 6,
                   "operation: forward quantizers");
  run.expect_equal(static_cast<int64_t>(op.state.quantizers(Mode::backward).size()), 3,
                   "operation: backward quantizers");
}

// ---- S-04 ---------------------------------------------------------------------------------------

void attention_lists(ScenarioRun& run) {
  Session session = run.session();
  DotProductAttention core(session, "core");
  const auto three = [](const string& t) { return Texts{t, t, t}; };
  const auto joined = [](std::initializer_list<Texts> parts) {
    Texts out;
    for (const Texts& p : parts) out.insert(out.end(), p.begin(), p.end());
    return out;
  };
  const string o_hint = "name=core.dpa_output", dqkv_hint = "name=core.dpa_grad_input";
  Texts forward = joined({three(dpa("qkv", "core")), three(o_hint), three(dpa("s", "core"))});
  Texts backward{dqkv_hint,         dqkv_hint,         dpa("do", "core"),
                 dpa("do", "core"), dpa("dp", "core"), dpa("dp", "core")};
  const auto expect_lists = [&] {
    for (size_t n = 0; n <= 11; ++n) {
      const Texts f(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(n, 9)));
      const Texts b(backward.begin(), backward.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(n, 6)));
      run.expect_equal(texts(core.state.get_quantizer_roles(Mode::forward, n)), f,
                       "forward list of " + std::to_string(n) + " slots");
      run.expect_equal(texts(core.state.get_quantizer_roles(Mode::backward, n)), b,
                       "backward list of " + std::to_string(n) + " slots");
    }
  };
  run.about("no boundaries");
  expect_lists();

  run.about("configured boundaries");
  core.state.set_output_quantizer_role(role("linear", "input", "proj"));
  core.state.set_grad_input_quantizer_role(role("linear", "grad_output", "qkv"));
  for (size_t i : {3, 4, 5}) forward[i] = lin("input", "proj");
  for (size_t i : {0, 1}) backward[i] = lin("grad_output", "qkv");
  expect_lists();

  run.about("no name");
  DotProductAttention unnamed(session, "");
  run.expect_equal(texts(unnamed.state.get_quantizer_roles(Mode::forward, 4)),
                   {"module_type=dpa|tensor_type=qkv", "module_type=dpa|tensor_type=qkv",
                    "module_type=dpa|tensor_type=qkv", "name=dpa_output"},
                   "the hint stands alone");
}

// ---- S-05 ---------------------------------------------------------------------------------------

void attention_wiring(ScenarioRun& run) {
  Session session = run.session();
  for (const bool cross : {false, true})
    for (const bool normed : {false, true}) {
      MultiheadAttention mha(session, {"a", cross, normed});
      const string projection = mha.projection.name;
      // All on, then each alone, then all off: an edge that lost its flag loses its role too.
      for (const unsigned flags : {7u, 1u, 2u, 4u, 0u}) {
        const AttentionFlags f{(flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
        mha.wire_boundary_roles(f);
        run.about(string(cross ? "cross" : "self") + (normed ? " attention with layer norm" : " attention") +
                  ", flags " + std::to_string(flags));
        const auto text = [](const RolePtr& r) { return r ? to_text(*r) : string("None"); };
        const auto edge = [&](bool on, const RolePtr& found, const string& want, string_view what) {
          run.expect_equal(text(found), on ? want : "None", what);
        };
        edge(f.qkv_fp8_output, mha.projection.output_quantizer_role(), dpa("qkv", "a.core_attention"),
             "output of the projection");
        if (cross)
          edge(f.qkv_fp8_output, mha.key_value->output_quantizer_role(), dpa("qkv", "a.core_attention"),
               "output of key and value");
        edge(f.proj_fp8_grad, mha.proj.grad_input_quantizer_role(), dpa("do", "a.core_attention"),
             "grad input of proj");
        edge(f.dpa_fp8_output, mha.core_attention.state.output_quantizer_role(), lin("input", "a.proj"),
             "output of the core");
        edge(f.dpa_fp8_output, mha.core_attention.state.grad_input_quantizer_role(),
             lin("grad_output", projection), "grad input of the core");
        edge(false, mha.projection.grad_input_quantizer_role(), "", "grad input of the projection");
        edge(false, mha.proj.output_quantizer_role(), "", "output of proj");
      }
    }

  // Which flags a recipe sets: quantized attention, its neighbours, rotary embedding.
  struct Row {
    string_view recipe;
    bool dpa, mha, rope;
    string_view flags;  // qkv output, proj grad, core output
  };
  constexpr Row kRows[] = {
      {"DelayedScaling", false, false, false, "000"},      {"DelayedScaling", true, false, false, "011"},
      {"DelayedScaling", true, true, false, "111"},        {"DelayedScaling", false, true, true, "011"},
      {"Float8CurrentScaling", true, false, false, "001"}, {"Float8CurrentScaling", true, true, false, "001"},
      {"MXFP8BlockScaling", true, true, false, "000"},     {"CustomRecipe", true, false, false, "000"},
      {"CustomRecipe", true, true, false, "001"},          {"CustomRecipe", true, true, true, "001"},
  };
  for (const Row& row : kRows) {
    MultiheadAttention mha(session, {"a", false, false});
    const RecipePtr recipe =
        row.recipe == "CustomRecipe" ? custom_recipe("current_scaling_factory") : make_recipe(row.recipe);
    recipe->fp8_dpa = row.dpa;
    recipe->fp8_mha = row.mha;
    const AttentionFlags f = mha.prepare(session, {recipe}, row.rope);
    run.about(string(row.recipe) + (row.dpa ? " fp8_dpa" : "") + (row.mha ? " fp8_mha" : "") +
              (row.rope ? " with rotary embedding" : ""));
    run.expect_equal(
        string{f.qkv_fp8_output ? '1' : '0', f.proj_fp8_grad ? '1' : '0', f.dpa_fp8_output ? '1' : '0'},
        row.flags, "flags");
  }
  run.about("quantization off");
  MultiheadAttention mha(session, {"a", false, false});
  mha.wire_boundary_roles({true, true, true});
  mha.prepare(session, quantization_off(), false);
  run.expect(!mha.projection.output_quantizer_role() && !mha.proj.grad_input_quantizer_role() &&
                 !mha.core_attention.state.output_quantizer_role(),
             "every edge loses its role");
}

// ---- S-11 ---------------------------------------------------------------------------------------

void positional_fallback(ScenarioRun& run) {
  Session session = run.session();
  const ArrayPtr x = gradient({64, 128}, DType::bfloat16, 5);
  const std::vector<std::pair<string, RecipePtr>> recipes = {
      {"Float8BlockScaling",
       make_recipe("Float8BlockScaling", json::object({{"fp8_format", "HYBRID"},
                                                       {"x_block_scaling_dim", 1},
                                                       {"w_block_scaling_dim", 1},
                                                       {"grad_block_scaling_dim", 2}}))},
      {"Float8BlockScaling defaults", make_recipe("Float8BlockScaling")},
      {"NVFP4BlockScaling", make_recipe("NVFP4BlockScaling")},
      {"NVFP4BlockScaling rows",
       make_recipe("NVFP4BlockScaling", json::object({{"disable_rht", true},
                                                      {"disable_stochastic_rounding", true},
                                                      {"row_scaled_activation", true}}))},
  };
  const Texts patterns[] = {{"input", "weight", "output"}, {"grad_output", "grad_input"}};
  for (const auto& [name, recipe] : recipes) {
    const RecipeStatePtr forward = RecipeState::create(session, recipe, Mode::forward, 2),
                         backward = RecipeState::create(session, recipe, Mode::backward, 1);
    const std::vector<QuantizerPtr> two = forward->make_quantizers(session),
                                    grad = backward->make_quantizers(session);
    run.about(name);
    run.expect(!(two[0]->describe() == two[1]->describe() && two[0]->describe() == grad[0]->describe()),
               "places differ in their settings", "several settings", "one");
    for (const Mode mode : {Mode::forward, Mode::backward})
      for (const size_t slots : {2, 3, 4}) {
        const Texts& pattern = patterns[mode == Mode::forward ? 0 : 1];
        std::vector<RolePtr> explicit_roles;
        for (size_t i = 0; i < slots; ++i)
          explicit_roles.push_back(role("linear", pattern[i % pattern.size()], "x"));
        const RecipeStatePtr want = RecipeState::create(session, recipe, mode, slots, explicit_roles);
        const std::vector<QuantizerPtr> wanted = want->make_quantizers(session);
        const std::pair<string_view, RoleList> lists[] = {
            {"no list", std::nullopt},
            {"None", std::vector<RolePtr>(slots)},
            {"empty roles", std::vector<RolePtr>(slots, role("", "", ""))},
            {"unknown tensor types", std::vector<RolePtr>(slots, role("linear", "qkv", "x"))},
        };
        for (const auto& [what, roles] : lists) {
          const RecipeStatePtr state = RecipeState::create(session, recipe, mode, slots, roles);
          const std::vector<QuantizerPtr> got = state->make_quantizers(session);
          for (size_t i = 0; i < slots; ++i) {
            run.about(name + (mode == Mode::forward ? " forward, " : " backward, ") + std::to_string(slots) +
                      " slots, " + string(what) + ", slot " + std::to_string(i));
            run.expect_equal(state->slot_tensor_type(i), pattern[i % pattern.size()], "tensor type by place");
            run.expect_equal(got[i]->describe(), wanted[i]->describe(), "settings");
            if (slots != 4 || what != "unknown tensor types") continue;
            session.rng.reseed(7);  // both may round stochastically
            const StoragePtr a = got[i]->quantize(session, x);
            session.rng.reseed(7);
            const StoragePtr b = wanted[i]->quantize(session, x);
            run.expect_equal(*a, *b, "bytes");
          }
        }
      }
  }
  run.about("a role with its own type");
  const RolePtr odd = role("linear", "qkv", "x");
  const RecipeStatePtr state = RecipeState::create(session, make_recipe("NVFP4BlockScaling"), Mode::forward,
                                                   1, std::vector<RolePtr>{odd});
  run.expect(state->slot_role(0) == odd, "is handed on as the same object");
}

constexpr Scenario kRoleScenarios[] = {
    {"S-01", "The role lists of a linear layer", "a Linear called x, its boundaries not configured",
     "its lists are asked for, and a factory is asked while it runs a step",
     "forward [input, weight, None], backward [grad_output, None]; unnamed modules count themselves, "
     "operations have no boundary",
     linear_lists, ""},
    {"S-02", "The role lists of LayerNormMLP", "a LayerNormMLP called m",
     "6 forward and 4 backward slots are asked for",
     "parts are m.fc1 and m.fc2; fc1's output slot equals fc2's input, fc2's grad input slot equals fc1's "
     "grad_output",
     mlp_lists, ""},
    {"S-03", "Grouped modules and grouped operations list differently",
     "three experts as a module and as an operation", "a factory is asked while each runs a step",
     "the module has 9 and 6 slots of type grouped_linear, the operation 6 and 3 of type linear",
     grouped_lists, ""},
    {"S-04", "The role lists of attention", "attention without configured boundaries",
     "0 to 11 slots are asked for",
     "forward qkv, O, s and backward dQKV, do, dp by group; O and dQKV carry a hint or the configured role; "
     "the list is cut, never repeated",
     attention_lists, ""},
    {"S-05", "Edges of attention are named after their consumers",
     "self and cross attention, with and without layer norm",
     "each combination of flags is wired, and each recipe decides its flags",
     "an edge whose flag is on names who reads the tensor, one whose flag is off is None again",
     attention_wiring, ""},
    {"S-11", "Slots without a usable role fall back to their place",
     "blockwise FP8 and NVFP4 states of 2, 3 and 4 slots",
     "the roles are absent, None, empty or of unknown tensor types",
     "settings and bytes are those of [input, weight, output] or [grad_output, grad_input], wrapped",
     positional_fallback, ""},
};

}  // namespace

std::span<const Scenario> role_scenarios() { return kRoleScenarios; }

}  // namespace assay::training

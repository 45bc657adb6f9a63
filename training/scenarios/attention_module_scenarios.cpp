// Attention between its projections: tensors that travel in FP8, and recipes whose slots a factory fills.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "training/attention/emulation.h"
#include "training/attention/fused_flow.h"
#include "training/base/data.h"
#include "training/modules/attention.h"
#include "training/modules/linear.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int64_t kTokens = 8, kSequences = 2, kHeads = 2, kElements = 16, kHidden = kHeads * kElements;

// ---- S-118

// Quantizes among the lines that ran since `from`.
int64_t casts_since(const Session& session, size_t from) {
  return std::count_if(session.launches.begin() + static_cast<std::ptrdiff_t>(from), session.launches.end(),
                       [](const string& line) { return line.starts_with("quantize "); });
}

struct Projection {
  Parameter weight;
  StepRecord record;
  Workspaces workspaces;
};

LinearCall projection_call(Session& session, ModuleState& state, Projection& p, const StepOptions& options) {
  begin_forward(session, state, options);
  LinearCall call;
  call.plan = plan_of(options);
  call.options = options;
  call.quantizers = quantizers_of(state, options);
  call.weight = &p.weight;
  call.workspaces = &p.workspaces;
  call.record = &p.record;
  return call;
}

// The core's kernels: S and O are cast inside them, dP and dQKV in the backward one.
AttentionKernels kernels_that_cast(Session& session, const Dims& shape) {
  const auto cast = [&session](const QuantizerPtr& q, const Dims& dims, uint64_t seed) {
    return q->quantize(session, drawn(dims, DType::bfloat16, seed));
  };
  const Dims square = {kSequences, kHeads, kTokens, kTokens};
  return {[=](const ForwardCall& c) { return cast(c.s, square, 1), Tensorlike(cast(c.o, shape, 2)); },
          [=](const BackwardCall& c) {
            cast(c.dp, square, 3);
            const StoragePtr one = cast(c.dqkv, shape, 4);
            return std::array<Tensorlike, 3>{one, one, one};
          }};
}

bool is_quantized(const Tensorlike& t) { return std::holds_alternative<StoragePtr>(t); }

void s118(ScenarioRun& run) {
  Session session = run.session();
  const RecipePtr recipe =
      make_recipe("DelayedScaling", json::object({{"fp8_dpa", true}, {"fp8_mha", true}}));
  MultiheadAttention mha(session, {"mha", false, false});
  const AttentionFlags flags = mha.prepare(session, {recipe}, false);
  run.expect(flags == AttentionFlags{true, true, true}, "every edge is quantized");
  DotProductAttention& core = mha.core_attention;
  core.init_fp8_metadata(session, {recipe});
  const AttentionQuantizers q = core.quantizers();

  StepOptions options = under(recipe);
  options.fp8_output = flags.qkv_fp8_output;
  Projection into{make_parameter("weight", {3 * kHidden, kHidden}, DType::bfloat16), {}, {}};
  size_t mark = session.launches.size();
  const LinearForward qkv = linear_forward(session, projection_call(session, mha.projection, into, options),
                                           drawn({kTokens * kSequences, kHidden}, DType::bfloat16, 5));
  run.expect(is_quantized(qkv.out), "the QKV projection writes FP8");
  run.expect_equal(casts_since(session, mark), 3,
                   "casts of the QKV projection: its input, its weight and its output");

  // Its output as the core takes it: three tensors of one cast.
  const Dims packed = {kTokens, kSequences, 3, kHeads, kElements},
             shape = {kTokens, kSequences, kHeads, kElements};
  const QuantizedQkv in = quantize_qkv(session, {"sb3hd", {drawn(packed, DType::bfloat16, 6)}},
                                       mha.projection.quantizer(Mode::forward, 2), {true, true});
  FusedOptions fused;
  fused.o_format = "sbhd";
  fused.fp8_output = flags.dpa_fp8_output;
  const AttentionKernels kernels = kernels_that_cast(session, shape);
  mark = session.launches.size();
  const FusedForward attended = fused_forward(session, in, q, fused, kernels);
  run.expect(is_quantized(attended.out), "the core hands O over in FP8");
  run.expect_equal(casts_since(session, mark), 2, "casts of the core: S and O, inside its kernel");

  StepOptions last = under(recipe);
  last.fp8_grad = flags.proj_fp8_grad;
  Projection out_of{make_parameter("weight", {kHidden, kHidden}, DType::bfloat16), {}, {}};
  const auto project = [&](const Tensorlike& x) {
    mark = session.launches.size();
    LinearForward done = linear_forward(session, projection_call(session, mha.proj, out_of, last), x);
    return std::pair(std::move(done), casts_since(session, mark));
  };
  const ArrayPtr flat = drawn({kTokens * kSequences, kHidden}, DType::bfloat16, 7);
  auto [done, casts] = project(q.o->quantize(session, flat));
  run.expect_equal(casts, 1, "casts of the output projection after O in FP8: its weight");
  run.expect_equal(project(flat).second, 2, "and after O in 16 bits: its input as well");

  mark = session.launches.size();
  const Tensorlike d_o = linear_backward(session, done.saved, prepare_grad_output(session, done.saved, flat));
  run.expect(is_quantized(d_o), "the output projection hands dO over in FP8");
  run.expect_equal(casts_since(session, mark), 2,
                   "casts of its backward pass: the gradient of its output and that of its input");
  mark = session.launches.size();
  const auto gradients = fused_backward(
      session, *attended.saved, q.do_->quantize(session, drawn(shape, DType::bfloat16, 8)), fused, kernels);
  run.expect_equal(casts_since(session, mark) - 1, 2, "casts of the core's backward pass: dP and dQKV");
  run.expect(is_quantized(gradients[0]), "dQKV goes back in FP8");
}

// ---- S-126

std::vector<ArrayPtr> given_to(string_view tensor, const EmulationShape& n, uint64_t seed) {
  std::vector<ArrayPtr> out;
  for (const Dims& shape : emulation_shapes(tensor, n)) out.push_back(drawn(shape, DType::bfloat16, seed++));
  return out;
}

// Every step of the emulation under both recipes, byte for byte.
void expect_same_steps(ScenarioRun& run, const RecipePtr& custom, const RecipePtr& built_in,
                       const EmulationShape& n) {
  Session one = run.session(), other = run.session();
  DotProductAttention a(one, "core"), b(other, "core");
  a.init_fp8_metadata(one, {custom});
  b.init_fp8_metadata(other, {built_in});
  const Emulation left(a.quantizers()), right(b.quantizers());
  for (const EmulationStage& stage : emulation_stages()) {
    const std::vector<ArrayPtr> in = given_to(stage.tensor, n, 60);
    int64_t casts = 0;
    const auto got = left.pass(one, stage, in, [&](const Quantizer&, const Dims&) { ++casts; });
    const auto want = right.pass(other, stage, in);
    for (size_t i = 0; i < got.size(); ++i)
      run.expect_equal(got[i], want[i], string(stage.tensor) + (stage.casts ? ", cast" : ", passed on"));
    run.expect(stage.casts == (casts > 0) || !left.quantizer(stage.tensor),
               "casts where the built-in one does");
  }
}

void s126(ScenarioRun& run) {
  const auto fields = json::object({{"fp8_dpa", true}});
  const auto custom = [](string_view factory) {
    const auto recipe = custom_recipe(factory);
    recipe->fp8_dpa = true;
    return recipe;
  };
  run.about("current scaling, S and dP on request");
  expect_same_steps(run, custom("nvfp4_linear_fp8_dpa_factory"), make_recipe("Float8CurrentScaling", fields),
                    {1, 2, 8, 8, 16});
  run.about("MXFP8");
  const RecipePtr mxfp8 = make_recipe("MXFP8BlockScaling", fields);
  expect_same_steps(run, custom("mxfp8_factory"), mxfp8, {1, 2, 128, 128, 32});
}

const Scenario kScenarios[] = {
    {"S-118",
     "Attention between its projections in FP8",
     "multi-head attention with fp8_mha under delayed scaling",
     "a step runs from the QKV projection to the gradients of Q, K and V",
     "O, dO and dQKV change hands without a cast; casts are the projections' own, and S, O, dP and dQKV "
     "inside the "
     "core",
     s118,
     {}},
    {"S-126",
     "A factory that fills attention's slots",
     "factories that give current scaling with S and dP on request, and MXFP8",
     "every step of the emulation runs under them and under the built-in recipe",
     "all bytes are equal",
     s126,
     {}},
};

}  // namespace

std::span<const Scenario> attention_module_scenarios() { return kScenarios; }

}  // namespace assay::training

#include "training/modules/attention_module.h"

#include <utility>

#include "training/base/f32.h"
#include "training/modules/fused_producers.h"
#include "training/modules/layernorm_linear.h"
#include "training/modules/linear.h"

namespace assay::training {

using std::string;

namespace {

constexpr const char* kSelf = "sbh3d";        // Q, K and V side by side in each head of one buffer
constexpr const char* kCross = "sbhd_sbh2d";  // Q alone, K and V in one buffer

}  // namespace

AttentionModule::AttentionModule(Session& session, AttentionModuleSettings s)
    : settings(std::move(s)), wiring(session, {settings.name, settings.cross, settings.input_layernorm}) {
  const int64_t width = settings.heads * settings.head_size;
  const auto add = [&](const string& layer, int64_t out, int64_t in) {
    parameters.push_back(make_parameter(layer + "_weight", {out, in}, settings.params_dtype));
    if (settings.bias) parameters.push_back(make_parameter(layer + "_bias", {out}, settings.params_dtype));
  };
  if (settings.input_layernorm) {
    add_norm_parameters(parameters, settings.norm, settings.hidden_size, settings.params_dtype);
    const auto features = static_cast<size_t>(settings.hidden_size);
    write_back(session, parameter("layer_norm_weight"),
               f32_array({settings.hidden_size}, std::vector<float>(features, 1.0F)));
  }
  if (settings.cross) {
    add("query", width, settings.hidden_size);
    add("key_value", 2 * width, settings.hidden_size);
  } else {
    add("qkv", 3 * width, settings.hidden_size);
  }
  add("proj", settings.hidden_size, width);
}

std::vector<RecipeStatePtr> AttentionModule::recipe_states(Mode mode) const {
  std::vector<RecipeStatePtr> out;
  const auto add = [&](const ModuleState& state) {
    if (state.state(mode)) out.push_back(state.state(mode));
  };
  add(wiring.projection);
  if (wiring.key_value) add(*wiring.key_value);
  add(wiring.core_attention.state);
  add(wiring.proj);
  return out;
}

void AttentionModule::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  const auto quantize = [&](ModuleState& state, const char* weight) {
    state.init_fp8_metadata(session, {recipe, true, false, true, nullptr});
    quantize_parameter(session, parameter(weight), *state.quantizer(Mode::forward, 1), grad_enabled);
  };
  quantize(wiring.projection, settings.cross ? "query_weight" : "qkv_weight");
  if (wiring.key_value) quantize(*wiring.key_value, "key_value_weight");
  quantize(wiring.proj, "proj_weight");
}

namespace {

bool quantizes_core(const StepOptions& options) {
  return options.recipe && (options.recipe->fp8_dpa || options.recipe->fp8_mha);
}

// The core's quantizers in the slots that it reads, and null in the others.
std::vector<QuantizerPtr> read_slots(const std::vector<QuantizerPtr>& all, Mode mode, bool quantized) {
  std::vector<QuantizerPtr> out(all.size());
  for (const AttentionSlot& slot : attention_slots())
    if (quantized && slot.mode == mode) out.at(slot.slot) = all[slot.slot];
  return out;
}

}  // namespace

void AttentionModule::describe(const StepOptions& options) {
  if (!options.recipe) return;
  for (const Mode mode : {Mode::forward, Mode::backward}) {
    std::vector<RolePtr> roles;
    std::vector<QuantizerPtr> quantizers;
    for (const auto& [attribute, state] : wiring.members()) {
      std::vector<QuantizerPtr> own = state->quantizers(mode);
      if (state == &wiring.core_attention.state) own = read_slots(own, mode, quantizes_core(options));
      const std::vector<RolePtr> of = state->get_quantizer_roles(mode, own.size());
      roles.insert(roles.end(), of.begin(), of.end());
      quantizers.insert(quantizers.end(), own.begin(), own.end());
    }
    describe_slots(mode, std::move(roles), quantizers);
  }
}

LinearCall AttentionModule::call_of(Session& session, ModuleState& state, const string& layer,
                                    const StepOptions& options, ParallelMode parallel, DType dtype) {
  begin_forward(session, state, options);
  LinearCall call;
  call.prefix = layer + ".";
  call.plan = plan_of(options);
  call.options = options;
  call.quantizers = quantizers_of(state, options);
  call.weight = &parameter(layer + "_weight");
  call.bias = settings.bias ? &parameter(layer + "_bias") : nullptr;
  call.workspaces = &state.fp8_workspaces;
  call.record = &record;
  call.activation_dtype = dtype;
  call.parallel_mode = settings.set_parallel_mode ? parallel : ParallelMode::none;
  call.sequence_parallel = settings.set_parallel_mode && settings.sequence_parallel;
  call.input_requires_grad = options.input_requires_grad || layer == "proj";
  expect_recipe_of_weight(*call.weight, options);
  return call;
}

AttentionProjected AttentionModule::project(Session& session, const ArrayPtr& x, const StepOptions& given,
                                            bool fp8_output) {
  AttentionProjected out;
  StepOptions options = given;
  options.fp8_output = fp8_output;
  options.fp8_grad = false;
  const DType dtype = activation_dtype(x, options);
  const auto run = [&](LinearCall call, const Tensorlike& input, bool produced) {
    LinearForward done = linear_forward(session, std::move(call), input, produced);
    out.buffers.push_back(done.out);
    out.saved.push_back(std::move(done.saved));
  };
  LinearCall first = call_of(session, wiring.projection, settings.cross ? "query" : "qkv", options,
                             ParallelMode::column, dtype);
  if (settings.input_layernorm) {
    first.behind_norm = true;
    out.norm = norm_layer(*this, settings.norm);
    out.norm->forward(session, cast(session, x, dtype));
    const bool fuse = first.plan.quantized && options.fusions.norm &&
                      first.plan.backward_override == BackwardOverride::none && fuses_before_gather(first);
    const Produced normed =
        produce(session, out.norm->saved.out, dtype, ProducerKind::norm, first.quantizers.input.get(), fuse,
                first.prefix + "input", usages_behind_norm(first), first.input_group());
    run(std::move(first), normed.tensor, normed.quantized);
  } else {
    run(std::move(first), x, false);
  }
  if (settings.cross)
    run(call_of(session, *wiring.key_value, "key_value", options, ParallelMode::column, dtype), context,
        false);
  return out;
}

namespace {

Tensorlike backward_of(Session& session, const LinearSaved& saved, const Tensorlike& dy) {
  return linear_backward(session, saved, prepare_grad_output(session, saved, dy));
}

}  // namespace

CoreCall AttentionModule::core_call(const StepOptions& options, const AttentionFlags& flags,
                                    const std::vector<Tensorlike>& buffers) {
  const int64_t b = settings.batch, h = settings.heads, d = settings.head_size;
  CoreCall call;
  call.sizes = {b,
                h,
                shape_of(buffers.front())[0] / b,
                shape_of(buffers.back())[0] / b,
                d,
                settings.softmax_scale,
                !settings.cross};
  if (settings.cross)
    call.in = attention_input(kCross, {in_dimensions(buffers[0], {call.sizes.q, b, h, d}),
                                       in_dimensions(buffers[1], {call.sizes.kv, b, h, 2, d})});
  else call.in = attention_input(kSelf, {in_dimensions(buffers[0], {call.sizes.q, b, h, 3, d})});
  DotProductAttention& core = wiring.core_attention;
  if (quantizes_core(options)) {
    call.quantizers = core.quantizers();
    call.delayed = core.state.state(Mode::forward)->delayed();
  }
  call.options.training = options.grad_enabled;
  call.options.fp8_output = flags.dpa_fp8_output;
  call.options.o_format = "sbhd";
  call.options.switches = core.switches;
  call.record = &record.gemms;
  if (settings.checkpoint_core && options.grad_enabled) call.phase = &phase_, call.stash = &stash_;
  return call;
}

Forward AttentionModule::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& options) {
  Autocast autocast = quantization_off();
  if (options.recipe) autocast = {options.recipe, true, false, false, nullptr};
  const AttentionFlags flags = wiring.prepare(session, autocast, false, options.edges);
  AttentionProjected projected = project(session, x, options, flags.qkv_fp8_output);
  wiring.core_attention.init_fp8_metadata(session, autocast);
  const auto core = std::make_shared<CoreRun>(core_call(options, flags, projected.buffers));
  const Tensorlike o = core->forward(session);

  const Dims heads = shape_of(o);
  StepOptions last = options;
  last.fp8_output = false;
  last.fp8_grad = flags.proj_fp8_grad;
  LinearForward done = linear_forward(
      session, call_of(session, wiring.proj, "proj", last, ParallelMode::row, activation_dtype(x, options)),
      in_dimensions(o, {heads[0] * heads[1], heads[2] * heads[3]}));
  Forward out{std::move(done.out), nullptr};
  if (options.grad_enabled)
    out.backward = [this, proj = std::move(done.saved), projected = std::move(projected), core, heads](
                       Session& s, const ArrayPtr& dy) {
      const Tensorlike d_o = in_dimensions(backward_of(s, proj, dy), heads);
      return gradient_of_input(s, projected, core->backward(s, d_o));
    };
  return out;
}

Tensorlike AttentionModule::gradient_of_input(Session& session, const AttentionProjected& projected,
                                              const std::array<Tensorlike, 3>& gradients) {
  const std::vector<Tensorlike> d = packed_gradients(settings.cross ? kCross : kSelf, gradients);
  const Tensorlike dx = backward_of(session, projected.saved[0], d[0]);
  if (settings.cross) note_output(session, "dgrad.context", backward_of(session, projected.saved[1], d[1]));
  if (!projected.norm || absent(dx)) return dx;
  return projected.norm->backward(session, plain(session, dx, projected.saved[0].call.activation_dtype));
}

}  // namespace assay::training

#include "training/modules/layer_module.h"

#include <utility>

#include "training/base/f32.h"

namespace assay::training {

using std::string;

namespace {

AttentionModuleSettings attention_settings(const LayerModuleSettings& s, const char* part, bool cross) {
  AttentionModuleSettings out;
  if (s.name) out.name = *s.name + "." + part;
  out.hidden_size = s.hidden_size;
  out.heads = s.heads;
  out.head_size = s.head_size;
  out.batch = s.batch;
  out.cross = cross;
  out.input_layernorm = true;
  out.bias = s.bias;
  out.params_dtype = s.params_dtype;
  out.set_parallel_mode = s.set_parallel_mode;
  out.sequence_parallel = s.sequence_parallel;
  out.checkpoint_core = s.checkpoint_core;
  out.softmax_scale = s.softmax_scale;
  out.norm = s.norm;
  return out;
}

LayerNormMLPSettings mlp_settings(const LayerModuleSettings& s) {
  LayerNormMLPSettings out;
  if (s.name) out.name = *s.name + ".layernorm_mlp";
  out.hidden_size = s.hidden_size;
  out.ffn_hidden_size = s.ffn_hidden_size;
  out.bias = s.bias;
  out.params_dtype = s.params_dtype;
  out.norm = s.norm;
  out.activation = s.activation;
  out.set_parallel_mode = s.set_parallel_mode;
  out.sequence_parallel = s.sequence_parallel;
  return out;
}

// a + b in binary32, rounded to a's dtype.
ArrayPtr residual(Session& session, const ArrayPtr& a, const Tensorlike& b) {
  const ArrayPtr sum = add(session, cast(session, a, DType::float32),
                           cast(session, plain(session, b, dtype_of(b)), DType::float32));
  return cast(session, sum, a->dtype);
}

}  // namespace

LayerModule::LayerModule(Session& session, LayerModuleSettings s) : settings(std::move(s)) {
  add("self_attention.",
      std::make_unique<AttentionModule>(session, attention_settings(settings, "self_attention", false)));
  if (settings.decoder)
    add("inter_attention.",
        std::make_unique<AttentionModule>(session, attention_settings(settings, "inter_attention", true)));
  add("layernorm_mlp.", std::make_unique<LayerNormMLP>(session, mlp_settings(settings)));
}

void LayerModule::add(string prefix, std::unique_ptr<Module> module) {
  const size_t first = parameters.size();
  for (const Parameter& p : module->parameters) {
    parameters.push_back(p);
    parameters.back().name = prefix + p.name;
  }
  parts_.push_back({std::move(prefix), std::move(module), first, {}});
}

void LayerModule::hand_down() {
  for (Part& part : parts_)
    for (size_t i = 0; i < part.module->parameters.size(); ++i) {
      Parameter& to = part.module->parameters[i];
      string name = std::move(to.name);
      to = parameters[part.first + i];
      to.name = std::move(name);
    }
}

void LayerModule::hand_up() {
  for (const Part& part : parts_)
    for (size_t i = 0; i < part.module->parameters.size(); ++i) {
      Parameter& to = parameters[part.first + i];
      string name = std::move(to.name);
      to = part.module->parameters[i];
      to.name = std::move(name);
    }
}

void LayerModule::take_record(Part& part) {
  const StepRecord& from = part.module->record;
  const auto take = [&](auto& to, const auto& of, size_t& taken, auto name) {
    for (; taken < of.size(); ++taken) {
      if ((of[taken].*name).ends_with(".grad")) continue;
      to.push_back(of[taken]);
      to.back().*name = part.prefix + to.back().*name;
    }
  };
  take(record.gemms, from.gemms, part.taken[0], &GemmRecord::name);
  take(record.outputs, from.outputs, part.taken[1], &NamedArray::name);
  take(record.usages, from.usages, part.taken[2], &NamedUsages::name);
  take(record.cache, from.cache, part.taken[3], &CacheEvent::weight);
}

std::vector<RecipeStatePtr> LayerModule::recipe_states(Mode mode) const {
  std::vector<RecipeStatePtr> out;
  for (const Part& part : parts_)
    for (const RecipeStatePtr& state : part.module->recipe_states(mode)) out.push_back(state);
  return out;
}

void LayerModule::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  hand_down();
  for (const Part& part : parts_) part.module->quantize_parameters(session, recipe, grad_enabled);
  hand_up();
}

void LayerModule::set_context(const ArrayPtr& context) {
  for (const Part& part : parts_)
    if (auto* attention = dynamic_cast<AttentionModule*>(part.module.get());
        attention && attention->settings.cross)
      attention->context = context;
}

void LayerModule::describe(const StepOptions& options) {
  if (!options.recipe) return;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  const auto append_roles = [&](RoleList& to, const RoleList& from) {
    if (!to) to.emplace();
    if (from) append(*to, *from);
  };
  for (const Part& part : parts_) {
    const StepRecord& r = part.module->record;
    append_roles(record.forward_roles, r.forward_roles);
    append_roles(record.backward_roles, r.backward_roles);
    append(record.forward_quantizers, r.forward_quantizers);
    append(record.backward_quantizers, r.backward_quantizers);
  }
}

Forward LayerModule::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& given) {
  hand_down();
  StepOptions options = given;
  options.fp8_output = options.fp8_grad = false;
  ArrayPtr hidden = cast(session, x, activation_dtype(x, options));
  std::vector<Forward> done;
  for (Part& part : parts_) {
    part.taken = {};
    done.push_back(part.module->forward(session, hidden, options));
    hidden = residual(session, hidden, done.back().out);
    take_record(part);
    options.input_requires_grad = true;
  }
  hand_up();
  Forward out{hidden, nullptr};
  if (options.grad_enabled)
    out.backward = [this, done = std::move(done)](Session& s, const ArrayPtr& dy) {
      hand_down();
      ArrayPtr d = dy;
      bool absent_at_last = false;
      for (size_t i = parts_.size(); i-- > 0;) {
        const Tensorlike dx = done[i].backward(s, d);
        absent_at_last = absent(dx);
        if (!absent_at_last) d = residual(s, d, dx);
        take_record(parts_[i]);
      }
      hand_up();
      return absent_at_last ? Tensorlike() : Tensorlike(d);
    };
  return out;
}

}  // namespace assay::training

#include "training/kit/trained_module.h"

#include <utility>

#include "training/modules/tensor_parallel.h"
#include "training/recipes/delayed.h"

namespace assay::training {

namespace {

constexpr F32Bits kEighth = 0x3E000000;

// A weight matrix, which FSDP2 shards and a recipe quantizes; norms and biases are vectors.
bool is_matrix(const Parameter& p) { return shape_of(p.value).size() == 2; }

ArrayPtr rows_of(const ArrayPtr& x, const ProcessGroup& group) {
  const int64_t rows = x->shape[0] / group.size;
  return clone(slice(x, 0, group.rank * rows, (group.rank + 1) * rows));
}

std::vector<DelayedStatePtr> delayed_states(const Module& module) {
  std::vector<DelayedStatePtr> out;
  for (const RecipeStatePtr& state : module.recipe_states(Mode::forward))
    if (const DelayedStatePtr delayed = state->delayed()) out.push_back(delayed);
  return out;
}

void update_histories(Session& session, const Module& module, const StepOptions& options, Mode mode) {
  if (!options.recipe) return;
  AmaxBuffers histories;
  for (const RecipeStatePtr& state : module.recipe_states(mode))
    histories.add(state, options.amax_reduction_group);
  histories.reduce_and_update(session, mode == Mode::forward);
}

void add_buffers(std::vector<NamedArray>& out, const std::string& name, const Piece& value) {
  const Tensorlike t = std::holds_alternative<StoragePtr>(value) ? Tensorlike(std::get<StoragePtr>(value))
                                                                 : Tensorlike(std::get<ArrayPtr>(value));
  for (const NamedArray& a : snapshot(t)) out.push_back({name + "." + a.name, a.array});
}

}  // namespace

TrainedModule::TrainedModule(Session& session, Module& module, TrainedSettings settings)
    : session_(session), module_(module), settings_(std::move(settings)) {
  if (settings_.quantized_weights) {
    for (Parameter& p : module.parameters) p.preserve_init_value = true;
    module.quantize_parameters(session, settings_.quantized_weights);
  }
  AdamGroup group;
  for (Parameter& p : module.parameters) {
    Weight w{&p, std::make_shared<Trained>(), settings_.mesh && is_matrix(p), nullptr};
    if (w.sharded) {
      shard(w);
    } else if (const StoragePtr* s = std::get_if<StoragePtr>(&p.value)) {
      w.trained->value = *s;
    } else {
      w.trained->value = std::get<ArrayPtr>(p.value);
    }
    group.params.push_back(w.trained);
    weights_.push_back(std::move(w));
  }
  AdamOptions options;
  options.lr = kEighth;
  options.master_weights = true;
  adam_ = std::make_unique<FusedAdam>(session, std::vector{std::move(group)}, options);
}

// A quantized shard is made of this rank's rows, with the amaxes of the whole mesh (TE module/base.py).
void TrainedModule::shard(Weight& w) {
  const StoragePtr* s = std::get_if<StoragePtr>(&w.parameter->value);
  if (!s) {
    w.trained->value = rows_of(std::get<ArrayPtr>(w.parameter->value), *settings_.mesh);
    return;
  }
  const QuantizerPtr q = (*s)->quantizer->copy();
  set_amax_reduction_group(*q, settings_.mesh);
  session_.tensor_name = w.parameter->name;
  w.trained->value = q->quantize(session_, rows_of((*s)->init_value, *settings_.mesh));
}

void TrainedModule::gather(TrainingState state) {
  for (Weight& w : weights_) {
    if (!w.sharded) continue;
    ProcessGroup& mesh = *settings_.mesh;
    session_.collectives.push_back({"all_gather", w.parameter->name, mesh.name});
    if (const ArrayPtr* plain_shard = std::get_if<ArrayPtr>(&w.trained->value)) {
      w.parameter->value = concatenate(mesh.all_gather(clone(*plain_shard)));
      continue;
    }
    Storage& own = *std::get<StoragePtr>(w.trained->value);
    const FsdpSent sent = fsdp_pre_all_gather(own, settings_.mesh, ParamGroup{settings_.reshard, state});
    std::vector<ArrayPtr> gathered;
    for (const ArrayPtr& b : sent.buffers)
      gathered.push_back(b ? concatenate(mesh.all_gather(contiguous(b))) : nullptr);
    w.whole = fsdp_post_all_gather(own, sent, gathered, w.parameter->dtype, w.whole);
    w.parameter->value = w.whole;
  }
}

RegionResult TrainedModule::run_region(const RegionView& view, const ArrayPtr& x, StepOptions options) {
  options.grad_enabled = view.grad_enabled;
  options.first_of_recompute = !view.recompute_phase;
  if (view.recompute_phase)
    for (const DelayedStatePtr& s : delayed_states(module_)) stash_.get(s);
  open_ = module_.forward(session_, x, options);
  for (const DelayedStatePtr& s : delayed_states(module_)) {
    if (view.recompute_phase) stash_.restore(s);
    else stash_.copy(s);
  }
  RegionResult out{plain(session_, open_.out, dtype_of(open_.out)), nullptr};
  if (view.grad_enabled)
    out.pullback = [this](const ArrayPtr& dy) {
      const Tensorlike dx = open_.backward(session_, dy);
      return absent(dx) ? nullptr : plain(session_, dx, dtype_of(dx));
    };
  return out;
}

ArrayPtr TrainedModule::forward(const ArrayPtr& x, const StepOptions& given) {
  options_ = given;
  options_.fsdp2 = settings_.mesh != nullptr;
  gather(TrainingState::forward);
  ArrayPtr out;
  if (settings_.recompute) {
    RegionView around;
    around.quantization_on = options_.recipe != nullptr;
    region_ = std::make_unique<Checkpoint>(
        session_, phase_,
        [this, x, options = options_](const RegionView& view) { return run_region(view, x, options); },
        settings_.reentrant, around);
    out = region_->forward();
  } else {
    open_ = module_.forward(session_, x, options_);
    out = plain(session_, open_.out, dtype_of(open_.out));
  }
  update_histories(session_, module_, options_, Mode::forward);
  return out;
}

ArrayPtr TrainedModule::backward(const ArrayPtr& dy) {
  if (settings_.reshard) gather(TrainingState::pre_backward);
  ArrayPtr dx;
  if (settings_.recompute) {
    dx = region_->backward(dy);
  } else {
    const Tensorlike made = open_.backward(session_, dy);
    dx = absent(made) ? nullptr : plain(session_, made, dtype_of(made));
  }
  update_histories(session_, module_, options_, Mode::backward);
  for (Weight& w : weights_) {
    w.trained->grad = w.parameter->grad;
    if (w.trained->grad && settings_.mesh)
      w.trained->grad =
          reduced(session_, settings_.mesh, w.trained->grad, w.parameter->name + ".grad", w.sharded);
  }
  return dx;
}

const StepRecord& TrainedModule::step(const ArrayPtr& x, const ArrayPtr& dy, const StepOptions& options) {
  forward(x, options);
  if (options.grad_enabled) backward(dy);
  return module_.record;
}

void TrainedModule::update() { adam_->step(); }

std::vector<NamedArray> TrainedModule::state() {
  std::vector<NamedArray> out;
  for (const Weight& w : weights_) {
    add_buffers(out, w.parameter->name, w.trained->value);
    const AdamStates* s = adam_->states(w.trained);
    if (!s) continue;
    out.push_back({w.parameter->name + ".master", clone(s->master->plain)});
    out.push_back({w.parameter->name + ".exp_avg", clone(s->exp_avg.plain)});
    out.push_back({w.parameter->name + ".exp_avg_sq", clone(s->exp_avg_sq.plain)});
  }
  return out;
}

}  // namespace assay::training

#include "training/modules/module.h"

#include <stdexcept>

#include "training/recipes/delayed.h"

namespace assay::training {

void Module::traced(Session& session, const std::function<void()>& work) {
  const size_t draws = session.rng.draws.size(), collectives = session.collectives.size(),
               warnings = session.warnings.size();
  work();
  const auto append = [](auto& to, const auto& from, size_t first) {
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(first), from.end());
  };
  append(record.draws, session.rng.draws, draws);
  append(record.collectives, session.collectives, collectives);
  append(record.warnings, session.warnings, warnings);
  record.rng_offset = session.rng.offset;
}

void Module::note_output(Session& session, const std::string& name, const Tensorlike& t) {
  if (!absent(t)) record.outputs.push_back({name, clone(plain(session, t, dtype_of(t)))});
}

void Module::describe_slots(Mode mode, RoleList roles, const std::vector<QuantizerPtr>& quantizers) {
  (mode == Mode::forward ? record.forward_roles : record.backward_roles) = std::move(roles);
  std::vector<json::Value>& settings =
      mode == Mode::forward ? record.forward_quantizers : record.backward_quantizers;
  for (const QuantizerPtr& q : quantizers) settings.push_back(q ? q->describe() : json::Value());
}

void Module::describe_module(const ModuleState& state, const StepOptions& options) {
  if (!options.recipe) return;
  for (const Mode mode : {Mode::forward, Mode::backward})
    describe_slots(mode, state.get_quantizer_roles(mode, state.quantizers(mode).size()),
                   state.quantizers(mode));
}

DType Module::activation_dtype(const ArrayPtr& x, const StepOptions& options) const {
  return options.autocast_dtype.value_or(x->dtype);
}

Parameter& Module::parameter(std::string_view name) {
  for (Parameter& p : parameters)
    if (p.name == name) return p;
  throw std::out_of_range(std::string(kind()) + " has no parameter '" + std::string(name) + "'");
}

std::vector<RecipeStatePtr> Module::recipe_states(Mode mode) const {
  const RecipeStatePtr state = recipe_state(mode);
  return state ? std::vector{state} : std::vector<RecipeStatePtr>{};
}

Forward Module::forward(Session& session, const ArrayPtr& x, const StepOptions& options) {
  record = {};
  Forward done;
  traced(session, [&] {
    done = forward_impl(session, x, options);
    note_output(session, "output", done.out);
    describe(options);
  });
  const auto inner =
      std::make_shared<std::function<Tensorlike(Session&, const ArrayPtr&)>>(std::move(done.backward));
  done.backward = [this, inner](Session& s, const ArrayPtr& dy) {
    if (!*inner)
      throw SemanticError(ErrorClass::runtime_error,
                          "backward needs what a forward with gradients saved: this one ran without, or its "
                          "backward ran before");
    Tensorlike dgrad;
    traced(s, [&] {
      dgrad = (*inner)(s, dy);
      *inner = nullptr;
      note_output(s, "dgrad", dgrad);
      for (const Parameter& p : parameters)
        if (const ArrayPtr& grad = p.main_grad ? p.main_grad : p.grad)
          record.outputs.push_back({p.name + ".grad", clone(grad)});
    });
    return dgrad;
  };
  return done;
}

const StepRecord& Module::step(Session& session, const ArrayPtr& x, const ArrayPtr& dy,
                               const StepOptions& options) {
  const Forward done = forward(session, x, options);
  if (!options.grad_enabled) return record;
  AmaxBuffers histories;
  for (const Mode mode : {Mode::forward, Mode::backward})
    if (options.recipe)
      for (const RecipeStatePtr& state : recipe_states(mode))
        histories.add(state, options.amax_reduction_group);
  traced(session, [&] { histories.reduce_and_update(session, true); });
  done.backward(session, dy);
  traced(session, [&] { histories.reduce_and_update(session, false); });
  return record;
}

}  // namespace assay::training

#include "training/parity/routes.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/formats/hybrid.h"
#include "training/parity/attention_recipes.h"
#include "training/parity/trained_route.h"
#include "training/recipes/factories.h"
#include "training/recipes/format_table.h"

namespace assay::training {

namespace {

// The amaxes of another rank, larger in one tensor than in the next, so that a reduction that is left out
// shows.
GroupPtr tensor_parallel_group() {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = "tp";
  group->size = 2;
  group->all_reduce_max = [](std::span<F32Bits> amaxes) {
    for (F32Bits& a : amaxes) a = std::max<F32Bits>(a, 0x44A00000);  // 1280
  };
  return group;
}

uint64_t hash_of(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325;
  for (const char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001B3;
  return h;
}

}  // namespace

void prepare(Session& session, const Cell& c, const Removed& removed) {
  session.arch = removed.tn_only ? Arch::sm100 : c.arch;
  session.flavour = c.flavour;
  session.rng.reseed(7);
  if (removed.random_states)
    session.rng.inject = [&session] { return hash_of(session.tensor_name) % 4096 * kPhiloxStep; };
  if (removed.random_states || removed.sign_of_zero)
    session.adjust = [removed](Numerics& n) {
      if (removed.random_states) n.draw = Draw::logical;
      if (removed.sign_of_zero) n.neg_zero = NegZero::keep;
    };
}

EdgeRules edges_of(const Removed& removed, const RecipePtr& recipe) {
  const bool custom = recipe && recipe->custom();
  return {custom || !removed.built_in_edges, !custom || !removed.early_names};
}

namespace {

// The module of one route, its binary32 weights and the options of its steps.
class Route {
 public:
  Route(Session& session, const Cell& c, const RecipePtr& recipe, const Removed& removed)
      : session_(session),
        cell_(c),
        settings_(module_of(c, c.packed && !removed.packed)),
        module_(make_module(session, settings_)) {
    uint64_t seed = 100;
    for (Parameter& p : module_->parameters) {
      const ArrayPtr* plain_value = std::get_if<ArrayPtr>(&p.value);
      const Dims shape = plain_value ? (*plain_value)->shape : shape_of(p.value);
      masters_.push_back(drawn(shape, DType::float32, seed++));
      write_back(session, p, masters_.back());
    }
    if (recipe && c.roles != kNoHybrid &&
        (c.phase == Phase::quantized_init || c.phase == Phase::evaluation || c.phase == Phase::trajectory))
      module_->quantize_parameters(session, recipe);
    options_.recipe = recipe;
    options_.fusions = {!removed.fused_producers, !removed.fused_producers, !removed.fused_bias_gradient};
    options_.edges = edges_of(removed, recipe);
    if (is_parallel(c.phase)) options_.tp_group = tensor_parallel_group();
  }

  StepRecord run() {
    switch (cell_.phase) {
      case Phase::cached: cached(); break;
      case Phase::trajectory: trajectory(); break;
      case Phase::evaluation: evaluation(); break;
      default: step(0);
    }
    return module_->record;
  }

 private:
  ArrayPtr input(uint64_t seed) const {
    return gradient({input_rows(settings_), settings_.in}, DType::bfloat16, seed);
  }

  void step(uint64_t n) {
    const int64_t rows = input_rows(settings_), columns = output_columns(settings_);
    const ArrayPtr dy = gradient({rows, columns}, DType::bfloat16, 20 + n);
    if (rows > 128 && cell_.formats.dgrad == "mxfp8") plant_sum_order(*dy, columns / 2);
    module_->step(session_, input(10 + n), dy, options_);
  }

  void cached() {
    options_.is_first_microbatch = true;
    step(0);
    options_.is_first_microbatch = false;
    step(1);
  }

  void trajectory() {
    step(0);
    for (uint64_t n = 1; n < 3; ++n) {
      update();
      step(n);
    }
  }

  // An update that every gradient bit takes part in; that it ascends does not matter here.
  void update() {
    for (size_t i = 0; i < module_->parameters.size(); ++i) {
      Parameter& p = module_->parameters[i];
      if (!p.grad) continue;
      const ArrayPtr grad = view(cast(session_, contiguous(p.grad), DType::float32), masters_[i]->shape);
      masters_[i] = add(session_, masters_[i], grad);
      write_back(session_, p, masters_[i]);
    }
  }

  void evaluation() {
    step(0);
    options_.grad_enabled = false;
    module_->forward(session_, input(30), options_);
    options_.grad_enabled = true;
    for (size_t i = 0; i < module_->parameters.size(); ++i)
      write_back(session_, module_->parameters[i], drawn(masters_[i]->shape, DType::float32, 300 + i));
    step(1);
  }

  Session& session_;
  const Cell& cell_;
  ModuleSettings settings_;
  std::unique_ptr<Module> module_;
  std::vector<ArrayPtr> masters_;
  StepOptions options_;
};

}  // namespace

namespace {

// The factory's own recipe, but for formats that no recipe of the original has. Vanilla of such a format is a
// plain quantizer too, so a plain answer is split into a pair of two; else one route would be compared with
// itself.
RecipePtr split_recipe(const QFactory& factory) {
  return recipe_around(factory.name, [call = factory.call](const RolePtr& role) -> QuantizerLike {
    QuantizerLike made = call(role);
    const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made);
    const FormatRow* row = q && *q ? row_of_quantizer(**q) : nullptr;
    if (!row || !only_by_factory(row->format)) return made;
    return std::make_shared<HybridQuantizer>((*q)->copy(), (*q)->copy());
  });
}

}  // namespace

RecipePtr hybrid_recipe(const Cell& c, const Removed& removed) {
  if (is_attention_module(c.module)) return custom_attention_recipe(c, removed);
  if (!c.factory.empty()) return split_recipe(*factory_named(c.factory));
  return per_gemm(c.formats, c.roles,
                  c.backward_override == "dequantized" ? "rowwise_dequantized" : "original");
}

RecipePtr vanilla_recipe(const Cell& c, std::string_view format) {
  if (!c.core.empty()) return built_in_attention_recipe(c);
  const RecipePtr recipe = recipe_of_format(c.backward_override.empty() ? format : c.formats.fprop);
  if (recipe && !c.backward_override.empty()) recipe->backward_override = std::string(c.backward_override);
  return recipe;
}

std::vector<StepRecord> run_route(const Cell& c, const RecipePtr& recipe, const Removed& removed,
                                  Subject& subject, const Environment& environment) {
  if (is_trained(c)) return run_trained_route(c, recipe, removed, subject, environment);
  Session session(subject, environment);
  prepare(session, c, removed);
  return {Route(session, c, recipe, removed).run()};
}

}  // namespace assay::training

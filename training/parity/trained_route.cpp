#include "training/parity/trained_route.h"

#include <algorithm>
#include <memory>
#include <string>

#include "training/base/data.h"
#include "training/base/ranks.h"
#include "training/kit/trained_module.h"
#include "training/modules/wire.h"

namespace assay::training {

namespace {

// Some ranks of `world` as a group of their own. Its collectives are collectives of the whole world, of which
// each rank keeps its group's part, so all groups of a kind have to be asked at the same time; every rank of
// a cell runs the same program, so they are.
GroupPtr part_of(const GroupPtr& world, std::string name, std::vector<int> members) {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = std::move(name);
  group->size = static_cast<int>(members.size());
  group->rank = static_cast<int>(std::find(members.begin(), members.end(), world->rank) - members.begin());
  const auto exchange = [world, members](const ArrayPtr& own) {
    const std::vector<ArrayPtr> all = world->all_gather(own);
    std::vector<ArrayPtr> out;
    for (const int rank : members) out.push_back(all.at(static_cast<size_t>(rank)));
    return out;
  };
  group->all_gather = exchange;
  group->all_reduce_max = [exchange](std::span<F32Bits> values) {
    const ArrayPtr own =
        from_bytes({static_cast<int64_t>(values.size())}, DType::int32, std::as_bytes(values));
    for (const ArrayPtr& other : exchange(own)) {
      const auto* bits = reinterpret_cast<const F32Bits*>(other->data());
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], bits[i]);
    }
  };
  return group;
}

// Where a rank stands: ranks that share features are neighbours, those that share rows of weights are not.
struct Place {
  GroupPtr features, mesh;  // null: the cell has none
};
Place place_of(const Cell& c, const Removed& removed, const GroupPtr& world) {
  const int tensor = tensor_ranks(c), rank = world->rank;
  std::vector<int> features, mesh;
  for (int r = 0; r < world->size; ++r) {
    if (r / tensor == rank / tensor) features.push_back(r);
    if (r % tensor == rank % tensor) mesh.push_back(r);
  }
  Place out;
  if (is_parallel(c.phase)) out.features = part_of(world, "tp", features);
  if (!c.fsdp.empty() && !removed.fsdp) out.mesh = part_of(world, "mesh", mesh);
  return out;
}

// The data of a step. Ranks that share features have the same rows where those are not sharded.
struct Data {
  Dims x, dy;
  uint64_t x_seed = 0, dy_seed = 0;
};
Data data_of(const Cell& c, const ModuleSettings& s, const Place& place, int rank) {
  const int tensor = tensor_ranks(c);
  const auto mine = static_cast<uint64_t>(rank % tensor), others = static_cast<uint64_t>(rank / tensor);
  const bool column = c.phase == Phase::column, row = c.phase == Phase::row;
  // Both have a column parallel layer first and a row parallel one last.
  const bool mlp = c.module == "layernorm_mlp" || is_attention_module(c.module);
  const int64_t rows = input_rows(s);
  const bool sums = place.features && place.features->size > 1, experts = c.module == "grouped_linear";
  Data out{{rows, s.in}, {rows, output_columns(s)}, 10 + 1000 * others, 20 + 1000 * others};
  if (!sums) return out;
  if (experts) {  // what its ranks have in common is their caller's business
    out.x_seed += 100 * mine;
    out.dy_seed += 100 * mine;
    return out;
  }
  if (c.sequence && column && !mlp) out.dy[0] = rows * tensor;
  if (c.sequence && row && !mlp) out.dy[0] = rows / tensor;
  // Sharded rows or features are other data on every rank; an MLP's input and output are sharded by rows
  // alone.
  if (c.sequence ? column || row || mlp : row && !mlp) out.x_seed += 100 * mine;
  if (c.sequence ? true : column && !mlp) out.dy_seed += 100 * mine;
  return out;
}

StepRecord run_rank(const Cell& c, const RecipePtr& recipe, const Removed& removed, Subject& subject,
                    const Environment& environment, const Place& place, int rank) {
  Session session(subject, environment);
  prepare(session, c, removed);
  const ModuleSettings s = module_of(c, false);
  const std::unique_ptr<Module> module = make_module(session, s);
  uint64_t seed = 100 + 50 * static_cast<uint64_t>(rank % tensor_ranks(c));
  for (Parameter& p : module->parameters)
    write_back(session, p, drawn(shape_of(p.value), DType::float32, seed++));
  TrainedSettings settings;
  if (c.phase == Phase::quantized_init) settings.quantized_weights = recipe;
  settings.mesh = place.mesh;
  settings.reshard = c.fsdp == "reshard";
  settings.recompute = c.recompute;
  TrainedModule trained(session, *module, settings);
  StepOptions options;
  options.recipe = recipe;
  options.tp_group = place.features;
  options.fusions = {!removed.fused_producers, !removed.fused_producers, !removed.fused_bias_gradient,
                     !removed.gathers_of_codes};
  options.edges = edges_of(removed, recipe);
  const Data data = data_of(c, s, place, rank);
  const auto step = [&](uint64_t n) {
    trained.step(gradient(data.x, DType::bfloat16, data.x_seed + n),
                 gradient(data.dy, DType::bfloat16, data.dy_seed + n), options);
  };
  step(0);
  if (!c.adam) return module->record;
  trained.update();
  step(1);
  trained.update();
  StepRecord out = module->record;
  for (const NamedArray& a : trained.state())  // shards are held in other buffers by a hybrid
    if (a.name.find(".master") != a.name.npos || a.name.find(".exp_avg") != a.name.npos)
      out.outputs.push_back(a);
  return out;
}

}  // namespace

std::vector<StepRecord> run_trained_route(const Cell& c, const RecipePtr& recipe, const Removed& removed,
                                          Subject& subject, const Environment& environment) {
  if (c.ranks == 0) return {run_rank(c, recipe, removed, subject, environment, {}, 0)};
  std::vector<StepRecord> out(static_cast<size_t>(c.ranks));
  run_ranks(
      c.ranks, "world",
      [&](int rank, const GroupPtr& world) {
        out[static_cast<size_t>(rank)] =
            run_rank(c, recipe, removed, subject, environment, place_of(c, removed, world), rank);
      },
      shared(out));
  return out;
}

}  // namespace assay::training

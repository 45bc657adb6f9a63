#include "training/recipes/delayed.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "training/base/f32.h"
#include "training/formats/float8.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr F32Bits kOne = 0x3F800000;

void store(std::span<const F32Bits> bits, std::span<std::byte> to) {
  if (!bits.empty()) std::memcpy(to.data(), bits.data(), bits.size() * sizeof(F32Bits));
}
PlaneData plane(string name, std::span<const F32Bits> bits) {
  PlaneData d;
  d.plane.name = std::move(name);
  d.bytes.resize(bits.size() * sizeof(F32Bits));
  store(bits, d.bytes);
  return d;
}

// The planes next.history and next.scale of one update.
std::vector<PlaneData> run_update(Session& session, std::span<const F32Bits> history, int64_t length,
                                  std::span<const F32Bits> scale, Encoding dtype, Update op) {
  Problem p;
  p.x = {{length, static_cast<int64_t>(scale.size())}, Encoding::f32, {}};
  p.row.emplace();
  p.row->format = FormatId::fp8_delayed;
  p.row->element = dtype;
  p.op = op;
  return session.run(p, {plane("history", history), plane("scale", scale)});
}

template <class A> class Algorithms {
 public:
  void add(string name, A a) {
    const std::lock_guard lock(mutex_);
    if (!all_.try_emplace(name, std::move(a)).second)
      throw SemanticError(ErrorClass::value_error, "expected a new name for an algorithm, found '" + name +
                                                       "', which is registered: choose another");
  }
  const A* find(string_view name) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(name);
    return at == all_.end() ? nullptr : &at->second;  // entries of a map stay where they are
  }

 private:
  std::mutex mutex_;
  std::map<string, A, std::less<>> all_;
};
Algorithms<AmaxAlgorithm>& amax_algorithms() {
  static Algorithms<AmaxAlgorithm> a;
  return a;
}
Algorithms<ScaleAlgorithm>& scale_algorithms() {
  static Algorithms<ScaleAlgorithm> a;
  return a;
}

}  // namespace

DelayedScalingRecipeState::DelayedScalingRecipeState(RecipePtr recipe, string mode, size_t num_quantizers,
                                                     RoleList roles)
    : RecipeState(std::move(recipe), std::move(mode), num_quantizers, std::move(roles)),
      dtype(fp8_dtype(*recipe_, forward())),
      scale(zeros({static_cast<int64_t>(num_quantizers)}, DType::float32)),
      amax_history(
          zeros({settings().amax_history_len, static_cast<int64_t>(num_quantizers)}, DType::float32)) {
  store(std::vector<F32Bits>(num_quantizers, kOne), scale->bytes());
}

std::vector<QuantizerPtr> DelayedScalingRecipeState::make_quantizers(Session&) {
  std::vector<QuantizerPtr> all;
  for (size_t i = 0; i < num_quantizers_; ++i) {
    const auto at = static_cast<int64_t>(i);
    all.push_back(std::make_shared<Float8Quantizer>(as_strided(scale, {}, {}, at),
                                                    as_strided(amax_history, {1}, {1}, at), dtype));
  }
  return all;
}

bool DelayedScalingRecipeState::inherit(const RecipeState& old) {
  const auto* delayed = dynamic_cast<const DelayedScalingRecipeState*>(&old);
  if (!delayed || delayed->dtype != dtype || delayed->amax_history->shape != amax_history->shape)
    return false;
  scale = delayed->scale;
  amax_history = delayed->amax_history;
  return true;
}

bool DelayedScalingRecipeState::adjust_history(const Recipe& wanted) {
  const auto* settings = dynamic_cast<const DelayedScaling*>(&wanted);
  const int64_t had = amax_history->shape[0];
  if (!settings || settings->amax_history_len == had) return false;
  const int64_t length = settings->amax_history_len, kept = std::min(had, length);
  ArrayPtr history = zeros({length, amax_history->shape[1]}, DType::float32);
  copy_into(*slice(amax_history, 0, 0, kept), *slice(history, 0, 0, kept));
  amax_history = std::move(history);
  return true;
}

void register_amax_algorithm(string name, AmaxAlgorithm a) {
  amax_algorithms().add(std::move(name), std::move(a));
}
void register_scale_algorithm(string name, ScaleAlgorithm a) {
  scale_algorithms().add(std::move(name), std::move(a));
}
bool is_amax_algorithm(string_view name) { return amax_algorithms().find(name); }
bool is_scale_algorithm(string_view name) { return scale_algorithms().find(name); }

void update_amax_and_scale(Session& session, Array& amax_history, Array& scale, Encoding dtype,
                           const DelayedScaling& settings, UpdateRule rule) {
  const AmaxAlgorithm* amax_algorithm = amax_algorithms().find(settings.amax_compute_algo);
  const ScaleAlgorithm* scale_algorithm = settings.scaling_factor_compute_algo
                                              ? scale_algorithms().find(*settings.scaling_factor_compute_algo)
                                              : nullptr;
  const int64_t length = amax_history.shape[0], slots = amax_history.shape[1];
  const std::vector<F32Bits> history = f32_bits(amax_history), before = f32_bits(scale);

  Update op;
  op.algo = settings.amax_compute_algo == "most_recent" ? AmaxAlgo::most_recent : AmaxAlgo::max;
  op.rule = amax_algorithm || scale_algorithm ? UpdateRule::unfused : rule;
  op.margin = static_cast<int>(settings.margin);
  std::vector<PlaneData> next = run_update(session, history, length, before, dtype, op);
  std::vector<std::byte> next_scale = next[1].bytes;

  if (amax_algorithm) {
    // The user's amaxes stand alone in a history of one row; the scale is used, the rolled history is
    // discarded.
    const std::vector<F32Bits> amax = (*amax_algorithm)(history, length, slots);
    op.algo = AmaxAlgo::most_recent;
    next_scale = run_update(session, amax, 1, before, dtype, op)[1].bytes;
  }
  if (scale_algorithm) {
    std::vector<F32Bits> amax(history.begin(), history.begin() + slots);
    if (amax_algorithm) {
      amax = (*amax_algorithm)(history, length, slots);
    } else if (op.algo == AmaxAlgo::max) {
      // Amaxes have no sign, so their bits are ordered as they are, NaN above all (N4.5).
      for (size_t i = 0; i < history.size(); ++i)
        amax[i % amax.size()] = std::max(amax[i % amax.size()], history[i]);
    }
    const std::vector<F32Bits> chosen =
        (*scale_algorithm)(amax, before, dtype == Encoding::e4m3 ? 448 : 57344, settings);
    store(chosen, next_scale);
  }
  std::copy(next[0].bytes.begin(), next[0].bytes.end(), amax_history.bytes().begin());
  std::copy(next_scale.begin(), next_scale.end(), scale.bytes().begin());
}

void AmaxBuffers::add(const RecipeStatePtr& state, GroupPtr group) {
  if (!state->delayed() ||
      std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.state == state; }))
    return;
  entries_.push_back({state, std::move(group)});
}

size_t AmaxBuffers::registered(bool forward) const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                           [&](const Entry& e) { return e.state->forward() == forward; }));
}

bool AmaxBuffers::holds(const RecipeState& state) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& e) { return e.state.get() == &state; });
}

void AmaxBuffers::reduce_and_update(Session& session, bool forward, UpdateRule rule) {
  std::vector<ProcessGroup*> done;
  for (const Entry& first : entries_) {
    ProcessGroup* group = first.group.get();
    if (first.state->forward() != forward || !group ||
        std::find(done.begin(), done.end(), group) != done.end())
      continue;
    done.push_back(group);
    reduce(session, forward, *group);
  }
  for (const Entry& e : entries_)
    if (const DelayedStatePtr d = e.state->delayed(); d && e.state->forward() == forward)
      update_amax_and_scale(session, *d->amax_history, *d->scale, d->dtype, d->settings(), rule);
}

// One collective, over the current rows of all states of the group in the order in which they were added.
void AmaxBuffers::reduce(Session& session, bool forward, ProcessGroup& group) {
  std::vector<DelayedStatePtr> members;
  std::vector<F32Bits> rows;
  for (const Entry& e : entries_) {
    const DelayedStatePtr delayed = e.state->delayed();
    if (e.state->forward() != forward || e.group.get() != &group || !delayed ||
        !delayed->settings().reduce_amax)
      continue;
    members.push_back(delayed);
    const std::vector<F32Bits> row = f32_bits(*slice(delayed->amax_history, 0, 0, 1));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  if (members.empty() || group.size < 2) return;
  if (group.all_reduce_max) group.all_reduce_max(rows);
  session.collectives.push_back({"all_reduce_max", "amax_history", group.name});
  size_t at = 0;
  for (const DelayedStatePtr& m : members) {
    const size_t n = m->num_quantizers();
    store(std::span(rows).subspan(at, n), slice(m->amax_history, 0, 0, 1)->bytes());
    at += n;
  }
}

}  // namespace assay::training

// Records of delayed scaling: updates step by step, over the buffers of several states, calibration, and a
// history that changes its length.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "training/formats/float8.h"
#include "training/modules/module_state.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"

namespace assay {

namespace {

namespace tr = training;
using json::Value;
using std::string;
using std::string_view;

constexpr string_view kMeanOverRows = "callable: mean over rows", kTwiceTheAmax = "callable: two times amax";
constexpr F32Bits kInfinity = 0x7F800000, kLargest = 0x7F7FFFFF;

std::vector<F32Bits> bits_of(const tr::Array& a) {
  std::vector<F32Bits> out(static_cast<size_t>(a.count()));
  if (!out.empty()) std::memcpy(out.data(), a.bytes().data(), out.size() * sizeof(F32Bits));
  return out;
}
// `bits` fill `to`.
void write(std::span<const F32Bits> bits, tr::Array& to) {
  std::memcpy(to.bytes().data(), bits.data(), bits.size_bytes());
}

Value rows_shown(const tr::Array& history) {
  const std::vector<F32Bits> all = bits_of(history);
  const size_t slots = static_cast<size_t>(history.shape[1]);
  Value out = json::array();
  for (size_t row = 0; row < static_cast<size_t>(history.shape[0]); ++row)
    out.push(shown(std::span(all).subspan(row * slots, slots)));
  return out;
}

// A row of a record that has a value for each slot of a history.
std::vector<F32Bits> row_of(const Given& row, const tr::Array& history) {
  std::vector<F32Bits> out = row.all_bits();
  if (static_cast<int64_t>(out.size()) != history.shape[1])
    row.refuse(fmt::format("an amax for each of {} slots", history.shape[1]));
  return out;
}

// What a quantizer of this step would have recorded. Amaxes have no sign, so their bits are ordered as they
// are, NaN above all.
void record(const std::vector<F32Bits>& amaxes, tr::Array& history) {
  std::vector<F32Bits> all = bits_of(history);
  for (size_t i = 0; i < amaxes.size(); ++i) all[i] = std::max(all[i], amaxes[i]);
  write(all, history);
}

std::vector<F32Bits> mean_over_rows(std::span<const F32Bits> history, int64_t length, int64_t slots) {
  std::vector<F32Bits> out;
  for (int64_t s = 0; s < slots; ++s) {
    float sum = 0;
    for (int64_t row = 0; row < length; ++row)
      sum += std::bit_cast<float>(history[static_cast<size_t>(row * slots + s)]);
    out.push_back(std::bit_cast<F32Bits>(sum / static_cast<float>(length)));
  }
  return out;
}
std::vector<F32Bits> twice(std::span<const F32Bits> amax, std::span<const F32Bits>, int,
                           const tr::DelayedScaling&) {
  std::vector<F32Bits> out;
  for (const F32Bits a : amax) out.push_back(std::bit_cast<F32Bits>(2 * std::bit_cast<float>(a)));
  return out;
}
// The amax per slot that the algorithm takes from a history.
std::vector<F32Bits> amax_of(string_view algorithm, const std::vector<F32Bits>& history, int64_t length,
                             int64_t slots) {
  if (algorithm == kMeanOverRows) return mean_over_rows(history, length, slots);
  std::vector<F32Bits> out(history.begin(), history.begin() + slots);
  if (algorithm == "max")
    for (size_t i = 0; i < history.size(); ++i)
      out[i % out.size()] = std::max(out[i % out.size()], history[i]);
  return out;
}

// The scales that one division, rounded once, gives for these amaxes; the largest value stands for infinity.
std::vector<F32Bits> rounded_once(tr::Session& session, const std::vector<F32Bits>& amax,
                                  const tr::DelayedScalingRecipeState& state, int64_t margin) {
  tr::DelayedScaling settings = state.settings();
  settings.margin = margin;
  settings.amax_compute_algo = "most_recent";
  const tr::ArrayPtr history = tr::zeros({1, static_cast<int64_t>(amax.size())}, tr::DType::float32),
                     scale = tr::clone(state.scale);
  write(amax, *history);
  update_amax_and_scale(session, *history, *scale, state.dtype, settings, UpdateRule::api);
  return bits_of(*scale);
}

tr::DelayedStatePtr state_of(tr::Session& session, const tr::RecipePtr& recipe, const string& mode,
                             size_t slots) {
  return tr::RecipeState::create(session, recipe, mode, slots)->delayed();
}

constexpr int64_t kMostRows = 4096, kMostSlots = 256;

std::string_view direction_of(const Given& given) { return given.word("direction", {"forward", "backward"}); }

// One update with a user's algorithm for the scale.
Value update_by_callable(const Given& given, tr::Session& session) {
  given.word("scale_algorithm", {kTwiceTheAmax});
  const std::vector<Given> steps = given.items("amaxes", "an array of steps, each with an amax per slot");
  if (steps.empty()) given.at("amaxes", "").refuse("one step or more");
  const auto state =
      state_of(session,
               tr::make_recipe("DelayedScaling",
                               json::object({{"scaling_factor_compute_algo", kTwiceTheAmax},
                                             {"amax_history_len", given.number("length", 1, kMostRows)}})),
               "forward", steps.front().items().size());
  for (const Given& step : steps) {
    record(row_of(step, *state->amax_history), *state->amax_history);
    update_amax_and_scale(session, *state->amax_history, *state->scale, state->dtype, state->settings(),
                          UpdateRule::unfused);
  }
  return json::object(
      {{"scale", shown(bits_of(*state->scale))}, {"history", rows_shown(*state->amax_history)}});
}

Value update(const Given& given, tr::Session& session) {
  if (given.has("scale_algorithm")) return update_by_callable(given, session);
  const string algorithm(given.word("algorithm", {"max", "most_recent", kMeanOverRows}));
  const auto state =
      state_of(session,
               tr::make_recipe("DelayedScaling",
                               json::object({{"amax_compute_algo", algorithm},
                                             {"amax_history_len", given.number("length", 1, kMostRows)},
                                             {"margin", given.number("margin", -1000, 1000)},
                                             {"fp8_format", given.text("format")}})),
               string(direction_of(given)), static_cast<size_t>(given.number("columns", 1, kMostSlots)));
  write(std::vector<F32Bits>(state->num_quantizers(),
                             given.at("start_scale", "a binary32 in hexadecimal").bits()),
        *state->scale);
  Value steps = json::array();
  for (const Given& step : given.items("amaxes", "an array of steps, each with an amax per slot")) {
    record(row_of(step, *state->amax_history), *state->amax_history);
    const std::vector<F32Bits> amax = amax_of(algorithm, bits_of(*state->amax_history),
                                              state->amax_history->shape[0], state->amax_history->shape[1]);
    const std::vector<F32Bits> quotient = rounded_once(session, amax, *state, 0),
                               once = rounded_once(session, amax, *state, state->settings().margin);
    update_amax_and_scale(session, *state->amax_history, *state->scale, state->dtype, state->settings(),
                          UpdateRule::unfused);
    const std::vector<F32Bits> scale = bits_of(*state->scale);
    Value equal = json::array();
    for (size_t i = 0; i < scale.size(); ++i) {
      const bool kept = amax[i] == 0 || amax[i] >= kInfinity, clamped = quotient[i] == kLargest;
      equal.push(kept || clamped
                     ? Value()
                     : Value(scale[i] == once[i] &&
                             once[i] != kLargest));  // a quotient that the margin makes infinite is no scale
    }
    steps.push(json::object({{"scale", shown(scale)},
                             {"history", rows_shown(*state->amax_history)},
                             {"single_rounding_equal", std::move(equal)}}));
  }
  return json::object(
      {{"maximum", fp8_max(*state->recipe(), state->forward())}, {"steps", std::move(steps)}});
}

// "custom with delayed requests", or in words of the same kind a built-in recipe.
bool is_custom(const Given& kind) {
  static constexpr struct {
    string_view name;
    bool decides, custom;
  } kWords[] = {{"custom", true, true},    {"delayed", true, false}, {"DelayedScaling", true, false},
                {"built-in", true, false}, {"with", false, false},   {"requests", false, false},
                {"recipe", false, false},  {"scaling", false, false}};
  bool decided = false, custom = false;
  for (string_view rest = kind.text(); !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const auto& word = *row_called(kWords, rest.substr(0, end), kind.path());
    decided |= word.decides;
    custom |= word.custom;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!decided) kind.refuse("a custom state or that of a built-in recipe");
  return custom;
}

// A state of a recipe without delayed scaling, handed to the global buffers.
Value global_of_stateless(const Given& given, tr::Session& session) {
  const Given kind = given.at("state_kind", "a family of recipes");
  const auto state = tr::RecipeState::create(
      session, tr::make_recipe(recipe_called(kind.text(), kind.path())), "forward", 3);
  tr::AmaxBuffers buffers;
  buffers.add(state);
  return json::object({{"registered", buffers.registered(true) + buffers.registered(false)},
                       {"marked", buffers.holds(*state)}});
}

Value global(const Given& given, tr::Session& session) {
  if (!given.has("length")) return global_of_stateless(given, session);
  const int64_t length = given.number("length", 1, kMostRows);
  const bool custom = is_custom(given.at("state_kind", "a word"));
  tr::DelayedScalingRequest request;
  request.amax_history_len = static_cast<int>(length);
  tr::RecipePtr recipe;
  if (custom) {
    auto r = tr::custom_recipe("delayed_scaling_factory");
    r->qfactory = std::make_shared<const tr::QFactory>(
        tr::QFactory{"of a record", [request](const tr::RolePtr&) { return request; }});
    recipe = r;
  } else {
    recipe = tr::make_recipe("DelayedScaling", json::object({{"amax_history_len", length}}));
  }

  const string direction(direction_of(given));
  tr::AmaxBuffers buffers;
  std::vector<tr::DelayedStatePtr> mine, others;
  std::vector<tr::RecipeStatePtr> owners;  // a custom state owns the one within
  for (const Given& count : given.items("states", "an array of slot counts")) {
    for (const string mode : {"forward", "backward"}) {
      const size_t n = static_cast<size_t>(count.number(1, kMostSlots));
      owners.push_back(tr::RecipeState::create(session, recipe, mode, n, std::vector<tr::RolePtr>(n)));
      owners.back()->make_quantizers(session);
      buffers.add(owners.back());
      (mode == direction ? mine : others).push_back(owners.back()->delayed());
    }
  }
  Value steps = json::array();
  for (const Given& step : given.items("amaxes", "an array of steps, each with a row per state")) {
    const std::vector<Given> rows = step.items();
    if (rows.size() != mine.size()) step.refuse(fmt::format("a row for each of {} states", mine.size()));
    for (size_t i = 0; i < mine.size(); ++i)
      record(row_of(rows[i], *mine[i]->amax_history), *mine[i]->amax_history);
    buffers.reduce_and_update(session, direction == "forward", UpdateRule::unfused);
    Value states = json::array();
    for (const auto& s : mine)
      states.push(
          json::object({{"scale", shown(bits_of(*s->scale))}, {"history", rows_shown(*s->amax_history)}}));
    steps.push(std::move(states));
  }
  const bool untouched = std::all_of(others.begin(), others.end(), [](const tr::DelayedStatePtr& s) {
    const auto scale = bits_of(*s->scale), history = bits_of(*s->amax_history);
    return std::all_of(scale.begin(), scale.end(), [](F32Bits b) { return b == 0x3F800000; }) &&
           std::all_of(history.begin(), history.end(), [](F32Bits b) { return b == 0; });
  });
  return json::object({{"registered_per_direction", json::object({{"forward", buffers.registered(true)},
                                                                  {"backward", buffers.registered(false)}})},
                       {"steps", std::move(steps)},
                       {"other_direction_untouched", untouched}});
}

Value calibrate(const Given& given, tr::Session& session) {
  given.word("quantizer", {"delayed"});
  const std::vector<F32Bits> values = given.at("values", "an array of binary32 in hexadecimal").all_bits();
  const tr::DType dtype = given.at("dtype", "a dtype").dtype();
  const tr::ArrayPtr exact = tr::from_bytes({static_cast<int64_t>(values.size())}, tr::DType::float32,
                                            std::as_bytes(std::span(values)));
  const tr::ArrayPtr scale = tr::zeros({}, tr::DType::float32), amax = tr::zeros({1}, tr::DType::float32);
  write(std::vector<F32Bits>{0x3F800000}, *scale);
  write(std::vector<F32Bits>{given.at("amax_before", "a binary32 in hexadecimal").bits()}, *amax);
  tr::Float8Quantizer quantizer(scale, amax, Encoding::e4m3);
  quantizer.calibrate(session, cast(session, exact, dtype));
  return json::object({{"amax", hex(bits_of(*amax)[0])}, {"scale", hex(bits_of(*scale)[0])}});
}

Value resize(const Given& given, tr::Session& session) {
  const auto recipe_of = [&](string_view key) {
    return tr::make_recipe("DelayedScaling",
                           json::object({{"amax_history_len", given.number(key, 1, kMostRows)}}));
  };
  tr::ModuleState module(session, tr::Producer::linear, "linear");
  tr::Autocast autocast = tr::quantization_off();
  autocast.enabled = true;
  autocast.recipe = recipe_of("from");
  module.init_fp8_metadata(session, autocast);
  const tr::DelayedStatePtr state = module.state(tr::Mode::forward)->delayed();
  std::vector<F32Bits> history;
  const Given rows = given.at("history", "an array of rows, each with an amax per slot");
  for (const Given& row : rows.items())
    for (const F32Bits b : row_of(row, *state->amax_history)) history.push_back(b);
  if (static_cast<int64_t>(history.size()) != state->amax_history->count())
    rows.refuse(fmt::format("the {} rows that 'from' says", state->amax_history->shape[0]));
  write(history, *state->amax_history);
  constexpr F32Bits kFive = 0x40A00000;  // some scale that training has reached
  write(std::vector<F32Bits>(state->num_quantizers(), kFive), *state->scale);
  const tr::ArrayPtr before = state->amax_history;
  const auto quantizers = module.quantizers(tr::Mode::forward);

  autocast.recipe = recipe_of("to");
  module.init_fp8_metadata(session, autocast);
  const tr::DelayedStatePtr after = module.state(tr::Mode::forward)->delayed();
  const auto& now = module.quantizers(tr::Mode::forward);
  bool replaced = true, aliases = true;
  for (size_t i = 0; i < now.size(); ++i) {
    replaced = replaced && now[i] != quantizers[i];
    aliases = aliases && dynamic_cast<const tr::Float8Quantizer&>(*now[i]).amax->data() ==
                             after->amax_history->data() + i * sizeof(F32Bits);
  }
  return json::object(
      {{"history", rows_shown(*after->amax_history)},
       {"same_history_object", after->amax_history == before},
       {"scale", shown(bits_of(*after->scale))},
       {"quantizers_replaced", replaced},
       {"amax_aliases_row0", aliases},
       {"backward_rows", module.state(tr::Mode::backward)->delayed()->amax_history->shape[0]}});
}

}  // namespace

Value witness_delayed_scaling(string_view group, const Given& given, Subject& subject) {
  [[maybe_unused]] static const bool kRegistered =
      (tr::register_amax_algorithm(string(kMeanOverRows), mean_over_rows),
       tr::register_scale_algorithm(string(kTwiceTheAmax), twice), true);
  tr::Session session(subject);
  if (group == "update") return update(given, session);
  if (group == "global") return global(given, session);
  if (group == "calibrate") return calibrate(given, session);
  if (group == "resize") return resize(given, session);
  throw std::runtime_error("no group '" + string(group) + "' of delayed_scaling");
}

}  // namespace assay

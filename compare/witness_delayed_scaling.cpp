// Records of delayed scaling: updates step by step, over the buffers of several states, calibration, and a history that changes its length.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare/witness.h"
#include "training/delayed.h"
#include "training/factories.h"
#include "training/module_state.h"

namespace assay {

namespace {

namespace tr = training;
using json::Value;
using std::string;
using std::string_view;

constexpr string_view kMeanOverRows = "callable: mean over rows";
constexpr F32Bits kInfinity = 0x7F800000, kLargest = 0x7F7FFFFF;

F32Bits bits_of(const Value& v) { return static_cast<F32Bits>(std::strtoul(v.string()->c_str(), nullptr, 16)); }
std::vector<F32Bits> all_bits_of(const Value& list) {
  std::vector<F32Bits> out;
  for (const Value& v : *list.array()) out.push_back(bits_of(v));
  return out;
}
std::vector<F32Bits> bits_of(const tr::Array& a) {
  std::vector<F32Bits> out(static_cast<size_t>(a.count()));
  if (!out.empty()) std::memcpy(out.data(), a.bytes().data(), out.size() * sizeof(F32Bits));
  return out;
}
void write(std::span<const F32Bits> bits, tr::Array& to) { std::memcpy(to.bytes().data(), bits.data(), bits.size_bytes()); }

string hex(F32Bits bits) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", bits);
  return text;
}
Value shown(std::span<const F32Bits> bits) {
  Value out = json::array();
  for (const F32Bits b : bits) out.push(hex(b));
  return out;
}
Value rows_shown(const tr::Array& history) {
  const std::vector<F32Bits> all = bits_of(history);
  const size_t slots = static_cast<size_t>(history.shape[1]);
  Value out = json::array();
  for (size_t row = 0; row < static_cast<size_t>(history.shape[0]); ++row) out.push(shown(std::span(all).subspan(row * slots, slots)));
  return out;
}

// What a quantizer of this step would have recorded. Amaxes have no sign, so their bits are ordered as they are, NaN above all.
void record(const std::vector<F32Bits>& amaxes, tr::Array& history) {
  std::vector<F32Bits> all = bits_of(history);
  for (size_t i = 0; i < amaxes.size(); ++i) all[i] = std::max(all[i], amaxes[i]);
  write(all, history);
}

std::vector<F32Bits> mean_over_rows(std::span<const F32Bits> history, int64_t length, int64_t slots) {
  std::vector<F32Bits> out;
  for (int64_t s = 0; s < slots; ++s) {
    float sum = 0;
    for (int64_t row = 0; row < length; ++row) sum += std::bit_cast<float>(history[static_cast<size_t>(row * slots + s)]);
    out.push_back(std::bit_cast<F32Bits>(sum / static_cast<float>(length)));
  }
  return out;
}
// The amax per slot that the algorithm takes from a history.
std::vector<F32Bits> amax_of(string_view algorithm, const std::vector<F32Bits>& history, int64_t length, int64_t slots) {
  if (algorithm == kMeanOverRows) return mean_over_rows(history, length, slots);
  std::vector<F32Bits> out(history.begin(), history.begin() + slots);
  if (algorithm == "max")
    for (size_t i = 0; i < history.size(); ++i) out[i % out.size()] = std::max(out[i % out.size()], history[i]);
  return out;
}

// The scales that one division, rounded once, gives for these amaxes; the largest value stands for infinity.
std::vector<F32Bits> rounded_once(tr::Session& session, const std::vector<F32Bits>& amax, const tr::DelayedScalingRecipeState& state, int64_t margin) {
  tr::DelayedScaling settings = state.settings();
  settings.margin = margin;
  settings.amax_compute_algo = "most_recent";
  const tr::ArrayPtr history = tr::zeros({1, static_cast<int64_t>(amax.size())}, tr::DType::float32), scale = tr::clone(state.scale);
  write(amax, *history);
  update_amax_and_scale(session, *history, *scale, state.dtype, settings, UpdateRule::api);
  return bits_of(*scale);
}

tr::DelayedStatePtr state_of(tr::Session& session, const tr::RecipePtr& recipe, const string& mode, size_t slots) {
  return tr::RecipeState::create(session, recipe, mode, slots)->delayed();
}

Value update(const Value& given, tr::Session& session) {
  const string algorithm(given.text("algorithm"));
  const auto state = state_of(session,
                              tr::make_recipe("DelayedScaling", json::object({{"amax_compute_algo", algorithm},
                                                                              {"amax_history_len", *given.find("length")},
                                                                              {"margin", *given.find("margin")},
                                                                              {"fp8_format", given.text("format")}})),
                              string(given.text("direction")), static_cast<size_t>(*given.find("columns")->to_int()));
  write(std::vector<F32Bits>(state->num_quantizers(), bits_of(*given.find("start_scale"))), *state->scale);
  Value steps = json::array();
  for (const Value& step : *given.find("amaxes")->array()) {
    record(all_bits_of(step), *state->amax_history);
    const std::vector<F32Bits> amax = amax_of(algorithm, bits_of(*state->amax_history), state->amax_history->shape[0], state->amax_history->shape[1]);
    const std::vector<F32Bits> quotient = rounded_once(session, amax, *state, 0), once = rounded_once(session, amax, *state, state->settings().margin);
    update_amax_and_scale(session, *state->amax_history, *state->scale, state->dtype, state->settings(), UpdateRule::unfused);
    const std::vector<F32Bits> scale = bits_of(*state->scale);
    Value equal = json::array();
    for (size_t i = 0; i < scale.size(); ++i) {
      const bool kept = amax[i] == 0 || amax[i] >= kInfinity, clamped = quotient[i] == kLargest;
      equal.push(kept || clamped ? Value() : Value(scale[i] == once[i] && once[i] != kLargest));   // a quotient that the margin makes infinite is no scale
    }
    steps.push(json::object({{"scale", shown(scale)}, {"history", rows_shown(*state->amax_history)}, {"single_rounding_equal", std::move(equal)}}));
  }
  return json::object({{"maximum", fp8_max(*state->recipe(), state->forward())}, {"steps", std::move(steps)}});
}

Value global(const Value& given, tr::Session& session) {
  const int64_t length = *given.find("length")->to_int();
  const bool custom = given.text("state_kind").find("custom") != string_view::npos;
  tr::DelayedScalingRequest request;
  request.amax_history_len = static_cast<int>(length);
  tr::RecipePtr recipe;
  if (custom) {
    auto r = tr::custom_recipe("delayed_scaling_factory");
    r->qfactory = std::make_shared<const tr::QFactory>(tr::QFactory{"of a record", [request](const tr::RolePtr&) { return request; }});
    recipe = r;
  } else {
    recipe = tr::make_recipe("DelayedScaling", json::object({{"amax_history_len", length}}));
  }

  const string direction(given.text("direction"));
  tr::AmaxBuffers buffers;
  std::vector<tr::DelayedStatePtr> mine, others;
  std::vector<tr::RecipeStatePtr> owners;   // a custom state owns the one within
  for (const Value& count : *given.find("states")->array()) {
    for (const string mode : {"forward", "backward"}) {
      const size_t n = static_cast<size_t>(*count.to_int());
      owners.push_back(tr::RecipeState::create(session, recipe, mode, n, std::vector<tr::RolePtr>(n)));
      owners.back()->make_quantizers(session);
      buffers.add(owners.back());
      (mode == direction ? mine : others).push_back(owners.back()->delayed());
    }
  }
  Value steps = json::array();
  for (const Value& step : *given.find("amaxes")->array()) {
    for (size_t i = 0; i < mine.size(); ++i) record(all_bits_of((*step.array())[i]), *mine[i]->amax_history);
    buffers.reduce_and_update(session, direction == "forward", UpdateRule::unfused);
    Value states = json::array();
    for (const auto& s : mine) states.push(json::object({{"scale", shown(bits_of(*s->scale))}, {"history", rows_shown(*s->amax_history)}}));
    steps.push(std::move(states));
  }
  const bool untouched = std::all_of(others.begin(), others.end(), [](const tr::DelayedStatePtr& s) {
    const auto scale = bits_of(*s->scale), history = bits_of(*s->amax_history);
    return std::all_of(scale.begin(), scale.end(), [](F32Bits b) { return b == 0x3F800000; }) && std::all_of(history.begin(), history.end(), [](F32Bits b) { return b == 0; });
  });
  return json::object({{"registered_per_direction", json::object({{"forward", buffers.registered(true)}, {"backward", buffers.registered(false)}})},
                       {"steps", std::move(steps)},
                       {"other_direction_untouched", untouched}});
}

Value calibrate(const Value& given, tr::Session& session) {
  const std::vector<F32Bits> values = all_bits_of(*given.find("values"));
  const tr::DType dtype = tr::dtype_named(given.text("dtype")).value();
  const tr::ArrayPtr exact = tr::from_bytes({static_cast<int64_t>(values.size())}, tr::DType::float32, std::as_bytes(std::span(values)));
  const tr::ArrayPtr scale = tr::zeros({}, tr::DType::float32), amax = tr::zeros({1}, tr::DType::float32);
  write(std::vector<F32Bits>{0x3F800000}, *scale);
  write(std::vector<F32Bits>{bits_of(*given.find("amax_before"))}, *amax);
  tr::Float8Quantizer quantizer(scale, amax, Encoding::e4m3);
  quantizer.calibrate(session, cast(session, exact, dtype));
  return json::object({{"amax", hex(bits_of(*amax)[0])}, {"scale", hex(bits_of(*scale)[0])}});
}

Value resize(const Value& given, tr::Session& session) {
  const auto recipe_of = [&](string_view key) { return tr::make_recipe("DelayedScaling", json::object({{"amax_history_len", *given.find(key)}})); };
  tr::ModuleState module(session, tr::Producer::linear, "linear");
  tr::Autocast autocast = tr::quantization_off();
  autocast.enabled = true;
  autocast.recipe = recipe_of("from");
  module.init_fp8_metadata(session, autocast);
  const tr::DelayedStatePtr state = module.state(tr::Mode::forward)->delayed();
  std::vector<F32Bits> history;
  for (const Value& row : *given.find("history")->array())
    for (const Value& v : *row.array()) history.push_back(bits_of(v));
  write(history, *state->amax_history);
  constexpr F32Bits kFive = 0x40A00000;   // some scale that training has reached
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
    aliases = aliases && dynamic_cast<const tr::Float8Quantizer&>(*now[i]).amax->data() == after->amax_history->data() + i * sizeof(F32Bits);
  }
  return json::object({{"history", rows_shown(*after->amax_history)},
                       {"same_history_object", after->amax_history == before},
                       {"scale", shown(bits_of(*after->scale))},
                       {"quantizers_replaced", replaced},
                       {"amax_aliases_row0", aliases},
                       {"backward_rows", module.state(tr::Mode::backward)->delayed()->amax_history->shape[0]}});
}

}  // namespace

Value witness_delayed_scaling(string_view group, const Value& given, Subject& subject) {
  [[maybe_unused]] static const bool kRegistered = (tr::register_amax_algorithm(string(kMeanOverRows), mean_over_rows), true);
  tr::Session session(subject);
  if (group == "update") return update(given, session);
  if (group == "global") return global(given, session);
  if (group == "calibrate") return calibrate(given, session);
  if (group == "resize") return resize(given, session);
  throw std::runtime_error("no group '" + string(group) + "' of delayed_scaling");
}

}  // namespace assay

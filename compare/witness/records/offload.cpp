// Records of offload to the CPU and of activation recompute: the calls of a record are made in its order, and
// what moved, what came back and what the state held is the `then`.
#include <algorithm>
#include <stdexcept>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/recipes/recipe_state.h"
#include "training/state/offload.h"
#include "training/state/recompute.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;

// {"ok": ..} or the error with the words that records look for. Python's KeyError and IndexError are the
// library's own exceptions here.
template <class Act> json::Value told(const Session& session, Act act, bool with_warnings) {
  constexpr std::pair<std::string_view, std::string_view> kTags[] = {{"non-contiguous", "non_contiguous"},
                                                                     {"deprecated", "deprecated"},
                                                                     {"not recommended", "not_recommended"}};
  json::Value out;
  try {
    out = outcome(act, [](const SemanticError& e) {
      return failed(e, {"Invalid state", "what to offload"});
    });
  } catch (const std::out_of_range&) {
    out = json::object({{"error", "KeyError"}});
  } catch (const std::underflow_error&) {
    out = json::object({{"error", "IndexError"}});
  }
  if (!with_warnings) return out;
  json::Value warnings = json::array();
  for (const auto& [words, tag] : kTags)
    for (const Warning& w : session.warnings)
      if (w.text.find(words) != string::npos) {
        warnings.push(w.category + ":" + string(tag));
        break;
      }
  out.set("warnings", std::move(warnings));
  return out;
}

int64_t elements(const OffloadedLayer& layer) {
  int64_t out = 0;
  for (const ArrayPtr& a : layer.waiting()) out += a->count();
  return out;
}

json::Value entries_of(const PushedParts& parts) {
  return list_of(parts.parts, [](const auto& part) {
    if (std::holds_alternative<std::monostate>(part)) return json::Value();
    return json::Value(std::holds_alternative<size_t>(part) ? "offloaded" : "kept");
  });
}

json::Value offload(const Given& given, Session& session) {
  const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind of tensor"));
  const Usages present = usages_in(given);
  q->set_usage(present.rowwise, present.columnwise);
  const Dims shape = given.at("shape", "a shape").dims();
  const StoragePtr original = q->quantize(session, drawn(shape, DType::bfloat16, 41));
  const bool moved = given.flag("moved");
  std::vector<ArrayPtr> before;
  for (const auto& [name, a] : named_buffers(*original)) before.push_back(clone(a));
  return told(
      session,
      [&] {
        OffloadedLayer layer;
        const Pushed pushed = layer.push(session, original);
        const PushedParts* parts = std::get_if<PushedParts>(&pushed);
        json::Value out = json::object({{"push_returns", parts ? "tuple" : original->class_name()},
                                        {"tensors_in_group", layer.waiting().size()},
                                        {"elements_in_group", elements(layer)}});
        bool unchanged = true;
        size_t i = 0;
        for (const auto& [name, a] : named_buffers(*original))
          unchanged = unchanged && i < before.size() && equal_bytes(*a, *before[i++]);
        out.set("original_unchanged", unchanged && i == before.size());
        if (parts) out.set("entries", entries_of(*parts));
        if (moved) {
          layer.start_offload();
          layer.release();
          out.set("gpu_group_after_release", layer.waiting().size());
          layer.start_reload();
        }
        const StoragePtr back = std::get<StoragePtr>(layer.pop(pushed));
        json::Value bytes = json::object();
        std::vector<string> fresh;
        const auto theirs = named_buffers(*original);
        i = 0;
        for (const auto& [name, a] : named_buffers(*back)) {
          bytes.set(name, i < before.size() && theirs.at(i).first == name && equal_bytes(*a, *before[i]));
          if (!share_memory(*a, *theirs.at(i).second)) fresh.push_back(name);
          ++i;
        }
        std::sort(fresh.begin(), fresh.end());
        out.set("class", back->class_name());
        out.set("bytes", std::move(bytes));
        out.set("same_object", back == original);
        out.set("new_memory", shown(fresh));
        layer.release_all();
        out.set("state", layer.state());
        return out;
      },
      true);
}

json::Value offload_plain(const Given& given, Session& session) {
  const std::string_view what = given.word(
      "tensor", {"small", "at threshold", "transposed view", "row slice", "strided slice", "parameter"});
  const ArrayPtr base = drawn({1024, 1024}, DType::bfloat16, 42);
  const ArrayPtr x = what == "small"             ? drawn({256, 512}, DType::bfloat16, 42)
                     : what == "at threshold"    ? drawn({512, 512}, DType::bfloat16, 42)
                     : what == "transposed view" ? transpose(base, 0, 1)
                     : what == "row slice"       ? slice(base, 0, 0, 512)
                     : what == "strided slice"   ? slice(base, 1, 0, 512)
                                                 : base;
  const bool parameter = what == "parameter";
  const std::string_view own = parameter ? "Parameter" : "Tensor";
  return told(
      session,
      [&] {
        OffloadedLayer layer;
        const Pushed pushed = layer.push(session, x, parameter);
        const bool numbered = std::holds_alternative<size_t>(pushed);
        json::Value out = json::object({{"push_returns", numbered ? "int" : own},
                                        {"tensors_in_group", layer.waiting().size()},
                                        {"elements_in_group", elements(layer)}});
        layer.start_offload();
        layer.release();
        out.set("gpu_group_after_release", layer.waiting().size());
        layer.start_reload();
        const ArrayPtr back = std::get<ArrayPtr>(layer.pop(pushed));
        out.set("class", own);
        out.set("equal", equal_bytes(*back, *x));
        out.set("strides", shown(back->strides));
        layer.release_all();
        out.set("state", layer.state());
        return out;
      },
      true);
}

json::Value offload_states(const Given& given, Session& session) {
  return told(
      session,
      [&] {
        OffloadedLayer layer;
        const ArrayPtr x = zeros({512, 512}, DType::bfloat16);
        Pushed pushed = layer.push(session, x);
        for (const Given& step : given.items("sequence", "an array of calls")) {
          static constexpr std::pair<std::string_view, int> kCalls[] = {
              {"push", 0},    {"pop", 1},          {"start_offload", 2},
              {"release", 3}, {"start_reload", 4}, {"release_all", 5}};
          switch (step.row(kCalls).second) {
            case 0: pushed = layer.push(session, x); break;
            case 1: layer.pop(pushed); break;
            case 2: layer.start_offload(); break;
            case 3: layer.release(); break;
            case 4: layer.start_reload(); break;
            default: layer.release_all();
          }
        }
        return json::Value(layer.state());
      },
      false);
}

json::Value offload_context(const Given& given, Session& session) {
  OffloadContext c;
  c.enabled = given.flag("enabled", false);
  c.num_layers = given.has("num_layers") ? given.number("num_layers") : 1;
  // A record that speaks of something else has layers enough.
  c.model_layers = given.has("model_layers") ? given.number("model_layers") : c.num_layers + 2;
  c.offload_activations = given.flag("offload_activations", true);
  c.offload_weights = given.flag("offload_weights", false);
  c.manual_synchronization = given.flag("manual_synchronization", false);
  c.stream = given.flag("offload_stream", false);
  return told(
      session, [&] { return json::Value(c.checked(session)); }, true);
}

json::Value offload_schedule(const Given& given, Session& session) {
  return told(
      session,
      [&] {
        const OffloadSchedule s =
            training::offload_schedule(given.number("model_layers", 1), given.number("num_layers", 0));
        const auto by_layer = [](const std::map<int64_t, std::vector<int64_t>>& all) {
          json::Value out = json::object();
          for (const auto& [at, layers] : all) out.set(std::to_string(at), shown(layers));
          return out;
        };
        return json::object({{"offloaded", shown(s.offloaded)},
                             {"released_at_forward_of", by_layer(s.released_at_forward_of)},
                             {"reload_starts_at_backward_of", by_layer(s.reload_starts_at_backward_of)}});
      },
      false);
}

// All elements of the first `count` of a binary32 array, each value once.
json::Value values_of(const ArrayPtr& a, int64_t count) {
  json::Value out = json::array();
  for (const float v : std::span(reinterpret_cast<const float*>(a->data()), static_cast<size_t>(count))) {
    const json::Value one = static_cast<double>(v);
    if (std::find(out.array()->begin(), out.array()->end(), one) == out.array()->end()) out.push(one);
  }
  return out;
}

void fill(const ArrayPtr& a, float value) {
  const std::vector<float> all(static_cast<size_t>(a->count()), value);
  std::ranges::copy(std::as_bytes(std::span(all)), a->bytes().begin());
}

json::Value stash(const Given& given, Session& session) {
  return told(
      session,
      [&] {
        std::vector<DelayedStatePtr> modules;
        for (int64_t i = 0; i < given.number("modules", 1, 16); ++i)
          modules.push_back(
              RecipeState::create(session,
                                  make_recipe("DelayedScaling", json::object({{"amax_history_len", 4}})),
                                  Mode::forward, 3)
                  ->delayed());
        RecomputeStash s;
        json::Value after = json::array();
        for (const Given& step : given.items("sequence", "an array of calls")) {
          const string& call = step.text();
          json::Value shown_modules = json::array();
          for (const DelayedStatePtr& m : modules) {
            if (call == "copy") s.copy(m);
            else if (call == "get") s.get(m);
            else if (call == "restore") s.restore(m);
            else if (call.starts_with("set") && call.size() == 4 && call[3] >= '0' && call[3] <= '9') {
              fill(m->scale, static_cast<float>(call[3] - '0'));
              fill(m->amax_history, static_cast<float>(10 * (call[3] - '0')));
            } else step.refuse("copy, get, restore, or set with a digit");
          }
          for (const DelayedStatePtr& m : modules)
            shown_modules.push(
                json::object({{"scale", values_of(m->scale, m->scale->count())},
                              {"history_row0", values_of(m->amax_history, m->scale->count())}}));
          after.push(std::move(shown_modules));
        }
        json::Value positions = json::array(), left = json::array();
        for (const DelayedStatePtr& m : modules) {
          const auto at = s.position(m);
          positions.push(at ? json::Value(*at) : json::Value());
        }
        for (size_t i = 0; i < s.modules(); ++i) left.push(s.left(i));
        return json::object({{"values_after_each", std::move(after)},
                             {"buffer_positions", std::move(positions)},
                             {"left_in_buffers", std::move(left)}});
      },
      false);
}

json::Value stash_stateless(const Given& given, Session& session) {
  expect_recipe_class(given.text("recipe"), "given.recipe");
  return told(
      session,
      [&] {
        const DelayedStatePtr none =
            RecipeState::create(session, make_recipe(given.text("recipe")), Mode::forward, 3)->delayed();
        RecomputeStash s;
        s.copy(none), s.get(none), s.restore(none);
        return json::Value(s.modules() == 0);
      },
      false);
}

json::Value phase(const Given& given, Session& session) {
  return told(
      session,
      [&]() -> json::Value {
        RecomputePhase p;
        if (given.has("case")) {
          given.word("case", {"inner region closed inside an outer one"});
          p.enter(true, false, false);
          p.enter(true, false, false);
          p.leave();
          return p.enabled(true);
        }
        const bool recompute = given.flag("activation_recompute"), second = given.flag("recompute_phase");
        if (recompute && second) {  // the first forward, of a first module
          p.enter(true, false, true);
          p.leave();
        }
        const bool first = p.enter(recompute, second, given.flag("first_flag"));
        json::Value out = json::object({{"enabled", p.enabled(given.flag("fp8"))},
                                        {"phase", p.in_recompute()},
                                        {"first_flag_inside", first},
                                        {"queue", list_of(p.queue(), [](bool b) { return b; })}});
        p.leave();
        out.set("after", json::array({p.in_region(), p.in_recompute()}));
        return out;
      },
      false);
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given, Session& session);
};
constexpr Group kGroups[] = {
    {"offload", offload},
    {"offload_plain", offload_plain},
    {"offload_states", offload_states},
    {"offload_context", offload_context},
    {"offload_schedule", offload_schedule},
    {"stash", stash},
    {"stash_stateless", stash_stateless},
    {"phase", phase},
};

}  // namespace

json::Value witness_offload(std::string_view group, const Given& given, Subject& subject) {
  if (is_checkpoint_group(group)) return witness_checkpoints(group, given, subject);
  Session session = session_of(given, subject);
  return row_called(kGroups, group, "group")->then(given, session);
}

}  // namespace assay

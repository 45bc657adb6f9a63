// Records of FusedAdam and of quantized parameters that are made from masters: construction, one or more
// steps, states, checkpoints, and the helpers of tensor/utils.py. The recording process chose the values of
// parameters, gradients and masters; here they are seeded, with 16 as the first element of a parameter.
#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <span>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/ranks/master_weights.h"
#include "training/state/fused_adam.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;

constexpr int64_t kSide = 128, kPlainSide = 32;
constexpr F32Bits kEighth = 0x3E000000;  // the learning rate of every recorded step

// ---- what is given ---------------------------------------------------------------------

// Normal data with 16 in front, so that no small change moves the largest magnitude across a power of two.
ArrayPtr seeded(int64_t side, DType dtype, uint64_t seed) {
  const ArrayPtr x = drawn({side, side}, dtype, seed);
  const F32Bits sixteen = 0x41800000;
  const auto wide = std::as_bytes(std::span(&sixteen, 1));
  if (dtype == DType::float32) std::ranges::copy(wide, x->bytes().begin());
  else if (dtype == DType::bfloat16) std::ranges::copy(wide.subspan(2), x->bytes().begin());
  return x;
}

DType plain_dtype(const Given& kind) {
  constexpr std::string_view kPlain = "plain_";
  const auto dtype = dtype_named(std::string_view(kind.text()).substr(kPlain.size()));
  if (!dtype) kind.refuse("plain_<dtype>");
  return *dtype;
}
bool is_plain(const Given& kind) { return kind.text().starts_with("plain_"); }

TrainedPtr parameter(Session& session, const Given& kind, uint64_t seed) {
  const auto out = std::make_shared<Trained>();
  if (is_plain(kind)) out->value = seeded(kPlainSide, plain_dtype(kind), seed);
  else out->value = quantizer_of_kind(kind)->quantize(session, seeded(kSide, DType::bfloat16, seed));
  return out;
}

// A dtype by its name in the framework: constructors refuse those that they do not take by themselves.
string dtype_word(const Given& value) {
  static constexpr std::string_view kDtypes[] = {"float32",       "float16",     "bfloat16", "float64",
                                                 "float8_e4m3fn", "float8_e5m2", "uint8",    "int8",
                                                 "int16",         "int32",       "int64"};
  const string& word = value.text();
  if (std::ranges::find(kDtypes, word) == std::end(kDtypes)) value.refuse("a dtype of the framework");
  return word;
}

AdamOptions options_in(const Given& given) {
  AdamOptions o;
  o.lr = kEighth;
  for (const auto& [name, value] : given.members()) {
    if (name == "master_weights") o.master_weights = value.flag();
    else if (name == "capturable") o.capturable = value.flag();
    else if (name == "amsgrad") o.amsgrad = value.flag();
    else if (name == "adam_w_mode") o.adam_w_mode = value.flag();
    else if (name == "bias_correction") o.bias_correction = value.flag();
    else if (name == "store_param_remainders") o.store_param_remainders = value.flag();
    else if (name == "set_grad_none") o.set_grad_none = value.flag();
    else if (name == "master_weight_dtype") o.master_weight_dtype = dtype_word(value);
    else if (name == "exp_avg_dtype") o.exp_avg_dtype = dtype_word(value);
    else if (name == "exp_avg_sq_dtype") o.exp_avg_sq_dtype = dtype_word(value);
    else if (name == "weight_decay") {
      const auto decay = value.value().to_double();
      if (!decay) value.refuse("a number");
      o.weight_decay = std::bit_cast<F32Bits>(static_cast<float>(*decay));
    } else value.refuse("an option of FusedAdam that is known here");
  }
  return o;
}

json::Value failed_with_words(const SemanticError& e) {
  return failed(e, {"exp_avg.", "exp_avg_sq.", "AMSGrad", "master weights", "Capturable", "capturable",
                    "master_weights", "mix", "sparse"});
}

// ---- construction ----------------------------------------------------------------------

json::Value construct(const Given& given, Session& session) {
  const bool whole = given.has("capturable");
  try {
    const FusedAdam adam(session, {}, options_in(given));
    if (whole) return json::object({{"ok", json::Value()}});
    json::Value warnings = json::array();
    for (const Warning& w : session.warnings)
      warnings.push(w.category + (w.text.find("deprecated") != string::npos ? ":deprecated" : ""));
    return json::object({{"ok", adam.stores_remainders()}, {"warnings", std::move(warnings)}});
  } catch (const SemanticError& e) {
    return failed(e, {"AMSGrad", "exp_avg.", "exp_avg_sq.", "master weights", "Capturable"});
  }
}

// ---- a step ----------------------------------------------------------------------------

// Every quantization that reaches a kernel: of a hybrid its children's, of Identity none.
void note_quantize(const training::Quantizer& q, json::Value& calls) {
  if (const auto* h = dynamic_cast<const HybridQuantizer*>(&q)) {
    note_quantize(*h->rowwise_quantizer, calls);
    note_quantize(*h->columnwise_quantizer, calls);
  } else if (!dynamic_cast<const IdentityQuantizer*>(&q)) {
    calls.push(json::array({"quantize", q.class_name(), q.rowwise_usage, q.columnwise_usage}));
  }
}

json::Value launch_shown(const AdamLaunch& l, const AdamOptions& o) {
  json::Value out =
      json::array({l.kernel, static_cast<int64_t>(l.lists.size()), static_cast<int64_t>(l.tensors),
                   list_of(l.lists, [](DType t) { return name_of(t); }),
                   static_cast<double>(std::bit_cast<float>(o.lr)), l.step, o.adam_w_mode ? 1 : 0,
                   o.bias_correction ? 1 : 0, static_cast<double>(std::bit_cast<float>(o.weight_decay))});
  constexpr int kTexE4m3 = 7;  // the number of E4M3 among the original's dtypes
  if (l.fp8) out.push(kTexE4m3);
  return out;
}

using Buffers = std::map<string, ArrayPtr>;
Buffers copies(const Trained& p) {
  Buffers out;
  if (Storage* s = p.quantized())
    for (const auto& [name, a] : named_buffers(*s)) out[name] = clone(a);
  else out["self"] = clone(std::get<ArrayPtr>(p.value));
  return out;
}

json::Value changed(const Buffers& before, const Buffers& after) {
  std::vector<string> names;
  for (const auto& [name, a] : after)
    if (const auto at = before.find(name); at != before.end() && !equal_bytes(*at->second, *a))
      names.push_back(name);
  return shown(names);
}

// Every buffer beside a fresh quantization of the master, by the names of the class.
json::Value written_back(Session& session, const Trained& p, const AdamStates& states) {
  Storage* s = p.quantized();
  if (!s || !states.master) return {};
  if (states.master->dtype() != "float32") return "scaled";
  const QuantizerPtr q = s->quantizer->copy();
  const StoragePtr fresh = q->quantize(session, states.master->plain);
  Buffers want;
  for (const auto& [name, a] : named_buffers(*fresh)) want[name] = a;
  json::Value out = json::object({});
  for (const auto& [name, a] : named_buffers(*s))
    out.set(name, want.contains(name) && equal_bytes(*a, *want[name]));
  return out;
}

json::Value states_shown(const AdamStates& s) {
  json::Value out = json::object({{"exp_avg", s.exp_avg.dtype()}, {"exp_avg_sq", s.exp_avg_sq.dtype()}});
  if (s.master) out.set("master_param", s.master->dtype());
  return out;
}

json::Value step(const Given& given, Session& session) {
  const AdamOptions options = options_in(given.at("options", "the options of FusedAdam"));
  const int64_t steps = given.has("steps") ? given.number("steps", 1, 100) : 1;
  const std::vector<Given> kinds = given.items("params", "an array of kinds"),
                           grads = given.items("grads", "an array of dtypes or null");
  if (kinds.size() != grads.size()) given.refuse("a gradient, or null, for every parameter");
  return outcome(
      [&] {
        std::vector<TrainedPtr> params;
        std::vector<Buffers> before;
        json::Value calls = json::array(), quantize_calls = json::array();
        for (size_t i = 0; i < kinds.size(); ++i) {
          params.push_back(parameter(session, kinds[i], 41 + i));
          if (!grads[i].is_null())
            params[i]->grad = drawn({params[i]->shape()[0], params[i]->shape()[1]}, grads[i].dtype(), 61 + i);
          before.push_back(copies(*params[i]));
        }
        FusedAdam adam(session, {{params, 0}}, options,
                       {[&](const AdamLaunch& l) { calls.push(launch_shown(l, options)); },
                        [&](const training::Quantizer& q) { note_quantize(q, quantize_calls); }});
        for (int64_t n = 0; n < steps; ++n) adam.step();
        json::Value states = json::array(), updated = json::array(), back = json::array(),
                    classes = json::array();
        for (size_t i = 0; i < params.size(); ++i) {
          const AdamStates& s = *adam.states(params[i]);
          states.push(states_shown(s));
          updated.push(changed(before[i], copies(*params[i])));
          back.push(written_back(session, *params[i], s));
          classes.push(true);  // the object is the parameter's own, so is its class
        }
        return json::object({{"calls", std::move(calls)},
                             {"quantize_calls", std::move(quantize_calls)},
                             {"states", std::move(states)},
                             {"updated", std::move(updated)},
                             {"writeback_equals_quantized_master", std::move(back)},
                             {"object_kept", true},
                             {"class_kept", std::move(classes)},
                             {"step", adam.groups()[0].step}});
      },
      [](const SemanticError& e) {
        return e.error_class == ErrorClass::key_error ? failed(e, {"mix"}) : failed_with_words(e);
      });
}

json::Value state_init(const Given& given, Session& session) {
  AdamOptions options;
  options.master_weights = true;
  options.master_weight_dtype = dtype_word(given.at("master_weight_dtype", "a dtype"));
  return outcome([&] {
    const TrainedPtr p = parameter(session, given.at("param", "a kind of parameter"), 41);
    FusedAdam adam(session, {{{p}, 0}}, options);
    adam.initialize_state(p);
    const AdamStates& s = *adam.states(p);
    const ArrayPtr values = p->quantized() ? p->quantized()->dequantize(session, DType::float32)
                                           : cast(session, std::get<ArrayPtr>(p->value), DType::float32);
    const Array& master = *s.master->plain;
    const auto is_zero = [](const AdamState& m) {
      return equal_bytes(*m.plain, *zeros(m.plain->shape, m.plain->dtype));
    };
    const bool aliases =
        p->quantized() ? std::ranges::any_of(named_buffers(*p->quantized()),
                                             [&](const auto& b) { return share_memory(*b.second, master); })
                       : share_memory(*std::get<ArrayPtr>(p->value), master);
    json::Value scale;
    if (s.master->scale) {
      F32Bits bits = 0;
      std::ranges::copy(s.master->scale->bytes(), std::as_writable_bytes(std::span(&bits, 1)).begin());
      scale = static_cast<double>(std::bit_cast<float>(bits));
    }
    return json::object({{"dtype", s.master->dtype()},
                         {"shape", shown(master.shape)},
                         {"equals_parameter", equal_bytes(master, *values)},
                         {"scale", std::move(scale)},
                         {"moments_zero", is_zero(s.exp_avg) && is_zero(s.exp_avg_sq)},
                         {"aliases_parameter", aliases}});
  });
}

json::Value state_dict(const Given& given, Session& session) {
  const AdamOptions options = options_in(given.at("options", "the options of FusedAdam"));
  return outcome(
      [&] {
        const TrainedPtr p = parameter(session, given.at("param", "a kind of parameter"), 41);
        p->grad = drawn({p->shape()[0], p->shape()[1]}, p->quantized() ? DType::bfloat16 : p->nominal(), 61);
        FusedAdam adam(session, {{{p}, 0}}, options);
        adam.step();
        const FusedAdam::Saved saved = adam.state_dict();
        FusedAdam other(session, {{{p}, 0}}, options);
        other.load_state_dict(saved);
        const AdamStates& s = *other.states(p);
        json::Value written = json::object({}), after = json::object({}), back = json::object({});
        const auto add = [&](const char* name, const AdamState& state) {
          const ArrayPtr& stored = saved.states[0].at(name);
          written.set(name, name_of(stored->dtype));
          after.set(name, state.dtype());
          back.set(name, equal_bytes(*stored, *other.unscaled(state)));
        };
        add("exp_avg", s.exp_avg);
        add("exp_avg_sq", s.exp_avg_sq);
        if (s.master) add("master_param", *s.master);
        return json::object({{"written", std::move(written)},
                             {"after_load", std::move(after)},
                             {"values_back", std::move(back)},
                             {"step", other.groups()[0].step}});
      },
      failed_with_words);
}

// ---- masters ---------------------------------------------------------------------------

struct Weight {
  StoragePtr storage;
  Usages present;
  string kind;
  ArrayPtr whole;  // its master, all of it, as the matrix
  Buffers before;
};

// Whether the recording process could compare: its stand-ins cast neither blocks nor columns of rows.
bool is_compared(const string& kind) {
  if (kind.find("rwdq") != string::npos) return false;
  for (const char* blocks : {"MX", "BLK", "FP4"})
    if (kind.find(blocks) != string::npos) return false;
  return true;
}

json::Value beside_whole(Session& session, const Weight& w) {
  const QuantizerPtr q = w.storage->quantizer->copy();
  q->set_usage(w.present.rowwise, w.present.columnwise);
  const StoragePtr fresh = q->quantize(session, cast(session, w.whole, w.storage->dtype));
  Buffers want, got;
  for (const auto& [name, a] : named_buffers(*fresh)) want[name] = a;
  for (const auto& [name, a] : named_buffers(*w.storage)) got[name] = a;
  std::vector<string> lone;
  for (const auto& [name, a] : want)
    if (!got.contains(name)) lone.push_back(name);
  for (const auto& [name, a] : got)
    if (!want.contains(name)) lone.push_back(name);
  if (!lone.empty()) return json::object({{"presence_differs", shown(lone)}});
  json::Value out = json::object({});
  for (const auto& [name, a] : named_buffers(*w.storage)) out.set(name, equal_bytes(*a, *want[name]));
  return out;
}

json::Value master_error(const std::optional<SemanticError>& e) {
  if (!e) return {};
  return json::array(
      {name_of(e->error_class), mentioned(e->what(), {"start_offset", "exceeds", "rowwise", "columnwise",
                                                      "partial", "not supported", "dtype", "2D"})});
}

json::Value master(const Given& given, Session& session) {
  const std::vector<Given> kinds = given.items("weights", "an array of [kind] or [kind, presence]"),
                           lengths = given.items("master_numel", "an array of lengths"),
                           offsets = given.items("offsets", "an array of offsets");
  if (kinds.size() != lengths.size() || kinds.size() != offsets.size())
    given.refuse("a length and an offset for every weight");
  std::vector<Weight> weights;
  std::vector<MasterWeight> batch;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::vector<Given> words = kinds[i].items();
    if (words.empty() || words.size() > 2) kinds[i].refuse("[kind] or [kind, presence]");
    Weight w;
    w.kind = words[0].text();
    const string present = words.size() == 2 ? words[1].text() : "rc";
    w.present = {present.find('r') != string::npos, present.find('c') != string::npos};
    const QuantizerPtr q = quantizer_of_kind(words[0]);
    q->set_usage(w.present.rowwise, w.present.columnwise);
    w.storage = q->quantize(session, seeded(kSide, DType::bfloat16, 41 + i));
    w.storage->init_value = zeros({1}, DType::float32);
    w.whole = seeded(kSide, DType::float32, 71 + i);
    for (const auto& [name, a] : named_buffers(*w.storage)) w.before[name] = clone(a);
    MasterWeight m{w.storage, nullptr, std::nullopt, {}};
    if (!offsets[i].is_null()) m.offset = offsets[i].number(-kSide * kSide, kSide * kSide);
    if (!lengths[i].is_null()) {
      const int64_t n = lengths[i].number(0, kSide * kSide),
                    from = std::clamp<int64_t>(m.offset.value_or(0), 0, kSide * kSide - n);
      m.master = clone(slice(view(w.whole, {kSide * kSide}), 0, from, from + n));
    }
    weights.push_back(w);
    batch.push_back(m);
  }
  json::Value calls = json::array();
  ProcessGroup alone{.name = "dp", .size = 1, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
  std::optional<SemanticError> error;
  try {
    quantize_master_weights(session, batch, alone, given.flag("manual"),
                            [&](json::Value v) { calls.push(std::move(v)); });
  } catch (const SemanticError& e) {
    error = e;
  }
  json::Value kept = json::array(), cleared = json::array(), equals = json::array(), usages = json::array();
  for (size_t i = 0; i < weights.size(); ++i) {
    const Weight& w = weights[i];
    Buffers after;
    for (const auto& [name, a] : named_buffers(*w.storage)) after[name] = a;
    // A derived plane that was dropped is no byte that changed.
    const bool same = std::ranges::all_of(after, [&](const auto& b) {
      return w.before.contains(b.first) && equal_bytes(*b.second, *w.before.at(b.first));
    });
    kept.push(same);
    cleared.push(w.storage->init_value == nullptr);
    const Usages u = w.storage->present();
    usages.push(json::array({u.rowwise, u.columnwise}));
    const bool whole = batch[i].master && batch[i].master->count() == kSide * kSide;
    equals.push(!error && whole && is_compared(w.kind) ? beside_whole(session, w) : json::Value());
  }
  return json::object({{"error", master_error(error)},
                       {"calls", std::move(calls)},
                       {"unchanged", error ? std::move(kept) : json::Value()},
                       {"init_value_cleared", std::move(cleared)},
                       {"equals_quantization_of_bf16_master", std::move(equals)},
                       {"usages", std::move(usages)}});
}

// ---- after a gather --------------------------------------------------------------------

Buffers buffers_of(Storage& s) {
  Buffers out;
  for (const auto& [name, a] : named_buffers(s)) out[name] = clone(a);
  return out;
}

json::Value post(const Given& given, Session& session) {
  if (given.text("kind") == "plain") {  // no quantized tensor, so there is nothing to do
    post_all_gather_processing(session, {});
    return json::object({{"ok", json::Value()}});
  }
  return outcome([&] {
    const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind of tensor"));
    const Usages present = usages_in(given);
    q->set_usage(present.rowwise, present.columnwise);
    const StoragePtr s = q->quantize(session, seeded(kSide, DType::bfloat16, 41));
    const Buffers before = buffers_of(*s);
    post_all_gather_processing(session, {s});
    const Buffers after = buffers_of(*s);
    post_all_gather_processing(session, {s});
    const Buffers again = buffers_of(*s);
    std::vector<string> held, gained;
    for (const auto& [name, a] : after) {
      held.push_back(name);
      if (!before.contains(name)) gained.push_back(name);
    }
    const bool moved = again.size() != after.size() || std::ranges::any_of(again, [&](const auto& b) {
                         return !after.contains(b.first) || !equal_bytes(*b.second, *after.at(b.first));
                       });
    return json::object({{"held", shown(held)},
                         {"changed", changed(before, after)},
                         {"gained", shown(gained)},
                         {"second_call_changes", moved}});
  });
}

json::Value replace(const Given& given, Session& session) {
  return outcome(
      [&] {
        const StoragePtr s = quantizer_of_kind(given.at("kind", "a kind of tensor"))
                                 ->quantize(session, seeded(kSide, DType::bfloat16, 41));
        const Buffers before = buffers_of(*s);
        const std::vector<std::pair<string, ArrayPtr>> own = named_buffers(*s);
        const ArrayPtr memory = empty(own.front().second->shape, given.at("new_dtype", "a dtype").dtype());
        replace_raw_data(*s, memory);
        std::vector<string> now;
        for (const auto& [name, a] : named_buffers(*s))
          if (share_memory(*a, *memory)) now.push_back(name);
        const Buffers after = buffers_of(*s);
        return json::object(
            {{"values_kept", changed(before, after) == json::array()}, {"now_in_new_memory", shown(now)}});
      },
      [](const SemanticError& e) {
        return failed(e, {"dtype", "data types", "not supported"});
      });
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given, Session& session);
};
constexpr Group kGroups[] = {
    {"construct", construct}, {"step", step}, {"state_init", state_init}, {"state_dict", state_dict},
    {"master", master},       {"post", post}, {"replace", replace},
};

}  // namespace

json::Value witness_optimizer(std::string_view group, const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  return row_called(kGroups, group, "group")->then(given, session);
}

}  // namespace assay

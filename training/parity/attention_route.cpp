#include "training/parity/attention_route.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fixtures/json.h"
#include "training/attention/emulation.h"
#include "training/attention/fused_flow.h"
#include "training/base/data.h"
#include "training/base/errors.h"
#include "training/modules/attention.h"
#include "training/parity/attention_recipes.h"
#include "training/parity/trained_route.h"
#include "training/recipes/delayed.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

// MXFP8 needs multiples of 128 tokens, of 32 elements, and of 128 elements of all heads together.
constexpr EmulationShape kShape{1, 4, 128, 128, 32};

// ---- what a step leaves ----

struct Left {
  string what;
  std::vector<std::byte> bytes;
  string text;  // of what has no bytes
};

class Log {
 public:
  std::vector<Left> left;

  void text(const string& what, string value) { left.push_back({what, {}, std::move(value)}); }
  void array(const string& what, const ArrayPtr& a) {
    if (!a) return text(what, "absent");
    const ArrayPtr dense = contiguous(a);
    const auto bytes = std::as_const(*dense).bytes();
    left.push_back({what, {bytes.begin(), bytes.end()}, ""});
  }
  void storage(const string& what, const StoragePtr& s) {
    if (!s) return text(what, "absent");
    text(what, string(s->class_name()));
    for (const Field& f : s->fields()) array(what + "." + f.name, *f.slot);
  }
  void tensor(const string& what, const Tensorlike& t) {
    if (const StoragePtr* s = std::get_if<StoragePtr>(&t)) storage(what, *s);
    else array(what, std::get<ArrayPtr>(t));
  }
};

// ---- one route ----

class Route {
 public:
  Route(Session& session, const RecipePtr& recipe) : session_(session), core_(session, "core") {
    core_.init_fp8_metadata(session, {recipe});
    q_ = core_.quantizers();
    for (const Mode mode : {Mode::forward, Mode::backward}) histories_.add(core_.state.state(mode));
  }

  std::vector<Left> run(int steps) {
    settings();
    for (int n = 0; n < steps; ++n) {
      // The largest amaxes come first, so that a scale of the latest one differs from a scale of the largest.
      fill_ = n == 0 ? FillKind::outliers : FillKind::normal;
      const string step = steps == 1 ? "" : "step " + std::to_string(n) + ", ";
      fused(step + "fused: ", 100 * static_cast<uint64_t>(n));
      emulated(step + "emulation: ", 100 * static_cast<uint64_t>(n) + 50);
      for (const bool forward : {true, false}) histories_.reduce_and_update(session_, forward);
    }
    log_.text("random states", std::to_string(session_.rng.offset));
    return std::move(log_.left);
  }

 private:
  void settings() {
    for (const AttentionSlot& slot : attention_slots()) {
      const QuantizerPtr& q = q_.*slot.member;
      log_.text("quantizer of " + string(slot.tensor), q ? json::dump(q->describe()) : "none");
    }
  }

  // The fused path around kernels that cast what theirs cast.
  void fused(const string& where, uint64_t seed) {
    const Dims shape = {kShape.sq, kShape.b, kShape.h, kShape.d};
    const auto random = [this, &seed](const Dims& dims) {
      return drawn(dims, DType::bfloat16, ++seed, fill_);
    };
    const bool quantized_results = attention_kind(q_.qkv) == AttentionKind::delayed;
    const auto inner = [&](const char* name, const QuantizerPtr& q) {
      const ArrayPtr x = random({kShape.b, kShape.h, kShape.sq, kShape.sk});
      if (q) log_.storage(where + name, q->quantize(session_, x));
    };
    const AttentionKernels kernels = {
        [&](const ForwardCall& c) -> Tensorlike {
          for (const StoragePtr& t : c.qkv) log_.storage(where + "Q, K, V", t);
          inner("S", c.s);
          const ArrayPtr o = random(shape);
          return quantized_results ? Tensorlike(c.o->quantize(session_, o)) : Tensorlike(o);
        },
        [&](const BackwardCall& c) {
          log_.tensor(where + "dO", c.d_o);
          inner("dP", c.dp);
          std::array<Tensorlike, 3> out;
          for (Tensorlike& g : out) {
            const ArrayPtr x = random(shape);
            g = quantized_results ? Tensorlike(c.dqkv->quantize(session_, x)) : Tensorlike(x);
          }
          return out;
        }};
    FusedOptions options;
    options.o_format = "sbhd";
    const PlainQkv in{"sbhd_sbhd_sbhd", {random(shape), random(shape), random(shape)}};
    const FusedForward forward = fused_forward(session_, in, q_, options, kernels);
    log_.tensor(where + "O", forward.out);
    for (const StoragePtr& t : forward.saved->qkv_fp8) log_.storage(where + "saved Q, K, V", t);
    log_.storage(where + "saved O", forward.saved->o_fp8);
    const auto gradients = fused_backward(session_, *forward.saved, random(shape), options, kernels);
    for (const Tensorlike& g : gradients) log_.tensor(where + "dQ, dK, dV", g);
  }

  void emulated(const string& where, uint64_t seed) {
    const Emulation emulation(q_);
    for (const EmulationStage& stage : emulation_stages()) {
      std::vector<ArrayPtr> in;
      for (const Dims& dims : emulation_shapes(stage.tensor, kShape))
        in.push_back(drawn(dims, DType::bfloat16, ++seed, fill_));
      const string name =
          where + string(stage.tensor) + (stage.direction == Mode::forward ? " forward" : " backward");
      for (const ArrayPtr& out : emulation.pass(session_, stage, in)) log_.array(name, out);
    }
  }

  Session& session_;
  DotProductAttention core_;
  AttentionQuantizers q_;
  AmaxBuffers histories_;
  FillKind fill_ = FillKind::normal;
  Log log_;
};

std::vector<Left> steps_under(const Cell& c, const RecipePtr& recipe, const Removed& removed,
                              Subject& subject, const Environment& environment) {
  Session session(subject, environment);
  prepare(session, c, removed);
  return Route(session, recipe).run(c.phase == Phase::trajectory ? 3 : 1);
}

}  // namespace

Found compare_attention(const Cell& c, const Removed& removed, Subject& subject,
                        const Environment& environment, int64_t& compared) {
  const RecipePtr built = built_in_attention_recipe(c);
  const std::vector<Left> want = steps_under(c, built, removed, subject, environment);
  std::vector<Left> got;
  try {
    got = steps_under(c, custom_attention_recipe(c, removed), removed, subject, environment);
  } catch (const SemanticError& e) {
    return Difference{"the core under the custom recipe", "a step",
                      string(name_of(e.error_class)) + ": " + e.what()};
  }
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (got[i].what != want[i].what) return Difference{"order of casts", want[i].what, got[i].what};
    if (got[i].text != want[i].text) return Difference{want[i].what, want[i].text, got[i].text};
    if (Found d = compare_bytes(want[i].what, got[i].bytes, want[i].bytes, compared)) return d;
  }
  if (got.size() == want.size()) return std::nullopt;
  return Difference{"tensors left by the steps", std::to_string(want.size()), std::to_string(got.size())};
}

}  // namespace assay::training

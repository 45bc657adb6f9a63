// Steps of an optimizer (N19): what a numeric key of the line means where another number is asked for,
// moments that are stored in another encoding, and an update whose steps are done otherwise.
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"
#include "contract/f32_text.h"

namespace assay {

namespace {

using Planes = std::vector<PlaneData>;

float number(F32Bits bits) { return std::bit_cast<float>(bits); }

// N19.1 to N19.4 of one element. A slip changes one of its numbers or steps.
struct Step {
  const Adam& op;
  float p, g, m, v;  // the moments are the new ones, before they are stored
  float c1, c2, eps, decay;
  bool l2;
  // a * b + c.
  float sum(float a, float b, float c) const {
    return op.adam == AdamRounding::fma ? std::fma(a, b, c) : a * b + c;
  }
  float corrected() const { return v / c2; }
  float of_root(float root) const {
    const float u = m / c1 / root;
    return sum(-number(op.lr), l2 ? u : sum(decay, p, u), p);
  }
};

struct StepRow {
  const char *id, *title, *clause;
  bool (*applies)(const Adam&);
  float (*result)(const Step&);
};
bool corrects(const Adam& op) { return op.bias_correction; }
constexpr StepRow kStepRows[] = {
    {"eps_in_root", "eps is added under the root, not to it", "N19.4", [](const Adam&) { return true; },
     [](const Step& s) { return s.of_root(std::sqrt(s.corrected() + s.eps)); }},
    {"eps_before_correction", "eps is added to the root of the second moment before it is corrected", "N19.4",
     corrects, [](const Step& s) { return s.of_root((std::sqrt(s.v) + s.eps) / std::sqrt(s.c2)); }},
    {"first_uncorrected", "the first moment is not corrected", "N19.1", corrects,
     [](const Step& s) {
       Step other = s;
       other.c1 = 1;
       return other.of_root(std::sqrt(other.corrected()) + other.eps);
     }},
    {"second_uncorrected", "the second moment is not corrected", "N19.1", corrects,
     [](const Step& s) { return s.of_root(std::sqrt(s.v) + s.eps); }},
    {"root_missing", "the second moment stands for its root", "N19.4", [](const Adam&) { return true; },
     [](const Step& s) { return s.of_root(s.corrected() + s.eps); }},
    {"decay_first", "the parameter decays before the update, as PyTorch's AdamW has it", "N19.3",
     [](const Adam& op) { return op.decoupling == WeightDecay::adamw && (op.decay & 0x7FFFFFFF) != 0; },
     [](const Step& s) {
       Step other = s;
       other.p = s.p * (1 - number(s.op.lr) * s.decay);
       other.decay = 0;
       return other.of_root(std::sqrt(s.corrected()) + s.eps);
     }},
};

// c1 or c2: binary32 of one less a power in binary64.
float correction(const Adam& op, F32Bits beta) {
  if (!op.bias_correction) return 1;
  return static_cast<float>(1 - std::pow(static_cast<double>(number(beta)), op.step));
}

void take_step(const StepRow& row, const Problem& problem, const Planes& inputs, Planes& made) {
  const Adam& op = *problem.as<Adam>();
  const float beta1 = number(op.beta1), beta2 = number(op.beta2), decay = number(op.decay);
  const bool l2 = op.decoupling == WeightDecay::l2;
  PlaneData& next = made.back();
  for (int64_t n = 0; n < problem.x.shape.count(); ++n) {
    const auto value = [&](const char* name) {
      const PlaneData& plane = *find_plane(inputs, name);
      return static_cast<float>(value_of(plane.plane.encoding, code_at(plane.plane, plane.bytes, n)));
    };
    Step s{op,
           value("p"),
           value("x"),
           0,
           0,
           correction(op, op.beta1),
           correction(op, op.beta2),
           number(op.eps),
           decay,
           l2};
    if (l2) s.g = s.sum(decay, s.p, s.g);
    s.m = s.sum(beta1, value("m"), (1 - beta1) * s.g);
    s.v = s.sum(beta2, value("v"), (1 - beta2) * s.g * s.g);
    set_code(next.plane, next.bytes, n,
             nearest_code(next.plane.encoding, static_cast<double>(row.result(s))));
  }
}

}  // namespace

std::vector<Hypothesis> optimizer_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  const Adam* op = problem.as<Adam>();
  if (!op) return out;
  const auto add = [&](const char* id, const char* title, const char* clause, const std::string& keys) {
    const auto changed = with_keys(problem, keys);
    if (!changed || *changed == problem) return;
    Hypothesis h;
    h.id = std::string("adam.") + id;
    h.title = title;
    h.stage = Stage::code;
    h.clause = clause;
    h.keys = keys;
    out.push_back(std::move(h));
  };
  if (op->moments == Encoding::f32)
    for (const Encoding narrow : {Encoding::bf16, Encoding::f16}) {
      Hypothesis h;
      h.id = fmt::format("adam.moments_in_{}", info(narrow).name);
      h.title = fmt::format("the new moments are rounded to {} before they are stored", info(narrow).name);
      h.stage = Stage::code;
      h.clause = "N19.2";
      h.remake = [narrow](const Problem&, const std::vector<PlaneData>&, std::vector<PlaneData>& made) {
        for (PlaneData& plane : made) {
          if (plane.plane.name != "next.m" && plane.plane.name != "next.v") continue;
          for (int64_t n = 0; n < plane.plane.logical.count(); ++n) {
            const double v = value_of(Encoding::f32, code_at(plane.plane, plane.bytes, n));
            set_code(plane.plane, plane.bytes, n,
                     nearest_code(Encoding::f32, value_of(narrow, nearest_code(narrow, v))));
          }
        }
      };
      out.push_back(std::move(h));
    }
  for (const StepRow& row : kStepRows) {
    if (!row.applies(*op)) continue;
    Hypothesis h;
    h.id = std::string("adam.") + row.id;
    h.title = row.title;
    h.stage = Stage::code;
    h.clause = row.clause;
    h.remake = [row](const Problem& p, const Planes& inputs, Planes& made) {
      take_step(row, p, inputs, made);
    };
    out.push_back(std::move(h));
  }
  const std::string beta1 = f32_text(op->beta1), beta2 = f32_text(op->beta2);
  if (op->bias_correction) {
    add("step_late", "biases are corrected by the step before, as where the count advances after the update",
        "N19.1", fmt::format("step={}", op->step - 1));
    add("step_early", "biases are corrected by the next step, as where the count advances twice", "N19.1",
        fmt::format("step={}", op->step + 1));
    add("step_first", "biases are corrected as in the first step", "N19.1", "step=1");
  }
  add("betas_swapped", "beta1 and beta2 stand for each other", "N19.2",
      fmt::format("beta1={} beta2={}", beta2, beta1));
  add("one_beta1", "both moments decay by beta1", "N19.2", "beta2=" + beta1);
  add("one_beta2", "both moments decay by beta2", "N19.2", "beta1=" + beta2);
  add("momentum_missing", "the first moment is the gradient", "N19.2", "beta1=0");
  add("eps_missing", "eps is left out", "N19.4", "eps=0");
  add("eps_default", "eps is 1e-8, whatever is asked for", "N19.4", "eps=1e-8");
  add("decay_missing", "weight decay is left out", "N19.3", "decay=0");
  add("lr_missing", "the learning rate is left out", "N19.4", "lr=1");
  return out;
}

}  // namespace assay

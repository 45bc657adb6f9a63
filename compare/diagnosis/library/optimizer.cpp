// Steps of an optimizer (N19): what a numeric key of the line means where another number is asked for, and
// moments that are stored in another encoding.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"
#include "contract/f32_text.h"

namespace assay {

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

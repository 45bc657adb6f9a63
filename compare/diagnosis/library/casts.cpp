// A cast (N2): an element that is rounded to a narrower wide encoding before it is cast.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

std::vector<Hypothesis> cast_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  if (!problem.as<Cast>() || problem.x.source != Encoding::f32) return out;
  for (const Encoding first : {Encoding::bf16, Encoding::f16})
    for (const bool cut : {false, true}) {
      Hypothesis h;
      h.id = fmt::format("cast.{}through_{}", cut ? "cut_" : "", info(first).name);
      h.title = fmt::format("elements are rounded to {} first, and then {}", info(first).name,
                            cut ? "cut to the encoding" : "once more");
      h.stage = Stage::code;
      h.clause = "N2.1";
      if (cut) h.keys = "round=rz";
      h.read = [first](const Problem&, std::vector<PlaneData>& inputs) {
        PlaneData& x = inputs.front();
        const std::vector<std::byte> before = x.bytes;
        for (int64_t n = 0; n < x.plane.logical.count(); ++n) {
          const double v = value_of(Encoding::f32, code_at(x.plane, x.bytes, n));
          set_code(x.plane, x.bytes, n, nearest_code(Encoding::f32, value_of(first, nearest_code(first, v))));
        }
        return x.bytes != before;
      };
      out.push_back(std::move(h));
    }
  return out;
}

}  // namespace assay

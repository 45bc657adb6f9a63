// A swizzle back (N6.3): scales in GEMM layout that are read in another order. The order in which a swizzle
// writes them is found as that of any plane is (compare/diagnosis/patterns).
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/library/rows.h"
#include "compare/diagnosis/patterns/layouts.h"

namespace assay {

namespace {

using std::string;

constexpr const char* kOrders[] = {"tiles_128x4_down",  "tiles_128x4_rows", "tiles_128x4_reshaped",
                                   "tiles_128x4_words", "tiles_128_whole",  "tiles_32x4",
                                   "row_major",         "column_major"};

// Puts each code where the right order reads what another one does; `inverse` is the inverse of that.
bool read_in(const LayoutFit& inverse, PlaneData& scales) {
  const std::vector<std::byte> before = scales.bytes;
  for (size_t i = 0; i < inverse.source.size(); ++i)
    if (inverse.source[i] >= 0)
      set_code(scales.plane, scales.bytes, static_cast<int64_t>(i),
               code_at(scales.plane, before, inverse.source[i]));
  return scales.bytes != before;
}

}  // namespace

std::vector<Hypothesis> swizzle_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  const Swizzle* op = problem.as<Swizzle>();
  if (!op || !op->inverse) return out;
  for (const char* name : kOrders) {
    const Plane scales = input_planes(problem).front();
    const auto order = layout_named(name, scales), inverse = layout_named(name + string("_inverse"), scales);
    if (!order || !inverse) continue;
    Hypothesis h;
    h.id = fmt::format("swizzle.read_as:{}", name);
    h.title = fmt::format("scales are read as if their order were: {}", order->description);
    h.stage = Stage::layout;
    h.clause = "N6.3";
    h.read = [inverse = *inverse](const Problem&, std::vector<PlaneData>& inputs) {
      return read_in(inverse, inputs.front());
    };
    out.push_back(std::move(h));
  }
  return out;
}

}  // namespace assay

#include "compare/commands/hunt/codes.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/choices/draft.h"
#include "compare/choices/tensors.h"
#include "compare/commands/hunt/rounding.h"
#include "compare/process/plain_run.h"
#include "contract/planes.h"

namespace assay::hunting {

namespace {

bool holds_codes(const Plane& plane) {
  return info(plane.encoding).bits <= 8 && info(plane.encoding).is_float();
}

bool any_codes(const std::vector<Plane>& planes) {
  return std::any_of(planes.begin(), planes.end(), holds_codes);
}

}  // namespace

void Codes::add(const PlaneData& data, Planes& planes) {
  const Plane& plane = data.plane;
  // What is never written holds no code (N14.6).
  const int64_t count = plane.padding == Padding::untouched ? plane.logical.cols : plane.padded.count();
  if (!holds_codes(plane) || count == 0) return;
  auto& seen = planes[fmt::format("{} {}", plane.name, info(plane.encoding).name)];
  for (int64_t i = 0; i < count; ++i) seen.set(code_at(plane, data.bytes, i));
}

size_t Codes::look(const Problem& p) {
  if (choices::largest_tensor(p) > RoundingCases::kMostTraced) return 0;
  if (!any_codes(input_planes(p)) && !any_codes(output_planes(p))) return 0;
  if (noop_of(p) == F32Bits{0x3F800000}) return 0;  // N6.7: it writes nothing
  const auto inputs = make_inputs(p, reference_);
  if (!inputs) return 0;
  const auto outputs = plain_run(reference_, p, *inputs);
  if (!outputs) return 0;
  Planes& planes = seen_[choices::draft_of(p).group()];
  const size_t before = count(planes);
  for (const auto* part : {&*inputs, &*outputs})
    for (const PlaneData& data : *part) add(data, planes);
  return count(planes) - before;
}

size_t Codes::count(const Planes& planes) {
  size_t out = 0;
  for (const auto& [plane, seen] : planes) out += seen.count();
  return out;
}

size_t Codes::count() const {
  size_t out = 0;
  for (const auto& [group, planes] : seen_) out += count(planes);
  return out;
}

size_t Codes::count(const std::string& group) const {
  const auto planes = seen_.find(group);
  return planes == seen_.end() ? 0 : count(planes->second);
}

}  // namespace assay::hunting

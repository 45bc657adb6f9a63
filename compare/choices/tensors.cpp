#include "compare/choices/tensors.h"

#include <algorithm>

#include "contract/planes.h"

namespace assay::choices {

namespace {

// The logical shape of a grouped plane counts what pads its members (contract/planes.h).
int64_t elements_of(const Plane& plane) {
  if (plane.members.empty()) return plane.logical.count();
  int64_t sum = 0;
  for (const Member& m : plane.members) sum += m.logical.count();
  return sum;
}

}  // namespace

int64_t largest_tensor(const Problem& p) {
  int64_t most = p.x.shape.count();
  if (const Split* split = p.as<Split>()) most = std::max(most, split->capacity);
  for (const auto& planes : {input_planes(p), output_planes(p)})
    for (const Plane& plane : planes) most = std::max(most, elements_of(plane));
  return most;
}

}  // namespace assay::choices

#include "compare/choices/tensors.h"

#include <algorithm>

#include "contract/planes.h"

namespace assay::choices {

int64_t largest_tensor(const Problem& p) {
  int64_t most = p.x.shape.count();
  if (const Split* split = p.as<Split>()) most = std::max(most, split->capacity);
  for (const auto& planes : {input_planes(p), output_planes(p)})
    for (const Plane& plane : planes) most = std::max(most, plane.logical.count());
  return most;
}

}  // namespace assay::choices

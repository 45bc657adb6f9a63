// Quantizing through direction lanes: any pair of formats, one direction or both, one tensor or every member
// of a split, any Numerics. The kernels are in fast/direction_unit.cuh, one unit per row lane.
#pragma once
#include <string>

#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {

struct MemberStart;

// What all launches of a run read: one tensor, or n members of which `starts` knows the sizes (on the device,
// n + 1 entries).
struct Read {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Encoding source{};
  Shape shape;          // of the one tensor
  uint32_t member = 0;  // N12.2
  const MemberStart* starts = nullptr;
  int64_t members = 1;
  unsigned grid = 0;  // blocks of a tile each; with members, blocks that share the tiles between them. 0:
                      // nothing to launch
};

// Launches what the Problem's directions need over `read` and says what served: "amax pass; pair<fp8_tensor
// row, mx col> bf16, one read".
std::string launch_directions(const Job&, const Read&);
// The same of a quantize.
std::string quantize_directions(const Job&);

// One row lane with every column lane; each is a unit of its own.
struct NoDirection;
#define FAMILY(name, Lane) struct Lane;
#include "fast/families.def"
#undef FAMILY
template <class RowLane> std::string launch_with_row(const Job&, const Read&);

}  // namespace assay::ASSAY_FAST_NAMESPACE

#include "compare/diagnosis/patterns/corners.h"

#include "compare/arithmetic/codes.h"

namespace assay::patterns {

namespace {

// Elements that stand for themselves need no region_of, which reads the plane's name.
bool plain(const Problem& problem, const Plane& plane) {
  return plane.name.ends_with(".data") ||
         (!plane.direction && !problem.as<Update>() && !problem.as<Hadamard>());
}

}  // namespace

Corners corners_of(const Problem& problem, const Plane& plane) {
  Corners out;
  const Shape s = plane.logical;
  const bool grouped = !plane.members.empty();
  const bool itself = grouped || plain(problem, plane), swapped = !grouped && plane.transposed;
  out.row.reserve(static_cast<size_t>(s.count()));
  out.col.reserve(static_cast<size_t>(s.count()));
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) {
      if (itself) {
        out.row.push_back(swapped ? c : r);
        out.col.push_back(swapped ? r : c);
      } else {
        const Region g = region_of(&problem, plane, {false, r, c});
        out.row.push_back(g.row0);
        out.col.push_back(g.col0);
      }
    }
  out.rows = itself ? (swapped ? s.cols : s.rows) : problem.x.shape.rows;
  out.cols = itself ? (swapped ? s.rows : s.cols) : problem.x.shape.cols;
  return out;
}

}  // namespace assay::patterns

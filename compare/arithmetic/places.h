// Where the elements of a plane stand: coordinates, regions of x, members of grouped planes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// Where an element of a plane stands: logical coordinates of the plane, or in its padding.
struct Place {
  bool padding = false;
  int64_t row = 0, col = 0;  // of the padded array in padding; of the logical one otherwise
  bool operator==(const Place&) const = default;
};
// Place of the flat index `index`, in the row-major and in the tensor-core tile order (N6.3, read backwards).
// Grouped planes are taken apart before (members_of).
Place place_of(const Plane& plane, int64_t index);
// The flat index of logical (row, col) or, in padding, padded (row, col).
int64_t index_of(const Plane& plane, int64_t row, int64_t col);

// A grouped plane as its members' own planes (N14.2), named "row.data[2]"; any other as itself. What stands
// beyond the members is left out.
std::vector<PlaneData> members_of(const PlaneData& data);
// The planes of one member of a split as its own line has them, under their own names. What is not grouped
// (noop) stays as it is; offsets and sizes are left out.
std::vector<PlaneData> planes_of_member(const std::vector<PlaneData>& planes, size_t member);
// Zeros what stands beyond the members of a grouped plane: it is no result, only what stood there before
// (N14.6).
void clear_spare(PlaneData& data);
// 2 of "row.data[2]", or nothing.
std::optional<size_t> member_of(std::string_view plane_name);

// The elements of x that one element of a plane belongs to, half open. A scale covers its block; an amax
// everything or its row.
struct Region {
  int64_t row0 = 0, row1 = 0, col0 = 0, col1 = 0;
  bool contains(int64_t r, int64_t c) const { return r >= row0 && r < row1 && c >= col0 && c < col1; }
  bool operator==(const Region&) const = default;
};
// `problem` may be null: then a plane is taken to have the shape of x. For a split's member it is the
// member's own.
Region region_of(const Problem* problem, const Plane& plane, Place place);

// "64x256".
std::string shape_text(Shape s);

// "row 12, columns 32..63", "element (3, 7)", "padding (130, 2)".
std::string place_text(const Problem* problem, const Plane& plane, Place place);

}  // namespace assay

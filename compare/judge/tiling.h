// A large tensor judged in tiles: parts of x whose planes are parts of the whole's planes, bit for bit. What
// a tile cannot know, the tensor's amax, is found first and given to every tile.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "compare/arithmetic/places.h"
#include "contract/planes.h"
#include "contract/problem.h"
#include "contract/result.h"

namespace assay {

inline constexpr int64_t kTileElements = int64_t{1} << 20;

// A rectangle of x. It begins at multiples of kTileUnit and ends at such or at the end of x, so that blocks
// of every format, 16-row rotations and 128x4 tiles of scales lie in one tile each.
inline constexpr int64_t kTileUnit = 128;
struct Tile {
  int64_t row = 0, col = 0;
  Shape shape;
};

struct Tiling {
  Problem problem;  // of the whole tensor
  std::vector<Tile> tiles;
  std::optional<F32Bits> row_amax, col_amax;  // of the tensor, where needs_amax says so; set by the caller

  // Whether this direction's scale comes from an amax that only the whole tensor has.
  bool needs_amax(Direction d) const;
  // The tile's line; with the amaxes that are known as given ones.
  Problem problem_of(const Tile& tile) const;
  // Where a plane of the tile begins in the whole's plane of the same name and part: its first row and
  // column. (0, 0) for planes that do not grow with the tensor.
  Shape origin(const Tile& tile, const Plane& plane) const;
};

// Tiles of about `elements`, of whole rows or columns where these have a scale each. Error: why planes of
// this line cannot be judged in parts.
Result<Tiling> tiling_of(const Problem& problem, int64_t elements = kTileElements);

// The part of x around `region` that a search looks at: some thousand elements on every side, whole rows or
// columns where these have a scale each.
Tile window_around(const Tiling& tiling, const Region& region);

// Whether a plane has one value for the tensor, whatever its shape: such a plane belongs to no tile.
bool is_scalar(const Plane& plane);

}  // namespace assay

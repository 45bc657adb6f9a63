// A tile of a large case judged by an acceptor (contract/acceptor.h), and its doubtful blocks by the
// reference.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "compare/judge/tiling.h"
#include "compare/packs/pack.h"
#include "contract/acceptor.h"

namespace assay {

// Recorded planes by name, where they lie.
using PlaneViews = std::map<std::string, PlaneView, std::less<>>;
// Those of `planes` that the case holds. Error: a tensor that does not fit its plane.
Result<PlaneViews> views_of(const PackCase& c, const std::vector<Plane>& planes);

// Who judged how many blocks.
struct JudgedBlocks {
  int64_t accepted = 0, referred = 0;  // by the acceptor alone; by the reference
};
// "by simd AVX2: 31900000 of 33554432 blocks; by the reference: 1654432".
std::string judges_text(const JudgedBlocks& b, const Acceptor& acceptor);

// ... and what the reference made of planes of one value, which belong to no tile.
struct AcceptedTile {
  JudgedBlocks blocks;
  std::map<std::string, uint32_t, std::less<>> scalars;
};

// One block in so many goes to the reference although the acceptor knows it.
inline constexpr int64_t kSampledBlocks = 100;

// Judges the tile's recorded planes: the acceptor names the blocks that it does not know, and the reference
// runs on those and on a seeded sample of the others. Nothing: the tile is not known to be right, and the
// reference has to judge it as a whole. That is so where the acceptor does not take the line, where a block
// differs from the reference's, and where so many blocks are doubtful that nothing would be won.
std::optional<AcceptedTile> accept_tile(const Problem& line, const Tile& place, const PlaneViews& in,
                                        const PlaneViews& out, Acceptor& acceptor, Subject& reference);

// The blocks of the recorded directions of a line that an acceptor takes; 0 of other lines.
int64_t blocks_of(const Problem& tile, const PlaneViews& out, const Acceptor& acceptor);

}  // namespace assay

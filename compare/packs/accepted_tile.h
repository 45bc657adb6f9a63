// A tile of a large case judged by an acceptor (contract/acceptor.h), and its doubtful blocks by the
// reference. Where many of these differ, the reference judges some of them and the acceptor counts the rest.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/judge/judge.h"
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
  int64_t counted = 0;  // differ by the acceptor's word, in tiles that the reference found wrong elsewhere
};
// "by simd AVX2: 31900000 of 33554432 blocks; by the reference: 1654432", and who counted what differs.
std::string judges_text(const JudgedBlocks& b, const Acceptor& acceptor);

// ... and what the reference made of planes of one value, which belong to no tile.
struct AcceptedTile {
  JudgedBlocks blocks;
  std::map<std::string, uint32_t, std::less<>> scalars;
  std::vector<PlaneDifference> differences;  // of the tile's planes, in causal order; places are the tile's
  std::string hint;  // of the first of them, from the blocks that the reference judged
};

// One block in so many goes to the reference whatever the acceptor says of it.
inline constexpr int64_t kSampledBlocks = 100;

// Judges the tile's recorded planes: the acceptor names the blocks that it does not know, and the reference
// runs on those and on a seeded sample of the others. Where more blocks differ than the sample holds, it runs
// on the special ones, on the first one of each plane that differs and on the sample, and what the acceptor
// says of the others is taken over. Nothing: the reference has to judge the tile as a whole. That is so where
// the acceptor does not take the line, where it says of one of these blocks another thing than the reference,
// and where so many blocks are special that nothing would be won.
std::optional<AcceptedTile> accept_tile(const Problem& line, const Tile& place, const PlaneViews& in,
                                        const PlaneViews& out, Acceptor& acceptor, Subject& reference);

// The blocks of the recorded directions of a line that an acceptor takes; 0 of other lines.
int64_t blocks_of(const Problem& tile, const PlaneViews& out, const Acceptor& acceptor);

}  // namespace assay

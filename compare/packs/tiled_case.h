// A recorded case judged in tiles (compare/judge/tiling.h), in worker processes: the pack's bytes are read
// where they are mapped, and no plane is ever held as a whole.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/judge/judge.h"
#include "compare/judge/tiling.h"
#include "compare/packs/accepted_tile.h"
#include "compare/packs/pack.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

struct TiledOptions {
  int jobs = 0;                                              // workers; 0: the cores of this machine
  double timeout = 60;                                       // seconds that one tile may take
  std::function<void(size_t tiles, size_t of)> on_progress;  // may be empty
  std::function<void(const PlaneDifference&)> on_first =
      {};                                   // the first that a tile shows, at once; may be empty
  Acceptor* acceptor = nullptr;             // asked before the reference; null: the reference judges all
  const std::atomic<bool>* stop = nullptr;  // ends it as Ctrl-C does
};

struct TiledJudgement {
  Judgement judgement;
  std::vector<std::string> judged;  // planes
  std::optional<Tile> first;        // holds the first difference of a plane that grows with x
  size_t tiles = 0, of = 0;         // fewer where the user interrupted it
  JudgedBlocks blocks;              // of lines that the acceptor takes
};

// The case as one that can be judged in tiles. Error: why it cannot, whatever its size.
Result<Tiling> tiling_of_case(const PackCase& recorded, const Problem& problem,
                              int64_t elements = kTileElements);

// Judges the planes that the pack holds against the reference, and sets the tiling's amaxes. Errors: a tensor
// that does not fit its plane, a tile that crashes, an input that neither pack nor line gives.
Result<TiledJudgement> judge_in_tiles(const PackCase& recorded, Tiling& tiling, Subject& reference,
                                      const TiledOptions& options);

// What the pack holds of one tile, and the tile's line. The tiling's amaxes must be known.
struct TilePlanes {
  Problem problem;
  std::vector<PlaneData> inputs, got;
};
Result<TilePlanes> planes_of_tile(const PackCase& recorded, const Tiling& tiling, const Tile& tile,
                                  Subject& reference);

}  // namespace assay

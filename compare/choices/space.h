// Every pair of choices that some accepted line exercises, found by asking the parser; and lines for those
// that a suite leaves out.
//
// A pair is valid when a line that exercises both choices (pairs.h) is accepted. The search draws lines at
// random first, which have most pairs. For each pair that none of them has it then joins the smallest known
// lines of the two choices, and draws what stands beside them anew, until a line is accepted or the tries are
// spent. What it finds is valid for certain, because a line shows it; what it does not find in `tries` is
// called invalid.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compare/choices/draw.h"
#include "compare/choices/pairs.h"

namespace assay::choices {

struct SpaceOptions {
  int64_t most = 16384;  // elements of a tensor (Drawer)
  uint64_t seed = 1;
  size_t random_lines = 1000;
  int tries = 10;                                           // for each pair that no random line has
  std::string only;                                         // groups that contain this text
  Accepts accepts;                                          // all lines where it is empty
  int jobs = 0;                                             // worker processes; 0: the cores of this machine
  std::function<void(size_t done, size_t of)> on_progress;  // groups; may be empty
};

// The pairs of one group, and lines that show each of them.
struct GroupSpace {
  Names names;
  Pairs valid;
  std::vector<std::string> lines;
  std::unordered_map<uint32_t, uint32_t> shown_by;  // pair_key to an index of `lines`
  static uint32_t pair_key(int a, int b) {
    return static_cast<uint32_t>(a < b ? a * 1024 + b : b * 1024 + a);
  }
  // Adds a line's pairs. False where it shows nothing new.
  bool add(const GroupChoices&, const std::string& line);
};
using Space = std::map<std::string, GroupSpace>;  // by group; those that some line has

// An interrupt (compare/process/interrupt.h) ends it with the groups that were searched until then, as
// on_progress was told.
Space find_space(const SpaceOptions&);

// The pairs of each group that these lines exercise, among the valid ones. A pair of a line that the search
// did not find is valid too, and is added to the space.
using Exercised = std::map<std::string, Pairs>;
Exercised exercise(Space&, std::span<const Problem> lines);

// Lines that exercise what is left out, and no line without which the others do it too: greedy, the line with
// the most new pairs of `candidates` first (as AETG does). Deterministic for a seed. An interrupt ends it
// with some of them.
std::vector<std::string> lines_for(const Space&, const Exercised&, const SpaceOptions&, int candidates = 5);

}  // namespace assay::choices

// The cases of packs, grouped by what made them: one program quantizing one module in one format.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compare/judge/tiling.h"
#include "compare/packs/dump.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay::identifying {

struct Case {
  const DumpCase* dump = nullptr;
  Problem problem;
  std::vector<PlaneData> inputs;
  // Of a sample: the part of the whole tensor, which `problem` is about, that `inputs` and `got` hold.
  std::optional<Tile> tile = {};
  std::vector<PlaneData> got = {};
  // ... where its scale comes from the whole's amax: an x of few elements that has the whole's amax under
  // every choice, because the extreme elements of the whole are in it: the largest of each sign, infinities,
  // a NaN.
  std::optional<PlaneData> extremes = {};
};
struct Group {
  std::string module, pack, formats;
  FormatId format = FormatId::identity;
  std::optional<Direction> side;  // of a pair of formats: each direction has its own choices
  std::vector<Case> cases;
  std::vector<std::string> missing;  // why a case of it is not judged
  std::set<std::string> absent;      // planes that no case holds
};

// The groups of the cases whose name contains `filter`, over steps and roles, in the order in which they
// first occur.
std::vector<Group> groups_of(const Dump& dump, const std::string& filter, Subject& reference);

// The group with a few parts of whole blocks in place of each case of `large` elements or more. What a set
// makes of the whole it makes of these bit for bit, so that a set which differs there differs. Nothing where
// no case is that large, or none can be judged in parts: the amax of a rotated tensor has to be recorded.
std::optional<Group> sample_of(const Group& group, int64_t large, Subject& reference);

}  // namespace assay::identifying

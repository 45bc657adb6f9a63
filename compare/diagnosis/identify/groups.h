// The cases of packs, grouped by what made them: one program quantizing one module in one format.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compare/packs/dump.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay::identifying {

struct Case {
  const DumpCase* dump = nullptr;
  Problem problem;
  std::vector<PlaneData> inputs;
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

}  // namespace assay::identifying

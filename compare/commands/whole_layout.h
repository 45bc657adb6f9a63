// Of a large case, whose cause is looked for in one part: planes that hold the right codes in another order,
// which no part of them shows.
#pragma once
#include <optional>
#include <string>

#include "compare/diagnosis/diagnosis.h"
#include "compare/judge/verdict.h"
#include "compare/packs/dump.h"
#include "contract/problem.h"
#include "contract/subject.h"

namespace assay {

// Where every plane of the pack is the one that the reference makes, or holds its codes in an order that is
// known by name: the diagnosis that names these orders. Nothing where a plane is anything else. `seconds`:
// the time limit of the reference.
std::optional<Diagnosis> layout_of_whole(const DumpCase&, const Problem&, Subject& reference, double seconds);

// Whether layout_of_whole is worth its time for a case that fails so: not a few elements differ, and one run
// of the reference holds the case.
bool may_be_layout(const Problem&, const Breach&);

// Where not a few elements differ and the case is too large for that: that no order was tried, and what tries
// it. Empty otherwise.
std::string layouts_untried(const DumpCase&, const Problem&, const Breach&);

}  // namespace assay

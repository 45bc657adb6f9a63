// One recorded case against the reference, as `assay check` and `assay explain` judge it: a small one as a
// whole, a large one in tiles.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "compare/commands/case_screen.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/judge/tiling.h"
#include "compare/packs/accepted_tile.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"

namespace assay {

// From here on a case is judged in tiles.
inline constexpr int64_t kLargeCase = int64_t{1} << 22;  // elements

struct CaseSettings {
  int jobs = 0;         // workers of a large case; 0: the cores of this machine
  double timeout = 60;  // seconds that a run of the reference may take: of the case, or of one tile
  int64_t large = kLargeCase;
  std::function<void(const std::string&)> on_progress;  // "37 % of step12/fc1, 12 s left"; may be empty
  Acceptor* acceptor = nullptr;  // asked about parts of a large case before the reference; may be null
  // "plane row.data, row 0, column 0": the first difference that a part of a large case shows, while the
  // others are still judged; may be empty.
  std::function<void(const std::string&)> on_first;
};

struct CheckedCase {
  CaseReport report;
  std::optional<JudgedBlocks> blocks;  // of a large case: who judged them
  bool cut_short = false;              // the user ended it before all of it was judged
  bool explainable = false;            // a plane differs, so there is a cause to look for
  std::optional<Tiling> tiling;        // of a large case, with its amaxes
  std::optional<Tile> window;          // of a large case: the part around the first difference
  std::string early;       // of a task: what was to be said while it was judged (CaseSettings::on_first)
  bool elsewhere = false;  // a worker judged it, with which tiling and window have ended
};

// What check, explain and trace all say of a case before its verdict: the planes of the pack that the line
// does not have, and the output planes of the line that the pack lacks.
CaseReport noted_planes(const PackCase&, const Problem&);

// "plane 'row.scales' is not a plane of this line, ... (did you mean 'row.scale_inv'?)": tensors of a case
// under a name that was probably meant for a plane that the case lacks. Such a case fails: what was meant to
// be judged was not.
std::vector<std::string> misspelt_planes(const PackCase&, const Problem&);

CheckedCase check_case(const DumpCase&, const Problem&, const Subjects&, const CaseSettings&);

// What a search for the cause looks at: the case, or its window. Errors: what the pack lacks.
Result<Observation> observed(const DumpCase&, const Problem&, const CheckedCase&, Subject& reference);
// What the first divergence comes from, where a search of `budget` seconds finds it, and where it was looked
// for; empty where there is nothing to say. `timeout`: seconds that a run of the reference may take.
std::string first_cause(const DumpCase&, const Problem&, const CheckedCase&, Subject& reference,
                        double budget, int jobs, double timeout);
// "rows 0..255, columns 1024..2047", of a window; empty where the whole case is looked at.
std::string looked_at(const CheckedCase&);

}  // namespace assay

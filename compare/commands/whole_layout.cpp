#include "compare/commands/whole_layout.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "compare/process/interrupt.h"
#include "compare/process/memory.h"
#include "compare/process/run_in_child.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "contract/planes.h"

namespace assay {

namespace {

using std::string;

int64_t elements_differing(const PlaneData& got, const PlaneData& want) {
  int64_t out = 0;
  for (int64_t r = 0; r < want.plane.logical.rows; ++r)
    for (int64_t c = 0; c < want.plane.logical.cols; ++c) {
      const int64_t i = index_of(want.plane, r, c);
      out += code_at(want.plane, got.bytes, i) != code_at(want.plane, want.bytes, i);
    }
  return out;
}

// The order of the wanted codes that makes every byte that came; one that has a name where there are several.
std::optional<LayoutFit> order_of(const PlaneData& got, const PlaneData& want) {
  std::vector<LayoutFit> fits = fit_layouts(want.plane, got.bytes, want.bytes);
  std::erase_if(fits, [](const LayoutFit& f) { return !f.exact || !f.named; });
  if (fits.empty()) return {};
  return std::move(fits.front());
}

// Adds that `plane` came in the order `fit`.
void add_order(const Problem& problem, const Plane& plane, const LayoutFit& fit, Explanation& e) {
  const string stem = plane.name.substr(plane.name.find('.') + 1), id = "layout." + stem + ":" + fit.name;
  if (std::ranges::find(e.ids, id) != e.ids.end()) return;  // both directions alike
  e.ids.push_back(id);
  e.title += (e.title.empty() ? "" : "; ") + stem + ": " + fit.description;
  e.stage = Stage::layout;
  if (!plane.direction) return;
  if (const auto known = hypothesis_named(id, problem, *plane.direction)) {
    e.stage = known->stage;
    e.clause = known->clause;
  }
}

// Another order of scales that are mostly equal leaves most of them right; of a few codes no order can be
// told.
bool much_differs(const Breach& breach) { return breach.differ >= 64; }
bool one_run_holds(const Problem& problem) {
  constexpr int64_t kMostElements = int64_t{1} << 25;
  return problem.x.shape.count() <= kMostElements && !lacks_memory(problem);
}

}  // namespace

bool may_be_layout(const Problem& problem, const Breach& breach) {
  return much_differs(breach) && one_run_holds(problem);
}

string layouts_untried(const DumpCase& c, const Problem& problem, const Breach& breach) {
  if (!much_differs(breach) || one_run_holds(problem)) return {};
  return fmt::format("orders of the whole tensor are not tried in a part: assay identify {} tries them",
                     shell_word(c.pack->path));
}

std::optional<Diagnosis> layout_of_whole(const DumpCase& c, const Problem& problem, Subject& reference,
                                         double seconds) {
  const auto inputs = dump_inputs(*c.recorded, problem, reference);
  if (!inputs) return {};
  const IsolatedRun run = run_isolated(reference, problem, *inputs, Environment{}, seconds);
  if (!run.sound()) return {};
  Diagnosis out;
  out.line = to_line(problem);
  out.subject = "pack " + c.where();
  out.evaluations = 1;
  Explanation e;
  for (const PlaneData& want : run.execution.planes) {
    const Plane& plane = want.plane;
    const PackPlane* recorded = c.recorded->find(plane.name);
    if (!recorded || !recorded->tensor) continue;
    const auto got = dump_plane(*recorded->tensor, plane, &want);
    if (!got || interrupted()) return {};
    PlaneSummary summary;
    summary.plane = plane.name;
    summary.encoding = info(plane.encoding).name;
    summary.of = plane.logical.count();
    out.elements += summary.of;
    if ((summary.differ = elements_differing(*got, want)) > 0) {
      const auto order = order_of(*got, want);
      if (!order) return {};
      add_order(problem, plane, *order, e);
      if (!out.direction) out.direction = plane.direction;
      e.differ += summary.differ;
    }
    out.planes.push_back(std::move(summary));
  }
  if (e.ids.empty()) return {};
  e.agree = e.of = out.elements;
  e.repaired = e.differ;
  out.first = e.stage;
  out.confidence = Confidence::certain;
  out.explanations = {std::move(e)};
  return out;
}

}  // namespace assay

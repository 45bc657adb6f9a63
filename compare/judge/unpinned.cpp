#include "compare/judge/unpinned.h"

#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/judge/laws/laws.h"

namespace assay {

bool judge_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs,
                    const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                    const std::string& why, Verdict& v) {
  v.unpinned = why;
  const PlaneData &g = *find_plane(got, "d"), &w = *find_plane(want, "d");
  v.inside = 0;
  for (int64_t i = 0; i < w.plane.logical.count(); ++i)
    v.inside += code_at(g.plane, g.bytes, i) != code_at(w.plane, w.bytes, i);
  std::vector<std::string> judged;
  for (Breach& b : check_laws(problem, inputs, got, v.subject, &judged, GemmOrder::any))
    v.breaches.push_back(std::move(b));
  for (const std::string& kind : judged) add_kind(v.claims, kind);
  return judged.empty() && v.inside > 0;
}

std::string unpinned_text(const Verdict& v) {
  if (v.unpinned.empty()) return {};
  return fmt::format("bits not pinned (N16.13), judged by the bound: {}; {} element{} from the reference's",
                     v.unpinned, v.inside, v.inside == 1 ? " differs" : "s differ");
}

}  // namespace assay

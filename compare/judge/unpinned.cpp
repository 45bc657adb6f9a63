#include "compare/judge/unpinned.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/attention_core.h"
#include "compare/arithmetic/codes.h"
#include "compare/judge/judge.h"
#include "compare/judge/laws/laws.h"
#include "compare/judge/parity.h"
#include "compare/process/plain_run.h"

namespace assay {

namespace {

constexpr std::string_view kOfAttention = "attention-bound";

int64_t elements_apart(const PlaneData& a, const PlaneData& b) {
  int64_t out = 0;
  for (int64_t i = 0; i < b.plane.logical.count(); ++i)
    out += code_at(a.plane, a.bytes, i) != code_at(b.plane, b.bytes, i);
  return out;
}

// N20.18. The planes that came, against what the bound allows around what follows from those before them.
bool judge_attention(const Problem& problem, const std::vector<PlaneData>& inputs,
                     const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                     Subject& reference, Verdict& v) {
  for (const PlaneData& w : want)
    if (const PlaneData* g = find_plane(got, w.plane.name)) v.inside += elements_apart(*g, w);
  const RunLine run = [&](const Problem& line,
                          const std::vector<PlaneData>& in) -> std::optional<std::vector<PlaneData>> {
    auto made = plain_run(reference, line, in);
    if (!made) return {};
    return std::move(*made);
  };
  const auto near = attention_planes(problem, inputs, {}, run, &got);
  if (!near) return true;
  std::vector<PlaneData> allowed;
  for (const PlaneData& plane : *near)
    if (find_plane(got, plane.plane.name)) allowed.push_back(plane);
  add_kind(v.claims, kOfAttention);
  if (auto breach = parity_breach(problem, judge(&problem, got, allowed), v.subject, "the bound"))
    v.breaches.push_back(std::move(*breach));
  return false;
}

}  // namespace

bool judge_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs,
                    const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                    const std::string& why, Subject& reference, Verdict& v) {
  v.unpinned = why;
  v.inside = 0;
  if (problem.as<Attention>()) return judge_attention(problem, inputs, got, want, reference, v);
  v.inside = elements_apart(*find_plane(got, "d"), *find_plane(want, "d"));
  std::vector<std::string> judged;
  for (Breach& b : check_laws(problem, inputs, got, v.subject, &judged, GemmOrder::any))
    v.breaches.push_back(std::move(b));
  for (const std::string& kind : judged) add_kind(v.claims, kind);
  return judged.empty() && v.inside > 0;
}

std::string_view bound_clause(const Verdict& v) {
  return std::find(v.claims.begin(), v.claims.end(), kOfAttention) != v.claims.end() ? "N20.18" : "N16.13";
}

std::string unpinned_text(const Verdict& v) {
  if (v.unpinned.empty()) return {};
  return fmt::format("bits not pinned ({}), judged by the bound: {}; {} element{} from the reference's",
                     bound_clause(v), v.unpinned, v.inside, v.inside == 1 ? " differs" : "s differ");
}

}  // namespace assay

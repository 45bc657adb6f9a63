#include "compare/packs/replay.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/judge/judge.h"
#include "compare/judge/parity.h"
#include "compare/judge/unpinned.h"
#include "contract/line.h"
#include "fixtures/inputs.h"

namespace assay {

namespace {

Verdict ended(Verdict v, Outcome outcome, std::string reason) {
  v.outcome = outcome;
  v.reason = reason;
  if (is_red(outcome)) v.breaches.push_back(complaint("replay", v.subject, std::move(reason)));
  return v;
}

// Why the recording says nothing about this program, or an empty string. `problem` is what its line reads as.
std::string stale(const Pack& pack, const PackCase& recorded, const Result<Problem>& problem,
                  const std::string& kernels) {
  if (pack.line_version != 0 && pack.line_version != kLineVersion)
    return fmt::format("written under version {} of the line, this program has {}", pack.line_version,
                       kLineVersion);
  if (!problem) return "its line no longer reads: " + problem.error().text();
  if (pack.line_version != 0 && to_canonical_line(*problem) != recorded.line)
    return "its line now means: " + to_canonical_line(*problem);
  if (!kernels.empty() && !pack.kernels.empty() && kernels != pack.kernels)
    return fmt::format("recorded from kernels {}, these are {}", pack.kernels, kernels);
  return {};
}

Breach other_digest(const std::string& subject, const PlaneData& made, const std::string& recorded) {
  Breach b = complaint("replay", subject, fmt::format("digest {}, expected {}", recorded, digest(made.bytes)),
                       "reference");
  b.of_plane(made.plane);
  b.where = "some element: only a digest was recorded";
  b.of = made.plane.logical.count();
  return b;
}

// The planes whose bytes are recorded, and what was made here of them. Planes of which only a digest is
// recorded are compared at once; where one differs, `differs` is the first in causal order.
struct RecordedPlanes {
  std::vector<PlaneData> got, want;
  const PlaneData* differs = nullptr;
};

Result<RecordedPlanes> recorded_planes(const PackCase& recorded, const std::vector<PlaneData>& made) {
  RecordedPlanes out;
  for (const PlaneData& p : made) {
    const PackPlane* plane = recorded.find(p.plane.name);
    if (!plane) return Error{"plane " + p.plane.name + " is not recorded", 0, ""};
    if (!plane->tensor) {
      if (digest(p.bytes) == plane->digest) continue;
      out.differs = &p;
      return out;
    }
    Result<std::vector<std::byte>> bytes = plane_bytes(*plane->tensor, p.plane);
    if (!bytes) return bytes.error();
    if (!plane->digest.empty() && digest(*bytes) != plane->digest)
      return Error{"plane " + p.plane.name + " does not have its own digest: the pack was changed", 0, ""};
    out.got.push_back({p.plane, std::move(*bytes)});
    out.want.push_back(p);
  }
  return out;
}

}  // namespace

Verdict judge_replay(const Pack& pack, const PackCase& recorded, const Subjects& subjects,
                     const std::string& kernels, const Environment& environment) {
  Verdict v;
  v.subject = pack.subject.empty() ? "pack" : "pack of " + pack.subject;
  v.claims = {"replay"};
  const Result<Problem> problem = parse_line(recorded.line);
  if (std::string why = stale(pack, recorded, problem, kernels); !why.empty())
    return ended(std::move(v), Outcome::stale, std::move(why));
  Subject& reference = subjects.reference();
  if (const Support s = reference.supports(*problem); !s.yes)
    return ended(std::move(v), Outcome::unsupported, "reference: " + s.why);
  const Result<std::vector<PlaneData>> inputs = make_inputs(*problem, reference);
  if (!inputs) return ended(std::move(v), Outcome::failed, "inputs: " + inputs.error().text());
  Execution want = execute(reference, *problem, *inputs, environment);
  for (PlaneData& plane : want.planes) clear_spare(plane);
  if (want.error) return ended(std::move(v), Outcome::failed, "reference: " + *want.error);
  v.seconds = want.seconds;

  const std::optional<std::string> unpinned = unpinned_of(recorded, *problem);
  const Result<RecordedPlanes> planes = recorded_planes(recorded, want.planes);
  if (!planes) return ended(std::move(v), Outcome::failed, planes.error().text());
  if (planes->differs && unpinned) {
    constexpr auto kOnlyDigest =
        "bits that are not pinned (N16.13) are judged by the bound, which needs bytes: a digest alone was "
        "recorded, and it is "
        "another";
    return ended(std::move(v), Outcome::unsupported, kOnlyDigest);
  }
  bool vacuous = false;
  if (const PlaneData* p = planes->differs) {
    v.breaches.push_back(other_digest(v.subject, *p, recorded.find(p->plane.name)->digest));
  } else if (unpinned && !planes->want.empty()) {
    vacuous = judge_unpinned(*problem, *inputs, planes->got, planes->want, *unpinned, reference, v);
  } else if (!planes->want.empty()) {
    const Judgement judgement = judge(&*problem, planes->got, planes->want);
    if (std::optional<Breach> b = parity_breach(*problem, judgement, v.subject, "reference")) {
      b->claim = "replay";
      v.breaches.push_back(std::move(*b));
    }
  }
  if (vacuous && v.breaches.empty()) return ended(std::move(v), Outcome::mistrusted, std::string(kNoBound));
  v.outcome = v.breaches.empty() ? Outcome::passed : Outcome::failed;
  return v;
}

}  // namespace assay

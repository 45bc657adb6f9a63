#include "compare/judge/claims.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/expectations.h"
#include "compare/judge/own_lines.h"
#include "compare/judge/statistics.h"
#include "compare/process/memory.h"
#include "contract/device_memory.h"
#include "contract/dispatch.h"

namespace assay {

namespace {

// N6.7: every byte of every output still holds the poison, whichever that is.
void claim_untouched(const CaseInputs& c, Subject& s, Verdict& v) {
  for (const Environment& env : {c.environment, other_environment(c.problem, c.environment)}) {
    const std::optional<Execution> e = sound_run(c, s, env, v);
    if (!e) return;
    add_kind(v.claims, "untouched");
    for (const PlaneData& p : e->planes) {
      const auto changed = std::find_if(p.bytes.begin(), p.bytes.end(),
                                        [&](std::byte b) { return b != std::byte{env.poison}; });
      if (changed == p.bytes.end()) continue;
      const int64_t byte = changed - p.bytes.begin(), index = 8 * byte / p.plane.bits();
      const Place place = place_of(p.plane, index);
      constexpr auto kMessage =
          "noop is 1.0, so no byte may be written (N6.7); poison {:02X} was overwritten";
      Breach b = complaint("untouched", s.name(), fmt::format(kMessage, env.poison));
      b.at(&c.problem, p.plane, place);
      b.in_padding = false;  // padding is judged like everything else here
      b.got_code = code_at(p.plane, p.bytes, index);
      b.environment = to_text(env);
      v.breaches.push_back(std::move(b));
      return;
    }
  }
}

void claim_parity(const CaseInputs& c, Subject& s, const Execution& got, const Execution& want, Verdict& v) {
  add_kind(v.claims, "parity");
  const Judgement j = judge(&c.problem, got.planes, want.planes);
  if (std::optional<Breach> b = parity_breach(c.problem, j, s.name(), "reference")) {
    look_for_ties(c.problem, c.inputs, got.planes, want.planes, *b);
    b->environment = to_text(c.environment);
    v.breaches.push_back(std::move(*b));
  }
}

void mistrusted(Verdict& v, std::string why) {
  v.outcome = Outcome::mistrusted;
  v.breaches.push_back(complaint("witness", v.subject, "this case could hardly have failed: " + why));
  v.reason = std::move(why);
}

// The reference runs once for all; what it breaks itself counts against every subject that is compared with
// it.
struct ReferenceRun {
  std::optional<Execution> made;
  Verdict verdict;
  std::string weak;  // why the case could hardly fail; empty where it could
  std::string statistics;
};

ReferenceRun run_reference(const CaseInputs& c, Subject& reference, bool laws) {
  ReferenceRun run;
  run.verdict.subject = "reference";
  if (writes_nothing(c.problem)) return run;
  run.made = sound_run(c, reference, c.environment, run.verdict);
  if (!run.made) return run;
  if (laws) {
    run.verdict.breaches =
        check_laws(c.problem, c.inputs, run.made->planes, "reference", &run.verdict.claims);
    claim_own_lines(c, reference, *run.made, run.verdict);
  }
  const std::vector<PlaneWitness> seen = witness(run.made->planes);
  run.weak = mistrust(c.problem, seen);
  run.statistics = to_text(seen);
  return run;
}

bool same_bytes(const Execution& a, const Execution& b) {
  return std::equal(a.planes.begin(), a.planes.end(), b.planes.begin(),
                    [](const PlaneData& x, const PlaneData& y) { return equal_bytes(x.bytes, y.bytes); });
}

// What a subject made, compared with the reference and held to the laws. True where it could not be judged.
bool claim_result(const CaseInputs& c, Subject& s, Subject& reference, const Execution& got,
                  const ReferenceRun& want, bool laws, Verdict& v) {
  bool vacuous = false;
  const std::optional<std::string> unpinned = s.unpinned(c.problem);
  if (unpinned && want.made)
    vacuous = judge_unpinned(c.problem, c.inputs, got.planes, want.made->planes, *unpinned, reference, v);
  else if (want.made) claim_parity(c, s, got, *want.made, v);
  if (!laws) return vacuous;
  if (want.made && same_bytes(got, *want.made)) {  // equal bytes obey the laws as far as the reference's do
    for (const std::string& kind : want.verdict.claims) add_kind(v.claims, kind);
  } else if (!unpinned) {
    for (Breach& b : check_laws(c.problem, c.inputs, got.planes, s.name(), &v.claims))
      v.breaches.push_back(std::move(b));
  }
  claim_own_lines(c, s, got, v);
  return vacuous;
}

Verdict judge_subject(const CaseInputs& c, Subject& s, Subject& reference, const ReferenceRun& want,
                      bool laws) {
  Verdict v;
  v.subject = s.name();
  bool vacuous = false;
  if (writes_nothing(c.problem)) {
    claim_untouched(c, s, v);
  } else if (&s == &reference) {
    v = want.verdict;
  } else {
    const std::optional<Execution> got = sound_run(c, s, c.environment, v);
    if (v.outcome == Outcome::unsupported) return v;
    if (got) vacuous = claim_result(c, s, reference, *got, want, laws, v);
    // A reference that breaks a law vouches for no result.
    for (const Breach& b : want.verdict.breaches) v.breaches.push_back(b);
  }
  v.outcome = v.breaches.empty() ? Outcome::passed : Outcome::failed;
  if (v.outcome != Outcome::passed) return v;
  if (vacuous) mistrusted(v, std::string(kNoBound));
  else if (!want.weak.empty()) mistrusted(v, want.weak);
  return v;
}

Verdict without_run(std::string_view subject, Outcome outcome, std::string reason) {
  Verdict v;
  v.subject = subject;
  v.outcome = outcome;
  v.reason = std::move(reason);
  return v;
}

// Why no subject is asked, or an empty string.
std::string rejection(const Problem& problem, const Subject& reference) {
  if (std::string why = te_rejection(problem); !why.empty()) return why;
  if (const Support s = reference.supports(problem); !s.yes) return "reference: " + s.why;
  return {};
}

// The verdict on a subject that does not run the case; passed where it runs it.
Verdict before_run(const Problem& problem, const std::string& name, const Subject* s,
                   const std::string& rejected) {
  const Support present = s ? s->present() : Support{false, "no subject has this name"};
  if (!present.yes) return without_run(name, Outcome::skipped, present.why);
  if (!rejected.empty()) return without_run(name, Outcome::unsupported, rejected);
  try {
    if (const Support supports = s->supports(problem); !supports.yes)
      return without_run(name, Outcome::unsupported, supports.why);
  } catch (const Trespass& e) {
    Verdict v = without_run(name, Outcome::failed, "");
    v.breaches.push_back(complaint("guard", name, e.what()));
    return v;
  }
  return without_run(name, Outcome::passed, "");
}

std::vector<Verdict> judge_subjects(const Problem& problem, const Subjects& subjects,
                                    const std::vector<std::string>& names, const ClaimOptions& options) {
  Subject& reference = subjects.reference();
  const std::string rejected = rejection(problem, reference);
  std::vector<Verdict> out;
  for (const std::string& name : names)
    out.push_back(before_run(problem, name, subjects.find(name), rejected));
  const auto runs = [](const Verdict& v) { return v.outcome == Outcome::passed; };
  if (std::none_of(out.begin(), out.end(), runs)) return out;

  const std::optional<std::string> lacking = lacks_memory(problem);
  Result<std::vector<PlaneData>> inputs =
      lacking ? Result<std::vector<PlaneData>>(Error{*lacking, 0, ""}) : make_inputs(problem, reference);
  if (!inputs) {
    for (Verdict& v : out) {
      if (!runs(v)) continue;
      v.outcome = Outcome::failed;
      v.breaches.push_back(complaint("run", "inputs", inputs.error().text()));
    }
    return out;
  }
  const CaseInputs c{problem, options.environment, std::move(*inputs)};
  const ReferenceRun want = run_reference(c, reference, options.laws);
  for (Verdict& v : out)
    if (runs(v)) {
      v = judge_subject(c, *subjects.find(v.subject), reference, want, options.laws);
      v.witness = want.statistics;
      if (v.outcome == Outcome::passed && c.problem.x.shape.count() == 0) v.reason = kNoElement;
    }
  return out;
}

}  // namespace

std::vector<Verdict> judge_case(const SuiteEntry& entry, const Subjects& subjects,
                                const std::vector<std::string>& names, const ClaimOptions& options) {
  std::vector<Verdict> out;
  try {
    out = judge_subjects(entry.problem, subjects, names, options);
  } catch (const std::exception& e) {  // of a supports(), of memory
    out.clear();
    for (const std::string& name : names) {
      Verdict v = without_run(name, Outcome::failed, "");
      v.breaches.push_back(complaint("run", name, e.what()));
      out.push_back(std::move(v));
    }
  }
  for (Verdict& v : out) apply_expectation(entry.expect, v);
  return out;
}

}  // namespace assay

#include "compare/judge/runs.h"

#include <cstddef>
#include <string>
#include <utility>

#include "contract/line.h"

namespace assay {

namespace {

constexpr F32Bits kOne = 0x3F800000;

void note_run(Verdict& v, const Execution& e) {
  v.launches += e.served.launches;
  v.seconds += e.seconds;
  if (v.served.empty()) v.served = e.served.by;
}

}  // namespace

bool writes_nothing(const Problem& p) { return noop_of(p) == kOne; }

Environment other_environment(const Problem& problem, const Environment& base) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : to_canonical_line(problem)) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  auto pick = [&](uint64_t n) {
    const uint64_t v = h % n;
    h = h / n * 0x9E3779B97F4A7C15u + 1;
    return v;
  };
  Environment e = base;
  e.order = pick(3) == 0 ? uint64_t{Environment::kReverse} : 2 + pick(1000);
  if (e.order == base.order) e.order = base.order + 2;
  e.threads = base.threads == 1 ? 2 : 1;
  constexpr uint8_t kPoisons[] = {0x00, 0xFF, 0xA5, 0x3C};
  e.poison = kPoisons[pick(4)];
  if (e.poison == base.poison) e.poison = static_cast<uint8_t>(~base.poison);
  constexpr int kAlignments[] = {1, 4, 16, 64};
  e.alignment = kAlignments[pick(4)];
  if (e.alignment == base.alignment) e.alignment = 256;
  return e;
}

std::optional<Execution> sound_run(const CaseInputs& c, Subject& s, const Environment& env, Verdict& v) {
  Execution e = execute(s, c.problem, c.inputs, env);
  note_run(v, e);
  if (e.unsupported) {
    v.outcome = Outcome::unsupported;
    v.reason = *e.error;
    return {};
  }
  add_kind(v.claims, "guard");
  if (!e.error && !e.trespass) return e;
  Breach b = e.error ? complaint("run", s.name(), *e.error) : complaint("guard", s.name(), *e.trespass);
  if (const std::string plane = e.trespass ? e.trespass->substr(0, e.trespass->find(':')) : "";
      find_plane(e.planes, plane) || find_plane(c.inputs, plane))
    b.plane = plane;
  b.environment = to_text(env);
  v.breaches.push_back(std::move(b));
  return {};
}

}  // namespace assay

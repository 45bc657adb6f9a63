#include "tests/self/diagnosis/benchmark.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/process/guarded_run.h"
#include "contract/line.h"

namespace assay {

namespace {

#include "tests/self/diagnosis/cases.inc"
#include "tests/self/diagnosis/later_cases.inc"

constexpr Stage kStageOf[] = {
#define SWITCH(name, stage, what) Stage::stage,
#define OUTSIDE(name, stage, what) Stage::stage,
#define FOREIGN(name, stage, says, what) Stage::stage,
#include "tests/self/diagnosis/switches.def"
#undef SWITCH
#undef OUTSIDE
#undef FOREIGN
};

Problem problem_of(const std::string& text) {
  auto p = parse_line(text);
  if (!p) throw std::runtime_error(text + ": " + p.error().text());
  return *p;
}
Switches switches_of(const Case& c) {
  const auto s = parse_switches(c.switches);
  if (!s) throw std::runtime_error("cases.inc: no switch is called " + std::string(c.switches));
  return *s;
}

std::vector<PlaneData> outputs_of(Subject& s, const Problem& p, const std::vector<PlaneData>& inputs) {
  Execution e = execute(s, p, inputs, Environment{});
  if (e.error) throw std::runtime_error(to_line(p) + ": " + *e.error);
  if (e.trespass) throw std::runtime_error(to_line(p) + ": " + *e.trespass);
  return std::move(e.planes);
}

// Elements that differ, of codes that share a byte each for itself.
std::pair<int64_t, int64_t> differing(const PlaneData& a, const PlaneData& b) {
  const Plane& p = a.plane;
  const bool whole = p.layout == ScaleLayout::gemm || p.packed;
  const int64_t rows = whole ? 1 : p.logical.rows,
                cols = whole ? static_cast<int64_t>(p.bytes()) : p.logical.cols,
                pitch = whole ? cols : p.padded.cols;
  const auto width = whole ? size_t{1} : static_cast<size_t>(info(p.encoding).bytes());
  int64_t n = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const size_t at = static_cast<size_t>(r * pitch + c) * width;
      if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, width) == 0) continue;
      const unsigned x = static_cast<unsigned>(a.bytes[at] ^ b.bytes[at]);
      n += p.packed ? (x & 15 ? 1 : 0) + (x >> 4 ? 1 : 0) : 1;
    }
  return {n, p.packed ? 2 * cols : rows * cols};
}

// What the bytes show first.
Stage shown_stage(const Plane& p) {
  if (p.name.ends_with("amax")) return Stage::amax;
  if (p.encoding == Encoding::f32 && p.logical.count() == 1) return Stage::tensor_scale;
  return p.name.ends_with("data") ? Stage::code : Stage::block_scale;
}

// What may be said: a stage from the switch's own to the one whose plane shows it first. Of codes and scales
// that are right but stand elsewhere, their own stage alone.
bool right_stage(const Case& c, const Revealed& r, Stage said) {
  std::optional<Stage> shown;
  for (size_t i = 0; i < r.right.size() && !shown; ++i)
    if (differing(r.right[i], r.wrong[i]).first) shown = shown_stage(r.right[i].plane);
  const Switches on = switches_of(c);
  for (size_t i = 0; i < std::size(kSwitches); ++i)
    if (on[i] && (said == kStageOf[i] || (said >= kStageOf[i] && said <= *shown))) return true;
  return false;
}

// What has to be said of a case that no rule foretells: of all its switches that have such words, these. Of a
// case that follows rules none of the words may be said.
Found said_of(const Case& c, const Diagnosis& d, Found otherwise) {
  const Switches on = switches_of(c);
  bool due = false, all = true, wrongly = false;
  for (size_t i = 0; i < std::size(kSwitches); ++i) {
    if (kSwitches[i].says.empty()) continue;
    const bool said = std::any_of(d.fingerprints.begin(), d.fingerprints.end(), [&](const std::string& text) {
      return text.find(kSwitches[i].says) != std::string::npos;
    });
    due |= on[i];
    if (on[i]) all &= said;
    bool wanted = false;  // by another switch with the same words
    for (size_t k = 0; k < std::size(kSwitches); ++k)
      wanted |= on[k] && kSwitches[k].says == kSwitches[i].says;
    wrongly |= said && !wanted;
  }
  return wrongly ? Found::wrong_class : due && all ? Found::told : otherwise;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

std::string text_of(const Case& c) {
  return std::string(c.line) + (c.extra.empty() ? "" : " ") + std::string(c.extra);
}

std::vector<Case> cases(CaseKind kind) {
  const auto rows = [kind]() -> std::span<const Case> {
    switch (kind) {
      case CaseKind::single: return kSingles;
      case CaseKind::doubled: return kDoubles;
      case CaseKind::outside: return kOutside;
      case CaseKind::later_single: return kLaterSingles;
      case CaseKind::later_doubled: return kLaterDoubles;
    }
    return {};
  }();
  std::vector<Case> out(rows.begin(), rows.end());
  for (Case& c : out) c.kind = kind;
  return out;
}

bool same_planes(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].bytes.size() != b[i].bytes.size() || differing(a[i], b[i]).first) return false;
  return true;
}

std::optional<Revealed> reveal(const Case& c, const RevealOptions& options, Subject& reference) {
  const Switches on = switches_of(c);
  const auto faulty = make_faulty_quantizer(on), sound = make_faulty_quantizer({});
  std::vector<std::unique_ptr<Subject>> without;  // of several switches, all but one: each has to show
  for (size_t i = 0; i < on.size() && on.count() > 1; ++i)
    if (on[i]) without.push_back(make_faulty_quantizer(Switches(on).reset(i)));
  Problem p = problem_of(text_of(c));
  if (options.fill) p.x.fill.kind = *options.fill;
  if (options.shape) p.x.shape = *options.shape;
  // Parity of the seed says whether a nonfinite fill holds infinities.
  const uint64_t step = p.x.fill.kind == FillKind::nonfinite ? 2 : 1,
                 begin = options.first + (step == 2 ? (options.first ^ p.x.fill.seed) & 1 : 0);
  for (int i = 0; i < options.tries; ++i) {
    const uint64_t seed = begin + static_cast<uint64_t>(i) * step;
    if (draws(p)) p.rng.seed += seed - p.x.fill.seed;
    p.x.fill.seed = seed;
    auto inputs = make_inputs(p, reference);
    if (!inputs) throw std::runtime_error(to_line(p) + ": " + inputs.error().text());
    Revealed r{p, std::move(*inputs), {}, {}};
    r.right = outputs_of(*sound, p, r.inputs);
    r.wrong = outputs_of(*faulty, p, r.inputs);
    if (!same_planes(r.right, r.wrong) && std::none_of(without.begin(), without.end(), [&](const auto& s) {
          return same_planes(outputs_of(*s, p, r.inputs), r.wrong);
        }))
      return r;
  }
  return std::nullopt;
}

std::string_view name_of(Found j) {
  static constexpr std::string_view kNames[] = {"invisible", "named",       "in class",
                                                "told",      "wrong class", "wrongly certain",
                                                "partial",   "unexplained", "failed"};
  return kNames[static_cast<size_t>(j)];
}

Named judge_case(const Case& c, Subject& reference, int jobs) {
  Named out;
  out.asked = c;
  const auto seen = reveal(c, {}, reference);
  if (!seen) return out.says = "no input shows it", out;
  out.line = to_line(seen->problem);
  for (size_t i = 0; i < seen->right.size(); ++i)
    if (const auto [n, of] = differing(seen->right[i], seen->wrong[i]); n)
      out.shows += (out.shows.empty() ? "" : ", ") + seen->right[i].plane.name + " " + std::to_string(n) +
                   " of " + std::to_string(of);

  DiagnoseOptions options;
  options.jobs = jobs;
  const double begin = cpu_seconds();
  const auto d = diagnose({seen->problem, "faulty", seen->inputs, seen->wrong}, reference, options);
  out.seconds = cpu_seconds() - begin;
  out.found = Found::failed;
  if (!d) return out.says = d.error().text(), out;
  out.first = d->first;
  out.right_stage = d->first && right_stage(c, *seen, *d->first);
  out.evaluations = d->evaluations;
  if (!d->explanations.empty()) {
    const Explanation& best = d->explanations.front();
    out.says = best.title;
    out.repaired = best.differ ? static_cast<double>(best.repaired) / static_cast<double>(best.differ) : 0;
  }
  if (d->confidence == Confidence::partial || d->confidence == Confidence::unexplained) {
    out.found = said_of(c, *d, d->confidence == Confidence::partial ? Found::partial : Found::unexplained);
    if (out.found == Found::told || out.found == Found::wrong_class)
      out.says = d->fingerprints.empty() ? "" : d->fingerprints.front();
    return out;
  }
  if (d->confidence == Confidence::equal || d->confidence == Confidence::random)
    return out.says = "says " + std::string(name_of(d->confidence)), out;

  // Held out: another seed, and where the line's own fill leaves room for it another kind of fill, which is
  // only reported.
  const auto held = reveal(c, {.first = seen->problem.x.fill.seed + 1000}, reference);
  const auto other =
      reveal(c,
             {.first = 5,
              .tries = 1,
              .fill = seen->problem.x.fill.kind == FillKind::normal ? FillKind::wide : FillKind::normal},
             reference);
  if (!held) throw std::runtime_error(out.line + ": no held-out fill shows " + std::string(c.switches));
  bool right = false;
  for (const Explanation& e : d->explanations) {
    if (!e.exact()) continue;
    ++out.exact;
    const auto predicts = [&](const Revealed& r) {
      const auto made = predict(e, r.problem, r.inputs, reference);
      if (!made) out.says = e.title + ": " + made.error().text();
      return made && same_planes(*made, r.wrong);
    };
    if (!predicts(*held)) continue;
    right = true;
    out.says = e.title;
    out.elsewhere |= !other || predicts(*other);
  }
  if (d->confidence == Confidence::certain) out.found = right ? Found::named : Found::wrongly_certain;
  else out.found = right ? Found::in_class : Found::wrong_class;
  return out;
}

void Tally::add(const Named& r) {
  seconds += r.seconds;
  if (r.found == Found::invisible) return void(++invisible);
  ++counted;
  right_stage += r.right_stage;
  switch (r.found) {
    case Found::named: ++named; break;
    case Found::in_class: ++in_class; break;
    case Found::told: ++told; break;
    case Found::wrong_class: ++wrong_class; break;
    case Found::wrongly_certain: ++wrongly_certain; break;
    case Found::partial: ++partial; break;
    case Found::unexplained: ++unexplained; break;
    default: ++failed; break;
  }
}
Tally tally(std::span<const Named> results) {
  Tally t;
  for (const Named& r : results) t.add(r);
  return t;
}

}  // namespace assay

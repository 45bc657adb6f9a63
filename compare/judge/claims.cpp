#include "compare/judge/claims.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include <fmt/format.h>

#include "compare/arithmetic/expected_values.h"
#include "contract/dispatch.h"
#include "contract/line.h"

namespace assay {

namespace {

constexpr std::string_view kOutcomes[] = {"passed", "failed", "mistrusted", "unsupported", "skipped", "crashed", "stale"};
constexpr F32Bits kOne = 0x3F800000;

void add_kind(std::vector<std::string>& kinds, std::string_view kind) {
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.emplace_back(kind);
}

Breach complaint(std::string claim, std::string_view got, std::string message) {
  Breach b;
  b.claim = std::move(claim);
  b.got = got;
  b.message = std::move(message);
  return b;
}

std::string line_of(const PlaneDifference& d, bool explain) {
  std::string out = fmt::format("{} ({})   {} of {} differ", d.plane.name, info(d.plane.encoding).name, d.differ, d.of);
  if (!explain) return out;
  if (d.explained == d.differ) return out + ", all inside the blocks that the cause affects";
  return out + fmt::format(", {} inside the blocks that the cause affects", d.explained);
}

void describe_difference(Breach& b, const Problem& problem, const PlaneDifference& d) {
  b.plane = d.plane.name;
  b.encoding = info(d.plane.encoding).name;
  b.where = place_text(&problem, d.plane, d.place);
  b.row = d.place.row;
  b.col = d.place.col;
  b.in_padding = d.in_padding;
  b.differ = d.differ;
  b.of = d.of;
  b.got_code = d.got;
  b.want_code = d.want;
  b.apart = d.apart;
}

// A second Environment for a line: another order, number of threads, poison and alignment, chosen by the line so that a suite covers
// many and a line always the same.
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

// Everything about one case that does not depend on the judged subject.
struct Case {
  const Problem& problem;
  const ClaimOptions& options;
  std::vector<PlaneData> inputs;
};

void note_run(Verdict& v, const Execution& e) {
  v.launches += e.served.launches;
  v.seconds += e.seconds;
  if (v.served.empty()) v.served = e.served.by;
}

// Runs a subject; a throw or a write outside the buffers is a breach, and then nothing else is claimed.
std::optional<Execution> sound_run(const Case& c, Subject& s, const Environment& env, Verdict& v) {
  Execution e = execute(s, c.problem, c.inputs, env);
  note_run(v, e);
  if (e.unsupported) {
    v.outcome = Outcome::unsupported;
    v.reason = *e.error;
    return {};
  }
  add_kind(v.claims, "guard");
  Breach b;
  if (e.error) b = complaint("run", s.name(), *e.error);
  else if (e.trespass) b = complaint("guard", s.name(), *e.trespass);
  else return e;
  if (const size_t colon = e.trespass ? e.trespass->find(':') : std::string::npos; colon != std::string::npos) b.plane = e.trespass->substr(0, colon);
  b.environment = to_text(env);
  v.breaches.push_back(std::move(b));
  return {};
}

// N6.7: every byte of every output still holds the poison, whichever that is.
void claim_untouched(const Case& c, Subject& s, Verdict& v) {
  for (const Environment& env : {c.options.environment, other_environment(c.problem, c.options.environment)}) {
    const std::optional<Execution> e = sound_run(c, s, env, v);
    if (!e) return;
    add_kind(v.claims, "untouched");
    for (const PlaneData& p : e->planes) {
      const auto changed = std::find_if(p.bytes.begin(), p.bytes.end(), [&](std::byte b) { return b != std::byte{env.poison}; });
      if (changed == p.bytes.end()) continue;
      const int64_t byte = changed - p.bytes.begin(), index = p.plane.packed ? 2 * byte : byte / info(p.plane.encoding).bytes();
      const Place place = place_of(p.plane, index);
      Breach b = complaint("untouched", s.name(), fmt::format("noop is 1.0, so no byte may be written (N6.7); poison {:02X} was overwritten", env.poison));
      b.plane = p.plane.name;
      b.encoding = info(p.plane.encoding).name;
      b.where = place_text(&c.problem, p.plane, place);
      b.row = place.row;
      b.col = place.col;
      b.got_code = code_at(p.plane, p.bytes, index);
      b.environment = to_text(env);
      v.breaches.push_back(std::move(b));
      return;
    }
  }
}

void claim_spare(Subject& s, const Execution& e, const Environment& env, Verdict& v);

void claim_repeat(const Case& c, Subject& s, const Execution& first, Verdict& v) {
  const Environment env = other_environment(c.problem, c.options.environment);
  const std::optional<Execution> again = sound_run(c, s, env, v);
  if (!again) return;
  add_kind(v.claims, "repeat");
  claim_spare(s, *again, env, v);
  const Judgement j = judge(&c.problem, again->planes, first.planes);
  std::optional<Breach> b = parity_breach(c.problem, j, std::string(s.name()) + " again", s.name());
  if (!b && !j.padding.empty()) {
    b = complaint("repeat", std::string(s.name()) + " again", "");
    b->want = s.name();
    describe_difference(*b, c.problem, j.padding[0]);
  }
  if (!b) return;
  b->claim = "repeat";
  b->environment = to_text(env);
  b->hint = "equal inputs gave other bytes under another environment: a race, an unwritten byte (poison), or a read outside";
  v.breaches.push_back(std::move(*b));
}

// A line whose input is no fill's: a recording of the fill's line must not answer, and no repro may pretend to be it.
void forget_fill(Problem& p) { p.x.fill = {FillKind::literal, 0, 0, 0, "00"}; }

// N9.6: what remains of a binary32 scale is its exponent, and all copies become the first one.
bool blocks_agree(const Quantizer& q, const PlaneData& input, int64_t r, int64_t col, uint32_t got) {
  if (input.plane.layout == ScaleLayout::gemm)
    return got == code_at(input.plane, input.bytes, index_of(input.plane, is_square(q.block) ? r / length_of(q.block) * length_of(q.block) : r, col / 4 * 4));
  const double kept = value_of(Encoding::e8m0, code_at(input.plane, input.bytes, index_of(input.plane, r, col)) >> 23 & 0xFF);
  return std::isnan(kept) ? is_nan(Encoding::f32, got) : value_of(Encoding::f32, got) == kept;
}

// Swizzle there and back through the subject gives the entries that are kept (N6.5, N6.6); the laws have already judged each way's places.
void claim_round_trip(const Case& c, Subject& s, const Execution& first, Verdict& v) {
  const Swizzle* op = c.problem.as<Swizzle>();
  if (!op) return;
  Problem back = c.problem;
  back.as<Swizzle>()->inverse = !op->inverse;
  forget_fill(back);
  if (!s.supports(back).yes) return;
  std::vector<PlaneData> inputs;
  for (const Plane& plane : input_planes(back)) {
    for (const PlaneData& p : first.planes)
      if (p.plane.name == plane.name) inputs.push_back({plane, p.bytes});
    if (inputs.empty()) return;
  }
  const Case reversed{back, c.options, std::move(inputs)};
  const std::optional<Execution> e = sound_run(reversed, s, c.options.environment, v);
  if (!e) return;
  add_kind(v.claims, "round-trip");
  const PlaneData &got = e->planes[0], &want = c.inputs[0];
  const Direction d = c.problem.row ? Direction::row : Direction::col;
  const Quantizer& q = *c.problem.quantizer(d);
  Shape kept = want.plane.logical;
  const bool floored = q.numerics.swizzle_extent == SwizzleExtent::floor;
  if (floored && d == Direction::row) kept.cols = c.problem.x.shape.cols / 32;
  if (floored && d == Direction::col) kept.rows = c.problem.x.shape.rows / 32;
  for (int64_t r = 0; r < kept.rows; ++r)
    for (int64_t col = 0; col < kept.cols; ++col) {
      const uint32_t g = code_at(got.plane, got.bytes, index_of(got.plane, r, col));
      const uint32_t w = code_at(want.plane, want.bytes, index_of(want.plane, r, col));
      if (g == w || (q.format == FormatId::fp8_block && blocks_agree(q, want, r, col, g))) continue;
      Breach b = complaint("round-trip", s.name(), "there and back is not the input");
      b.plane = got.plane.name;
      b.encoding = info(got.plane.encoding).name;
      b.where = fmt::format("row {}, column {} of the scales", r, col);
      b.row = r;
      b.col = col;
      b.got_code = g;
      b.want_code = w;
      v.breaches.push_back(std::move(b));
      return;
    }
}

// Where every first difference of data planes is a tie of the scaled value, the hint says so.
void look_for_ties(const Case& c, const Execution& want, const std::vector<PlaneData>& got, Breach& b) {
  if (!c.problem.as<Quantize>() || b.plane.find(".data") == std::string::npos || b.apart != 1) return;
  const Direction d = b.plane.starts_with("row") ? Direction::row : Direction::col;
  const PlaneData *data = find_plane(want.planes, b.plane), *mine = find_plane(got, b.plane);
  if (!data || !mine || !info(c.problem.quantizer(d)->format).scale) return;
  const ScaledValues scaled(c.problem, d, c.inputs, want.planes);
  const Encoding e = data->plane.encoding;
  int64_t ties = 0, differing = 0;
  for (int64_t i = 0; i < data->plane.padded.count() && differing < 100000; ++i) {
    const uint32_t w = code_at(data->plane, data->bytes, i), g = code_at(mine->plane, mine->bytes, i);
    if (w == g) continue;
    ++differing;
    const Place at = place_of(data->plane, i);
    const auto v = at.padding ? std::nullopt : scaled.at(at.row, at.col);
    ties += v && std::fabs(std::fabs(value_of(e, w) - v->value) - step_at(e, v->value) / 2) <= v->slack;
  }
  if (ties == differing) b.hint = "one code apart, and only where the scaled value is a tie: rounding rule, not layout";
}

// The planes of direction d, as another line's outputs are asked for.
std::vector<PlaneData> of_direction(const std::vector<PlaneData>& planes, Direction d) {
  std::vector<PlaneData> out;
  for (const PlaneData& p : planes)
    if (p.plane.direction == d) out.push_back(p);
  return out;
}

// Runs the subject on another line and compares what it makes with `got`; a breach is of claim `kind`.
void claim_line(const Case& other, Subject& s, const std::vector<PlaneData>& got, const std::string& kind, std::string_view name, Verdict& v) {
  const std::optional<Execution> want = sound_run(other, s, other.options.environment, v);
  if (!want) return;
  add_kind(v.claims, kind);
  std::optional<Breach> b = parity_breach(other.problem, judge(&other.problem, got, want->planes), s.name(), s.name());
  if (!b) return;
  b->claim = kind;
  b->want = fmt::format("{} of its own {}", s.name(), name);
  b->hint = "wanted: the same subject on " + to_line(other.problem);
  b->environment = to_text(other.options.environment);
  v.breaches.push_back(std::move(*b));
}

// The inputs of a line of one direction: x, what the direction is given, and noop.
std::vector<PlaneData> inputs_for(const Problem& one, const std::vector<PlaneData>& inputs, const PlaneData* x) {
  std::vector<PlaneData> out;
  for (const Plane& plane : input_planes(one))
    if (const PlaneData* p = plane.name == "x" && x ? x : find_plane(inputs, plane.name)) out.push_back({plane, p->bytes});
  return out;
}

// The rows of a pair, dequantized by the subject's own line to the encoding of x; nothing where it has none.
std::optional<PlaneData> dequantized_rows(const Case& c, Subject& s, const Execution& pair, Verdict& v) {
  Problem back = c.problem;
  back.op = Dequantize{c.problem.x.source, CodesFrom::codes};
  back.col.reset();
  back.flavour = Flavour::assay;
  forget_fill(back);
  Quantizer &q = *back.row, plain;
  plain.format = q.format;
  plain.element = q.element;
  plain.block = q.block;
  plain.row_scaled = q.row_scaled;
  plain.four_over_six = q.four_over_six;
  plain.e4m3_max = q.e4m3_max;
  plain.scales = q.scales;
  plain.pow2 = q.pow2;
  q = plain;
  if (!s.supports(back).yes) return {};
  std::vector<PlaneData> inputs;
  for (const Plane& plane : input_planes(back)) {
    const PlaneData* p = find_plane(pair.planes, plane.name);
    if (!p) p = find_plane(c.inputs, plane_name(Direction::row, "given.amax"));   // N10.15: of a given amax there is no output
    if (!p) return {};
    inputs.push_back({plane, p->bytes});
  }
  const Case dequantize{back, c.options, std::move(inputs)};
  std::optional<Execution> e = sound_run(dequantize, s, c.options.environment, v);
  if (!e) return {};
  return std::move(e->planes[0]);
}

constexpr std::string_view kHybrid = "hybrid", kMember = "member";

// N13.2: the directions of a pair are the vanilla lines of their formats; of A/A the one-read launch equals two launches of one direction.
// TransformerEngine's draws count both directions of a launch (docs/draws.md), so that they are of the launch and not of a direction.
void claim_hybrid(const Case& c, Subject& s, const Execution& pair, Verdict& v) {
  const Problem& p = c.problem;
  if (!p.as<Quantize>() || !p.row || !p.col) return;
  for (Direction d : kDirections)
    if (p.quantizer(d)->round == Round::sr && p.quantizer(d)->numerics.draw != Draw::logical) return;
  const bool of_rows = p.col_source == ColSource::row_dequantized, same = p.row->format == p.col->format && !of_rows;
  for (Direction d : kDirections) {
    Problem one = p;
    one.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
    one.flavour = Flavour::assay;                                         // its Numerics are resolved
    one.col_source = ColSource::original;
    std::optional<PlaneData> x;
    if (d == Direction::col && of_rows) {
      x = dequantized_rows(c, s, pair, v);
      if (!x) continue;
      forget_fill(one);
    }
    if (!s.supports(one).yes) continue;
    const Case vanilla{one, c.options, inputs_for(one, c.inputs, x ? &*x : nullptr)};
    claim_line(vanilla, s, of_direction(pair.planes, d), std::string(kHybrid) + (same ? ".same" : d == Direction::row ? ".row" : ".col"), name_of(d), v);
  }
}

// N14.2, N14.5: every member of a split is its own line.
void claim_members(const Case& c, Subject& s, const Execution& all, Verdict& v) {
  if (!c.problem.as<Split>()) return;
  const std::vector<Problem> members = member_problems(c.problem);
  const size_t before = v.breaches.size();
  for (size_t m = 0; m < members.size() && v.breaches.size() == before; ++m) {
    if (!s.supports(members[m]).yes) continue;
    const Case one{members[m], c.options, planes_of_member(c.inputs, m)};
    claim_line(one, s, planes_of_member(all.planes, m), std::string(kMember), fmt::format("member {}", m), v);
    if (v.breaches.size() > before && !v.breaches.back().plane.empty()) v.breaches.back().plane += fmt::format("[{}]", m);
  }
}

// N14.6: what stands beyond the members keeps its bytes.
void claim_spare(Subject& s, const Execution& e, const Environment& env, Verdict& v) {
  for (const PlaneData& p : e.planes) {
    if (p.plane.padding != Padding::untouched) continue;
    add_kind(v.claims, "untouched");
    const size_t used = p.plane.bytes_of(p.plane.logical.cols);
    const auto changed = std::find_if(p.bytes.begin() + static_cast<std::ptrdiff_t>(used), p.bytes.end(), [&](std::byte b) { return b != std::byte{env.poison}; });
    if (changed == p.bytes.end()) continue;
    Breach b = complaint("untouched", s.name(), fmt::format("byte {} beyond the members was written: {:02X}, poison {:02X} (N14.6)", changed - p.bytes.begin() - static_cast<std::ptrdiff_t>(used),
                                                            std::to_integer<unsigned>(*changed), env.poison));
    b.plane = p.plane.name;
    b.environment = to_text(env);
    v.breaches.push_back(std::move(b));
    return;
  }
}

void claim_parity(const Case& c, Subject& s, const Execution& got, const Execution& want, Verdict& v) {
  add_kind(v.claims, "parity");
  const Judgement j = judge(&c.problem, got.planes, want.planes);
  if (std::optional<Breach> b = parity_breach(c.problem, j, s.name(), "reference")) {
    look_for_ties(c, want, got.planes, *b);
    b->environment = to_text(c.options.environment);
    v.breaches.push_back(std::move(*b));
  }
}

// What a subject's result must be by other results of its own.
void claim_own_lines(const Case& c, Subject& s, const Execution& got, Verdict& v) {
  claim_spare(s, got, c.options.environment, v);
  claim_repeat(c, s, got, v);
  claim_round_trip(c, s, got, v);
  claim_hybrid(c, s, got, v);
  claim_members(c, s, got, v);
}

void mistrusted(Verdict& v, std::string why) {
  v.outcome = Outcome::mistrusted;
  v.breaches.push_back(complaint("witness", v.subject, "this case could hardly have failed: " + why));
  v.reason = std::move(why);
}

Verdict one_subject(const Case& c, Subject& s, Subject& reference, const std::optional<Execution>& want, const Verdict& reference_verdict) {
  Verdict v;
  v.subject = s.name();
  bool vacuous = false;
  if (writes_nothing(c.problem)) {
    claim_untouched(c, s, v);
  } else if (&s == &reference) {
    v = reference_verdict;
  } else {
    const std::optional<Execution> got = sound_run(c, s, c.options.environment, v);
    if (v.outcome == Outcome::unsupported) return v;
    if (got) {
      const bool may_compare = want.has_value();
      const std::optional<std::string> unpinned = s.unpinned(c.problem);
      if (unpinned && may_compare) vacuous = judge_unpinned(c.problem, c.inputs, got->planes, want->planes, *unpinned, v);
      else if (may_compare) claim_parity(c, s, *got, *want, v);
      if (c.options.laws) {
        bool same = may_compare;
        for (size_t i = 0; same && i < got->planes.size(); ++i) same = got->planes[i].bytes == want->planes[i].bytes;
        if (same) {   // equal bytes obey the laws as far as the reference's do
          for (const std::string& kind : reference_verdict.claims) add_kind(v.claims, kind);
        } else if (!unpinned) {
          for (Breach& b : check_laws(c.problem, c.inputs, got->planes, s.name(), &v.claims)) v.breaches.push_back(std::move(b));
        }
        claim_own_lines(c, s, *got, v);
      }
    }
    for (const Breach& b : reference_verdict.breaches) v.breaches.push_back(b);   // a reference that breaks a law vouches for nobody
  }
  v.outcome = v.breaches.empty() ? Outcome::passed : Outcome::failed;
  if (v.outcome == Outcome::passed && vacuous) mistrusted(v, std::string(kNoBound));
  return v;
}

// What the suite's annotation makes of an outcome.
void apply_expectation(const Expectation& expect, Verdict& v) {
  auto turn_red = [&](std::string message) {
    v.outcome = Outcome::failed;
    v.breaches.insert(v.breaches.begin(), complaint("expect", v.subject, std::move(message)));
  };
  if (expect.unsupported) {
    if (v.outcome == Outcome::unsupported) {
      v.outcome = Outcome::passed;
      v.reason = "unsupported, as expected: " + v.reason;
    } else if (v.outcome != Outcome::skipped) {
      turn_red("expected to be unsupported, but " + v.subject + " ran it: remove the annotation");
    }
    return;
  }
  if (expect.fail) {
    const std::string expected = fmt::format("expected to fail{} because {}", expect.fail->plane.empty() ? "" : " at " + expect.fail->plane, expect.fail->because);
    if (v.outcome == Outcome::passed || v.outcome == Outcome::mistrusted) {
      turn_red(expected + ", but it passes: remove the annotation");
    } else if (v.outcome == Outcome::failed) {
      if (expect.fail->plane.empty() || (!v.breaches.empty() && v.breaches[0].plane == expect.fail->plane)) {
        v.outcome = Outcome::passed;
        v.reason = "fails as " + expected;
        v.breaches.clear();
      } else {
        turn_red(expected + ", but it fails first at " + (v.breaches.empty() || v.breaches[0].plane.empty() ? "no plane" : v.breaches[0].plane));
      }
    }
    return;
  }
  if (expect.trust && v.outcome == Outcome::mistrusted) {
    v.outcome = Outcome::passed;
    v.reason = "trusted because " + *expect.trust;
    v.breaches.clear();
  }
}

Verdict without_run(std::string_view subject, Outcome outcome, std::string reason) {
  Verdict v;
  v.subject = subject;
  v.outcome = outcome;
  v.reason = std::move(reason);
  return v;
}

std::vector<Verdict> judge_subjects(const Problem& problem, const Subjects& subjects, const std::vector<std::string>& names, const ClaimOptions& options) {
  std::vector<Verdict> out;
  Subject& reference = subjects.reference();
  std::string rejected;
  if (problem.flavour == Flavour::te)
    if (const TeKernel kernel = te_kernel(problem); !kernel.rejected.empty()) rejected = kernel.rejected;
  if (rejected.empty())
    if (const Support s = reference.supports(problem); !s.yes) rejected = "reference: " + s.why;

  std::vector<Subject*> running;
  for (const std::string& name : names) {
    Subject* s = subjects.find(name);
    Support present = s ? s->present() : Support{false, "there is no subject of this name"};
    Support supports = present.yes && rejected.empty() ? s->supports(problem) : Support{};
    const bool runs = present.yes && rejected.empty() && supports.yes;
    running.push_back(runs ? s : nullptr);
    if (!present.yes) out.push_back(without_run(name, Outcome::skipped, present.why));
    else if (!rejected.empty()) out.push_back(without_run(name, Outcome::unsupported, rejected));
    else if (!supports.yes) out.push_back(without_run(name, Outcome::unsupported, supports.why));
    else out.push_back(without_run(name, Outcome::passed, ""));
  }
  if (std::all_of(running.begin(), running.end(), [](Subject* s) { return s == nullptr; })) return out;

  Result<std::vector<PlaneData>> inputs = make_inputs(problem, reference);
  if (!inputs) {
    for (size_t i = 0; i < out.size(); ++i) {
      if (!running[i]) continue;
      out[i].outcome = Outcome::failed;
      out[i].breaches.push_back(complaint("run", "inputs", inputs.error().text()));
    }
    return out;
  }
  const Case c{problem, options, std::move(*inputs)};

  // The reference runs once for all; what it breaks itself counts against every subject that is compared with it.
  Verdict of_reference;
  of_reference.subject = "reference";
  std::optional<Execution> want;
  std::string weak, seen;
  if (!writes_nothing(problem)) {
    want = sound_run(c, reference, options.environment, of_reference);
    if (want) {
      if (options.laws) {
        for (Breach& b : check_laws(problem, c.inputs, want->planes, "reference", &of_reference.claims)) of_reference.breaches.push_back(std::move(b));
        claim_own_lines(c, reference, *want, of_reference);
      }
      const std::vector<PlaneWitness> statistics = witness(want->planes);
      weak = mistrust(problem, statistics);
      seen = to_text(statistics);
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!running[i]) continue;
    out[i] = one_subject(c, *running[i], reference, want, of_reference);
    out[i].witness = seen;
    if (out[i].outcome == Outcome::passed && !weak.empty()) mistrusted(out[i], weak);
  }
  return out;
}

json::Value strings(const std::vector<std::string>& list) {
  json::Value out = json::array();
  for (const std::string& s : list) out.push(s);
  return out;
}

json::Value to_json(const Breach& b) {
  json::Value v = json::object({{"claim", b.claim}, {"got", b.got}});
  auto text = [&](const char* key, const std::string& s) {
    if (!s.empty()) v.set(key, s);
  };
  text("want", b.want);
  text("message", b.message);
  text("plane", b.plane);
  text("encoding", b.encoding);
  text("where", b.where);
  if (b.row >= 0) {
    v.set("row", b.row);
    v.set("col", b.col);
  }
  if (b.in_padding) v.set("in_padding", true);
  if (b.of) {
    v.set("differ", b.differ);
    v.set("of", b.of);
  }
  if (b.got_code) v.set("got_code", *b.got_code);
  if (b.want_code) v.set("want_code", *b.want_code);
  if (b.apart) v.set("apart", *b.apart);
  if (!b.after.empty()) v.set("after", strings(b.after));
  text("hint", b.hint);
  text("environment", b.environment);
  return v;
}

// Members that are absent keep their defaults.
struct Reader {
  const json::Value& v;
  std::string text(const char* key) const { return std::string(v.text(key)); }
  std::optional<int64_t> integer(const char* key) const {
    const json::Value* m = v.find(key);
    return m ? m->to_int() : std::nullopt;
  }
  std::vector<std::string> list(const char* key) const {
    std::vector<std::string> out;
    const json::Value* m = v.find(key);
    if (m && m->array())
      for (const json::Value& e : *m->array())
        if (e.string()) out.push_back(*e.string());
    return out;
  }
};

Breach breach_from_json(const json::Value& value) {
  const Reader in{value};
  Breach b;
  b.claim = in.text("claim");
  b.got = in.text("got");
  b.want = in.text("want");
  b.message = in.text("message");
  b.plane = in.text("plane");
  b.encoding = in.text("encoding");
  b.where = in.text("where");
  b.row = in.integer("row").value_or(-1);
  b.col = in.integer("col").value_or(-1);
  b.in_padding = value.find("in_padding") != nullptr;
  b.differ = in.integer("differ").value_or(0);
  b.of = in.integer("of").value_or(0);
  if (const auto c = in.integer("got_code")) b.got_code = static_cast<uint32_t>(*c);
  if (const auto c = in.integer("want_code")) b.want_code = static_cast<uint32_t>(*c);
  b.apart = in.integer("apart");
  b.after = in.list("after");
  b.hint = in.text("hint");
  b.environment = in.text("environment");
  return b;
}

}  // namespace

bool writes_nothing(const Problem& p) {
  return noop_of(p) == kOne;
}

std::string_view name_of(Outcome o) { return kOutcomes[static_cast<size_t>(o)]; }

std::optional<Outcome> outcome_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kOutcomes); ++i)
    if (kOutcomes[i] == name) return static_cast<Outcome>(i);
  return {};
}

json::Value to_json(const Verdict& v) {
  json::Value out = json::object({{"subject", v.subject}, {"outcome", name_of(v.outcome)}});
  if (!v.reason.empty()) out.set("reason", v.reason);
  if (!v.breaches.empty()) {
    json::Value list = json::array();
    for (const Breach& b : v.breaches) list.push(to_json(b));
    out.set("breaches", std::move(list));
  }
  out.set("claims", strings(v.claims));
  out.set("launches", v.launches);
  if (!v.served.empty()) out.set("served", v.served);
  if (!v.witness.empty()) out.set("witness", v.witness);
  if (!v.unpinned.empty()) {
    out.set("unpinned", v.unpinned);
    out.set("inside", v.inside);
  }
  if (!v.excluded.empty()) out.set("excluded", v.excluded);
  if (!v.about.empty()) out.set("about", strings(v.about));
  out.set("seconds", v.seconds);
  return out;
}

Result<Verdict> verdict_from_json(const json::Value& value) {
  const Reader in{value};
  Verdict v;
  v.subject = in.text("subject");
  const std::optional<Outcome> outcome = outcome_named(in.text("outcome"));
  if (!outcome) return Error{"a verdict needs an outcome, found '" + in.text("outcome") + "'", 0, ""};
  v.outcome = *outcome;
  v.reason = in.text("reason");
  if (const json::Value* list = value.find("breaches"); list && list->array())
    for (const json::Value& b : *list->array()) v.breaches.push_back(breach_from_json(b));
  v.claims = in.list("claims");
  v.launches = static_cast<int>(in.integer("launches").value_or(0));
  v.served = in.text("served");
  v.witness = in.text("witness");
  v.unpinned = in.text("unpinned");
  v.inside = in.integer("inside").value_or(0);
  v.excluded = in.text("excluded");
  v.about = in.list("about");
  if (const json::Value* s = value.find("seconds")) v.seconds = s->to_double().value_or(0);
  return v;
}

bool judge_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got, const std::vector<PlaneData>& want, const std::string& why, Verdict& v) {
  v.unpinned = why;
  const PlaneData &g = *find_plane(got, "d"), &w = *find_plane(want, "d");
  v.inside = 0;
  for (int64_t i = 0; i < w.plane.logical.count(); ++i) v.inside += code_at(g.plane, g.bytes, i) != code_at(w.plane, w.bytes, i);
  std::vector<std::string> judged;
  for (Breach& b : check_laws(problem, inputs, got, v.subject, &judged, GemmOrder::any)) v.breaches.push_back(std::move(b));
  for (const std::string& kind : judged) add_kind(v.claims, kind);
  return judged.empty() && v.inside > 0;
}

std::string unpinned_text(const Verdict& v) {
  if (v.unpinned.empty()) return {};
  return fmt::format("bits not pinned (N16.13), judged by the bound: {}; {} element{} from the reference's", v.unpinned, v.inside, v.inside == 1 ? " differs" : "s differ");
}

std::optional<Breach> parity_breach(const Problem& problem, const Judgement& j, std::string_view got, std::string_view want) {
  if (j.equal()) return {};
  Breach b = complaint("parity", got, j.error);
  b.want = want;
  if (!j.cause) return b;
  describe_difference(b, problem, *j.cause);
  for (const PlaneDifference& d : j.after) b.after.push_back(line_of(d, true));
  for (const PlaneDifference& d : j.beside) b.after.push_back(line_of(d, false) + ", of another member or direction: a cause of its own");
  b.hint = j.hint;
  return b;
}

std::vector<Verdict> judge_case(const SuiteEntry& entry, const Subjects& subjects, const std::vector<std::string>& names, const ClaimOptions& options) {
  std::vector<Verdict> out;
  try {
    out = judge_subjects(entry.problem, subjects, names, options);
  } catch (const std::exception& e) {   // of a supports(), of memory
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

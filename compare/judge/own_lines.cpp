#include "compare/judge/own_lines.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/dequantized_rows.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/judge.h"
#include "compare/judge/parity.h"
#include "compare/judge/permuted_heads.h"
#include "compare/judge/unwritten.h"
#include "contract/attention.h"
#include "contract/line.h"

namespace assay {

namespace {

// N14.6: what stands beyond the members keeps its bytes.
void claim_spare(Subject& s, const Execution& e, const Environment& env, Verdict& v) {
  for (const PlaneData& p : e.planes) {
    if (p.plane.padding != Padding::untouched) continue;
    add_kind(v.claims, "untouched");
    const size_t used = p.plane.bytes_of(p.plane.logical.cols);
    const auto changed = std::find_if(p.bytes.begin() + static_cast<std::ptrdiff_t>(used), p.bytes.end(),
                                      [&](std::byte b) { return b != std::byte{env.poison}; });
    if (changed == p.bytes.end()) continue;
    Breach b = complaint("untouched", s.name(),
                         fmt::format("byte {} beyond the members was written: {:02X}, poison {:02X} (N14.6)",
                                     changed - p.bytes.begin() - static_cast<std::ptrdiff_t>(used),
                                     std::to_integer<unsigned>(*changed), env.poison));
    b.plane = p.plane.name;
    b.environment = to_text(env);
    v.breaches.push_back(std::move(b));
    return;
  }
}

// What was never written is no matter of rounding or of NaN: the hints of this plane's breaches say so.
void say_unwritten(const Unwritten& u, Verdict& v, Breach& repeat) {
  const auto count = static_cast<int64_t>(u.elements.size());
  if (repeat.plane == u.plane)
    repeat.hint =
        unwritten_text(u) + (repeat.differ > count ? "; other elements differ between the two runs too" : "");
  for (Breach& b : v.breaches) {
    if (b.claim != "parity" || b.plane != u.plane) continue;
    b.hint = unwritten_text(u);
    if (b.differ > count)
      b.hint += fmt::format("; {} other elements differ for a separate cause", b.differ - count);
  }
}

void claim_repeat(const CaseInputs& c, Subject& s, const Execution& first, Verdict& v) {
  const Environment env = other_environment(c.problem, c.environment);
  const std::optional<Execution> again = sound_run(c, s, env, v);
  if (!again) return;
  add_kind(v.claims, "repeat");
  claim_spare(s, *again, env, v);
  const Judgement j = judge(&c.problem, again->planes, first.planes);
  std::optional<Breach> b = parity_breach(c.problem, j, std::string(s.name()) + " again", s.name());
  if (!b && !j.padding.empty())
    b = difference_breach("repeat", c.problem, j.padding[0], std::string(s.name()) + " again", s.name());
  if (!b) return;
  b->claim = "repeat";
  b->environment = to_text(env);
  b->hint =
      "equal inputs gave different bytes under a different environment: a race, an unwritten byte (poison), "
      "or a "
      "read outside";
  for (const Unwritten& u :
       unwritten(c.problem, first.planes, c.environment.poison, again->planes, env.poison))
    say_unwritten(u, v, *b);
  v.breaches.push_back(std::move(*b));
}

// A line whose input is no fill's: a recording of the fill's line must not answer, and no repro may pretend
// to be it.
void forget_fill(Problem& p) { p.x.fill = {FillKind::literal, 0, 0, 0, "00"}; }

// N9.6: what remains of a binary32 scale is its exponent, and all copies become the first one.
bool blocks_agree(const Quantizer& q, const PlaneData& input, int64_t r, int64_t col, uint32_t got) {
  if (input.plane.layout == ScaleLayout::gemm)
    return got ==
           code_at(input.plane, input.bytes,
                   index_of(input.plane, is_square(q.block) ? r / length_of(q.block) * length_of(q.block) : r,
                            col / 4 * 4));
  const double kept =
      value_of(Encoding::e8m0, code_at(input.plane, input.bytes, index_of(input.plane, r, col)) >> 23 & 0xFF);
  return std::isnan(kept) ? is_nan(Encoding::f32, got) : value_of(Encoding::f32, got) == kept;
}

// Swizzle there and back through the subject gives the entries that are kept (N6.5, N6.6); the laws have
// already judged each way's places.
void claim_round_trip(const CaseInputs& c, Subject& s, const Execution& first, Verdict& v) {
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
  const CaseInputs reversed{back, c.environment, std::move(inputs)};
  const std::optional<Execution> e = sound_run(reversed, s, c.environment, v);
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
      Breach b = complaint("round-trip", s.name(), "the inverse does not restore the input");
      b.of_plane(got.plane);
      b.where = fmt::format("row {}, column {} of the scales", r, col);
      b.row = r;
      b.col = col;
      b.got_code = g;
      b.want_code = w;
      v.breaches.push_back(std::move(b));
      return;
    }
}

// The planes of direction d, as another line's outputs are asked for.
std::vector<PlaneData> of_direction(const std::vector<PlaneData>& planes, Direction d) {
  std::vector<PlaneData> out;
  for (const PlaneData& p : planes)
    if (p.plane.direction == d) out.push_back(p);
  return out;
}

// Runs the subject on another line and compares what it makes with `got`; a breach is of claim `kind`.
void claim_line(const CaseInputs& other, Subject& s, const std::vector<PlaneData>& got,
                const std::string& kind, std::string_view name, Verdict& v) {
  const std::optional<Execution> want = sound_run(other, s, other.environment, v);
  if (!want) return;
  add_kind(v.claims, kind);
  std::optional<Breach> b =
      parity_breach(other.problem, judge(&other.problem, got, want->planes), s.name(), s.name());
  if (!b) return;
  b->claim = kind;
  b->want = fmt::format("{} of its own {}", s.name(), name);
  b->hint = "wanted: the same subject on " + to_line(other.problem);
  b->environment = to_text(other.environment);
  v.breaches.push_back(std::move(*b));
}

// The inputs of a line of one direction: x, what the direction is given, and noop.
std::vector<PlaneData> inputs_for(const Problem& one, const std::vector<PlaneData>& inputs,
                                  const PlaneData* x) {
  std::vector<PlaneData> out;
  for (const Plane& plane : input_planes(one))
    if (const PlaneData* p = plane.name == "x" && x ? x : find_plane(inputs, plane.name))
      out.push_back({plane, p->bytes});
  return out;
}

// The rows of a pair, dequantized by the subject's own line to the encoding of x; nothing where it has none.
std::optional<PlaneData> dequantized_rows(const CaseInputs& c, Subject& s, const Execution& pair,
                                          Verdict& v) {
  const Problem back = row_dequantize(c.problem);
  if (!s.supports(back).yes) return {};
  Result<std::vector<PlaneData>> inputs = row_dequantize_inputs(back, pair.planes, c.inputs);
  if (!inputs) return {};
  const CaseInputs dequantize{back, c.environment, std::move(*inputs)};
  std::optional<Execution> e = sound_run(dequantize, s, c.environment, v);
  if (!e) return {};
  return std::move(e->planes[0]);
}

constexpr std::string_view kHybrid = "hybrid", kMember = "member";

// N13.2: the directions of a pair are the vanilla lines of their formats; of A/A the one-read launch equals
// two launches of one direction. TransformerEngine's draws count both directions of a launch (docs/draws.md),
// so that they are of the launch and not of a direction.
void claim_hybrid(const CaseInputs& c, Subject& s, const Execution& pair, Verdict& v) {
  const Problem& p = c.problem;
  if (!p.as<Quantize>() || !p.row || !p.col) return;
  for (Direction d : kDirections)
    if (p.quantizer(d)->round == Round::sr && p.quantizer(d)->numerics.draw != Draw::logical) return;
  const bool of_rows = p.col_source == ColSource::row_dequantized,
             same = p.row->format == p.col->format && !of_rows;
  for (Direction d : kDirections) {
    Problem one = p;
    one.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
    one.flavour = Flavour::assay;  // its Numerics are resolved
    one.col_source = ColSource::original;
    std::optional<PlaneData> x;
    if (d == Direction::col && of_rows) {
      x = dequantized_rows(c, s, pair, v);
      if (!x) continue;
      forget_fill(one);
    }
    if (!s.supports(one).yes) continue;
    const CaseInputs vanilla{one, c.environment, inputs_for(one, c.inputs, x ? &*x : nullptr)};
    claim_line(vanilla, s, of_direction(pair.planes, d),
               std::string(kHybrid) + (same                  ? ".same"
                                       : d == Direction::row ? ".row"
                                                             : ".col"),
               name_of(d), v);
  }
}

// N14.2, N14.5: every member of a split is its own line.
void claim_members(const CaseInputs& c, Subject& s, const Execution& all, Verdict& v) {
  if (!c.problem.as<Split>()) return;
  const std::vector<Problem> members = member_problems(c.problem);
  const size_t before = v.breaches.size();
  for (size_t m = 0; m < members.size() && v.breaches.size() == before; ++m) {
    if (!s.supports(members[m]).yes) continue;
    const CaseInputs one{members[m], c.environment, planes_of_member(c.inputs, m)};
    claim_line(one, s, planes_of_member(all.planes, m), std::string(kMember), fmt::format("member {}", m), v);
    if (v.breaches.size() > before && !v.breaches.back().plane.empty())
      v.breaches.back().plane += fmt::format("[{}]", m);
  }
}

constexpr int64_t kMovedLogits = 1 << 20;  // of larger cases a second run says nothing more

// N20: heads moved on by one group give the same bytes, moved.
void claim_moved_heads(const CaseInputs& c, Subject& s, const Execution& got, Verdict& v) {
  const Attention* op = c.problem.as<Attention>();
  if (!op || op->kv_heads < 2) return;
  const AttentionSizes n = attention_sizes(c.problem);
  if (n.rows() * n.kv > kMovedLogits) return;
  Problem moved = c.problem;
  forget_fill(moved);
  if (!s.supports(moved).yes) return;
  const CaseInputs other{moved, c.environment, with_moved_heads(c.problem, c.inputs)};
  const std::optional<Execution> e = sound_run(other, s, c.environment, v);
  if (!e) return;
  add_kind(v.claims, "moved-heads");
  const std::vector<PlaneData> want = with_moved_heads(c.problem, got.planes);
  std::vector<PlaneData> made;
  for (const PlaneData& w : want) made.push_back(*find_plane(e->planes, w.plane.name));
  std::optional<Breach> b = parity_breach(c.problem, judge(&c.problem, made, want), s.name(), s.name());
  if (!b) return;
  b->claim = "moved-heads";
  b->want = fmt::format("{} with its heads in place", s.name());
  b->hint = "heads of keys, and the queries' heads with them, were moved on by one: a head reads another one";
  v.breaches.push_back(std::move(*b));
}

}  // namespace

void claim_own_lines(const CaseInputs& c, Subject& s, const Execution& got, Verdict& v) {
  claim_spare(s, got, c.environment, v);
  claim_repeat(c, s, got, v);
  claim_round_trip(c, s, got, v);
  claim_hybrid(c, s, got, v);
  claim_members(c, s, got, v);
  claim_moved_heads(c, s, got, v);
}

}  // namespace assay

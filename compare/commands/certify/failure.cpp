#include "compare/commands/certify/failure.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/cases.h"
#include "compare/judge/claims.h"
#include "compare/judge/judge.h"
#include "compare/judge/parity.h"
#include "compare/report/screen.h"
#include "contract/line.h"

namespace assay {

namespace {

// The element or row of x that a difference belongs to.
int64_t unit_of(const CertifyPart& part, const Problem& problem, const PlaneDifference& d) {
  const Region g = region_of(&problem, d.plane, d.place);
  return part.by_rows ? g.row0 : g.col0;
}

// A line whose x is `count` elements or rows of the piece, written out.
Problem literal_line(const CertifyPart& part, const PlaneData& x, int64_t first, int64_t count) {
  const int64_t width = part.by_rows ? part.problem.x.shape.cols : 1;
  Problem p = part.sized(count);
  p.x.fill = {FillKind::literal, 0, 0, 0, {}};
  for (int64_t i = first * width; i < (first + count) * width; ++i) {
    const Encoding e = x.plane.encoding;
    p.x.fill.payload += fmt::format("{:0{}x}", code_at(e, x.bytes, i), 2 * info(e).bytes());
  }
  return p;
}

// What the input planes of the line must hold to be those of the piece.
std::vector<PlaneData> window_of(const CertifyPiece& piece, const Problem& line, int64_t first,
                                 int64_t count) {
  std::vector<PlaneData> out;
  for (const Plane& plane : input_planes(line)) {
    const PlaneData* whole = find_plane(piece.inputs, plane.name);
    PlaneData w{plane, whole->bytes};
    if (whole->bytes.size() != plane.bytes()) {
      const size_t per_unit = plane.bytes() / static_cast<size_t>(count);
      const auto from =
          whole->bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * per_unit);
      w.bytes.assign(from, from + static_cast<std::ptrdiff_t>(plane.bytes()));
    }
    out.push_back(std::move(w));
  }
  return out;
}

// Planes that the fill draws by its seed: gives the line a seed that draws what stands in the piece. False
// where none is found.
bool find_seed(Problem& line, const std::vector<PlaneData>& wanted, int64_t count, Subject& reference) {
  const uint64_t seeds = wanted.size() > 1 && count == 1 ? 4096 : 1;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    line.x.fill.seed = seed;
    const Result<std::vector<PlaneData>> made = make_inputs(line, reference);
    if (made && same_bytes(*made, wanted)) return true;
  }
  return false;
}

// The inputs of the line are those of the piece around `unit`. Windows grow, because kernels treat whole
// vectors differently.
std::optional<json::Value> narrowed_failure(const CertifyPart& part, const CertifySide& side,
                                            const CertifyPiece& piece, int64_t unit,
                                            const Subjects& subjects) {
  const int64_t width = part.by_rows ? part.problem.x.shape.cols : 1;
  const PlaneData* x = find_plane(piece.inputs, "x");
  if (!x) return {};
  for (const int64_t window : {1, 8, 64}) {
    const int64_t first = unit / window * window, count = std::min(window, piece.count - first);
    if (count * width > 64) break;
    Problem line = literal_line(part, *x, first, count);
    if (!find_seed(line, window_of(piece, line, first, count), count, subjects.reference())) continue;
    ClaimOptions options;
    options.environment = side.environment;
    options.laws = false;
    const Verdict verdict = judge_case(entry_of(line), subjects, {side.subject}, options)[0];
    if (verdict.outcome == Outcome::failed || verdict.outcome == Outcome::crashed)
      return json::object({{"line", to_line(line)}, {"verdict", to_json(verdict)}});
  }
  return {};
}

std::string claim_text(const CertifySide& side) {
  const std::string environment = to_text(side.environment);
  return side.subject + " == reference" + (environment.empty() ? "" : " under --env " + environment);
}

// The codes that the row of a dequantize was made of.
std::string codes_text(const CertifyPiece& piece, int64_t row) {
  std::string out;
  for (const PlaneData& p : piece.inputs) {
    const int64_t at = std::min(row, p.plane.logical.rows - 1) * p.plane.padded.cols;
    out += fmt::format("  {:<9}", p.plane.name);
    for (int64_t j = 0; j < p.plane.logical.cols; ++j)
      out += fmt::format(" {:0{}X}", code_at(p.plane, p.bytes, at + j), 2 * info(p.plane.encoding).bytes());
    out += "\n";
  }
  return out;
}

}  // namespace

bool same_bytes(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].bytes.empty() && std::memcmp(a[i].bytes.data(), b[i].bytes.data(), a[i].bytes.size()) != 0)
      return false;
  return true;
}

PieceDifference difference_of(const CertifyPart& part, const CertifySide& side, const CertifyPiece& piece) {
  PieceDifference out;
  const Judgement j = judge(&piece.problem, piece.got, piece.want);
  for (const auto* list : {&j.after, &j.beside})
    for (const PlaneDifference& d : *list) out.differ += d.differ;
  if (j.cause) {
    out.differ += j.cause->differ;
    out.unit = unit_of(part, piece.problem, *j.cause);
  }
  const auto breach = parity_breach(piece.problem, j, side.subject, "reference");
  if (!breach) ++out.differ;  // in padding alone
  out.cause = breach ? cause_text(*breach) : "  cause    padding differs\n";
  return out;
}

json::Value failure_of(const CertifyPart& part, const CertifySide& side, const CertifyPiece& piece,
                       const PieceDifference& d, const Subjects& subjects) {
  if (auto line = narrowed_failure(part, side, piece, d.unit, subjects)) return std::move(*line);
  const bool has_x = find_plane(piece.inputs, "x");
  return json::object(
      {{"text",
        fmt::format("  claim    {}\n{}  where    {} {} to {} of: {}\n{}  note     {}\n", claim_text(side),
                    d.cause, part.by_rows ? "rows" : "elements", piece.first, piece.first + piece.count - 1,
                    part.domain.words, has_x ? "" : codes_text(piece, d.unit),
                    has_x ? "no line of up to 64 of these elements fails by itself"
                          : "no line holds these codes: a dequantize draws its codes by a seed")}});
}

}  // namespace assay

#include "compare/diagnosis/identify/coherence.h"

#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/identify/coherence_verdict.h"
#include "compare/diagnosis/identify/direction_values.h"

namespace assay {

using namespace coherent;

namespace {

using std::string;

string number(double v) {
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return number_text(static_cast<float>(v));
}
string text_of(const Interval& i) {
  if (i.kind == Interval::Kind::nan) return "NaN";
  if (i.low == i.high) return number(i.low);
  return fmt::format("{} to {}", number(i.low), number(i.high));
}

// Whether a NaN became this code (N2.4).
bool may_be_nan(const DirectionValues& d, int64_t r, int64_t c) {
  const EncodingInfo& e = info(d.quantizer().element);
  const uint32_t magnitude = d.code(r, c) & ((1u << (e.bits - 1)) - 1);
  return d.has_scale() && e.nan == e.max_finite && magnitude == e.max_finite;
}

// Whether a zero became this NaN: nothing guards the division by its block's amax (N17.15).
bool may_be_zero(const DirectionValues& d, int64_t r, int64_t c) {
  return d.quantizer().numerics.zero_amax == ZeroAmax::divided && d.has_scale() && d.scale_code(r, c) == 0;
}

// What a rotation makes of 16 elements at place j (N11).
Interval rotated(const std::array<Interval, 16>& x, uint16_t mask, unsigned j) {
  Interval out{Interval::Kind::known, 0, 0};
  for (unsigned i = 0; i < 16; ++i) {
    const bool minus = ((mask >> i & 1) ^ (std::popcount(i & j) & 1)) != 0;
    out.low += (minus ? -x[i].high : x[i].low) / 4;
    out.high += (minus ? -x[i].low : x[i].high) / 4;
  }
  return widened(out, 0x1p-8, 0);  // of the sum's rounding to bf16
}

// Rows and columns of one quantize.
class RowsAgainstColumns {
 public:
  RowsAgainstColumns(const Problem& p, const std::vector<PlaneData>& planes)
      : p_(p), row_(p, Direction::row, planes), col_(p, Direction::col, planes), apart_(p.x.shape) {}
  Coherence run();

 private:
  string why_undecidable();
  void compare_amaxes();
  void compare_elements();
  void compare_element(int64_t r, int64_t c);
  void compare_codes(int64_t r, int64_t c);
  void compare_sums();
  bool one_code(int64_t r, int64_t c) const;
  void count(int64_t r, int64_t c, bool apart, const string& text);
  void count(int64_t r, int64_t c, bool apart, const Interval& rows, const Interval& columns) {
    const bool first = apart && !result_.first;
    count(r, c, apart,
          first ? fmt::format("rows leave {}, columns {}", text_of(rows), text_of(columns)) : "");
  }

  const Problem& p_;
  DirectionValues row_, col_;
  Coherence result_;
  bool one_rule_ = false;  // both directions quantize the same tensor in the same way
  ApartElements apart_;
};

Coherence RowsAgainstColumns::run() {
  result_.undecidable = why_undecidable();
  if (!result_.undecidable.empty()) return std::move(result_);
  compare_amaxes();
  const Quantizer &rq = row_.quantizer(), &cq = col_.quantizer();
  one_rule_ = rq == cq && p_.col_source == ColSource::original && rq.round != Round::sr && !rq.row_scaled &&
              !cq.rht && rq.four_over_six == FourOverSix::off;
  result_.same_bytes = one_rule_ && (rq.block == Block::tensor || is_square(rq.block));
  if (cq.rht) compare_sums();
  else compare_elements();
  if (result_.of == 0)
    result_.undecidable = "no element can be compared: scales or codes are NaN, or scales are zero";
  if (result_.apart) {
    result_.where = apart_.where(p_);
    result_.verdict = apart_.verdict(result_.apart, result_.of);
  }
  return std::move(result_);
}

string RowsAgainstColumns::why_undecidable() {
  if (p_.x.shape.count() == 0) return "the tensor has no elements";
  for (const DirectionValues* d : {&row_, &col_})
    if (!d->trouble().empty()) return d->trouble();
  if (!row_.unscaled() && !col_.unscaled()) return "";
  // Both have the same tensor amax, whatever it is (N10.1).
  const Quantizer &rq = row_.quantizer(), &cq = col_.quantizer();
  const bool plain = p_.col_source == ColSource::original && !cq.rht && !rq.row_scaled && !cq.row_scaled;
  if (!row_.unscaled() || !col_.unscaled() || !plain)
    return fmt::format("the pack holds no {}.amax; without it, NVFP4 codes have no values",
                       row_.unscaled() ? "row" : "col");
  row_.take_unit();
  col_.take_unit();
  return "";
}

// N10.1, N3.1: both directions take the amax of the same tensor.
void RowsAgainstColumns::compare_amaxes() {
  const PlaneData *a = row_.amax(), *b = col_.amax();
  if (!a || !b || col_.quantizer().rht || p_.col_source != ColSource::original) return;
  if (!(a->plane.logical == Shape{1, 1}) || !(b->plane.logical == Shape{1, 1})) return;
  const uint32_t x = code_at(a->plane, a->bytes, 0), y = code_at(b->plane, b->bytes, 0);
  if (x != y)
    result_.notes.push_back(fmt::format("row.amax is {}, col.amax {}: a tensor has only one amax (N10.1)",
                                        value_text(Encoding::f32, x), value_text(Encoding::f32, y)));
}

void RowsAgainstColumns::count(int64_t r, int64_t c, bool apart, const string& text) {
  ++result_.of;
  if (!apart) return;
  ++result_.apart;
  apart_.mark(r, c);
  if (result_.first) return;
  result_.first = Place{false, r, c};
  result_.first_text = text;
}

// Whether one rule, one element and one scale have to give one code.
bool RowsAgainstColumns::one_code(int64_t r, int64_t c) const {
  if (!one_rule_) return false;
  return !row_.has_scale() || result_.same_bytes || row_.scale_code(r, c) == col_.scale_code(r, c);
}

void RowsAgainstColumns::compare_codes(int64_t r, int64_t c) {
  const bool scales = row_.has_scale() && row_.scale_code(r, c) != col_.scale_code(r, c);
  const uint32_t a = row_.code(r, c), b = col_.code(r, c);
  string why;
  if (scales) why = "rows and columns have different scales there, but should share one";
  else if (a != b)
    why = fmt::format("rows hold {}, columns {}, under equal scales", code_hex(row_.quantizer().element, a),
                      code_hex(row_.quantizer().element, b));
  count(r, c, scales || a != b, why);
  apart_.tell(r, c, row_.middle(r, c), col_.middle(r, c));
}

void RowsAgainstColumns::compare_element(int64_t r, int64_t c) {
  using enum Interval::Kind;
  const bool dequantized = p_.col_source == ColSource::row_dequantized;
  const Interval a = dequantized ? row_.decoded(r, c, p_.x.source) : row_.at(r, c), b = col_.at(r, c);
  if (a.kind == open || b.kind == open) {
    ++result_.open;
  } else if (a.kind == nan || b.kind == nan) {
    const bool rows = a.kind == nan;
    const Interval& other = rows ? b : a;
    const bool zero = may_be_zero(rows ? row_ : col_, r, c) && other.low <= 0 && other.high >= 0;
    const bool both = a.kind == b.kind || zero || may_be_nan(rows ? col_ : row_, r, c);
    count(r, c, !both, a, b);
  } else {
    count(r, c, disjoint(a, b), a, b);
    apart_.tell(r, c, row_.middle(r, c), col_.middle(r, c));
  }
}

void RowsAgainstColumns::compare_elements() {
  for (int64_t r = 0; r < p_.x.shape.rows; ++r)
    for (int64_t c = 0; c < p_.x.shape.cols; ++c)
      if (one_code(r, c)) compare_codes(r, c);
      else compare_element(r, c);
}

// Rotated columns (N11): each is a sum of what 16 rows leave.
void RowsAgainstColumns::compare_sums() {
  const Shape s = p_.x.shape;
  const uint16_t mask = col_.quantizer().sign_mask;
  std::array<Interval, 16> x;
  for (int64_t first = 0; first + 16 <= s.rows; first += 16)
    for (int64_t c = 0; c < s.cols; ++c) {
      bool known = true;
      for (int64_t i = 0; i < 16; ++i) {
        x[static_cast<size_t>(i)] = row_.at(first + i, c);
        known = known && x[static_cast<size_t>(i)].kind == Interval::Kind::known;
      }
      for (unsigned j = 0; j < 16; ++j) {
        const int64_t r = first + j;
        const Interval b = col_.at(r, c);
        if (!known || b.kind != Interval::Kind::known) {
          ++result_.open;
          continue;
        }
        const Interval a = rotated(x, mask, j);
        count(r, c, disjoint(a, b), a, b);
        apart_.tell(r, c, (a.low + a.high) / 2, col_.middle(r, c));
      }
    }
}

}  // namespace

Coherence coherence(const Problem& problem, const std::vector<PlaneData>& planes) {
  Coherence out;
  if (!problem.as<Quantize>() && !problem.as<Split>()) {
    out.undecidable = fmt::format("{} has no rows and columns", op_name(problem));
    return out;
  }
  if (!problem.row || !problem.col) {
    out.undecidable = "the line has one direction";
    return out;
  }
  if (problem.as<Quantize>()) return RowsAgainstColumns(problem, planes).run();
  const std::vector<Problem> members = member_problems(problem);
  for (size_t m = 0; m < members.size(); ++m) {
    Coherence one = RowsAgainstColumns(members[m], planes_of_member(planes, m)).run();
    if (members[m].x.shape.count() == 0) continue;
    if (!one.undecidable.empty()) return one;
    out.of += one.of;
    out.apart += one.apart;
    out.open += one.open;
    out.same_bytes = one.same_bytes;
    for (const string& n : one.notes) out.notes.push_back(fmt::format("member {}: {}", m, n));
    if (one.verdict.empty() || !out.verdict.empty()) continue;
    out.verdict = fmt::format("member {}: {}", m, one.verdict);
    out.member = m;
    out.first = one.first;
    out.first_text = one.first_text;
    out.where = one.where;
  }
  if (out.of == 0) out.undecidable = "the tensor has no elements";
  return out;
}

}  // namespace assay

#include "compare/diagnosis/identify/coherence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/coordinates.h"
#include "compare/arithmetic/expected_values.h"

namespace assay {

namespace {

using std::string;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What is known of one element. nan: it is one; open: nothing.
struct Interval {
  enum class Kind : uint8_t { known, nan, open } kind = Kind::open;
  double low = 0, high = 0;
};

// What a scaled value was that became `code`.
Interval before_rounding(const Quantizer& q, uint32_t code) {
  const Encoding e = q.element;
  const EncodingInfo& i = info(e);
  const bool overflows = q.numerics.element_overflow == ElementOverflow::nan;
  if (is_nan(e, code)) return {overflows ? Interval::Kind::open : Interval::Kind::nan, 0, 0};
  const double v = value_of(e, code), a = std::fabs(v), most = value_of(e, i.max_finite);
  const bool negative = i.has_sign() && (code >> (i.bits - 1) & 1) != 0;
  const bool drawn = q.round == Round::sr;
  double low = 0, high = kInfinity;
  if (std::isinf(v)) {
    low = most;
  } else {
    // The neighbours in magnitude: between them under a stochastic rounding, half way to them otherwise, either end included.
    const uint32_t m = code & (i.has_sign() ? (1u << (i.bits - 1)) - 1 : ~0u);
    const double below = m == 0 ? 0 : value_of(e, m - 1), above = a >= most ? kInfinity : value_of(e, m + 1);
    low = m == 0 ? 0 : drawn ? below : (below + a) / 2;
    high = drawn ? above : (above + a) / 2;
  }
  if (a == 0 && q.numerics.neg_zero == NegZero::drop) return {Interval::Kind::known, -high, high};   // N17.4: the sign is lost
  return {Interval::Kind::known, negative ? -high : low, negative ? -low : high};
}

// One direction's intervals for the elements of the tensor that it quantized.
class DirectionData {
 public:
  DirectionData(const Problem& p, Direction d, const std::vector<PlaneData>& planes) : q_(*p.quantizer(d)), source_(p.x.source), d_(d) {
    data_ = find_plane(planes, plane_name(d, "data"));
    if (!data_) {
      trouble_ = "the pack holds no " + plane_name(d, "data");
      return;
    }
    transposed_ = data_->plane.transposed;
    const FormatInfo& f = info(q_.format);
    if (!f.scale) return;                                                     // identity: the values themselves
    const string name = plane_name(d, f.per_tensor_fp8() ? "scale_inv" : scale_stem(q_.scales));
    scale_ = find_plane(planes, name);
    if (!scale_) {
      trouble_ = "the pack holds no " + name;
      return;
    }
    if (q_.format == FormatId::nvfp4 && q_.numerics.nvfp4_scale != Nvfp4Scale::unit) {
      amax_ = find_plane(planes, plane_name(d, q_.amax ? "given.amax" : "amax"));
      if (q_.amax && !amax_) given_ = value_of(Encoding::f32, *q_.amax);
      unscaled_ = !amax_ && !given_;
    }
    for (uint32_t code = 0; code < 256 && info(q_.element).bits <= 8; ++code) intervals_[code] = before_rounding(q_, code);
    slack_ = q_.numerics.multiplier == Multiplier::bf16_quotient ? 0x1p-7 : 0x1p-19;
    if (q_.numerics.pre_round == PreRound::bf16) slack_ += 0x1p-8;
    if (q_.numerics.pre_round == PreRound::f16_rz) slack_ += 0x1p-9;
    if (q_.numerics.scale_division == ScaleDivision::in_source && f.scale == Encoding::f32) slack_ += step_at(source_, 1);   // N17.14: the stored scale has fewer digits
  }

  const string& trouble() const { return trouble_; }
  bool unscaled() const { return unscaled_; }                                 // values are known but for the tensor's amax
  void take_unit() { given_ = 2688; }
  const Quantizer& quantizer() const { return q_; }
  const PlaneData* amax() const { return amax_; }
  uint32_t code(int64_t r, int64_t c) const { return code_at(data_->plane, data_->bytes, transposed_ ? index_of(data_->plane, c, r) : index_of(data_->plane, r, c)); }
  bool has_scale() const { return scale_; }
  uint32_t scale_code(int64_t r, int64_t c) const { return code_at(scale_->plane, scale_->bytes, scale_at(r, c)); }

  // What one unit of the code's value is, of the element at (r, c); 0: nobody knows.
  double unit(int64_t r, int64_t c) const {
    if (!scale_) return 1;
    const double scale = value_of(scale_->plane.encoding, scale_code(r, c));
    if (!std::isfinite(scale) || scale == 0) return 0;
    if (q_.format != FormatId::nvfp4) return std::fabs(scale) < 0x1p-126 && scale_->plane.encoding == Encoding::f32 ? 0 : scale;
    if (q_.numerics.nvfp4_scale == Nvfp4Scale::unit) return scale;
    const double a = tensor_amax(r, c);
    const double s = Division(q_, source_).encode(q_.e4m3_max == E4m3Max::m256 ? 1536 : 2688, a);
    return a > 0 && std::isfinite(a) && s < 0x1p127 ? scale / s : 0;
  }

  Interval at(int64_t r, int64_t c) const {
    const uint32_t k = code(r, c);
    if (!scale_) {
      const double v = value_of(data_->plane.encoding, k);
      return std::isnan(v) ? Interval{Interval::Kind::nan, 0, 0} : Interval{Interval::Kind::known, v, v};
    }
    const double u = unit(r, c);
    Interval i = intervals_[k & 0xFF];
    if (u == 0 || i.kind != Interval::Kind::known) return u == 0 ? Interval{} : i;
    return widened({i.kind, i.low * u, i.high * u}, slack_, 0x1p-148 * u);
  }
  // What the code stands for.
  double middle(int64_t r, int64_t c) const { return scale_ ? value_of(q_.element, code(r, c)) * unit(r, c) : value_of(data_->plane.encoding, code(r, c)); }
  // The value that a dequantize gives: what columns of the dequantized rows quantize (N13.1).
  Interval decoded(int64_t r, int64_t c, Encoding source) const {
    if (!scale_) return at(r, c);
    const double u = unit(r, c), v = value_of(q_.element, code(r, c)) * u;
    if (u == 0 || std::isinf(v) || overflows(r, c)) return {};
    if (std::isnan(v)) return {Interval::Kind::nan, 0, 0};
    const double half = source == Encoding::f32 ? 0 : step_at(source, v) / 2;   // narrowed to x's encoding, beyond which is infinity
    Interval i = widened({Interval::Kind::known, v - half, v + half}, 0x1p-19, 0x1p-148);
    const double most = value_of(source, info(source).max_finite);
    if (i.low < -most) i.low = -kInfinity;
    if (i.high > most) i.high = kInfinity;
    return i;
  }

  static Interval widened(Interval i, double slack, double least) {
    i.low -= std::fabs(i.low) * slack + least;
    i.high += std::fabs(i.high) * slack + least;
    return i;
  }

 private:
  double tensor_amax(int64_t r, int64_t c) const {
    return given_ ? *given_ : value_of(Encoding::f32, code_at(amax_->plane, amax_->bytes, q_.row_scaled ? (transposed_ ? c : r) : 0));
  }
  // N10.15 multiplies scale and amax first.
  bool overflows(int64_t r, int64_t c) const {
    return q_.format == FormatId::nvfp4 && q_.numerics.nvfp4_scale != Nvfp4Scale::unit && value_of(scale_->plane.encoding, scale_code(r, c)) * tensor_amax(r, c) >= 0x1p127;
  }
  int64_t scale_at(int64_t r, int64_t c) const {
    const int64_t i = transposed_ ? c : r, j = transposed_ ? r : c;
    if (length_of(q_.block) == 0) return scale_->plane.logical.rows > 1 ? i : 0;   // one for each stored row, or one
    return scale_index(q_, scale_->plane, i, j);
  }

  Quantizer q_;
  Encoding source_;
  Direction d_;
  bool transposed_ = false, unscaled_ = false;
  const PlaneData *data_ = nullptr, *scale_ = nullptr, *amax_ = nullptr;
  std::optional<double> given_;
  double slack_ = 0;
  std::array<Interval, 256> intervals_{};
  string trouble_;
};

string number(double v) {
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return number_text(static_cast<float>(v));
}
string text_of(const Interval& i) {
  if (i.kind == Interval::Kind::nan) return "NaN";
  if (i.low == i.high) return number(i.low);
  return fmt::format("{} to {}", number(i.low), number(i.high));
}

int percent(int64_t part, int64_t whole) { return whole ? static_cast<int>(std::floor(100.0 * static_cast<double>(part) / static_cast<double>(whole))) : 0; }

// Rows and columns of one quantize.
class Judge {
 public:
  Judge(const Problem& p, const std::vector<PlaneData>& planes) : p_(p), row_(p, Direction::row, planes), col_(p, Direction::col, planes) {}

  Coherence run() {
    if (p_.x.shape.count() == 0) return gave_up("there is no element");
    for (const DirectionData* d : {&row_, &col_})
      if (!d->trouble().empty()) return gave_up(d->trouble());
    const bool original = p_.col_source == ColSource::original, rotated = col_.quantizer().rht;
    if (row_.unscaled() || col_.unscaled()) {
      // Both have the same tensor amax, whatever it is (N10.1).
      if (!row_.unscaled() || !col_.unscaled() || rotated || !original || row_.quantizer().row_scaled || col_.quantizer().row_scaled)
        return gave_up(fmt::format("the pack holds no {}.amax, without which NVFP4 codes have no values", row_.unscaled() ? "row" : "col"));
      row_.take_unit();
      col_.take_unit();
    }
    amaxes();
    const Quantizer &rq = row_.quantizer(), &cq = col_.quantizer();
    one_rule_ = rq == cq && original && rq.round != Round::sr && !rq.row_scaled && !rotated && rq.four_over_six == FourOverSix::off;
    result_.same_bytes = one_rule_ && (rq.block == Block::tensor || is_square(rq.block));
    const Shape s = p_.x.shape;
    apart_.assign(static_cast<size_t>(s.count()), 0);
    if (rotated) sums();
    else elements();
    if (result_.of == 0) return gave_up("no element says anything: scales or codes are NaN, or scales are zero");
    if (result_.apart) conclude();
    return std::move(result_);
  }

 private:
  Coherence gave_up(string why) {
    result_.undecidable = std::move(why);
    return std::move(result_);
  }

  // N10.1, N3.1: both directions take the amax of the same tensor.
  void amaxes() {
    const PlaneData *a = row_.amax(), *b = col_.amax();
    if (!a || !b || col_.quantizer().rht || p_.col_source != ColSource::original || !(a->plane.logical == Shape{1, 1}) || !(b->plane.logical == Shape{1, 1})) return;
    const uint32_t x = code_at(a->plane, a->bytes, 0), y = code_at(b->plane, b->bytes, 0);
    if (x != y) result_.notes.push_back(fmt::format("row.amax is {}, col.amax {}: one tensor has one (N10.1)", value_text(Encoding::f32, x), value_text(Encoding::f32, y)));
  }

  void found(int64_t r, int64_t c, bool apart, const Interval& rows, const Interval& columns, const char* text = nullptr) {
    ++result_.of;
    if (!apart) return;
    ++result_.apart;
    apart_[static_cast<size_t>(r * p_.x.shape.cols + c)] = 1;
    if (result_.first) return;
    result_.first = Place{false, r, c};
    result_.first_text = text ? text : fmt::format("rows leave {}, columns {}", text_of(rows), text_of(columns));
  }

  // Whether a NaN became this code (N2.4).
  static bool may_be_nan(const DirectionData& d, int64_t r, int64_t c) {
    const Quantizer& q = d.quantizer();
    return d.has_scale() && q.element == Encoding::e2m1 && (d.code(r, c) & 7) == 7;
  }

  void elements() {
    const Shape s = p_.x.shape;
    const bool dequantized = p_.col_source == ColSource::row_dequantized;
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t c = 0; c < s.cols; ++c) {
        if (one_rule_ && (!row_.has_scale() || result_.same_bytes || row_.scale_code(r, c) == col_.scale_code(r, c))) {
          // One rule, one element and one scale give one code.
          const bool scales = row_.has_scale() && row_.scale_code(r, c) != col_.scale_code(r, c);
          const uint32_t a = row_.code(r, c), b = col_.code(r, c);
          const string why = scales ? "rows and columns have another scale there, where they share it"
                             : a == b ? "" : fmt::format("rows hold {}, columns {}, under equal scales", code_hex(row_.quantizer().element, a), code_hex(row_.quantizer().element, b));
          found(r, c, scales || a != b, {}, {}, why.c_str());
          tell(r, c, row_.middle(r, c), col_.middle(r, c));
          continue;
        }
        const Interval a = dequantized ? row_.decoded(r, c, p_.x.source) : row_.at(r, c), b = col_.at(r, c);
        using enum Interval::Kind;
        if (a.kind == open || b.kind == open) {
          ++result_.open;
        } else if (a.kind == nan || b.kind == nan) {
          const bool both = a.kind == b.kind || may_be_nan(a.kind == nan ? col_ : row_, r, c);
          found(r, c, !both, a, b);
        } else {
          found(r, c, a.low > b.high || b.low > a.high, a, b);
          tell(r, c, row_.middle(r, c), col_.middle(r, c));
        }
      }
  }

  // Rotated columns (N11): each is a sum of what 16 rows leave.
  void sums() {
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
          Interval a{Interval::Kind::known, 0, 0};
          for (unsigned i = 0; i < 16; ++i) {
            const bool minus = ((mask >> i & 1) ^ (std::popcount(i & j) & 1)) != 0;
            a.low += (minus ? -x[i].high : x[i].low) / 4;
            a.high += (minus ? -x[i].low : x[i].high) / 4;
          }
          a = DirectionData::widened(a, 0x1p-8, 0);                              // of the sum's rounding to bf16
          found(r, c, a.low > b.high || b.low > a.high, a, b);
          tell(r, c, (a.low + a.high) / 2, col_.middle(r, c));
        }
      }
  }

  // What an element that is apart tells of the reason: signs and sizes of the two.
  void tell(int64_t r, int64_t c, double a, double b) {
    if (!apart_[static_cast<size_t>(r * p_.x.shape.cols + c)]) return;
    if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return;
    ++told_;
    opposite_ += std::signbit(a) != std::signbit(b);
    const double steps = std::log2(std::fabs(b / a)), nearest = std::round(steps);
    if (std::fabs(steps - nearest) < 0.4 && std::fabs(nearest) <= 8) ++binades_[static_cast<size_t>(nearest + 8)];
  }

  void conclude() {
    // Where they are apart, as the patterns of a plane of the tensor's shape.
    Plane plane;
    plane.name = "apart";
    plane.encoding = Encoding::u8;
    plane.logical = plane.padded = p_.x.shape;
    PlaneData got{plane, {}}, want{plane, std::vector<std::byte>(apart_.size())};
    for (const char a : apart_) got.bytes.push_back(static_cast<std::byte>(a));
    result_.where = coordinates(p_, got, want);

    const int share = percent(result_.apart, result_.of);
    const int64_t same_binade = *std::max_element(binades_.begin(), binades_.end());
    const int binade = static_cast<int>(std::max_element(binades_.begin(), binades_.end()) - binades_.begin()) - 8;
    if (told_ >= 16 && opposite_ * 20 < told_ && same_binade * 10 >= told_ * 9 && binade != 0) {
      result_.verdict = fmt::format("scale: columns are 2^{} times the rows where they are apart, {} % of the elements", binade, share);
    } else if (told_ >= 16 ? opposite_ * 5 >= told_ : share >= 50) {          // signs, too, are another tensor's
      result_.verdict = stale(share);
    } else {
      result_.verdict = fmt::format("{} of {} elements ({} %) cannot come from one tensor", result_.apart, result_.of, share);
    }
  }

  string stale(int share) const {
    // Bands of rows, then of columns, that are either coherent or hardly at all.
    const Shape s = p_.x.shape;
    constexpr int64_t kBand = 16;
    for (const bool rows : {true, false}) {
      const int64_t length = rows ? s.rows : s.cols, bands = ceil_div(length, kBand);
      std::vector<int64_t> bad(static_cast<size_t>(bands)), of(bad.size());
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t c = 0; c < s.cols; ++c) {
          const size_t b = static_cast<size_t>((rows ? r : c) / kBand);
          bad[b] += apart_[static_cast<size_t>(r * s.cols + c)];
          ++of[b];
        }
      double most = 0;
      for (size_t b = 0; b < bad.size(); ++b) most = std::max(most, static_cast<double>(bad[b]) / static_cast<double>(of[b]));
      string fresh, old;
      int64_t bad_of = 0, old_of = 0;
      bool clear = true;
      for (int64_t b = 0, from = 0; b < bands; ++b) {
        const auto share_of = [&](int64_t k) { return static_cast<double>(bad[static_cast<size_t>(k)]) / static_cast<double>(of[static_cast<size_t>(k)]); };
        const auto is_old = [&](int64_t k) { return share_of(k) > most / 2; };
        const size_t k = static_cast<size_t>(b);
        clear = clear && (is_old(b) || share_of(b) <= most / 20);
        if (is_old(b)) {
          bad_of += bad[k];
          old_of += of[k];
        }
        if (b + 1 < bands && is_old(b) == is_old(b + 1)) continue;
        string& list = is_old(b) ? old : fresh;
        list += fmt::format("{}{}..{}", list.empty() ? "" : ", ", from * kBand, std::min((b + 1) * kBand, length) - 1);
        from = b + 1;
      }
      if (!clear || fresh.empty() || old.empty() || old.size() > 60) continue;
      const char* axis = rows ? "rows" : "columns";
      return fmt::format("columns stale in {} {} of the tensor: {} % of the elements there cannot come from the tensor of the row data; fresh are {} {}", axis, old, percent(bad_of, old_of), axis,
                         fresh.size() > 60 ? "the others" : fresh);
    }
    return fmt::format("columns stale: {} % of the elements cannot come from the tensor of the row data (or the rows are, and the columns fresh)", share);
  }

  const Problem& p_;
  DirectionData row_, col_;
  Coherence result_;
  bool one_rule_ = false;
  std::vector<char> apart_;
  int64_t told_ = 0, opposite_ = 0;
  std::array<int64_t, 17> binades_{};
};

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
  if (problem.as<Quantize>()) return Judge(problem, planes).run();
  const std::vector<Problem> members = member_problems(problem);
  for (size_t m = 0; m < members.size(); ++m) {
    Coherence one = Judge(members[m], planes_of_member(planes, m)).run();
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
  if (out.of == 0) out.undecidable = "there is no element";
  return out;
}

int run_coherence(const Dump& dump, std::ostream& out) {
  size_t passed = 0, failed = 0, skipped = 0;
  string first;
  for (const DumpCase& c : dump.cases) {
    const auto problem = problem_of(*c.recorded);
    const string line = printable(c.recorded->line);
    Coherence judged;
    if (problem) {
      std::vector<PlaneData> planes;
      std::vector<Plane> all = output_planes(*problem);
      for (Plane& plane : input_planes(*problem))
        if (plane.name.ends_with("given.amax")) all.push_back(std::move(plane));
      for (const Plane& plane : all) {
        const PackPlane* recorded = c.recorded->find(plane.name);
        if (!recorded || !recorded->tensor) continue;
        auto data = dump_plane(*recorded->tensor, plane);
        if (data) planes.push_back(std::move(*data));
        else judged.verdict = plane.name + ": " + data.error().text();
      }
      if (judged.verdict.empty()) judged = coherence(*problem, planes);
    } else {
      judged.verdict = problem.error().text();
    }
    if (!judged.undecidable.empty()) {
      ++skipped;
      out << fmt::format("skipped  {}  {}   {}\n", c.where(), line, judged.undecidable);
      continue;
    }
    const string open = judged.open ? fmt::format(", {} say nothing", judged.open) : "";
    if (judged.coherent()) {
      ++passed;
      out << fmt::format("passed   {}  {}   {} of {} elements can come from one tensor{}\n", c.where(), line, judged.of, judged.of, open);
      continue;
    }
    ++failed;
    if (first.empty()) first = c.where();
    out << fmt::format("\nFAILED  {}\n  {}\n  claim    rows and columns come from one tensor\n", c.where(), line.empty() ? "(no line)" : line);
    if (!judged.verdict.empty()) out << "  cause    " << printable(judged.verdict) << "\n";
    for (const string& n : judged.notes) out << "  note     " << printable(n) << "\n";
    if (judged.first) {
      out << fmt::format("  first    {}row {}, column {}: {}\n", judged.member ? fmt::format("member {}, ", *judged.member) : "", judged.first->row, judged.first->col, judged.first_text);
      out << fmt::format("  judged   {} of {} elements apart{}\n", judged.apart, judged.of, open);
    }
    for (const Coordinate& w : judged.where) out << fmt::format("  where    {}: {} of {} that are apart, among {} of {} elements\n", w.what, w.differ, w.differ_of, w.inside, w.inside_of);
    out << "\n";
  }
  if (!first.empty()) out << "first incoherence: " << first << "\n";
  out << fmt::format("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  return failed ? 1 : passed ? 0 : 3;
}

}  // namespace assay

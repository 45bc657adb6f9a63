#include "compare/judge/judge.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <list>
#include <unordered_set>

#include <fmt/format.h>

namespace assay {

namespace {

bool ends_with(const std::string& s, std::string_view end) { return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0; }

// One plane compared: the differing flat indices of the logical region (ascending), and how its padding differs. `problem` is the member's
// own for a plane of a split's member.
struct Compared {
  const Problem* problem;
  const PlaneData* got;
  const PlaneData* want;
  std::vector<int64_t> differing;
  PlaneDifference logical, padding;
};

void note(PlaneDifference& d, const Compared& c, int64_t index, Place place) {
  if (d.differ++ > 0) return;
  const Plane& plane = c.want->plane;
  d.index = index;
  d.place = place;
  d.got = code_at(plane, c.got->bytes, index);
  d.want = code_at(plane, c.want->bytes, index);
  d.apart = codes_apart(plane.encoding, d.got, d.want);
}

Compared compare_plane(const Problem* problem, const PlaneData& got, const PlaneData& want) {
  const Plane& plane = want.plane;
  Compared c{problem, &got, &want, {}, {}, {}};
  c.logical.plane = c.padding.plane = plane;
  c.logical.of = plane.logical.count();
  c.padding.of = plane.padded.count() - plane.logical.count();
  c.padding.in_padding = true;
  if (got.bytes == want.bytes) return c;
  for (int64_t i = 0; i < plane.padded.count(); ++i) {
    if (code_at(plane, got.bytes, i) == code_at(plane, want.bytes, i)) continue;
    const Place place = place_of(plane, i);
    if (!place.padding) c.differing.push_back(i);
    note(place.padding ? c.padding : c.logical, c, i, place);
  }
  if (plane.layout == ScaleLayout::gemm && !c.differing.empty()) {
    // The tile order is no order for a reader: the first is the first in rows and columns.
    const int64_t first = *std::min_element(c.differing.begin(), c.differing.end(), [&](int64_t a, int64_t b) {
      const Place x = place_of(plane, a), y = place_of(plane, b);
      return std::pair(x.row, x.col) < std::pair(y.row, y.col);
    });
    const int64_t differ = c.logical.differ;
    c.logical.differ = 0;
    note(c.logical, c, first, place_of(plane, first));
    c.logical.differ = differ;
  }
  return c;
}

// The elements of x that the differing elements of the cause stand for.
class Affected {
 public:
  explicit Affected(const Compared& cause) : problem_(cause.problem) {
    const Problem* problem = problem_;
    if (!problem) return;
    cols_ = problem->x.shape.cols;
    const int64_t count = problem->x.shape.count();
    if (cause.want->plane.padded == Shape{1, 1}) {
      everything_ = true;
      return;
    }
    marked_.assign(static_cast<size_t>(count), false);
    for (int64_t i : cause.differing) {
      const Region g = region_of(problem, cause.want->plane, place_of(cause.want->plane, i));
      for (int64_t r = g.row0; r < g.row1; ++r)
        for (int64_t c = g.col0; c < g.col1; ++c)
          if (r * cols_ + c < count) marked_[static_cast<size_t>(r * cols_ + c)] = true;
    }
  }
  int64_t count(const Compared& later) const {
    if (!problem_) return 0;
    if (everything_) return static_cast<int64_t>(later.differing.size());
    int64_t n = 0;
    for (int64_t i : later.differing) n += touches(region_of(problem_, later.want->plane, place_of(later.want->plane, i)));
    return n;
  }

 private:
  bool touches(const Region& g) const {
    for (int64_t r = g.row0; r < g.row1; ++r)
      for (int64_t c = g.col0; c < g.col1; ++c)
        if (const auto at = static_cast<size_t>(r * cols_ + c); at < marked_.size() && marked_[at]) return true;
    return false;
  }
  const Problem* problem_;
  int64_t cols_ = 0;
  bool everything_ = false;
  std::vector<bool> marked_;
};

// --- hints: what the pattern of one plane's differences suggests -------------------------------------------------------------

struct Pattern {
  const Compared& c;
  const Plane& plane = c.want->plane;
  Encoding e = plane.encoding;
  uint32_t got(int64_t i) const { return code_at(plane, c.got->bytes, i); }
  uint32_t want(int64_t i) const { return code_at(plane, c.want->bytes, i); }
  template <class F> bool all(F f) const { return std::all_of(c.differing.begin(), c.differing.end(), f); }
  bool many() const { return c.differing.size() > 1; }
};

std::string one_value(const Pattern& p) {
  if (p.c.differing.size() < 8) return {};
  const uint32_t first = p.got(p.c.differing[0]);
  if (!p.all([&](int64_t i) { return p.got(i) == first; })) return {};
  return fmt::format("the code {} in all of them: not written, or written with a constant", code_hex(p.e, first));
}

std::string nan_only(const Pattern& p) {
  if (p.all([&](int64_t i) { return is_nan(p.e, p.got(i)) && is_nan(p.e, p.want(i)); })) return "NaN on both sides with other bits: which NaN is written (N1.3, N2.4)";
  if (p.all([&](int64_t i) { return is_nan(p.e, p.got(i)); })) return "NaN only on the judged side: NaN or infinity handling, not rounding";
  if (p.all([&](int64_t i) { return is_nan(p.e, p.want(i)); })) return "a NaN is missing on the judged side: NaN handling, not rounding";
  return {};
}

std::string zero_sign(const Pattern& p) {
  const bool all = p.all([&](int64_t i) { return info(p.e).has_sign() && value_of(p.e, p.got(i)) == 0 && value_of(p.e, p.want(i)) == 0; });
  return all ? "the sign of zero only (N2.5, N5.6 neg_zero)" : "";
}

std::string other_sign(const Pattern& p) {
  if (!info(p.e).has_sign()) return {};
  const uint32_t sign = 1u << (info(p.e).bits - 1);
  return p.all([&](int64_t i) { return (p.got(i) ^ p.want(i)) == sign; }) ? "the sign only, the magnitudes are equal" : "";
}

std::string saturation(const Pattern& p) {
  const bool all = p.all([&](int64_t i) { return is_saturated(p.e, p.got(i)) || is_saturated(p.e, p.want(i)) || is_nan(p.e, p.got(i)) || is_nan(p.e, p.want(i)); });
  return all ? "only at the largest values: saturation against infinity or NaN (N2.2, N2.3)" : "";
}

std::string one_binade(const Pattern& p) {
  if (p.e != Encoding::e8m0) return {};
  auto by = [&](int64_t step) {
    return p.all([&](int64_t i) {
      const auto g = ordinal(p.e, p.got(i)), w = ordinal(p.e, p.want(i));
      return g && w && *g - *w == step;
    });
  };
  if (by(-1)) return "one binade too small, always: the scale is rounded down where N5.3 rounds up, or its amax misses the largest element";
  if (by(1)) return "one binade too large, always: the scale is rounded up twice, or its amax takes in elements of another block";
  return {};
}

// The logical regions as lists of codes, in rows and columns.
std::vector<uint32_t> logical_codes(const PlaneData& data, const Plane& plane) {
  std::vector<uint32_t> out;
  out.reserve(static_cast<size_t>(plane.logical.count()));
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c) out.push_back(code_at(plane, data.bytes, index_of(plane, r, c)));
  return out;
}

std::string order(const Pattern& p) {
  const Shape s = p.plane.logical;
  if (p.c.differing.size() < 2 || s.count() < 4) return {};
  const std::vector<uint32_t> got = logical_codes(*p.c.got, p.plane), want = logical_codes(*p.c.want, p.plane);
  if (s.rows > 1 && s.cols > 1) {
    bool transposed = true;
    for (int64_t i = 0; transposed && i < s.count(); ++i) transposed = got[static_cast<size_t>(i)] == want[static_cast<size_t>(i % s.rows * s.cols + i / s.rows)];
    if (transposed) return "the same codes, transposed: the stored order is wrong (N6.1)";
  }
  if (p.plane.layout == ScaleLayout::gemm || ends_with(p.plane.name, ".scale_inv")) {
    Plane other = p.plane;
    other.layout = p.plane.layout == ScaleLayout::gemm ? ScaleLayout::compact : ScaleLayout::gemm;
    if (other.padded.count() % 512 == 0 && logical_codes(*p.c.got, other) == want)
      return other.layout == ScaleLayout::gemm ? "the right scales in GEMM order where the compact one is asked for (N6.2, N6.3)"
                                               : "the right scales in compact order where the GEMM order is asked for (N6.3)";
  }
  std::vector<uint32_t> a = got, b = want;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a == b) return "the same codes in another order: layout or indexing, not arithmetic";
  return {};
}

std::string tail(const Pattern& p) {
  const Shape s = p.plane.logical;
  std::vector<Place> places;
  for (int64_t i : p.c.differing) places.push_back(place_of(p.plane, i));
  auto all = [&](auto f) { return std::all_of(places.begin(), places.end(), f); };
  if (p.many() && s.rows > 1 && all([&](Place x) { return x.row == s.rows - 1; })) return "only in the last row: the row bound, or a tail";
  if (p.many() && s.cols > 1 && all([&](Place x) { return x.col == s.cols - 1; })) return "only in the last column: the column bound, or a tail";
  for (int64_t unit : {16, 32, 64, 128}) {
    if (s.cols > unit && s.cols % unit != 0 && all([&](Place x) { return x.col >= s.cols / unit * unit; }))
      return fmt::format("only in the last {} columns, which fill no block of {}: tail handling", s.cols % unit, unit);
    if (s.rows > unit && s.rows % unit != 0 && all([&](Place x) { return x.row >= s.rows / unit * unit; }))
      return fmt::format("only in the last {} rows, which fill no block of {}: tail handling", s.rows % unit, unit);
  }
  return {};
}

// The differing elements of a product's d: which lines of which operand they share, and what their sizes say.
std::string product(const Pattern& p) {
  if (!p.c.problem || !p.c.problem->as<Gemm>() || !p.many()) return {};
  const Shape s = p.plane.logical;
  const auto [first, last] = std::minmax_element(p.c.differing.begin(), p.c.differing.end(), [&](int64_t x, int64_t y) { return x % s.cols < y % s.cols; });
  const int64_t n0 = p.c.differing.front() / s.cols, n1 = p.c.differing.back() / s.cols, m0 = *first % s.cols, m1 = *last % s.cols;
  if (s.rows > 1 && n0 == n1) return fmt::format("only in row n = {} of d: line {} of b, its scales or its amax, not the sum", n0, n0);
  if (s.cols > 1 && m0 == m1) return fmt::format("only in column m = {} of d: line {} of a, its scales or its amax, or bias[{}], not the sum", m0, m0, m0);
  for (const int64_t unit : {16, 32, 64, 128}) {
    if (s.rows > unit && n0 / unit == n1 / unit) return fmt::format("only in rows n = {}..{} of d: a block of b, or a tile of d", n0 / unit * unit, std::min((n0 / unit + 1) * unit, s.rows) - 1);
    if (s.cols > unit && m0 / unit == m1 / unit) return fmt::format("only in columns m = {}..{} of d: a block of a, or a tile of d", m0 / unit * unit, std::min((m0 / unit + 1) * unit, s.cols) - 1);
  }
  constexpr size_t kEnough = 8;   // fewer agree by chance
  if (p.c.differing.size() < kEnough) return {};
  double largest = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  for (int64_t i = 0; i < s.count(); ++i)
    if (const double w = std::fabs(value_of(p.e, p.want(i))); std::isfinite(w)) largest = std::max(largest, w);
  for (const int64_t i : p.c.differing) {
    const double w = value_of(p.e, p.want(i)), ratio = value_of(p.e, p.got(i)) / w;
    least = std::isfinite(ratio) ? std::min(least, ratio) : -std::numeric_limits<double>::infinity();
    most = std::max(most, ratio);
  }
  const double ulp = std::ldexp(1.0, -info(p.e).mantissa_bits);   // what rounding alone does to a ratio is below two
  if (least > 0 && most / least < 1 + 2 * ulp && std::fabs(least - 1) > 8 * ulp)
    return fmt::format("about {:.4g} times what is right in all of them: alpha, an amax or a scale, not the sum", std::sqrt(least * most));
  const auto gap = [&](int64_t i) { return std::fabs(value_of(p.e, p.got(i))) - std::fabs(value_of(p.e, p.want(i))); };
  if (!p.all([&](int64_t i) { return codes_apart(p.e, p.got(i), p.want(i)) == 1 || std::fabs(value_of(p.e, p.got(i)) - value_of(p.e, p.want(i))) <= std::ldexp(largest, -16); })) return {};
  if (p.all([&](int64_t i) { return gap(i) < 0; })) return "small, and always toward zero: terms or results of the sum are cut, not rounded (N16.4)";
  return "small, in either direction: the sum's own roundings, its order, a fused operation or another accumulator (N16.2 to N16.7); not operands or layout";
}

std::string one_apart(const Pattern& p) {
  if (!p.all([&](int64_t i) { return codes_apart(p.e, p.got(i), p.want(i)) == 1; })) return {};
  auto toward = [&](bool up) {
    return p.all([&](int64_t i) {
      const double g = std::fabs(value_of(p.e, p.got(i))), w = std::fabs(value_of(p.e, p.want(i)));
      return up ? g > w : g < w;
    });
  };
  if (p.many() && toward(false)) return "one code apart, always toward zero: truncation, or ties the other way";
  if (p.many() && toward(true)) return "one code apart, always away from zero: a rounding rule, or rounding twice";
  return "one code apart: rounding or its order, not layout";
}

std::string hint_of(const Compared& c) {
  const Pattern p{c};
  if (c.differing.size() > (size_t{1} << 24)) return {};   // seconds of looking; the first coordinate says enough
  for (auto rule : {nan_only, zero_sign, one_value, other_sign, one_binade, order, tail, product, one_apart, saturation})
    if (std::string hint = rule(p); !hint.empty()) return hint;
  return {};
}

std::string shape_text(Shape s) { return fmt::format("{}x{}", s.rows, s.cols); }

// Why a plane cannot be compared, or an empty string.
std::string mismatch(const PlaneData* got, const PlaneData& want) {
  const Plane& w = want.plane;
  if (!got) return fmt::format("plane {} is missing", w.name);
  if (got->plane.encoding != w.encoding) return fmt::format("plane {} is {}, expected {}", w.name, info(got->plane.encoding).name, info(w.encoding).name);
  if (!(got->plane.padded == w.padded)) return fmt::format("plane {} is {}, expected {}", w.name, shape_text(got->plane.padded), shape_text(w.padded));
  if (got->plane.layout != w.layout) return fmt::format("plane {} has another scale layout", w.name);
  if (got->plane.packed != w.packed || got->plane.members != w.members) return fmt::format("plane {} is stored another way", w.name);
  for (const PlaneData* p : {got, &want})
    if (p->bytes.size() != w.bytes()) return fmt::format("plane {} has {} bytes, expected {}", w.name, p->bytes.size(), w.bytes());
  return {};
}

}  // namespace

Judgement judge(const Problem* problem, const std::vector<PlaneData>& got, const std::vector<PlaneData>& want) {
  Judgement j;
  for (const PlaneData& g : got)
    if (!find_plane(want, g.plane.name)) j.error = fmt::format("plane {} is on one side only", g.plane.name);
  // N14.2: of a grouped plane every member is one plane, under its own Problem.
  const std::vector<Problem> members = problem && problem->as<Split>() ? member_problems(*problem) : std::vector<Problem>{};
  std::list<std::pair<PlaneData, PlaneData>> split;   // a list: Compared points into it
  std::vector<Compared> compared;
  for (const PlaneData& w : want) {
    const PlaneData* g = find_plane(got, w.plane.name);
    if (std::string why = mismatch(g, w); !why.empty()) {
      j.error = why;
      continue;
    }
    j.compared += w.plane.logical.count();
    if (w.plane.members.empty()) {
      compared.push_back(compare_plane(problem, *g, w));
      continue;
    }
    std::vector<PlaneData> ours = members_of(*g), theirs = members_of(w);
    for (size_t m = 0; m < theirs.size(); ++m) {
      const auto& [a, b] = split.emplace_back(std::move(ours[m]), std::move(theirs[m]));
      compared.push_back(compare_plane(m < members.size() ? &members[m] : nullptr, a, b));
    }
  }
  const bool may_be_empty = problem && problem->x.shape.count() == 0 && !want.empty();
  if (j.error.empty() && j.compared == 0 && !may_be_empty) j.error = "nothing was compared: no plane holds an element";

  const auto first = std::find_if(compared.begin(), compared.end(), [](const Compared& c) { return c.logical.differ > 0; });
  if (first != compared.end()) {
    j.cause = first->logical;
    j.hint = hint_of(*first);
    const Affected affected(*first);
    const std::optional<Direction> chain = first->want->plane.direction;
    for (auto later = first + 1; later != compared.end(); ++later) {
      if (later->logical.differ == 0) continue;
      const std::optional<Direction> d = later->want->plane.direction;
      if ((chain && d && *chain != *d) || later->problem != first->problem) {
        j.beside.push_back(later->logical);
      } else {
        later->logical.explained = affected.count(*later);
        j.after.push_back(later->logical);
      }
    }
  }
  for (const Compared& c : compared)
    if (c.padding.differ > 0) j.padding.push_back(c.padding);
  return j;
}

// --- the witness -------------------------------------------------------------------------------------------------------------

std::vector<PlaneWitness> witness(const std::vector<PlaneData>& planes) {
  constexpr size_t kMostDistinct = 65536;
  std::vector<PlaneWitness> out;
  for (const PlaneData& data : planes) {
    const Plane& plane = data.plane;
    PlaneWitness w{plane.name, plane.encoding, 0};
    const EncodingInfo& e = info(plane.encoding);
    std::unordered_set<uint32_t> wide;
    std::vector<bool> narrow(e.bits <= 16 ? size_t{1} << (8 * e.bytes()) : 0);
    const bool has_zero = e.mantissa_bits > 0;
    const auto look = [&](const Plane& part, std::span<const std::byte> bytes) {
      w.elements += part.logical.count();
      for (int64_t i = 0; i < part.padded.count(); ++i) {
        if (!(part.logical == part.padded) && place_of(part, i).padding) continue;
        const uint32_t code = code_at(part, bytes, i);
        if (!narrow.empty()) {
          if (!narrow[code]) ++w.distinct;
          narrow[code] = true;
        } else if (wide.size() < kMostDistinct && wide.insert(code).second) {
          ++w.distinct;
        }
        const uint32_t magnitude = e.has_sign() ? code & ((1u << (e.bits - 1)) - 1) : code;
        w.zeros += has_zero && magnitude == 0;
        w.nans += is_nan(plane.encoding, code);
        w.saturated += is_saturated(plane.encoding, code);
      }
    };
    if (plane.members.empty()) look(plane, data.bytes);
    for (size_t m = 0; m < plane.members.size(); ++m) {
      const Plane part = member_plane(plane, m);
      look(part, std::span(data.bytes).subspan(plane.bytes_of(plane.members[m].offset), part.bytes()));
    }
    out.push_back(std::move(w));
  }
  return out;
}

namespace {

// Planes of fewer elements are legitimately poor in codes.
constexpr int64_t kLeastElements = 8;

// Fewer codes than this among n elements could come out of broken code as well. Grows with the size up to 8: a tensor of small integers
// (fill=exact_sums) has 17, a constant one has one.
int64_t least_distinct(int64_t n) { return std::min<int64_t>(8, std::bit_width(static_cast<uint64_t>(n)) / 2 + 1); }

std::string weakness(const PlaneWitness& w) {
  if (w.elements < kLeastElements) return {};
  if (w.zeros == w.elements) return fmt::format("{}: all {} elements are zero", w.plane, w.elements);
  if (w.nans == w.elements) return fmt::format("{}: all {} elements are NaN", w.plane, w.elements);
  if (w.saturated == w.elements) return fmt::format("{}: all {} elements are saturated", w.plane, w.elements);
  if (w.distinct < least_distinct(w.elements))
    return fmt::format("{}: only {} distinct code{} in {} elements, at least {} expected", w.plane, w.distinct, w.distinct == 1 ? "" : "s", w.elements,
                       least_distinct(w.elements));
  return {};
}

// What a case is about; offsets are not.
bool is_data(const PlaneWitness& w) { return w.plane == "y" || ends_with(w.plane, ".data"); }

}  // namespace

std::string mistrust(const Problem& problem, const std::vector<PlaneWitness>& seen) {
  if (problem.x.shape.count() < kLeastElements) return {};
  for (const PlaneWitness& w : seen)
    if (is_data(w))
      if (std::string why = weakness(w); !why.empty()) return why;
  // Without data planes (update, swizzle, scale_chain) one lively plane is enough: a history of one row is all zeros by N4.2.
  std::string why;
  for (const PlaneWitness& w : seen) {
    if (is_data(w) || w.elements < kLeastElements) continue;
    const std::string weak = weakness(w);
    if (weak.empty()) return {};
    if (why.empty()) why = weak;
  }
  const bool has_data = std::any_of(seen.begin(), seen.end(), [](const PlaneWitness& w) { return is_data(w); });
  return has_data ? "" : why;
}

std::string to_text(const std::vector<PlaneWitness>& seen) {
  auto best = std::find_if(seen.begin(), seen.end(), is_data);
  if (best == seen.end()) best = std::max_element(seen.begin(), seen.end(), [](auto& a, auto& b) { return a.elements < b.elements; });
  if (best == seen.end()) return "no planes";
  if (best->elements == 0) return "an empty tensor";
  const double percent = 100.0 / static_cast<double>(best->elements);
  std::string out = fmt::format("{}: {} distinct codes in {} elements, {:.1f} % zero, {:.1f} % saturated, {:.1f} % NaN", best->plane, best->distinct, best->elements,
                                percent * static_cast<double>(best->zeros), percent * static_cast<double>(best->saturated),
                                percent * static_cast<double>(best->nans));
  for (const PlaneWitness& w : seen)
    if (&w != &*best && w.elements > 1 && w.plane.find("scale") != std::string::npos) {
      out += fmt::format("; {}: {} distinct scales", w.plane, w.distinct);
      break;
    }
  return out;
}

}  // namespace assay

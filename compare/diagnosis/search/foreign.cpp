#include "compare/diagnosis/search/foreign.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/search/codes.h"

namespace assay::cause {

namespace {

using std::string;

// Lines [from, to) of a lane, the only ones in which anything differs.
struct LineRange {
  int64_t from = 1 << 30, to = 0;
  int64_t count() const { return to - from; }
};

// What the codes of some lines are, held to x under the scales that came.
struct Against {
  int64_t of = 0, no_rounding = 0;  // codes; those that are no rounding of x
  int64_t blocks = 0, own = 0;      // blocks that say something; those that are scaled for their own codes
  double xx = 0, yy = 0, xy = 0;    // sums over scaled values and the values of codes
  double correlation() const { return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0; }
  bool wrong() const { return of >= 64 && no_rounding * 20 >= of; }
  bool scaled_for_itself() const { return blocks > 0 && own * 100 >= blocks * 99; }
};

class HeldLane {
 public:
  explicit HeldLane(const JudgedLane& lane)
      : lane_(lane),
        q_(lane.quantizer()),
        data_(lane.find(".data")),
        scales_(lane.find(scale_stem(q_.scales))) {}

  bool judged() const { return data_ && !q_.rht && q_.round != Round::sr && !q_.row_scaled; }
  bool codes_differ() const { return data_->differ > 0; }
  int64_t stored_scales_differing() const { return scales_ ? scales_->differ : 0; }
  bool blocks() const { return info(q_.format).has_blocks(); }
  // Whether a plane that follows the amax differs: what makes codes alone wrong is no other tensor.
  bool amaxes_differ() const {
    return std::any_of(lane_.judged.begin(), lane_.judged.end(),
                       [](const JudgedPlane& j) { return !j.is_data() && j.differ > 0; });
  }
  int64_t lines() const { return lane_.lines(); }
  string name(const LineRange& l) const {
    const char* what = lane_.lane().direction == Direction::row ? "rows" : "columns";
    return l.count() == lines() ? what : fmt::format("{} {}..{}", what, l.from, l.to - 1);
  }

  LineRange differing() const {
    LineRange out;
    const auto take = [&](int64_t i) { out.from = std::min(out.from, i), out.to = std::max(out.to, i + 1); };
    for_data([&](int64_t i, int64_t, int64_t at) {
      if (Codes(data_->got)[at] != Codes(data_->want)[at]) take(i);
    });
    if (blocks() && scales_) {
      const Codes got(scales_->got), want(scales_->want);
      for_scales([&](int64_t i, int64_t, int64_t at) {
        if (got[at] != want[at]) take(i);
      });
    }
    return out;
  }

  // The share of the scales of these lines that differ.
  double scales_differing(const LineRange& l) const {
    int64_t of = 0, differ = 0;
    const Codes got(scales_->got), want(scales_->want);
    for_scales([&](int64_t i, int64_t, int64_t at) {
      if (i < l.from || i >= l.to) return;
      ++of, differ += got[at] != want[at];
    });
    return of ? static_cast<double>(differ) / static_cast<double>(of) : 0;
  }

  Against against(const LineRange& l) const;

 private:
  template <class F> void for_data(F f) const {
    const bool as_seen = lane_.as_seen();
    for (int64_t i = 0; i < lane_.lines(); ++i)
      for (int64_t j = 0; j < lane_.length(); ++j)
        f(i, j, as_seen ? index_of(data_->want.plane, i, j) : index_of(data_->want.plane, j, i));
  }
  template <class F> void for_scales(F f) const {
    const bool as_seen = lane_.as_seen();
    const int64_t n = length_of(q_.block);
    for (int64_t i = 0; i < lane_.lines(); ++i)
      for (int64_t j = 0; j < lane_.length(); j += n)
        f(i, j,
          as_seen ? scale_index(q_, scales_->want.plane, i, j) : scale_index(q_, scales_->want.plane, j, i));
  }

  const JudgedLane& lane_;
  const Quantizer& q_;
  const JudgedPlane *data_, *scales_;
};

Against HeldLane::against(const LineRange& l) const {
  Against out;
  std::vector<PlaneData> planes;
  for (const JudgedPlane& j : lane_.judged) planes.push_back(j.got);
  const ScaledValues scaled(lane_.lane().problem, *lane_.lane().direction, lane_.lane().inputs, planes);
  const Encoding e = data_->got.plane.encoding;
  const double most = value_of(e, info(e).max_finite), least = q_.format == FormatId::nvfp4 ? 4 : most / 2.2;
  const Codes got(data_->got);
  const bool as_seen = lane_.as_seen();
  const int64_t n = blocks() ? length_of(q_.block) : lane_.length();
  const int64_t height = is_square(q_.block) ? n : blocks() ? 1 : lane_.lines();
  for (int64_t i0 = l.from / height * height; i0 < l.to; i0 += height)
    for (int64_t j0 = 0; j0 < lane_.length(); j0 += n) {
      double largest = 0;
      for (int64_t i = std::max(i0, l.from); i < std::min(i0 + height, l.to); ++i)
        for (int64_t j = j0; j < std::min(j0 + n, lane_.length()); ++j) {
          const int64_t r = as_seen ? i : j, c = as_seen ? j : i;
          const double y = value_of(e, got[index_of(data_->got.plane, r, c)]);
          const auto v = scaled.at(r, c);
          if (!v || !std::isfinite(v->value) || !std::isfinite(y)) continue;
          largest = std::max(largest, std::fabs(y));
          const double x = std::clamp(v->value, -most, most);
          out.xx += x * x, out.yy += y * y, out.xy += x * y;
          ++out.of;
          out.no_rounding +=
              std::fabs(x - y) > 0.52 * step_at(e, std::max(std::fabs(x), std::fabs(y))) + v->slack;
        }
      if (largest == 0) continue;
      ++out.blocks;
      out.own += largest >= least;
    }
  return out;
}

constexpr int64_t kFewScales = 8;  // of square blocks a scale stands for many lines, and says no more for it

// One direction that differs: all of it beside another direction that is right, or some lines beside others.
std::optional<string> told(const HeldLane& lane, bool other_is_right) {
  const LineRange lines = lane.differing();
  const bool whole = lines.count() * 2 > lane.lines();
  if (lines.count() < 8 || (whole && !other_is_right)) return {};
  const char* beside = whole ? "the other direction is right" : "everything else is right";
  if (!lane.codes_differ())
    return whole || lane.stored_scales_differing() < kFewScales || lane.scales_differing(lines) < 0.4
               ? std::nullopt
               : std::optional(
                     fmt::format("the stored scales of {} are of another tensor or step: the codes beside "
                                 "them, and everything else, are right",
                                 lane.name(lines)));
  const LineRange all{0, lane.lines()};
  const Against a = lane.against(whole ? all : lines);
  const double r = a.correlation();
  if (!a.wrong() || (lane.blocks() && !a.scaled_for_itself())) return {};
  if (lane.amaxes_differ() ? r > 0.9999 : whole || r > 0.3) return {};
  const int share = static_cast<int>(100 * a.no_rounding / a.of);
  return fmt::format(
      "{} are of another tensor or step{}: {}, {}and {} % of the codes are no rounding of x ({})",
      lane.name(whole ? all : lines), whole ? " (stale)" : "", beside,
      lane.blocks() ? "blocks are scaled for their own codes, " : "", share,
      r > 0.5 ? "they follow it from afar, as those of a step before do" : "they have nothing of it");
}

}  // namespace

std::vector<string> foreign_data(JudgedCase& judged_case) {
  std::vector<string> out;
  if (!judged_case.seen.problem.as<Quantize>()) return out;
  for (const JudgedLane& l : judged_case.lanes) {
    if (!l.lane().direction || !l.differs()) continue;
    const HeldLane lane(l);
    if (!lane.judged()) continue;
    bool other_is_right = judged_case.lanes.size() > 1;
    for (const JudgedLane& o : judged_case.lanes) other_is_right &= &o == &l || !o.differs();
    if (auto text = told(lane, other_is_right)) out.push_back(std::move(*text));
  }
  return out;
}

}  // namespace assay::cause

#include "compare/judge/statistics.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"

namespace assay {

namespace {

// How many different codes of 32 bits there are, up to kMost.
class DistinctWords {
 public:
  void add(uint32_t code) {
    if (full_) return;
    codes_.push_back(code);
    if (codes_.size() == 2 * kMost) keep_one_of_each();
  }
  int64_t count() {
    keep_one_of_each();
    return static_cast<int64_t>(std::min(codes_.size(), kMost));
  }

 private:
  static constexpr size_t kMost = 65536;
  void keep_one_of_each() {
    std::sort(codes_.begin(), codes_.end());
    codes_.erase(std::unique(codes_.begin(), codes_.end()), codes_.end());
    full_ = codes_.size() >= kMost;
  }
  bool full_ = false;
  std::vector<uint32_t> codes_;
};

}  // namespace

std::vector<PlaneWitness> witness(const std::vector<PlaneData>& planes) {
  std::vector<PlaneWitness> out;
  for (const PlaneData& data : planes) {
    const Plane& plane = data.plane;
    PlaneWitness w{plane.name, plane.encoding, 0};
    const EncodingInfo& e = info(plane.encoding);
    DistinctWords wide;
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
        } else {
          wide.add(code);
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
    if (narrow.empty()) w.distinct = wide.count();
    out.push_back(std::move(w));
  }
  return out;
}

namespace {

// Planes of fewer elements are legitimately poor in codes.
constexpr int64_t kLeastElements = 8;

// Fewer codes than this among n elements could come out of broken code as well. Grows with the size up to 8:
// a tensor of small integers (fill=exact_sums) has 17, a constant one has one.
int64_t least_distinct(int64_t n) {
  return std::min<int64_t>(8, std::bit_width(static_cast<uint64_t>(n)) / 2 + 1);
}

std::string weakness(const PlaneWitness& w) {
  if (w.elements < kLeastElements) return {};
  if (w.zeros == w.elements) return fmt::format("{}: all {} elements are zero", w.plane, w.elements);
  if (w.nans == w.elements) return fmt::format("{}: all {} elements are NaN", w.plane, w.elements);
  if (w.saturated == w.elements) return fmt::format("{}: all {} elements are saturated", w.plane, w.elements);
  if (w.distinct < least_distinct(w.elements))
    return fmt::format("{}: only {} distinct code{} in {} elements, at least {} expected", w.plane,
                       w.distinct, w.distinct == 1 ? "" : "s", w.elements, least_distinct(w.elements));
  return {};
}

// What a case is about; offsets are not.
bool is_data(const PlaneWitness& w) { return w.plane == "y" || w.plane.ends_with(".data"); }

}  // namespace

std::string mistrust(const Problem& problem, const std::vector<PlaneWitness>& seen) {
  if (problem.x.shape.count() < kLeastElements) return {};
  for (const PlaneWitness& w : seen)
    if (is_data(w))
      if (std::string why = weakness(w); !why.empty()) return why;
  // Without data planes (update, swizzle, scale_chain) one lively plane is enough: a history of one row is
  // all zeros by N4.2.
  std::string why;
  for (const PlaneWitness& w : seen) {
    if (is_data(w) || w.elements < kLeastElements) continue;
    const std::string weak = weakness(w);
    if (weak.empty()) return {};
    if (why.empty()) why = weak;
  }
  const bool has_data =
      std::any_of(seen.begin(), seen.end(), [](const PlaneWitness& w) { return is_data(w); });
  return has_data ? "" : why;
}

std::string to_text(const std::vector<PlaneWitness>& seen) {
  auto best = std::find_if(seen.begin(), seen.end(), is_data);
  if (best == seen.end())
    best =
        std::max_element(seen.begin(), seen.end(), [](auto& a, auto& b) { return a.elements < b.elements; });
  if (best == seen.end()) return "no planes";
  if (best->elements == 0) return "an empty tensor";
  const double percent = 100.0 / static_cast<double>(best->elements);
  std::string out =
      fmt::format("{}: {} distinct codes in {} elements, {:.1f} % zero, {:.1f} % saturated, {:.1f} % NaN",
                  best->plane, best->distinct, best->elements, percent * static_cast<double>(best->zeros),
                  percent * static_cast<double>(best->saturated), percent * static_cast<double>(best->nans));
  for (const PlaneWitness& w : seen)
    if (&w != &*best && w.elements > 1 && w.plane.find("scale") != std::string::npos &&
        !w.plane.ends_with("scale_offsets")) {
      out += fmt::format("; {}: {} distinct scales", w.plane, w.distinct);
      break;
    }
  return out;
}

}  // namespace assay

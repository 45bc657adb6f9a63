#include "compare/diagnosis/identify/coherence_verdict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/coordinates.h"
#include "fixtures/inputs.h"

namespace assay::coherent {

using std::string;

namespace {

int percent(int64_t part, int64_t whole) {
  if (!whole) return 0;
  return static_cast<int>(std::floor(100.0 * static_cast<double>(part) / static_cast<double>(whole)));
}

}  // namespace

void ApartElements::tell(int64_t r, int64_t c, double a, double b) {
  if (!apart_[index(r, c)] || !std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return;
  ++told_;
  opposite_ += std::signbit(a) != std::signbit(b);
  const double steps = std::log2(std::fabs(b / a)), nearest = std::round(steps);
  if (std::fabs(steps - nearest) < 0.4 && std::fabs(nearest) <= 8)
    ++binades_[static_cast<size_t>(nearest + 8)];
}

std::vector<Coordinate> ApartElements::where(const Problem& problem) const {
  // As the patterns of a plane of the tensor's shape.
  Plane plane;
  plane.name = "apart";
  plane.encoding = Encoding::u8;
  plane.logical = plane.padded = shape_;
  PlaneData got{plane, {}}, want{plane, std::vector<std::byte>(apart_.size())};
  for (const char a : apart_) got.bytes.push_back(static_cast<std::byte>(a));
  return coordinates(problem, got, want);
}

string ApartElements::verdict(int64_t apart, int64_t of) const {
  const int share = percent(apart, of);
  const auto most = std::max_element(binades_.begin(), binades_.end());
  const int binade = static_cast<int>(most - binades_.begin()) - 8;
  if (told_ >= 16 && opposite_ * 20 < told_ && *most * 10 >= told_ * 9 && binade != 0)
    return fmt::format("scale: columns are 2^{} times the rows where they differ, {} % of the elements",
                       binade, share);
  // Signs, too, are another tensor's.
  if (told_ >= 16 ? opposite_ * 5 >= told_ : share >= 50) return stale(share);
  return fmt::format("{} of {} elements ({} %) cannot come from one tensor", apart, of, share);
}

// ---- stale parts ------------------------------------------------------------------------------------------

// Bands of rows, or of columns, and how many elements of each are marked.
struct ApartElements::Bands {
  static constexpr int64_t kBand = 16;
  int64_t length = 0;
  std::vector<int64_t> bad, of;
  int64_t count() const { return static_cast<int64_t>(bad.size()); }
  double share(int64_t k) const {
    return static_cast<double>(bad[static_cast<size_t>(k)]) / static_cast<double>(of[static_cast<size_t>(k)]);
  }
};

ApartElements::Bands ApartElements::bands(bool rows) const {
  Bands out;
  out.length = rows ? shape_.rows : shape_.cols;
  out.bad.resize(static_cast<size_t>(ceil_div(out.length, Bands::kBand)));
  out.of.resize(out.bad.size());
  for (int64_t r = 0; r < shape_.rows; ++r)
    for (int64_t c = 0; c < shape_.cols; ++c) {
      const size_t b = static_cast<size_t>((rows ? r : c) / Bands::kBand);
      out.bad[b] += apart_[index(r, c)];
      ++out.of[b];
    }
  return out;
}

// Bands of rows, then of columns, that are either coherent or hardly at all.
string ApartElements::stale(int share) const {
  for (const bool rows : {true, false}) {
    const Bands b = bands(rows);
    double most = 0;
    for (int64_t k = 0; k < b.count(); ++k) most = std::max(most, b.share(k));
    const auto is_old = [&](int64_t k) { return b.share(k) > most / 2; };
    string fresh, old;
    int64_t bad_of = 0, old_of = 0;
    bool clear = true;
    for (int64_t k = 0, from = 0; k < b.count(); ++k) {
      clear = clear && (is_old(k) || b.share(k) <= most / 20);
      if (is_old(k)) {
        bad_of += b.bad[static_cast<size_t>(k)];
        old_of += b.of[static_cast<size_t>(k)];
      }
      if (k + 1 < b.count() && is_old(k) == is_old(k + 1)) continue;
      string& list = is_old(k) ? old : fresh;
      list += fmt::format("{}{}..{}", list.empty() ? "" : ", ", from * Bands::kBand,
                          std::min((k + 1) * Bands::kBand, b.length) - 1);
      from = k + 1;
    }
    if (!clear || fresh.empty() || old.empty() || old.size() > 60) continue;
    const char* axis = rows ? "rows" : "columns";
    return fmt::format(
        "columns stale in {} {} of the tensor: {} % of the elements there cannot come from the tensor of the "
        "row data; "
        "fresh are {} {}",
        axis, old, percent(bad_of, old_of), axis, fresh.size() > 60 ? "the others" : fresh);
  }
  return fmt::format(
      "columns stale: {} % of the elements cannot come from the tensor of the row data (or the rows are, and "
      "the columns "
      "fresh)",
      share);
}

}  // namespace assay::coherent

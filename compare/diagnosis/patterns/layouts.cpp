#include "compare/diagnosis/patterns/layouts.h"

#include <algorithm>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/layout_search.h"

namespace assay {

using namespace patterns;
using std::string;

std::vector<LayoutFit> fit_layouts(const Plane& plane, std::span<const std::byte> got,
                                   std::span<const std::byte> want) {
  const bool fits = got.size() == plane.bytes() && want.size() == plane.bytes();
  if (!plane.members.empty() || !fits || plane.padded.count() < 32) return {};
  LayoutSearch search(plane, got, want);
  const AddressedCodes& codes = search.codes();
  const bool nearly_constant = (1 - codes.chance) * static_cast<double>(codes.logical) < 24;
  if (codes.same == codes.logical || nearly_constant) return {};
  offer_known_orders(search);
  offer_moved_elements(search);
  if (!search.any_exact()) offer_address_bits(search);
  if (!search.any_exact()) offer_runs(search);
  std::vector<LayoutFit> out = std::move(search.fits());
  std::stable_sort(out.begin(), out.end(), [](const LayoutFit& a, const LayoutFit& b) {
    return a.exact != b.exact ? a.exact : a.share > b.share;
  });
  if (out.size() > 5) out.resize(5);
  return out;
}

// The codes are too few for chance to be told from a cause by shares.
std::vector<LayoutFit> exact_layouts(const Plane& plane, std::span<const std::byte> got,
                                     std::span<const std::byte> want) {
  static constexpr const char* kNames[] = {"column_major",
                                           "row_major",
                                           "tiles_128x4",
                                           "tiles_128x4_across",
                                           "tiles_128x4_down",
                                           "tiles_128x4_rows",
                                           "tiles_128x4_reshaped",
                                           "tiles_128x4_words",
                                           "tiles_128x4_floored",
                                           "tiles_128x4_floored_across",
                                           "tiles_128x4_floored_to_0",
                                           "tiles_128x4_one_less",
                                           "tiles_128x4_one_less_across",
                                           "tiles_128x4_groups_close",
                                           "tiles_128x4_groups_close_across",
                                           "tiles_128x4_of_others_32",
                                           "tiles_128x4_of_others_32_across",
                                           "tiles_128x4_of_others_16",
                                           "tiles_128x4_of_others_16_across",
                                           "tiles_128x4_last_rows",
                                           "tiles_32x4",
                                           "tiles_8x4",
                                           "swizzled_twice",
                                           "words_along",
                                           "words_down",
                                           "rows_reversed",
                                           "columns_reversed",
                                           "rows_swapped_1",
                                           "columns_swapped_1",
                                           "row_offset_1",
                                           "row_offset_-1",
                                           "column_offset_1",
                                           "column_offset_-1"};
  if (!plane.members.empty() || got.size() != plane.bytes() || want.size() != plane.bytes()) return {};
  LayoutSearch search(plane, got, want);
  if (search.codes().same == search.codes().logical) return {};
  for (const string name : kNames)
    for (const char* form : {"", "_unpadded", "_inverse"}) {
      search.look_for_every_code_of(name + form);
      offer_known_orders(search);
      offer_moved_elements(search);
    }
  return std::move(search.fits());
}

std::optional<LayoutFit> layout_named(std::string_view name, const Plane& plane) {
  if (!plane.members.empty() || name.empty()) return {};
  LayoutSearch search(plane, string(name));
  if (auto fit = address_bits_named(string(name), search.codes())) return fit;
  if (plane.logical.count() == 0) return {};
  offer_known_orders(search);
  offer_moved_elements(search);
  return search.fits().empty() ? std::nullopt : std::optional(std::move(search.fits().front()));
}

std::optional<std::vector<std::byte>> relayout(const LayoutFit& fit, const Plane& plane,
                                               std::span<const std::byte> got,
                                               std::span<const std::byte> want) {
  const int64_t n = plane.padded.count();
  if (static_cast<int64_t>(fit.source.size()) != n || got.size() != plane.bytes() ||
      want.size() != plane.bytes())
    return {};
  std::vector<std::byte> out(want.begin(), want.end());
  for (int64_t i = 0; i < n; ++i) {
    const int32_t to = fit.source[static_cast<size_t>(i)];
    if (to >= n) return {};
    if (to >= 0) set_code(plane, out, to, code_at(plane, got, i));
  }
  return out;
}

}  // namespace assay

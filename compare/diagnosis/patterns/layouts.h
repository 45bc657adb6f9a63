// Which permutation turns the wanted bytes of a plane into the ones that came, found without a hypothesis
// about values: known layouts as data, and where none fits, an index map made from codes that are alone in
// their surroundings, described as strides or as a permutation of address bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/planes.h"

namespace assay {

struct LayoutFit {
  std::string name;         // "nibbles_swapped", "rows_as_columns", "address_bits": stable
  std::string description;  // "two codes of a byte have changed places"
  double share = 0;         // of the plane's elements, those that come out as they came
  bool exact = false;       // all of them
  bool named = true;        // layout_named makes it on other planes too; false: found as runs of one tensor
  // got[i] is want[source[i]], in elements of the allocated plane; -1: whatever stands there. Empty: nothing
  // to undo.
  std::vector<int32_t> source;
};

// Layouts that explain the bytes that came clearly better than the plane's own order does, the best first;
// exact ones before others. Empty where got equals want, where nothing fits, or where codes do not tell
// places apart (few distinct ones). Both spans are plane.bytes() long.
std::vector<LayoutFit> fit_layouts(const Plane& plane, std::span<const std::byte> got,
                                   std::span<const std::byte> want);

// Where codes do not tell places apart: of the orders and slips that are met most, those that make every byte
// that came, at least four of them in another place.
std::vector<LayoutFit> exact_layouts(const Plane& plane, std::span<const std::byte> got,
                                     std::span<const std::byte> want);

// The layout of that name on a plane of any size, without codes: share 0. Nothing where no layout has that
// name, or where it was found as runs of one tensor and says nothing of another.
std::optional<LayoutFit> layout_named(std::string_view name, const Plane& plane);

// The bytes that came, put back into the plane's own order, so that values can be judged. Elements that the
// layout lost are the wanted ones' (`want`). Nothing where the fit does not belong to this plane.
std::optional<std::vector<std::byte>> relayout(const LayoutFit& fit, const Plane& plane,
                                               std::span<const std::byte> got,
                                               std::span<const std::byte> want);

}  // namespace assay

// The codes of a plane, for loops over all of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compare/arithmetic/codes.h"
#include "contract/planes.h"
#include "fixtures/inputs.h"

namespace assay::cause {

class Codes {
 public:
  explicit Codes(const PlaneData& data) : Codes(data.plane, data.bytes) {}
  Codes(const Plane& plane, std::span<const std::byte> bytes) : bytes_(bytes.data()), bits_(plane.bits()) {}
  uint32_t operator[](int64_t i) const {
    switch (bits_) {
      case 8: return std::to_integer<uint32_t>(bytes_[i]);
      case 16: return read<uint16_t>(i);
      case 32: return read<uint32_t>(i);
    }
    return packed_code(bytes_, bits_, i);
  }

 private:
  template <class T> uint32_t read(int64_t i) const {
    T code;
    std::memcpy(&code, bytes_ + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return code;
  }
  const std::byte* bytes_;
  int bits_;  // of an element as it is stored
};

// Calls f(row, column, flat index) for every logical element.
template <class F> void for_places(const Plane& plane, F f) {
  const bool compact = plane.layout == ScaleLayout::compact && plane.members.empty();
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c)
      f(r, c, compact ? r * plane.padded.cols + c : index_of(plane, r, c));
}
// Calls f(flat index) likewise.
template <class F> void for_logical(const Plane& plane, F f) {
  if (plane.logical == plane.padded && plane.layout == ScaleLayout::compact) {
    for (int64_t i = 0; i < plane.logical.count(); ++i) f(i);
  } else {
    for_places(plane, [&](int64_t, int64_t, int64_t i) { f(i); });
  }
}

}  // namespace assay::cause

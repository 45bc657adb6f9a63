// Identity as a direction lane: the elements go back as they came, NaN payloads included (N7.1).
#pragma once
#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct IdentityDirection : WithoutAmaxPass {
  static constexpr bool kCopies = true;

  static IdentityDirection of(const Job& job, Direction d) { return {{direction_planes(job, d)}}; }

  template <bool kRows> ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    if (!step.store) return;
    if (tile.source == Encoding::f32) store<Encoding::f32>(tile, patch);
    else if (tile.source == Encoding::bf16) store<Encoding::bf16>(tile, patch);
    else store<Encoding::f16>(tile, patch);
  }

 private:
  // Both directions are stored [rows, cols] (N6.1).
  template <Encoding E> ASSAY_DEVICE void store(const Tile& tile, const Patch& patch) const {
    constexpr int kBytes = Layout<E>::kBytes;
    const int64_t pitch = tile.extent.cols * kBytes;
    uint8_t* to = planes.data + tile.at.row * pitch + tile.at.col * kBytes;
    const bool vector =
        tile.at.cols == kPatch && ((reinterpret_cast<uintptr_t>(to) | uint64_t(pitch)) & 15u) == 0;
#pragma unroll
    for (int i = 0; i < kPatch; ++i, to += pitch) {
      if (i >= tile.at.rows) continue;
      uint32_t raw[kPatch];
#pragma unroll
      for (int j = 0; j < kPatch; ++j) raw[j] = narrow_exactly<E>(patch.bits[i][j]);
      if (vector && kBytes == 2) {
        store16(to, make_uint4(raw[0] | raw[1] << 16, raw[2] | raw[3] << 16, raw[4] | raw[5] << 16,
                               raw[6] | raw[7] << 16));
      } else if (vector) {
        store16(to, make_uint4(raw[0], raw[1], raw[2], raw[3]));
        store16(to + 16, make_uint4(raw[4], raw[5], raw[6], raw[7]));
      } else {
#pragma unroll
        for (int j = 0; j < kPatch; ++j) {
          if (j >= tile.at.cols) continue;
          if constexpr (kBytes == 2) reinterpret_cast<uint16_t*>(to)[j] = uint16_t(raw[j]);
          else reinterpret_cast<uint32_t*>(to)[j] = raw[j];
        }
      }
    }
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE

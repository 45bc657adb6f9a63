// What tests of quantizers share: inputs, the buffers of a storage by name, and quantizers as the tests need
// them.
#pragma once
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/training/storage_kit.h"
#include "training/formats/formats.h"

namespace assay::training {

// Values of both signs over eleven binades, of which no two neighbours are alike.
inline ArrayPtr random_bf16(Dims shape, uint32_t seed = 1) {
  std::vector<uint16_t> bits(static_cast<size_t>(count_of(shape)));
  uint32_t state = seed * 2654435761u + 1;
  for (uint16_t& b : bits) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<uint16_t>((state >> 16 & 0x8000) | (120 + (state >> 8) % 11) << 7 | (state >> 24 & 0x7F));
  }
  return from_bytes(std::move(shape), DType::bfloat16, std::as_bytes(std::span(bits)));
}
inline ArrayPtr f32_scalar(float v, Dims shape = {}) {
  return from_bytes(std::move(shape), DType::float32, std::as_bytes(std::span(&v, 1)));
}
inline float number(const ArrayPtr& a) {
  return std::bit_cast<float>(*reinterpret_cast<const uint32_t*>(a->bytes().data()));
}

using Bytes = std::map<std::string, std::vector<std::byte>>;
inline Bytes bytes_of(Storage& s) {
  Bytes out;
  for (const Field& f : s.fields())
    if (*f.slot) out[f.name].assign(contiguous(*f.slot)->bytes().begin(), contiguous(*f.slot)->bytes().end());
  return out;
}

inline void update(Quantizer& q, Session& session, const ArrayPtr& x, Storage& dst,
                   std::optional<F32Bits> noop = std::nullopt) {
  q.update_quantized(session, x, dst, noop);
}

template <class Q, class... Args> std::shared_ptr<Q> make(Args... args) {
  return std::make_shared<Q>(args...);
}
inline std::shared_ptr<Float8Quantizer> delayed(float scale = 2, float amax = 0) {
  return make<Float8Quantizer>(f32_scalar(scale), f32_scalar(amax, {1}), Encoding::e4m3);
}
inline std::shared_ptr<NVFP4Quantizer> stochastic(bool rht) {
  auto q = make<NVFP4Quantizer>();
  q->stochastic_rounding = true;
  q->with_rht = q->with_post_rht_amax = rht;
  return q;
}
// One of each class that writes both directions at once, deterministic.
inline std::vector<QuantizerPtr> vanilla() {
  auto rht = make<NVFP4Quantizer>();
  rht->with_rht = rht->with_post_rht_amax = true;
  return {delayed(),
          make<Float8CurrentScalingQuantizer>(),
          make<Float8BlockQuantizer>(Encoding::e4m3, 1),
          make<Float8BlockQuantizer>(Encoding::e4m3, 2),
          make<MXFP8Quantizer>(),
          make<NVFP4Quantizer>(),
          rht};
}

}  // namespace assay::training

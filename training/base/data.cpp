#include "training/base/data.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fixtures/fill.h"

namespace assay::training {

ArrayPtr drawn(Dims shape, DType dtype, uint64_t seed, FillKind kind) {
  const Shape flat = flattened(shape);
  const ArrayPtr out = empty(std::move(shape), dtype);
  Fill fill;
  fill.kind = kind;
  fill.seed = seed;
  if (const auto error = fill_tensor(fill, encoding_of(dtype), flat, out->bytes()))
    throw std::logic_error(error->text());
  return out;
}

ArrayPtr gradient(Dims shape, DType dtype, uint64_t seed) {
  const ArrayPtr out = drawn(std::move(shape), dtype, seed);
  const Shape flat = flattened(out->shape);
  const std::span<std::byte> bytes = out->bytes();
  const int64_t size = bytes_of(dtype);
  const auto put = [&](int64_t i, uint32_t top) {  // the element whose upper 16 bits are `top`
    std::fill_n(bytes.begin() + i * size, size, std::byte{0});
    bytes[static_cast<size_t>(i * size + size - 2)] = static_cast<std::byte>(top & 0xFF);
    bytes[static_cast<size_t>(i * size + size - 1)] = static_cast<std::byte>(top >> 8);
  };
  for (int64_t i = 5; i < flat.count(); i += 8) put(i, 0x8000);
  for (int64_t r = 0; r < std::min<int64_t>(flat.rows, 32); ++r)
    for (int64_t c = 0; c < std::min<int64_t>(flat.cols, 32); ++c) put(r * flat.cols + c, 0);
  if (flat.count() > 0) put(flat.count() - 1, dtype == DType::float16 ? 0x63D0 : 0x447A);
  return out;
}

void plant_sum_order(Array& matrix, int64_t column) {
  const Shape flat = flattened(matrix.shape);
  const std::span<std::byte> bytes = matrix.bytes();
  for (int64_t r = 0; r < flat.rows; ++r) {
    const uint16_t bits = r == 0 ? 0x4B80 : r == flat.rows - 1 ? 0xCB80 : 0x3F80;
    std::memcpy(&bytes[static_cast<size_t>((r * flat.cols + column) * 2)], &bits, sizeof bits);
  }
}

}  // namespace assay::training

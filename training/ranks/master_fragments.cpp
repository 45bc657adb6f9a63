#include "training/ranks/master_fragments.h"

#include <algorithm>
#include <cstring>

namespace assay::training {

namespace {

int64_t width_of(const Array& a) { return bytes_of(a.dtype); }

uint32_t bits_at(const Array& a, int64_t i) {
  uint32_t out = 0;
  const int64_t width = width_of(a);
  std::memcpy(&out, a.bytes().data() + i * width, static_cast<size_t>(width));
  return out;
}
void put_bits(Array& a, int64_t i, uint32_t bits) {
  const int64_t width = width_of(a);
  std::memcpy(a.bytes().data() + i * width, &bits, static_cast<size_t>(width));
}

struct Blocks {
  Blocks(Shape m, BlockShape b) : m(m), b(b), across(ceil_div(m.cols, b.cols)) {}
  Shape m;
  BlockShape b;
  int64_t across;
  int64_t count() const { return ceil_div(m.rows, b.rows) * across; }
  int64_t of(int64_t flat) const { return flat / m.cols / b.rows * across + flat % m.cols / b.cols; }
};

}  // namespace

std::vector<uint32_t> block_amaxes(const Fragment& f, BlockShape shape) {
  const Blocks blocks(f.matrix, shape);
  std::vector<uint32_t> out(static_cast<size_t>(blocks.count()));
  for (int64_t i = 0; i < f.count(); ++i) {
    const uint32_t magnitude = bits_at(*f.values, i) & ~(0x80u << (8 * (width_of(*f.values) - 1)));
    uint32_t& amax = out[static_cast<size_t>(blocks.of(f.offset + i))];
    amax = std::max(amax, magnitude);
  }
  return out;
}

ArrayPtr standing_for_all(const Fragment& f, BlockShape shape, const std::vector<uint32_t>& amaxes,
                          DType dtype) {
  const Blocks blocks(f.matrix, shape);
  const ArrayPtr out = zeros({f.matrix.rows, f.matrix.cols}, dtype);
  std::vector<bool> placed(amaxes.size());
  for (int64_t i = 0; i < f.matrix.count(); ++i) {
    const bool own = i >= f.offset && i < f.offset + f.count();
    if (own) {
      put_bits(*out, i, bits_at(*f.values, i - f.offset));
      continue;
    }
    const auto block = static_cast<size_t>(blocks.of(i));
    if (placed[block]) continue;
    placed[block] = true;
    put_bits(*out, i, amaxes[block]);
  }
  return out;
}

void copy_fragment(const Array& made, const Fragment& f, Array& plane, int64_t at) {
  const auto from = static_cast<size_t>(f.offset), n = static_cast<size_t>(f.count());
  std::ranges::copy(made.bytes().subspan(from, n), plane.bytes().begin() + at);
}

void copy_nibbles(const Array& made, const Fragment& f, Array& plane, int64_t at) {
  for (int64_t i = 0; i < f.count(); ++i) {
    const int64_t element = f.offset + i;
    const bool high = element % 2 != 0;
    const std::byte both = made.bytes()[static_cast<size_t>(element / 2)];
    std::byte& to = plane.bytes()[static_cast<size_t>(at + i / 2)];
    const std::byte mask{static_cast<unsigned char>(high ? 0xF0 : 0x0F)};
    to = (to & ~mask) | (both & mask);
  }
}

}  // namespace assay::training

#include "fast/ptx/tensor_map.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

namespace assay::ptx {

namespace {

constexpr uint64_t kMagic = 0x50414D524F534E54ull;

// The 128 bytes: the mark of a map, then its fields.
struct StoredMap {
  uint64_t magic = kMagic, address = 0;
  std::array<uint64_t, kMostDimensions - 1> strides{};  // from dimension 1 on
  std::array<uint32_t, kMostDimensions> sizes{};        // less 1: they reach 2^32
  std::array<uint16_t, kMostDimensions> box{};
  uint8_t rank = 0, element_bytes = 0, swizzle = 0, atom = 0, half_bytes = 0;
};
static_assert(sizeof(StoredMap) <= kTensorMapBytes && std::is_trivially_copyable_v<StoredMap>);

constexpr uint64_t kMostStride = uint64_t{1} << 40, kMostSize = uint64_t{1} << 32;
constexpr uint32_t kMostBox = 256;

[[noreturn]] void refuse(const std::string& why) { throw Fault("a tensor map " + why); }
std::string number(uint64_t v) { return std::to_string(v); }

// Where a byte of shared memory goes: which atom of a line depends on the line (5.5.5).
uint64_t swizzled(uint64_t at, const TensorMap& m) {
  if (m.swizzle == 0) return at;
  return at ^ ((at >> 7 & (m.swizzle / m.atom - 1)) * m.atom);
}

// A stretch of bytes of shared memory that belongs together before swizzling.
void add_piece(std::vector<BulkPiece>& out, const TensorMap& m, uint64_t shared, uint64_t global,
               uint64_t bytes, bool zero) {
  while (bytes > 0) {
    const uint64_t now = m.swizzle ? std::min<uint64_t>(bytes, 16 - shared % 16) : bytes;
    out.push_back({swizzled(shared, m), zero ? 0 : global, static_cast<uint32_t>(now), zero});
    shared += now, global += now, bytes -= now;
  }
}

}  // namespace

uint64_t TensorMap::box_bytes() const {
  uint64_t bytes = inner_bytes();
  for (uint32_t d = 1; d < rank; ++d) bytes *= box[d];
  return bytes;
}

std::array<std::byte, kTensorMapBytes> encode(const TensorMap& m) {
  if (m.rank < 1 || m.rank > kMostDimensions) refuse("has 1 to 5 dimensions, not " + number(m.rank));
  if (!std::has_single_bit(m.element_bytes) || m.element_bytes > 8)
    refuse("has elements of 1, 2, 4 or 8 bytes, not " + number(m.element_bytes));
  if (m.address % 16) refuse("needs a tensor at a multiple of 16 bytes");
  if (m.half_bytes && (m.element_bytes != 1 || m.sizes[0] % 2 || m.box[0] % 2))
    refuse("of elements of half a byte has an even number of them in a row of the tensor and of the box");
  const uint64_t inner = m.inner_bytes();
  if (inner % 16) refuse("needs a box whose rows are multiples of 16 bytes, not " + number(inner));
  if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128)
    refuse("swizzles by 32, 64 or 128 bytes, not " + number(m.swizzle));
  if (m.atom != 16 && (m.swizzle != 128 || (m.atom != 32 && m.atom != 64)))
    refuse("swizzles atoms of 16 bytes, or by 128 bytes atoms of 32 or 64, not by " + number(m.swizzle) +
           " bytes atoms of " + number(m.atom));
  if (m.swizzle && inner != m.swizzle)
    refuse("that swizzles by " + number(m.swizzle) + " bytes has a box with rows of " + number(inner) +
           " bytes, and only equal ones are understood");
  StoredMap s;
  for (uint32_t d = 0; d < m.rank; ++d) {
    if (m.sizes[d] < 1 || m.sizes[d] > kMostSize)
      refuse("has dimension " + number(d) + " of " + number(m.sizes[d]) + " elements");
    if (m.box[d] < 1 || m.box[d] > kMostBox)
      refuse("has a box of " + number(m.box[d]) + " elements in dimension " + number(d) +
             "; there may be 1 to 256");
    if (d > 0 && (m.strides[d] % 16 || m.strides[d] >= kMostStride))
      refuse("needs strides that are multiples of 16 bytes below 2^40, and that of dimension " + number(d) +
             " is " + number(m.strides[d]));
    s.sizes[d] = static_cast<uint32_t>(m.sizes[d] - 1);
    s.box[d] = static_cast<uint16_t>(m.box[d]);
    if (d > 0) s.strides[d - 1] = m.strides[d];
  }
  s.address = m.address;
  s.rank = static_cast<uint8_t>(m.rank), s.element_bytes = static_cast<uint8_t>(m.element_bytes);
  s.swizzle = static_cast<uint8_t>(m.swizzle), s.atom = static_cast<uint8_t>(m.atom);
  s.half_bytes = m.half_bytes;
  std::array<std::byte, kTensorMapBytes> out{};
  std::memcpy(out.data(), &s, sizeof s);
  return out;
}

TensorMap decode_tensor_map(std::span<const std::byte, kTensorMapBytes> bytes) {
  StoredMap s;
  std::memcpy(&s, bytes.data(), sizeof s);
  if (s.magic != kMagic || s.rank < 1 || s.rank > kMostDimensions || s.element_bytes == 0)
    throw Fault("these 128 bytes are no tensor map");
  TensorMap m;
  m.address = s.address, m.rank = s.rank, m.element_bytes = s.element_bytes, m.swizzle = s.swizzle;
  m.atom = s.atom, m.half_bytes = s.half_bytes != 0;
  for (uint32_t d = 0; d < m.rank; ++d) {
    m.sizes[d] = uint64_t{s.sizes[d]} + 1;
    m.box[d] = s.box[d];
    m.strides[d] = d == 0 ? m.element_bytes : s.strides[d - 1];
  }
  return m;
}

std::vector<BulkPiece> pieces_of(const TensorMap& m, std::span<const int32_t> first, uint64_t shared) {
  std::vector<BulkPiece> out;
  const uint64_t row_bytes = m.inner_bytes();
  const uint64_t rows = m.box_bytes() / row_bytes;
  const int64_t begin = first[0], end = begin + m.box[0], size = static_cast<int64_t>(m.sizes[0]);
  for (uint64_t row = 0; row < rows; ++row, shared += row_bytes) {
    uint64_t global = m.address, left = row;
    bool inside = true;
    for (uint32_t d = 1; d < m.rank; ++d) {
      const int64_t at = first[d] + static_cast<int64_t>(left % m.box[d]);
      left /= m.box[d];
      inside = inside && at >= 0 && at < static_cast<int64_t>(m.sizes[d]);
      if (inside) global += static_cast<uint64_t>(at) * m.strides[d];
    }
    const int64_t from = inside ? std::clamp<int64_t>(0, begin, end) : end;
    const int64_t to = inside ? std::clamp<int64_t>(size, from, end) : end;
    const auto bytes = [&](int64_t elements) {
      return static_cast<uint64_t>(elements) * m.element_bytes >> m.half_bytes;
    };
    add_piece(out, m, shared, 0, bytes(from - begin), true);
    if (to > from)
      add_piece(out, m, shared + bytes(from - begin), global + bytes(from), bytes(to - from), false);
    add_piece(out, m, shared + bytes(to - begin), 0, bytes(end - to), true);
  }
  return out;
}

}  // namespace assay::ptx

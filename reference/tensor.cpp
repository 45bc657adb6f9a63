#include "reference/tensor.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "reference/parallel.h"
#include "reference/rounding.h"

namespace assay::reference {

namespace {

template <class B> const B& named(std::span<const B> buffers, const std::string& name) {
  const B* b = find(buffers, name);
  if (!b) throw std::invalid_argument("reference: plane '" + name + "' is missing");
  if (b->bytes.size() != b->plane->bytes())
    throw std::invalid_argument("reference: plane '" + name + "' has " + std::to_string(b->bytes.size()) +
                                " bytes, expected " + std::to_string(b->plane->bytes()));
  return *b;
}

// Every code's value, for encodings of at most 16 bits: looked up, because a tensor has many elements and few
// codes.
std::vector<float> decode_table(Encoding encoding) {
  const Decoder decode(encoding);
  std::vector<float> table(size_t{1} << info(encoding).bits);
  for (size_t code = 0; code < table.size(); ++code)
    table[code] = static_cast<float>(decode(static_cast<uint32_t>(code)));  // exact
  return table;
}
const std::vector<float>& decoded(Encoding encoding) {
  static const std::vector<float> tables[] = {
#define ENCODING(name, ...) \
  info(Encoding::name).bits <= 16 ? decode_table(Encoding::name) : std::vector<float>{},
#include "contract/encodings.def"
#undef ENCODING
  };
  return tables[static_cast<size_t>(encoding)];
}

template <class Code> Values looked_up(const ConstBuffer& b, int threads) {
  const Shape s = b.plane->padded;
  const std::vector<float>& table = decoded(b.plane->encoding);
  Values out(s.rows, s.cols);
  parallel_for(threads, s.rows, [&](int64_t r) {
    for (int64_t c = 0; c < s.cols; ++c) {
      Code code;
      std::memcpy(&code, b.bytes.data() + (r * s.cols + c) * static_cast<int64_t>(sizeof code), sizeof code);
      out(r, c) = table[code % table.size()];
    }
  });
  return out;
}

// N6.8: the element of even index in the low half. Rows begin with a byte, so a flat index is even where a
// column is.
constexpr int kHalf = 16;
uint8_t packed(uint8_t even, uint8_t odd) { return static_cast<uint8_t>(even + kHalf * odd); }
uint8_t unpacked(std::byte both, int64_t index) {
  const int code = std::to_integer<int>(both);
  return static_cast<uint8_t>(index % 2 == 0 ? code % kHalf : code / kHalf);
}

template <class T> Matrix<T> transposed_by_tiles(const Matrix<T>& m, int threads) {
  constexpr int64_t kTile = 32;
  Matrix<T> out(m.cols(), m.rows());
  parallel_for(threads, ceil_div(m.rows(), kTile), [&](int64_t band) {
    const int64_t r = band * kTile;
    for (int64_t c = 0; c < m.cols(); c += kTile) {
      const int64_t rows = std::min(kTile, m.rows() - r), cols = std::min(kTile, m.cols() - c);
      out.block(c, r, cols, rows) = m.block(r, c, rows, cols).transpose();
    }
  });
  return out;
}

// One code in as many bytes as Code has.
template <class Code> uint32_t coded(const ConstBuffer& b, int64_t i) {
  Code code;
  std::memcpy(&code, b.bytes.data() + i * static_cast<int64_t>(sizeof code), sizeof code);
  return code;
}
template <class Code> void put(const Buffer& b, int64_t i, uint32_t code) {
  const Code bytes = static_cast<Code>(code);
  std::memcpy(b.bytes.data() + i * static_cast<int64_t>(sizeof bytes), &bytes, sizeof bytes);
}

}  // namespace

const ConstBuffer& Run::input(std::string_view name) const { return named(inputs, std::string(name)); }
const ConstBuffer& Run::input(Direction d, std::string_view name) const {
  return named(inputs, plane_name(d, name));
}
const Buffer& Run::output(std::string_view name) const { return named(outputs, std::string(name)); }
const Buffer& Run::output(Direction d, std::string_view name) const {
  return named(outputs, plane_name(d, name));
}

uint32_t load(const ConstBuffer& b, int64_t i) {
  if (b.plane->packed) return unpacked(b.bytes[static_cast<size_t>(i / 2)], i);
  switch (info(b.plane->encoding).bytes()) {
    case 1: return coded<uint8_t>(b, i);
    case 2: return coded<uint16_t>(b, i);
    default: return coded<uint32_t>(b, i);
  }
}

void store(const Buffer& b, int64_t i, uint32_t code) {
  if (b.plane->packed) {
    std::byte& both = b.bytes[static_cast<size_t>(i / 2)];
    const uint8_t half = static_cast<uint8_t>(code), other = unpacked(both, i + 1);
    both = static_cast<std::byte>(i % 2 == 0 ? packed(half, other) : packed(other, half));
    return;
  }
  switch (info(b.plane->encoding).bytes()) {
    case 1: return put<uint8_t>(b, i, code);
    case 2: return put<uint16_t>(b, i, code);
    default: return put<uint32_t>(b, i, code);
  }
}

Values values(const ConstBuffer& b, int threads) {
  if (b.plane->packed) {
    const Bytes codes = bytes(b);
    const std::vector<float>& table = decoded(b.plane->encoding);
    return codes.unaryExpr([&](uint8_t code) { return table[code]; });
  }
  switch (info(b.plane->encoding).bytes()) {
    case 1: return looked_up<uint8_t>(b, threads);
    case 2: return looked_up<uint16_t>(b, threads);
    default: break;
  }
  Values out(b.plane->padded.rows, b.plane->padded.cols);  // an F32 code is this machine's float
  if (!b.bytes.empty()) std::memcpy(out.data(), b.bytes.data(), b.bytes.size());
  return out;
}

Bytes bytes(const ConstBuffer& b) {
  Bytes out(b.plane->padded.rows, b.plane->padded.cols);
  if (b.plane->packed) {
    for (int64_t i = 0; i < out.size(); ++i) out.data()[i] = unpacked(b.bytes[static_cast<size_t>(i / 2)], i);
  } else if (!b.bytes.empty()) {
    std::memcpy(out.data(), b.bytes.data(), b.bytes.size());
  }
  return out;
}

void store(const Buffer& b, const Bytes& m) {
  const Shape padded = b.plane->padded;
  if (m.rows() > padded.rows || m.cols() > padded.cols || info(b.plane->encoding).bytes() != 1)
    throw std::logic_error("reference: wrong size for plane '" + b.plane->name + "'");
  std::fill(b.bytes.begin(), b.bytes.end(), std::byte{0});  // N6.4, N6.8
  for (int64_t r = 0; r < m.rows(); ++r) {
    const uint8_t* row = m.data() + r * m.cols();
    std::byte* const to = b.bytes.data() + b.plane->bytes_of(r * padded.cols);
    if (!b.plane->packed) {
      std::copy_n(reinterpret_cast<const std::byte*>(row), m.cols(), to);
      continue;
    }
    for (int64_t c = 0; c < m.cols(); c += 2)
      to[c / 2] = static_cast<std::byte>(packed(row[c], c + 1 < m.cols() ? row[c + 1] : 0));
  }
}

void store(const Buffer& b, const Values& m) {
  if (m.rows() > b.plane->padded.rows || m.cols() > b.plane->padded.cols ||
      b.plane->encoding != Encoding::f32)
    throw std::logic_error("reference: wrong size for plane '" + b.plane->name + "'");
  std::fill(b.bytes.begin(), b.bytes.end(), std::byte{0});  // N6.4
  for (int64_t r = 0; r < m.rows(); ++r)
    for (int64_t c = 0; c < m.cols(); ++c) store(b, r * b.plane->padded.cols + c, f32_code(m(r, c)));
}

double scalar(const ConstBuffer& b) { return value_of(Encoding::f32, load(b, 0)); }
void store_scalar(const Buffer& b, double value) { store(b, 0, f32_code(value)); }

Values transposed(const Values& m, int threads) { return transposed_by_tiles(m, threads); }
Bytes transposed(const Bytes& m, int threads) { return transposed_by_tiles(m, threads); }

}  // namespace assay::reference

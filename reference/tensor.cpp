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

// N6.8: the fewest codes that fill whole bytes are the digits of one number, the first the lowest, and the
// bytes are the digits of the same number to the base 256. Rows are whole groups, so a flat index has the
// place in its group that its column has.
template <int kBits> struct Group {
  static constexpr int kCodes = kBits == 4 ? 2 : 4, kBytes = kCodes * kBits / 8;
  static constexpr uint32_t kBase = 1u << kBits;

  static uint32_t number(const std::byte* bytes) {
    uint32_t n = 0;
    for (int b = kBytes; b-- > 0;) n = n * 256 + std::to_integer<uint32_t>(bytes[b]);
    return n;
  }
  static void put(std::byte* bytes, uint32_t n) {
    for (int b = 0; b < kBytes; ++b, n /= 256) bytes[b] = static_cast<std::byte>(n % 256);
  }
  // The weight of the digit at a place.
  static uint32_t weight(int64_t place) {
    uint32_t w = 1;
    while (place-- > 0) w *= kBase;
    return w;
  }
  static uint32_t load(std::span<const std::byte> bytes, int64_t i) {
    return number(bytes.data() + i / kCodes * kBytes) / weight(i % kCodes) % kBase;
  }
  static void unpack(std::span<const std::byte> bytes, Bytes& codes) {
    const std::byte* from = bytes.data();
    for (int64_t i = 0; i < codes.size(); i += kCodes, from += kBytes) {
      uint32_t n = number(from);
      for (int64_t j = 0; j < kCodes; ++j, n /= kBase) codes.data()[i + j] = static_cast<uint8_t>(n % kBase);
    }
  }
  // A row of codes, and codes of 0 behind them.
  static void pack(const uint8_t* codes, int64_t count, std::byte* to) {
    for (int64_t c = 0; c < count; c += kCodes, to += kBytes) {
      uint32_t n = 0;
      for (int64_t j = kCodes; j-- > 0;) n = n * kBase + (c + j < count ? codes[c + j] : 0u);
      put(to, n);
    }
  }
};

// Calls f(Group<bits>{}) for the width of a packed plane's codes.
template <class F> decltype(auto) with_group(const Plane& plane, F f) {
  const int bits = info(plane.encoding).bits;
  if (bits == 4) return f(Group<4>{});
  if (bits == 6) return f(Group<6>{});
  throw std::logic_error("reference: plane '" + plane.name + "' is packed in " + std::to_string(bits) +
                         " bits (N6.8)");
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
  if (b.plane->packed) return with_group(*b.plane, [&](auto group) { return group.load(b.bytes, i); });
  switch (info(b.plane->encoding).bytes()) {
    case 1: return coded<uint8_t>(b, i);
    case 2: return coded<uint16_t>(b, i);
    default: return coded<uint32_t>(b, i);
  }
}

void store(const Buffer& b, int64_t i, uint32_t code) {
  if (b.plane->packed)  // whole rows are (store(Buffer, Bytes))
    throw std::logic_error("reference: no single code is stored in the packed plane '" + b.plane->name + "'");
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
    with_group(*b.plane, [&](auto group) { group.unpack(b.bytes, out); });
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
    if (b.plane->packed) with_group(*b.plane, [&](auto group) { group.pack(row, m.cols(), to); });
    else std::copy_n(reinterpret_cast<const std::byte*>(row), m.cols(), to);
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

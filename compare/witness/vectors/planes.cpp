#include "compare/witness/vectors/planes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"

namespace assay {

namespace {

using safetensors::Dtype;
using std::string;
using std::string_view;
using Bytes = std::vector<std::byte>;

Error wrong(string message) { return {std::move(message), 0, ""}; }

// Codes are often kept as raw bytes.
bool fits_encoding(const safetensors::Tensor& t, const Plane& plane) {
  const auto e = encoding_of(t.dtype);
  return e ? *e == plane.encoding : t.dtype == Dtype::U8 && info(plane.encoding).bytes() == 1;
}

// Rows of `from` columns into rows of `to` columns, zeros elsewhere.
Bytes pad(std::span<const std::byte> bytes, Shape from, Shape to, size_t element) {
  Bytes out(static_cast<size_t>(to.count()) * element);
  const size_t row = static_cast<size_t>(from.cols) * element;
  if (row == 0) return out;
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(out.data() + static_cast<size_t>(r * to.cols) * element,
                bytes.data() + static_cast<size_t>(r) * row, row);
  return out;
}

uint32_t word(const safetensors::Tensor& t, int64_t i) { return code_at(Encoding::u32, t.bytes, i); }

// ---- @how:tensors

// t0, t1, ... one after the other.
Result<PlaneData> join(string_view names, const VectorSource& from, const Plane& plane) {
  PlaneData out{plane, {}};
  for (const safetensors::Tensor& t : from.series(names))
    out.bytes.insert(out.bytes.end(), t.bytes.begin(), t.bytes.end());
  if (out.bytes.size() == plane.bytes()) return out;
  return wrong(fmt::format("tensors '{}' have {} bytes, plane {} has {}", names, out.bytes.size(), plane.name,
                           plane.bytes()));
}

// The first rows of t.
Result<PlaneData> head(string_view name, const safetensors::Tensor& t, const Plane& plane) {
  PlaneData out{plane, Bytes(plane.bytes())};
  if (t.bytes.size() < out.bytes.size() || !fits_encoding(t, plane)) return misfit(name, t, plane);
  std::copy_n(t.bytes.begin(), out.bytes.size(), out.bytes.begin());
  return out;
}

// a[0], b[0], a[1], b[1], ...
Result<PlaneData> pairs(string_view names, const safetensors::Tensor& a, const VectorSource& from,
                        const Plane& plane) {
  const auto b = from.tensor(names.substr(names.find(',') + 1));
  if (!b) return b.error();
  const bool as_many = 2 * a.count() == plane.logical.count() && a.count() == b->count();
  if (!fits_encoding(a, plane) || !fits_encoding(*b, plane) || !as_many) return misfit(names, a, plane);
  PlaneData out{plane, Bytes(plane.bytes())};
  for (int64_t i = 0; i < a.count(); ++i) {
    set_code(plane, out.bytes, 2 * i, word(a, i));
    set_code(plane, out.bytes, 2 * i + 1, word(*b, i));
  }
  return out;
}

// Keys of a Philox generator: the seed, again for each row.
PlaneData seeds(const safetensors::Tensor& t, const Plane& plane) {
  PlaneData out{plane, Bytes(plane.bytes())};
  for (int64_t i = 0; i < 2 * plane.logical.rows; ++i) set_code(plane, out.bytes, i, word(t, i % 2));
  return out;
}

// Counters of a Philox generator from its subsequence and offset, each low word first.
PlaneData counters(const safetensors::Tensor& t, const Plane& plane) {
  PlaneData out{plane, Bytes(plane.bytes())};
  const uint64_t offset = word(t, 4) | uint64_t{word(t, 5)} << 32;
  const uint64_t subsequence = word(t, 2) | uint64_t{word(t, 3)} << 32;
  for (int64_t i = 0; i < plane.logical.rows; ++i) {
    const uint64_t low = offset + static_cast<uint64_t>(i),
                   high = subsequence + (low < offset);  // the carry goes on
    for (int64_t w = 0; w < 4; ++w)
      set_code(plane, out.bytes, 4 * i + w, static_cast<uint32_t>((w < 2 ? low : high) >> (w % 2 * 32)));
  }
  return out;
}

Result<PlaneData> made_plane(string_view text, const VectorSource& from, const Plane& plane) {
  const size_t colon = std::min(text.find(':'), text.size());
  const string_view how = text.substr(0, colon), names = text.substr(std::min(colon + 1, text.size()));
  if (how == "@codes") {
    PlaneData out{plane, Bytes(plane.bytes())};
    for (size_t i = 0; i < out.bytes.size(); ++i) out.bytes[i] = static_cast<std::byte>(i);
    return out;
  }
  if (how == "@join") return join(names, from, plane);
  const auto t = from.tensor(names.substr(0, names.find(',')));
  if (!t) return t.error();
  if (how == "@head") return head(names, *t, plane);
  if (how == "@pairs") return pairs(names, *t, from, plane);
  if (t->dtype != Dtype::U32 || t->count() != 6)
    return wrong(fmt::format("tensor '{}' is not U32 [6]", names));
  return how == "@seeds" ? seeds(*t, plane) : counters(*t, plane);
}

// ---- as

// Writes the plane's meaningful elements: `code(i)` of each.
template <class Code> Bytes elements(const Plane& plane, Code code) {
  Plane dense = plane;
  dense.padded = plane.logical;
  Bytes out(dense.bytes());
  for (int64_t i = 0; i < plane.logical.count(); ++i) set_code(dense, out, i, code(i));
  return out;
}

uint32_t reciprocal(uint32_t bits) {
  const double v = value_of(Encoding::f32, bits);
  return std::isnan(v) ? info(Encoding::f32).nan : std::bit_cast<uint32_t>(static_cast<float>(1 / v));
}

// binary32 values that the plane's 16 bits hold exactly.
Result<Bytes> narrowed(const safetensors::Tensor& t, const Plane& plane) {
  const EncodingInfo& e = info(plane.encoding);
  if (t.dtype != Dtype::F32 || t.count() != plane.logical.count() || e.bits != 16)
    return misfit(t.name, t, plane);
  for (int64_t i = 0; i < t.count(); ++i)
    if (plane.encoding != Encoding::bf16 || word(t, i) & 0xFFFF)
      return wrong(fmt::format("tensor '{}' has values that {} lacks", t.name, e.name));
  return elements(plane, [&](int64_t i) { return word(t, i) >> 16; });
}

// The rotation (N11.1): signs of row i times H[i][j] / 4.
Result<Bytes> rotation(const safetensors::Tensor& t, const Plane& plane) {
  const bool f32 = t.dtype == Dtype::F32;
  const bool signs = f32 ? t.count() == 16 : t.dtype == Dtype::U32 && t.count() == 1;
  if (plane.logical != Shape{16, 16} || !signs) return misfit(t.name, t, plane);
  return elements(plane, [&](int64_t at) {
    const auto i = static_cast<unsigned>(at / 16), j = static_cast<unsigned>(at % 16);
    const bool negative = f32 ? word(t, i) >> 31 != 0 : (word(t, 0) >> i & 1) != 0;
    const bool minus = negative != ((std::popcount(i & j) & 1) != 0);
    return 0x3E80u | (minus ? 0x8000u : 0u);
  });
}

}  // namespace

Fit fit_of(const safetensors::Tensor& t, const Plane& plane) {
  if (!fits_encoding(t, plane)) return Fit::none;
  const Shape shape = shape_of(t);
  const int64_t count = t.count();
  if (plane.packed) {
    const bool fits = shape == plane.stored() || count == plane.stored().count();
    return fits ? Fit::padded : Fit::none;
  }
  const auto same = [&](Shape s) {
    return shape == s || (count == s.count() && (shape.rows == 1 || s.rows == 1 || shape.cols == 1));
  };
  if (plane.layout != ScaleLayout::gemm && same(plane.logical)) return Fit::meaningful;
  return same(plane.padded) ? Fit::padded : Fit::none;
}

Error misfit(string_view name, const safetensors::Tensor& t, const Plane& plane) {
  const Shape logical = plane.logical, padded = plane.padded;
  return wrong(fmt::format("tensor '{}' ({}, {} elements) does not fit plane {} ({}, {}x{}, padded {}x{})",
                           name, safetensors::name(t.dtype), t.count(), plane.name, info(plane.encoding).name,
                           logical.rows, logical.cols, padded.rows, padded.cols));
}

const Plane* plane_named(const std::vector<Plane>& planes, string_view name) {
  for (const Plane& p : planes)
    if (p.name == name) return &p;
  return nullptr;
}

Result<PlaneData> input_plane(string_view from, const VectorSource& source, const Plane& plane) {
  if (from.starts_with('@')) return made_plane(from, source, plane);
  const auto t = source.tensor(from);
  if (!t) return t.error();
  const bool per_member =
      !plane.members.empty() && t->count() == plane.logical.cols && fits_encoding(*t, plane);
  const Fit fit = per_member ? Fit::padded : fit_of(*t, plane);
  if (fit == Fit::none) return misfit(from, *t, plane);
  if (fit == Fit::padded) return PlaneData{plane, Bytes(t->bytes.begin(), t->bytes.end())};
  const auto size = static_cast<size_t>(info(plane.encoding).bytes());
  return PlaneData{plane, pad(t->bytes, plane.logical, plane.padded, size)};
}

Result<Bytes> converted(string_view as, const safetensors::Tensor& t, const Plane& plane) {
  const int64_t n = plane.logical.count();
  if (as == "packed") {
    if (static_cast<int64_t>(t.bytes.size()) != (n + 1) / 2) return misfit(t.name, t, plane);
    return elements(plane, [&](int64_t i) {
      return std::to_integer<uint32_t>(t.bytes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & std::byte{15});
    });
  }
  if (as == "reciprocal") {
    if (t.dtype != Dtype::F32 || t.count() != n) return misfit(t.name, t, plane);
    return elements(plane, [&](int64_t i) { return reciprocal(word(t, i)); });
  }
  if (as == "arithmetic") {
    if (t.count() != n || encoding_of(t.dtype) != plane.encoding) return misfit(t.name, t, plane);
    return elements(plane, [&](int64_t i) {
      const uint32_t code = code_at(plane.encoding, t.bytes, i);
      return is_nan(plane.encoding, code) ? info(plane.encoding).nan : code;
    });
  }
  return as == "narrowed" ? narrowed(t, plane) : rotation(t, plane);
}

}  // namespace assay

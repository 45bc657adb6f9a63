#include "compare/arithmetic/codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace assay {

namespace {

// The parts of a code. E8M0 is all exponent; the significand is then 1.
struct Parts {
  bool negative;
  int exponent;
  uint32_t fraction;
};

uint32_t low_bits(int n) { return n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1; }

Parts parts_of(const EncodingInfo& e, uint32_t code) {
  Parts p{};
  p.fraction = code & low_bits(e.mantissa_bits);
  p.exponent = static_cast<int>((code >> e.mantissa_bits) & low_bits(e.exponent_bits));
  p.negative = e.has_sign() && ((code >> (e.bits - 1)) & 1) != 0;
  return p;
}

uint32_t magnitude(const EncodingInfo& e, uint32_t code) { return e.has_sign() ? code & low_bits(e.bits - 1) : code & low_bits(e.bits); }

std::string binary(uint32_t v, int digits) {
  std::string out;
  for (int i = digits - 1; i >= 0; --i) out += ((v >> i) & 1) != 0 ? '1' : '0';
  return out;
}

template <class T>
std::string shortest(T v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return std::string(text, end);
}

}  // namespace

uint32_t code_at(const Plane& plane, std::span<const std::byte> bytes, int64_t index) {
  if (!plane.packed) return code_at(plane.encoding, bytes, index);
  return std::to_integer<uint32_t>(bytes[static_cast<size_t>(index / 2)]) >> (index % 2 * 4) & 15;
}

void set_code(const Plane& plane, std::span<std::byte> bytes, int64_t index, uint32_t code) {
  if (!plane.packed) return set_code(plane.encoding, bytes, index, code);
  const int shift = static_cast<int>(index % 2 * 4);
  std::byte& both = bytes[static_cast<size_t>(index / 2)];
  both = (both & ~std::byte(15 << shift)) | static_cast<std::byte>((code & 15) << shift);
}

uint32_t code_at(Encoding e, std::span<const std::byte> bytes, int64_t index) {
  const size_t size = static_cast<size_t>(info(e).bytes());
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + static_cast<size_t>(index) * size, size);
  return code;
}

void set_code(Encoding e, std::span<std::byte> bytes, int64_t index, uint32_t code) {
  const size_t size = static_cast<size_t>(info(e).bytes());
  std::memcpy(bytes.data() + static_cast<size_t>(index) * size, &code, size);
}

bool is_nan(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  const uint32_t m = magnitude(e, code);
  if (e.infinity != kNoCode) return m > e.infinity;
  // E4M3 and E8M0 have one NaN; in the narrower ones what a quantizer writes for NaN is a number (N2.4).
  return e.nan != e.max_finite && m == e.nan;
}

namespace {

double value_by_parts(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (is_nan(encoding, code)) return std::numeric_limits<double>::quiet_NaN();
  const Parts p = parts_of(e, code);
  if (e.mantissa_bits == 0) return std::ldexp(1.0, p.exponent - e.bias);
  const double sign = p.negative ? -1.0 : 1.0;
  if (e.infinity != kNoCode && magnitude(e, code) == e.infinity) return sign * std::numeric_limits<double>::infinity();
  const double fraction = std::ldexp(static_cast<double>(p.fraction), -e.mantissa_bits);
  if (p.exponent == 0) return sign * std::ldexp(fraction, 1 - e.bias);
  return sign * std::ldexp(1.0 + fraction, p.exponent - e.bias);
}

// Of the encodings of one byte, by code.
using Values = std::array<double, 256>;
const Values& values_of(Encoding encoding) {
  static const auto kAll = [] {
    std::array<Values, kEncodings.size()> all{};
    for (size_t e = 0; e < all.size(); ++e)
      if (kEncodings[e].bits <= 8 && kEncodings[e].is_float())
        for (uint32_t code = 0; code < 256; ++code) all[e][code] = value_by_parts(static_cast<Encoding>(e), code);
    return all;
  }();
  return kAll[static_cast<size_t>(encoding)];
}

}  // namespace

double value_of(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (!e.is_float()) return code;
  if (e.bits <= 8 && code < 256) return values_of(encoding)[code];
  if (encoding != Encoding::f32 && encoding != Encoding::bf16) return value_by_parts(encoding, code);
  const float v = std::bit_cast<float>(encoding == Encoding::f32 ? code : code << 16);
  return std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v;
}

bool is_saturated(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (!e.is_float()) return false;
  const uint32_t m = magnitude(e, code);
  return m == e.max_finite || (e.infinity != kNoCode && m == e.infinity);
}

double step_at(Encoding encoding, double v) {
  const EncodingInfo& e = info(encoding);
  if (e.mantissa_bits == 0 || !e.is_float()) return 0;
  // ilogb and ldexp, by the exponent field: of an infinity or a NaN that of zero; no encoding reaches the subnormals of binary64.
  const int field = static_cast<int>(std::bit_cast<uint64_t>(v) >> 52 & 0x7FF), least = 1 - e.bias;
  const int exponent = field == 0x7FF ? least : std::max(field - 1023, least);
  return std::bit_cast<double>(static_cast<uint64_t>(exponent - e.mantissa_bits + 1023) << 52);
}

std::string code_bits(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (!e.is_float()) return binary(code, e.bits);
  std::string out;
  if (code & ~low_bits(e.bits)) out = "!";   // bits beside the code are set: N6.1 stores a narrow code in a byte of zeros
  if (e.has_sign()) out += binary(code >> (e.bits - 1), 1) + ".";
  out += binary(code >> e.mantissa_bits, e.exponent_bits);
  if (e.mantissa_bits) out += "." + binary(code, e.mantissa_bits);
  return out;
}

std::string code_hex(Encoding e, uint32_t code) { return fmt::format("{:0{}X}", code, 2 * info(e).bytes()); }

std::string value_text(Encoding e, uint32_t code) {
  if (!info(e).is_float()) return std::to_string(code);
  if (is_nan(e, code)) return "nan";
  if (info(e).mantissa_bits == 0) return fmt::format("2^{}", static_cast<int>(code) - info(e).bias);
  return shortest(static_cast<float>(value_of(e, code)));   // every encoding's values are exact in binary32 (N2.8)
}

std::string f32_hex_text(uint32_t bits) { return fmt::format("{:a}", value_of(Encoding::f32, bits)); }
std::string number_text(double v) { return shortest(v); }

std::optional<int64_t> ordinal(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (is_nan(encoding, code)) return {};
  const int64_t m = magnitude(e, code);
  if (!e.is_float()) return m;
  return parts_of(e, code).negative ? -m : m;
}

std::optional<int64_t> codes_apart(Encoding e, uint32_t a, uint32_t b) {
  const auto x = ordinal(e, a), y = ordinal(e, b);
  if (!x || !y) return {};
  return *x < *y ? *y - *x : *x - *y;
}

// N6.3 read backwards: the tile, then the 16-byte line, the byte group and the byte within it.
Place place_of(const Plane& plane, int64_t index) {
  Place p;
  if (plane.layout == ScaleLayout::gemm) {
    const bool by_columns = plane.tiles_by_columns();
    const int64_t tiles_along = (by_columns ? plane.padded.rows : plane.padded.cols) / 4;
    const int64_t tile = index / 512, within = index % 512;
    const int64_t line = within / 16, group = within % 16 / 4, byte = within % 4;
    const int64_t outer = tile / tiles_along * 128 + group * 32 + line;
    const int64_t along = tile % tiles_along * 4 + byte;
    p.row = by_columns ? along : outer;
    p.col = by_columns ? outer : along;
  } else if (plane.padded.cols > 0) {
    p.row = index / plane.padded.cols;
    p.col = index % plane.padded.cols;
  }
  p.padding = p.row >= plane.logical.rows || p.col >= plane.logical.cols;
  return p;
}

int64_t index_of(const Plane& plane, int64_t row, int64_t col) {
  if (plane.layout != ScaleLayout::gemm) return row * plane.padded.cols + col;
  const bool by_columns = plane.tiles_by_columns();
  const int64_t outer = by_columns ? col : row, along = by_columns ? row : col;
  const int64_t tiles_along = (by_columns ? plane.padded.rows : plane.padded.cols) / 4;
  const int64_t tile = outer / 128 * tiles_along + along / 4;
  return tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + along % 4;
}

std::vector<PlaneData> members_of(const PlaneData& data) {
  if (data.plane.members.empty()) return {data};
  std::vector<PlaneData> out;
  for (size_t m = 0; m < data.plane.members.size(); ++m) {
    Plane plane = member_plane(data.plane, m);
    plane.name += fmt::format("[{}]", m);
    const auto bytes = std::span(data.bytes).subspan(data.plane.bytes_of(data.plane.members[m].offset), plane.bytes());
    out.push_back({std::move(plane), {bytes.begin(), bytes.end()}});
  }
  return out;
}

std::vector<PlaneData> planes_of_member(const std::vector<PlaneData>& planes, size_t member) {
  std::vector<PlaneData> out;
  for (const PlaneData& p : planes) {
    if (p.plane.members.empty() && p.plane.name != "noop") continue;
    out.push_back(p.plane.members.empty() ? p : std::move(members_of(p)[member]));
    if (const size_t open = out.back().plane.name.find('['); open != std::string::npos) out.back().plane.name.resize(open);
  }
  return out;
}

void clear_spare(PlaneData& data) {
  if (data.plane.padding != Padding::untouched) return;
  const size_t used = data.plane.bytes_of(data.plane.logical.cols);
  std::fill(data.bytes.begin() + static_cast<std::ptrdiff_t>(used), data.bytes.end(), std::byte{0});
}

std::optional<size_t> member_of(std::string_view name) {
  const size_t open = name.find('[');
  size_t member = 0;
  if (open == std::string_view::npos || std::from_chars(name.data() + open + 1, name.data() + name.size(), member).ec != std::errc{}) return {};
  return member;
}

namespace {

bool has_stem(const Plane& plane, std::string_view stem) { return plane.name.find(stem) != std::string::npos; }

// The stored elements that a scale at (r, c) of a direction's scale plane covers (N6.2, N9.4, N9.6, N10.14, N15.4). Where a square block repeats
// its scale, each copy covers its own stored row or column.
Region scaled_elements(const Quantizer& q, const Plane& plane, int64_t r, int64_t c) {
  const int64_t n = length_of(q.block);
  if (q.format == FormatId::fp8_block && plane.layout == ScaleLayout::gemm) return {r, r + 1, c / 4 * n, (c / 4 + 1) * n};
  if (q.format == FormatId::fp8_block && is_square(q.block)) return {r * n, (r + 1) * n, c * n, (c + 1) * n};
  if (q.format == FormatId::fp8_block) return {c, c + 1, r * n, (r + 1) * n};
  if (plane.tiles_by_columns()) return {r * n, (r + 1) * n, c, c + 1};
  return {r, r + 1, c * n, (c + 1) * n};
}

}  // namespace

Region region_of(const Problem* problem, const Plane& plane, Place place) {
  const int64_t r = place.row, c = place.col;
  if (!problem) return {r, r + 1, c, c + 1};
  const Shape x = problem->x.shape;
  const Region all{0, x.rows, 0, x.cols};
  if (problem->as<Update>()) return {0, x.rows, c, c + 1};                       // a slot's history decides its scale
  if (problem->as<Split>()) {
    const auto m = member_of(plane.name);
    if (!m) return all;                                                          // offsets
    const Problem member = member_problems(*problem)[*m];
    return region_of(&member, plane, place);
  }
  if (problem->as<ScaleChain>() && plane.logical.cols == 1) return {r, r + 1, 0, x.cols};   // N10.16: of a pair
  if (problem->as<Hadamard>()) {                                                 // N11.2: 16 rows make each element of y
    return plane.transposed ? Region{c / 16 * 16, c / 16 * 16 + 16, r, r + 1} : all;
  }
  if (!plane.direction) return {r, r + 1, c, c + 1};
  const std::optional<Quantizer>& q = problem->quantizer(*plane.direction);
  Region stored{r, r + 1, c, c + 1};
  const bool of_stored_row = q && q->row_scaled && !has_stem(plane, ".data") && (has_stem(plane, ".amax") || info(q->format).per_tensor_fp8());
  if (of_stored_row) {                                                           // N3.12, N10.9
    return plane.direction == Direction::row ? Region{r, r + 1, 0, x.cols} : Region{0, x.rows, r, r + 1};
  } else if (has_stem(plane, ".scale_inv") || has_stem(plane, ".scale_gemm")) {
    if (plane.padded == Shape{1, 1} || !q) return all;
    stored = scaled_elements(*q, plane, r, c);
  } else if (!has_stem(plane, ".data")) {
    return all;                                                                  // amax, scale
  }
  const Region g = plane.transposed ? Region{stored.col0, stored.col1, stored.row0, stored.row1} : stored;
  return {std::min(g.row0, x.rows), std::min(g.row1, x.rows), std::min(g.col0, x.cols), std::min(g.col1, x.cols)};
}

std::string place_text(const Problem* problem, const Plane& plane, Place place) {
  if (place.padding) return fmt::format("padding ({}, {}) of {}x{}", place.row, place.col, plane.padded.rows, plane.padded.cols);
  auto range = [](const char* one, const char* many, int64_t from, int64_t to) {
    return to - from <= 1 ? fmt::format("{} {}", one, from) : fmt::format("{} {}..{}", many, from, to - 1);
  };
  if (plane.padded == Shape{1, 1}) return "the tensor's only value";
  if (problem && problem->as<Split>()) {
    const auto m = member_of(plane.name);
    if (!m) return fmt::format("entry {}", place.col);
    const Problem member = member_problems(*problem)[*m];
    return place_text(&member, plane, place);
  }
  if (problem && problem->as<ScaleChain>() && plane.logical.cols == 1) return fmt::format("pair {}", place.row);
  if (problem && problem->as<Gemm>() && plane.name == "d") return fmt::format("row n = {}, column m = {}", place.row, place.col);
  const bool data = has_stem(plane, ".data") || !plane.direction;
  if (problem && plane.transposed && data) return fmt::format("row {}, column {} (stored [{}][{}])", place.col, place.row, place.row, place.col);
  if (problem && (problem->as<Update>() || problem->as<ScaleChain>() || !plane.direction)) return fmt::format("row {}, column {}", place.row, place.col);
  const Region g = region_of(problem, plane, place);
  return range("row", "rows", g.row0, g.row1) + ", " + range("column", "columns", g.col0, g.col1);
}

}  // namespace assay

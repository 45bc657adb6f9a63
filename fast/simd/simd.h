// Vectorised casts and quantizers of MXFP8, MXFP4, FP8 and NVFP4, and the acceptor that `assay check` asks
// before the reference. Planes are given where their bytes lie; nothing here knows a line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace assay::simd {

enum class Source : uint8_t { bf16, f16, f32 };
enum class Element : uint8_t { e4m3, e5m2, e2m1 };

// The instruction sets that this machine has and the program was compiled for, best first: "AVX3", "AVX2",
// "NEON". Empty where it has none that is wide enough.
std::vector<std::string_view> targets();
// The functions below use this one of targets() from here on. Until it is called they use the best that needs
// no certificate of its own, which every one but AVX-512 is. False: the machine does not have it.
bool use_target(std::string_view name);
// Whether a target is used by `assay check` only after this machine has run `assay certify --simd`.
bool needs_certificate(std::string_view target);
std::string_view target_in_use();
// Hash of this folder's sources.
std::string_view sources();

// A matrix of bytes; `stride` bytes lie between the starts of neighbouring rows.
struct Bytes {
  std::byte* first = nullptr;
  size_t stride = 0;
};
struct ConstBytes {
  const std::byte* first = nullptr;
  size_t stride = 0;
};

// A rectangle of x that begins at a block and ends at a block or at the end of the tensor.
struct Rectangle {
  Source source = Source::bf16;
  ConstBytes x;
  int64_t rows = 0, cols = 0;
};
// MXFP8, and MXFP4 where the element is e2m1: how its blocks of 32 lie, along rows, or down columns. Scales
// of MXFP8 are [rows, cdiv(cols, 32)] or [cdiv(rows, 32), cols] (N6.2), data always [rows, cols]. Columns of
// MXFP4 are stored as rows (N15.4): data are [rows, cols] or [cols, rows], two codes a byte (N6.8), scales
// [rows, cdiv(cols, 32)] or [cols, cdiv(rows, 32)].
struct Mx {
  Element element = Element::e4m3;
  bool columns = false;
};

// Writes codes and scales (N5.1 to N5.6, N15.1 to N15.3, default Numerics).
void quantize(const Mx&, const Rectangle&, Bytes data, Bytes scales);

// A block, by its place in the plane of scales, and what was seen of it.
struct Block {
  uint32_t row = 0, col = 0;
  // It holds a NaN, an infinity, a subnormal code or a code of the largest magnitude: `differ` and `first`
  // say nothing.
  bool special = false;
  bool scale = false;  // the scale is another than quantize() writes
  uint8_t differ = 0;  // codes that are others than quantize() writes
  uint8_t first = 0;   // of a block down a column: the first of these codes
};
// Appends the blocks of which it is not known that they hold the right codes and the right scale: those that
// differ from what quantize() writes, and the special ones, whatever they hold. Every other block is equal,
// bit for bit. Of MXFP4 the special ones are those with a NaN, an infinity or, but for zeros, a scale below
// 2^-63: subnormal codes and those of the largest magnitude stand in nearly every block and say nothing.
void accept(const Mx&, const Rectangle&, ConstBytes data, ConstBytes scales, std::vector<Block>& unknown);

// FP8 with scales of binary32: one for the tensor, or one for each block of 128 along a row, or down a
// column. Data of columns are stored [cols, rows]. Scales of blocks, as they are stored for dequantizing, are
// [cdiv(cols, 128), rows], or [cdiv(rows, 128), cols] (N9.4); their strides are multiples of 4.
struct Fp8 {
  Element element = Element::e4m3;
  bool columns = false, blocks = false;
  bool pow2 = false;   // of blocks
  uint32_t scale = 0;  // of the tensor: bits of the factor of every element
};
// Elements of a block of the functions below where the tensor has one scale.
inline constexpr int64_t kPiece = 32;
void quantize(const Fp8&, const Rectangle&, Bytes data, Bytes scales);
// As above. A block is named by its place among the blocks: (row, piece of the row), or (piece of the column,
// column).
void accept(const Fp8&, const Rectangle&, ConstBytes data, ConstBytes scales, std::vector<Block>& unknown);
// The factor of each amax, and fl(1 / factor): N3.3 to N3.7 without `eps`, of binary32 bits whose sign is
// ignored.
void fp8_scales(Element element, bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses,
                int64_t count);
// fl(1 / factor) of one factor of any sign (N3.7); a NaN is 7FFFFFFF.
uint32_t reciprocal(uint32_t factor);

// NVFP4 with blocks of 16 along a row, or down a column. Columns are stored as rows (N6.1, N10.14): data are
// [rows, cols] or [cols, rows], two codes a byte (N6.8), scales [rows, cdiv(cols, 16)] or [cols, cdiv(rows,
// 16)].
struct Nvfp4 {
  bool columns = false;
  uint32_t amax = 0;  // of the tensor: bits of binary32, no NaN and no sign
};
void quantize(const Nvfp4&, const Rectangle&, Bytes data, Bytes scales);  // N10.2 to N10.9
// Appends the blocks that differ from what quantize() writes, and those with a NaN, an infinity or a scale
// that is subnormal, the largest, or 0 though its amax is not. Blocks are named as those of FP8 are. Codes
// of elements that are subnormal or of the largest magnitude stand in nearly every block and say nothing.
void accept(const Nvfp4&, const Rectangle&, ConstBytes data, ConstBytes scales, std::vector<Block>& unknown);
// What a pair of amaxes gives, of the tensor and of a block: S, the multiplier (N10.2, N10.8), bits of
// binary32, and the code of the stored scale (N10.6). Signs of amaxes are ignored.
struct Nvfp4Chain {
  uint32_t encode_scale, multiplier;
  uint8_t scale;
};
void nvfp4_chain(const uint32_t* amaxes, Nvfp4Chain* out, int64_t count);

// The largest magnitude that is no NaN, as bits of binary32 (N3.1).
uint32_t amax(Source source, const std::byte* x, int64_t count);

// y[i] = cast of x[i] to nearest even, saturating (N2.1, N2.2, N2.4, N2.5).
void cast(Source source, Element element, const std::byte* x, std::byte* y, int64_t count);
// The E8M0 scale of each amax, binary32 bits whose sign is ignored; a NaN gives FF (N5.2, N5.3, N15.2).
void mx_scales(Element element, const uint32_t* amaxes, uint8_t* scales, int64_t count);

}  // namespace assay::simd

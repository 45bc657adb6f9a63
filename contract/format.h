// Quantizer formats and their blocks. Generated from formats.def.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "contract/choices.h"
#include "contract/encoding.h"

namespace assay {

enum class FormatId : uint8_t {
#define FORMAT(name, ...) name,
#include "contract/formats.def"
#undef FORMAT
};

// Elements along the contracted dimension; 0 for a whole tensor.
constexpr int64_t length_of(Block b) {
  switch (b) {
    case Block::tensor: return 0;
    case Block::b1x16:
    case Block::b16x16: return 16;
    case Block::b1x32:
    case Block::b32x32: return 32;
    case Block::b1x128:
    case Block::b128x128: return 128;
  }
  return 0;
}
constexpr bool is_square(Block b) { return b == Block::b16x16 || b == Block::b32x32 || b == Block::b128x128; }
enum class ColumnData : uint8_t { as_is, transposed };

struct FormatInfo {
  FormatId id;
  std::string_view name;
  std::optional<Encoding> element;  // default; nothing: the source's own encoding
  std::optional<Encoding> scale;    // nothing: the format stores no scale
  Block block;                      // default
  std::string_view blocks;          // allowed, as words joined by '|'
  ColumnData column_data;
  std::string_view summary;

  constexpr bool per_tensor_fp8() const { return scale == Encoding::f32 && block == Block::tensor; }
  // One scale per block rather than one for the tensor.
  constexpr bool has_blocks() const { return block != Block::tensor; }
  // Two 4-bit codes in a byte (N6.8).
  constexpr bool packed() const { return element == Encoding::e2m1; }
};

namespace format_rows {  // words of formats.def that are not enumerators
inline constexpr std::optional<Encoding> source = std::nullopt, none = std::nullopt, f32 = Encoding::f32,
                                         e8m0 = Encoding::e8m0, e4m3 = Encoding::e4m3, e2m1 = Encoding::e2m1;
inline constexpr Block tensor = Block::tensor, b1x16 = Block::b1x16, b1x32 = Block::b1x32,
                       b1x128 = Block::b1x128;
inline constexpr ColumnData as_is = ColumnData::as_is, transposed = ColumnData::transposed;
inline constexpr std::array kFormats = {
#define FORMAT(name, element, scale, block, blocks, columns, summary) \
  FormatInfo{FormatId::name, #name, element, scale, block, blocks, columns, summary},
#include "contract/formats.def"
#undef FORMAT
};
}  // namespace format_rows
using format_rows::kFormats;

constexpr const FormatInfo& info(FormatId f) { return kFormats[static_cast<size_t>(f)]; }

// The format called `name` in a line ("mxfp8"), or nothing.
constexpr std::optional<FormatId> format_named(std::string_view name) {
  for (const FormatInfo& row : kFormats)
    if (row.name == name) return row.id;
  return std::nullopt;
}

}  // namespace assay

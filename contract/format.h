// Quantizer formats, their blocks and the enum-to-word tables. Generated from formats.def.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "contract/encoding.h"

namespace assay {

enum class FormatId : uint8_t {
#define FORMAT(name, ...) name,
#include "contract/formats.def"
#undef FORMAT
};

// How many elements share one scale. b1x32 runs along the contracted dimension: 1x32 in row data, 32x1 in column data.
enum class Block : uint8_t { tensor, b1x32, b32x32 };
enum class ColumnData : uint8_t { as_is, transposed };

struct FormatInfo {
  FormatId id;
  std::string_view name;
  std::optional<Encoding> element;   // default; nothing: the source's own encoding
  std::optional<Encoding> scale;     // nothing: the format stores no scale
  Block block;                       // default
  std::string_view blocks;           // allowed, as words joined by '|'
  ColumnData column_data;
  std::string_view summary;

  constexpr bool per_tensor_fp8() const { return scale == Encoding::f32 && block == Block::tensor; }
};

namespace format_rows {   // words of formats.def that are not enumerators
inline constexpr std::optional<Encoding> source = std::nullopt, none = std::nullopt, f32 = Encoding::f32, e8m0 = Encoding::e8m0,
                                         e4m3 = Encoding::e4m3;
inline constexpr Block tensor = Block::tensor, b1x32 = Block::b1x32;
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
std::optional<FormatId> format_named(std::string_view name);

}  // namespace assay

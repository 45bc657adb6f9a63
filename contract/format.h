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

// What a format's arithmetic and its keys follow from: bytes copied (N7); FP8 under one scale, of the tensor
// or of a stored row (N3); FP8 under F32 scales of blocks (N9); elements under E8M0 scales of blocks (N5,
// N15); elements under E4M3 scales of blocks and a scale of the tensor (N10).
enum class Family : uint8_t { identity, fp8_tensor, fp8_block, mx, nvfp4 };

// Words joined by '|'.
constexpr bool has_several(std::string_view words) { return words.find('|') != std::string_view::npos; }
constexpr bool has_word(std::string_view words, std::string_view word) {
  while (true) {
    const size_t end = words.find('|');
    if (words.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    words.remove_prefix(end + 1);
  }
}

struct FormatInfo {
  FormatId id;
  std::string_view name;
  Family family;
  std::string_view elements;        // allowed, as words joined by '|'; "source": the source's own encoding
  std::optional<Encoding> element;  // the first of them; nothing: the source's own encoding
  std::optional<Encoding> scale;    // nothing: the format stores no scale
  Block block;                      // default
  std::string_view blocks;          // allowed, as words joined by '|'
  std::string_view packings;        // allowed, as words joined by '|', the default first
  ColumnData column_data;
  std::string_view summary;

  constexpr bool per_tensor_fp8() const { return family == Family::fp8_tensor; }
  // One scale per block rather than one for the tensor.
  constexpr bool has_blocks() const { return block != Block::tensor; }
  // Whether the data may be of `e`; of a format without a list they are of `source`.
  constexpr bool has_element(Encoding e, Encoding source) const {
    return element ? has_word(elements, assay::info(e).name) : e == source;
  }
  // Whether its codes are stored packed by default (N6.8).
  constexpr bool packed() const { return packings.starts_with(word_of(Packing::packed)); }
};

namespace format_rows {  // words of formats.def that are not enumerators
inline constexpr std::optional<Encoding> none = std::nullopt, f32 = Encoding::f32, e8m0 = Encoding::e8m0,
                                         e4m3 = Encoding::e4m3;
inline constexpr Block tensor = Block::tensor, b1x16 = Block::b1x16, b1x32 = Block::b1x32,
                       b1x128 = Block::b1x128;
inline constexpr ColumnData as_is = ColumnData::as_is, transposed = ColumnData::transposed;
inline constexpr std::array kFormats = {
#define FORMAT(name, family, elements, scale, block, blocks, packings, columns, summary)                 \
  FormatInfo{FormatId::name,                                                                             \
             #name,                                                                                      \
             Family::family,                                                                             \
             elements,                                                                                   \
             encoding_named(std::string_view(elements).substr(0, std::string_view(elements).find('|'))), \
             scale,                                                                                      \
             block,                                                                                      \
             blocks,                                                                                     \
             packings,                                                                                   \
             columns,                                                                                    \
             summary},
#include "contract/formats.def"
#undef FORMAT
};

// A misspelt word of a list is found when this is compiled.
constexpr bool lists_are_known() {
  for (const FormatInfo& f : kFormats) {
    size_t elements = 0, blocks = 0, packings = 0;
    for (const EncodingInfo& e : kEncodings) elements += has_word(f.elements, e.name);
    for (size_t i = 0; i < count_words(kWords<Block>); ++i)
      blocks += has_word(f.blocks, word_at(kWords<Block>, i));
    for (size_t i = 0; i < count_words(kWords<Packing>); ++i)
      packings += has_word(f.packings, word_at(kWords<Packing>, i));
    const auto words = [](std::string_view list) {
      size_t n = 1;
      for (char c : list) n += c == '|';
      return n;
    };
    if ((f.element ? elements != words(f.elements) : f.elements != "source") || blocks != words(f.blocks) ||
        packings != words(f.packings) || !has_word(f.blocks, word_of(f.block)))
      return false;
  }
  return true;
}
static_assert(
    lists_are_known(),
    "a row of formats.def lists elements, blocks and packings by their words, the default block among them");
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

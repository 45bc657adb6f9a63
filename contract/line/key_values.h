// The keys whose value has a form of its own, such as groups=32,0,64: their functions for the table of keys.
#pragma once
#include <string>
#include <string_view>

#include "contract/line/key.h"

namespace assay::line {

// dir=row|col|both
inline constexpr std::string_view kDirValues = "row|col|both";
std::string get_dir(const Problem&, Direction);
MaybeError set_dir(Problem&, Direction, std::string_view);
std::string default_dir(const Problem&, Direction);

std::string get_flavour(const Problem&, Direction);
MaybeError set_flavour(Problem&, Direction, std::string_view);

// groups=<size>,... or <rows>x<cols>,...
std::string get_groups(const Problem&, Direction);
MaybeError set_groups(Problem&, Direction, std::string_view);
std::string default_groups(const Problem&, Direction);

// noop=none|float, amax=computed|float
inline constexpr std::string_view kNoNoop = "none", kComputed = "computed";
std::string get_noop(const Problem&, Direction);
MaybeError set_noop(Problem&, Direction, std::string_view);
std::string get_amax(const Problem&, Direction);
MaybeError set_amax(Problem&, Direction, std::string_view);

inline constexpr std::string_view kBiasValues = "none|f32|bf16|f16";
std::string get_bias(const Problem&, Direction);
MaybeError set_bias(Problem&, Direction, std::string_view);

// Of an attention: softmax_scale=auto|float, bias, lengths, window
inline constexpr std::string_view kAuto = "auto", kAllTokens = "full", kAnyKey = "any";
std::string get_softmax_scale(const Problem&, Direction);
MaybeError set_softmax_scale(Problem&, Direction, std::string_view);
std::string get_lengths(const Problem&, Direction);
MaybeError set_lengths(Problem&, Direction, std::string_view);
std::string get_kv_lengths(const Problem&, Direction);
MaybeError set_kv_lengths(Problem&, Direction, std::string_view);
std::string default_kv_lengths(const Problem&, Direction);
std::string get_window(const Problem&, Direction);
MaybeError set_window(Problem&, Direction, std::string_view);
std::string default_kv(const Problem&, Direction);
std::string default_kv_heads(const Problem&, Direction);

// A block of the format
std::string block_values();
std::string get_block(const Problem&, Direction);
MaybeError set_block(Problem&, Direction, std::string_view);
std::string default_block(const Problem&, Direction);

// Of a Quantizer, which takes two of the roundings
inline constexpr std::string_view kRoundValues = "rne|sr";
MaybeError set_round(Problem&, Direction, std::string_view);

// sign_mask=0xD7E8
std::string get_sign_mask(const Problem&, Direction);
MaybeError set_sign_mask(Problem&, Direction, std::string_view);
std::string default_sign_mask(const Problem&, Direction);

// fill=ties, fill=literal:<hex>
std::string fill_values();
std::string get_fill(const Problem&, Direction);
MaybeError set_fill(Problem&, Direction, std::string_view);

// at=<row>,<col>
std::string get_at(const Problem&, Direction);
MaybeError set_at(Problem&, Direction, std::string_view);

// rng=<seed>,<offset>,<member>
std::string get_rng(const Problem&, Direction);
MaybeError set_rng(Problem&, Direction, std::string_view);
std::string default_rng(const Problem&, Direction);

}  // namespace assay::line

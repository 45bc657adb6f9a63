// The table of keys. It gives parser, printer, defaults and help.
#include <deque>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line.h"
#include "contract/line/key.h"
#include "contract/line/key_kinds.h"
#include "contract/line/key_values.h"

namespace assay::line {

namespace {

// ---- where a key applies -------------------------------------------------------------

// Whether the direction's format is one of these.
template <FormatId... Formats> bool format_is(const Problem& p, Direction d) {
  return p.quantizer(d) && ((p.quantizer(d)->format == Formats) || ...);
}
using F = FormatId;
constexpr Applies kDivided = format_is<F::fp8_current, F::fp8_block>;
constexpr Applies kOrdered = format_is<F::fp8_current, F::fp8_block, F::fp8_delayed>;
constexpr Applies kDelayed = format_is<F::fp8_delayed>, kNvfp4 = format_is<F::nvfp4>;

// Whether the row of the direction's format in formats.def has this.
template <bool (*Has)(const FormatInfo&)> bool row_has(const Problem& p, Direction d) {
  return p.quantizer(d) && Has(info(p.quantizer(d)->format));
}
constexpr bool has_blocks(const FormatInfo& f) { return f.has_blocks(); }
constexpr bool has_codes(const FormatInfo& f) { return f.element.has_value(); }
constexpr bool is_mx(const FormatInfo& f) { return f.family == Family::mx; }
constexpr bool ignores_nan(const FormatInfo& f) {
  return f.family == Family::mx || f.family == Family::nvfp4;
}
constexpr bool scales_as_data(const FormatInfo& f) {
  return f.family == Family::mx && f.column_data == ColumnData::as_is;
}
constexpr bool overflows(const FormatInfo& f) { return f.element && info(*f.element).bits == 8; }
// Where libraries differ in the code of a NaN (N17.16).
constexpr bool codes_nan(const FormatInfo& f) {
  return f.element && (info(*f.element).bits == 8 || *f.element == Encoding::e2m1);
}
constexpr bool several_elements(const FormatInfo& f) { return has_several(f.elements); }
constexpr bool several_blocks(const FormatInfo& f) { return has_several(f.blocks); }
constexpr bool several_packings(const FormatInfo& f) { return has_several(f.packings); }
constexpr Applies kBlocked = row_has<has_blocks>, kQuantized = row_has<has_codes>;
constexpr Applies kE8m0Scales = row_has<is_mx>;

bool te_only(const Problem& p, Direction) { return p.flavour == Flavour::te; }
bool both_directions(const Problem& p, Direction) { return p.row && p.col; }
bool draws_somewhere(const Problem& p, Direction) { return draws(p); }
bool cast_draws(const Problem& p, Direction) { return p.as<Cast>()->round == Round::sr; }
bool drawn(const Problem& p, Direction d) { return p.quantizer(d) && p.quantizer(d)->round == Round::sr; }
bool nearest(const Problem& p, Direction d) { return kQuantized(p, d) && !drawn(p, d); }
bool nan_coded(const Problem& p, Direction d) { return row_has<codes_nan>(p, d) && !drawn(p, d); }
bool rotated(const Problem& p, Direction d) { return p.quantizer(d) && p.quantizer(d)->rht; }
bool rotatable(const Problem& p, Direction d) { return d == Direction::col && kNvfp4(p, d); }
bool computes_amax(const Problem& p, Direction d) {
  return format_is<F::fp8_current, F::nvfp4>(p, d) && !p.quantizer(d)->row_scaled;
}
bool chooses_scale(const Problem& p, Direction d) {
  return p.quantizer(d) && p.quantizer(d)->four_over_six != FourOverSix::off;
}
bool nvfp4_limit(const Problem& p, Direction d) {
  return kNvfp4(p, d) && (chooses_scale(p, d) || p.as<ScaleChain>());
}
bool nvfp4_plain(const Problem& p, Direction d) { return kNvfp4(p, d) && !chooses_scale(p, d); }

// ---- defaults that depend on the Problem ---------------------------------------------

std::string name_text(Encoding e) { return std::string(info(e).name); }
std::string default_capacity(const Problem& p, Direction) { return std::to_string(p.x.shape.count()); }
std::string default_cast_round(const Problem& p, Direction) {
  return p.as<Cast>()->to == Encoding::e8m0 ? "rp" : "rne";
}
std::string default_overflow(const Problem& p, Direction) {
  return is_wide_float(p.as<Cast>()->to) ? "nosat" : "sat";
}
std::string default_out(const Problem& p, Direction) { return name_text(p.x.source); }
std::string default_element(const Problem& p, Direction d) {
  return name_text(info(p.quantizer(d)->format).element.value_or(p.x.source));
}
// Words of every row that leaves a choice, each once.
std::string element_values() {
  std::string out;
  for (const FormatInfo& f : kFormats)
    for (std::string_view word : words_of(f.elements, '|'))
      if (several_elements(f) && !has_word(out, word)) out += concat({out.empty() ? "" : "|", word});
  return out;
}
Words elements_of_format(const Problem& p, Direction d) {
  return words_of(info(p.quantizer(d)->format).elements, '|');
}
constexpr std::string_view kOperandSources = "f32|bf16|f16";
Words operand_sources(const Problem&, Direction) { return words_of(kOperandSources, '|'); }
std::string default_packing(const Problem& p, Direction d) {
  return std::string(words_of(info(p.quantizer(d)->format).packings, '|').front());
}
std::string default_pow2(const Problem& p, Direction d) {
  return p.quantizer(d)->format == F::fp8_block ? "1" : "0";
}

// ---- the table -----------------------------------------------------------------------

constexpr int kMaxStep = std::numeric_limits<int>::max();
constexpr unsigned kMake = kQuantize | kSplit | kOperand;  // ops that make quantized data
constexpr unsigned kChain = kMake | kScaleChain;           // and their scales
constexpr unsigned kData = kMake | kDequantize;            // ops that have quantized data
constexpr unsigned kAll = ((kOperand - 1) & ~kGemm) | kOperand;

// clang-format off
constexpr Key kKeys[] = {
  // Which directions exist. First of all, because it creates and removes Quantizers.
  {"dir", kQuantize | kDequantize | kSwizzle | kSplit, false, kDirValues,
   "directions that are produced; both: quantize and split only", get_dir, set_dir, default_dir},

  {"flavour", kQuantize | kSwizzle | kScaleChain | kSplit, false, "assay|te|<name>",
   "whose choices are the defaults of the other keys: TransformerEngine's kernel selection, or a name that "
   "`assay flavours` lists",
   get_flavour, set_flavour, "assay"},
  choice<&Problem::arch>("arch", kQuantize | kSwizzle | kSplit,
    "architecture that flavour=te selects kernels for", "sm100", te_only),
  choice<&Problem::dispatch>(kDispatch, kQuantize | kSplit,
    "flavour=te: force one family of kernels", "auto", te_only),

  // Keys of one op, or of two.
  choice<&Problem::col_source>("col_source", kQuantize | kSplit,
    "the tensor that the columns are quantized from", "original", both_directions),
  choice<&Split::vary>("vary", kSplit, "which sizes differ between members", "first"),
  {"groups", kSplit, false, "<size>,... or <rows>x<cols>,...",
   "sizes of the members along the side that varies", get_groups, set_groups, default_groups},
  integer<&Split::capacity, 0, kMaxElements>("capacity", kSplit,
    "elements allocated, at least those of the members", default_capacity),
  integer<&Philox::rounds, 1, 16>("rounds", kPhilox, "rounds of Philox4x32", "10"),
  choice<&Cast::round>("round", kCast,
    "rounding: to nearest even, toward zero, up in magnitude (rp: e8m0 only), stochastically (sr: e2m1 only)",
    default_cast_round),
  choice<&Cast::sr_rule>(kNumeric<SrRule>.name, kCast, kNumeric<SrRule>.summary, "integer", cast_draws),
  choice<&Cast::overflow>("overflow", kCast,
    "beyond the largest finite value: that value, or infinity (NaN if the encoding has no infinity)", default_overflow),
  {"noop", kQuantize | kSplit, false, "none|float", "the noop flag; exactly 1 leaves every output untouched",
   get_noop, set_noop, kNoNoop},
  encoding<&Dequantize::out>("out", kDequantize, "f32|bf16|f16",
    "encoding of the dequantized tensor (default: the source's)", default_out),
  choice<&Dequantize::input>("input", kDequantize,
    "the input of the dequantize: x quantized by the reference, or arbitrary codes and scales", "quantized"),
  choice<&Update::algo>("algo", kUpdate, "which amax of the history sets the scale", "max"),
  choice<&Update::rule>("rule", kUpdate, "which of TransformerEngine's three updates", "bulk"),
  integer<&Update::margin, -126, 126>("margin", kUpdate, "the scale is divided by 2^margin", "0"),
  choice<&Update::reduction>("reduction", kUpdate, "a buffer of reduced amaxes is given", "0"),
  choice<&Swizzle::inverse>("inverse", kSwizzle, "from GEMM layout back to compact", "0"),

  choice<&Gemm::op>("op", kGemm,
    "which directions of a and b are read: rows and rows (fprop), columns and rows (dgrad), "
    "columns and columns (wgrad)", "TN"),
  choice<&Gemm::sum>("sum", kGemm, "how the products are summed", "f32_sequential"),
  encoding<&Tensor::source>("out", kGemm, "f32|bf16|f16|e4m3|e5m2", "encoding of d, and of c", "bf16"),
  f32<&Gemm::alpha>("alpha", kGemm, "multiplies the sum, if it is not 1", "1"),
  f32<&Gemm::beta>("beta", kGemm, "multiplies c, which is added if beta is not 0", "0"),
  {"bias", kGemm, false, kBiasValues,
   "encoding of a bias, added to every row of d", get_bias, set_bias, "none"},

  encoding<&Adam::moments>("moments", kAdam, "f32|bf16", "encoding of both moments", "f32"),
  choice<&Adam::adam>("adam", kAdam,
    "rounding: of every operation, or with sums of products as fused multiply-adds", "plain"),
  choice<&Adam::decoupling>("decoupling", kAdam,
    "weight decay joins the update (adamw), or the gradient (l2)", "adamw"),
  choice<&Adam::bias_correction>("bias_correction", kAdam,
    "moments are divided by 1 - beta^step", "1"),
  integer<&Adam::step, 1, kMaxStep>("step", kAdam, "which step it is", "1"),
  f32<&Adam::lr>("lr", kAdam, "learning rate", "0.001"),
  f32<&Adam::beta1>("beta1", kAdam, "decay of the first moment, from 0 to below 1", "0.9"),
  f32<&Adam::beta2>("beta2", kAdam, "decay of the second moment, from 0 to below 1", "0.999"),
  f32<&Adam::eps>("eps", kAdam, "added to the root of the second moment", "1e-08"),
  f32<&Adam::decay>("decay", kAdam, "weight decay", "0"),
  choice<&ScaleState::inverse>("inverse", kScaleState, "from the stored state back to f32", "0"),

  integer<&Attention::batch, 1, kMaxElements>("batch", kAttention, "sequences", "1"),
  integer<&Attention::heads, 1, kMaxElements>("heads", kAttention, "heads of the queries", "1"),
  integer<&Attention::kv_heads, 1, kMaxElements>("kv_heads", kAttention,
    "heads of the keys and values; the queries' heads share them in groups", default_kv_heads),
  integer<&Attention::kv, 0, kMaxElements>("kv", kAttention,
    "keys of a sequence (default: as many as queries)", default_kv),
  choice<&Attention::layout>("layout", kAttention, "where tokens and heads stand, and which tensors are packed",
    "bshd"),
  {"lengths", kAttention, false, "full|<tokens>,...", "query tokens of each sequence; the rest is padding",
   get_lengths, set_lengths, kAllTokens},
  {"kv_lengths", kAttention, false, "full|<tokens>,...", "key tokens of each sequence (default: as lengths)",
   get_kv_lengths, set_kv_lengths, default_kv_lengths},
  choice<&Attention::mask>("mask", kAttention,
    "keys after the query's own are masked; bottom_right: the last query sees the last key", "none"),
  {"window", kAttention, false, "any|<before>,<after>", "keys before and after the query's own that it sees; -1: all",
   get_window, set_window, kAnyKey},
  choice<&Attention::bias>("bias", kAttention, "a bias of the logits, added before or after the softmax scale",
    "none"),
  {"softmax_scale", kAttention, false, "auto|float", "multiplies the logits; auto: 1/sqrt(elements of a head)",
   get_softmax_scale, set_softmax_scale, kAuto},
  f32<&Attention::dropout>("dropout", kAttention, "the share of probabilities that is dropped, by the plane keep",
    "0"),
  choice<&Attention::exp>("exp", kAttention,
    "e^x: correctly rounded, or 2^(x log2 e) by the approximate instruction", "exact"),
  choice<&Attention::sums>("sums", kAttention,
    "order of the kernels' sums: that of the clauses, or tile by tile with a running maximum, held to a bound", "ascending"),
  choice<&Attention::codes>("codes", kAttention,
    "Q, K and V come as FP8 codes with descales of each sequence and head of keys", "none"),
  choice<&Attention::backward>("backward", kAttention, "the gradients as well", "0"),

  // Keys of a Quantizer.
  encoding<&Tensor::source>(kSource, kOperand, kOperandSources,
    "encoding of the tensor that an operand is quantized from "
    "(written as a word after the sizes if both operands have the same)", "bf16", always,
    set_encoding_among<&Tensor::source, operand_sources>),
  encoding<&Quantizer::element>("element", kData | kUpdate | kScaleChain, element_values,
    "encoding of the data", default_element, row_has<several_elements>,
    set_encoding_among<&Quantizer::element, elements_of_format>),
  {"block", kData | kSwizzle, true, block_values,
   "how many elements share a scale", get_block, set_block, default_block, row_has<several_blocks>},
  choice<&Quantizer::packing>("packing", kData,
    "a code in each byte, or one code after another without a gap (N6.8)", default_packing,
    row_has<several_packings>),
  {"round", kMake, true, kRoundValues, "rounding of elements: to nearest even, or stochastically",
   get_choice<&Quantizer::round>, set_round, "rne", kNvfp4},
  choice<&Quantizer::rht>("rht", kMake, "quantize the columns of the rotated tensor", "0", rotatable),
  {"sign_mask", kMake | kHadamard, true, "16 bits",
   "bit i set negates element i of each 16 before the rotation",
   get_sign_mask, set_sign_mask, default_sign_mask, rotated},
  choice<&Quantizer::row_scaled>("row_scaled", kData,
    "one amax and one scale per stored row rather than one for the tensor", "0",
    format_is<F::fp8_current, F::fp8_delayed, F::nvfp4>),
  choice<&Quantizer::four_over_six>("four_over_six", kData,
    "choose each block's scale for a largest value of 4 or 6 by the smaller error", "off", kNvfp4),
  choice<&Quantizer::e4m3_max>("e4m3_max", kData | kScaleChain,
    "with four_over_six: the largest block scale that the tensor scale aims at", "448", nvfp4_limit),
  choice<&Quantizer::pow2>("pow2", kChain, "floor the scale to a power of two", default_pow2, kDivided),
  f32<&Quantizer::eps>("eps", kChain, "least amax", "0", kDivided),
  {"amax", kMake, true, "computed|float",
   "the tensor amax: computed, or given", get_amax, set_amax, kComputed, computes_amax},
  f32<&Quantizer::scale>("scale", kMake, "the given scale", "1", kDelayed),
  f32<&Quantizer::prior_amax>("prior_amax", kMake, "the previous value of the amax slot", "0", kDelayed),
  choice<&Quantizer::scales>("scales", kQuantize | kSplit | kDequantize,
    "layout of the scale tensor", "compact", kBlocked),
  choice<&Quantizer::scale_from>("scale_from", kQuantize,
    "source of the block scales: the elements, or the plane given.block_amax, or given.scale_inv",
    "x", kBlocked),

  // The rows of contract/numerics.def.
  numeric<&Numerics::neg_zero>(kMake, kQuantized),
  numeric<&Numerics::nan_amax>(kMake, row_has<ignores_nan>),
  numeric<&Numerics::inf_amax>(kChain, format_is<F::fp8_current, F::fp8_block, F::nvfp4>),
  numeric<&Numerics::scale_limit>(kMake, kDivided),
  numeric<&Numerics::swizzle_extent>(kSwizzle, row_has<scales_as_data>),
  numeric<&Numerics::nan_tensor_amax>(kChain, kNvfp4),
  numeric<&Numerics::nan_clamp>(kChain, kNvfp4),
  numeric<&Numerics::multiplier>(kChain, nvfp4_plain),
  numeric<&Numerics::four_over_six_error>(kMake, chooses_scale),
  numeric<&Numerics::element_ties>(kMake, nearest),
  numeric<&Numerics::element_overflow>(kMake, row_has<overflows>),
  numeric<&Numerics::pre_round>(kMake, nearest),
  numeric<&Numerics::scale_order>(kChain, kOrdered),
  numeric<&Numerics::scale_division>(kChain, format_is<F::fp8_current, F::fp8_block, F::nvfp4>),
  numeric<&Numerics::mx_scale>(kChain, kE8m0Scales),
  numeric<&Numerics::mx_inf>(kChain, kE8m0Scales),
  numeric<&Numerics::nvfp4_scale>(kChain, nvfp4_plain),
  numeric<&Numerics::nvfp4_floor>(kChain, nvfp4_plain),
  numeric<&Numerics::zero_multiplier>(kChain, nvfp4_plain),
  numeric<&Numerics::scale_round>(kChain, nvfp4_plain),
  numeric<&Numerics::zero_amax>(kChain, format_is<F::fp8_current, F::fp8_block, F::mxfp8>),
  numeric<&Numerics::nan_code>(kMake, nan_coded),
  numeric<&Numerics::rht_sum>(kMake | kHadamard, rotated),
  numeric<&Numerics::sr_rule>(kMake, drawn),
  numeric<&Numerics::sr_bytes>(kMake, drawn),
  numeric<&Numerics::draw>(kMake, drawn),

  // The fill.
  {"fill", kAll, false, fill_values, "how the input is made", get_fill, set_fill, "normal"},
  integer<&Fill::seed, 0, ~uint64_t{0}>("seed", kAll, "the fill's seed", "0"),
  {"at", kAll, false, "<row>,<col>",
   "the fill's origin: x is a window of a larger tensor", get_at, set_at, "0,0"},
  {"rng", kQuantize | kSplit | kGemm, false, "<seed>,<offset>,<member>",
   "source of the random bytes of round=sr (default: the fill's seed, 0, 0)",
   get_rng, set_rng, default_rng, draws_somewhere},
};
// clang-format on

// ---- what must hold of it ------------------------------------------------------------

constexpr bool names_are_unique() {
  for (size_t i = 0; i < std::size(kKeys); ++i)
    for (size_t j = 0; j < i; ++j) {
      const unsigned shared = kKeys[i].ops & kKeys[j].ops, gemm = kGemm | kOperand;
      if (kKeys[i].name == kKeys[j].name && (shared || (kKeys[i].ops & gemm && kKeys[j].ops & gemm)))
        return false;
    }
  return true;
}
static_assert(names_are_unique(), "an op has two keys of one name");

constexpr bool has_numerics() {
  for (const NumericInfo& row : kNumerics) {
    bool found = false;
    for (const Key& k : kKeys) found |= k.directional && k.name == row.name;
    if (!found) return false;
  }
  return true;
}
static_assert(has_numerics(), "a row of numerics.def has no key");

}  // namespace

std::span<const Key> keys() { return kKeys; }

const Key* key_named(std::string_view name, const Problem& p) {
  const Key* found = nullptr;
  for (const Key& k : keys())
    if (k.name == name && (!found || (k.ops & op_bits(p)))) found = &k;
  return found;
}

}  // namespace assay::line

namespace assay {

std::span<const KeyInfo> line_keys() {
  static std::deque<std::string> values;  // KeyInfo has views of them
  static const std::vector<KeyInfo> table = [] {
    std::vector<KeyInfo> out;
    for (const line::Key& k : line::keys()) {
      KeyInfo& row =
          out.emplace_back(KeyInfo{k.name, k.directional, values.emplace_back(k.values()), k.summary, {}});
      for (size_t op = 0; op < std::size(kOps); ++op)
        if (k.ops >> op & 1 || (1u << op == line::kGemm && k.ops & line::kOperand) ||
            (1u << op == line::kAttention && k.directional && k.ops & line::kOperand))
          row.ops.push_back(kOps[op]);
    }
    return out;
  }();
  return table;
}

}  // namespace assay

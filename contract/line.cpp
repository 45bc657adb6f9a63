#include "contract/line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>

#include "contract/dispatch.h"
#include "contract/f32_text.h"
#include "contract/flavours.h"
#include "contract/planes.h"
#include "contract/recipes.h"
#include "contract/words.h"

namespace assay {

namespace {

// ---- words of the enums that keys take -------------------------------------------------------------------------------

const Words& encoding_words() {
  static const Words words = [] { Words w; for (const auto& e : kEncodings) w.push_back(e.name); return w; }();
  return words;
}
const Words& format_words() {
  static const Words words = [] { Words w; for (const auto& f : kFormats) w.push_back(f.name); return w; }();
  return words;
}
const Words& op_words() {
  static const Words words(std::begin(kOps), std::end(kOps));
  return words;
}
const Words kFillWords = words_of("normal|edges|ties|every_code|outliers|wide|exact_sums|zeros|denormal|nonfinite|amax_edges|negative_zeros|literal|pack", '|');

std::string join(std::span<const std::string_view> words, std::string_view separator) {
  std::string out;
  for (std::string_view w : words) out += (out.empty() ? "" : std::string(separator)) + std::string(w);
  return out;
}

Error unknown(std::string_view what, std::string_view found, std::span<const std::string_view> words) {
  const std::string near = nearest_word(found, words);
  return {"unknown " + std::string(what) + " '" + std::string(found) + "'", 0,
          near.empty() ? "one of " + join(words, ", ") : "did you mean '" + near + "'?"};
}

template <class T>
std::optional<T> integer(std::string_view text) {
  T value{};
  auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// ---- the key table ---------------------------------------------------------------------------------------------------

enum OpBit : unsigned {
  kCast = 1, kQuantize = 2, kDequantize = 4, kUpdate = 8, kSwizzle = 16, kScaleChain = 32, kHadamard = 64, kSplit = 128, kPhilox = 256, kGemm = 512,
  kOperand = 1024,             // of a gemm too, but a value for each operand: the key sees the operand's own line
  kAll = 511 | kOperand
};

using MaybeError = std::optional<Error>;
using Get = std::function<std::string(const Problem&, Direction)>;
using Set = std::function<MaybeError(Problem&, Direction, std::string_view)>;
using Applies = std::function<bool(const Problem&, Direction)>;

// One key of the line. The order of the table is the order of dependency: `fallback` may read only earlier keys.
struct Key {
  std::string_view name;
  unsigned ops;
  bool directional;
  std::string_view values, summary;
  Applies applies;               // beyond the op; for directional keys asked only where that direction has a Quantizer
  Get get;
  Set set;
  Get fallback;                  // the default in this context
};

bool always(const Problem&, Direction) { return true; }

Applies format_is(std::initializer_list<FormatId> formats) {
  std::vector<FormatId> list(formats);
  return [list](const Problem& p, Direction d) {
    return p.quantizer(d) && std::find(list.begin(), list.end(), p.quantizer(d)->format) != list.end();
  };
}

Get constant(std::string value) {
  return [value](const Problem&, Direction) { return value; };
}

// Accessors that name one member: `Ref` is a callable (Problem&, Direction) -> member&. get() is only called where the key applies.
template <class Ref>
auto& member(Ref ref, const Problem& p, Direction d) { return ref(const_cast<Problem&>(p), d); }

template <class E, class Ref>
std::pair<Get, Set> words_access(Words words, Ref ref) {
  return {[words, ref](const Problem& p, Direction d) { return std::string(words[static_cast<size_t>(member(ref, p, d))]); },
          [words, ref](Problem& p, Direction d, std::string_view text) -> MaybeError {
            auto at = std::find(words.begin(), words.end(), text);
            if (at == words.end()) return unknown("value", text, words);
            ref(p, d) = static_cast<E>(at - words.begin());
            return {};
          }};
}

template <class Ref>
std::pair<Get, Set> float_access(Ref ref) {
  return {[ref](const Problem& p, Direction d) { return f32_text(member(ref, p, d)); },
          [ref](Problem& p, Direction d, std::string_view text) -> MaybeError {
            auto bits = parse_f32(text);
            if (!bits) return bits.error();
            ref(p, d) = *bits;
            return {};
          }};
}

// A float or a word that means "absent".
template <class Ref>
std::pair<Get, Set> optional_float_access(std::string absent, Ref ref) {
  return {[absent, ref](const Problem& p, Direction d) {
            const auto& v = member(ref, p, d);
            return v ? f32_text(*v) : absent;
          },
          [absent, ref](Problem& p, Direction d, std::string_view text) -> MaybeError {
            if (text == absent) return ref(p, d).reset(), MaybeError{};
            auto bits = parse_f32(text);
            if (!bits) return bits.error();
            ref(p, d) = *bits;
            return {};
          }};
}

std::pair<Get, Set> flag_access(std::function<bool&(Problem&, Direction)> ref) { return words_access<bool>(words_of("0|1", '|'), ref); }

template <class T, class Ref>
std::pair<Get, Set> integer_access(T low, T high, Ref ref) {
  return {[ref](const Problem& p, Direction d) { return std::to_string(member(ref, p, d)); },
          [low, high, ref](Problem& p, Direction d, std::string_view text) -> MaybeError {
            auto v = integer<T>(text);
            if (!v || *v < low || *v > high)
              return Error{"expected an integer from " + std::to_string(low) + " to " + std::to_string(high) + ", found '" + std::string(text) + "'", 0, ""};
            ref(p, d) = *v;
            return {};
          }};
}

Quantizer& quantizer(Problem& p, Direction d) { return *p.quantizer(d); }

Words numeric_words(std::string_view name) {
  for (const NumericInfo& n : kNumerics)
    if (n.name == name) return words_of(n.values, ',');
  return {};
}

std::string_view numeric_summary(std::string_view name) {
  for (const NumericInfo& n : kNumerics)
    if (n.name == name) return n.summary;
  return {};
}

// "keep, plus" as "keep|plus".
std::string_view numeric_values(std::string_view name) {
  static std::map<std::string_view, std::string, std::less<>> texts;
  return texts.try_emplace(name, join(numeric_words(name), "|")).first->second;
}

bool is_e8m0_cast(const Problem& p) { return p.as<Cast>()->to == Encoding::e8m0; }
const Words& flavour_words() {
  static const Words words = [] { Words w{"assay", "te"}; for (const FlavourInfo& f : flavours()) w.push_back(f.name); return w; }();
  return words;
}
Words block_words(FormatId f) { return words_of(info(f).blocks, '|'); }

// "32,64" or, where both sizes vary, "32x64,16x128".
std::string groups_text(const Split& s) {
  std::string out;
  for (Shape m : s.members) {
    const std::string rows = std::to_string(m.rows), cols = std::to_string(m.cols);
    out += (out.empty() ? "" : ",") + (s.vary == Vary::both ? rows + "x" + cols : s.vary == Vary::last ? cols : rows);
  }
  return out;
}
MaybeError read_groups(Problem& p, std::string_view text) {
  Split& s = *p.as<Split>();
  s.members.clear();
  for (std::string_view word : words_of(text, ',')) {
    const Words sizes = words_of(word, 'x');
    std::vector<int64_t> n;
    for (std::string_view size : sizes)
      if (auto v = integer<int64_t>(size); v && *v >= 0 && *v <= kMaxElements) n.push_back(*v);
    if (n.size() != (s.vary == Vary::both ? 2u : 1u) || n.size() != sizes.size())
      return Error{"expected sizes of members, found '" + std::string(text) + "'", 0, s.vary == Vary::both ? "groups=32x64,16x128" : "groups=32,0,64"};
    s.members.push_back(s.vary == Vary::both ? Shape{n[0], n[1]} : s.vary == Vary::last ? Shape{p.x.shape.rows, n[0]} : Shape{n[0], p.x.shape.cols});
  }
  return {};
}

std::string hex16(uint16_t v) {
  std::string out = "0x";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789ABCDEF"[v >> shift & 15];
  return out;
}
MaybeError read_hex16(std::string_view text, uint16_t& out) {
  const bool prefixed = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = prefixed ? text.substr(2) : text;
  unsigned value = 0;
  auto [stop, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, prefixed ? 16 : 10);
  if (digits.empty() || status != std::errc{} || stop != digits.data() + digits.size() || value > 0xFFFF)
    return Error{"expected 16 bits, found '" + std::string(text) + "'", 0, "for example 0xD7E8"};
  out = static_cast<uint16_t>(value);
  return {};
}

bool small_float(Encoding e) { return e == Encoding::e2m1 || e == Encoding::e2m3 || e == Encoding::e3m2; }
bool wide_float(Encoding e) { return e == Encoding::f32 || e == Encoding::bf16 || e == Encoding::f16; }

constexpr std::string_view kSums = "f32_sequential|exact|hopper_fp8_split|hopper_fp8_fast|hopper_f16|hopper_tf32";
constexpr std::string_view kSource = "source";   // the one key that a line writes as a word
constexpr std::string_view kDispatch = "dispatch";
constexpr std::string_view kAuto = "auto";       // the format of a line with factory=

std::vector<Key> make_keys() {
  std::vector<Key> keys;
  auto add = [&](std::string_view name, unsigned ops, std::string_view values, std::string_view summary, std::pair<Get, Set> access,
                 Get fallback, Applies applies = always, bool directional = false) {
    keys.push_back({name, ops, directional, values, summary, std::move(applies), std::move(access.first), std::move(access.second), std::move(fallback)});
  };
  using F = FormatId;
  const Applies fp8_delayed_only = format_is({F::fp8_delayed}), mxfp8_only = format_is({F::mxfp8}), nvfp4_only = format_is({F::nvfp4}),
                divided = format_is({F::fp8_current, F::fp8_block}), fp8 = format_is({F::fp8_delayed, F::fp8_current, F::fp8_block, F::mxfp8}),
                quantized = format_is({F::fp8_delayed, F::fp8_current, F::fp8_block, F::mxfp8, F::nvfp4, F::mxfp4}),
                blocked = format_is({F::fp8_block, F::mxfp8, F::nvfp4, F::mxfp4});
  const Applies several_blocks = [](const Problem& p, Direction d) { return p.quantizer(d) && block_words(p.quantizer(d)->format).size() > 1; };
  const Applies computes_amax = [=](const Problem& p, Direction d) {
    return p.quantizer(d) && (p.quantizer(d)->format == F::fp8_current || p.quantizer(d)->format == F::nvfp4) && !p.quantizer(d)->row_scaled;
  };
  const Applies drawn = [](const Problem& p, Direction d) { return p.quantizer(d) && p.quantizer(d)->round == Round::sr; };
  const Applies rotated = [](const Problem& p, Direction d) { return p.quantizer(d) && p.quantizer(d)->rht; };
  const Applies chooses_scale = [](const Problem& p, Direction d) { return p.quantizer(d) && p.quantizer(d)->four_over_six != FourOverSix::off; };
  const Applies nvfp4_limit = [=](const Problem& p, Direction d) { return nvfp4_only(p, d) && (chooses_scale(p, d) || p.as<ScaleChain>()); };
  const Applies nvfp4_plain = [=](const Problem& p, Direction d) { return nvfp4_only(p, d) && !chooses_scale(p, d); };
  const Applies nearest = [=](const Problem& p, Direction d) { return quantized(p, d) && !drawn(p, d); };
  const Applies both_directions = [](const Problem& p, Direction) { return p.row && p.col; };

  // Which directions exist. Set by parse_line before any other key: it creates and removes Quantizers.
  add("dir", kQuantize | kDequantize | kSwizzle | kSplit, "row|col|both", "directions that are produced; both: quantize and split only",
      {[](const Problem& p, Direction) -> std::string { return p.row && p.col ? "both" : p.row ? "row" : "col"; },
       [](Problem& p, Direction, std::string_view text) -> MaybeError {
         static const Words words = words_of("row|col|both", '|');
         if (std::find(words.begin(), words.end(), text) == words.end()) return unknown("value", text, words);
         if (text != "both" && p.row && p.col && p.row->format != p.col->format)
           return Error{"dir=" + std::string(text) + " takes one format, found a pair", 0, "name the one format that is wanted"};
         if (text == "row") p.col.reset();
         if (text == "col") p.row.reset();
         return {};
       }},
      [](const Problem& p, Direction) -> std::string { return p.as<Quantize>() || p.as<Split>() ? "both" : "row"; });

  add("flavour", kQuantize | kSwizzle | kScaleChain | kSplit, "assay|te|<name>", "whose choices are the defaults of the other keys: TransformerEngine's kernel selection, or a name that `assay flavours` lists",
      words_access<Flavour>(flavour_words(), [](Problem& p, Direction) -> Flavour& { return p.flavour; }), constant("assay"));
  const Applies te_only = [](const Problem& p, Direction) { return p.flavour == Flavour::te; };
  add("arch", kQuantize | kSwizzle | kSplit, "sm90|sm100|sm110|sm120", "architecture that flavour=te selects kernels for",
      words_access<Arch>(words_of("sm90|sm100|sm110|sm120", '|'), [](Problem& p, Direction) -> Arch& { return p.arch; }), constant("sm100"), te_only);
  add(kDispatch, kQuantize | kSplit, "auto|generic|specialised|t1d|q2d|fb|rhtrc", "flavour=te: force one family of kernels",
      words_access<Dispatch>(words_of("auto|generic|specialised|t1d|q2d|fb|rhtrc", '|'), [](Problem& p, Direction) -> Dispatch& { return p.dispatch; }), constant("auto"), te_only);

  // Op keys.
  add("col_source", kQuantize | kSplit, "original|row_dequantized", "what the columns are quantized from",
      words_access<ColSource>(words_of("original|row_dequantized", '|'), [](Problem& p, Direction) -> ColSource& { return p.col_source; }), constant("original"), both_directions);
  add("vary", kSplit, "none|first|last|both", "which sizes differ between members",
      words_access<Vary>(words_of("none|first|last|both", '|'), [](Problem& p, Direction) -> Vary& { return p.as<Split>()->vary; }), constant("first"));
  add("groups", kSplit, "<size>,... or <rows>x<cols>,...", "sizes of the members along the side that varies",
      {[](const Problem& p, Direction) { return groups_text(*p.as<Split>()); }, [](Problem& p, Direction, std::string_view text) { return read_groups(p, text); }},
      [](const Problem& p, Direction) {
        const std::string rows = std::to_string(p.x.shape.rows), cols = std::to_string(p.x.shape.cols);
        const Vary vary = p.as<Split>()->vary;
        return vary == Vary::both ? rows + "x" + cols : vary == Vary::last ? cols : rows;
      });
  add("capacity", kSplit, "0..2^31", "elements allocated, at least those of the members",
      integer_access<int64_t>(0, kMaxElements, [](Problem& p, Direction) -> int64_t& { return p.as<Split>()->capacity; }),
      [](const Problem& p, Direction) { return std::to_string(p.x.shape.count()); });
  add("rounds", kPhilox, "1..16", "rounds of Philox4x32",
      integer_access<int>(1, 16, [](Problem& p, Direction) -> int& { return p.as<Philox>()->rounds; }), constant("10"));
  add("round", kCast, "rne|rz|rp|sr", "rounding: to nearest even, toward zero, up in magnitude (rp: e8m0 only), stochastically (sr: e2m1 only)",
      words_access<Round>(words_of("rne|rz|rp|sr", '|'), [](Problem& p, Direction) -> Round& { return p.as<Cast>()->round; }),
      [](const Problem& p, Direction) -> std::string { return is_e8m0_cast(p) ? "rp" : "rne"; });
  add("sr_rule", kCast, numeric_values("sr_rule"), numeric_summary("sr_rule"),
      words_access<SrRule>(numeric_words("sr_rule"), [](Problem& p, Direction) -> SrRule& { return p.as<Cast>()->sr_rule; }), constant("integer"),
      [](const Problem& p, Direction) { return p.as<Cast>()->round == Round::sr; });
  add("overflow", kCast, "sat|nosat", "beyond the largest finite value: that value, or infinity (NaN where there is none)",
      words_access<Overflow>(words_of("sat|nosat", '|'), [](Problem& p, Direction) -> Overflow& { return p.as<Cast>()->overflow; }),
      [](const Problem& p, Direction) -> std::string { return wide_float(p.as<Cast>()->to) ? "nosat" : "sat"; });
  add("noop", kQuantize | kSplit, "none|float", "the noop flag; exactly 1 leaves every output untouched",
      optional_float_access("none", [](Problem& p, Direction) -> auto& { return p.as<Split>() ? p.as<Split>()->noop : p.as<Quantize>()->noop; }), constant("none"));
  add("out", kDequantize, "f32|bf16|f16", "encoding of the dequantized tensor (default: the source's)",
      words_access<Encoding>(encoding_words(), [](Problem& p, Direction) -> Encoding& { return p.as<Dequantize>()->out; }),
      [](const Problem& p, Direction) { return std::string(info(p.x.source).name); });
  add("input", kDequantize, "quantized|codes", "what is dequantized: x quantized by the reference, or arbitrary codes and scales",
      words_access<CodesFrom>(words_of("quantized|codes", '|'), [](Problem& p, Direction) -> CodesFrom& { return p.as<Dequantize>()->input; }), constant("quantized"));
  add("algo", kUpdate, "max|most_recent", "which amax of the history sets the scale",
      words_access<AmaxAlgo>(words_of("max|most_recent", '|'), [](Problem& p, Direction) -> AmaxAlgo& { return p.as<Update>()->algo; }), constant("max"));
  add("rule", kUpdate, "bulk|api|unfused", "which of TransformerEngine's three updates",
      words_access<UpdateRule>(words_of("bulk|api|unfused", '|'), [](Problem& p, Direction) -> UpdateRule& { return p.as<Update>()->rule; }), constant("bulk"));
  add("margin", kUpdate, "-126..126", "the scale is divided by 2^margin",
      integer_access<int>(-126, 126, [](Problem& p, Direction) -> int& { return p.as<Update>()->margin; }), constant("0"));
  add("reduction", kUpdate, "0|1", "a buffer of reduced amaxes is given",
      flag_access([](Problem& p, Direction) -> bool& { return p.as<Update>()->reduction; }), constant("0"));
  add("inverse", kSwizzle, "0|1", "from GEMM layout back to compact",
      flag_access([](Problem& p, Direction) -> bool& { return p.as<Swizzle>()->inverse; }), constant("0"));

  add("op", kGemm, "TN|NN|NT", "which directions of a and b are read: rows and rows (fprop), columns and rows (dgrad), columns and columns (wgrad)",
      words_access<GemmOp>(words_of("TN|NN|NT", '|'), [](Problem& p, Direction) -> GemmOp& { return p.as<Gemm>()->op; }), constant("TN"));
  add("sum", kGemm, kSums, "how the products are summed",
      words_access<GemmSum>(words_of(kSums, '|'), [](Problem& p, Direction) -> GemmSum& { return p.as<Gemm>()->sum; }), constant("f32_sequential"));
  add("out", kGemm, "f32|bf16|f16|e4m3|e5m2", "encoding of d, and of c",
      words_access<Encoding>(encoding_words(), [](Problem& p, Direction) -> Encoding& { return p.x.source; }), constant("bf16"));
  add("alpha", kGemm, "float", "multiplies the sum, where it is not 1",
      float_access([](Problem& p, Direction) -> F32Bits& { return p.as<Gemm>()->alpha; }), constant("1"));
  add("beta", kGemm, "float", "multiplies c, which is added where beta is not 0",
      float_access([](Problem& p, Direction) -> F32Bits& { return p.as<Gemm>()->beta; }), constant("0"));
  add("bias", kGemm, "none|f32|bf16|f16", "encoding of a bias, added to every row of d",
      {[](const Problem& p, Direction) { return p.as<Gemm>()->bias ? std::string(info(*p.as<Gemm>()->bias).name) : "none"; },
       [](Problem& p, Direction, std::string_view text) -> MaybeError {
         const std::optional<Encoding> e = encoding_named(text);
         if (!e && text != "none") return unknown("value", text, words_of("none|f32|bf16|f16", '|'));
         p.as<Gemm>()->bias = e;
         return {};
       }},
      constant("none"));

  // Keys of a Quantizer.
  constexpr unsigned kMake = kQuantize | kSplit | kOperand, kData = kMake | kDequantize;
  add(kSource, kOperand, "f32|bf16|f16", "encoding of the tensor that an operand is quantized from (written as a word behind the sizes where both are alike)",
      words_access<Encoding>(encoding_words(), [](Problem& p, Direction) -> Encoding& { return p.x.source; }), constant("bf16"));
  add("element", kData | kUpdate | kScaleChain, "e4m3|e5m2", "encoding of the data",
      words_access<Encoding>(encoding_words(), [](Problem& p, Direction d) -> Encoding& { return quantizer(p, d).element; }),
      [](const Problem& p, Direction d) { return std::string(info(info(p.quantizer(d)->format).element.value_or(p.x.source)).name); }, fp8, true);
  add("block", kData | kSwizzle, "1x16|16x16|1x32|32x32|1x128|128x128", "how many elements share a scale",
      {[](const Problem& p, Direction d) { return std::string(name_of(p.quantizer(d)->block)); },
       [](Problem& p, Direction d, std::string_view text) -> MaybeError {
         const Words words = block_words(quantizer(p, d).format);
         if (std::find(words.begin(), words.end(), text) == words.end()) return unknown("block", text, words);
         quantizer(p, d).block = static_cast<Block>(std::find(std::begin(kBlocks), std::end(kBlocks), text) - std::begin(kBlocks));
         return {};
       }},
      [](const Problem& p, Direction d) { return std::string(name_of(info(p.quantizer(d)->format).block)); }, several_blocks, true);
  add("round", kMake, "rne|sr", "rounding of elements: to nearest even, or stochastically",
      {[](const Problem& p, Direction d) -> std::string { return p.quantizer(d)->round == Round::sr ? "sr" : "rne"; },
       [](Problem& p, Direction d, std::string_view text) -> MaybeError {
         static const Words words = words_of("rne|sr", '|');
         if (std::find(words.begin(), words.end(), text) == words.end()) return unknown("value", text, words);
         quantizer(p, d).round = text == "sr" ? Round::sr : Round::rne;
         return {};
       }},
      constant("rne"), nvfp4_only, true);
  add("rht", kMake, "0|1", "quantize the columns of the rotated tensor",
      flag_access([](Problem& p, Direction d) -> bool& { return quantizer(p, d).rht; }), constant("0"),
      [=](const Problem& p, Direction d) { return d == Direction::col && nvfp4_only(p, d); }, true);
  add("sign_mask", kMake | kHadamard, "16 bits", "bit i set negates element i of each 16 before the rotation",
      {[](const Problem& p, Direction d) { return hex16(p.quantizer(d)->sign_mask); },
       [](Problem& p, Direction d, std::string_view text) { return read_hex16(text, quantizer(p, d).sign_mask); }},
      constant(hex16(kRhtSignMask)), rotated, true);
  add("row_scaled", kData, "0|1", "one amax per stored row rather than one for the tensor",
      flag_access([](Problem& p, Direction d) -> bool& { return quantizer(p, d).row_scaled; }), constant("0"), format_is({F::fp8_current, F::nvfp4}), true);
  add("four_over_six", kData, "off|mae|mse", "choose each block's scale for a largest value of 4 or 6 by the smaller error",
      words_access<FourOverSix>(words_of("off|mae|mse", '|'), [](Problem& p, Direction d) -> FourOverSix& { return quantizer(p, d).four_over_six; }),
      constant("off"), nvfp4_only, true);
  add("e4m3_max", kData | kScaleChain, "448|256", "with four_over_six: the largest block scale that the tensor scale aims at",
      words_access<E4m3Max>(words_of("448|256", '|'), [](Problem& p, Direction d) -> E4m3Max& { return quantizer(p, d).e4m3_max; }),
      constant("448"), nvfp4_limit, true);
  add("pow2", kMake | kScaleChain, "0|1", "floor the scale to a power of two",
      flag_access([](Problem& p, Direction d) -> bool& { return quantizer(p, d).pow2; }),
      [](const Problem& p, Direction d) -> std::string { return p.quantizer(d)->format == FormatId::fp8_block ? "1" : "0"; }, divided, true);
  add("eps", kMake | kScaleChain, "float", "least amax",
      float_access([](Problem& p, Direction d) -> F32Bits& { return quantizer(p, d).eps; }), constant("0"), divided, true);
  add("amax", kMake, "computed|float", "the tensor amax: computed, or given",
      optional_float_access("computed", [](Problem& p, Direction d) -> auto& { return quantizer(p, d).amax; }), constant("computed"), computes_amax, true);
  add("scale", kMake, "float", "the given scale",
      float_access([](Problem& p, Direction d) -> F32Bits& { return quantizer(p, d).scale; }), constant("1"), fp8_delayed_only, true);
  add("prior_amax", kMake, "float", "what the amax slot holds before",
      float_access([](Problem& p, Direction d) -> F32Bits& { return quantizer(p, d).prior_amax; }), constant("0"), fp8_delayed_only, true);
  add("scales", kQuantize | kSplit | kDequantize, "compact|gemm", "layout of the scale tensor",
      words_access<ScaleLayout>(words_of("compact|gemm", '|'), [](Problem& p, Direction d) -> ScaleLayout& { return quantizer(p, d).scales; }),
      constant("compact"), blocked, true);
  add("scale_from", kQuantize, "x|amax|scale", "where the scales of blocks come from: the elements, or the plane given.block_amax, or given.scale_inv",
      words_access<ScaleFrom>(words_of("x|amax|scale", '|'), [](Problem& p, Direction d) -> ScaleFrom& { return quantizer(p, d).scale_from; }), constant("x"), blocked, true);

  // Numerics, by default what the flavour's kernel does.
  auto numeric = [&](std::string_view name, unsigned ops, Applies applies, auto pointer) {
    using E = std::remove_reference_t<decltype(std::declval<Numerics>().*pointer)>;
    const Words words = numeric_words(name);
    add(name, ops, numeric_values(name), numeric_summary(name),
        words_access<E>(words, [pointer](Problem& p, Direction d) -> E& { return quantizer(p, d).numerics.*pointer; }),
        [words, pointer](const Problem& p, Direction d) {
          Numerics numerics;
          if (p.flavour == Flavour::te) {
            const TeKernel kernel = te_kernel(p);
            numerics = d == Direction::row ? kernel.row : kernel.col;
          }
          return std::string(words[static_cast<size_t>(numerics.*pointer)]);
        },
        std::move(applies), true);
  };
  numeric("neg_zero", kMake, quantized, &Numerics::neg_zero);
  numeric("nan_amax", kMake, format_is({F::mxfp8, F::nvfp4, F::mxfp4}), &Numerics::nan_amax);
  numeric("inf_amax", kMake | kScaleChain, format_is({F::fp8_current, F::fp8_block, F::nvfp4}), &Numerics::inf_amax);
  numeric("scale_limit", kMake, divided, &Numerics::scale_limit);
  numeric("swizzle_extent", kSwizzle, mxfp8_only, &Numerics::swizzle_extent);
  numeric("nan_tensor_amax", kMake | kScaleChain, nvfp4_only, &Numerics::nan_tensor_amax);
  numeric("nan_clamp", kMake | kScaleChain, nvfp4_only, &Numerics::nan_clamp);
  numeric("multiplier", kMake | kScaleChain, nvfp4_plain, &Numerics::multiplier);
  numeric("four_over_six_error", kMake, chooses_scale, &Numerics::four_over_six_error);
  numeric("element_ties", kMake, nearest, &Numerics::element_ties);
  numeric("element_overflow", kMake, fp8, &Numerics::element_overflow);
  numeric("pre_round", kMake, nearest, &Numerics::pre_round);
  numeric("scale_order", kMake | kScaleChain, divided, &Numerics::scale_order);
  numeric("scale_division", kMake | kScaleChain, format_is({F::fp8_current, F::fp8_block, F::nvfp4}), &Numerics::scale_division);
  numeric("mx_scale", kMake | kScaleChain, format_is({F::mxfp8, F::mxfp4}), &Numerics::mx_scale);
  numeric("mx_inf", kMake | kScaleChain, format_is({F::mxfp8, F::mxfp4}), &Numerics::mx_inf);
  numeric("nvfp4_scale", kMake | kScaleChain, nvfp4_plain, &Numerics::nvfp4_scale);
  numeric("nvfp4_floor", kMake | kScaleChain, nvfp4_plain, &Numerics::nvfp4_floor);
  numeric("zero_multiplier", kMake | kScaleChain, nvfp4_plain, &Numerics::zero_multiplier);
  numeric("scale_round", kMake | kScaleChain, nvfp4_plain, &Numerics::scale_round);
  numeric("rht_sum", kMake | kHadamard, rotated, &Numerics::rht_sum);
  numeric("sr_rule", kMake, drawn, &Numerics::sr_rule);
  numeric("sr_bytes", kMake, drawn, &Numerics::sr_bytes);
  numeric("draw", kMake, drawn, &Numerics::draw);

  // The fill.
  add("fill", kAll, "normal|edges|ties|every_code|outliers|wide|exact_sums|zeros|denormal|nonfinite|amax_edges|negative_zeros|literal:<hex>|pack:<file>#<tensor>@<sha256>",
      "how the input is made",
      {[](const Problem& p, Direction) {
         const Fill& f = p.x.fill;
         const bool has_payload = f.kind == FillKind::literal || f.kind == FillKind::pack;
         return std::string(kFillWords[static_cast<size_t>(f.kind)]) + (has_payload ? ":" + f.payload : "");
       },
       [](Problem& p, Direction, std::string_view text) -> MaybeError {
         const std::string_view word = text.substr(0, text.find(':'));
         auto at = std::find(kFillWords.begin(), kFillWords.end(), word);
         if (at == kFillWords.end()) return unknown("fill", word, kFillWords);
         const FillKind kind = static_cast<FillKind>(at - kFillWords.begin());
         const bool takes_payload = kind == FillKind::literal || kind == FillKind::pack;
         const bool has_payload = word.size() < text.size();
         if (takes_payload && (!has_payload || word.size() + 1 == text.size()))
           return Error{"fill=" + std::string(word) + " needs data after a colon", 0, kind == FillKind::pack ? "fill=pack:<file>#<tensor>@<sha256>" : "fill=literal:3f80bf80"};
         if (!takes_payload && has_payload) return Error{"fill=" + std::string(word) + " takes no data, found '" + std::string(text) + "'", 0, ""};
         p.x.fill.kind = kind;
         p.x.fill.payload = has_payload ? std::string(text.substr(word.size() + 1)) : std::string{};
         return {};
       }},
      constant("normal"));
  add("seed", kAll, "0..2^64-1", "the fill's seed",
      integer_access<uint64_t>(0, ~uint64_t{0}, [](Problem& p, Direction) -> uint64_t& { return p.x.fill.seed; }), constant("0"));
  add("at", kAll, "<row>,<col>", "the fill's origin: x is a window of a larger tensor",
      {[](const Problem& p, Direction) { return std::to_string(p.x.fill.at_row) + "," + std::to_string(p.x.fill.at_col); },
       [](Problem& p, Direction, std::string_view text) -> MaybeError {
         const Words parts = words_of(text, ',');
         const auto row = parts.size() == 2 ? integer<int64_t>(parts[0]) : std::nullopt;
         const auto col = parts.size() == 2 ? integer<int64_t>(parts[1]) : std::nullopt;
         if (!row || !col || *row < 0 || *col < 0 || *row > kMaxElements || *col > kMaxElements)
           return Error{"expected at=<row>,<col> with integers of 0 and up, found '" + std::string(text) + "'", 0, ""};
         p.x.fill.at_row = *row;
         p.x.fill.at_col = *col;
         return {};
       }},
      constant("0,0"));
  add("rng", kQuantize | kSplit | kGemm, "<seed>,<offset>,<member>", "where the random bytes of round=sr come from (default: the fill's seed, 0, 0)",
      {[](const Problem& p, Direction) { return std::to_string(p.rng.seed) + "," + std::to_string(p.rng.offset) + "," + std::to_string(p.rng.member); },
       [](Problem& p, Direction, std::string_view text) -> MaybeError {
         const Words parts = words_of(text, ',');
         const auto seed = parts.size() == 3 ? integer<uint64_t>(parts[0]) : std::nullopt;
         const auto offset = parts.size() == 3 ? integer<uint64_t>(parts[1]) : std::nullopt;
         const auto member = parts.size() == 3 ? integer<uint32_t>(parts[2]) : std::nullopt;
         if (!seed || !offset || !member) return Error{"expected rng=<seed>,<offset>,<member>, found '" + std::string(text) + "'", 0, "for example rng=7,0,0"};
         p.rng = {*seed, *offset, *member};
         return {};
       }},
      [](const Problem& p, Direction) { return std::to_string(p.as<Gemm>() ? p.as<Gemm>()->a.fill.seed : p.x.fill.seed) + ",0,0"; }, [](const Problem& p, Direction) { return draws(p); });
  return keys;
}

const std::vector<Key>& keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

unsigned op_bits(const Problem& p) { return p.as<Gemm>() ? kGemm | kOperand : 1u << p.op.index(); }

// The key of this name; where several ops have one each, that of the Problem's op.
const Key* key_named(std::string_view name, const Problem& p) {
  const Key* found = nullptr;
  for (const Key& k : keys())
    if (k.name == name && (!found || (k.ops & op_bits(p)))) found = &k;
  return found;
}

// Where a key holds a value: a bare key at 0; a directional key at each direction that has a Quantizer; a gemm's key of operands at a, at b and,
// where c or a bias is drawn, at c. A place has the prefix that names it in a line.
constexpr std::string_view kDirectionPlaces[] = {"row", "col"}, kOperandPlaces[] = {"a", "b", "c"};
constexpr int kPlaceOfC = 2;
std::span<const std::string_view> places_of(const Problem& p) {
  if (p.as<Gemm>()) return kOperandPlaces;
  return kDirectionPlaces;
}

bool of_operands(const Key& k, const Problem& p) { return p.as<Gemm>() && (k.ops & kOperand); }
// Whether the key may be written with the prefix of a place.
bool prefixed(const Key& k, const Problem& p) { return p.as<Gemm>() ? of_operands(k, p) : k.directional; }

// A key's functions at a place. The keys of operands see the operand as the line that quantizes it, with its own seed; c is drawn by x's fill.
class At {
 public:
  At(const Key& k, const Problem& p, int place) : key_(k), problem_(p), direction_(static_cast<Direction>(place)), viewed_(of_operands(k, p) && place != kPlaceOfC) {
    if (place == kPlaceOfC) direction_ = Direction::row;
    if (!viewed_) return;
    side_ = static_cast<Side>(place);
    direction_ = p.as<Gemm>()->direction(side_);
    view_ = operand_problem(p, side_);
    view_.x.fill = p.as<Gemm>()->operand(side_).fill;
  }
  bool applies() const { return key_.applies(seen(), direction_); }
  std::string get() const { return key_.get(seen(), direction_); }
  std::string fallback() const {
    const std::optional<Quantizer>& q = seen().quantizer(direction_);
    if (const FlavourInfo* flavour = info(seen().flavour); flavour && key_.directional && q && flavour->is_of(q->format))
      if (const auto value = setting(flavour->keys, key_.name, direction_)) {
        Problem set = seen();
        return key_.set(set, direction_, *value) ? std::string(*value) : key_.get(set, direction_);   // as a line prints it: eps=1e-04
      }
    return key_.fallback(seen(), direction_);
  }
  // Into p, which is the Problem of the constructor.
  MaybeError set(Problem& p, std::string_view text) {
    if (!viewed_) return key_.set(p, direction_, text);
    if (auto error = key_.set(view_, direction_, text)) return error;
    p.as<Gemm>()->operand(side_) = {*view_.quantizer(direction_), view_.x.source, view_.x.fill};
    return {};
  }

 private:
  const Problem& seen() const { return viewed_ ? view_ : problem_; }

  const Key& key_;
  const Problem& problem_;
  Direction direction_;
  bool viewed_;
  Side side_{};
  Problem view_;
};

std::vector<int> places(const Key& k, const Problem& p) {
  std::vector<int> out;
  if (!(k.ops & op_bits(p))) return out;
  if (const Gemm* g = p.as<Gemm>(); g && of_operands(k, p)) {
    const bool draws_c = (g->reads_c() || g->bias) && !k.directional && k.name != kSource;
    for (int place = 0; place < (draws_c ? 3 : 2); ++place)
      if (At(k, p, place).applies()) out.push_back(place);
  } else if (!k.directional) {
    if (k.applies(p, Direction::row)) out.push_back(0);
  } else {
    for (Direction d : kDirections)
      if (p.quantizer(d) && k.applies(p, d)) out.push_back(static_cast<int>(d));
  }
  return out;
}

// ---- the positional words --------------------------------------------------------------------------------------------

struct Token {
  std::string_view text;
  size_t column;   // 1-based
};

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \t", at), text.size());
    out.push_back({text.substr(at, end - at), at + 1});
    at = end;
  }
  return out;
}

Error at_column(Error e, size_t column) {
  e.column = column;
  return e;
}

MaybeError read_op(std::string_view word, Problem& p) {
  const Words& words = op_words();
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end()) return unknown("op", word, words);
  switch (at - words.begin()) {
    case 0: p.op = Cast{}; break;
    case 1: p.op = Quantize{}; break;
    case 2: p.op = Dequantize{}; break;
    case 3: p.op = Update{}; break;
    case 4: p.op = Swizzle{}; break;
    case 5: p.op = ScaleChain{}; break;
    case 6: p.op = Hadamard{}; break;
    case 7: p.op = Split{}; break;
    case 8: p.op = Philox{}; break;
    default: p.op = Gemm{}; break;
  }
  return {};
}

MaybeError read_format(std::string_view word, Problem& p) {
  if (Cast* cast = p.as<Cast>()) {
    const auto to = encoding_named(word);
    if (!to) return unknown("encoding", word, encoding_words());
    cast->to = *to;
    return {};
  }
  if (p.as<Philox>()) {
    if (word != info(Encoding::u32).name) return Error{"philox makes u32, found '" + std::string(word) + "'", 0, "philox u32 8x4 u32"};
    return {};
  }
  const Words parts = words_of(word, '/');
  if (parts.size() > 2 || (parts.size() == 2 && !p.as<Quantize>() && !p.as<Split>()))
    return Error{std::string(op_name(p)) + " takes one format, found '" + std::string(word) + "'", 0, ""};
  std::array<FormatId, 2> formats{};
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view name = parts[std::min(i, parts.size() - 1)];
    const auto format = format_named(name);
    if (!format && name == kAuto) return Error{"'auto' is the format of a line with factory=", 0, "quantize auto 64x256 bf16 role=linear/input factory=mxfp8_factory"};
    if (!format) return unknown("format", name, format_words());
    formats[i] = *format;
  }
  if (p.as<Hadamard>()) {                                                      // of columns alone (N11.2)
    p.col.emplace().format = formats[0];
    p.col->rht = true;
    return {};
  }
  p.row.emplace().format = formats[0];
  if (p.as<Quantize>() || p.as<Dequantize>() || p.as<Swizzle>() || p.as<Split>()) p.col.emplace().format = formats[1];   // `dir` removes what is not wanted
  return {};
}

MaybeError read_shape(std::string_view word, Problem& p) {
  const Words parts = words_of(word, 'x');
  const auto rows = parts.size() == 2 ? integer<int64_t>(parts[0]) : std::nullopt;
  const auto cols = parts.size() == 2 ? integer<int64_t>(parts[1]) : std::nullopt;
  if (!rows || !cols || *rows < 0 || *cols < 0)
    return Error{"expected a shape <rows>x<cols>, found '" + std::string(word) + "'", 0, "for example 64x256"};
  if (*rows > kMaxElements || *cols > kMaxElements || (*cols != 0 && *rows > kMaxElements / *cols))
    return Error{"shape " + std::string(word) + " has more than 2^31 elements", 0, ""};
  p.x.shape = {*rows, *cols};
  return {};
}

constexpr const char* kGemmForm = "a line is gemm a=<format> b=<format> <M>x<N>x<K> [<source>] key=value ...";

MaybeError read_source(std::string_view word, Problem& p) {
  const auto source = encoding_named(word);
  if (!source) return unknown("source encoding", word, encoding_words());
  p.x.source = *source;
  return {};
}

// "a=mxfp8", and the same of b.
MaybeError read_operand(std::string_view word, Problem& p, Side side) {
  const std::string prefix = std::string(name_of(side)) + "=";
  if (!word.starts_with(prefix)) return Error{"expected the format of an operand, " + prefix + "<format>, found '" + std::string(word) + "'", 0, kGemmForm};
  const auto format = format_named(word.substr(prefix.size()));
  if (!format) return unknown("format", word.substr(prefix.size()), format_words());
  p.as<Gemm>()->operand(side).quantizer.format = *format;
  return {};
}
MaybeError read_a(std::string_view word, Problem& p) { return read_operand(word, p, Side::a); }
MaybeError read_b(std::string_view word, Problem& p) { return read_operand(word, p, Side::b); }

MaybeError read_sizes(std::string_view word, Problem& p) {
  std::vector<int64_t> n;
  for (std::string_view size : words_of(word, 'x'))
    if (auto v = integer<int64_t>(size); v && *v >= 0 && *v <= kMaxElements) n.push_back(*v);
  if (n.size() != 3 || std::count(word.begin(), word.end(), 'x') != 2) return Error{"expected sizes <M>x<N>x<K>, found '" + std::string(word) + "'", 0, "for example 256x512x384"};
  p.x.shape = {n[1], n[0]};
  p.as<Gemm>()->k = n[2];
  return {};
}

std::string print(const Problem& p, bool canonical) {
  std::string out(op_name(p));
  const Gemm* gemm = p.as<Gemm>();
  if (gemm) {
    for (Side side : kSides) out += " " + std::string(name_of(side)) + "=" + std::string(info(gemm->operand(side).quantizer.format).name);
  } else if (const Cast* cast = p.as<Cast>()) {
    out += " " + std::string(info(cast->to).name);
  } else if (p.as<Philox>()) {
    out += " u32";
  } else {
    const Quantizer& first = p.row ? *p.row : *p.col;
    out += " " + std::string(info(first.format).name);
    if (p.row && p.col && p.row->format != p.col->format) out += "/" + std::string(info(p.col->format).name);
  }
  const bool one_source = !gemm || gemm->a.source == gemm->b.source;
  if (gemm) {
    out += " " + std::to_string(p.x.shape.cols) + "x" + std::to_string(p.x.shape.rows) + "x" + std::to_string(gemm->k);
    if (one_source && (canonical || gemm->a.source != Encoding::bf16)) out += " " + std::string(info(gemm->a.source).name);
  } else {
    out += " " + std::to_string(p.x.shape.rows) + "x" + std::to_string(p.x.shape.cols) + " " + std::string(info(p.x.source).name);
  }
  for (const Key& k : keys()) {
    if (k.name == kSource && one_source) continue;
    struct Value {
      int place;
      std::string text;
      bool is_default;
    };
    std::vector<Value> values;
    for (int place : places(k, p)) {
      const At at(k, p, place);
      values.push_back({place, at.get(), false});
      values.back().is_default = values.back().text == at.fallback();
    }
    if (values.empty() || (!canonical && std::all_of(values.begin(), values.end(), [](const Value& v) { return v.is_default; }))) continue;
    const bool alike = std::all_of(values.begin(), values.end(), [&](const Value& v) { return v.text == values[0].text; });
    const bool several = gemm || (p.row && p.col);
    if (!prefixed(k, p) || !several || (values.size() >= 2 && alike)) {
      out += " " + std::string(k.name) + "=" + values[0].text;
      continue;
    }
    for (const Value& v : values)
      if (canonical || !v.is_default) out += " " + std::string(places_of(p)[static_cast<size_t>(v.place)]) + "." + std::string(k.name) + "=" + v.text;
  }
  return out;
}

// ---- roles -----------------------------------------------------------------------------------------------------------

struct Given {
  std::string_view value;
  size_t key_column, value_column;
};
using RoleKeys = std::map<std::string_view, Given>;   // of role, recipe and factory, those that the line has

// The settings of each direction that role= and recipe= name; nothing where the line has neither or a direction's format has no recipe.
using Settings = std::array<std::string_view, 2>;
Result<Settings> role_settings(const Problem& p, const RoleKeys& given) {
  Settings out;
  if (given.empty()) return out;
  if (const auto factory = given.find("factory"); factory != given.end())
    return Error{"a line with factory= cannot be read here", factory->second.key_column, "`assay list '<line>' --canonical` prints the line that the factory makes of it"};
  const auto role_at = given.find("role"), recipe_at = given.find("recipe");
  if (role_at == given.end()) return Error{"recipe= needs the role of the tensor", recipe_at->second.key_column, "role=linear/input"};
  const Result<TensorRole> role = parse_role(role_at->second.value);
  if (!role) return at_column({"role: " + role.error().message, 0, role.error().hint}, role_at->second.value_column);
  std::optional<RecipeInfo> named;
  if (recipe_at != given.end()) {
    const Result<RecipeInfo> recipe = recipe_named(recipe_at->second.value);
    if (!recipe) return at_column({"recipe: " + recipe.error().message, 0, recipe.error().hint}, recipe_at->second.value_column);
    named = *recipe;
  }
  bool any = false;
  for (Direction d : kDirections) {
    const FormatId format = p.quantizer(d)->format;
    const std::string format_word(info(format).name);
    if (named && named->format != format)
      return Error{"recipe=" + std::string(named->word) + " is of " + std::string(info(named->format).name) + ", the line's format is " + format_word, recipe_at->second.value_column,
                   "write " + std::string(info(named->format).name) + ", or leave recipe= out"};
    for (const RecipeInfo& r : recipes()) {
      if (r.format != format) continue;
      const auto settings = settings_of(r, role->tensor);
      any |= settings.has_value();
      out[static_cast<size_t>(d)] = settings.value_or("");
    }
  }
  if (!any)
    return Error{"no recipe quantizes " + std::string(role->module) + "/" + std::string(role->tensor) + " by " + std::string(info(p.row->format).name), role_at->second.value_column,
                 "leave role= out, or name another format"};
  return out;
}

// Whether TransformerEngine's rotating kernel makes these rows alone, of a tensor whose columns its recipe would rotate (N8.4). Asked before the quantizers have their keys.
bool rows_of_rotating_kernel(const Problem& p, std::string_view settings) {
  if (p.flavour != Flavour::te || !p.as<Quantize>() || !p.row || p.col || setting(settings, "rht", Direction::col) != "1") return false;
  Problem fused = p;
  fused.dispatch = Dispatch::rhtrc;
  if (const auto round = setting(settings, "round", Direction::row)) fused.row->round = *round == "sr" ? Round::sr : Round::rne;
  return te_kernel(fused).rejected.empty();
}

}  // namespace

// ---- parse -----------------------------------------------------------------------------------------------------------

Result<Problem> parse_line(std::string_view text) {
  Problem p;
  const std::vector<Token> tokens = tokens_of(text);
  struct Positional {
    MaybeError (*read)(std::string_view, Problem&);
    std::string_view what;
    bool has_equals = false;
  };
  static constexpr Positional kOp = {read_op, "an op"};
  static constexpr Positional kQuantizers[] = {{read_format, "a format"}, {read_shape, "a shape <rows>x<cols>"}, {read_source, "a source encoding"}};
  static constexpr Positional kOperands[] = {{read_a, "a=<format>", true}, {read_b, "b=<format>", true}, {read_sizes, "sizes <M>x<N>x<K>"}};
  size_t next = 0;
  const auto take = [&](const Positional& word) -> MaybeError {
    const bool ended = next == tokens.size();
    if (ended || (!word.has_equals && tokens[next].text.find('=') != std::string_view::npos))
      return Error{"expected " + std::string(word.what) + (ended ? ", found the end of the line" : ", found '" + std::string(tokens[next].text) + "'"),
                   ended ? text.size() + 1 : tokens[next].column, p.as<Gemm>() ? kGemmForm : "a line is <op> <format> <rows>x<cols> <source> key=value ..."};
    if (auto error = word.read(tokens[next].text, p)) return at_column(*error, tokens[next].column);
    ++next;
    return {};
  };
  if (auto error = take(kOp)) return *error;
  for (const Positional& word : p.as<Gemm>() ? std::span<const Positional>(kOperands) : std::span<const Positional>(kQuantizers))
    if (auto error = take(word)) return *error;

  // key=value, in any order; row.key=, col.key= or a.key=, b.key= for one place
  std::map<std::pair<const Key*, int>, Given> given;   // int: -1 bare, else the place
  RoleKeys given_roles;
  static const Words key_words = [] {
    Words w;
    for (const Key& k : keys()) w.push_back(k.name);
    for (const KeyInfo& k : role_keys()) w.push_back(k.name);
    return w;
  }();
  const bool takes_roles = p.as<Quantize>() || p.as<Split>();
  if (const Key* source = key_named(kSource, p); p.as<Gemm>() && next < tokens.size() && tokens[next].text.find('=') == std::string_view::npos) {
    given[{source, -1}] = {tokens[next].text, tokens[next].column, tokens[next].column};
    ++next;
  }
  const std::span<const std::string_view> prefixes = places_of(p);
  for (; next < tokens.size(); ++next) {
    const Token& t = tokens[next];
    const size_t equals = t.text.find('=');
    if (equals == std::string_view::npos) return Error{"expected key=value, found '" + std::string(t.text) + "'", t.column, ""};
    std::string_view name = t.text.substr(0, equals);
    int place = -1;
    for (size_t i = 0; i < prefixes.size(); ++i) {
      const std::string prefix = std::string(prefixes[i]) + ".";
      if (!name.starts_with(prefix)) continue;
      place = static_cast<int>(i);
      name.remove_prefix(prefix.size());
      break;
    }
    const Given value{t.text.substr(equals + 1), t.column, t.column + equals + 1};
    if (std::ranges::any_of(role_keys(), [&](const KeyInfo& k) { return k.name == name; })) {
      if (!takes_roles || place >= 0) return Error{"key '" + std::string(t.text.substr(0, equals)) + "' does not apply here", t.column, "it is for quantize and split, without a prefix"};
      if (!given_roles.try_emplace(name, value).second) return Error{"key '" + std::string(name) + "' is given twice", t.column, ""};
      continue;
    }
    const Key* key = key_named(name, p);
    if (!key) return at_column(unknown("key", name, key_words), t.column);
    if (place >= 0 && !prefixed(*key, p))
      return Error{"'" + std::string(name) + "' is not a key of one " + (p.as<Gemm>() ? "operand" : "direction"), t.column, "write it without " + join(prefixes, ". or ") + "."};
    if (!given.try_emplace({key, place}, value).second)
      return Error{"key '" + std::string(t.text.substr(0, equals)) + "' is given twice", t.column, ""};
  }

  const Result<Settings> settings = role_settings(p, given_roles);
  if (!settings) return settings.error();

  for (const Key& k : keys()) {
    const auto bare = given.find({&k, -1});
    const auto where = places(k, p);
    for (int place : where) {
      const auto own = prefixed(k, p) ? given.find({&k, place}) : given.end();
      const auto source = own != given.end() ? own : bare;
      At at(k, p, place);
      const auto of_role = k.directional && takes_roles ? setting((*settings)[static_cast<size_t>(place)], k.name, static_cast<Direction>(place)) : std::nullopt;
      const bool fused_rows = k.name == kDispatch && takes_roles && rows_of_rotating_kernel(p, (*settings)[static_cast<size_t>(Direction::row)]);
      const std::string fallback = source != given.end() ? std::string{} : of_role ? std::string(*of_role) : fused_rows ? "rhtrc" : at.fallback();
      if (auto error = at.set(p, source == given.end() ? std::string_view(fallback) : source->second.value))
        return at_column(Error{std::string(k.name) + ": " + error->message, 0, error->hint}, source == given.end() ? 0 : source->second.value_column);
    }
    for (int place = -1; place < static_cast<int>(prefixes.size()); ++place) {
      const auto it = given.find({&k, place});
      if (it == given.end()) continue;
      const bool used = place < 0 ? !where.empty() : std::find(where.begin(), where.end(), place) != where.end();
      if (!used) {
        std::string applying;
        for (const Key& other : keys())
          if ((other.ops & op_bits(p)) && !places(other, p).empty()) applying += (applying.empty() ? "" : ", ") + std::string(other.name);
        return Error{"key '" + (place < 0 ? "" : std::string(prefixes[static_cast<size_t>(place)]) + ".") + std::string(k.name) + "' does not apply here",
                     it->second.key_column, std::string(k.name) + " is: " + std::string(k.summary) + "; keys of this " + std::string(op_name(p)) + ": " + applying};
      }
    }
  }
  // Identity data keep the source's encoding, and a block that no key set is the format's.
  const auto settle = [&](Quantizer& q, Encoding source, int place) {
    const auto set = [&](std::string_view name) {
      const std::vector<int> where = places(*key_named(name, p), p);
      return std::find(where.begin(), where.end(), place) != where.end();
    };
    if (!set("element")) q.element = info(q.format).element.value_or(source);
    if (!set("block")) q.block = info(q.format).block;
  };
  for (Direction d : kDirections)
    if (p.quantizer(d)) settle(*p.quantizer(d), p.x.source, static_cast<int>(d));
  if (Gemm* g = p.as<Gemm>())
    for (Side side : kSides) settle(g->operand(side).quantizer, g->operand(side).source, static_cast<int>(side));
  if (auto error = validate(p)) return *error;
  return p;
}

namespace {

MaybeError fail(std::string message, std::string hint = "") { return Error{std::move(message), 0, std::move(hint)}; }

MaybeError validate_cast(const Problem& p) {
  const Cast& c = *p.as<Cast>();
  const Encoding source = p.x.source;
  const std::string to(info(c.to).name);
  if (!info(source).is_float() || !info(c.to).is_float()) return fail("cast is between floating-point encodings");
  if (source == c.to) return fail("cast from " + std::string(info(source).name) + " to itself", "name another target");
  if (!wide_float(source) && !wide_float(c.to)) return fail("cast from a code decodes to f32, bf16 or f16, found " + to);
  if (c.round == Round::rp && c.to != Encoding::e8m0) return fail("round=rp is for e8m0 only");
  if (c.round == Round::rne && c.to == Encoding::e8m0) return fail("a cast to e8m0 takes round=rp or round=rz");
  if (c.round == Round::sr && (c.to != Encoding::e2m1 || source != Encoding::f32)) return fail("round=sr is for casts from f32 to e2m1 only");
  if (small_float(c.to) && c.overflow == Overflow::nosat) return fail(to + " always saturates (N2.3)", "overflow=sat");
  if (wide_float(c.to) && c.overflow == Overflow::sat) return fail(to + " overflows to infinity (N2.3)", "overflow=nosat");
  if (p.row || p.col) return fail("cast has no quantizer");
  return {};
}

// What NVFP4's modes exclude of each other.
MaybeError validate_nvfp4(const Problem& p, const Quantizer& q, Direction d) {
  const Shape s = p.x.shape;
  const bool sr = q.round == Round::sr, both_sizes_32 = s.rows % 32 == 0 && s.cols % 32 == 0;
  if (q.rht) {
    if (d != Direction::col) return fail("rht=1 is for columns only (N11.2)", "col.rht=1");
    if (p.x.source != Encoding::bf16) return fail("rht=1 rotates bf16, found " + std::string(info(p.x.source).name));
    if (s.rows % 16 != 0) return fail("rht=1 needs a multiple of 16 rows, found " + std::to_string(s.rows));
  }
  if (q.row_scaled && (is_square(q.block) || q.rht || sr || q.amax)) return fail("row_scaled=1 has computed amaxes, blocks of 1x16, no rht and no stochastic rounding (N10.9)");
  if (q.four_over_six != FourOverSix::off && (q.rht || sr || q.numerics.multiplier != Multiplier::reciprocal))
    return fail("four_over_six takes round=rne, no rht and multiplier=reciprocal (N10.10)");
  if (q.e4m3_max == E4m3Max::m256 && q.four_over_six == FourOverSix::off && !p.as<ScaleChain>()) return fail("e4m3_max=256 is for four_over_six only (N10.1)");
  if (!sr) return {};
  switch (q.numerics.draw) {   // the shapes that these kernels accept (N12.4)
    case Draw::logical: case Draw::te_fb: break;
    case Draw::te_t1d: case Draw::te_q2d:
      if (!both_sizes_32) return fail("draw=te_t1d and draw=te_q2d need sizes that are multiples of 32");
      break;
    case Draw::te_rhtrc:
      if (s.rows % 64 != 0 || s.cols % 128 != 0) return fail("draw=te_rhtrc needs a multiple of 64 rows and 128 columns");
      break;
  }
  if (p.rng.member >= 1u << 17) return fail("rng: a member is below 131072");
  return {};
}

MaybeError validate_quantizer(const Problem& p, const Quantizer& q, Direction d) {
  const Encoding source = p.x.source;
  const FormatInfo& f = info(q.format);
  const std::string name(f.name);
  const bool fp8 = q.element == Encoding::e4m3 || q.element == Encoding::e5m2;
  const bool element_fits = !f.element ? q.element == source : f.packed() ? q.element == f.element : fp8;
  if (!element_fits) return fail(name + " data cannot be " + std::string(info(q.element).name), f.packed() ? "" : "element=e4m3 or element=e5m2");
  const Words blocks = block_words(q.format);
  if (std::find(blocks.begin(), blocks.end(), name_of(q.block)) == blocks.end()) return fail("block does not fit " + name, "allowed: " + std::string(f.blocks));
  const bool makes = p.as<Quantize>() || p.as<Split>();
  if ((makes || p.as<Dequantize>()) && !wide_float(source)) return fail("source must be f32, bf16 or f16, found " + std::string(info(source).name));
  if (q.scales == ScaleLayout::gemm && q.format == FormatId::fp8_block && makes && !q.pow2) return fail("scales=gemm of fp8_block needs pow2=1 (N9.6)");
  if (q.scale_from != ScaleFrom::x) {
    if (!p.as<Quantize>() || !f.has_blocks()) return fail("scale_from is for quantizes of formats with blocks");
    if (q.four_over_six != FourOverSix::off) return fail("four_over_six chooses its scales: scale_from=x");
    if (q.scale_from == ScaleFrom::scale && q.format == FormatId::fp8_block && q.numerics.scale_order == ScaleOrder::encode_first)
      return fail("scale_from=scale of fp8_block needs scale_order=decode_first or decode_divide: the encode scale is not a function of the decode scale (N17.12)", "scale_from=amax");
  }
  if (q.format != FormatId::nvfp4 && (q.round == Round::sr || q.rht || q.four_over_six != FourOverSix::off)) return fail("round, rht and four_over_six are for nvfp4");
  if (q.row_scaled && q.format != FormatId::nvfp4) {
    if (q.format != FormatId::fp8_current) return fail("row_scaled is for fp8_current and nvfp4");
    if (q.amax) return fail("row_scaled=1 computes the amax of each stored row: none is given (N3.12)", "leave amax out");
  }
  return q.format == FormatId::nvfp4 ? validate_nvfp4(p, q, d) : MaybeError{};
}

MaybeError validate_split(const Problem& p) {
  const Split& op = *p.as<Split>();
  if (op.members.empty()) return fail("a split has at least one member", "groups=32,0,64");
  int64_t rows = 0, cols = 0, count = 0;
  for (Shape m : op.members) {
    if (m.rows < 0 || m.cols < 0 || m.rows > kMaxElements || m.cols > kMaxElements || (m.cols != 0 && m.rows > kMaxElements / m.cols)) return fail("a member's sizes are out of range");
    if (op.vary == Vary::none && !(m == op.members[0])) return fail("vary=none has members of one size", "vary=first");
    rows += m.rows;
    cols += m.cols;
    count += m.count();
  }
  const Shape whole = op.vary == Vary::both ? Shape{1, count} : op.vary == Vary::last ? Shape{op.members[0].rows, cols} : Shape{rows, op.members[0].cols};
  if (!(whole == p.x.shape))
    return fail("the members make " + std::to_string(whole.rows) + "x" + std::to_string(whole.cols) + ", the shape is " + std::to_string(p.x.shape.rows) + "x" + std::to_string(p.x.shape.cols),
                op.vary == Vary::both ? "vary=both has shape 1x<elements of all members> (N14.1)" : "");
  if (op.capacity < count || op.capacity > kMaxElements) return fail("capacity is at least the " + std::to_string(count) + " elements of the members, and at most 2^31");
  if (op.members.size() >= 1u << 17) return fail("a split has fewer than 131072 members");
  if (draws(p) && p.rng.member != 0) return fail("the members of a split have the numbers 0, 1, ...: rng ends in 0");
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->round == Round::sr && p.quantizer(d)->numerics.draw != Draw::logical) return fail("a split draws by the logical mapping (N14.5)");
  for (const Problem& m : member_problems(p))
    for (Direction d : kDirections)
      if (m.quantizer(d))
        if (auto error = validate_quantizer(m, *m.quantizer(d), d)) return error;
  return {};
}

MaybeError validate_flavour(const Problem& p) {
  const FlavourInfo* flavour = info(p.flavour);
  if (!flavour) {
    if (p.flavour == Flavour::te && p.as<ScaleChain>()) return fail("flavour=te is for quantize, split and swizzle");
    return {};
  }
  for (Direction d : kDirections)
    if (p.quantizer(d) && flavour->is_of(p.quantizer(d)->format)) return {};
  return fail("flavour=" + std::string(flavour->name) + " is of " + std::string(flavour->formats), "`assay flavours` lists those of each format");
}

// What each sum multiplies (N16.5): the operands' formats, and the encoding of their elements where that is one.
MaybeError validate_sum(const Gemm& g) {
  using F = FormatId;
  const std::string sum(words_of(kSums, '|')[static_cast<size_t>(g.sum)]);
  const auto both = [&](auto&& fits) { return fits(g.a) && fits(g.b); };
  const auto per_tensor = [](const Operand& o) { return info(o.quantizer.format).per_tensor_fp8(); };
  const auto blockwise = [](const Operand& o) { return o.quantizer.format == F::fp8_block; };
  const auto plain = [](const Operand& o) { return o.quantizer.format == F::identity; };
  switch (g.sum) {
    case GemmSum::f32_sequential: case GemmSum::exact: return {};
    case GemmSum::hopper_fp8_fast:
      return both(per_tensor) ? MaybeError{} : fail("sum=hopper_fp8_fast takes per-tensor FP8 operands (N16.5)", "a=fp8_current b=fp8_current");
    case GemmSum::hopper_fp8_split:
      if (!both(per_tensor) && !both(blockwise)) return fail("sum=hopper_fp8_split takes two operands of per-tensor FP8, or two of fp8_block (N16.5)", "a=fp8_current b=fp8_current");
      if (both(blockwise) && is_square(g.a.quantizer.block) && is_square(g.b.quantizer.block))
        return fail("sum=hopper_fp8_split takes no two operands of 128x128 blocks (N16.7)", "a.block=128x128 b.block=1x128");
      return {};
    case GemmSum::hopper_f16: {
      const bool halves = both(plain) && g.a.source == g.b.source && g.a.source != Encoding::f32;
      const bool brains = both([&](const Operand& o) { return through_bf16(o.quantizer) || (plain(o) && o.source == Encoding::bf16); });   // N16.12
      return halves || brains ? MaybeError{} : fail("sum=hopper_f16 takes operands of identity bf16, mxfp8, mxfp4 and nvfp4, or two of identity f16 (N16.5, N16.12)", "a=identity b=identity");
    }
    case GemmSum::hopper_tf32:
      return both(plain) && both([](const Operand& o) { return o.source == Encoding::f32; }) ? MaybeError{} : fail("sum=hopper_tf32 takes two identity operands of f32 (N16.5)", "a=identity b=identity");
  }
  return {};
}

MaybeError validate_gemm(const Problem& p) {
  const Gemm& g = *p.as<Gemm>();
  const Encoding out = p.x.source;
  const bool fp8_out = out == Encoding::e4m3 || out == Encoding::e5m2;
  if (p.row || p.col) return fail("gemm has quantizers in its operands only");
  if (!wide_float(out) && !fp8_out) return fail("out must be f32, bf16, f16, e4m3 or e5m2, found " + std::string(info(out).name));
  if (fp8_out && g.reads_c()) return fail("out=" + std::string(info(out).name) + " takes no c (N16.8)", "beta=0");
  if (g.bias && !wide_float(*g.bias)) return fail("bias must be f32, bf16 or f16");
  for (Side side : kSides) {
    const Quantizer& q = g.operand(side).quantizer;
    auto error = g.k < 0 || g.k > kMaxElements ? fail("the sizes are out of range") : validate(operand_problem(p, side));
    if (!error && q.scales != ScaleLayout::compact) error = fail("a gemm reads compact scales");
    if (error) return Error{std::string(name_of(side)) + ": " + error->message, 0, error->hint};
    if (q.row_scaled && q.format == FormatId::nvfp4 && g.operand(side == Side::a ? Side::b : Side::a).quantizer.format != FormatId::nvfp4)
      return fail("an operand of row_scaled=1 takes an nvfp4 partner (N16.9)", "a=nvfp4 b=nvfp4");
  }
  return validate_sum(g);
}

}  // namespace

std::optional<Error> validate(const Problem& p) {
  const Encoding source = p.x.source;
  const Shape s = p.x.shape;
  if (s.rows < 0 || s.cols < 0 || s.rows > kMaxElements || s.cols > kMaxElements || (s.cols != 0 && s.rows > kMaxElements / s.cols))
    return fail("the shape must have sizes of 0 and up and at most 2^31 elements");
  if (p.as<Cast>()) return validate_cast(p);
  if (p.as<Philox>()) {
    if (source != Encoding::u32 || s.cols != 4) return fail("philox takes counters of 4 u32", "philox u32 8x4 u32");
    return {};
  }
  if (p.as<Gemm>()) return validate_gemm(p);
  if (!p.row && !p.col) return fail("a " + std::string(op_name(p)) + " needs a quantizer in at least one direction");
  if ((p.as<Dequantize>() || p.as<Swizzle>()) && p.row && p.col) return fail(std::string(op_name(p)) + " works in one direction", "dir=row or dir=col");
  if ((p.as<Update>() || p.as<ScaleChain>()) && (!p.row || p.col)) return fail(std::string(op_name(p)) + " has no directions");
  if (auto error = validate_flavour(p)) return error;
  if (p.as<Split>()) return validate_split(p);
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const Quantizer& q = *p.quantizer(d);
    const FormatInfo& f = info(q.format);
    if (auto error = validate_quantizer(p, q, d)) return error;
    if (p.as<Dequantize>() && !wide_float(p.as<Dequantize>()->out)) return fail("out must be f32, bf16 or f16");
    if (p.as<Dequantize>() && q.format == FormatId::identity && p.as<Dequantize>()->out != source) return fail("identity dequantizes to its own encoding");
    if (p.as<Update>()) {
      if (q.format != FormatId::fp8_delayed) return fail("update is for fp8_delayed, found " + std::string(f.name));
      if (source != Encoding::f32) return fail("an amax history is f32, found " + std::string(info(source).name));
      if (s.rows < 1) return fail("an amax history has at least 1 row");
    }
    if (p.as<Swizzle>()) {
      if (!f.has_blocks()) return fail("swizzle permutes scales of blocks; " + std::string(f.name) + " has none", "swizzle mxfp8 ...");
      if (source != f.scale)
        return fail("swizzle of " + std::string(f.name) + " moves " + std::string(info(*f.scale).name) + " scales, found source " + std::string(info(source).name),
                    "swizzle " + std::string(f.name) + " 64x256 " + std::string(info(*f.scale).name));
    }
    if (p.as<Hadamard>() && (q.format != FormatId::nvfp4 || d != Direction::col || !q.rht)) return fail("hadamard is the rotation of nvfp4 columns", "hadamard nvfp4 64x256 bf16");
    if (p.as<ScaleChain>()) {
      const bool e8m0 = f.scale == Encoding::e8m0, divided = q.format == FormatId::fp8_current || q.format == FormatId::fp8_block;
      if (!e8m0 && !divided && q.format != FormatId::nvfp4) return fail("scale_chain is for formats that compute scales, found " + std::string(f.name));
      if (source != Encoding::f32 && !(e8m0 && source == Encoding::e8m0)) return fail("scale_chain takes f32 amaxes" + std::string(e8m0 ? " or e8m0 codes" : ""));
      if (q.format == FormatId::nvfp4 && s.cols != 2) return fail("scale_chain of nvfp4 takes pairs, tensor amax and block amax", "scale_chain nvfp4 64x2 f32");
    }
  }
  return {};
}

std::string to_line(const Problem& p) { return print(p, false); }
std::string to_canonical_line(const Problem& p) { return print(p, true); }

// ---- sweeps, keys, nearest words -------------------------------------------------------------------------------------

Result<std::vector<std::string>> expand_sweep(std::string_view text) {
  std::vector<std::string> out{""};
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find_first_of("{}", at), text.size());
    for (std::string& line : out) line += text.substr(at, open - at);
    if (open == text.size()) break;
    if (text[open] == '}') return Error{"'}' without '{'", open + 1, ""};
    const size_t close = text.find_first_of("{}", open + 1);
    if (close == std::string_view::npos || text[close] == '{') return Error{"'{' without '}'", open + 1, "groups do not nest"};
    const std::string_view body = text.substr(open + 1, close - open - 1);
    std::vector<std::string> choices;
    if (const size_t dots = body.find(".."); dots != std::string_view::npos) {
      const auto low = integer<int64_t>(body.substr(0, dots)), high = integer<int64_t>(body.substr(dots + 2));
      if (!low || !high || *low > *high) return Error{"expected {lo..hi} with lo <= hi, found '{" + std::string(body) + "}'", open + 1, ""};
      if (static_cast<uint64_t>(*high) - static_cast<uint64_t>(*low) >= kMaxSweep)
        return Error{"a sweep of more than " + std::to_string(kMaxSweep) + " lines", open + 1, "split it"};
      for (int64_t v = *low; v <= *high; ++v) choices.push_back(std::to_string(v));
    } else {
      for (std::string_view word : words_of(body, ',')) choices.emplace_back(word);
    }
    if (choices.size() > kMaxSweep / out.size()) return Error{"a sweep of more than " + std::to_string(kMaxSweep) + " lines", open + 1, "split it"};
    std::vector<std::string> longer;
    longer.reserve(out.size() * choices.size());
    for (const std::string& line : out)
      for (const std::string& choice : choices) longer.push_back(line + choice);
    out = std::move(longer);
    at = close + 1;
  }
  return out;
}

std::span<const KeyInfo> line_keys() {
  static const std::vector<KeyInfo> table = [] {
    std::vector<KeyInfo> out;
    for (const Key& k : keys()) {
      KeyInfo i{k.name, k.directional, k.values, k.summary, {}};
      for (size_t op = 0; op < std::size(kOps); ++op)
        if (k.ops >> op & 1 || (1u << op == kGemm && k.ops & kOperand)) i.ops.push_back(kOps[op]);
      out.push_back(std::move(i));
    }
    return out;
  }();
  return table;
}

std::string nearest_word(std::string_view word, std::span<const std::string_view> words) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;   // beyond this a suggestion misleads
  for (std::string_view candidate : words) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t change = diagonal + (word[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace assay

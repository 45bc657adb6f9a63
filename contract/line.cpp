#include "contract/line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>

#include "contract/dispatch.h"
#include "contract/f32_text.h"
#include "contract/planes.h"

namespace assay {

namespace {

// ---- words of the enums that keys take -------------------------------------------------------------------------------

using Words = std::vector<std::string_view>;

Words split(std::string_view text, char separator) {
  Words out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    std::string_view word = text.substr(at, end - at);
    while (word.starts_with(' ')) word.remove_prefix(1);
    out.push_back(word);
    at = end + 1;
  }
  return out;
}

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
const Words kFillWords = split("normal|edges|ties|every_code|outliers|wide|exact_sums|zeros|denormal|nonfinite|amax_edges|negative_zeros|literal|pack", '|');

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

enum OpBit : unsigned { kCast = 1, kQuantize = 2, kDequantize = 4, kUpdate = 8, kSwizzle = 16, kScaleChain = 32, kAll = 63 };

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

std::pair<Get, Set> flag_access(std::function<bool&(Problem&, Direction)> ref) { return words_access<bool>(split("0|1", '|'), ref); }

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
    if (n.name == name) return split(n.values, ',');
  return {};
}

// "keep, plus" as "keep|plus".
std::string_view numeric_values(std::string_view name) {
  static std::map<std::string_view, std::string, std::less<>> texts;
  return texts.try_emplace(name, join(numeric_words(name), "|")).first->second;
}

bool is_e8m0_cast(const Problem& p) { return p.as<Cast>()->to == Encoding::e8m0; }
bool small_float(Encoding e) { return e == Encoding::e2m1 || e == Encoding::e2m3 || e == Encoding::e3m2; }
bool wide_float(Encoding e) { return e == Encoding::f32 || e == Encoding::bf16 || e == Encoding::f16; }

std::vector<Key> make_keys() {
  std::vector<Key> keys;
  auto add = [&](std::string_view name, unsigned ops, std::string_view values, std::string_view summary, std::pair<Get, Set> access,
                 Get fallback, Applies applies = always, bool directional = false) {
    keys.push_back({name, ops, directional, values, summary, std::move(applies), std::move(access.first), std::move(access.second), std::move(fallback)});
  };
  const Applies fp8_current_only = format_is({FormatId::fp8_current}), fp8_delayed_only = format_is({FormatId::fp8_delayed}),
                mxfp8_only = format_is({FormatId::mxfp8}), quantized = format_is({FormatId::fp8_delayed, FormatId::fp8_current, FormatId::mxfp8});

  // Which directions exist. Set by parse_line before any other key: it creates and removes Quantizers.
  add("dir", kQuantize | kDequantize | kSwizzle, "row|col|both", "directions that are produced; both: quantize only",
      {[](const Problem& p, Direction) -> std::string { return p.row && p.col ? "both" : p.row ? "row" : "col"; },
       [](Problem& p, Direction, std::string_view text) -> MaybeError {
         static const Words words = split("row|col|both", '|');
         if (std::find(words.begin(), words.end(), text) == words.end()) return unknown("value", text, words);
         if (text != "both" && p.row && p.col && p.row->format != p.col->format)
           return Error{"dir=" + std::string(text) + " takes one format, found a pair", 0, "name the one format that is wanted"};
         if (text == "row") p.col.reset();
         if (text == "col") p.row.reset();
         return {};
       }},
      [](const Problem& p, Direction) -> std::string { return p.as<Quantize>() ? "both" : "row"; });

  add("flavour", kQuantize | kSwizzle, "assay|te", "whose kernel selection sets the Numerics that the line leaves open",
      words_access<Flavour>(split("assay|te", '|'), [](Problem& p, Direction) -> Flavour& { return p.flavour; }), constant("assay"));
  const Applies te_only = [](const Problem& p, Direction) { return p.flavour == Flavour::te; };
  add("arch", kQuantize | kSwizzle, "sm90|sm100|sm110|sm120", "architecture that flavour=te selects kernels for",
      words_access<Arch>(split("sm90|sm100|sm110|sm120", '|'), [](Problem& p, Direction) -> Arch& { return p.arch; }), constant("sm100"), te_only);
  add("dispatch", kQuantize, "auto|generic|specialised", "flavour=te: force one family of kernels",
      words_access<Dispatch>(split("auto|generic|specialised", '|'), [](Problem& p, Direction) -> Dispatch& { return p.dispatch; }), constant("auto"), te_only);

  // Op keys.
  add("round", kCast, "rne|rz|rp", "rounding: to nearest even, toward zero, up in magnitude (rp: e8m0 only)",
      words_access<Round>(split("rne|rz|rp", '|'), [](Problem& p, Direction) -> Round& { return p.as<Cast>()->round; }),
      [](const Problem& p, Direction) -> std::string { return is_e8m0_cast(p) ? "rp" : "rne"; });
  add("overflow", kCast, "sat|nosat", "beyond the largest finite value: that value, or infinity (NaN where there is none)",
      words_access<Overflow>(split("sat|nosat", '|'), [](Problem& p, Direction) -> Overflow& { return p.as<Cast>()->overflow; }),
      [](const Problem& p, Direction) -> std::string { return wide_float(p.as<Cast>()->to) ? "nosat" : "sat"; });
  add("noop", kQuantize, "none|float", "the noop flag; exactly 1 leaves every output untouched",
      optional_float_access("none", [](Problem& p, Direction) -> auto& { return p.as<Quantize>()->noop; }), constant("none"));
  add("out", kDequantize, "f32|bf16|f16", "encoding of the dequantized tensor (default: the source's)",
      words_access<Encoding>(encoding_words(), [](Problem& p, Direction) -> Encoding& { return p.as<Dequantize>()->out; }),
      [](const Problem& p, Direction) { return std::string(info(p.x.source).name); });
  add("input", kDequantize, "quantized|codes", "what is dequantized: x quantized by the reference, or arbitrary codes and scales",
      words_access<CodesFrom>(split("quantized|codes", '|'), [](Problem& p, Direction) -> CodesFrom& { return p.as<Dequantize>()->input; }), constant("quantized"));
  add("algo", kUpdate, "max|most_recent", "which amax of the history sets the scale",
      words_access<AmaxAlgo>(split("max|most_recent", '|'), [](Problem& p, Direction) -> AmaxAlgo& { return p.as<Update>()->algo; }), constant("max"));
  add("rule", kUpdate, "bulk|api|unfused", "which of TransformerEngine's three updates",
      words_access<UpdateRule>(split("bulk|api|unfused", '|'), [](Problem& p, Direction) -> UpdateRule& { return p.as<Update>()->rule; }), constant("bulk"));
  add("margin", kUpdate, "-126..126", "the scale is divided by 2^margin",
      integer_access<int>(-126, 126, [](Problem& p, Direction) -> int& { return p.as<Update>()->margin; }), constant("0"));
  add("reduction", kUpdate, "0|1", "a buffer of reduced amaxes is given",
      flag_access([](Problem& p, Direction) -> bool& { return p.as<Update>()->reduction; }), constant("0"));
  add("inverse", kSwizzle, "0|1", "from GEMM layout back to compact",
      flag_access([](Problem& p, Direction) -> bool& { return p.as<Swizzle>()->inverse; }), constant("0"));

  // Keys of a Quantizer.
  constexpr unsigned kData = kQuantize | kDequantize;
  add("element", kData | kUpdate | kScaleChain, "e4m3|e5m2", "encoding of the data",
      words_access<Encoding>(encoding_words(), [](Problem& p, Direction d) -> Encoding& { return quantizer(p, d).element; }),
      [](const Problem& p, Direction d) { return std::string(info(info(p.quantizer(d)->format).element.value_or(p.x.source)).name); }, quantized, true);
  add("block", kData | kSwizzle, "1x32|32x32", "how many elements share a scale",
      words_access<Block>(split("tensor|1x32|32x32", '|'), [](Problem& p, Direction d) -> Block& { return quantizer(p, d).block; }),
      constant("1x32"), mxfp8_only, true);
  add("pow2", kQuantize | kScaleChain, "0|1", "floor the scale to a power of two",
      flag_access([](Problem& p, Direction d) -> bool& { return quantizer(p, d).pow2; }), constant("0"), fp8_current_only, true);
  add("eps", kQuantize | kScaleChain, "float", "least amax",
      float_access([](Problem& p, Direction d) -> F32Bits& { return quantizer(p, d).eps; }), constant("0"), fp8_current_only, true);
  add("amax", kQuantize, "computed|float", "the tensor amax: computed, or given",
      optional_float_access("computed", [](Problem& p, Direction d) -> auto& { return quantizer(p, d).amax; }), constant("computed"), fp8_current_only, true);
  add("scale", kQuantize, "float", "the given scale",
      float_access([](Problem& p, Direction d) -> F32Bits& { return quantizer(p, d).scale; }), constant("1"), fp8_delayed_only, true);
  add("prior_amax", kQuantize, "float", "what the amax slot holds before",
      float_access([](Problem& p, Direction d) -> F32Bits& { return quantizer(p, d).prior_amax; }), constant("0"), fp8_delayed_only, true);
  add("scales", kData, "compact|gemm", "layout of the scale tensor",
      words_access<ScaleLayout>(split("compact|gemm", '|'), [](Problem& p, Direction d) -> ScaleLayout& { return quantizer(p, d).scales; }),
      constant("compact"), mxfp8_only, true);

  // Numerics, by default what the flavour's kernel does.
  auto numeric = [&](std::string_view name, unsigned ops, Applies applies, auto pointer) {
    using E = std::remove_reference_t<decltype(std::declval<Numerics>().*pointer)>;
    std::string_view summary;
    for (const NumericInfo& n : kNumerics)
      if (n.name == name) summary = n.summary;
    const Words words = numeric_words(name);
    add(name, ops, numeric_values(name), summary,
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
  numeric("neg_zero", kQuantize, quantized, &Numerics::neg_zero);
  numeric("nan_amax", kQuantize, mxfp8_only, &Numerics::nan_amax);
  numeric("inf_amax", kQuantize | kScaleChain, fp8_current_only, &Numerics::inf_amax);
  numeric("scale_limit", kQuantize, fp8_current_only, &Numerics::scale_limit);
  numeric("swizzle_extent", kSwizzle, mxfp8_only, &Numerics::swizzle_extent);

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
         const Words parts = split(text, ',');
         const auto row = parts.size() == 2 ? integer<int64_t>(parts[0]) : std::nullopt;
         const auto col = parts.size() == 2 ? integer<int64_t>(parts[1]) : std::nullopt;
         if (!row || !col || *row < 0 || *col < 0 || *row > kMaxElements || *col > kMaxElements)
           return Error{"expected at=<row>,<col> with integers of 0 and up, found '" + std::string(text) + "'", 0, ""};
         p.x.fill.at_row = *row;
         p.x.fill.at_col = *col;
         return {};
       }},
      constant("0,0"));
  return keys;
}

const std::vector<Key>& keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

const Key* key_named(std::string_view name) {
  for (const Key& k : keys())
    if (k.name == name) return &k;
  return nullptr;
}

unsigned op_bit(const Problem& p) { return 1u << p.op.index(); }

// Where key k holds a value in p: a bare key once (as Direction::row), a directional key once per Quantizer.
std::vector<Direction> places(const Key& k, const Problem& p) {
  std::vector<Direction> out;
  if (!(k.ops & op_bit(p))) return out;
  if (!k.directional) {
    if (k.applies(p, Direction::row)) out.push_back(Direction::row);
    return out;
  }
  for (Direction d : kDirections)
    if (p.quantizer(d) && k.applies(p, d)) out.push_back(d);
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
    default: p.op = ScaleChain{}; break;
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
  const Words parts = split(word, '/');
  if (parts.size() > 2 || (parts.size() == 2 && !p.as<Quantize>()))
    return Error{std::string(op_name(p)) + " takes one format, found '" + std::string(word) + "'", 0, ""};
  std::array<FormatId, 2> formats{};
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view name = parts[std::min(i, parts.size() - 1)];
    const auto format = format_named(name);
    if (!format) return unknown("format", name, format_words());
    formats[i] = *format;
  }
  p.row.emplace().format = formats[0];
  if (p.as<Quantize>() || p.as<Dequantize>() || p.as<Swizzle>()) p.col.emplace().format = formats[1];   // `dir` removes what is not wanted
  return {};
}

MaybeError read_shape(std::string_view word, Problem& p) {
  const Words parts = split(word, 'x');
  const auto rows = parts.size() == 2 ? integer<int64_t>(parts[0]) : std::nullopt;
  const auto cols = parts.size() == 2 ? integer<int64_t>(parts[1]) : std::nullopt;
  if (!rows || !cols || *rows < 0 || *cols < 0)
    return Error{"expected a shape <rows>x<cols>, found '" + std::string(word) + "'", 0, "for example 64x256"};
  if (*rows > kMaxElements || *cols > kMaxElements || (*cols != 0 && *rows > kMaxElements / *cols))
    return Error{"shape " + std::string(word) + " has more than 2^31 elements", 0, ""};
  p.x.shape = {*rows, *cols};
  return {};
}

MaybeError read_source(std::string_view word, Problem& p) {
  const auto source = encoding_named(word);
  if (!source) return unknown("source encoding", word, encoding_words());
  p.x.source = *source;
  return {};
}

std::string print(const Problem& p, bool canonical) {
  std::string out(op_name(p));
  if (const Cast* cast = p.as<Cast>()) {
    out += " " + std::string(info(cast->to).name);
  } else {
    const Quantizer& first = p.row ? *p.row : *p.col;
    out += " " + std::string(info(first.format).name);
    if (p.row && p.col && p.row->format != p.col->format) out += "/" + std::string(info(p.col->format).name);
  }
  out += " " + std::to_string(p.x.shape.rows) + "x" + std::to_string(p.x.shape.cols) + " " + std::string(info(p.x.source).name);
  const bool both = p.row && p.col;
  for (const Key& k : keys()) {
    const auto where = places(k, p);
    std::vector<std::string> values;
    bool differs = false;
    for (Direction d : where) {
      values.push_back(k.get(p, d));
      differs |= values.back() != k.fallback(p, d);
    }
    if (where.empty() || !(differs || canonical)) continue;
    const bool one_word = !k.directional || !both || (where.size() == 2 && values[0] == values[1]);
    if (one_word) {
      out += " " + std::string(k.name) + "=" + values[0];
      continue;
    }
    for (size_t i = 0; i < where.size(); ++i)
      if (canonical || values[i] != k.fallback(p, where[i])) out += " " + std::string(name_of(where[i])) + "." + std::string(k.name) + "=" + values[i];
  }
  return out;
}

}  // namespace

// ---- parse -----------------------------------------------------------------------------------------------------------

Result<Problem> parse_line(std::string_view text) {
  Problem p;
  const std::vector<Token> tokens = tokens_of(text);
  using Reader = MaybeError (*)(std::string_view, Problem&);
  static constexpr std::pair<Reader, std::string_view> kPositional[] = {
      {read_op, "an op"}, {read_format, "a format"}, {read_shape, "a shape <rows>x<cols>"}, {read_source, "a source encoding"}};
  size_t next = 0;
  for (const auto& [read, what] : kPositional) {
    if (next == tokens.size() || tokens[next].text.find('=') != std::string_view::npos)
      return Error{"expected " + std::string(what) + (next == tokens.size() ? ", found the end of the line" : ", found '" + std::string(tokens[next].text) + "'"),
                   next == tokens.size() ? text.size() + 1 : tokens[next].column, "a line is <op> <format> <rows>x<cols> <source> key=value ..."};
    if (auto error = read(tokens[next].text, p)) return at_column(*error, tokens[next].column);
    ++next;
  }

  // key=value, in any order; row.key= and col.key= for one direction
  struct Given {
    std::string_view value;
    size_t key_column, value_column;
  };
  std::map<std::pair<const Key*, int>, Given> given;   // int: -1 bare, else the direction
  static const Words key_words = [] { Words w; for (const Key& k : keys()) w.push_back(k.name); return w; }();
  for (; next < tokens.size(); ++next) {
    const Token& t = tokens[next];
    const size_t equals = t.text.find('=');
    if (equals == std::string_view::npos) return Error{"expected key=value, found '" + std::string(t.text) + "'", t.column, ""};
    std::string_view name = t.text.substr(0, equals);
    int direction = -1;
    for (Direction d : kDirections) {
      const std::string prefix = std::string(name_of(d)) + ".";
      if (name.starts_with(prefix)) {
        direction = static_cast<int>(d);
        name.remove_prefix(prefix.size());
        break;
      }
    }
    const Key* key = key_named(name);
    if (!key) return at_column(unknown("key", name, key_words), t.column);
    if (direction >= 0 && !key->directional) return Error{"'" + std::string(name) + "' is not a key of one direction", t.column, "write it without row. or col."};
    if (!given.try_emplace({key, direction}, Given{t.text.substr(equals + 1), t.column, t.column + equals + 1}).second)
      return Error{"key '" + std::string(t.text.substr(0, equals)) + "' is given twice", t.column, ""};
  }

  for (const Key& k : keys()) {
    const auto bare = given.find({&k, -1});
    const auto where = places(k, p);
    for (Direction d : where) {
      const auto own = k.directional ? given.find({&k, static_cast<int>(d)}) : given.end();
      const auto source = own != given.end() ? own : bare;
      const std::string fallback = source == given.end() ? k.fallback(p, d) : std::string{};
      if (auto error = k.set(p, d, source == given.end() ? std::string_view(fallback) : source->second.value))
        return at_column(Error{std::string(k.name) + ": " + error->message, 0, error->hint}, source == given.end() ? 0 : source->second.value_column);
    }
    for (int d : {-1, 0, 1}) {
      const auto it = given.find({&k, d});
      if (it == given.end()) continue;
      const bool used = d < 0 ? !where.empty() : std::find(where.begin(), where.end(), static_cast<Direction>(d)) != where.end();
      if (!used) {
        std::string applying;
        for (const Key& other : keys())
          if (other.ops & op_bit(p)) applying += (applying.empty() ? "" : ", ") + std::string(other.name);
        return Error{"key '" + (d < 0 ? "" : std::string(name_of(static_cast<Direction>(d))) + ".") + std::string(k.name) + "' does not apply here",
                     it->second.key_column, "keys of " + std::string(op_name(p)) + ": " + applying};
      }
    }
  }
  for (Direction d : kDirections)   // identity data keep the source's encoding, and a block that no key set is the format's
    if (p.quantizer(d)) {
      Quantizer& q = *p.quantizer(d);
      if (!info(q.format).element) q.element = p.x.source;
      if (q.format != FormatId::mxfp8) q.block = info(q.format).block;
      else if (p.as<Update>() || p.as<ScaleChain>()) q.block = info(q.format).block;
      if (p.as<Swizzle>()) q.element = *info(q.format).element;
    }
  if (auto error = validate(p)) return *error;
  return p;
}

std::optional<Error> validate(const Problem& p) {
  auto fail = [](std::string message, std::string hint = "") { return Error{std::move(message), 0, std::move(hint)}; };
  const Encoding source = p.x.source;
  const Shape s = p.x.shape;
  if (s.rows < 0 || s.cols < 0 || s.rows > kMaxElements || s.cols > kMaxElements || (s.cols != 0 && s.rows > kMaxElements / s.cols))
    return fail("the shape must have sizes of 0 and up and at most 2^31 elements");
  if (const Cast* c = p.as<Cast>()) {
    if (source == c->to) return fail("cast from " + std::string(info(source).name) + " to itself", "name another target");
    if (!wide_float(source) && !wide_float(c->to)) return fail("cast from a code decodes to f32, bf16 or f16, found " + std::string(info(c->to).name));
    if ((c->round == Round::rp) && c->to != Encoding::e8m0) return fail("round=rp is for e8m0 only");
    if (c->round == Round::rne && c->to == Encoding::e8m0) return fail("a cast to e8m0 takes round=rp or round=rz");
    if (small_float(c->to) && c->overflow == Overflow::nosat) return fail(std::string(info(c->to).name) + " always saturates (N2.3)", "overflow=sat");
    if (wide_float(c->to) && c->overflow == Overflow::sat) return fail(std::string(info(c->to).name) + " overflows to infinity (N2.3)", "overflow=nosat");
    if (p.row || p.col) return fail("cast has no quantizer");
    return {};
  }
  if (!p.row && !p.col) return fail("a " + std::string(op_name(p)) + " needs a quantizer in at least one direction");
  if ((p.as<Dequantize>() || p.as<Swizzle>()) && p.row && p.col) return fail(std::string(op_name(p)) + " works in one direction", "dir=row or dir=col");
  if ((p.as<Update>() || p.as<ScaleChain>()) && (!p.row || p.col)) return fail(std::string(op_name(p)) + " has no directions");
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const Quantizer& q = *p.quantizer(d);
    const FormatInfo& f = info(q.format);
    const bool fp8 = q.element == Encoding::e4m3 || q.element == Encoding::e5m2;
    if (f.element ? !fp8 : q.element != source) return fail(std::string(f.name) + " data cannot be " + std::string(info(q.element).name), "element=e4m3 or element=e5m2");
    const bool block_fits = q.format == FormatId::mxfp8 ? q.block != Block::tensor : q.block == Block::tensor;
    if (!block_fits) return fail("block does not fit " + std::string(f.name), "allowed: " + std::string(f.blocks));
    if (p.as<Quantize>() || p.as<Dequantize>()) {
      if (!wide_float(source)) return fail("source must be f32, bf16 or f16, found " + std::string(info(source).name));
    }
    if (p.as<Dequantize>() && !wide_float(p.as<Dequantize>()->out)) return fail("out must be f32, bf16 or f16");
    if (p.as<Dequantize>() && q.format == FormatId::identity && p.as<Dequantize>()->out != source) return fail("identity dequantizes to its own encoding");
    if (p.as<Update>()) {
      if (q.format != FormatId::fp8_delayed) return fail("update is for fp8_delayed, found " + std::string(f.name));
      if (source != Encoding::f32) return fail("an amax history is f32, found " + std::string(info(source).name));
      if (s.rows < 1) return fail("an amax history has at least 1 row");
    }
    if (p.as<Swizzle>()) {
      if (q.format != FormatId::mxfp8) return fail("swizzle permutes E8M0 scales; " + std::string(f.name) + " has none", "swizzle mxfp8 ...");
      if (source != Encoding::e8m0) return fail("swizzle moves e8m0 scales, found source " + std::string(info(source).name), "swizzle mxfp8 64x256 e8m0");
    }
    if (p.as<ScaleChain>()) {
      const bool codes = source == Encoding::e8m0 && q.format == FormatId::mxfp8;
      if (q.format != FormatId::fp8_current && q.format != FormatId::mxfp8) return fail("scale_chain is for fp8_current and mxfp8, found " + std::string(f.name));
      if (source != Encoding::f32 && !codes) return fail("scale_chain takes f32 amaxes" + std::string(q.format == FormatId::mxfp8 ? " or e8m0 codes" : ""));
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
      for (std::string_view word : split(body, ',')) choices.emplace_back(word);
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
        if (k.ops >> op & 1) i.ops.push_back(kOps[op]);
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

#include "contract/line/positional.h"

#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "contract/line/error.h"
#include "contract/words.h"

namespace assay::line {

namespace {

constexpr std::string_view kAuto = "auto";  // the format of a line with factory=
constexpr const char* kForm = "a line is <op> <format> <rows>x<cols> <source> key=value ...";
constexpr const char* kGemmForm = "a line is gemm a=<format> b=<format> <M>x<N>x<K> [<source>] key=value ...";

using Op = decltype(Problem::op);
static_assert(std::size(kOps) == std::variant_size_v<Op>);

// The op at a position of kOps.
template <size_t... Positions> void set_op(Problem& p, size_t position, std::index_sequence<Positions...>) {
  ((position == Positions ? void(p.op.emplace<Positions>()) : void()), ...);
}

MaybeError read_op(std::string_view word, Problem& p) {
  for (size_t i = 0; i < std::size(kOps); ++i)
    if (kOps[i] == word) return set_op(p, i, std::make_index_sequence<std::size(kOps)>()), MaybeError{};
  return unknown("op", word, kOps);
}

// The formats of both directions: "mxfp8", or a pair "mxfp8/nvfp4".
Result<std::array<FormatId, 2>> formats_of(std::string_view word, const Problem& p) {
  const Words parts = words_of(word, '/');
  if (parts.size() > 2 || (parts.size() == 2 && !p.as<Quantize>() && !p.as<Split>() && !p.as<Attention>()))
    return error_at(0, concat({op_name(p), " takes one format, found '", word, "'"}));
  std::array<FormatId, 2> formats{};
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view name = i == 0 ? parts.front() : parts.back();
    const auto format = format_named(name);
    if (!format && name == kAuto)
      return error_at(0, "'auto' is the format of a line with factory=",
                      "quantize auto 64x256 bf16 role=linear/input factory=mxfp8_factory");
    if (!format) return unknown("format", name, names_of(kFormats));
    formats[i] = *format;
  }
  return formats;
}

// Where an op names an encoding instead of a format; null elsewhere.
Encoding* encoding_of(Problem& p) {
  if (Cast* cast = p.as<Cast>()) return &cast->to;
  if (Adam* adam = p.as<Adam>()) return &adam->parameter;
  if (ScaleState* state = p.as<ScaleState>()) return &state->to;
  return nullptr;
}

// An attention's formats: of all slots, or "fp8_current/fp8_delayed": of Q, K, V, O and their gradients, and
// of S and dP. Formats with blocks leave S and dP as they are (N20.9).
MaybeError read_slots(const std::array<FormatId, 2>& formats, bool pair, Attention& a) {
  for (AttentionSlot slot : kAttentionSlots) {
    const bool inner = slot == AttentionSlot::s || slot == AttentionSlot::dp;
    a.slot(slot).format = !inner                          ? formats[0]
                          : pair                          ? formats[1]
                          : info(formats[0]).has_blocks() ? FormatId::identity
                                                          : formats[0];
  }
  return {};
}

MaybeError read_format(std::string_view word, Problem& p) {
  if (Encoding* named = encoding_of(p)) {
    const auto to = encoding_named(word);
    if (!to && !word.empty() && word.front() >= '0' && word.front() <= '9')  // a size
      return fail(concat({"an encoding comes before the size, found '", word, "'"}),
                  p.as<Cast>()   ? "cast e4m3 64x256 f32"
                  : p.as<Adam>() ? "adam f32 64x256 bf16"
                                 : "scale_state f16 64x256 f32");
    if (!to) return unknown("encoding", word, names_of(kEncodings));
    *named = *to;
    return {};
  }
  if (p.as<Philox>()) {
    if (word != info(Encoding::u32).name)
      return fail(concat({"philox makes u32, found '", word, "'"}), "philox u32 8x4 u32");
    return {};
  }
  const Result<std::array<FormatId, 2>> formats = formats_of(word, p);
  if (!formats) return formats.error();
  if (p.as<Hadamard>()) {  // of columns alone (N11.2)
    p.col.emplace().format = (*formats)[0];
    p.col->rht = true;
    return {};
  }
  if (Attention* a = p.as<Attention>()) return read_slots(*formats, words_of(word, '/').size() == 2, *a);
  p.row.emplace().format = (*formats)[0];
  if (p.as<Quantize>() || p.as<Dequantize>() || p.as<Swizzle>() || p.as<Split>())
    p.col.emplace().format = (*formats)[1];  // `dir` removes what is not wanted
  return {};
}

MaybeError read_shape(std::string_view word, Problem& p) {
  const std::vector<int64_t> n = integers_of(word, 'x', std::numeric_limits<int64_t>::max());
  if (n.size() != 2)
    return fail(concat({"expected a shape <rows>x<cols>, found '", word, "'"}), "for example 64x256");
  if (n[0] > kMaxElements || n[1] > kMaxElements || (n[1] != 0 && n[0] > kMaxElements / n[1]))
    return fail(concat({"shape ", word, " has more than 2^31 elements"}));
  p.x.shape = {n[0], n[1]};
  return {};
}

MaybeError read_source(std::string_view word, Problem& p) {
  const auto source = encoding_named(word);
  if (!source) return unknown("source encoding", word, names_of(kEncodings));
  p.x.source = *source;
  return {};
}

// "a=mxfp8", and the same of b.
template <Side side> MaybeError read_operand(std::string_view word, Problem& p) {
  const std::string prefix = concat({name_of(side), "="});
  if (!word.starts_with(prefix))
    return fail(concat({"expected the format of an operand, ", prefix, "<format>, found '", word, "'"}),
                kGemmForm);
  const auto format = format_named(word.substr(prefix.size()));
  if (!format) return unknown("format", word.substr(prefix.size()), names_of(kFormats));
  p.as<Gemm>()->operand(side).quantizer.format = *format;
  return {};
}

MaybeError read_sizes(std::string_view word, Problem& p) {
  const std::vector<int64_t> n = integers_of(word, 'x', kMaxElements);
  if (n.size() != 3)
    return fail(concat({"expected sizes <M>x<N>x<K>, found '", word, "'"}), "for example 256x512x384");
  p.x.shape = {n[1], n[0]};
  p.as<Gemm>()->k = n[2];
  return {};
}

struct Positional {
  MaybeError (*read)(std::string_view, Problem&);
  std::string_view what;
  bool has_equals = false;
};
constexpr Positional kOp[] = {{read_op, "an op"}};
constexpr Positional kQuantizers[] = {
    {read_format, "a format"}, {read_shape, "a shape <rows>x<cols>"}, {read_source, "a source encoding"}};
constexpr Positional kOperands[] = {{read_operand<Side::a>, "a=<format>", true},
                                    {read_operand<Side::b>, "b=<format>", true},
                                    {read_sizes, "sizes <M>x<N>x<K>"}};

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
      continue;
    }
    const std::string_view word = text.substr(at, text.substr(at).find_first_of(" \t"));
    out.push_back({word, at + 1});
    at += word.size();
  }
  return out;
}

Result<size_t> read_positional(const std::vector<Token>& tokens, size_t end, Problem& p) {
  size_t next = 0;
  const auto take = [&](std::span<const Positional> words) -> MaybeError {
    for (const Positional& word : words) {
      const bool ended = next == tokens.size();
      const Token t = ended ? Token{"", end} : tokens[next];
      if (ended || (!word.has_equals && t.text.find('=') != std::string_view::npos)) {
        const std::string found = ended ? "the end of the line" : concat({"'", t.text, "'"});
        return error_at(t.column, concat({"expected ", word.what, ", found ", found}),
                        p.as<Gemm>() ? kGemmForm : kForm);
      }
      if (auto error = word.read(t.text, p)) return error_at(t.column, error->message, error->hint);
      ++next;
    }
    return {};
  };
  if (auto error = take(kOp)) return *error;
  if (auto error = p.as<Gemm>() ? take(kOperands) : take(kQuantizers)) return *error;
  return next;
}

}  // namespace assay::line

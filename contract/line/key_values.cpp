#include "contract/line/key_values.h"

#include <optional>
#include <vector>

#include "contract/choices.h"
#include "contract/f32_text.h"
#include "contract/flavours.h"
#include "contract/words.h"

namespace assay::line {

namespace {

std::string optional_f32_text(const std::optional<F32Bits>& value, std::string_view absent) {
  return value ? f32_text(*value) : std::string(absent);
}
MaybeError read_optional_f32(std::optional<F32Bits>& value, std::string_view absent, std::string_view text) {
  if (text == absent) return value.reset(), MaybeError{};
  const Result<F32Bits> bits = parse_f32(text);
  if (!bits) return bits.error();
  value = *bits;
  return {};
}

// One member's size in groups=: both sides where both vary, else the side that varies.
std::string member_text(Shape member, Vary vary) {
  const std::string rows = std::to_string(member.rows), cols = std::to_string(member.cols);
  return vary == Vary::both ? concat({rows, "x", cols}) : vary == Vary::last ? cols : rows;
}

std::string mask_text(uint16_t mask) { return concat({"0x", upper(hex(mask, 4))}); }

// What stands behind the colon of a fill that takes data; empty for the others.
std::string_view data_of(FillKind kind) {
  return kind == FillKind::literal ? "<hex>" : kind == FillKind::pack ? "<file>#<tensor>@<sha256>" : "";
}

}  // namespace

std::string get_dir(const Problem& p, Direction) { return p.row && p.col ? "both" : p.row ? "row" : "col"; }

MaybeError set_dir(Problem& p, Direction, std::string_view text) {
  const Words words = words_of(kDirValues, '|');
  if (!contains(words, text)) return unknown("value", text, words);
  if (text != "both" && p.row && p.col && p.row->format != p.col->format)
    return fail(concat({"dir=", text, " takes one format, found a pair"}),
                "name the one format that is wanted");
  if (text == "row") p.col.reset();
  if (text == "col") p.row.reset();
  return {};
}

std::string default_dir(const Problem& p, Direction) {
  return p.as<Quantize>() || p.as<Split>() ? "both" : "row";
}

std::string get_flavour(const Problem& p, Direction) {
  const FlavourInfo* row = info(p.flavour);
  return row ? std::string(row->name) : p.flavour == Flavour::te ? "te" : "assay";
}

MaybeError set_flavour(Problem& p, Direction, std::string_view text) {
  if (text == "assay" || text == "te")
    return p.flavour = text == "te" ? Flavour::te : Flavour::assay, MaybeError{};
  for (const FlavourInfo& row : flavours())
    if (row.name == text) return p.flavour = row.flavour, MaybeError{};
  for (const FlavourName& other : flavour_names())
    if (other.name == text) return p.flavour = other.flavour, MaybeError{};
  Words words = names_of(flavours());
  words.insert(words.begin(), {"assay", "te"});
  return unknown("value", text, words);
}

std::string get_groups(const Problem& p, Direction) {
  const Split& s = *p.as<Split>();
  std::string out;
  for (Shape m : s.members) out += concat({out.empty() ? "" : ",", member_text(m, s.vary)});
  return out;
}

MaybeError set_groups(Problem& p, Direction, std::string_view text) {
  Split& s = *p.as<Split>();
  s.members.clear();
  for (std::string_view word : words_of(text, ',')) {
    const std::vector<int64_t> n = integers_of(word, 'x', kMaxElements);
    if (n.size() != (s.vary == Vary::both ? 2u : 1u))
      return fail(concat({"expected sizes of members, found '", text, "'"}),
                  s.vary == Vary::both ? "groups=32x64,16x128" : "groups=32,0,64");
    s.members.push_back(s.vary == Vary::both   ? Shape{n[0], n[1]}
                        : s.vary == Vary::last ? Shape{p.x.shape.rows, n[0]}
                                               : Shape{n[0], p.x.shape.cols});
  }
  return {};
}

std::string default_groups(const Problem& p, Direction) {
  return member_text(p.x.shape, p.as<Split>()->vary);
}

std::string get_noop(const Problem& p, Direction) { return optional_f32_text(noop_of(p), kNoNoop); }
MaybeError set_noop(Problem& p, Direction, std::string_view text) {
  return read_optional_f32(p.as<Split>() ? p.as<Split>()->noop : p.as<Quantize>()->noop, kNoNoop, text);
}

std::string get_amax(const Problem& p, Direction d) {
  return optional_f32_text(p.quantizer(d)->amax, kComputed);
}
MaybeError set_amax(Problem& p, Direction d, std::string_view text) {
  return read_optional_f32(p.quantizer(d)->amax, kComputed, text);
}

std::string get_bias(const Problem& p, Direction) {
  const std::optional<Encoding>& bias = p.as<Gemm>()->bias;
  return bias ? std::string(info(*bias).name) : "none";
}

MaybeError set_bias(Problem& p, Direction, std::string_view text) {
  const std::optional<Encoding> encoding = encoding_named(text);
  if (!encoding && text != "none") return unknown("value", text, words_of(kBiasValues, '|'));
  p.as<Gemm>()->bias = encoding;
  return {};
}

std::string block_values() {
  Words words = words_of(kWords<Block>, ',');
  std::erase(words, word_of(Block::tensor));  // the formats that have it have no other
  return join(words, "|");
}

std::string get_block(const Problem& p, Direction d) { return std::string(word_of(p.quantizer(d)->block)); }

MaybeError set_block(Problem& p, Direction d, std::string_view text) {
  Quantizer& q = *p.quantizer(d);
  const Words words = words_of(info(q.format).blocks, '|');
  if (!contains(words, text)) return unknown("block", text, words);
  q.block = static_cast<Block>(*index_of_word(kWords<Block>, text));
  return {};
}

std::string default_block(const Problem& p, Direction d) {
  return std::string(word_of(info(p.quantizer(d)->format).block));
}

MaybeError set_round(Problem& p, Direction d, std::string_view text) {
  const Words words = words_of(kRoundValues, '|');
  if (!contains(words, text)) return unknown("value", text, words);
  p.quantizer(d)->round = static_cast<Round>(*index_of_word(kWords<Round>, text));
  return {};
}

std::string get_sign_mask(const Problem& p, Direction d) { return mask_text(p.quantizer(d)->sign_mask); }

MaybeError set_sign_mask(Problem& p, Direction d, std::string_view text) {
  const bool prefixed = text.starts_with("0x") || text.starts_with("0X");
  const auto value = parse_integer<uint16_t>(prefixed ? text.substr(2) : text, prefixed ? 16 : 10);
  if (!value) return fail(concat({"expected 16 bits, found '", text, "'"}), "for example 0xD7E8");
  p.quantizer(d)->sign_mask = *value;
  return {};
}

std::string default_sign_mask(const Problem&, Direction) { return mask_text(kRhtSignMask); }

std::string fill_values() {
  std::string out;
  for (size_t i = 0; i < count_words(kWords<FillKind>); ++i) {
    const FillKind kind = static_cast<FillKind>(i);
    out += concat({i == 0 ? "" : "|", word_of(kind), data_of(kind).empty() ? "" : ":", data_of(kind)});
  }
  return out;
}

std::string get_fill(const Problem& p, Direction) {
  const Fill& f = p.x.fill;
  const std::string_view word = word_of(f.kind);
  return data_of(f.kind).empty() ? std::string(word) : concat({word, ":", f.payload});
}

MaybeError set_fill(Problem& p, Direction, std::string_view text) {
  const std::string_view word = text.substr(0, text.find(':'));
  const auto index = index_of_word(kWords<FillKind>, word);
  if (!index) return unknown("fill", word, words_of(kWords<FillKind>, ','));
  const FillKind kind = static_cast<FillKind>(*index);
  const bool takes_data = !data_of(kind).empty(), has_data = word.size() < text.size();
  if (takes_data && (!has_data || word.size() + 1 == text.size()))
    return fail(
        concat({"fill=", word, " needs data after a colon"}),
        kind == FillKind::literal ? "fill=literal:3f80bf80" : concat({"fill=", word, ":", data_of(kind)}));
  if (!takes_data && has_data)
    return fail(
        concat({"fill=", word, " takes no data, found '", text, "'; the key seed draws other values"}),
        concat({"fill=", word, " seed=2"}));
  p.x.fill.kind = kind;
  p.x.fill.payload = has_data ? std::string(text.substr(word.size() + 1)) : std::string{};
  return {};
}

std::string get_at(const Problem& p, Direction) {
  return concat({std::to_string(p.x.fill.at_row), ",", std::to_string(p.x.fill.at_col)});
}

MaybeError set_at(Problem& p, Direction, std::string_view text) {
  const std::vector<int64_t> n = integers_of(text, ',', kMaxElements);
  if (n.size() != 2)
    return fail(concat({"expected at=<row>,<col> with integers of 0 and up, found '", text, "'"}));
  p.x.fill.at_row = n[0];
  p.x.fill.at_col = n[1];
  return {};
}

std::string get_rng(const Problem& p, Direction) {
  return concat(
      {std::to_string(p.rng.seed), ",", std::to_string(p.rng.offset), ",", std::to_string(p.rng.member)});
}

MaybeError set_rng(Problem& p, Direction, std::string_view text) {
  const Words parts = words_of(text, ',');
  const auto seed = parts.size() == 3 ? parse_integer<uint64_t>(parts[0]) : std::nullopt;
  const auto offset = parts.size() == 3 ? parse_integer<uint64_t>(parts[1]) : std::nullopt;
  const auto member = parts.size() == 3 ? parse_integer<uint32_t>(parts[2]) : std::nullopt;
  if (!seed || !offset || !member)
    return fail(concat({"expected rng=<seed>,<offset>,<member>, found '", text, "'"}),
                "for example rng=7,0,0");
  p.rng = {*seed, *offset, *member};
  return {};
}

std::string default_rng(const Problem& p, Direction) {
  const Fill& fill = p.as<Gemm>() ? p.as<Gemm>()->a.fill : p.x.fill;
  return concat({std::to_string(fill.seed), ",0,0"});
}

}  // namespace assay::line

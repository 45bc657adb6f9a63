// to_line, to_canonical_line and key_values.
#include <string>
#include <vector>

#include "contract/line.h"
#include "contract/line/key.h"
#include "contract/line/places.h"
#include "contract/words.h"

namespace assay {

namespace {

using namespace line;

// Whether the source encoding is a word of the line: of a gemm where both operands have one.
bool one_source(const Problem& p) {
  return !p.as<Gemm>() || p.as<Gemm>()->a.source == p.as<Gemm>()->b.source;
}

std::string positional_words(const Problem& p, bool canonical) {
  std::string out(op_name(p));
  const std::string rows = std::to_string(p.x.shape.rows), cols = std::to_string(p.x.shape.cols);
  if (const Gemm* gemm = p.as<Gemm>()) {
    for (Side side : kSides)
      out += concat({" ", name_of(side), "=", info(gemm->operand(side).quantizer.format).name});
    out += concat({" ", cols, "x", rows, "x", std::to_string(gemm->k)});
    if (one_source(p) && (canonical || gemm->a.source != Encoding::bf16))
      out += concat({" ", info(gemm->a.source).name});
    return out;
  }
  if (const Cast* cast = p.as<Cast>()) {
    out += concat({" ", info(cast->to).name});
  } else if (p.as<Philox>()) {
    out += " u32";
  } else if (const Adam* adam = p.as<Adam>()) {
    out += concat({" ", info(adam->parameter).name});
  } else if (const ScaleState* state = p.as<ScaleState>()) {
    out += concat({" ", info(state->to).name});
  } else if (const Attention* attention = p.as<Attention>()) {
    const FormatId outer = attention->slot(AttentionSlot::qkv).format,
                   inner = attention->slot(AttentionSlot::s).format;
    out += concat({" ", info(outer).name});
    if (inner != (info(outer).has_blocks() ? FormatId::identity : outer))
      out += concat({"/", info(inner).name});
  } else {
    out += concat({" ", info((p.row ? *p.row : *p.col).format).name});
    if (p.row && p.col && p.row->format != p.col->format) out += concat({"/", info(p.col->format).name});
  }
  return concat({out, " ", rows, "x", cols, " ", info(p.x.source).name});
}

// One key, at each of its places or once for all: " row.nan_amax=ignore col.nan_amax=propagate".
std::string key_words(const Key& k, const Problem& p, bool canonical) {
  struct Value {
    int place;
    std::string text;
    bool is_default;
  };
  std::vector<Value> values;
  bool defaults = true, alike = true;
  for (int place : places(k, p)) {
    const At at(k, p, place);
    std::string text = at.get();
    const bool is_default = text == at.fallback();
    values.push_back({place, std::move(text), is_default});
    defaults &= is_default;
    alike &= values.back().text == values[0].text;
  }
  if (values.empty() || (!canonical && defaults)) return "";
  const bool several = p.as<Gemm>() || p.as<Attention>() || (p.row && p.col);
  if (!prefixed(k, p) || !several || (values.size() >= 2 && alike))
    return concat({" ", k.name, "=", values[0].text});
  std::string out;
  for (const Value& v : values)
    if (canonical || !v.is_default)
      out += concat({" ", places_of(p)[static_cast<size_t>(v.place)], ".", k.name, "=", v.text});
  return out;
}

std::string print(const Problem& p, bool canonical) {
  std::string out = positional_words(p, canonical);
  for (const Key& k : keys())
    if (k.name != kSource || !one_source(p)) out += key_words(k, p, canonical);
  return out;
}

}  // namespace

std::vector<KeyValue> key_values(const Problem& p) {
  std::vector<KeyValue> out;
  for (const Key& k : keys())
    for (int place : places(k, p))
      out.push_back({prefixed(k, p) ? places_of(p)[static_cast<size_t>(place)] : std::string_view{}, k.name,
                     At(k, p, place).get()});
  return out;
}

std::string to_line(const Problem& p) { return print(p, false); }
std::string to_canonical_line(const Problem& p) { return print(p, true); }

}  // namespace assay

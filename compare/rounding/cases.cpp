#include "compare/rounding/cases.h"

#include <algorithm>

#include "compare/rounding/predicates.h"
#include "contract/line.h"

namespace assay::rounding {

namespace {

Case with(Case c, MomentPredicate predicate) { return c.of_moment = predicate, c; }
Case with(Case c, StepPredicate predicate) { return c.of_step = predicate, c; }
Case with(Case c, LanePredicate predicate) { return c.of_lane = predicate, c; }

// Calls f with each part of `text` between separators, until it returns false. Whether none did.
template <class F> bool each_part(std::string_view text, char separator, F f) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0 && !f(text.substr(0, end))) return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}
template <class F> bool some_part(std::string_view text, char separator, F f) {
  return !each_part(text, separator, [&](std::string_view part) { return !f(part); });
}

bool has(const Unit& unit, std::string_view word) {
  return std::find(unit.words.begin(), unit.words.end(), word) != unit.words.end();
}
// "cast:!e8m0": every word, or its absence.
bool fits(const Unit& unit, std::string_view alternative) {
  return each_part(alternative, ':', [&](std::string_view word) {
    return word.starts_with('!') ? !has(unit, word.substr(1)) : has(unit, word);
  });
}
bool fits_some(const Unit& unit, std::string_view alternatives) {
  return some_part(alternatives, ' ', [&](std::string_view a) { return fits(unit, a); });
}

void add_encoding_words(Unit& unit, Encoding e) {
  unit.words.push_back(info(e).name);
  if (info(e).bits > 8) unit.words.push_back("wide");
  if (info(e).bits < 8) unit.words.push_back("narrow");
  if (e == Encoding::e4m3 || e == Encoding::e5m2) unit.words.push_back("fp8_element");
}

Unit unit_of_format(const FormatInfo& f, Encoding element) {
  Unit unit{std::string(f.name), {f.name}};
  if (has_several(f.elements)) unit.name += " " + std::string(info(element).name);
  if (f.id == FormatId::identity) return unit;
  unit.words.push_back("quantized");
  if (f.has_blocks()) unit.words.push_back("blocks");
  if (f.family == Family::mx) unit.words.push_back("mx");
  add_encoding_words(unit, element);
  return unit;
}

Unit unit_of_target(std::string_view op, Encoding to) {
  Unit unit{std::string(op) + " " + std::string(info(to).name), {op}};
  add_encoding_words(unit, to);
  return unit;
}

std::vector<Unit> make_units() {
  std::vector<Unit> out;
  const auto encoding = [](size_t e) { return static_cast<Encoding>(e); };
  for (size_t e = 0; e < kEncodings.size(); ++e)
    if (kEncodings[e].is_float()) out.push_back(unit_of_target("cast", encoding(e)));
  for (const FormatInfo& f : kFormats) {
    if (!f.element) out.push_back(unit_of_format(f, Encoding::f32));
    for (size_t e = 0; f.element && e < kEncodings.size(); ++e)
      if (has_word(f.elements, kEncodings[e].name)) out.push_back(unit_of_format(f, encoding(e)));
  }
  for (const FormatInfo& f : kFormats)
    if (f.has_blocks()) {
      out.push_back({"swizzle " + std::string(f.name), {"swizzle"}});
      if (f.family == Family::fp8_block) out.back().words.push_back("converts");  // N9.6
      if (f.id == FormatId::mxfp8) out.back().words.push_back("partial");  // N6.6: the key swizzle_extent
    }
  for (std::string_view op : {"update", "hadamard", "philox", "gemm", "adam", "attention"})
    out.push_back({std::string(op), {op}});
  for (Encoding to : {Encoding::f16, Encoding::e4m3}) out.push_back(unit_of_target("scale_state", to));
  return out;
}

std::string unit_name(const Lane& lane) {
  const Problem& p = lane.problem;
  const std::string op(op_name(p));
  if (const Cast* c = p.as<Cast>()) return op + " " + std::string(info(c->to).name);
  if (const ScaleState* s = p.as<ScaleState>()) return op + " " + std::string(info(s->to).name);
  if (p.as<Swizzle>()) return op + " " + std::string(info(lane.quantizer().format).name);
  if (!lane.directed || p.as<Update>() || p.as<Hadamard>()) return op;
  const Quantizer& q = lane.quantizer();
  return unit_of_format(info(q.format), q.element).name;
}

}  // namespace

std::span<const Case> cases() {
  static const Case kCases[] = {
#define CASE(clause, units, step, predicate, keys, words) \
  with({clause, units, step, #predicate, keys, words}, predicates::predicate),
#include "compare/rounding/cases.def"
#undef CASE
  };
  return kCases;
}

std::span<const Unreachable> unreachable() {
  static const std::vector<Unreachable> kUnreachable = {
#define UNREACHABLE(clause, predicate, units, keys, why) {clause, #predicate, units, keys, why},
#define WITHOUT_CASE(...)
#include "compare/rounding/unreachable.def"
#undef WITHOUT_CASE
#undef UNREACHABLE
  };
  return kUnreachable;
}

std::span<const WithoutCase> clauses_without_case() {
  static const std::vector<WithoutCase> kWithout = {
#define UNREACHABLE(...)
#define WITHOUT_CASE(clause, why) {clause, why},
#include "compare/rounding/unreachable.def"
#undef WITHOUT_CASE
#undef UNREACHABLE
  };
  return kWithout;
}

std::string id(const Case& c) {
  std::string out(c.clause);
  if (!c.step.empty()) out += " " + std::string(c.step);
  out += ": " + std::string(c.name);
  if (!c.keys.empty()) out += " [" + std::string(c.keys) + "]";
  return out;
}

const std::vector<Unit>& all_units() {
  static const std::vector<Unit> kUnits = make_units();
  return kUnits;
}

const Unit& unit_of(const Lane& lane) {
  const std::string name = unit_name(lane);
  const std::vector<Unit>& units = all_units();
  return *std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
}

bool applies(const Case& c, const Unit& unit) { return fits_some(unit, c.units); }

const Unreachable* why_unreachable(const Case& c, const Unit& unit) {
  for (const Unreachable& u : unreachable())
    if (u.clause == c.clause && u.name == c.name && fits_some(unit, u.units) &&
        (u.keys == "*" || u.keys == c.keys))
      return &u;
  return nullptr;
}

Keys::Keys(const Lane& lane) {
  for (const KeyValue& v : key_values(lane.problem)) {
    const bool own = v.place.empty() || (lane.directed && v.place == name_of(lane.direction));
    if (v.name == "dir" || (!own && (v.place == "row" || v.place == "col"))) continue;
    values_.emplace_back(own ? std::string(v.name) : std::string(v.place) + "." + std::string(v.name),
                         v.value);
  }
  const bool split = lane.problem.as<Split>() != nullptr;
  values_.emplace_back("op", split ? "quantize" : op_name(lane.problem));
  values_.emplace_back("source", info(lane.problem.x.source).name);
  if (lane.directed) values_.emplace_back("dir", name_of(lane.direction));
}

std::string_view Keys::value(std::string_view name) const {
  for (const auto& [key, value] : values_)
    if (key == name) return value;
  return {};
}

bool Keys::meet(std::string_view wanted) const {
  return each_part(wanted, ' ', [&](std::string_view one) {
    const size_t equals = one.find('=');
    const bool not_so = one[equals - 1] == '!';
    const std::string_view found = value(one.substr(0, equals - (not_so ? 1 : 0)));
    const bool among = some_part(one.substr(equals + 1), '|', [&](std::string_view v) { return v == found; });
    return not_so ? !among : among;
  });
}

namespace {
// Keys that decide no step of an element: layouts, memory, and where Numerics come from.
constexpr std::string_view kOthers[] = {"scales",   "packing",  "flavour", "arch",
                                        "dispatch", "capacity", "noop"};
bool decides_no_step(std::string_view key) {
  return std::find(std::begin(kOthers), std::end(kOthers), key) != std::end(kOthers);
}
}  // namespace

bool decides_steps(std::string_view wanted) {
  return each_part(wanted, ' ', [](std::string_view one) {
    return !decides_no_step(one.substr(0, one.find_first_of("!=")));
  });
}

std::string Keys::of_steps(const Lane& lane) const {
  const Problem& p = lane.problem;
  // Formats and sizes of operands are no keys. Columns of the rows depend on both directions, and some
  // mappings count both (N12.4).
  if (!lane.directed || p.col_source != ColSource::original || draws(p))
    return to_canonical_line(p) + (lane.direction == Direction::row ? " row" : " col");
  std::string out =
      unit_of(lane).name + " " + std::to_string(p.x.shape.rows) + "x" + std::to_string(p.x.shape.cols);
  for (const auto& [key, value] : values_)
    if (!decides_no_step(key)) out += " " + key + "=" + value;
  return out + " " + std::string(op_name(p));
}

bool names_step(std::string_view alternatives, std::string_view what) {
  return some_part(alternatives, '|', [&](std::string_view one) {
    return one.ends_with('*') ? what.starts_with(one.substr(0, one.size() - 1)) : what == one;
  });
}

}  // namespace assay::rounding

// parse_line.
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/choices.h"
#include "contract/line.h"
#include "contract/line/error.h"
#include "contract/line/key.h"
#include "contract/line/places.h"
#include "contract/line/positional.h"
#include "contract/line/roles.h"
#include "contract/recipes.h"
#include "contract/words.h"

namespace assay {

namespace {

using namespace line;

constexpr int kBare = -1;  // the place of a key without a prefix

// The keys that a line has, by their row of the table and their place.
struct Written {
  std::map<std::pair<const Key*, int>, Given> keys;
  RoleKeys roles;
};
const Given* find(const Written& written, const Key& k, int place) {
  const auto at = written.keys.find({&k, place});
  return at == written.keys.end() ? nullptr : &at->second;
}

bool takes_roles(const Problem& p) { return p.as<Quantize>() || p.as<Split>(); }

Words all_key_names() {
  Words names = names_of(keys());
  for (const KeyInfo& k : role_keys()) names.push_back(k.name);
  return names;
}

Error given_twice(std::string_view prefixed_name, const Token& t) {
  return error_at(t.column, concat({"key '", prefixed_name, "' is given twice"}));
}

// One key=value; row.key=, col.key= or a.key=, b.key= for one place.
MaybeError read_key(const Token& t, const Problem& p, Written& written) {
  const size_t equals = t.text.find('=');
  if (equals == std::string_view::npos)
    return error_at(t.column, concat({"expected key=value, found '", t.text, "'"}));
  const std::string_view prefixed_name = t.text.substr(0, equals);
  std::string_view name = prefixed_name;
  int place = kBare;
  const std::span<const std::string_view> prefixes = places_of(p);
  for (size_t i = 0; i < prefixes.size() && place == kBare; ++i) {
    const std::string prefix = concat({prefixes[i], "."});
    if (!name.starts_with(prefix)) continue;
    place = static_cast<int>(i);
    name.remove_prefix(prefix.size());
  }
  const Given given{name, t.text.substr(equals + 1), t.column, t.column + equals + 1};
  if (contains(names_of(role_keys()), name)) {
    if (!takes_roles(p) || place != kBare)
      return error_at(t.column, concat({"key '", prefixed_name, "' does not apply here"}),
                      "it is for quantize and split, without a prefix");
    if (find(written.roles, name)) return given_twice(prefixed_name, t);
    written.roles.push_back(given);
    return {};
  }
  const Key* key = key_named(name, p);
  if (!key) {
    const Error error = unknown("key", name, all_key_names());
    return error_at(t.column, error.message, error.hint);
  }
  if (place != kBare && !prefixed(*key, p))
    return error_at(t.column,
                    concat({"'", name, "' is not a key of one ",
                            p.as<Gemm>()        ? "operand"
                            : p.as<Attention>() ? "slot"
                                                : "direction"}),
                    concat({"write it without ", join(prefixes, ". or "), "."}));
  if (!written.keys.insert({{key, place}, given}).second) return given_twice(prefixed_name, t);
  return {};
}

MaybeError read_keys(std::span<const Token> tokens, const Problem& p, Written& written) {
  const auto is_word = [](const Token& t) { return t.text.find('=') == std::string_view::npos; };
  if (p.as<Gemm>() && !tokens.empty() && is_word(tokens[0])) {  // the source of both operands
    const Token& t = tokens[0];
    written.keys.insert({{key_named(kSource, p), kBare}, {kSource, t.text, t.column, t.column}});
    tokens = tokens.subspan(1);
  }
  for (const Token& t : tokens)
    if (auto error = read_key(t, p, written)) return error;
  return {};
}

// The value of a key that the line does not have.
std::string value_not_written(const Key& k, const At& at, int place, const Problem& p,
                              const Settings& settings) {
  if (takes_roles(p)) {
    const Direction d = static_cast<Direction>(place);
    if (k.directional)
      if (const auto value = setting(settings[static_cast<size_t>(d)], k.name, d)) return std::string(*value);
    if (k.name == kDispatch && rows_of_rotating_kernel(p, settings[static_cast<size_t>(Direction::row)]))
      return std::string(word_of(Dispatch::rhtrc));
  }
  return at.fallback();
}

Error does_not_apply(const Key& k, int place, const Given& given, const Problem& p) {
  Words applying;
  for (const Key& other : keys())
    if (!places(other, p).empty()) applying.push_back(other.name);
  const std::string prefix = place == kBare ? "" : concat({places_of(p)[static_cast<size_t>(place)], "."});
  return {concat({"key '", prefix, k.name, "' does not apply here"}), given.key_column,
          concat({k.name, " is: ", k.summary, "; keys of this ", op_name(p), ": ", join(applying, ", ")})};
}

// The error of a value that no place of a key takes. Where each place has a value of its own, the one that is
// written for all must still be one.
MaybeError refused_everywhere(const Key& k, std::string_view value, const std::vector<int>& where,
                              Problem unused) {
  MaybeError first;
  for (int place : where) {
    auto error = At(k, unused, place).set(unused, std::string(value));
    if (!error) return {};
    if (!first) first = std::move(error);
  }
  return first;
}

// Gives the key its value at each of its places: what is written for the place, else what is written for all,
// else the default.
MaybeError set_key(const Key& k, const Written& written, const Settings& settings, Problem& p) {
  const Given* bare = find(written, k, kBare);
  const std::vector<int> where = places(k, p);
  const auto refused = [&](const Error& error, const Given* source) {
    return Error{concat({k.name, ": ", error.message}), source ? source->value_column : 0, error.hint};
  };
  bool bare_is_used = false;
  for (int place : where) {
    const Given* own = prefixed(k, p) ? find(written, k, place) : nullptr;
    const Given* source = own ? own : bare;
    At at(k, p, place);
    const std::string value =
        source ? std::string(source->value) : value_not_written(k, at, place, p, settings);
    if (auto error = at.set(p, value)) return refused(*error, source);
    bare_is_used |= source == bare;
  }
  if (bare && !bare_is_used)
    if (auto error = refused_everywhere(k, bare->value, where, p)) return refused(*error, bare);
  for (auto w = written.keys.lower_bound({&k, kBare}); w != written.keys.end() && w->first.first == &k; ++w) {
    const int place = w->first.second;
    const bool used =
        place == kBare ? !where.empty() : std::find(where.begin(), where.end(), place) != where.end();
    if (!used) return does_not_apply(k, place, w->second, p);
  }
  return {};
}

// Identity data keep the source's encoding, and a block that no key set is the format's.
void settle(Quantizer& q, Encoding source, int place, const Problem& p) {
  const auto is_set = [&](std::string_view name) { return applies_at(*key_named(name, p), p, place); };
  if (!is_set("element")) q.element = info(q.format).element.value_or(source);
  if (!is_set("block")) q.block = info(q.format).block;
}

}  // namespace

Result<Problem> parse_line(std::string_view text) {
  Problem p;
  const std::vector<Token> tokens = tokens_of(text);
  const Result<size_t> first_key = read_positional(tokens, text.size() + 1, p);
  if (!first_key) return first_key.error();
  Written written;
  if (auto error = read_keys(std::span(tokens).subspan(*first_key), p, written)) return *error;
  const Result<Settings> settings = role_settings(p, written.roles);
  if (!settings) return settings.error();
  for (const Key& k : keys())
    if (auto error = set_key(k, written, *settings, p)) return *error;
  for (Direction d : kDirections)
    if (p.quantizer(d)) settle(*p.quantizer(d), p.x.source, static_cast<int>(d), p);
  if (Gemm* g = p.as<Gemm>())
    for (Side side : kSides)
      settle(g->operand(side).quantizer, g->operand(side).source, static_cast<int>(side), p);
  if (Attention* a = p.as<Attention>())
    for (AttentionSlot slot : kAttentionSlots) settle(a->slot(slot), p.x.source, static_cast<int>(slot), p);
  if (auto error = validate(p)) return *error;
  return p;
}

}  // namespace assay

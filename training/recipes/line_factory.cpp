#include "training/recipes/line_factory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "contract/line.h"
#include "contract/words.h"
#include "training/formats/hybrid.h"
#include "training/formats/identity.h"
#include "training/recipes/factories.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr string_view kForm = "quantize auto 64x256 bf16 role=linear/input factory=mxfp8_factory";
constexpr size_t kHead = 4;  // op, format, shape, source

struct Word {
  string_view text;
  size_t column;  // 1-based
  string_view key() const { return text.substr(0, text.find('=')); }
  string_view value() const {
    return text.find('=') == text.npos ? string_view{} : text.substr(text.find('=') + 1);
  }
  size_t value_column() const { return column + key().size() + 1; }
};

std::vector<Word> words_of(string_view text) {
  std::vector<Word> out;
  for (size_t at = text.find_first_not_of(" \t"); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(" \t", at), text.size());
    out.push_back({text.substr(at, end - at), at + 1});
    at = text.find_first_not_of(" \t", end);
  }
  return out;
}

// What a factory is asked with. Not only the tensors of contract/roles.def: a boundary has whatever its
// consumer says, a user's producer says what it likes, and every factory has an answer for them.
Result<RolePtr> role_of(string_view text) {
  if (text == "none") return RolePtr();
  const Words parts = assay::words_of(text, '/');
  if (parts.size() < 2)
    return Error{"expected a role <module>/<tensor>[/<name>] or none, found '" + string(text) + "'", 0,
                 "role=linear/input"};
  const string_view name =
      parts.size() == 2 ? string_view{} : text.substr(parts[0].size() + parts[1].size() + 2);
  return std::make_shared<const QuantizerRole>(
      QuantizerRole{string(parts[0]), string(parts[1]), string(name)});
}

// The quantizer of each direction, and what the columns are made from. Throws SemanticError as
// HybridQuantizer's construction does.
struct Answer {
  QuantizerPtr row, col;
  ColSource col_source = ColSource::original;
};

Result<Answer> answer_of(const QuantizerLike& made, const string& who) {
  if (std::holds_alternative<DelayedScalingRequest>(made))
    return Error{
        who + " requests delayed scaling, whose scale comes from a history that a line does not have", 0,
        "write fp8_delayed with scale="};
  if (std::holds_alternative<QuantizerRequest>(made))
    return Error{who + " returns a request of no known kind", 0, ""};
  if (const auto* other = std::get_if<NotAQuantizer>(&made))
    return Error{who + " returns " + other->what + " and no quantizer", 0, ""};
  const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made);
  if (!q || !*q)
    return Error{who + " returns nothing", 0, "use the format identity for a tensor that is not quantized"};
  Answer a{*q, *q};
  if (const auto* pair = dynamic_cast<const HybridQuantizer*>(q->get()))
    a = {pair->rowwise_quantizer, pair->columnwise_quantizer,
         pair->columnwise_source == "rowwise_dequantized" ? ColSource::row_dequantized : ColSource::original};
  if (!(*q)->rowwise_usage) a.row = nullptr;
  if (!(*q)->columnwise_usage) a.col = nullptr;
  return a;
}

// A line whose op, sizes and source do not matter, with the answer's directions.
Result<string> printed(const Answer& a, const string& who) {
  Problem p;
  p.op = Quantize{};
  for (Direction d : kDirections) {
    const QuantizerPtr& q = d == Direction::row ? a.row : a.col;
    if (!q) continue;
    p.quantizer(d) = q->line(d);
    const auto* identity = dynamic_cast<const IdentityQuantizer*>(q.get());
    if (!p.quantizer(d) || (identity && identity->dtype))
      return Error{who + " returns " + string(q->class_name()) +
                       (identity ? " of a dtype, which casts" : "") + ": no line can express that",
                   0, "name formats and keys instead"};
  }
  if (!p.row && !p.col) return Error{who + " returns a quantizer without any usage", 0, ""};
  p.col_source = a.row && a.col ? a.col_source : ColSource::original;
  return to_line(p);
}

// The words of a line, and its keys by name.
struct Line {
  std::vector<Word> words;
  // The key of that name, or null.
  const Word* given(string_view key) const {
    const auto at = std::find_if(words.begin(), words.end(),
                                 [&](const Word& w) { return w.key() == key && w.text.size() > key.size(); });
    return at == words.end() ? nullptr : &*at;
  }
};

// What a line with factory= must not have; nothing where it is in order.
std::optional<Error> refused_form(const Line& line) {
  const std::vector<Word>& words = line.words;
  if (words.size() <= kHead || (words[0].text != "quantize" && words[0].text != "split"))
    return Error{"expected a quantize or a split with factory=", 1, string(kForm)};
  if (words[1].text != "auto")
    return Error{"factory= chooses the format: expected auto, found '" + string(words[1].text) + "'",
                 words[1].column, string(kForm)};
  if (const Word* recipe = line.given("recipe"))
    return Error{"expected recipe= or factory=, found both", recipe->column, "leave one out"};
  for (auto w = words.begin() + kHead; w != words.end(); ++w)
    if (std::any_of(words.begin() + kHead, w, [&](const Word& earlier) { return earlier.key() == w->key(); }))
      return Error{"key '" + string(w->key()) + "' is given twice", w->column, ""};
  return std::nullopt;
}

bool is_direction(string_view word) { return word == "row" || word == "col" || word == "both"; }

// Leaves the answer the directions that dir= asks for; an error where the answer lacks one of them.
std::optional<Error> keep_directions(Answer& answer, const Word& dir, const string& who) {
  const bool row = dir.value() != "col", col = dir.value() != "row";
  if ((row && !answer.row) || (col && !answer.col))
    return Error{who + " makes no " + (row && !answer.row ? "rows" : "columns"), dir.value_column(),
                 "leave dir= out"};
  if (!row && answer.row && answer.col_source == ColSource::row_dequantized)
    return Error{who + " makes columns from dequantized rows: there are none without rows",
                 dir.value_column(), "dir=both, or dir=row"};
  if (!row) answer.row = nullptr;
  if (!col) answer.col = nullptr;
  return std::nullopt;
}

// The line with the answer's format and keys, where `skeleton` is the answer as a line. What was written
// wins; dir= is one of the answer's keys where `dir_taken`.
string merged(const Line& line, const string& skeleton, bool dir_taken) {
  const std::vector<Word>&words = line.words, chosen = words_of(skeleton);
  string out = string(words[0].text) + " " + string(chosen[1].text) + " " + string(words[2].text) + " " +
               string(words[3].text);
  for (size_t i = kHead; i < chosen.size(); ++i) {
    const string_view key = chosen[i].key();  // a key of the line hides the same one of the factory, a bare
                                              // one that of a direction too
    const string_view bare = key.starts_with("row.") || key.starts_with("col.") ? key.substr(4) : key;
    const bool hidden = line.given(key) || line.given(bare);
    if (key == "dir" ? !line.given("dir") || dir_taken : !hidden) out += " " + string(chosen[i].text);
  }
  for (size_t i = kHead; i < words.size(); ++i) {
    const string_view key = words[i].key();
    if (key != "factory" && key != "role" && !(key == "dir" && dir_taken)) out += " " + string(words[i].text);
  }
  return out;
}

// What the factory answers for a role; its exceptions become errors.
Result<Answer> asked(const QFactory& factory, const RolePtr& role, const string& who) {
  try {
    return answer_of(factory.call(role), who);
  } catch (const SemanticError& e) {
    return Error{who + " raises " + string(name_of(e.error_class)) + ": " + e.what(), 0, ""};
  }
}

}  // namespace

Result<QFactoryPtr> find_factory(string_view name) {
  if (QFactoryPtr factory = factory_named(name)) return factory;
  const std::vector<string> names = factory_names();
  const Words known(names.begin(), names.end());
  const string near = nearest_word(name, known);
  string all;
  for (string_view n : known) all += (all.empty() ? "" : ", ") + string(n);
  return Error{"unknown factory '" + string(name) + "'", 0,
               near.empty() ? "one of " + all : "did you mean '" + near + "'?"};
}

Result<string> resolve_factory(string_view text) {
  const Line line{words_of(text)};
  const Word *factory_at = line.given("factory"), *role_at = line.given("role"), *dir_at = line.given("dir");
  if (!factory_at) return string(text);
  if (const std::optional<Error> refused = refused_form(line)) return *refused;

  const Result<QFactoryPtr> found = find_factory(factory_at->value());
  if (!found) return Error{found.error().message, factory_at->value_column(), found.error().hint};
  const QFactoryPtr& factory = *found;
  if (!role_at)
    return Error{"factory= needs the role of the tensor", factory_at->column, "role=linear/input"};
  const Result<RolePtr> role = role_of(role_at->value());
  if (!role) return Error{role.error().message, role_at->value_column(), role.error().hint};

  const string who = factory->name + " for " + (*role ? string(role_at->value()) : "no role");
  const auto refused = [&](const Error& e) { return Error{e.message, factory_at->value_column(), e.hint}; };
  Result<Answer> answer = asked(*factory, *role, who);
  if (!answer) return refused(answer.error());
  const bool dir_taken =
      dir_at && is_direction(dir_at->value());  // parse_line reports any other word of dir=
  if (dir_taken)
    if (const std::optional<Error> missing = keep_directions(*answer, *dir_at, who)) return *missing;
  const Result<string> skeleton = printed(*answer, who);
  if (!skeleton) return refused(skeleton.error());
  return merged(line, *skeleton, dir_taken);
}

Result<Problem> read_line(string_view line) {
  const Result<string> resolved = resolve_factory(line);
  if (!resolved) return resolved.error();
  Result<Problem> p = parse_line(*resolved);
  if (p || *resolved == line) return p;
  return Error{p.error().message + ", in '" + *resolved + "'", 0, p.error().hint};
}

}  // namespace assay::training

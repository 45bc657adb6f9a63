#include "compare/witness/records/given.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "training/recipes/format_table.h"

namespace assay {

using std::string;
using std::string_view;

void refuse_word(const string& where, string_view word, const std::vector<string_view>& known) {
  throw std::invalid_argument(
      fmt::format("{}: no such word '{}', expected one of '{}'", where, word, fmt::join(known, "', '")));
}

string_view recipe_called(string_view word, const string& where) {
  std::vector<string_view> known;
  for (const training::FormatRow& row : training::recipe_rows()) {
    if (row.word == word) return row.recipe;
    known.push_back(row.word);
  }
  refuse_word(where, word, known);
}

void expect_recipe_class(string_view name, const string& where) {
  std::vector<string_view> known;
  for (const training::FormatRow& row : training::recipe_rows()) known.push_back(row.recipe);
  if (std::find(known.begin(), known.end(), name) == known.end()) refuse_word(where, name, known);
}

void Given::refuse(const string& expected) const {
  constexpr size_t kLongest = 80;
  string found = json::dump(*value_);
  if (found.size() > kLongest) found = found.substr(0, kLongest) + "...";
  throw std::invalid_argument(fmt::format("{} is {}, expected {}", path_, found, expected));
}

Given Given::at(string_view key, string_view what) const {
  if (!value_->object()) refuse("an object");
  if (const json::Value* found = value_->find(key)) return Given(*found, fmt::format("{}.{}", path_, key));
  throw std::invalid_argument(fmt::format("{} lacks '{}', {}", path_, key, what));
}

std::vector<std::pair<string, Given>> Given::members() const {
  if (!value_->object()) refuse("an object");
  std::vector<std::pair<string, Given>> out;
  for (const auto& [key, value] : *value_->object())
    out.emplace_back(key, Given(value, fmt::format("{}.{}", path_, key)));
  return out;
}

std::vector<Given> Given::items() const {
  if (!value_->array()) refuse("an array");
  std::vector<Given> out;
  for (const json::Value& v : *value_->array()) out.emplace_back(v, fmt::format("{}[{}]", path_, out.size()));
  return out;
}

const string& Given::text() const {
  if (!value_->string()) refuse("a string");
  return *value_->string();
}

bool Given::flag() const {
  const auto b = value_->to_bool();
  if (!b) refuse("true or false");
  return *b;
}

int64_t Given::number(int64_t low, int64_t high) const {
  const auto n = value_->to_int();
  if (!n || *n < low || *n > high) refuse(fmt::format("an integer from {} to {}", low, high));
  return *n;
}

std::vector<int64_t> Given::numbers(int64_t low, int64_t high) const {
  std::vector<int64_t> out;
  for (const Given& one : items()) out.push_back(one.number(low, high));
  return out;
}

training::Dims Given::dims(int64_t low) const {
  const training::Dims out = numbers(low, kMostElements);
  int64_t count = 1;
  for (const int64_t n : out)
    if ((count *= std::max<int64_t>(n, 1)) > kMostElements)
      refuse(fmt::format("a shape of at most {} elements", kMostElements));
  return out;
}

Shape Given::matrix() const {
  const training::Dims d = dims();
  if (d.size() != 2) refuse("a pair of integers, [rows, columns]");
  return {d[0], d[1]};
}

std::pair<std::optional<bool>, std::optional<bool>> Given::request() const {
  const auto one = [](const Given& g) { return g.is_null() ? std::nullopt : std::optional(g.flag()); };
  const std::vector<Given> pair = items();
  if (pair.size() != 2) refuse("a pair of true, false or null, [rows, columns]");
  return {one(pair[0]), one(pair[1])};
}

training::Usages Given::usages() const {
  const std::vector<Given> pair = items();
  if (pair.size() != 2) refuse("a pair of true or false, [rows, columns]");
  return {pair[0].flag(), pair[1].flag()};
}

F32Bits Given::bits() const {
  constexpr string_view kDigits = "0123456789abcdef";
  const string& hex = text();
  if (hex.size() != 8 || hex.find_first_not_of(kDigits) != string::npos)
    refuse("the 8 hexadecimal digits of a binary32");
  return static_cast<F32Bits>(std::stoul(hex, nullptr, 16));
}

std::vector<F32Bits> Given::all_bits() const {
  std::vector<F32Bits> out;
  for (const Given& one : items()) out.push_back(one.bits());
  return out;
}

training::DType Given::dtype() const {
  const auto found = training::dtype_named(text());
  if (!found) refuse("a dtype like float32 or bfloat16");
  return *found;
}

training::RolePtr Given::role() const {
  if (is_null()) return nullptr;
  if (!value_->object()) refuse("a role, {module_type, tensor_type, name}, or null");
  return std::make_shared<const training::QuantizerRole>(
      training::QuantizerRole{text("module_type", ""), text("tensor_type", ""), text("name", "")});
}

std::optional<string> Given::name(string_view key) const {
  if (!has(key) || value_->find(key)->is_null()) return std::nullopt;
  return text(key);
}

training::RoleList Given::roles(string_view key) const {
  if (!has(key) || value_->find(key)->is_null()) return std::nullopt;
  std::vector<training::RolePtr> out;
  for (const Given& role : items(key, "an array of roles")) out.push_back(role.role());
  return out;
}

string_view Given::word(string_view key, std::initializer_list<string_view> words) const {
  const string& found = text(key);
  for (const string_view w : words)
    if (w == found) return w;
  refuse_word(fmt::format("{}.{}", path_, key), found, words);
}

}  // namespace assay

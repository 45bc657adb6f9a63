// Reading the `given` of a witness record. Records are files that Assay did not write, so every reader throws
// std::invalid_argument with the path, what was expected and what is there: a record that cannot be read
// fails with a cause. No reader returns a default where a member exists but says something else, and a word
// is a row of a table or an error.
#pragma once
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/encoding.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/formats/quantizer.h"
#include "training/recipes/role.h"

namespace assay {

// "given.kind: no such word 'FP4_anything', expected one of CS, MX, ...". `where` is a path.
[[noreturn]] void refuse_word(const std::string& where, std::string_view word,
                              const std::vector<std::string_view>& known);

// The row of `table` that is called `word`; throws where no row is. Rows have a `name`, or are pairs that
// begin with it.
template <class Table> auto row_called(const Table& table, std::string_view word, const std::string& where) {
  const auto name_of_row = [](const auto& row) -> std::string_view {
    if constexpr (requires { row.name; }) return row.name;
    else return row.first;
  };
  std::vector<std::string_view> known;
  for (auto row = std::begin(table); row != std::end(table); ++row) {
    if (name_of_row(*row) == word) return row;
    known.push_back(name_of_row(*row));
  }
  refuse_word(where, word, known);
}

// The recipe class that records call `word`: "DelayedScaling" of "delayed".
std::string_view recipe_called(std::string_view word, const std::string& where);
// Refuses what is no recipe class.
void expect_recipe_class(std::string_view name, const std::string& where);

// A value of a record with its path, "given.roles[2]". Refers to the record, which must outlive it.
class Given {
 public:
  explicit Given(const json::Value& value, std::string path = "given")
      : value_(&value), path_(std::move(path)) {}
  const json::Value& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }
  [[noreturn]] void refuse(const std::string& expected) const;  // "given.splits is "x", expected <expected>"

  // Members; `what` is for the error of one that is not there.
  bool has(std::string_view key) const { return value_->find(key); }
  Given at(std::string_view key, std::string_view what) const;
  std::vector<std::pair<std::string, Given>> members() const;  // of an object, in order
  std::vector<Given> items() const;                            // of an array

  // The value itself.
  const std::string& text() const;
  bool flag() const;
  int64_t number(int64_t low = 0, int64_t high = kMost) const;
  std::vector<int64_t> numbers(int64_t low = 0, int64_t high = kMost) const;
  training::Dims dims(int64_t low = 0) const;  // of an array that is no larger than kMostElements
  Shape matrix() const;                        // [rows, columns]
  std::pair<std::optional<bool>, std::optional<bool>> request()
      const;                        // [rows, columns], each true, false or null
  training::Usages usages() const;  // [rows, columns], each true or false
  F32Bits bits() const;             // "3f800000"
  std::vector<F32Bits> all_bits() const;
  training::DType dtype() const;   // "bfloat16"
  training::RolePtr role() const;  // null: none
  // The row of `table` whose first member, its name, is this text.
  template <class Table> const auto& row(const Table& table) const {
    return *row_called(table, text(), path_);
  }

  // The same of a member.
  const std::string& text(std::string_view key) const { return at(key, "a string").text(); }
  std::string text(std::string_view key, const std::string& otherwise) const {
    return has(key) ? text(key) : otherwise;
  }
  std::optional<std::string> name(std::string_view key = "name") const;  // null or not there: nothing
  bool flag(std::string_view key) const { return at(key, "true or false").flag(); }
  bool flag(std::string_view key, bool otherwise) const { return has(key) ? flag(key) : otherwise; }
  int64_t number(std::string_view key, int64_t low = 0, int64_t high = kMost) const {
    return at(key, "an integer").number(low, high);
  }
  size_t count(std::string_view key, size_t otherwise) const {
    return has(key) ? static_cast<size_t>(number(key)) : otherwise;
  }
  std::vector<int64_t> numbers(std::string_view key) const {
    return at(key, "an array of integers").numbers();
  }
  std::vector<Given> items(std::string_view key, std::string_view what) const {
    return at(key, what).items();
  }
  training::Usages usages(std::string_view key) const { return at(key, "a pair of true or false").usages(); }
  training::RolePtr role(std::string_view key) const { return at(key, "a role or null").role(); }
  training::RoleList roles(std::string_view key) const;  // null or not there: no list
  template <class Table> const auto& row(std::string_view key, const Table& table) const {
    return at(key, "a word").row(table);
  }
  // One of `words`.
  std::string_view word(std::string_view key, std::initializer_list<std::string_view> words) const;

  static constexpr int64_t kMost = 4096, kMostElements = int64_t{1} << 24;

 private:
  const json::Value* value_;
  std::string path_;
};

}  // namespace assay

// A set of pairs of choices of one group. Two values of one key are no pair. A choice about elements that a
// line lacks is exercised only beside one that says why they are missing (GroupChoices::idle).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compare/choices/choices.h"

namespace assay::choices {

// The choices of one line.
struct Numbered {
  std::vector<int> numbers;
  size_t idle = 0, working = 0;  // as in GroupChoices
  // The pairs that the line exercises.
  template <class Visit> void each_pair(Visit visit) const {
    for (size_t i = 0; i < numbers.size(); ++i)
      for (size_t j = 0; j < (i < working ? i : std::min(i, idle)); ++j) visit(numbers[i], numbers[j]);
  }
  bool exercises(int a, int b) const;
};

// The choices of a group as numbers, in the order in which they were first met.
class Names {
 public:
  static constexpr size_t kMost = 1024;  // of a group; more is an error of this program: std::length_error
  int number(const std::string& choice);
  int find(const std::string& choice) const;  // -1: never met
  const std::string& name(int number) const { return names_[static_cast<size_t>(number)]; }
  size_t size() const { return names_.size(); }
  // Whether both are values of one key.
  bool same_key(int a, int b) const { return keys_[static_cast<size_t>(a)] == keys_[static_cast<size_t>(b)]; }
  Numbered numbers(const GroupChoices&);

 private:
  std::vector<std::string> names_;
  std::vector<int> keys_;
  std::unordered_map<std::string, int> numbers_, key_numbers_;
};

class Pairs {
 public:
  Pairs() : bits_(Names::kMost * Names::kMost / 64) {}
  bool has(int a, int b) const { return bits_[at(a, b) / 64] >> (at(a, b) % 64) & 1; }
  // Whether it was new.
  bool add(int a, int b);
  // Adds the pairs that a line exercises, and returns how many were new.
  size_t add(const Numbered& line);
  // How many of the pairs that a line exercises are not here.
  size_t fresh(const Numbered& line) const;
  // How many of the pairs that a line exercises are in `among` and not here.
  size_t missing(const Numbered& line, const Pairs& among) const;
  size_t size() const { return size_; }
  // Those that are here and not in `other`, in order.
  void each_beyond(const Pairs& other, size_t names, const std::function<void(int, int)>& visit) const;

 private:
  static size_t at(int a, int b) {
    const size_t low = static_cast<size_t>(a < b ? a : b), high = static_cast<size_t>(a < b ? b : a);
    return low * Names::kMost + high;
  }
  std::vector<uint64_t> bits_;
  size_t size_ = 0;
};

}  // namespace assay::choices

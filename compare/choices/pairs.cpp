#include "compare/choices/pairs.h"

#include <stdexcept>

namespace assay::choices {

int Names::number(const std::string& choice) {
  if (const auto known = numbers_.find(choice); known != numbers_.end()) return known->second;
  if (names_.size() == kMost) throw std::length_error("a group has more than 1024 choices: Names::kMost");
  const int key =
      key_numbers_.emplace(key_of_choice(choice), static_cast<int>(key_numbers_.size())).first->second;
  names_.push_back(choice);
  keys_.push_back(key);
  return numbers_[choice] = static_cast<int>(names_.size()) - 1;
}

int Names::find(const std::string& choice) const {
  const auto known = numbers_.find(choice);
  return known == numbers_.end() ? -1 : known->second;
}

Numbered Names::numbers(const GroupChoices& line) {
  Numbered out{{}, line.idle, line.working};
  out.numbers.reserve(line.choices.size());
  for (const std::string& choice : line.choices) out.numbers.push_back(number(choice));
  return out;
}

bool Numbered::exercises(int a, int b) const {
  bool found = false;
  each_pair([&](int one, int other) { found |= (one == a && other == b) || (one == b && other == a); });
  return found;
}

bool Pairs::add(int a, int b) {
  const size_t i = at(a, b);
  const uint64_t bit = uint64_t{1} << (i % 64);
  if (bits_[i / 64] & bit) return false;
  bits_[i / 64] |= bit;
  ++size_;
  return true;
}

size_t Pairs::add(const Numbered& line) {
  size_t added = 0;
  line.each_pair([&](int a, int b) { added += add(a, b); });
  return added;
}

size_t Pairs::fresh(const Numbered& line) const {
  size_t count = 0;
  line.each_pair([&](int a, int b) { count += !has(a, b); });
  return count;
}

size_t Pairs::missing(const Numbered& line, const Pairs& among) const {
  size_t count = 0;
  line.each_pair([&](int a, int b) { count += !has(a, b) && among.has(a, b); });
  return count;
}

void Pairs::each_beyond(const Pairs& other, size_t names, const std::function<void(int, int)>& visit) const {
  for (size_t low = 0; low < names; ++low)
    for (size_t high = low + 1; high < names; ++high) {
      const int a = static_cast<int>(low), b = static_cast<int>(high);
      if (has(a, b) && !other.has(a, b)) visit(a, b);
    }
}

}  // namespace assay::choices

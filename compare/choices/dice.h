// Random numbers that are equal on every machine: the same seed gives the same lines everywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace assay::choices {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // SplitMix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // From 0 to n - 1; n is not 0. The bias of the remainder does not matter here.
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  bool chance(size_t of, size_t in) { return below(in) < of; }
  template <class List> const auto& pick(const List& list) { return list[below(list.size())]; }

 private:
  uint64_t state_;
};

// A seed that follows from another one and a name.
inline uint64_t seed_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325 ^ seed;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return Dice(hash).next();
}

}  // namespace assay::choices

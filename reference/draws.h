// Which random byte serves which element under stochastic rounding (N12.2, N12.4, N12.5). The tables are in
// docs/draws.md; every element's address is worked out by divisions from where it stands.
#pragma once
#include <array>
#include <cstdint>

#include "contract/problem.h"
#include "reference/philox.h"

namespace assay::reference {

// Byte `byte` (0 the least significant) of word `word` of Philox of `counter`.
struct Address {
  Counter counter = 0;
  int64_t word = 0, byte = 0;
};

// The draws of one direction, of round=sr, of a quantize.
class Draws {
 public:
  Draws(const Problem&, Direction);

  // Of the element that is stored at (i, j) in the direction's data.
  Address at(int64_t i, int64_t j) const;

  // The words of one counter. Neighbouring elements share them, so a loop keeps the last.
  struct Last {
    bool any = false;
    Counter counter = 0;
    Words words{};
  };
  // The byte of the element stored at (i, j); `last` is of these draws or new, and becomes the element's.
  uint32_t byte_at(int64_t i, int64_t j, Last& last) const;
  // The bytes of the elements stored at (i, j) to (i, j + 3), j a multiple of 4: in every table (N12.2,
  // N12.4) four such neighbours share a word, and the order of its bytes is theirs (N12.5).
  std::array<uint32_t, 4> bytes_at(int64_t i, int64_t j, Last& last) const;

 private:
  uint32_t word_at(const Address&, Last& last) const;
  Address logical(int64_t i, int64_t j) const;
  Address of_kernel(int64_t i, int64_t j) const;

  Direction direction_;
  Shape shape_;  // of x
  Rng rng_;
  Draw kind_;
  SrBytes bytes_;
  bool rht_;
  bool both_;  // one launch makes both directions
};

}  // namespace assay::reference

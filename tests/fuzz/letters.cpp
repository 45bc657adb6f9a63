// What one process of a launcher says to another (--mpi): letters that come in pieces, cut short or of
// somebody else.
#include <stdexcept>

#include "compare/process/crew.h"
#include "tests/fuzz/readers.h"

void assay::fuzz::letters(std::string_view bytes) {
  std::string whole(bytes), pieces;
  std::vector<std::string> at_once, one_by_one;
  const bool good = take_letters(whole, at_once);
  bool good_so_far = true;
  for (const char c : bytes) {
    pieces += c;
    if (!(good_so_far = take_letters(pieces, one_by_one))) break;
  }
  if (good != good_so_far || at_once != one_by_one)
    throw std::logic_error("letters differ by the pieces in which they come");
}

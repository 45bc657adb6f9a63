// The results that an earlier run of a command kept (--resume): cut short, or of somebody else.
#include "compare/process/journal.h"

#include <span>
#include <stdexcept>

#include "tests/fuzz/readers.h"

void assay::fuzz::journal(std::string_view bytes) {
  const auto whole = [](std::string_view text) {
    return read_journal(std::as_bytes(std::span(text)), "fuzz");
  };
  const auto journal = whole(bytes);
  if (!journal) {
    journal.error().text();
    return;
  }
  if (journal->whole > bytes.size()) throw std::logic_error("more of a journal is whole than there is");
  // What is cut off behind the whole results changes none of them.
  const auto again = whole(bytes.substr(0, journal->whole));
  if (!again || again->whole != journal->whole || again->results != journal->results)
    throw std::logic_error("a journal is not read back");
}

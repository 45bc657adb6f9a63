// The text of a suite: sweeps, lists, annotations. What it includes is another file of this machine, and no
// input here. A few cases are read of each input: the reader of lines has a target of its own, and thousands
// of cases would take its time.
#include "fixtures/suite.h"

#include <string>

#include "tests/fuzz/readers.h"

namespace {

size_t cases = 0;

assay::Result<std::string> few(std::string_view line) {
  constexpr size_t kMost = 4;
  if (++cases > kMost) return assay::Error{"enough cases", 0, ""};
  return std::string(line);
}

}  // namespace

void assay::fuzz::suite(std::string_view bytes) {
  if (bytes.find("include") != std::string_view::npos) return;
  cases = 0;
  const auto suite = parse_suite(bytes, "fuzz.cases", "", few);
  if (!suite) suite.error().text();
}

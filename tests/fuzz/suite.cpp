// The text of a suite: sweeps, lists, annotations. What it includes is another file of this machine, and no
// input here.
#include "fixtures/suite.h"

#include "tests/fuzz/readers.h"

void assay::fuzz::suite(std::string_view bytes) {
  if (bytes.find("include") != std::string_view::npos) return;
  const auto suite = parse_suite(bytes, "fuzz.cases", "");
  if (!suite) suite.error().text();
}

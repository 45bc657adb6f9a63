// Which cases a command is about: suites, lines, a filter and a shard.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/suite.h"

namespace assay {

struct CaseSelection {
  std::vector<std::string>
      what;            // a suite by name or path, or a line (it holds a space), with sweeps and annotations
  std::string filter;  // keeps lines that contain it; /.../ is an ECMAScript regular expression
  std::string shard;   // "2/8": the 2nd, 10th, 18th, ... of what is left; empty: all
};

// In the order given; a line that occurs twice is kept once.
Result<std::vector<SuiteEntry>> select(const CaseSelection& selection);

// "host,gpu" as names.
std::vector<std::string> split_names(std::string_view text);

}  // namespace assay

// Which cases a command is about: suites, lines, a filter and a shard.
#pragma once
#include <cstddef>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/suite.h"

namespace assay {

// What --filter and --shard keep of a list of cases, lines or training cases.
class CaseChoice {
 public:
  // A filter keeps the texts that contain it; /.../ is an ECMAScript regular expression. A shard "2/8" keeps
  // the 2nd, 10th, 18th, ... of those. Empty words keep all. Fails on a word that is no regular expression or
  // no shard.
  static Result<CaseChoice> of(const std::string& filter, const std::string& shard);

  bool passes_filter(const std::string& text) const;
  bool in_shard();  // asked once for each case that passed the filter, in their order

 private:
  std::string filter_;
  std::optional<std::regex> pattern_;
  size_t index_ = 0, of_ = 1;  // the shard, from 0
  size_t next_ = 0;
};

struct CaseSelection {
  std::vector<std::string>
      what;  // a suite by name or path, or a line (it holds a space), with sweeps and annotations
  std::string filter, shard;  // as CaseChoice reads them
};

// In the order given; a line that occurs twice is kept once.
Result<std::vector<SuiteEntry>> select(const CaseSelection& selection);

// "host,gpu" as names.
std::vector<std::string> split_names(std::string_view text);

}  // namespace assay

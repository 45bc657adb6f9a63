// The causes that a hunt knows, so that it reports each once.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "compare/commands/hunt/records.h"

namespace assay::hunting {

class KnownCauses {
 public:
  // Those of findings that are not mended. A cause whose findings are all mended is found again if it comes
  // back.
  explicit KnownCauses(const std::vector<Finding>& not_mended);

  bool has(const std::string& cause) const { return looked_.contains(cause); }
  // Whether nobody has looked for it yet.
  bool waits(const std::string& cause) const { return unlooked_.contains(cause) && !has(cause); }
  // Whether the finding says something new beside `earlier`, which are all before it. Its cause is known from
  // then on. It is not new where another cause that makes its bytes is known, or the same cause of the other
  // direction. Nor is a line that stands there under the name of another cause: one small line rarely has two
  // faults, and often several names. A sanitizer names one place, so that its causes stand for themselves.
  bool add(const Finding&, const std::vector<Finding>& earlier);

 private:
  // Causes, and names of kinds of failure whose cause nobody has looked for yet.
  std::set<std::string> looked_, unlooked_;
};

}  // namespace assay::hunting

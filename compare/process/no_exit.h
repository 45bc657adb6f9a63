// For subjects that run in this process: one that calls exit() must not look like a run that is done.
#pragma once
#include <string>

namespace assay {

// While it lives, exit() and quick_exit() say what they ended on standard error, and the status is 2.
class NoExit {
 public:
  explicit NoExit(std::string line);  // that is judged
  ~NoExit();
  NoExit(const NoExit&) = delete;
  NoExit& operator=(const NoExit&) = delete;
};

}  // namespace assay

// The transcript of ranks: a JSON line for each case of several ranks, with what each of them did
// (docs/ranks.md).
#pragma once
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "compare/judge/verdict.h"
#include "contract/result.h"
#include "fixtures/suite.h"

namespace assay {

class Transcript {
 public:
  // Writes to `path`, or nothing where that is empty.
  explicit Transcript(const std::string& path);
  ~Transcript();
  Transcript(const Transcript&) = delete;
  Transcript& operator=(const Transcript&) = delete;

  // What kept it from being opened or written.
  std::optional<Error> trouble() const;
  // Writes what the verdict says of ranks, and returns the verdict without it.
  Verdict take(const SuiteEntry&, Verdict);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  std::optional<Error> trouble_;
};

}  // namespace assay

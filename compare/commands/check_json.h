// The verdicts of `assay check` as JSON (docs/schemas/check.schema.json).
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "compare/commands/checked_case.h"
#include "contract/acceptor.h"
#include "fixtures/json.h"

namespace assay {

class CheckJson {
 public:
  // `path` may be empty, then nothing is written; so may the acceptor, then the reference judges alone.
  CheckJson(std::string path, const Acceptor* acceptor);
  void add(const DumpCase&, const CheckedCase&);
  // `of`: the cases of the dump.
  std::optional<Error> write(size_t of) const;

 private:
  std::string path_;
  const Acceptor* acceptor_;
  json::Value cases_ = json::array();
  int64_t passed_ = 0, failed_ = 0;
};

}  // namespace assay

#include "compare/commands/transcript.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "fixtures/json.h"
#include "training/base/rank_engine.h"

namespace assay {

Transcript::Transcript(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_ = std::fopen(path.c_str(), "we");
  if (!file_)
    trouble_ = Error{fmt::format("cannot write {}: {}", path, std::strerror(errno)), 0,
                     "--transcript takes a file in a folder that exists"};
}

Transcript::~Transcript() {
  if (file_) std::fclose(file_);
}

std::optional<Error> Transcript::trouble() const { return trouble_; }

Verdict Transcript::take(const SuiteEntry& entry, Verdict v) {
  const std::string ranks = std::exchange(v.ranks, {});
  if (!file_ || ranks.empty()) return v;
  const Result<json::Value> runs = json::parse(ranks);
  const training::RankEngine& engine = training::rank_engine();
  const json::Value record = json::object({{"record", "ranks"},
                                           {"version", 1},
                                           {"line", entry.text},
                                           {"subject", v.subject},
                                           {"outcome", name_of(v.outcome)},
                                           {"engine", engine.name()},
                                           {"processes", engine.processes()},
                                           {"runs", runs ? *runs : json::Value()}});
  const std::string text = json::dump(record) + "\n";
  const bool whole =
      std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
  if (!whole && !trouble_)
    trouble_ = Error{fmt::format("cannot write all of {}: {}", path_, std::strerror(errno)), 0, ""};
  return v;
}

}  // namespace assay

#include "compare/report/json_lines.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace assay {

Result<std::unique_ptr<JsonLines>> JsonLines::open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (!file)
    return Error{fmt::format("cannot write {}: {}", path, std::strerror(errno)), 0,
                 "--jsonl takes a file in a folder that exists"};
  return std::unique_ptr<JsonLines>(new JsonLines(file, path));
}

void JsonLines::write(const json::Value& value) {
  const std::string text = json::dump(value) + "\n";
  const bool whole =
      std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
  if (!whole && !trouble_)
    trouble_ = Error{fmt::format("cannot write all of {}: {}", path_, std::strerror(errno)), 0, ""};
}

}  // namespace assay

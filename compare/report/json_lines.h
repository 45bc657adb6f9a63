// A file of JSON lines that grows while a command works, so that what is written survives the process, and a
// pipe or a device gets every line once.
#pragma once
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "contract/result.h"
#include "fixtures/json.h"

namespace assay {

class JsonLines {
 public:
  // Empties the file, or makes it. Error: it cannot be written.
  static Result<std::unique_ptr<JsonLines>> open(const std::string& path);
  ~JsonLines() { std::fclose(file_); }
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // One line, flushed.
  void write(const json::Value&);
  // What kept a line from being written, a full disk among it; nothing while all of them are.
  const std::optional<Error>& trouble() const { return trouble_; }

 private:
  JsonLines(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}

  std::FILE* file_;
  std::string path_;
  std::optional<Error> trouble_;
};

}  // namespace assay

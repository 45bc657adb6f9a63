// The results of a command's tasks in a file, each as soon as it is there: what a later run of the same
// command need not do again (--resume). A run that is killed loses at most the result that it was writing.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "contract/result.h"

namespace assay {

// What the bytes of a journal hold: whole results by the number of their task, and how many of the bytes are
// those. `digest` is of what the command judges; an Error where the journal is of something else.
struct JournalText {
  std::map<size_t, std::string> results;
  size_t whole = 0;
};
Result<JournalText> read_journal(std::span<const std::byte> bytes, const std::string& digest);

class Journal {
 public:
  // Makes the folder where it is not there. Errors: a folder that cannot be written, that another run has
  // open, or that holds the results of something else; it is then left as it was.
  static Result<std::unique_ptr<Journal>> open(const std::string& folder, const std::string& digest);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The result of an earlier run; null where there is none.
  const std::string* find(size_t number) const;
  // What was found of earlier runs, in words for the user; empty where there was nothing.
  std::string found() const;
  void add(size_t number, const std::string& result);
  // What could not be written. Nothing is written after it.
  const std::optional<Error>& trouble() const { return trouble_; }
  // Removes the file, and the folder where nothing else is in it.
  void remove();

 private:
  Journal(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::optional<Error> take_over(const std::string& digest);
  void write(const std::string& text);

  std::string path_;
  int file_;
  JournalText known_;
  size_t damaged_ = 0;  // bytes behind the whole results, which were cut off
  std::optional<Error> trouble_;
};

}  // namespace assay

// The folder of a hunt: what a kill must not lose. Everything is appended and flushed. A last line that was
// cut short is ended when it is read again, and left out where it cannot be read; in found.cases it becomes a
// comment.
//
//   hunt.jsonl     a head {"schema": "assay.hunt/1", "subject", "seed", "max_elements", "only"}; a record
//                  "first", "batch" or "edges" for what was judged in one go, a record "finding" for each
//                  cause (docs/schemas/hunt.schema.json)
//   kept.cases     the lines that exercised new pairs of choices, or reached a new rounding case or code
//   found.cases    the lines that fail, shrunk, with their cause as a comment
//   <number>/      of each finding: case.safetensors, reproduce.cpp, README (compare/debug/reproducer.h)
//   looking/       such a folder while its finding has no number yet
//   lock           open while a hunt uses the folder
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/commands/hunt/records.h"
#include "contract/problem.h"
#include "contract/result.h"

namespace assay::hunting {

class Folder {
 public:
  // Opens the folder, or makes it. Errors: it holds the hunt of another head, another process hunts in it, a
  // folder of the user's is in the way, or it cannot be written.
  static Result<std::unique_ptr<Folder>> open(const std::string& path, const Head& head);
  // Whether `path` is one of the files in which a hunt in this folder keeps its state.
  static bool is_own(const std::string& folder, const std::string& path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const Head& head() const { return head_; }
  const Earlier& earlier() const { return earlier_; }
  // Those of earlier runs, and those added since.
  const std::vector<Finding>& findings() const { return findings_; }
  // The lines of found.cases (found_lines).
  Result<std::vector<Problem>> found() const;

  // Where the pack of a finding is made; nothing is there yet. `taken` makes it the pack of the finding with
  // this number, and `dropped` removes it. Each removes what a hunt has made and nothing else.
  std::string looking() const;
  std::optional<Error> taken(size_t number);
  std::optional<Error> dropped();
  // Why a pack cannot be written; empty where it can.
  std::optional<Error> no_room() const;

  // Each returns what kept it from being written.
  std::optional<Error> keep(const std::string& line);
  std::optional<Error> add(const Finding&);
  std::optional<Error> ended(const Judged&);

 private:
  Folder(std::string path, Head head) : path_(std::move(path)), head_(std::move(head)) {}
  std::string file(const char* name) const;
  std::optional<Error> lock();
  std::optional<Error> read();
  std::optional<Error> append(const char* name, const std::string& text);
  std::optional<Error> rewrite(const char* name, const std::string& before, const std::string& now);

  std::string path_;
  Head head_;
  int lock_ = -1;  // a descriptor
  Earlier earlier_;
  std::vector<Finding> findings_;
};

}  // namespace assay::hunting

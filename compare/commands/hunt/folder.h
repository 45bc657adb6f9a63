// The folder of a hunt: what a kill must not lose. Everything is appended and flushed. A last line that was
// cut short is ended when it is read again, and left out where it cannot be read; in found.cases it becomes a
// comment.
//
//   hunt.jsonl     a head {"schema": "assay.hunt/1", "subject", "seed", "max_elements", "only"}; a record
//                  "first", "batch" or "edges" for what was judged in one go, a record "finding" for each
//                  cause (docs/schemas/hunt.schema.json)
//   kept.cases     the lines that exercised new pairs of choices
//   found.cases    the lines that fail, shrunk, with their cause as a comment
//   <number>/      of each finding: case.safetensors, reproduce.cpp, README (compare/debug/reproducer.h)
//   looking/       such a folder while its finding has no number yet
//   lock           open while a hunt uses the folder
#pragma once
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/json.h"

namespace assay::hunting {

// One cause, and the smallest line that shows it.
struct Finding {
  size_t number = 0;
  std::string cause;     // what says that two failures are one: "quantize line.mx_scale=down"
  std::string headline;  // "E8M0 scale from amax / MAX rounded down"
  std::string line;      // shrunk where that was possible
  std::string drawn;     // as it was drawn
  std::string claim, plane;
  bool explained = false;
  double seconds = 0;  // since the hunt began, over all its runs
  bool looked = true;  // for its cause; not where the time was over before
};
json::Value to_json(const Finding&);

// What was judged in one go: the lines that come first, a batch, or what a round of libFuzzer found.
struct Judged {
  std::string kind;    // "first", "batch", "edges"
  uint64_t batch = 0;  // its number; of a round the number of the batch that comes next
  size_t lines = 0, failures = 0, unsupported = 0;
  double seconds = 0;  // since the hunt began, over all its runs
  size_t pairs = 0;    // of choices, covered by then
  size_t cases = 0;    // rounding cases, reached by then
  size_t codes = 0;    // that lines have had by then (codes.h)
  bool whole = true;  // all of its lines; not where the time was over before, and the next run begins it anew
};
json::Value to_json(const Judged&);

struct Head {
  std::string subject;
  uint64_t seed = 0;
  int64_t max_elements = 0;
  std::string only;
  bool operator==(const Head&) const = default;
};
json::Value to_json(const Head&);

class Folder {
 public:
  // Opens the folder, or makes it. Errors: it holds the hunt of another head, another process hunts in it, a
  // folder of the user's is in the way, or it cannot be written.
  static Result<std::unique_ptr<Folder>> open(const std::string& path, const Head& head);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const Head& head() const { return head_; }
  // What an earlier run left: whether its first lines were judged, the number of its next batch, the counts
  // of all that it judged, the findings, the lines that it kept.
  bool begun() const { return begun_; }
  const Judged& before() const { return before_; }
  const std::vector<Finding>& findings() const { return findings_; }
  const std::vector<Problem>& kept() const { return kept_; }
  // The lines of found.cases, which the user may have edited.
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
  std::optional<Error> read_record(const json::Value&);
  std::optional<Error> append(const char* name, const std::string& text);
  std::optional<Error> end_line(const char* name);
  std::optional<Error> mend_found();

  std::string path_;
  Head head_;
  int lock_ = -1;  // a descriptor
  bool begun_ = false;
  Judged before_;
  std::vector<Finding> findings_;
  bool finding_was_last_ = false;  // of the records
  std::vector<Problem> kept_;
};

}  // namespace assay::hunting

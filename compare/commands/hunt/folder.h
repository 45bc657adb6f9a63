// The folder of a hunt: what a kill must not lose. Everything is appended and flushed, and a last line that
// was cut short is left out when it is read again.
//
//   hunt.jsonl     a head {"schema": "assay.hunt/1", "subject", "seed", "max_elements", "only"}; a record
//   "batch" for each
//                  batch that was judged, a record "finding" for each cause
//   kept.cases     the lines that exercised new pairs of choices
//   found.cases    the lines that fail, shrunk, with their cause as a comment
//   <number>/      of each finding: case.safetensors, reproduce.cpp, README (compare/debug/reproducer.h)
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
};
json::Value to_json(const Finding&);

struct Head {
  std::string subject;
  uint64_t seed = 0;
  int64_t max_elements = 0;
  std::string only;
  bool operator==(const Head&) const = default;
};

class Folder {
 public:
  // Opens the folder, or makes it. Errors: it holds the hunt of another head, or cannot be written.
  static Result<std::unique_ptr<Folder>> open(const std::string& path, const Head& head);

  // What an earlier run left: the batches that were judged, the lines and seconds of all, the findings.
  uint64_t batches() const { return batches_; }
  size_t lines() const { return lines_; }
  double seconds() const { return seconds_; }
  const std::vector<Finding>& findings() const { return findings_; }
  const std::vector<Problem>& kept() const { return kept_; }
  // The lines of found.cases, which anybody may have edited.
  Result<std::vector<Problem>> found() const;

  // Each returns what kept it from being written.
  std::optional<Error> keep(const std::string& line);
  std::optional<Error> add(const Finding&);
  std::optional<Error> ended(uint64_t batch, size_t lines, double seconds, size_t pairs);
  std::string finding_folder(size_t number) const;

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string file(const char* name) const;
  std::optional<Error> read(const Head&);
  std::optional<Error> read_record(const json::Value&, const Head&);
  std::optional<Error> append(const char* name, const std::string& text);

  std::string path_;
  uint64_t batches_ = 0;
  size_t lines_ = 0;
  double seconds_ = 0;
  std::vector<Finding> findings_;
  std::vector<Problem> kept_;
};

}  // namespace assay::hunting

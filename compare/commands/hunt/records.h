// What the files of a hunt's folder say (folder.h), apart from the files themselves.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
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
  double seconds = 0;                    // since the hunt began, over all its runs
  bool looked = true;                    // for its cause; not where the time was over before
  std::vector<std::string> others = {};  // causes that make the same bytes; known in the run that found them
};
json::Value to_json(const Finding&);

// What was judged in one go: the lines that come first, those that the user gave, a batch, or what a round of
// libFuzzer found.
struct Judged {
  std::string kind;    // "first", "given", "batch", "edges"
  uint64_t batch = 0;  // its number; of a round the number of the batch that comes next
  size_t lines = 0, failures = 0, unsupported = 0;
  double seconds = 0;  // since the hunt began, over all its runs
  size_t pairs = 0;    // of choices, covered by then
  size_t cases = 0;    // rounding cases, reached by then
  size_t codes = 0;    // that lines have had by then (codes.h)
  bool whole = true;  // all of its lines; not where the time was over before, and the next run begins it anew
  std::string given;  // of "given" a digest of the lines; else empty
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

inline constexpr const char *kRecords = "hunt.jsonl", *kKept = "kept.cases", *kFound = "found.cases";

// The whole text of these three files.
struct Texts {
  std::string records, kept, found;
  bool operator==(const Texts&) const = default;
};

// What earlier runs left.
struct Earlier {
  bool begun = false;           // the first lines were judged
  std::set<std::string> given;  // digests of the user's lines that were judged
  Judged judged;                // the number of the next batch, and the counts of all that was judged
  std::vector<Finding> findings;
  std::vector<Problem> kept;
};

// Reads the texts and mends in them what a kill has left (folder.h). Texts without records get the head.
// Error: they are of the hunt of another head, or of none. Its text names `path`, the folder.
Result<Earlier> read_texts(const std::string& path, const Head&, Texts&);

// The lines of found.cases, which the user may have edited. Files that they name lie in `path`.
Result<std::vector<Problem>> found_lines(const std::string& path, const std::string& found);

// What found.cases says of a finding.
std::string found_text(const Finding&);

}  // namespace assay::hunting

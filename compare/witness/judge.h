// Judges the files of a folder of third-party vectors (compare/witness/index.h), bit for bit, and prints a
// line for each.
//
// Every expected tensor of a family that Assay knows (compare/witness/vectors/table.h) is judged or is an
// error. For a file whose sources disagree, it is reported which of them each subject agrees with, and
// nothing of it counts.
#pragma once
#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"
#include "compare/witness/index.h"
#include "fixtures/safetensors.h"

namespace assay {

struct VectorOptions {
  std::string directory;
  std::vector<std::string> subjects = {"reference", "host"};
  std::string filter;  // judge only tensors whose "<file>#<tensor>" contains this
  Environment environment;
  double timeout = 60;  // seconds a case may take

  bool wants(const IndexFile& entry, const std::string& tensor) const {
    return (entry.file + "#" + tensor).find(filter) != std::string::npos;
  }
};

// Tensors, once per subject.
struct VectorCounts {
  size_t passed = 0, failed = 0, skipped = 0, disputed = 0;
  bool cut_short = false;  // an interrupt came: tensors that were not judged count nowhere
  VectorCounts& operator+=(const VectorCounts&);
};

// Every expected tensor of one file of a known family.
VectorCounts judge_vector_file(const IndexFile&, const safetensors::File&, const std::string& path,
                               const VectorOptions&, const Subjects&, std::ostream& out);

// Every record of one file, added to `counts`. Error: the file cannot be read, or is not the one that the
// index describes.
std::optional<Error> judge_record_file(const IndexFile&, const std::string& path, const VectorOptions&,
                                       const Subjects&, std::ostream& out, VectorCounts& counts);

}  // namespace assay

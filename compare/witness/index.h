// The index of a folder of third-party vectors, and the files that it describes.
//
// The folder holds safetensors files and an index.json:
//   {"files": [{"file": "mxfp8_a01.safetensors", "sha256": "...", "family": "mxfp8_1d", "params": {...},
//   "consensus": "agree:...",
//               "tensors": [{"name": "input", "dtype": "BF16", "shape": [32, 64], "role": "input"}, ...]},
//               ...]}
// Roles: input and param are given to the subject, expected is compared, info is neither. A file whose
// consensus begins with "DISAGREE" holds one result per source.
#pragma once
#include <string>
#include <vector>

#include "contract/result.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"

namespace assay {

struct IndexTensor {
  std::string name, role;
};
struct IndexFile {
  std::string file, family, sha256, consensus;
  json::Value params;
  std::vector<IndexTensor> tensors;  // none of a file of records (compare/witness/records/records.h)
  bool disputed() const { return consensus.starts_with("DISAGREE"); }
};

Result<std::vector<IndexFile>> read_index(const std::string& directory);

// Opens the file that the index describes; anything else is an error. Fills in the digest where the index
// gives none.
Result<safetensors::File> open_file(const std::string& path, IndexFile& entry);

}  // namespace assay

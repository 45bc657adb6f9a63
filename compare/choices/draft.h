// A line in parts, before the parser has accepted it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract/problem.h"

namespace assay::choices {

struct Draft {
  std::string op, format;
  std::string second;  // the columns' format of a pair, the inner one of an attention, b's of a gemm; empty:
                       // as `format`
  std::string source;  // empty for a gemm, whose operands have it as a key
  std::vector<int64_t> sizes;               // rows, cols; of a gemm m, n, k
  std::map<std::string, std::string> keys;  // "row.round" to "sr"
  std::string text() const;
  std::string group() const { return op + " " + format; }  // "quantize mxfp8"
  // The key whose word of text() holds this column (1-based), or an empty text.
  std::string key_at(size_t column) const;
};

// The parts of a Problem's short line.
Draft draft_of(const Problem&);

}  // namespace assay::choices

// One case of a file of third-party vectors, as the rows of the table ask for it: fields of its parameters,
// tensors by name, and texts with their `{...}` replaced (compare/witness/vectors/table.h says what they
// mean).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/witness/vectors/pattern.h"
#include "contract/encoding.h"
#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"

namespace assay {

// The encoding of a tensor's elements as a plane has it; nothing where no plane has them.
std::optional<Encoding> encoding_of(safetensors::Dtype);
// Ranks other than 2 are flattened: leading dimensions are rows, a vector is one row.
Shape shape_of(const safetensors::Tensor&);
// One row of a tensor, or one element of a vector; nothing where it has none.
std::optional<safetensors::Tensor> row_of(const safetensors::Tensor&, int64_t row);

// Refers to the file, its params and the captures, which outlive it.
class VectorSource {
 public:
  VectorSource(const safetensors::File& file, const json::Value& params, const Captures& captures);

  // Replaces every {...}; `as_line`: words become the line's words.
  Result<std::string> expand(std::string_view text, bool as_line) const;
  // "direction=rowwise", "c!=rowscaled": whether a field or a capture is, or is not, that word.
  bool holds(std::string_view condition) const;

  // A field of the case, else of the file's params; null where neither has it.
  const json::Value* field(std::string_view name) const;
  // A tensor, or a row of it: `t[i]`.
  Result<safetensors::Tensor> tensor(std::string_view name) const;
  // "<c>.input" of "~input" where the file has one.
  std::string own(std::string_view name) const;
  // t0, t1, ... of "t#".
  std::vector<safetensors::Tensor> series(std::string_view name) const;

 private:
  Result<std::string> replace(std::string_view inside) const;

  const safetensors::File& file_;
  const json::Value& params_;
  const Captures& captures_;
  const json::Value* case_ = nullptr;
};

}  // namespace assay

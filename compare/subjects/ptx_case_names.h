// The names that expressions of a launch may use in one case: rows, cols, sizes of planes, and the numbers
// among the keys of the canonical line (docs/ptx.md).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/subjects/ptx_expression.h"
#include "contract/planes.h"
#include "contract/problem.h"

namespace assay {

class CaseNames {
 public:
  CaseNames(const Problem&, const std::vector<Plane>&);
  // Throws std::runtime_error: `where`, then why the expression has no value within the bounds.
  WideInt integer(const std::string& expression, const Bounds&, const std::string& where) const;
  // A decimal, bits, a key of the line with such a value, or an expression of integers.
  uint32_t f32(const std::string& text, const std::string& where) const;

 private:
  std::optional<WideInt> find(std::string_view name) const;
  std::string known() const;
  std::vector<std::string> planes_;
  std::map<std::string, WideInt, std::less<>> numbers_;
  std::map<std::string, std::string, std::less<>> keys_;
};

}  // namespace assay

// The parity matrix as a person reads it: rows are modules with the roles that are hybrids, columns the
// formats, and a field says of its cells how many are bitwise, how many are excluded and by what, and how
// many failed.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "compare/judge/claims.h"

namespace assay {

class Matrix {
 public:
  // One cell of the matrix, judged. Rows and columns appear in the order in which they are first added.
  void add(const std::string& row, const std::string& column, const std::string& line,
           const Verdict& verdict);
  bool empty() const { return rows_.empty(); }
  // In blocks of as many columns as fit `width` characters; fields read "12", "9 + 3 E13", "1 FAILED".
  std::string text(size_t width = 150) const;
  // One self-contained page, light and dark: the table, and below it every cell that is not plainly bitwise
  // with its reason.
  std::string html() const;

 private:
  struct Entry {
    std::string line;
    Verdict verdict;
  };
  struct Field {
    size_t bitwise = 0, failed = 0, other = 0;  // other: skipped or unsupported
    std::map<std::string, size_t> excluded;     // by codes
    std::vector<Entry> entries;
  };
  static std::string text_of(const Field&);
  std::vector<std::string> rows_, columns_;
  std::map<std::pair<std::string, std::string>, Field> fields_;
};

}  // namespace assay

// The parity matrix as a person reads it: rows are modules with the roles that are hybrids, columns the
// formats, and a field says of its cells how many are bitwise, how many are excluded and by what, and how
// many failed.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compare/judge/claims.h"

namespace assay {

class ParityTable {
 public:
  // One cell of the matrix, judged. Rows and columns appear in the order in which they are first added.
  void add(const std::string& row, const std::string& column, const std::string& line,
           const Verdict& verdict);
  bool empty() const { return rows_.empty(); }
  // In blocks of as many columns as fit `width` characters; fields read "12", "9 + 3 E13", "1 FAILED".
  std::string text(size_t width = 150) const;
  // One self-contained page, light and dark: the table, what the causes of its exclusions are, and every cell
  // with its line and its reason. A field of the table leads to its lines.
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
  // Parts of the page. `anchored`: the fields that have a row to lead to, which the list adds to.
  std::string table() const;
  std::string legend() const;
  std::string list(const char* title, const char* outcome, const char* why,
                   const std::function<bool(const Verdict&)>& of, std::set<std::string>& anchored) const;
  std::string anchor_of(const std::string& row, const std::string& column) const;
  std::vector<std::string> rows_, columns_;
  std::map<std::pair<std::string, std::string>, Field> fields_;
};

}  // namespace assay

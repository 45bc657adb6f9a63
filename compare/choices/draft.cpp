#include "compare/choices/draft.h"

#include <string_view>

#include "contract/line.h"
#include "contract/words.h"

namespace assay::choices {

using std::string;

namespace {

string head_of(const Draft& d) {
  string sizes;
  for (int64_t n : d.sizes) sizes += concat({sizes.empty() ? "" : "x", std::to_string(n)});
  const string second = d.second.empty() ? d.format : d.second;
  if (d.op == "gemm") return concat({"gemm a=", d.format, " b=", second, " ", sizes});
  const string formats = second == d.format ? d.format : concat({d.format, "/", second});
  return concat({d.op, " ", formats, " ", sizes, " ", d.source});
}

}  // namespace

string Draft::text() const {
  string out = head_of(*this);
  for (const auto& [key, value] : keys) out += concat({" ", key, "=", value});
  return out;
}

string Draft::key_at(size_t column) const {
  size_t end = head_of(*this).size();
  for (const auto& [key, value] : keys) {
    end += key.size() + value.size() + 2;
    if (column <= end) return column <= end - key.size() - value.size() - 1 ? string() : key;
  }
  return {};
}

Draft draft_of(const Problem& p) {
  Draft out;
  const string line = to_line(p);
  const bool gemm = p.as<Gemm>() != nullptr;
  size_t position = 0;
  for (std::string_view word : words_of(line, ' ')) {
    const size_t equals = word.find('=');
    if (position == 0) {
      out.op = word;
    } else if (gemm && position <= 2) {
      (position == 1 ? out.format : out.second) = word.substr(2);
    } else if (!gemm && position == 1) {
      out.format = word.substr(0, word.find('/'));
      if (out.format.size() < word.size()) out.second = word.substr(out.format.size() + 1);
    } else if (position == (gemm ? 3u : 2u)) {
      out.sizes = integers_of(word, 'x', kMaxElements);
    } else if (equals != std::string_view::npos) {
      out.keys[string(word.substr(0, equals))] = word.substr(equals + 1);
    } else if (gemm) {
      for (const char* key : {"a.source", "b.source"}) out.keys[key] = word;
    } else {
      out.source = word;
    }
    ++position;
  }
  return out;
}

}  // namespace assay::choices

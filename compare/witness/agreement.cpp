#include "compare/witness/agreement.h"

#include <vector>

#include <fmt/format.h>

#include "compare/witness/vectors/table.h"

namespace assay {

using std::string;

namespace {

string join(const std::vector<string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

// What the file calls case "c1": the label of the case of that prefix, or the second word of a list of them.
string label_of(const IndexFile& entry, const string& in_case) {
  const json::Value* cases = entry.params.find("cases");
  if (!cases || !cases->array()) return {};
  for (const json::Value& one : *cases->array())
    if (one.text("prefix") == in_case + ".") return string(one.text("label"));
  for (size_t i = 0; i < cases->array()->size(); ++i)
    if (in_case == fmt::format("c{}", i) && (*cases->array())[i].string())
      return *(*cases->array())[i].string();
  return {};
}

// "agrees with a, b; not with c (3 of 4 tensors equal)".
string sides_text(const std::map<string, std::pair<int, int>>& sources) {
  std::vector<string> with, against;
  for (const auto& [source, n] : sources)
    if (n.first == n.second) with.push_back(source);
    else against.push_back(fmt::format("{} ({} of {} tensors equal)", source, n.first, n.second));
  return fmt::format("agrees with {}{}", join(with), against.empty() ? "" : "; not with " + join(against));
}

}  // namespace

string agreement_text(const Agreement& agreement, const IndexFile& entry, std::string_view subject) {
  string out;
  for (const auto& [which, sources] : agreement) {
    const auto& [in_case, variant] = which;
    const auto plain = agreement.find({in_case, ""});
    if (!variant.empty() && plain != agreement.end() && plain->second == sources)
      continue;  // the keys change nothing here
    const string label = label_of(entry, in_case);
    string what(subject);
    for (const string& word : {in_case, label, variant})
      if (!word.empty()) what += " " + word;
    const std::string_view clauses = deciding_clauses(entry.family, label);
    out += fmt::format("          {}: {}{}\n", what, sides_text(sources),
                       clauses.empty() ? "" : fmt::format("; decided by {}", clauses));
  }
  return out;
}

}  // namespace assay

#include "compare/commands/selection.h"

#include <charconv>
#include <set>

#include <fmt/format.h>

#include "contract/words.h"
#include "training/recipes/line_factory.h"

namespace assay {

namespace {

struct Shard {
  size_t index = 0, of = 1;  // index from 0
};

Result<Shard> parse_shard(const std::string& text) {
  if (text.empty()) return Shard{};
  const size_t slash = text.find('/');
  size_t i = 0, n = 0;
  const char* end = text.data() + text.size();
  const char* middle = text.data() + std::min(slash, text.size());
  const bool read = slash != std::string::npos && std::from_chars(text.data(), middle, i).ptr == middle &&
                    std::from_chars(middle + 1, end, n).ptr == end;
  if (!read || i < 1 || i > n)
    return Error{fmt::format("--shard '{}': expected <i>/<n> with 1 <= i <= n", text), 0, "--shard 2/8"};
  return Shard{i - 1, n};
}

}  // namespace

Result<CaseChoice> CaseChoice::of(const std::string& filter, const std::string& shard) {
  const Result<Shard> part = parse_shard(shard);
  if (!part) return part.error();
  CaseChoice choice;
  choice.filter_ = filter;
  choice.index_ = part->index, choice.of_ = part->of;
  if (filter.size() > 2 && filter.front() == '/' && filter.back() == '/') {
    try {
      choice.pattern_.emplace(filter.substr(1, filter.size() - 2));
    } catch (const std::regex_error& e) {
      return Error{fmt::format("--filter {}: {}", filter, e.what()), 0,
                   "without the slashes the text is searched for literally"};
    }
  }
  return choice;
}

bool CaseChoice::passes_filter(const std::string& text) const {
  return pattern_ ? std::regex_search(text, *pattern_) : text.find(filter_) != std::string::npos;
}

bool CaseChoice::in_shard() { return next_++ % of_ == index_; }

Result<std::vector<SuiteEntry>> select(const CaseSelection& selection) {
  Result<CaseChoice> choice = CaseChoice::of(selection.filter, selection.shard);
  if (!choice) return choice.error();
  std::vector<SuiteEntry> out;
  std::set<std::string> seen;
  for (const std::string& what : selection.what) {
    const bool is_line = what.find(' ') != std::string::npos;
    Result<Suite> suite = is_line ? parse_suite(what, "line", ".", training::resolve_factory)
                                  : load_suite(what, training::resolve_factory);
    if (!suite) return suite.error();
    for (SuiteEntry& e : suite->entries) {
      if (is_line) e.line = 0;
      if (choice->passes_filter(e.text) && seen.insert(e.text).second && choice->in_shard())
        out.push_back(std::move(e));
    }
  }
  return out;
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view name : words_of(text, ','))
    if (!name.empty()) out.emplace_back(name);
  return out;
}

}  // namespace assay

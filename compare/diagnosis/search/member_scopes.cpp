#include "compare/diagnosis/search/member_scopes.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace assay {

namespace {

using std::string;
using Sizes = std::vector<Shape>;

struct Row {
  std::string_view id, title;
  bool (*holds)(const Sizes& members, size_t m);
};
bool rows_fill(const Sizes& members, size_t m, int64_t unit) { return members[m].rows % unit == 0; }
constexpr Row kRows[] = {
    {"after_empty", "in members after an empty one",
     [](const Sizes& members, size_t m) { return m > 0 && members[m - 1].count() == 0; }},
    {"first", "in the first member", [](const Sizes&, size_t m) { return m == 0; }},
    {"not_first", "in all members but the first", [](const Sizes&, size_t m) { return m > 0; }},
    {"last", "in the last member", [](const Sizes& members, size_t m) { return m + 1 == members.size(); }},
    {"not_last", "in all members but the last",
     [](const Sizes& members, size_t m) { return m + 1 < members.size(); }},
    {"odd", "in every second member", [](const Sizes&, size_t m) { return m % 2 == 1; }},
    {"not_of_16", "in members whose rows are no multiple of 16",
     [](const Sizes& members, size_t m) { return !rows_fill(members, m, 16); }},
    {"not_of_32", "in members whose rows are no multiple of 32",
     [](const Sizes& members, size_t m) { return !rows_fill(members, m, 32); }},
    {"not_of_128", "in members whose rows are no multiple of 128",
     [](const Sizes& members, size_t m) { return !rows_fill(members, m, 128); }},
    {"above_128", "in members of more than 128 rows",
     [](const Sizes& members, size_t m) { return members[m].rows > 128; }},
    {"after_32", "in members after the first 32", [](const Sizes&, size_t m) { return m >= 32; }},
};

string one_member(size_t m) { return fmt::format("member={}", m); }

// Whether some members are in it, and some that have elements are not.
bool is_part(const MemberScope& scope, const Sizes& members) {
  bool some = false, other = false;
  for (size_t m = 0; m < members.size(); ++m)
    if (members[m].count() > 0) (scope.members[m] ? some : other) = true;
  return some && other;
}

}  // namespace

std::vector<MemberScope> member_scopes(const Problem& split) {
  std::vector<MemberScope> out;
  const Split* op = split.as<Split>();
  if (!op) return out;
  const Sizes& members = op->members;
  for (const Row& row : kRows) {
    MemberScope scope{string(row.id), string(row.title), {}};
    for (size_t m = 0; m < members.size(); ++m) scope.members.push_back(row.holds(members, m));
    if (is_part(scope, members)) out.push_back(std::move(scope));
  }
  for (size_t m = 0; m < members.size(); ++m) {
    MemberScope scope{one_member(m), fmt::format("in member {}", m), std::vector<bool>(members.size())};
    scope.members[m] = true;
    if (is_part(scope, members)) out.push_back(std::move(scope));
  }
  return out;
}

bool is_in_scope(std::string_view id, const Problem& split, size_t m) {
  const Split* op = split.as<Split>();
  const auto* row = std::ranges::find(kRows, id, &Row::id);
  if (row != std::end(kRows)) return op && row->holds(op->members, m);
  return op && id == one_member(m);
}

}  // namespace assay

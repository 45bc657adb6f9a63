#include "fast/ptx/forms.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

namespace assay::ptx {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// One group of a row's modifiers: the words of which one may stand, and whether one must.
struct Group {
  std::vector<std::string_view> words;
  bool needed = true;
};

std::vector<Group> groups_of(const FormRow& row) {
  std::vector<Group> groups;
  for (std::string_view text : split(row.modifiers, ' ')) {
    Group g;
    g.needed = text.front() != '[';
    if (!g.needed) text = text.substr(1, text.size() - 2);
    g.words = split(text, '|');
    groups.push_back(std::move(g));
  }
  return groups;
}

// The choices of each type of a row.
std::vector<std::vector<Type>> types_of(const FormRow& row) {
  std::vector<std::vector<Type>> choices;
  for (std::string_view list : split(row.types, ':')) {
    auto& of_one = choices.emplace_back();
    for (std::string_view word : split(list, ' ')) of_one.push_back(*type_named(word));
  }
  return choices;
}

constexpr unsigned kNumberStep = 8, kMostNumber = 256;  // what `#` in a word of the table may be

bool stands_for(std::string_view pattern, std::string_view word) {
  const size_t at = pattern.find('#');
  if (at == std::string_view::npos) return pattern == word;
  for (unsigned n = kNumberStep; n <= kMostNumber; n += kNumberStep)
    if (word == std::string(pattern.substr(0, at)) + std::to_string(n) + std::string(pattern.substr(at + 1)))
      return true;
  return false;
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return stands_for(w, word); });
}

// Why an opcode is not of a row's form; nothing where it is.
std::optional<std::string> mismatch(const Opcode& op, const FormRow& row) {
  const auto groups = groups_of(row);
  std::vector<char> used(groups.size(), false);
  for (const std::string& word : op.modifiers) {
    // Two groups may have the same words, as the layouts of A and of B.
    bool known = false, taken = false;
    for (size_t g = 0; g < groups.size() && !taken; ++g) {
      if (!contains(groups[g].words, word)) continue;
      known = true;
      taken = !std::exchange(used[g], true);
    }
    if (!known) return "'." + word + "' is not among its modifiers";
    if (!taken) return "'." + word + "' excludes another of its modifiers";
  }
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].needed && !used[g]) return "it lacks '." + std::string(groups[g].words.front()) + "'";
  const auto types = types_of(row);
  if (types.size() != op.types.size()) return "it takes " + std::to_string(types.size()) + " types";
  for (size_t n = 0; n < types.size(); ++n)
    if (std::find(types[n].begin(), types[n].end(), op.types[n]) == types[n].end())
      return "'." + std::string(info(op.types[n]).name) + "' is not among its types";
  return {};
}

// Why no row fits: each reason once, with the sections of the rows that have it.
using Problems = std::vector<std::pair<std::string, std::vector<std::string_view>>>;
void add_problem(Problems& all, const std::string& problem, std::string_view section) {
  auto found = std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.first == problem; });
  if (found == all.end()) found = all.insert(found, {problem, {}});
  auto& sections = found->second;
  if (std::find(sections.begin(), sections.end(), section) == sections.end()) sections.push_back(section);
}
std::string told(const Problems& all) {
  constexpr size_t kMostTold = 3;
  std::string out;
  for (size_t n = 0; n < std::min(all.size(), kMostTold); ++n) {
    if (n) out += "; ";
    for (size_t s = 0; s < all[n].second.size(); ++s) out += (s ? ", " : "") + std::string(all[n].second[s]);
    out += ": " + all[n].first;
  }
  if (all.size() > kMostTold) out += "; other rows differ in other ways";
  return out;
}

// Whether an opcode that no row has asks for sums of a tensor core whose rule nobody has validated here.
bool has_unknown_sums(const std::vector<std::string_view>& words) {
  const auto any = [&](std::initializer_list<std::string_view> these) {
    return std::any_of(these.begin(), these.end(), [&](std::string_view w) { return contains(words, w); });
  };
  if (words[0] == "mma")
    return any({"e4m3", "e5m2", "e2m1", "e2m3", "e3m2"}) || (words.back() == "f16" && contains(words, "f16"));
  return words[0] == "wgmma" && contains(words, "mma_async") && contains(words, "f16") &&
         !contains(words, "f32");
}

// Whether an opcode that no row has is for clusters of blocks.
bool reaches_other_blocks(const std::vector<std::string_view>& words) {
  return words[0] == "mapa" || words[0] == "getctarank" || contains(words, "multicast::cluster") ||
         (words[0] == "barrier" && contains(words, "cluster")) ||
         (contains(words, "shared::cluster") &&
          (words[0] == "mbarrier" || contains(words, "shared::cta") || words[0] == "st" || words[0] == "ld"));
}

}  // namespace

bool Opcode::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

Opcode understand(std::string_view text) {
  const auto words = split(text, '.');
  if (words.empty()) throw Fault("no instruction");
  Opcode op;
  op.text = text;
  for (size_t n = 1; n < words.size(); ++n) {
    if (const auto type = type_named(words[n])) op.types.push_back(*type);
    else op.modifiers.emplace_back(words[n]);
  }
  Problems why;
  for (const FormRow& row : kForms) {
    if (row.name != words[0]) continue;
    const auto problem = mismatch(op, row);
    if (!problem) {
      op.row = &row;
      return op;
    }
    add_problem(why, *problem, row.section);
  }
  if (reaches_other_blocks(words))
    throw Fault("unsupported form '" + op.text +
                "': it reaches other blocks of a cluster, and here every block runs alone");
  if (has_unknown_sums(words))
    throw Fault(
        "unsupported form '" + op.text +
        "': the ISA leaves the order and the precision of its sums open, and nobody has validated a rule "
        "for them; wgmma with sums in binary32 is understood for e4m3 and e5m2");
  if (why.empty())
    throw Fault("unsupported instruction '" + op.text + "': the table has no '" + std::string(words[0]) +
                "'");
  throw Fault("unsupported form '" + op.text + "' (" + told(why) + ")");
}

unsigned access_bytes(const Opcode& op) { return static_cast<unsigned>(info(op.last()).bytes()); }

std::vector<std::string> spellings(const FormRow& row, size_t most) {
  std::vector<std::vector<std::string>> endings;  // the choices at each place
  for (const Group& g : groups_of(row)) {
    auto& of_one = endings.emplace_back();
    if (!g.needed) of_one.emplace_back();
    for (std::string_view word : g.words)
      if (const size_t at = word.find('#'); at == std::string_view::npos) {
        of_one.push_back("." + std::string(word));
      } else {
        for (unsigned n = kNumberStep; n <= kMostNumber; n += kNumberStep)
          of_one.push_back("." + std::string(word).replace(at, 1, std::to_string(n)));
      }
  }
  for (const auto& choices : types_of(row)) {
    auto& of_one = endings.emplace_back();
    for (Type t : choices) of_one.push_back("." + std::string(info(t).name));
  }
  size_t total = 1;
  for (const auto& choices : endings) total *= choices.size();
  std::vector<std::string> out;
  const size_t count = std::min(total, most);
  for (size_t n = 0; n < count; ++n) {
    // Where not all are wanted, every so many of them; the last place changes fastest, so that every type is
    // among them.
    size_t index = count == total ? n : n * (total / count) + n % (total / count);
    std::string text(row.name);
    std::vector<size_t> at(endings.size());
    for (size_t k = endings.size(); k-- > 0; index /= endings[k].size()) at[k] = index % endings[k].size();
    for (size_t k = 0; k < endings.size(); ++k) text += endings[k][at[k]];
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace assay::ptx

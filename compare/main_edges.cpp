// The program `assay_edges` of the preset `fuzz`: libFuzzer, whose inputs are lines and whose mutations know
// them. A line is judged on a subject whose code counts its edges, so libFuzzer keeps the lines that reach
// new ones. `assay hunt --edges` starts it, and judges what it brings once more (commands/hunt/edges.h).
//
//   assay_edges {--subject=host | --plugin=libmine.so} --most=4096 --only= --new=DIR <libFuzzer's options>
//   DIR...
//
// A line that fails is written into the folder --new beside those that libFuzzer keeps there. libFuzzer ends
// where a sanitizer does.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/choices/data.h"
#include "compare/choices/draw.h"
#include "compare/choices/tensors.h"
#include "compare/judge/cases.h"
#include "compare/subjects/plugin.h"
#include "contract/line.h"
#include "contract/words.h"
#include "fast/subject_host.h"
#include "fixtures/files.h"
#include "reference/subject.h"

namespace {

using namespace assay;
using choices::Dice;
using choices::Draft;
using choices::Drawer;
using choices::Drawn;

// What the command line says, made once.
struct Search {
  std::string only, failed_folder;
  int64_t most = 4096;
  Subjects subjects;
  RunSettings settings;
  Subject* subject = nullptr;
  std::vector<std::string> groups;        // ops with a format of which lines are drawn
  std::map<std::string, Drawer> drawers;  // of those that were drawn already
};
Search& search() {
  static Search one;
  return one;
}

[[noreturn]] void refuse(const std::string& words) {
  std::fprintf(stderr, "assay_edges: %s\n", words.c_str());
  std::exit(2);
}

// The drawer of a group, or null where the group has no line, or none is wanted.
Drawer* drawer_of(const std::string& group) {
  Search& s = search();
  if (group.find(s.only) == std::string::npos) return nullptr;
  auto known = s.drawers.find(group);
  if (known == s.drawers.end())
    known = s.drawers
                .emplace(group,
                         Drawer(
                             group, s.most, [](const Problem&) { return true; }, 1, choices::Aim::failures))
                .first;
  return known->second.any() ? &known->second : nullptr;
}

// The line with one of its sizes a little larger or smaller. Where a line has reached the first of several
// branches that look at sizes, the next one is near it.
std::optional<Problem> nudged(Draft draft, Dice& dice) {
  constexpr int64_t kFarthest = 4;
  int64_t& size = draft.sizes[dice.below(draft.sizes.size())];
  size += static_cast<int64_t>(dice.below(2 * kFarthest + 1)) - kFarthest;
  const auto problem = size < 0 ? Result<Problem>(Error{"", 0, ""}) : parse_line(draft.text());
  const bool good =
      problem && choices::largest_tensor(*problem) <= search().most && choices::data_fit(*problem);
  return good ? std::optional(*problem) : std::nullopt;
}

// The line with one to three things changed, or a new one.
std::optional<Problem> mutated(std::string_view line, Dice& dice) {
  constexpr size_t kNew = 16;  // one of so many is drawn anew
  const auto problem = parse_line(line);
  if (problem && !dice.chance(1, kNew)) {
    const Draft from = choices::draft_of(*problem);
    if (dice.chance(1, 3) && !from.sizes.empty()) return nudged(from, dice);
    if (Drawer* drawer = drawer_of(from.group())) {
      drawer->dice() = Dice(dice.next());
      if (auto changed = drawer->changed(from, 1 + dice.below(3))) return std::move(changed->problem);
    }
  }
  if (search().groups.empty()) return {};
  Drawer* drawer = drawer_of(dice.pick(search().groups));
  if (!drawer) return {};
  drawer->dice() = Dice(dice.next());
  auto drawn = drawer->line();
  return drawn ? std::optional(std::move(drawn->problem)) : std::nullopt;
}

// Takes the words of this program out of the command line, which libFuzzer then reads.
void read_words(int& count, char** words) {
  Search& s = search();
  std::string subject = "host", plugin;
  const std::pair<std::string_view, std::function<void(const std::string&)>> known[] = {
      {"--subject=", [&](const std::string& v) { subject = v; }},
      {"--plugin=", [&](const std::string& v) { plugin = v; }},
      {"--only=", [&](const std::string& v) { s.only = v; }},
      {"--new=", [&](const std::string& v) { s.failed_folder = v; }},
      {"--most=", [&](const std::string& v) {
         const auto most = parse_integer<int64_t>(v);
         if (!most || *most < 1) refuse("--most: expected a number of elements, found '" + v + "'");
         s.most = *most;
       }}};
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    bool mine = false;
    for (const auto& [name, take] : known)
      if (word.starts_with(name)) mine = true, take(std::string(word.substr(name.size())));
    if (!mine) words[kept++] = words[i];
  }
  count = kept;
  s.subjects.owned.push_back(make_reference_subject());
  s.subjects.owned.push_back(make_host_subject());
  if (!plugin.empty()) {
    auto made = make_plugin_subject(plugin, nullptr);
    if (!made) refuse(made.error().text());
    s.subjects.owned.push_back(std::move(*made));
    if (const Support present = s.subjects.owned.back()->present(); !present.yes) refuse(present.why);
  }
  // A plugin's name is that of its file, and the library that counts edges is another file.
  s.subject = plugin.empty() ? s.subjects.find(subject) : s.subjects.owned.back().get();
  if (!s.subject) refuse("no subject '" + subject + "'");
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  read_words(*count, *words);
  Search& s = search();
  s.settings.subjects = {std::string(s.subject->name())};
  s.settings.in_process = true;
  for (const std::string& group : choices::all_groups())
    if (group.find(s.only) != std::string::npos) s.groups.push_back(group);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Dice dice(seed);
  constexpr int kTries = 24;  // a subject of narrow support runs few of the lines
  for (int tries = 0; tries < kTries; ++tries) {
    const auto next = mutated({reinterpret_cast<const char*>(data), size}, dice);
    if (!next || !search().subject->supports(*next).yes) continue;
    const std::string line = to_line(*next);
    if (line.size() > most) continue;
    std::memcpy(data, line.data(), line.size());
    return line.size();
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  const auto problem = parse_line(line);
  Search& s = search();
  // A line that the hunt gave may be one of the larger ones (choices/draw.h).
  if (!problem || choices::largest_tensor(*problem) > choices::kLarger * s.most ||
      !s.subject->supports(*problem).yes)
    return 0;
  SuiteEntry entry = entry_of(*problem);
  entry.expect.trust = "drawn at random";
  run_cases({&entry, 1}, s.subjects, s.settings, [&](const CaseResult& r) {
    if (!is_red(r.verdicts.front().outcome) || s.failed_folder.empty()) return;
    const std::string name = "failed-" + std::to_string(std::hash<std::string>()(line));
    write_file(s.failed_folder + "/" + name, line);
  });
  return 0;
}

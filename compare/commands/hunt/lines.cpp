#include "compare/commands/hunt/lines.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "compare/choices/choices.h"
#include "compare/choices/data.h"
#include "compare/choices/tensors.h"
#include "compare/choices/values.h"
#include "contract/line.h"
#include "contract/tracer.h"

namespace assay::hunting {

using choices::choices_of;
using choices::Dice;
using choices::Draft;
using choices::draft_of;
using choices::Drawer;
using choices::GroupChoices;

namespace {

constexpr size_t kCandidates = 4;       // of which the one with the most new pairs is taken
constexpr size_t kMostKept = 256;       // lines of a group to change
constexpr size_t kMostTrouble = 64;     // lines near trouble
constexpr size_t kLinesPerLarger = 24;  // a larger line takes as long as a dozen others
constexpr size_t kLinesPerData = 16;    // with the data of an earlier line changed
constexpr int64_t kLong = 4096;         // elements of a row that a block of threads may take at once
constexpr size_t kFewTries = 24;        // after which a group without a supported line is rarely tried
constexpr size_t kFewOf = 4;            // a subject that runs fewer than one line in so many runs few of them

}  // namespace

Lines::Lines(uint64_t seed, int64_t most_elements, const std::string& only)
    : seed_(seed), most_(most_elements) {
  for (const std::string& group : choices::all_groups()) {
    if (group.find(only) == std::string::npos) continue;
    Drawer drawer(
        group, most_elements, [](const Problem&) { return true; }, seed, choices::Aim::failures);
    if (drawer.any()) drawers_.emplace(group, std::move(drawer));
  }
}

// The draft with sides of 64, or as much of that as the limit leaves; with its own sizes where the op does
// not take those.
std::optional<Problem> Lines::square(const Draft& draft) const {
  const auto fitting = [&](const Draft& d) {
    const Result<Problem> p = parse_line(d.text());
    return p && choices::largest_tensor(*p) <= most_ ? std::optional(*p) : std::nullopt;
  };
  Draft d = draft;
  for (int64_t side = 64; side > 0 && d.op != "split" && d.op != "attention"; side /= 2) {
    for (size_t i = 0; i < d.sizes.size(); ++i)  // those of a philox and of a scale_chain are fixed
      d.sizes[i] = draft.sizes[i] == 4 || draft.sizes[i] == 2 ? draft.sizes[i] : side;
    if (auto p = fitting(d)) return p;
    if (!parse_line(d.text())) break;
  }
  return fitting(draft);
}

std::vector<Problem> Lines::first() const {
  std::vector<Problem> out;
  for (const auto& [group, drawer] : drawers_)
    for (const char* dir : {"", "row", "col", "both"})
      for (const char* source : {"", "f32", "bf16", "f16"}) {
        Draft d = drawer.plain();
        if (*dir) d.keys["dir"] = dir;
        if (*source && d.op != "gemm") d.source = source;
        const std::optional<Problem> p = square(d);
        if (p && std::find(out.begin(), out.end(), *p) == out.end()) out.push_back(*p);
      }
  return out;
}

// The draft's own line, and those with one choice of a key. Fills and seeds say nothing of what a subject
// runs.
void Lines::add_single_choices(const Draft& draft, std::vector<Problem>& out) const {
  const std::optional<Problem> own = square(draft);
  if (!own) return;
  out.push_back(*own);
  std::set<std::string_view> seen;
  for (const KeyValue& v : key_values(*own)) {
    const KeyInfo* key = choices::key_of(draft.op, v.name);
    if (!key || v.name == "fill" || v.name == "seed" || !seen.insert(v.name).second) continue;
    for (const choices::ValueClass& c : choices::classes_of(*key)) {
      Draft d = draft;
      d.keys[std::string(v.name)] = c.values.front();
      if (auto p = square(d); p && *p != *own) out.push_back(*std::move(p));
    }
  }
}

std::vector<Problem> Lines::near_plain() {
  std::vector<Problem> out;
  for (auto& [group, drawer] : drawers_) {
    for (const char* dir : {"", "row", "col"}) {
      Draft d = drawer.plain();
      if (*dir) d.keys["dir"] = dir;
      add_single_choices(d, out);
    }
    for (const std::string& choice : drawer.positional_choices())
      if (choice.find(" format=") != std::string::npos)
        if (const auto pair = drawer.with(drawer.plain(), {choices::wish_of(choice)}))
          add_single_choices(pair->draft, out);
  }
  return out;
}

std::vector<Problem> Lines::with_words(const std::string& words) const {
  std::vector<Problem> out;
  const Shape sizes[] = {{64, 64}, {32, 128}, {160, 24}, {24, 160}, {33, 40}};
  for (Shape size : sizes) {
    while (size.count() > most_)
      size = {std::max<int64_t>(size.rows / 2, 1), std::max<int64_t>(size.cols / 2, 1)};
    for (size_t space = words.find(' '); space != std::string::npos; space = words.find(' ', space + 1)) {
      const Result<Problem> p = parse_line(
          fmt::format("{} {}x{}{}", words.substr(0, space), size.rows, size.cols, words.substr(space)));
      if (!p || !drawers_.contains(draft_of(*p).group())) continue;
      if (std::find(out.begin(), out.end(), *p) == out.end()) out.push_back(*p);
      break;
    }
  }
  return out;
}

// With one more choice of a larger line: where it is long.
std::vector<GroupChoices> Lines::choices(const Problem& p) const {
  std::vector<GroupChoices> out = choices_of(p);
  const Shape size = p.x.shape;
  if (size.count() <= most_) return out;
  const char* shape = size.cols > kLong   ? "larger=rows"
                      : size.rows > kLong ? "larger=columns"
                                          : "larger=tiles";
  for (GroupChoices& own : out) own.choices.emplace(own.choices.begin() + own.working++, shape);
  return out;
}

size_t Lines::fresh(const Problem& p) {
  size_t count = 0;
  for (const GroupChoices& own : choices(p)) {
    Group& group = groups_[own.group];
    count += group.planned.fresh(group.names.numbers(own));
  }
  return count;
}

void Lines::plan(const Problem& p) {
  for (const GroupChoices& own : choices(p)) {
    Group& group = groups_[own.group];
    group.planned.add(group.names.numbers(own));
  }
}

// Most often a group of which the subject runs some line.
std::string Lines::pick_group(Dice& dice) const {
  std::vector<const std::string*> open, all;
  for (const auto& [name, drawer] : drawers_) {
    all.push_back(&name);
    const auto known = groups_.find(name);
    const bool closed =
        known != groups_.end() && known->second.tried >= kFewTries && known->second.supported == 0;
    if (!closed) open.push_back(&name);
  }
  return *(open.empty() || dice.chance(1, 50) ? dice.pick(all) : dice.pick(open));
}

std::optional<Problem> Lines::candidate(Dice& dice) {
  const std::string name = pick_group(dice);
  Group& group = groups_[name];
  // A subject that runs few of the lines at random is asked for its own lines with one thing changed.
  const bool narrow = group.tried >= kFewTries && group.supported * kFewOf < group.tried;
  std::optional<Draft> from;
  if (!trouble_.empty() && dice.chance(1, 8)) from = dice.pick(trouble_);
  else if (!group.kept.empty() && dice.chance(narrow ? 7 : 2, 8)) from = dice.pick(group.kept);
  if (!from) {
    const auto drawn = drawers_.at(name).line();
    return drawn ? std::optional(drawn->problem) : std::nullopt;
  }
  const auto drawer = drawers_.find(from->group());
  if (drawer == drawers_.end()) return {};
  const auto changed = drawer->second.changed(*from, 1 + dice.below(3));
  return changed ? std::optional(changed->problem) : std::nullopt;
}

// A line that the subject runs, with more elements.
std::optional<Problem> Lines::larger(Dice& dice) {
  const std::string name = pick_group(dice);
  const std::vector<Draft>& kept = groups_[name].kept;
  if (kept.empty()) return {};
  const auto drawn = drawers_.at(name).larger(dice.pick(kept));
  return drawn ? std::optional(drawn->problem) : std::nullopt;
}

// An earlier line with a few elements changed, as often one near trouble as one that was kept. Its pairs are
// those of the earlier line, so that it is no candidate beside others.
std::optional<Problem> Lines::other_data(Dice& dice) {
  constexpr size_t kTries = 4;  // many lines are too large
  for (size_t i = 0; i < kTries; ++i) {
    const std::vector<Draft>* from = &groups_[pick_group(dice)].kept;
    if (!trouble_.empty() && dice.chance(1, 2)) from = &trouble_;
    if (from->empty()) continue;
    const Result<Problem> p = parse_line(dice.pick(*from).text());
    if (!p || choices::largest_tensor(*p) > most_) continue;
    if (auto changed = choices::with_other_data(*p, dice)) return changed;
  }
  return {};
}

// Of several lines that `draw` gives the one with the most new pairs.
std::optional<Problem> Lines::freshest(const std::function<std::optional<Problem>()>& draw) {
  std::optional<Problem> best;
  size_t most = 0;
  for (size_t i = 0; i < kCandidates; ++i) {
    std::optional<Problem> p = draw();
    if (!p) continue;
    const size_t count = fresh(*p);
    if (!best || count > most) best = std::move(p), most = count;
  }
  return best;
}

std::vector<Problem> Lines::batch(uint64_t n, size_t lines) {
  Dice dice(choices::seed_of(seed_, fmt::format("batch {}", n)));
  for (auto& [name, drawer] : drawers_)
    drawer.dice() = Dice(choices::seed_of(seed_, fmt::format("{} {}", name, n)));
  for (auto& [name, group] : groups_) group.planned = group.covered;
  std::vector<Problem> out;
  if (drawers_.empty()) return out;
  for (size_t tries = 0; out.size() < lines && tries < 20 * lines; ++tries) {
    std::optional<Problem> best;
    if (dice.chance(1, kLinesPerLarger)) best = freshest([&] { return larger(dice); });
    if (!best && dice.chance(1, kLinesPerData)) best = other_data(dice);
    if (!best) best = freshest([&] { return candidate(dice); });
    if (!best) continue;
    plan(*best);
    out.push_back(std::move(*best));
  }
  return out;
}

// Where there are many, a line that reached a rounding case or a code takes the place of an older one.
void Lines::keep(Group& group, const Draft& d, bool replaces) {
  if (group.kept.size() < kMostKept) group.kept.push_back(d);
  else if (replaces) group.kept[group.replaced++ % kMostKept] = d;
}

void Lines::know(const Problem& p) {
  const bool reaches = new_values(p);
  const Draft d = draft_of(p);
  keep(groups_[d.group()], d, reaches);
  cover(p, true);
}

// The first lines of a hunt have asked about every group. Where no line of a group was kept, the subject ran
// none of them. A subject that ran few of all lines runs few of each group.
void Lines::go_on(size_t judged, size_t unsupported) {
  const bool few = judged * kFewOf < judged + unsupported;
  for (const auto& [name, drawer] : drawers_) {
    Group& group = groups_[name];
    if (group.supported == 0) group.tried = kFewTries;
    else if (few) group.tried = std::max(kFewTries, kFewOf * group.supported + 1);
  }
}

// Counts a line, and returns how many new pairs it has.
size_t Lines::cover(const Problem& p, bool ran) {
  size_t added = 0;
  for (const GroupChoices& own : choices(p)) {
    Group& group = groups_[own.group];
    ++group.tried;
    if (!ran) continue;
    ++group.supported;
    const size_t of_group = group.covered.add(group.names.numbers(own));
    group.pairs += of_group, added += of_group;
  }
  pairs_ += added;
  return added;
}

// Whether a line is the first to reach a rounding case or to have a code. It is asked about both.
bool Lines::new_values(const Problem& p) {
  const bool reaches = cases_ && cases_->look(p) > 0;
  const bool has_code = codes_ && codes_->look(p) > 0;
  return reaches || has_code;
}

std::vector<Lines::Covered> Lines::covered() const {
  std::vector<Covered> out;
  for (const auto& [name, group] : groups_)
    if (group.supported > 0)
      out.push_back({name, group.supported, group.pairs, codes_ ? codes_->count(name) : 0});
  return out;
}

void Lines::look_at_values(Subject& reference) {
  codes_.emplace(reference);
  if (!dynamic_cast<Tracing*>(&reference)) return;
  std::vector<std::string_view> groups;
  for (const auto& [name, drawer] : drawers_) groups.push_back(name);
  cases_.emplace(reference, groups);
}

void Lines::near_trouble(const Problem& p) {
  if (trouble_.size() == kMostTrouble) trouble_.erase(trouble_.begin());
  trouble_.push_back(draft_of(p));
}

bool Lines::told(const Problem& p, Fate fate) {
  const size_t added = cover(p, fate != Fate::unsupported);
  const bool safe = fate == Fate::quiet || fate == Fate::near_trouble;
  const bool reaches = safe && new_values(p);
  const Draft d = draft_of(p);
  if (added || reaches) keep(groups_[d.group()], d, reaches);
  if (fate == Fate::near_trouble || fate == Fate::crashed) near_trouble(p);
  return added || reaches;
}

}  // namespace assay::hunting

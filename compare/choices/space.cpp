#include "compare/choices/space.h"

#include <algorithm>
#include <span>
#include <utility>

#include "compare/choices/choices.h"
#include "compare/choices/values.h"
#include "compare/process/last_words.h"
#include "compare/process/pool.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay::choices {

using std::string;

namespace {

const GroupChoices* choices_in(const std::vector<GroupChoices>& all, const string& group) {
  for (const GroupChoices& own : all)
    if (own.group == group) return &own;
  return nullptr;
}

// The search in one group.
class Search {
 public:
  Search(const string& group, const SpaceOptions& options)
      : group_(group),
        options_(options),
        drawer_(
            group, options.most, options.accepts ? options.accepts : [](const Problem&) { return true; },
            options.seed) {}

  // Lines that show every pair that was found.
  std::vector<string> run() {
    if (!drawer_.any()) return {};
    for (size_t i = 0; i < options_.random_lines; ++i) take(drawer_.line());
    find_choices();
    find_pairs();
    return found_.lines;
  }

 private:
  bool take(const std::optional<Drawn>& drawn) {
    if (!drawn) return false;
    const std::vector<GroupChoices> all = choices_of(drawn->problem);
    const GroupChoices* own = choices_in(all, group_);
    if (!own || !found_.add(*own, drawn->draft.text())) return false;
    const Numbered line = found_.names.numbers(*own);
    contexts_.resize(found_.names.size());
    for (int n : line.numbers) {
      std::vector<Draft>& known = contexts_[static_cast<size_t>(n)];
      // Pairs are made of contexts, and a line without some of its elements exercises few.
      const bool helps = line.idle == 0 || is_idle(found_.names.name(n)) || known.empty();
      if (helps && known.size() < kContexts) known.push_back(smallest(drawn->draft, found_.names.name(n)));
    }
    return true;
  }

  // The draft without the keys that this choice does not need.
  Draft smallest(Draft draft, const string& choice) {
    const auto holds = [&](const Draft& d) {
      const Result<Problem> p = parse_line(d.text());
      if (!p || (options_.accepts && !options_.accepts(*p))) return false;
      const std::vector<GroupChoices> all = choices_of(*p);
      const GroupChoices* own = choices_in(all, group_);
      return own && std::find(own->choices.begin(), own->choices.end(), choice) != own->choices.end();
    };
    Draft bare = draft;
    bare.keys.clear();
    if (holds(bare)) return bare;
    const auto keys = draft.keys;
    for (const auto& [key, value] : keys) {
      Draft shorter = draft;
      shorter.keys.erase(key);
      if (holds(shorter)) draft = std::move(shorter);
    }
    return draft;
  }

  // Every class of every key that was met, and of sizes, sources and partners: single choices that no random
  // line has.
  void find_choices() {
    std::vector<string> wanted = drawer_.positional_choices();
    const string op = group_.substr(0, group_.find(' '));
    for (size_t i = 0; i < found_.names.size(); ++i) {
      const string word = key_of_choice(found_.names.name(static_cast<int>(i)));
      const KeyInfo* key = key_of(op, word.substr(word.find('.') + 1));
      if (!key) continue;
      for (const ValueClass& c : classes_of(*key)) {
        string choice = concat({word, "=", c.name});
        if (std::find(wanted.begin(), wanted.end(), choice) == wanted.end())
          wanted.push_back(std::move(choice));
      }
    }
    for (const string& choice : wanted)
      for (int i = 0; i < 2 * options_.tries && found_.names.find(choice) < 0; ++i)
        take(drawer_.with(i % 3 == 2 ? sibling(choice)
                          : i % 3    ? plain_line()
                                     : drawer_.plain(),
                          {wish_of(choice)}));
  }

  // A line in which another value of the same key applies.
  Draft sibling(const string& choice) {
    const string key = key_of_choice(choice);
    for (size_t i = 0; i < contexts_.size(); ++i)
      if (key_of_choice(found_.names.name(static_cast<int>(i))) == key && !contexts_[i].empty())
        return drawer_.dice().pick(contexts_[i]);
    return drawer_.plain();
  }

  Draft plain_line() {
    const std::optional<Drawn> drawn = drawer_.line();
    return drawn ? drawn->draft : drawer_.plain();
  }

  void find_pairs() {
    for (size_t a = 0; a < found_.names.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        const int one = static_cast<int>(a), other = static_cast<int>(b);
        if (found_.names.same_key(one, other)) continue;
        for (int i = 0; i < options_.tries && !found_.valid.has(one, other); ++i) attempt(one, other, i);
      }
  }

  // A line with both: the joined contexts of the two choices, or one of them in a random line.
  void attempt(int one, int other, int round) {
    const auto& ones = contexts_[static_cast<size_t>(one)];
    const auto& others = contexts_[static_cast<size_t>(other)];
    Dice& dice = drawer_.dice();
    Draft base = round % 4 == 3 ? plain_line() : dice.pick(round % 2 ? others : ones);
    const Draft& added = dice.pick(round % 2 ? ones : others);
    for (const auto& [key, value] : added.keys) base.keys.insert_or_assign(key, value);
    if (round % 4 == 2) base.source = added.source, base.sizes = added.sizes;
    if (!added.second.empty() && base.second.empty()) base.format = added.format, base.second = added.second;
    const string &first = found_.names.name(one), &second = found_.names.name(other);
    if (!is_idle(first) && !is_idle(second)) drawer_.fill(base);
    take(drawer_.with(std::move(base), {wish_of(first), wish_of(second)}));
  }

  static constexpr size_t kContexts = 4;
  const string group_;
  const SpaceOptions& options_;
  Drawer drawer_;
  GroupSpace found_;
  std::vector<std::vector<Draft>> contexts_;  // of each choice
};

// One text out of lines, and back: what a worker sends.
string joined(const std::vector<string>& lines) {
  string out;
  for (const string& line : lines) out += line + "\n";
  return out;
}
std::vector<string> split_lines(const string& text) {
  std::vector<string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// `work` for each of `count` groups in worker processes, `take` with the lines of each in order. Returns how
// many that were: fewer than `count` where an interrupt ended it. Where a worker dies, it throws an error
// that names the line about which a subject was asked.
size_t in_workers(size_t count, const SpaceOptions& options,
                  const std::function<std::vector<string>(size_t, const SpaceOptions&)>& work,
                  const std::function<void(std::vector<string>)>& take) {
  constexpr double kLongest = 3600;
  constexpr std::string_view kEnded = "ended: ";  // no line begins so
  LastWords asked(count);
  TaskHooks hooks;
  hooks.task = [&](size_t i) {
    SpaceOptions own = options;
    if (options.accepts)
      own.accepts = [&](const Problem& p) {
        asked.say(i, to_line(p));
        const bool yes = options.accepts(p);
        asked.say(i, "");
        return yes;
      };
    return joined(work(i, own));
  };
  hooks.crashed = [&](const string& why) { return concat({kEnded, why}); };
  size_t done = 0;
  if (options.on_progress) options.on_progress(0, count);
  hooks.result = [&](size_t i, const string& text) {
    if (text.starts_with(kEnded)) {
      const string line = asked.of(i);
      throw std::runtime_error(
          concat({"a worker of the search ended", line.empty() ? "" : " when it was asked whether it runs '",
                  line, line.empty() ? "" : "'", ": ", text.substr(kEnded.size())}));
    }
    take(split_lines(text));
    if (options.on_progress) options.on_progress(++done, count);
    return true;
  };
  return run_tasks(count, options.jobs, kLongest, std::move(hooks));
}

// The lines that fill one group, one after the other.
class Filling {
 public:
  Filling(const string& group, const GroupSpace& space, const Pairs* done, const SpaceOptions& options)
      : group_(group),
        space_(space),
        names_(space.names),
        done_(done ? *done : Pairs()),
        drawer_(
            group, options.most, options.accepts ? options.accepts : [](const Problem&) { return true; },
            options.seed) {}

  std::vector<string> run(int candidates) {
    std::vector<std::pair<int, int>> left;
    space_.valid.each_beyond(done_, names_.size(), [&](int a, int b) { left.emplace_back(a, b); });
    std::vector<string> out;
    for (const auto& [a, b] : left) {
      if (done_.has(a, b)) continue;
      out.push_back(best(a, b, candidates));
    }
    return out;
  }

 private:
  // The line with both choices that has the most pairs that are left.
  string best(int a, int b, int candidates) {
    const string& shown = space_.lines[space_.shown_by.at(GroupSpace::pair_key(a, b))];
    const std::vector<Wish> both = {wish_of(names_.name(a)), wish_of(names_.name(b))};
    const Draft base = smallest(draft_of(*parse_line(shown)), a, b);
    string line = shown;
    Numbered chosen = numbers_of(*parse_line(shown));
    size_t most = done_.missing(chosen, space_.valid);
    for (int i = 0; i < candidates; ++i) {
      const auto drawn = drawer_.with(base, both, others(a, b));
      if (!drawn) continue;
      Numbered numbers = numbers_of(drawn->problem);
      if (!numbers.exercises(a, b)) continue;
      const size_t missing = done_.missing(numbers, space_.valid);
      if (missing <= most) continue;
      most = missing, chosen = std::move(numbers), line = drawn->draft.text();
    }
    done_.add(chosen);
    return line;
  }

  // The draft without the keys that this pair does not need.
  Draft smallest(Draft draft, int a, int b) {
    const auto keys = draft.keys;
    for (const auto& [key, value] : keys) {
      Draft shorter = draft;
      shorter.keys.erase(key);
      const Result<Problem> p = parse_line(shorter.text());
      if (p && numbers_of(*p).exercises(a, b)) draft = std::move(shorter);
    }
    return draft;
  }

  // For every other key, in random order but those first that decide which keys apply, the class that has the
  // most pairs left with what is chosen before it. Elements are left out only for a pair that asks for it,
  // because such a line exercises few others.
  std::vector<Wish> others(int a, int b) {
    std::map<string, std::vector<int>> classes;
    for (size_t i = 0; i < names_.size(); ++i)
      classes[key_of_choice(names_.name(static_cast<int>(i)))].push_back(static_cast<int>(i));
    std::vector<const std::vector<int>*> order;
    for (const auto& [key, list] : classes) order.push_back(&list);
    Dice& dice = drawer_.dice();
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[dice.below(i)]);
    std::stable_partition(order.begin(), order.end(), [&](const auto* list) {
      const string key = key_of_choice(names_.name(list->front()));
      return key == "dir" || key.ends_with(" format");
    });
    std::vector<int> chosen = {a, b};
    const bool idle = is_idle(names_.name(a)) || is_idle(names_.name(b));
    std::vector<Wish> out;
    for (const std::vector<int>* list : order) {
      if (names_.same_key(list->front(), a) || names_.same_key(list->front(), b)) continue;
      int best = -1;
      size_t most = 0;
      for (int n : *list) {
        if (!idle && is_idle(names_.name(n))) continue;
        size_t gain = 1;
        for (int c : chosen) {
          const bool exercised = !idle || is_idle(names_.name(c)) || is_idle(names_.name(n));
          gain += exercised && space_.valid.has(c, n) && !done_.has(c, n) ? 8 : 0;
        }
        gain += dice.below(8);
        if (gain > most) most = gain, best = n;
      }
      if (best < 0) continue;
      chosen.push_back(best);
      out.push_back(wish_of(names_.name(best)));
    }
    return out;
  }

  Numbered numbers_of(const Problem& p) {
    for (const GroupChoices& own : choices_of(p))
      if (own.group == group_) return names_.numbers(own);
    return {};
  }

  const string group_;
  const GroupSpace& space_;
  Names names_;
  Pairs done_;
  Drawer drawer_;
};

}  // namespace

bool GroupSpace::add(const GroupChoices& choices, const string& line) {
  bool any = false;
  names.numbers(choices).each_pair([&](int a, int b) {
    if (!valid.add(a, b)) return;
    any = true;
    shown_by.emplace(pair_key(a, b), static_cast<uint32_t>(lines.size()));
  });
  if (any) lines.push_back(line);
  return any;
}

Space find_space(const SpaceOptions& options) {
  std::vector<string> groups = all_groups();
  const auto wanted = [&](const string& group) { return group.find(options.only) != string::npos; };
  std::erase_if(groups, [&](const string& g) { return !wanted(g); });
  Space out;
  const size_t searched = in_workers(
      groups.size(), options, [&](size_t i, const SpaceOptions& own) { return Search(groups[i], own).run(); },
      [&](const std::vector<string>& lines) {
        for (const string& line : lines)
          if (const Result<Problem> p = parse_line(line))
            for (const GroupChoices& own : choices_of(*p))
              if (wanted(own.group)) out[own.group].add(own, line);
      });
  // What an interrupt left out is known by lines of the others alone.
  for (size_t i = searched; i < groups.size(); ++i) out.erase(groups[i]);
  return out;
}

Exercised exercise(Space& space, std::span<const Problem> lines) {
  Exercised out;
  for (const Problem& p : lines)
    for (const GroupChoices& own : choices_of(p)) {
      const auto at = space.find(own.group);
      if (at == space.end()) continue;
      GroupSpace& group = at->second;
      group.add(own, to_line(p));
      out[own.group].add(group.names.numbers(own));
    }
  return out;
}

std::vector<string> lines_for(const Space& space, const Exercised& done, const SpaceOptions& options,
                              int candidates) {
  std::vector<std::pair<string, const GroupSpace*>> groups;
  for (const auto& [name, group] : space) groups.emplace_back(name, &group);
  std::vector<string> all;
  in_workers(
      groups.size(), options,
      [&](size_t i, const SpaceOptions& to_ask) {
        const auto& [name, group] = groups[i];
        const auto own = done.find(name);
        return Filling(name, *group, own == done.end() ? nullptr : &own->second, to_ask).run(candidates);
      },
      [&](const std::vector<string>& lines) { all.insert(all.end(), lines.begin(), lines.end()); });
  // A line of two formats fills both groups, so that some lines of the later one are not needed.
  Space counted = space;
  Exercised have = done;
  std::vector<string> out;
  for (const string& line : all) {
    bool any = false;
    for (const GroupChoices& own : choices_of(*parse_line(line)))
      if (const auto at = counted.find(own.group); at != counted.end())
        any |= have[own.group].add(at->second.names.numbers(own)) > 0;
    if (any) out.push_back(line);
  }
  return out;
}

}  // namespace assay::choices

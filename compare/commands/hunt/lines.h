// The lines of a hunt, batch by batch. Batch n depends on the seed, on n, and on what the batches before it
// gave, and on nothing else: not on the time, nor on the number of workers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/choices/draw.h"
#include "compare/choices/pairs.h"
#include "compare/commands/hunt/codes.h"
#include "compare/commands/hunt/rounding.h"
#include "contract/problem.h"

namespace assay::hunting {

// What became of a line, as far as it guides the search.
enum class Fate : uint8_t {
  unsupported,
  quiet,
  near_trouble,  // it failed, or its bits differ in a bound
  crashed        // near trouble as well, and not to be run by this process
};

class Lines {
 public:
  // No tensor of a line that is drawn has more than `most_elements`, but for the larger ones of a batch.
  Lines(uint64_t seed, int64_t most_elements, const std::string& only);

  // From here on lines that have a new code on this reference are kept as well, and, if it can trace, those
  // that reach a new rounding case.
  void look_at_values(Subject& reference);
  // First of all, for every op with a format, the plain lines that subjects of narrow support may run.
  std::vector<Problem> first() const;
  // For a subject that runs none of those: the plain lines, also of two formats, with one choice of a key.
  std::vector<Problem> near_plain();
  // Lines with the words of a subject (Subject::own_words) in several sizes; none where they name no line, or
  // one of no group of this search.
  std::vector<Problem> with_words(const std::string& words) const;
  // The lines of batch n. Each is the one of several candidates with the most new pairs of choices; a third
  // of the candidates are earlier lines with one to three things changed, those near trouble before others.
  // One line in 24 has larger sizes: the one of several that is long where its choices were not yet. One in
  // 16 is an earlier line with other data.
  std::vector<Problem> batch(uint64_t n, size_t lines);
  // A line that the user gave to begin from, or that an earlier hunt kept.
  void know(const Problem&);
  // After the lines that an earlier hunt kept: how many lines it judged, and how many the subject did not
  // run.
  void go_on(size_t judged, size_t unsupported);
  // A line that failed in an earlier run.
  void near_trouble(const Problem&);
  // What became of a line. Returns whether it ran and had new pairs, or was the first to reach a rounding
  // case or to have a code: such lines are kept.
  bool told(const Problem&, Fate);

  size_t pairs() const { return pairs_; }  // exercised so far
  const std::optional<RoundingCases>& cases() const { return cases_; }
  const std::optional<Codes>& codes() const { return codes_; }
  size_t groups() const { return drawers_.size(); }
  // What the lines of an op with a format have covered.
  struct Covered {
    std::string group;  // "quantize mxfp8"
    size_t lines = 0;   // that ran, with those of two formats, and those that an earlier run kept
    size_t pairs = 0, codes = 0;
  };
  // Of each of which the subject has run a line.
  std::vector<Covered> covered() const;

 private:
  struct Group {
    choices::Names names;
    choices::Pairs covered, planned;  // planned: with those of the batch that is being made
    size_t tried = 0, supported = 0, pairs = 0;
    std::vector<choices::Draft> kept;
    size_t replaced = 0;  // of the kept lines
  };
  static void keep(Group&, const choices::Draft&, bool replaces);
  size_t cover(const Problem&, bool ran);
  bool new_values(const Problem&);
  std::optional<Problem> square(const choices::Draft&) const;
  void add_single_choices(const choices::Draft&, std::vector<Problem>& out) const;
  std::vector<choices::GroupChoices> choices(const Problem&) const;
  size_t fresh(const Problem&);
  void plan(const Problem&);
  std::string pick_group(choices::Dice&) const;
  std::optional<Problem> candidate(choices::Dice&);
  std::optional<Problem> freshest(const std::function<std::optional<Problem>()>& draw);
  std::optional<Problem> larger(choices::Dice&);
  std::optional<Problem> other_data(choices::Dice&);

  std::map<std::string, choices::Drawer> drawers_;
  std::map<std::string, Group> groups_;
  std::vector<choices::Draft> trouble_;
  std::optional<RoundingCases> cases_;
  std::optional<Codes> codes_;
  uint64_t seed_;
  int64_t most_;
  size_t pairs_ = 0;
};

}  // namespace assay::hunting

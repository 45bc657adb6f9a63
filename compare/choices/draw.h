// Lines at random, of one op and format: keys, values, sizes, sources and partners are drawn, the parser is
// asked, and what it refuses is taken out again until it accepts. Sizes are biased to tails, primes and the
// borders of tiles; what else is drawn often depends on what the lines are for.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compare/choices/dice.h"
#include "compare/choices/draft.h"
#include "contract/line.h"
#include "contract/problem.h"
#include "contract/result.h"

namespace assay::choices {

// Whether a line that the parser accepts is wanted: all are, or those that a subject runs.
using Accepts = std::function<bool(const Problem&)>;

struct Drawn {
  Draft draft;
  Problem problem;
};

// A choice that a line must have, as choices_of names it: {"row.round", "sr"}, {"rows", "tail"}.
using Wish = std::pair<std::string, std::string>;
Wish wish_of(const std::string& choice);

// Every op with every format or encoding that it may name: "quantize mxfp8", "cast e4m3"; also those that no
// line has.
std::vector<std::string> all_groups();
// Why `--only TEXT` chooses none of them: no name contains the text.
std::optional<Error> cannot_choose(const std::string& text);

// Tensors of more elements are drawn by no command.
inline constexpr int kMostElements = 1 << 30;

// How many times as many elements a larger line has at most.
inline constexpr int64_t kLarger = 16;

// What lines are drawn for.
enum class Aim : uint8_t {
  pairs,    // pairs of choices: every class of sizes and every fill is as likely as the others
  failures  // one line in twelve leaves elements out (idle_choices), and most fills are such that values meet
            // borders
};

class Drawer {
 public:
  // `most`: elements of x, and of the operands and the result of a gemm, whose products are at most 16 times
  // that. For failures: of every tensor of the line (largest_tensor).
  Drawer(const std::string& group, int64_t most, Accepts accepts, uint64_t seed, Aim aim = Aim::pairs);
  // Whether any line of this group is accepted.
  bool any() const { return !sources_.empty(); }

  // A line with many or few keys.
  std::optional<Drawn> line();
  // The draft with these choices, and without what the parser refuses beside them. Nothing where no try was
  // accepted; the caller may try again. Of `also` it has as many as the parser takes.
  std::optional<Drawn> with(Draft draft, const std::vector<Wish>& wishes, const std::vector<Wish>& also = {});
  // The draft with another value of one of its keys, or with other sizes or another source. Data in the line
  // that do not fit what has changed are left out.
  std::optional<Drawn> changed(const Draft& draft);
  // The same up to `steps` times, each on what the one before gave. Nothing where none was accepted.
  std::optional<Drawn> changed(const Draft& draft, size_t steps);
  // The draft with sizes of more elements than `most`, up to kLarger times as many: where rows are longer
  // than what a block of threads takes at once, and tiles of scales stand beside and below each other.
  // Nothing where that was not accepted.
  std::optional<Drawn> larger(const Draft& draft);
  // Where the draft's sizes or a noop flag leave elements out (idle_choices), it gets other sizes, and no
  // flag.
  void fill(Draft& draft);
  // The plainest draft of the group.
  const Draft& plain() const { return plain_; }
  // Sources, partners and size classes as choices, to be tried beside those of keys.
  std::vector<std::string> positional_choices() const;
  Dice& dice() { return dice_; }

 private:
  std::optional<Drawn> settle(Draft draft, const std::vector<Wish>& wishes);
  void add(Drawn& drawn, std::vector<Wish>& kept, std::span<const Wish> also);
  bool repair(Draft& draft, const std::string& culprit, const std::vector<Wish>& wishes);
  bool put(Draft& draft, const std::vector<Wish>& wishes);
  bool put_key(Draft& draft, const Wish& wish);
  bool wanted(const Problem& p) const;
  void draw_sizes(Draft& draft);
  bool has_good_sizes(const Draft& draft) const;
  void draw_members(Draft& draft);
  void draw_heads(Draft& draft);
  bool draw_sizes_for(Draft& draft, const std::vector<Wish>& wishes);
  std::string draw_value(const KeyInfo& key);
  void name_fill(Drawn& drawn);
  void add_keys(Draft& draft, const Problem& p, std::set<std::string>& decided, size_t eighths);
  int64_t draw_size();
  int64_t draw_small_size();
  std::vector<int64_t> draw_larger_sizes();

  std::string group_, op_, format_;
  int64_t most_;
  Aim aim_ = Aim::pairs;
  bool larger_ = false;  // sizes are being drawn for larger()
  bool empty_ = false;   // for failures: the line that is being drawn is to leave elements out
  Accepts accepts_;
  Dice dice_;
  std::vector<std::string> sources_, seconds_;
  Draft plain_;
};

}  // namespace assay::choices

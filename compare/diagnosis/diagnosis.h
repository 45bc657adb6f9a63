// What `assay explain` finds: one tensor of codes and scales, or several, against what they should be. The
// search is diagnose() (compare/diagnosis/search/diagnose.h); text, page and JSON are made from this alone.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/debug/trace.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"
#include "fixtures/json.h"

namespace assay {

// The stages of a quantizer in causal order: where a difference can begin.
enum class Stage : uint8_t {
  input,
  rht,
  amax,
  tensor_scale,
  block_scale,
  scaled_value,
  code,
  packing,
  layout
};
inline constexpr std::array kStages = {Stage::input,        Stage::rht,         Stage::amax,
                                       Stage::tensor_scale, Stage::block_scale, Stage::scaled_value,
                                       Stage::code,         Stage::packing,     Stage::layout};
std::string_view name_of(Stage);  // "block scale"

// What is known of one stage in one direction.
enum class StageOutcome : uint8_t {
  equal,
  differs,
  unseen,
  follows
};  // unseen: no plane shows it; follows: wrong, as an earlier stage makes it wrong
struct StageVerdict {
  Stage stage = Stage::input;
  Direction direction = Direction::row;
  StageOutcome outcome = StageOutcome::unseen;
  int64_t differ = 0,
          of = 0;    // elements; of codes only those of blocks whose scale agrees (then `of` counts these)
  std::string note;  // "in 509 blocks whose scale agrees"
};

// One plane as it came and as it should be.
struct PlaneSummary {
  std::string plane, encoding;
  int64_t differ = 0, of = 0;
  // Of the elements that differ: how many codes lie between got and want, and in which binade the wanted
  // value lies. Buckets in order; "NaN" where there is no distance.
  std::vector<std::pair<std::string, int64_t>> code_distance, exponent;
  // Of data planes: distance of the scaled value to the nearest tie, in units of the code's step; elements
  // that differ and all elements.
  struct Bucket {
    std::string name;
    int64_t differ = 0, of = 0;
  };
  std::vector<Bucket> tie_distance;
};

// How the differences of one plane lie in the tensor: a grid of tiles, each with the number of elements that
// differ.
struct HeatMap {
  std::string plane;
  int64_t tile_rows = 1, tile_cols = 1;  // elements of the tensor that one tile covers
  int64_t rows = 0, cols = 0;            // tiles; at most 64 each
  std::vector<int64_t> differ, of;       // [rows * cols]
};

// A coordinate that tells where the differences lie: "column % 32 == 31".
struct Coordinate {
  std::string what;
  int64_t differ = 0, differ_of = 0;  // differing elements inside, and in all
  int64_t inside = 0, inside_of = 0;  // elements inside, and in all
};

// The id of the cause where every element agrees and padding that must be 0 holds something (N6.4): no
// hypothesis makes it, for it lies in no element.
inline constexpr std::string_view kUnclearedPadding = "padding.not_cleared";

// Something that would turn the right bytes into the ones that came.
struct Explanation {
  std::vector<std::string> ids;  // of hypotheses, in the order in which they act: one, or two of a pair
  std::string title;             // "E8M0 scale from the floored exponent; ties away from zero"
  Stage stage = Stage::code;     // the first at which it acts
  std::string line;    // the line that makes these bytes, where keys of a line alone say it; empty otherwise
  std::string clause;  // "N17.6"; may be empty
  int64_t agree = 0, of = 0;         // elements of all judged planes that come out as they came
  int64_t repaired = 0, differ = 0;  // of those that differ from what is wanted
  bool exact() const { return agree == of; }
  // Elements that were right and that it would make wrong.
  int64_t made_anew() const { return (of - agree) - (differ - repaired); }
};

enum class Confidence : uint8_t {
  equal,        // nothing differs
  certain,      // one explanation is exact, and no other
  equivalent,   // several are, and this input cannot tell them apart
  partial,      // none is exact; the best one repairs most of the differences, and makes fewer new ones
  unexplained,  // nothing in the library comes near
  random        // two runs of the subject differ: explanations, if there are any, are of the first run
};
std::string_view name_of(Confidence);

struct Diagnosis {
  std::string line;     // the case, as it is judged
  std::string subject;  // who made the bytes: "plugin:mine", "pack step12.safetensors"
  std::string command;  // what shows it again: "assay explain 'quantize ...' --plugin ./libmine.so"
  std::string
      argument;  // Subject::argument(), to be put after other lines; empty where only a pack holds the bytes
  Confidence confidence = Confidence::equal;
  std::optional<bool> deterministic;   // nothing where there is no subject to run again
  std::vector<std::string> unwritten;  // what neither of two runs wrote, as unwritten_text says it; it is
                                       // taken out before anything else is looked at
  std::vector<std::string> runs;       // of two runs that differ: on what the bytes depend
  std::string unpinned;  // N16.13, as unpinned_text says it: then `equal` means inside the bound; empty: bits
                         // are pinned
  std::optional<Stage> first;          // the first stage that differs
  std::optional<Direction> direction;  // the direction it is in
  std::vector<StageVerdict> stages;
  std::vector<PlaneSummary> planes;       // those that were judged, in causal order
  std::optional<HeatMap> heat;            // of the first plane that differs
  std::vector<Coordinate> where;          // the best first; empty: none tells
  std::vector<std::string> fingerprints;  // "the codes are a permutation of the wanted ones", "codes are one
                                          // apart and never larger in magnitude"
  std::vector<Explanation>
      explanations;  // exact ones first (a class of equivalents), then the runners-up by agreement
  std::vector<std::string> separating;  // lines that tell equivalent explanations apart; may be empty
  std::vector<std::string> invisible;   // ids of hypotheses that change nothing on this input
  Trace trace;                          // of the first element that differs: reference against the bytes
  std::string
      reproducer;  // the smallest line that still differs, where the subject can be run or the pack holds x
  bool reproducer_limited = false;            // a limit ended the search for a smaller one
  std::vector<std::string> reproducer_files;  // written by --reproducer: a pack and a C++ program
  bool cut_short = false;  // the budget or the user ended the search: other causes may make the same bytes
  std::string
      part;  // "rows 0..255, columns 1024..2047": all that was searched of a large case; empty: all of it
  int64_t elements = 0;
  int hypotheses = 0, evaluations = 0;  // tried; runs of the reference
  double seconds = 0;

  bool of_padding() const {
    return !explanations.empty() && explanations.front().ids == std::vector{std::string(kUnclearedPadding)};
  }  // every element is right
};

// Stable: docs/reading-a-report.md has the schema; kDiagnosisVersion changes with it.
inline constexpr int kDiagnosisVersion = 1;
json::Value to_json(const Diagnosis&);

// The verdict in a few words: "E8M0 scale from the floored exponent", "Unexplained, and first seen in the
// code".
std::string headline(const Diagnosis&);

}  // namespace assay

// The benchmark of diagnosis: faults of the faulty quantizer (switches.def) on stated lines (cases.inc), and
// how what `diagnose` says of them is judged.
//
// A name is right when it predicts: the exact explanations are replayed on a held-out input, another fill by
// the same line and the same fault, and one is right when all planes come out as the fault makes them there.
// What a title says plays no part.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compare/diagnosis/diagnosis.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"
#include "tests/self/diagnosis/faulty_quantizer.h"

namespace assay {

// later: the second list, which was frozen before any rule was written for it.
enum class CaseKind : uint8_t { single, doubled, outside, later_single, later_doubled };
struct Case {
  std::string_view switches;  // "c_rz", or two joined by '+'
  std::string_view line;
  std::string_view extra{};  // more keys of the line, without seed: "fill=ties"
  CaseKind kind = CaseKind::single;
};
std::string text_of(const Case&);  // the line with its extra keys
std::vector<Case> cases(CaseKind);

// An input on which a fault shows, and what it makes of it.
struct Revealed {
  Problem problem;
  std::vector<PlaneData> inputs, right, wrong;
};
// The first fill seed from `first` on, of `tries`, by which the case's line reveals its fault. `fill`: in
// place of the line's own; `rows` and `cols`: in place of its shape. Nothing where none does.
struct RevealOptions {
  uint64_t first = 1;
  int tries = 400;
  std::optional<FillKind> fill{};
  std::optional<Shape> shape{};
};
std::optional<Revealed> reveal(const Case&, const RevealOptions&, Subject& reference);
// Whether all planes are equal; bytes that stand in the padding of compact scales do not count (N6.4).
bool same_planes(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b);

enum class Found : uint8_t {
  invisible,        // no input was found that shows the fault: does not count
  named,            // the only exact explanation, and right
  in_class,         // a stated class of equivalents holds a right one
  told,             // nothing foretells the bytes, and what has to be said of them is said
  wrong_class,      // a class of which none is right
  wrongly_certain,  // the only exact explanation, and wrong on the held-out input
  partial,          // no exact explanation; some of the difference is explained
  unexplained,
  failed  // diagnose gave an error, or saw no difference
};
std::string_view name_of(Found);

struct Named {
  Case asked;
  std::string line;  // the line that was judged, with its seed
  Found found = Found::invisible;
  bool right_stage =
      false;  // Diagnosis::first lies between the stage of the switch and the first whose plane shows it
  std::optional<Stage> first;
  bool elsewhere = false;  // of a right name: it also holds under another kind of fill
  std::string says;        // the first explanation's title, or the error
  double repaired = 0;     // share of the differing elements that it repairs
  size_t exact = 0;        // exact explanations
  int evaluations = 0;
  double seconds = 0;  // of diagnose alone, CPU time of all threads
  std::string shows;   // "row.scale_inv 12 of 1024, row.data 340 of 32768"
};
Named judge_case(const Case&, Subject& reference, int jobs);

struct Tally {
  int counted = 0, named = 0, in_class = 0, told = 0, wrong_class = 0, wrongly_certain = 0, partial = 0,
      unexplained = 0, failed = 0, right_stage = 0, invisible = 0;
  double seconds = 0;
  void add(const Named&);
  int explained() const { return named + in_class + told; }
};
Tally tally(std::span<const Named>);

}  // namespace assay

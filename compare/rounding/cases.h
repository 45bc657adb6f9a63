// The table of rounding cases, and which of them apply to what. A unit is what is reported on its own: a
// format with its element encoding ("mxfp8 e5m2"; quantize, split, dequantize and scale_chain together), a
// target of the op cast ("cast bf16"), or another op.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compare/rounding/steps.h"

namespace assay::rounding {

using MomentPredicate = bool (*)(const Moment&);
using StepPredicate = bool (*)(const Step&);
using LanePredicate = bool (*)(const Lane&);

// One row of cases.def.
struct Case {
  std::string_view clause, units, step, name, keys, words;
  // One of the three.
  MomentPredicate of_moment = nullptr;
  StepPredicate of_step = nullptr;
  LanePredicate of_lane = nullptr;
};
std::span<const Case> cases();
// "N2.1 code tie_above_odd [round!=rz|sr]": what names a row.
std::string id(const Case&);

// One row of unreachable.def: cases that no line can reach in these units, and why.
struct Unreachable {
  std::string_view clause, name, units, keys, why;
};
std::span<const Unreachable> unreachable();
// A clause without a case, and why.
struct WithoutCase {
  std::string_view clause, why;
};
std::span<const WithoutCase> clauses_without_case();

struct Unit {
  std::string name;
  std::vector<std::string_view> words;
};
// Every unit that there is, in the order of the report.
const std::vector<Unit>& all_units();
// The one that a lane belongs to.
const Unit& unit_of(const Lane&);

bool applies(const Case&, const Unit&);
// Why no line can reach the case in the unit, or nothing.
const Unreachable* why_unreachable(const Case&, const Unit&);

// The keys of a line in one direction, and whether they are as a row wants them.
class Keys {
 public:
  explicit Keys(const Lane&);
  bool meet(std::string_view wanted) const;
  // What decides the steps of every element: two lanes of one text have the same. Layouts of scales and
  // codes, memory, the noop flag and where the Numerics come from are left out.
  std::string of_steps(const Lane&) const;

 private:
  std::string_view value(std::string_view name) const;
  std::vector<std::pair<std::string, std::string>> values_;
};

// Whether what a row wants of the keys can be read from the keys that decide the steps (Keys::of_steps).
bool decides_steps(std::string_view wanted);

// Whether a step's name is one of the alternatives of a row.
bool names_step(std::string_view alternatives, std::string_view what);

}  // namespace assay::rounding

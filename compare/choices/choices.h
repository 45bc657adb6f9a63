// The choices of a Problem, by op and format: "row.round=sr", "fill=ties", "rows=tail", "col format=nvfp4".
//
// A group is an op with a format: "quantize mxfp8", "cast e4m3". A line of two formats (a pair, a gemm of
// two) belongs to both groups; each has the keys of its own format's direction or operand, those that take no
// prefix, and the other's format. So a pair of choices never joins keys of two formats, but each key meets
// every other format.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "contract/problem.h"

namespace assay::choices {

struct GroupChoices {
  std::string group;                 // "quantize mxfp8"
  std::vector<std::string> choices;  // "<key>=<value or class>", each key once
  // Of a line that computes no element, the number of choices that say so: "rows=0", "noop=1". They come
  // first, and only pairs with one of them are exercised.
  size_t idle = 0;
};
std::vector<GroupChoices> choices_of(const Problem&);

// Whether a line with this choice computes no element. (An attention without queries may have gradients of
// its keys: its GroupChoices::idle is 0.)
bool is_idle(const std::string& choice);

// What stands before '='.
std::string key_of_choice(const std::string& choice);

}  // namespace assay::choices

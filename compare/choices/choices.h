// The choices of a Problem, by op and format: "row.round=sr", "fill=ties", "rows=tail", "col format=nvfp4".
//
// A group is an op with a format: "quantize mxfp8", "cast e4m3". A line of two formats (a pair, a gemm of
// two) belongs to both groups; each has the keys of its own format's direction or operand, those that take no
// prefix, and the other's format. So a pair of choices never joins keys of two formats, but each key meets
// every other format.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"

namespace assay::choices {

struct GroupChoices {
  std::string group;  // "quantize mxfp8"
  // "<key>=<value or class>", each key once: first `idle` that say why elements are missing ("rows=0"), then
  // those about elements that the line has, and from `working` on those about elements that it lacks.
  std::vector<std::string> choices;
  size_t idle = 0, working = 0;
};
// Where a line computes nothing at all, only the idle choices stand before `working`. A gemm with k=0 has
// results, which are sums of no products, and no operands. An attention in which no sequence has queries and
// keys has no logits.
std::vector<GroupChoices> choices_of(const Problem&);

// The choices that say why elements are missing: a side of 0, no member, no token, the noop flag.
std::span<const std::string_view> idle_choices();
bool is_idle(std::string_view choice);

// What stands before '='.
std::string key_of_choice(const std::string& choice);

}  // namespace assay::choices

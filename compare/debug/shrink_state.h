// A candidate of the search for a smaller failure: a line, and perhaps the data of its tensor beside it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/problem.h"

namespace assay::shrinking {

// Where `loaded`, x holds the data, which are no longer what the fill draws. Of a gemm they are the data of
// one operand.
struct State {
  Problem problem;
  bool loaded = false;
  std::vector<std::byte> x;
  std::optional<Side> side;
};

// The line that draws the data, and its fill.
Problem drawn(const State& state);
Fill& fill_of(State& state);
// The operands of a gemm; of any other op one entry without a side.
std::vector<std::optional<Side>> sides_of(const Problem& problem);
// What a crop makes smaller: rows (0) and columns (1) of x; of a gemm N, M and K.
int64_t& extent(Problem& problem, size_t axis);

// Of a loaded state: the encoding of the data, the code of one element, the elements that are not +0.
Encoding source(const State& state);
uint32_t element(const State& state, int64_t i);
std::vector<int64_t> set_elements(const State& state);
std::string hex(const State& state, uint32_t code);

// Turns the data beside the line into a literal in the line. False where they are more than kMaxLiteral
// elements.
bool express(State& state);

}  // namespace assay::shrinking

// The sixth set of kernels with one planted bug each, in the way of the third (third_bugs.h), whose plugin
// and calls it shares: its library defines `find_bug` for its own names. sixth.tsv says of each in plain
// words what is wrong with it, what a right name of its cause has to say, and which public thread it follows.
// All were written and frozen before any search saw them, by somebody who had read neither the search nor the
// list of causes.
#pragma once
#include <cstdint>
#include <span>

#include "reference/tensor.h"
#include "tests/self/hunt/third_bugs.h"

namespace assay::sixth {

using third::Bug;
using third::Call;
using third::Rerun;

// Each of these is about one family of ops, or about lines with two directions.
std::span<const Bug> bugs_of_quantize();
std::span<const Bug> bugs_of_directions();
std::span<const Bug> bugs_of_split();
std::span<const Bug> bugs_of_others();

// A plane that can be written, as one that can be read.
inline ConstBuffer reading(const Buffer& b) { return {b.plane, b.bytes}; }

// Whether every direction that there is has that format and makes no choice of another library.
inline bool all_are(const Problem& p, FormatId format) {
  for (const Direction d : kDirections)
    if (const auto& q = p.quantizer(d); q && (q->format != format || q->numerics != Numerics{})) return false;
  return true;
}

// Calls change(value of x, code) for every element of a direction's data, whose code it may change.
template <class Change> void recode(const Call& call, Direction d, Change change) {
  const Buffer& data = call.output(plane_name(d, "data"));
  const reference::Values x = reference::values(call.input("x"), 1);
  reference::Bytes codes = reference::bytes(reading(data));
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t c = 0; c < x.cols(); ++c)
      change(x(r, c), data.plane->transposed ? codes(c, r) : codes(r, c));
  reference::store(data, codes);
}

// Sets the elements of an x to zero of which is_out(row, column, value) is true.
template <class IsOut> void clear(const Buffer& x, IsOut is_out) {
  const reference::Values values = reference::values(reading(x), 1);
  for (int64_t r = 0; r < values.rows(); ++r)
    for (int64_t c = 0; c < values.cols(); ++c)
      if (is_out(r, c, values(r, c))) reference::store(x, r * values.cols() + c, 0);
}

}  // namespace assay::sixth

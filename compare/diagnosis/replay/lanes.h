// A case taken apart into lanes: what is replayed on its own.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// One direction of one tensor, of a quantize or of a split's member; of any other op the whole case.
struct Lane {
  Problem problem;                     // a quantize with one direction, from x itself; or another op
  std::optional<Direction> direction;  // nothing: another op than a quantize
  std::optional<size_t> member;
  std::optional<Quantizer>
      partner;  // of the other direction, where both draw and some mappings count them together (N12.4)
  std::optional<Quantizer> other;  // of the other direction, where both are made of x
  std::vector<PlaneData> inputs;   // of input_planes(problem), perhaps more
  // N20.18: what came of an attention whose bits are not pinned. Its replays then have these codes wherever
  // they lie inside the bound.
  std::optional<std::vector<PlaneData>> observed = {};
  std::optional<double> group_amax = {};  // of a split's member whose format has one: the largest of any
};

// The lanes of a case, member by member, rows before columns. `made`: output planes of the case as far as
// they are known, from which columns of dequantized rows are made (N13.1); the reference makes the rows that
// are lacking there. Errors: what the reference says.
Result<std::vector<Lane>> lanes_of(const Problem& problem, const std::vector<PlaneData>& inputs,
                                   const std::vector<PlaneData>& made, Subject& reference);

// "row.data[2]": the name in the case of a lane's plane.
std::string name_in_case(const Lane& lane, const std::string& plane);

}  // namespace assay

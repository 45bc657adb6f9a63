#include "compare/diagnosis/replay/lanes.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/dequantized_rows.h"
#include "compare/diagnosis/replay/planes.h"
#include "compare/diagnosis/replay/replay.h"
#include "contract/line.h"

namespace assay {

namespace {

// x of columns that are made of the dequantized rows (N13.1).
Result<PlaneData> dequantized_rows(const Problem& p, const std::vector<PlaneData>& inputs,
                                   const std::vector<PlaneData>& rows, Subject& reference) {
  const Problem back = row_dequantize(p);
  if (const auto error = validate(back)) return *error;
  const auto in = row_dequantize_inputs(back, rows, inputs);
  if (!in) return in.error();
  const Plane written = output_planes(back).at(0);
  PlaneData x{written, std::vector<std::byte>(written.bytes())};
  const Buffer out[] = {{&written, x.bytes}};
  try {
    reference.run(back, views(*in), out, Environment{});
  } catch (const std::exception& e) {
    return Error{e.what(), 0, ""};
  }
  x.plane = input_planes(p).front();
  return x;
}

bool holds_rows(const std::vector<PlaneData>& planes, const Problem& p) {
  for (const Plane& plane : output_planes(p))
    if (plane.direction == Direction::row && !find_plane(planes, plane.name)) return false;
  return true;
}

// A direction of a quantize as a line of its own.
Problem lane_problem(const Problem& p, Direction d) {
  Problem out = p;
  out.flavour = Flavour::assay;  // it has set the Numerics
  out.arch = Arch::sm100;
  out.dispatch = Dispatch::automatic;
  out.op = Quantize{};
  out.col_source = ColSource::original;
  out.quantizer(other_than(d)).reset();
  out.quantizer(d)->scale_from = p.quantizer(d)->scale_from;
  return out;
}

std::optional<Error> add_lanes(std::vector<Lane>& out, const Problem& p, const std::vector<PlaneData>& inputs,
                               const std::vector<PlaneData>& made, std::optional<size_t> member,
                               Subject& reference) {
  for (const Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const std::optional<Quantizer>& other = p.quantizer(other_than(d));
    Lane lane{lane_problem(p, d), d, member, {}, {}, inputs};
    const bool made_of_rows = d == Direction::col && p.row && p.col_source == ColSource::row_dequantized;
    if (made_of_rows) {
      const auto rows = holds_rows(made, p) ? std::optional(made) : Replay(out.back(), reference).run({}, {});
      if (!rows) return Error{"the reference does not make the rows", 0, ""};
      auto x = dequantized_rows(p, inputs, *rows, reference);
      if (!x) return x.error();
      *find_plane(lane.inputs, "x") = std::move(*x);
    } else if (other && other->round == Round::sr) {
      lane.partner = other;
    }
    if (p.col_source == ColSource::original) lane.other = other;
    out.push_back(std::move(lane));
  }
  return {};
}

bool makes_its_own_amax(const Quantizer& q) {
  return (q.format == FormatId::nvfp4 || q.format == FormatId::fp8_current) && !q.amax && !q.row_scaled;
}

double own_amax(const Lane& lane, Direction d, Subject& reference) {
  if (lane.problem.quantizer(d)->rht) return WholeTensor(lane, reference).amax();  // of x rotated
  return Matrix(*find_plane(lane.inputs, "x"), d).amax();
}

// The largest amax of any member, where each makes its scale of its own.
void add_group_amaxes(std::vector<Lane>& lanes, Subject& reference) {
  for (const Direction d : kDirections) {
    double most = 0;
    const auto is_of_it = [&](const Lane& lane) {
      return lane.direction == d && makes_its_own_amax(*lane.problem.quantizer(d));
    };
    for (const Lane& lane : lanes)
      if (is_of_it(lane)) most = std::max(most, own_amax(lane, d, reference));
    for (Lane& lane : lanes)
      if (is_of_it(lane)) lane.group_amax = most;
  }
}

}  // namespace

Result<std::vector<Lane>> lanes_of(const Problem& problem, const std::vector<PlaneData>& inputs,
                                   const std::vector<PlaneData>& made, Subject& reference) {
  std::vector<Lane> out;
  if (problem.as<Quantize>()) {
    if (auto error = add_lanes(out, problem, inputs, made, {}, reference)) return *error;
  } else if (problem.as<Split>()) {
    const std::vector<Problem> members = member_problems(problem);
    for (size_t m = 0; m < members.size(); ++m)
      if (auto error = add_lanes(out, members[m], planes_of_member(inputs, m), planes_of_member(made, m), m,
                                 reference))
        return *error;
    add_group_amaxes(out, reference);
  } else {
    out.push_back({problem, {}, {}, {}, {}, inputs});
  }
  return out;
}

std::string name_in_case(const Lane& lane, const std::string& plane) {
  return lane.member ? fmt::format("{}[{}]", plane, *lane.member) : plane;
}

}  // namespace assay

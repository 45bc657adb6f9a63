#include "compare/match.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compare/arithmetic/places.h"
#include "compare/judge/judge.h"
#include "compare/judge/parity.h"
#include "compare/judge/runs.h"
#include "compare/judge/verdict.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"
#include "compare/process/run_in_child.h"
#include "compare/report/screen.h"
#include "contract/line.h"
#include "training/recipes/line_factory.h"

namespace assay {

namespace {

using std::string;

Error no_such_plane(const string& name, const std::vector<Plane>& planes, const char* kind) {
  std::vector<std::string_view> names;
  for (const Plane& p : planes) names.push_back(p.name);
  return Error{fmt::format("'{}' is no {} plane of this line", name, kind), 0,
               fmt::format("they are {}", fmt::join(names, ", "))};
}

// The bytes as the plane has them.
Result<PlaneData> plane_data(const Plane& plane, std::span<const std::byte> bytes) {
  Plane bare = plane;  // without its padding, which leaves no half bytes either
  bare.padded = plane.logical;
  bare.packed = false;
  const bool whole = bytes.size() == plane.bytes(), unpadded = plane.layout == ScaleLayout::compact &&
                                                               plane.members.empty() &&
                                                               bytes.size() == bare.bytes();
  if (!whole && !unpadded)
    return Error{
        fmt::format("{}: expected {} bytes, {} x {} elements of {}, found {} bytes", plane.name,
                    plane.bytes(), plane.padded.rows, plane.padded.cols, info(plane.encoding).name,
                    bytes.size()),
        0,
        plane.layout == ScaleLayout::compact && plane.members.empty() && bare.bytes() != plane.bytes()
            ? fmt::format("or {} without padding, {} x {}", bare.bytes(), plane.logical.rows,
                          plane.logical.cols)
            : ""};
  if (whole) return PlaneData{plane, {bytes.begin(), bytes.end()}};
  return dump_plane(
      {plane.name, safetensors::dtype_of(plane.encoding), {plane.logical.rows, plane.logical.cols}, bytes},
      plane);
}

Result<std::vector<PlaneData>> inputs_of(const Problem& problem, Subject& reference,
                                         std::span<const NamedBytes> given) {
  const std::vector<Plane> planes = input_planes(problem);
  std::vector<PlaneData> own;
  for (const NamedBytes& g : given) {
    const auto plane =
        std::find_if(planes.begin(), planes.end(), [&](const Plane& p) { return p.name == g.plane; });
    if (plane == planes.end()) return no_such_plane(g.plane, planes, "input");
    auto data = plane_data(*plane, g.bytes);
    if (!data) return data.error();
    own.push_back(std::move(*data));
  }
  return inputs_with(problem, own, reference);
}

// One screen; `look` may be empty.
string screen(const string& what, const Breach& b, const string& look) {
  string out = "DIFFERENT\n  " + what + "\n";
  out += fmt::format("  claim    {} == {}{}\n", b.got, b.want, b.claim == "parity" ? "" : " in " + b.claim);
  out += cause_text(b);
  return look.empty() ? out : out + "  look     " + look + "\n";
}

string cannot(std::string_view what, const Error& e) {
  return fmt::format("NOT COMPARED\n  {}\n  reason   {}\n", what, e.text());
}

}  // namespace

Result<std::vector<PlaneData>> inputs_of(std::string_view line, Subject& reference,
                                         std::span<const NamedBytes> given) {
  const auto problem = training::read_line(line);
  if (!problem) return problem.error();
  return inputs_of(*problem, reference, given);
}

string mismatch(std::string_view line, Subject& reference, std::span<const NamedBytes> given,
                std::span<const NamedBytes> outputs) {
  const auto read = training::read_line(line);
  if (!read) return cannot(line, read.error());
  const Problem& problem = *read;
  const string text = to_line(problem);
  if (writes_nothing(problem))
    return cannot(text, {"under noop=1 nothing is written: there is nothing to compare", 0, ""});
  const auto inputs = inputs_of(problem, reference, given);
  if (!inputs) return cannot(text, inputs.error());
  const std::vector<Plane> planes = output_planes(problem);
  for (const NamedBytes& o : outputs)
    if (std::none_of(planes.begin(), planes.end(), [&](const Plane& p) { return p.name == o.plane; }))
      return cannot(text, no_such_plane(o.plane, planes, "output"));
  if (const Support support = reference.supports(problem); !support.yes)
    return cannot(text, {"the reference does not run it: " + support.why, 0, ""});
  const Execution run = execute(reference, problem, *inputs, Environment{});
  if (run.error) return cannot(text, {"the reference: " + *run.error, 0, ""});

  std::vector<PlaneData> got, want;
  for (const PlaneData& wanted : run.planes)
    for (const NamedBytes& o : outputs) {
      if (o.plane != wanted.plane.name) continue;
      auto data = plane_data(wanted.plane, o.bytes);
      if (!data) return cannot(text, data.error());
      clear_spare(*data);
      got.push_back(std::move(*data));
      clear_spare(want.emplace_back(wanted));
    }
  if (got.empty()) return cannot(text, {"no output plane was given", 0, ""});
  Judgement judgement = judge(&problem, got, want);
  if (!judgement.error.empty()) return cannot(text, {judgement.error, 0, ""});
  if (const auto breach = parity_breach(problem, judgement, "bytes", "reference")) {
    string look;
    if (given.empty() && judgement.cause && !judgement.cause->in_padding) {
      const Region g = region_of(&problem, judgement.cause->plane, judgement.cause->place);
      look = fmt::format("assay trace '{}' --at {},{}", text, g.row0, g.col0);
    }
    return screen(text, *breach, look);
  }
  for (const PlaneDifference& d : judgement.padding) {
    if (d.plane.layout == ScaleLayout::compact) continue;
    const string message = fmt::format("{}: {} of {} bytes of its padding are not 0 (N6.4), first at {}",
                                       d.plane.name, d.differ, d.of, place_text(&problem, d.plane, d.place));
    return screen(text, complaint("padding", "bytes", message, "reference"), "");
  }
  return {};
}

string mismatch(Encoding encoding, Shape shape, std::span<const std::byte> got,
                std::span<const std::byte> want) {
  Plane plane;
  plane.name = "buffer";
  plane.encoding = encoding;
  plane.logical = plane.padded = shape;
  const string what = fmt::format("{} x {} elements of {}", shape.rows, shape.cols, info(encoding).name);
  std::vector<PlaneData> sides[2];
  for (const int side : {0, 1}) {
    auto data = plane_data(plane, side == 0 ? got : want);
    if (!data) return cannot(what, {(side == 0 ? "got, " : "want, ") + data.error().message, 0, ""});
    sides[side].push_back(std::move(*data));
  }
  if (shape.count() == 0) return {};
  const Judgement judgement = judge(nullptr, sides[0], sides[1]);
  if (!judgement.error.empty()) return cannot(what, {judgement.error, 0, ""});
  const Problem none;
  const auto breach = parity_breach(none, judgement, "got", "want");
  return breach ? screen(what, *breach, "") : string{};
}

}  // namespace assay

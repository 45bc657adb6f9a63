#include "python/line.h"

#include <string>
#include <utility>

#include "contract/line.h"
#include "contract/planes.h"
#include "fixtures/safetensors.h"
#include "fixtures/suite.h"
#include "training/recipes/line_factory.h"

namespace assay::python {

namespace {

json::Value shape_of(Shape s) { return json::array({s.rows, s.cols}); }

json::Value plane_facts(const Plane& plane) {
  json::Value members = json::array();
  for (const Member& m : plane.members)
    members.push(json::object(
        {{"offset", m.offset}, {"logical", shape_of(m.logical)}, {"padded", shape_of(m.padded)}}));
  return json::object({{"name", plane.name},
                       {"input", plane.part == Part::input},
                       {"encoding", info(plane.encoding).name},
                       {"dtype", safetensors::name(safetensors::dtype_of(plane.encoding))},
                       {"logical", shape_of(plane.logical)},
                       {"padded", shape_of(plane.padded)},
                       {"bytes", plane.bytes()},
                       {"packed", plane.packed},
                       {"transposed", plane.transposed},
                       {"gemm", plane.layout == ScaleLayout::gemm},
                       {"direction", plane.direction ? name_of(*plane.direction) : std::string_view{}},
                       {"members", members}});
}

}  // namespace

Failure::Failure(std::string k, const Error& e, std::string p)
    : std::runtime_error(e.text()), kind(std::move(k)), plane(std::move(p)), error(e) {}

json::Value to_json(const Failure& f) {
  return json::object({{"error", json::object({{"kind", f.kind},
                                               {"message", f.error.message},
                                               {"column", f.error.column},
                                               {"hint", f.error.hint},
                                               {"plane", f.plane}})}});
}

Problem problem_of_line(std::string_view line) {
  // Callers quantize one tensor after the other by the same line, and reading it takes longer than quantizing
  // a small one.
  thread_local std::string last;
  thread_local Problem read;
  if (line.empty() || line != last) {
    auto problem = training::read_line(line);
    if (!problem) throw Failure("line", problem.error());
    last.clear();  // if memory is short below, no line may be taken for the one that was read
    read = std::move(*problem);
    last = line;
  }
  return read;
}

json::Value line_facts(std::string_view line) {
  const Problem p = problem_of_line(line);
  json::Value planes = json::array();
  for (const Plane& plane : input_planes(p)) planes.push(plane_facts(plane));
  for (const Plane& plane : output_planes(p)) planes.push(plane_facts(plane));
  return json::object({{"line", to_line(p)},
                       {"canonical", to_canonical_line(p)},
                       {"op", op_name(p)},
                       {"rows", p.x.shape.rows},
                       {"cols", p.x.shape.cols},
                       {"source", info(p.x.source).name},
                       {"draws", draws(p)},
                       {"planes", planes}});
}

json::Value key_table() {
  json::Value keys = json::array();
  for (const KeyInfo& k : line_keys()) {
    json::Value ops = json::array();
    for (const std::string_view op : k.ops) ops.push(op);
    keys.push(json::object({{"name", k.name},
                            {"directional", k.directional},
                            {"values", k.values},
                            {"summary", k.summary},
                            {"ops", ops}}));
  }
  return json::object({{"keys", keys}});
}

json::Value suite_lines(const std::string& name_or_path) {
  const auto suite = load_suite(name_or_path, training::resolve_factory);
  if (!suite) throw Failure("line", suite.error());
  json::Value lines = json::array();
  for (const SuiteEntry& e : suite->entries) lines.push(to_line(e.problem));
  return json::object({{"lines", lines}});
}

}  // namespace assay::python

#include "compare/commands/coherence.h"

#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/identify/coherence.h"
#include "compare/text/printable.h"

namespace assay {

namespace {

using std::string;

// The planes that a pack holds of a case. Error: a tensor that does not fit its plane.
Result<std::vector<PlaneData>> recorded_planes(const PackCase& c, const Problem& problem) {
  std::vector<PlaneData> out;
  std::optional<Error> error;
  std::vector<Plane> all = output_planes(problem);
  for (Plane& plane : input_planes(problem))
    if (plane.name.ends_with("given.amax")) all.push_back(std::move(plane));
  for (const Plane& plane : all) {
    const PackPlane* recorded = c.find(plane.name);
    if (!recorded || !recorded->tensor) continue;
    auto data = dump_plane(*recorded->tensor, plane);
    if (data) out.push_back(std::move(*data));
    else error = Error{plane.name + ": " + data.error().text(), 0, ""};
  }
  if (error) return *error;
  return out;
}

// What cannot be read is a verdict too.
Coherence judged(const PackCase& c) {
  Coherence out;
  const auto problem = problem_of(c);
  if (!problem) {
    out.verdict = problem.error().text();
    return out;
  }
  const auto planes = recorded_planes(c, *problem);
  if (planes) return coherence(*problem, *planes);
  out.verdict = planes.error().text();
  return out;
}

string open_text(const Coherence& c) { return c.open ? fmt::format(", {} say nothing", c.open) : ""; }

string failure_text(const string& where, const string& line, const Coherence& c) {
  string out = fmt::format("\nFAILED  {}\n  {}\n  claim    rows and columns come from one tensor\n", where,
                           line.empty() ? "(no line)" : line);
  if (!c.verdict.empty()) out += fmt::format("  cause    {}\n", printable(c.verdict));
  for (const string& n : c.notes) out += fmt::format("  note     {}\n", printable(n));
  if (c.first) {
    const string member = c.member ? fmt::format("member {}, ", *c.member) : "";
    out +=
        fmt::format("  first    {}row {}, column {}: {}\n", member, c.first->row, c.first->col, c.first_text);
    out += fmt::format("  judged   {} of {} elements apart{}\n", c.apart, c.of, open_text(c));
  }
  for (const Coordinate& w : c.where)
    out += fmt::format("  where    {}: {} of {} that are apart, among {} of {} elements\n", w.what, w.differ,
                       w.differ_of, w.inside, w.inside_of);
  return out + "\n";
}

}  // namespace

int run_coherence(const Dump& dump, std::ostream& out) {
  size_t passed = 0, failed = 0, skipped = 0;
  string first;
  for (const DumpCase& c : dump.cases) {
    const string line = printable(c.recorded->line);
    const Coherence found = judged(*c.recorded);
    if (!found.undecidable.empty()) {
      ++skipped;
      out << fmt::format("skipped  {}  {}   {}\n", c.where(), line, found.undecidable);
    } else if (found.coherent()) {
      ++passed;
      out << fmt::format("passed   {}  {}   {} of {} elements can come from one tensor{}\n", c.where(), line,
                         found.of, found.of, open_text(found));
    } else {
      ++failed;
      if (first.empty()) first = c.where();
      out << failure_text(c.where(), line, found);
    }
  }
  if (!first.empty()) out << "first incoherence: " << first << "\n";
  out << fmt::format("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  return failed ? 1 : passed ? 0 : 3;
}

}  // namespace assay

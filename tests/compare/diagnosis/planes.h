// One quantize and its planes, for tests that spoil some of them.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/process/guarded_run.h"
#include "contract/line.h"
#include "reference/subject.h"

namespace assay::planes {

struct Case {
  Problem problem;
  std::vector<PlaneData> inputs, want, got;

  explicit Case(const std::string& line) {
    const auto parsed = parse_line(line);
    if (!parsed) throw std::runtime_error(line + ": " + parsed.error().text());
    problem = *parsed;
    const auto reference = make_reference_subject();
    inputs = *make_inputs(problem, *reference);
    Execution run = execute(*reference, problem, inputs, {});
    if (run.error) throw std::runtime_error(line + ": " + *run.error);
    want = got = std::move(run.planes);
  }
  PlaneData& operator[](const std::string& name) {
    for (PlaneData& p : got)
      if (p.plane.name == name) return p;
    throw std::runtime_error("no plane " + name);
  }
  const PlaneData& wanted(const std::string& name) const { return *find_plane(want, name); }
  uint32_t code(const std::string& name, int64_t r, int64_t c) const {
    const PlaneData& p = wanted(name);
    return code_at(p.plane, p.bytes, index_of(p.plane, r, c));
  }
  // Writes spoil(row, column, wanted code) to every logical element.
  template <class Spoil> void spoil(const std::string& name, Spoil spoil) {
    PlaneData& p = (*this)[name];
    for (int64_t r = 0; r < p.plane.logical.rows; ++r)
      for (int64_t c = 0; c < p.plane.logical.cols; ++c)
        set_code(p.plane, p.bytes, index_of(p.plane, r, c), spoil(r, c, code(name, r, c)));
  }
};

}  // namespace assay::planes

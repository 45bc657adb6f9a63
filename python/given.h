// The caller's planes as a case of a pack, and its inputs as views of the caller's memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compare/packs/pack.h"
#include "contract/problem.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"
#include "python/case.h"

namespace assay::python {

struct GivenCase {
  // Throws Failure: a line that cannot be read or that the reference does not run, a word that is no dtype.
  GivenCase(const std::string& line, const std::vector<GivenPlane>& planes, const CaseSettings&);

  PackCase recorded;
  Problem problem;
  std::unique_ptr<Subject> reference;
  Environment environment;
};

// The inputs of a case. A plane that was given as the line has it is looked at where it lies; any other is
// copied or made.
class Inputs {
 public:
  // Throws Failure "plane": a plane that does not fit, or that neither the caller nor the line gives.
  explicit Inputs(const GivenCase&);
  const std::vector<ConstBuffer>& views() const { return views_; }
  std::vector<PlaneData> copies() const;

 private:
  std::vector<Plane> planes_;
  std::vector<PlaneData> own_;
  std::vector<ConstBuffer> views_;
};

// What the reference writes. Throws Failure "run".
std::vector<PlaneData> wanted(const GivenCase&, const Inputs&);

// The given output planes as the line has them, in its order. Throws Failure "plane".
std::vector<PlaneData> given_outputs(const GivenCase&);

}  // namespace assay::python

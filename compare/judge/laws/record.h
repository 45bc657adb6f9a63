// What the laws of one case look at, and what they find.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/arithmetic/gemm_bounds.h"
#include "compare/judge/verdict.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct LawRecord {
  LawRecord(const Problem& problem, const std::vector<PlaneData>& inputs,
            const std::vector<PlaneData>& outputs, std::string_view subject, GemmOrder order)
      : problem(problem), inputs(inputs), outputs(outputs), subject(subject), order(order) {}

  const PlaneData& in(const std::string& name) const { return *find_plane(inputs, name); }
  const PlaneData& out(const std::string& name) const { return *find_plane(outputs, name); }

  // Starts a law: from here at most one breach of it is kept, with the number of elements that break it.
  void begin(const std::string& claim);
  void breach(const PlaneData& plane, int64_t row, int64_t col, const std::function<std::string()>& message,
              bool in_padding = false);

  const Problem& problem;
  const std::vector<PlaneData>&inputs, &outputs;
  std::string subject;
  GemmOrder order;  // of what follows a gemm's sum
  std::vector<Breach> breaches;
  std::vector<std::string> evaluated;  // the claims that were begun

 private:
  std::string claim_;
  bool open_ = false;  // the last breach is of the law that was begun last
};

// The code and the value that stand at (row, col) of a plane.
uint32_t code(const PlaneData& plane, int64_t row, int64_t col);
double value(const PlaneData& plane, int64_t row, int64_t col);
// The plane of a direction's scales among `planes`.
const PlaneData& scale_plane(Direction d, const Quantizer& q, const std::vector<PlaneData>& planes);

}  // namespace assay

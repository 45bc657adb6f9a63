// Runs one Subject on one Problem: outputs poisoned before, every buffer between guard bytes and at the
// alignment that the Environment asks for, inputs checked to be untouched.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// What came out. Where `error` is set, the subject threw: planes hold whatever was written until then.
// `unsupported`: it threw Unsupported.
struct Execution {
  std::vector<PlaneData> planes;  // of output_planes(problem), in that order
  Served served;
  double seconds = 0;                // of run() alone
  std::optional<std::string> error;  // what() of the exception
  bool unsupported = false;
  // A byte that changed: "row.data: byte 3 past the end was written (2A)"; or how it left arithmetic (N1.1).
  std::optional<std::string> trespass;
};

Execution execute(Subject& subject, const Problem& problem, const std::vector<PlaneData>& inputs,
                  const Environment& environment);

// The subjects that a program knows. The reference is the judge's want; the others are what can be judged.
struct Subjects {
  std::vector<std::unique_ptr<Subject>> owned;  // in the order of `assay list --subjects`

  Subject* find(std::string_view name) const;  // null when there is none of that name
  Subject& reference() const { return *find("reference"); }
};

}  // namespace assay

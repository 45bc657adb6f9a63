// `assay model`: what a compiled kernel would do on a GPU that is not there (docs/model.md): static figures,
// addresses, instructions by pipe, and the time that they predict. It always says that it is a model.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "compare/model/model.h"
#include "contract/problem.h"
#include "contract/subject.h"

namespace assay {

struct Program;
struct Subjects;

struct ModelCommand {
  std::vector<Problem> problems;
  std::string subject = "ptx", gpu = "h200";
  Environment environment;      // its architecture becomes the GPU's
  double timeout = 60;          // seconds of each count
  std::string ptxas, nvdisasm;  // paths; empty: looked for
  bool json = false;            // on `out`, and nothing else
  std::string html;             // a file; empty: none
};

// Exit status: 0; 1 a count failed, or the counts of some line are not proven to be straight; 2 the subject
// does not interpret a kernel, no such GPU, or a file cannot be written; 3 no line is supported.
int run_model(const ModelCommand&, const Subjects&, std::ostream& out, std::ostream& err);

void register_model(Program&);

}  // namespace assay

// `assay certify`: the exhaustive certificate. Every float, every code, every amax there is goes through
// reference and subjects, compared bit for bit; what was compared is written down with counts and
// fingerprints (docs/certify.md).
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "compare/commands/certify/part.h"
#include "compare/commands/kept_results.h"
#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct CertifyOptions {
  CertifyExtent extent = CertifyExtent::floats;
  bool list = false;                  // print the parts and stop
  bool estimate = false;              // print what each part would cost and stop
  std::string output;                 // the certificate's path; empty: none is written
  bool simd = false;                  // the vectorised method alone, and keep that it passed
  bool resume = false;                // take over the parts that `output` holds already
  std::string only;                   // parts whose name contains this
  std::vector<std::string> subjects;  // instead of those that the parts name
  std::vector<CertifyPart> parts;     // instead of certify_parts(extent); for tests
  KeptResults kept;                   // of single tasks, for `resume`
  bool mpi = false;                   // the processes of a launcher share the tasks
  int jobs = 0;                       // 0: the cores of this machine
  double timeout = 60;                // seconds for 2^22 elements
  bool progress = false;              // a line on `err` that is rewritten
  bool colour = false;
};

// Exit status: 0 every claim holds; 1 a claim does not hold; 2 no such part, or a certificate that cannot be
// written or resumed; 3 nothing was compared.
int run_certify(const CertifyOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_certify(Program&);

}  // namespace assay

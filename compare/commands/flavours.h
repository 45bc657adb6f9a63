// `assay flavours`: the list the named sets of choices, and measure how far their results differ.
#pragma once
#include <cstdio>
#include <string>

#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct FlavoursOptions {
  std::string format;    // empty: all
  bool measure = false;  // the disagreement matrix instead of the list
  std::string json;
  int jobs = 0;
  bool colour = false;
};
// Lists flavours.def, or measures for each pair of flavours of a format which share of scales and of codes
// differs on stated tensors. Exit status: 0; 2 no such format; 130 interrupted.
int run_flavours(const FlavoursOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_flavours(Program&);

}  // namespace assay

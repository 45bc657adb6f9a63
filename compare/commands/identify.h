// `assay identify <pack>`: name the library whose choices made these bytes.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct IdentifyOptions {
  std::vector<std::string> paths;  // packs, or folders of them
  std::string filter;              // only cases whose name contains this
  std::string json;                // path; empty: none
  size_t most = 5;                 // flavours shown for a group of cases
  int jobs = 0;
  double timeout = 60;
  bool progress = false, colour = false;
  int64_t large = int64_t{1} << 22;  // elements from which on a case is first looked at on a sample
  double budget = 10;                // seconds after which no further set is run on the whole of such a case
};
// Ranks the choices of each format (compare/diagnosis/identify/choices.h) by agreement with the packs' bytes,
// over all cases that one program made of a module. A group is named where a choice makes all its bytes,
// alone or with one or two more keys, or makes them in another layout, or where they are consistent with a
// kernel of N17.13. Exit status: 0 every group is named; 1 one is not, or has no case that can be judged; 2 a
// path or pack cannot be read; 3 no case at all; 130 it was interrupted before a group was left unnamed.
int run_identify(const IdentifyOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_identify(Program&);

}  // namespace assay

// `assay explain <line|pack>`: where, which stage first, which cause, with the evidence and a reproducer.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct ExplainOptions {
  std::string what;              // a line, or the path of a pack
  std::string case_id;           // of the pack; empty: the first that differs, in dump order
  std::string subject = "host";  // of a line
  std::string html, json;        // paths: the report page, the Diagnosis
  std::string reproducer;        // a folder that receives a pack and a C++ program
  bool pairs = true;
  bool cause = true;                 // look for it
  bool look_closer = true;           // trace a line, and look for a smaller one
  int64_t large = int64_t{1} << 22;  // elements from which on a case of a pack is judged in parts
  int jobs = 0;
  double timeout = 60;  // seconds a run of the subject may take
  double budget = 60;   // seconds for the search
  bool progress = false, colour = false, github = false;
  Environment environment;
};

// Exit status: 0 nothing differs; 1 something does, explained or not; 2 bad input; 3 the subject is absent or
// does not run the line.
int run_explain(const ExplainOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_explain(Program&);

}  // namespace assay

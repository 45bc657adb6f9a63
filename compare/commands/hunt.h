// `assay hunt [<suite|line>...]`: draws lines from the table of keys and judges a subject on them, for a
// given time; what fails is shrunk, told apart by its cause, and kept (docs/hunt.md).
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "compare/judge/cases.h"
#include "compare/process/guarded_run.h"
#include "contract/problem.h"

namespace assay {

struct Program;

struct HuntOptions {
  std::string subject = "host";
  std::string folder = "hunt";  // state, found.cases and packs
  std::string jsonl;            // a path that gets the same records; empty: none
  std::string only;             // ops with a format that contain this
  double minutes = 0;           // by the clock, of this run; 0: five, or no end where batches end it
  int64_t batches = 0;          // ends after so many batches of this run; 0: only the clock ends it
  uint64_t seed = 1;
  int64_t max_elements = 4096;  // of a tensor of a line
  double budget = 5;            // seconds for the search of one cause
  std::vector<Problem> given;   // lines of the user, which a hunt judges once
  std::string edges;            // the program assay_edges; empty: choices alone guide the hunt
  std::string plugin;           // for it: the subject's library once more, compiled to count its edges
  RunSettings settings;         // its subjects are replaced
  bool progress = false;
  bool mpi = false;    // the processes of a launcher share the lines of each batch
  std::string digest;  // of what they must all have been told; empty: there is one
};

// Lines of found.cases in the folder are judged first. Exit status: 0 nothing found; 1 something fails; 2 the
// folder cannot be used; 3 nothing ran: the subject is absent, or runs no line that was drawn; 130 the user
// ended it and nothing had failed.
int run_hunt(const HuntOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_hunt(Program&);

}  // namespace assay

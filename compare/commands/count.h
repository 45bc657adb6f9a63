// `assay count <line>`: what the launches of a compiled kernel do, counted exactly on the CPU (docs/ptx.md):
// instructions by class, requests, sectors and bytes of global memory, wavefronts and conflicts of shared
// memory, per launch and per line of the PTX. The numbers are equal from run to run and say nothing of time.
#pragma once
#include <iosfwd>
#include <string>

#include "compare/process/guarded_run.h"
#include "contract/problem.h"

namespace assay {

struct Program;

struct CountOptions {
  Problem problem;
  std::string subject = "ptx";
  Environment environment;
  double timeout = 60;
  int lines = 12;          // lines of each launch on the screen, those with the most instructions of warps
  std::string json, html;  // files; empty: none
};

// Exit status: 0; 1 the subject failed; 2 it does not interpret a kernel, or a file cannot be written; 3 it
// does not support the line, or nothing was launched.
int run_count(const CountOptions&, const Subjects&, std::ostream& out, std::ostream& err);

// What to type for the counts of a line on a subject that interprets.
std::string count_command(const std::string& line, const Subject&);

void register_count(Program&);

}  // namespace assay

// What this program is and what it runs on: the facts a difference between two machines could come from.
// `assay doctor` prints them all (compare/commands/doctor.h); fingerprint() is the short form that heads
// every report.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/subject.h"
#include "fixtures/json.h"

namespace assay {

// One property of binary32 arithmetic that clause N1.1 asks for, probed at run time in this process.
struct FloatProbe {
  std::string name;  // "gradual underflow"
  bool holds = false;
  std::string found;  // "2^-149 * 1 gives 00000000, expected 00000001"; empty where it holds
};
std::vector<FloatProbe> probe_float_environment();

// {"version", "commit", "line_version", "compiler", "flags", "build_type", "sanitizers", "cuda_toolkit" (at
// build; null: none), "os", "cpu", "cores",
//  "threads", "float": {name: true|text}, "subjects": [{name, present, detail}], "vectors": {path,
//  files}|null, "fingerprint"}.
json::Value doctor_facts(std::span<Subject* const> subjects);
// The same, asked in a child process, since a subject may open a GPU that a fork must not see open; null
// where the child ends early.
json::Value doctor_facts_in_child(const Subjects& subjects);

// One line without a line end: version, compiler, system, processor, whether the floating-point environment
// holds, GPU, and 8 hex digits over all facts.
std::string fingerprint(std::span<Subject* const> subjects);

}  // namespace assay

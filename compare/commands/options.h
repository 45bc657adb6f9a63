// What the commands share: the place where they register, the options that several of them take, and what
// follows from those.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compare/commands/command_line.h"
#include "compare/process/guarded_run.h"
#include "compare/subjects/ptx_launch_file.h"
#include "contract/problem.h"
#include "fixtures/suite.h"

namespace assay {

struct TrainingCase;

// Options that mean the same in every command that has them.
struct CommonOptions {
  std::vector<std::string> what;  // suites and lines
  std::string filter, shard, subjects, environment, plugin, python, python_spec, ptx_kernel, pack;
  PtxLaunchWords ptx;
  double timeout = 60;  // seconds a case may take
  int jobs = 0;         // worker processes; 0: the cores of this machine
};

// The program as its commands see it. Each registers with `app` and leaves its exit status in `status` when
// it is called.
struct Program {
  CLI::App& app;
  std::function<Subjects(const CommonOptions&)> make_subjects;
  bool colour = false,
       progress = false;  // whether standard output is coloured, and standard error shows progress
  CommonOptions common;
  int status = 0;
};

// Bad usage or unreadable input, as an exception. It is printed on standard error, and the exit status is 2.
struct Refusal {
  std::string message;
};

void add_what(Command&, CommonOptions&, bool required = true);
void add_subjects(Command&, CommonOptions&, const char* fallback);
void add_compiled_subject(Command&, CommonOptions&);  // of commands that take only what interprets()
void add_plugin(Command&, CommonOptions&);
void add_ptx(Command&, CommonOptions&);
void add_environment(Command&, CommonOptions&);
void add_timeout(Command&, CommonOptions&);
void add_jobs(Command&, CommonOptions&);

// The subjects that a command names: those of --subject, else the plugin or pack that was given, else
// `fallback`. Refuses a name that no subject has.
std::vector<std::string> chosen_subjects(const CommonOptions&, const Subjects&, const std::string& fallback);

// What follows from the options; each refuses what cannot be read.
Environment environment_of(const CommonOptions&);
std::vector<SuiteEntry> entries_of(const CommonOptions&);
std::vector<TrainingCase> training_cases_of(CommonOptions&);  // takes them out of `what`
Problem problem_of_line(const std::string& text);
// What is said of a word that does not read as a line: where it is no op, the user meant a file.
std::string not_a_line(const std::string& text, const Error& why);
// Refuses cases that this machine has no memory for.
void refuse_too_large(const std::vector<SuiteEntry>& entries);

// Fills in what every command on one subject is told about it.
template <class Options>
void take_subject(Options& options, const CommonOptions& common, const Subjects& subjects) {
  const std::vector<std::string> names = chosen_subjects(common, subjects, "host");
  if (names.size() != 1) throw Refusal{"this command takes one --subject"};
  options.subject = names[0];
  options.environment = environment_of(common);
  options.timeout = common.timeout;
}

// The subjects without their owner.
std::vector<Subject*> pointers(const Subjects&);

}  // namespace assay

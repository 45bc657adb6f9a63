// What another program prints.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "contract/result.h"

namespace assay {

// How a program ended, and what it wrote to standard output and standard error, together.
struct Output {
  int status = 0;  // its exit status, or minus the number of the signal that ended it
  std::string text;
  // In words, with the last of what it wrote: "<program>: exit status 3: no such file".
  std::string ending(const std::string& program) const;
};

// Runs a program with these words, of which the first is its path or a name that PATH has, to its end. Once
// `over` says so, which is asked several times a second, it is sent SIGINT, and killed 5 s after that. Error:
// it cannot be started.
Result<Output> run_program(const std::vector<std::string>& words, const std::function<bool()>& over = {});

// Runs a program with these words, the first of which is its path or a name that PATH has, and returns what
// it wrote to standard output and standard error, together. Error: it cannot be started, or its exit status
// is not 0; then with the last of what it wrote.
Result<std::string> output_of(const std::vector<std::string>& words);

// The path of a program: `given` where that is not empty, else the first of PATH, else that of the folders
// that holds it. Empty where there is none.
std::string program_path(const std::string& name, const std::string& given,
                         const std::vector<std::string>& folders = {});

}  // namespace assay

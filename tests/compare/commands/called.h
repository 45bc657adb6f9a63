// The whole program, called in this process with the words of a command line.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "compare/program.h"

namespace assay {

struct Said {
  int status = 0;
  std::string out, err;
};

// `words` are those after `assay`.
inline Said assay_called(std::vector<std::string> words) {
  words.insert(words.begin(), "assay");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Said said;
  said.status = program_main(static_cast<int>(words.size()), argv.data());
  std::fflush(stdout);
  said.out = testing::internal::GetCapturedStdout();
  said.err = testing::internal::GetCapturedStderr();
  return said;
}

}  // namespace assay

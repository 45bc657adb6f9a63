// What the executor's tests share: the options under which they run their kernels, how they catch what is
// found and name the line that is meant, and how they let a process die.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "fast/launch.h"
#include "fast/simt/executor.h"
#include "fast/simt/race/race.h"
#include "fast/simt/report.h"
#include "tests/source_path.h"

namespace assay::simt {

inline const std::vector<ExecutorOptions>& all_orders() {
  static const std::vector<ExecutorOptions> kAll = [] {
    std::vector<ExecutorOptions> all;
    for (int threads : {1, 3})
      for (uint64_t order :
           {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{17}, uint64_t{4711}, uint64_t{0x123456789ABCDEF}})
        all.push_back({.threads = threads, .order = order});
    return all;
  }();
  return kAll;
}

inline std::string to_text(const ExecutorOptions& o) {
  return "order=" + std::to_string(o.order) + ",threads=" + std::to_string(o.threads) +
         ",poison=" + std::to_string(o.poison);
}

// "tests/simt/broken_kernels.cpp:123", the line of the calling file that is marked `// <- name`.
inline std::string marked(const std::string& name, const char* file = __builtin_FILE()) {
  const std::string site = to_text(Site{file, 0}),
                    path = site.substr(0, site.rfind(':'));  // from the root, whatever the compiler was given
  std::ifstream text(source_path(path));
  std::string line;
  for (int number = 1; std::getline(text, line); ++number)
    if (line.ends_with("// <- " + name)) return path + ":" + std::to_string(number);
  return "no line is marked " + name;
}

template <class... P, class... A>
inline std::string fault_of(const fast_host::LaunchConfig& config, void (*kernel)(P...), A... args) {
  try {
    fast_host::launch(config, kernel, args...);
  } catch (const KernelFault& e) {
    return e.what();
  }
  return "no fault";
}

// Death tests die in a process of their own, started anew: a fork of this one would lack its OS threads.
class DeathTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

}  // namespace assay::simt

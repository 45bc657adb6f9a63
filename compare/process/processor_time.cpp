#include "compare/process/processor_time.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <time.h>

namespace assay {

namespace {

// Of a process and those below it, what `of_one` says.
template <class F> double with_those_below(pid_t pid, const F& of_one) {
  double out = of_one(pid);
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
  for (pid_t child = 0; children >> child;) out += with_those_below(child, of_one);
  return out;
}

double own_processor_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double own_queued_seconds(pid_t pid) {
  double out = 0;
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ended)) {
    double ran = 0, queued = 0;  // nanoseconds
    if (std::ifstream(thread.path() / "schedstat") >> ran >> queued) out += 1e-9 * queued;
  }
  return out;
}

}  // namespace

double processor_seconds_of(pid_t pid) { return with_those_below(pid, own_processor_seconds); }

double queued_seconds_of(pid_t pid) { return with_those_below(pid, own_queued_seconds); }

}  // namespace assay

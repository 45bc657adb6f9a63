// A process that works, one that waits for a processor, and one that stands still.
#include "compare/process/processor_time.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace assay {
namespace {

using namespace std::chrono_literals;

// A child on the same processor as this test: it works, or it sleeps.
class Child {
 public:
  explicit Child(bool works) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_getaffinity(0, sizeof(all_), &all_);
    sched_setaffinity(0, sizeof(one), &one);
    int begun[2];
    char byte = 0;
    if (pipe(begun) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      if (write(begun[1], &byte, 1) != 1) _exit(1);
      if (!works)
        for (;;) pause();
      for (;;) std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    if (read(begun[0], &byte, 1) != 1) std::abort();
    close(begun[0]), close(begun[1]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    sched_setaffinity(0, sizeof(all_), &all_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  cpu_set_t all_;
};

bool sleeps(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  const size_t name = text.rfind(')');
  return name != std::string::npos && text.compare(name, 4, ") S ") == 0;
}

void work_for(std::chrono::milliseconds time) {
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {}
}

TEST(ProcessorTime, OneThatWaitsForAProcessorIsTold) {
  if (!std::filesystem::exists("/proc/self/schedstat")) GTEST_SKIP() << "no /proc/<pid>/schedstat";
  const Child sleeping(false), working(true);
  while (!sleeps(sleeping.pid())) std::this_thread::sleep_for(1ms);
  const double queued = queued_seconds_of(working.pid()), asleep = queued_seconds_of(sleeping.pid()),
               used = processor_seconds_of(sleeping.pid());
  work_for(500ms);  // this test has the processor half of the time at most
  EXPECT_GT(queued_seconds_of(working.pid()) - queued, 0.05);
  EXPECT_LT(queued_seconds_of(sleeping.pid()) - asleep, 0.05);
  EXPECT_LT(processor_seconds_of(sleeping.pid()) - used, 0.05);
}

}  // namespace
}  // namespace assay

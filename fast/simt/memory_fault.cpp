// The end of a process whose kernel touched memory that it may not touch. Reports from inside a signal
// handler: what it reads was written before the kernel ran, and the process ends whatever happens.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "fast/simt/device_buffer.h"
#include "fast/simt/report.h"
#include "fast/simt/sanitizer.h"

namespace assay::simt {

namespace {

struct sigaction segv_before, bus_before;

const char* access_kind([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr int kErrorRegister = REG_ERR;
  const auto error = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[kErrorRegister];
  return (error & 2) != 0 ? "writes" : "reads";
#else
  return "touches";
#endif
}

void on_memory_fault(int signal, siginfo_t* info, void* context) {
  const void* address = info->si_addr;
  if (!current) {
    // Not ours: put the earlier handler back and let the access fault again.
    sigaction(signal, signal == SIGSEGV ? &segv_before : &bus_before, nullptr);
    return;
  }
  std::string where = describe_device_address(address);
  if (where.empty()) where = describe_worker_address(address);
  if (where.empty()) {
    char text[64];
    std::snprintf(text, sizeof text, "address %p, which is no device buffer", address);
    where = text;
  }
  const std::string report = std::string("kernel '") + current_block.kernel + "' block " +
                             to_text(current_block.index) + " thread " + to_text(current->index) + " " +
                             access_kind(context) + " out of bounds: " + where + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, report.data(), report.size());
#if SIMT_ASAN
  __sanitizer_print_stack_trace();
#endif
  _exit(kMemoryFaultStatus);
}

// Freed when its OS thread ends.
struct SignalStack {
  static constexpr size_t kBytes = 128 * 1024;
  char* memory = nullptr;

  SignalStack() {
    stack_t present{};
    sigaltstack(nullptr, &present);
    if ((present.ss_flags & SS_DISABLE) == 0 && present.ss_size >= kBytes) return;
    memory = new char[kBytes];
    stack_t mine{};
    mine.ss_sp = memory;
    mine.ss_size = kBytes;
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    if (!memory) return;
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
    delete[] memory;
  }
};

}  // namespace

void ensure_signal_stack() {
  if (kAsan) return;  // it has made one for every thread
  static thread_local SignalStack stack;
}

void catch_memory_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_memory_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &segv_before);
    sigaction(SIGBUS, &action, &bus_before);
  });
}

}  // namespace assay::simt

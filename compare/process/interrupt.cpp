#include "compare/process/interrupt.h"

#include <atomic>
#include <csignal>

namespace assay {

namespace {

std::atomic<bool> noted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it

extern "C" void note_interrupt(int signal) {
  noted = true;
  std::signal(signal, SIG_DFL);  // the second ends the process
}

}  // namespace

InterruptScope::InterruptScope() {
  noted = false;
  struct sigaction action {};
  action.sa_handler = note_interrupt;  // without SA_RESTART, so that a wait ends
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

InterruptScope::~InterruptScope() {
  noted = false;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
}

bool interrupted() { return noted; }
void interrupt_now() { noted = true; }

}  // namespace assay

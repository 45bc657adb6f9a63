// Ctrl-C in a long command: the first asks it to end with what it has found, the second ends it at once.
#pragma once

namespace assay {

// The exit status of a command that was interrupted before anything had failed: the shell's for this signal.
inline constexpr int kInterrupted = 130;

// While one of these lives, SIGINT and SIGTERM are noted. Not to be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

// Whether a signal has asked for the end of what runs in the living scope; false outside of one. What runs
// long looks at this between its steps. Always false in worker processes.
bool interrupted();
// As the first signal does, for what hears of the end in another way.
void interrupt_now();

}  // namespace assay

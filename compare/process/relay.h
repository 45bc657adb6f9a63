// Between the program of one process of a launcher and the messages of all: the program forks workers, which
// a process that has called MPI_Init must not, so its letters go through a descriptor to the process that
// has.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "compare/process/crew.h"

namespace assay {

// Messages between the processes of a launcher. No call waits. Two of one process arrive in their order.
struct Mail {
  int process = 0, processes = 1;
  std::function<void(int to, std::string text)> send;
  std::function<std::optional<Letter>()> take;
  std::function<bool()> sent;             // whether everything has left
  std::function<bool()> told_to_end;      // by the launcher
  std::function<void(int status)> abort;  // ends all processes
};

// Carries letters until the program of the first process has ended and all others know it. Returns the exit
// status of this process: in the first one that of its program; in another 0. `errors`: a file that has what
// the program wrote on standard error, or -1.
int relay(Mail& mail, int descriptor, pid_t program, int errors);

}  // namespace assay

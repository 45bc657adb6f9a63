#include "compare/process/no_exit.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "compare/text/printable.h"

namespace assay {

namespace {

std::string& judged() {
  static auto* const line = new std::string;  // never destroyed: it is read while the process ends
  return *line;
}

pid_t owner = 0;  // a child that a plugin forks ends as it likes

void say_what_ended() {
  if (judged().empty() || ::getpid() != owner) return;
  std::fflush(nullptr);  // what was reported before
  fmt::print(
      stderr,
      "assay: exit() was called while '{}' was judged, which ends this process: neither this case nor a "
      "later one is counted. Without --in-process it costs this case alone\n",
      printable(judged()));
  std::fflush(stderr);
  ::_exit(2);
}

}  // namespace

NoExit::NoExit(std::string line) {
  static std::once_flag once;
  std::call_once(once, [] {
    std::atexit(say_what_ended);
    std::at_quick_exit(say_what_ended);
  });
  owner = ::getpid();
  judged() = std::move(line);
}

NoExit::~NoExit() { judged().clear(); }

}  // namespace assay

#include "compare/process/output_of.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace assay {

namespace {

constexpr int kNotStarted = 127;

[[noreturn]] void become(const std::vector<std::string>& words, const std::array<int, 2>& pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it ends with who waits for it
  ::dup2(pipe[1], STDOUT_FILENO);
  ::dup2(pipe[1], STDERR_FILENO);
  ::close(pipe[0]);
  ::close(pipe[1]);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(kNotStarted);
}

// All that the child writes to the pipe until every writer has closed it. Once `over` says so, the child is
// asked to end, and killed where it does not: it may ignore the signal.
std::string read_all(int from, pid_t child, const std::function<bool()>& over) {
  using Clock = std::chrono::steady_clock;
  constexpr int kAskEvery = 200;  // milliseconds
  constexpr std::chrono::seconds kPatience(5);
  std::string text;
  std::array<char, 65536> buffer;
  std::optional<Clock::time_point> told;
  while (true) {
    if (over && !told && over()) ::kill(child, SIGINT), told = Clock::now();
    if (told && Clock::now() - *told > kPatience) {
      ::kill(child, SIGKILL);
      return text;  // its own children may hold the pipe
    }
    pollfd output{from, POLLIN, 0};
    const int ready = ::poll(&output, 1, over ? kAskEvery : -1);
    if (ready < 0 && errno != EINTR) return text;
    if (ready <= 0) continue;
    const ssize_t n = ::read(from, buffer.data(), buffer.size());
    if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
    else if (n == 0 || errno != EINTR) return text;
  }
}

}  // namespace

std::string Output::ending(const std::string& program) const {
  const std::string end =
      status >= 0 ? "exit status " + std::to_string(status) : "signal " + std::to_string(-status);
  constexpr size_t kMostShown = 400;
  std::string shown = text;
  while (!shown.empty() && shown.back() == '\n') shown.pop_back();
  if (shown.size() > kMostShown) shown = "..." + shown.substr(shown.size() - kMostShown);
  return program + ": " + end + (shown.empty() ? "" : ": " + shown);
}

Result<Output> run_program(const std::vector<std::string>& words, const std::function<bool()>& over) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return Error{std::string("no pipe: ") + std::strerror(errno), 0, ""};
  const pid_t child = ::fork();
  if (child < 0) return Error{std::string("no process: ") + std::strerror(errno), 0, ""};
  if (child == 0) become(words, pipe);
  ::close(pipe[1]);
  std::string text = read_all(pipe[0], child, over);
  ::close(pipe[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted && text.empty())
    return Error{words[0] + " cannot be started", 0, ""};
  return Output{WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), std::move(text)};
}

Result<std::string> output_of(const std::vector<std::string>& words) {
  auto output = run_program(words);
  if (!output) return output.error();
  if (output->status != 0) return Error{output->ending(words[0]), 0, ""};
  return std::move(output->text);
}

std::string program_path(const std::string& name, const std::string& given,
                         const std::vector<std::string>& folders) {
  if (!given.empty()) return given;
  const char* path = std::getenv("PATH");
  std::istringstream list(path ? path : "");
  std::vector<std::string> places;
  for (std::string folder; std::getline(list, folder, ':');) places.push_back(folder);
  places.insert(places.end(), folders.begin(), folders.end());
  for (const std::string& folder : places)
    if (!folder.empty() && ::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

}  // namespace assay

#include "training/mpi/mpi_meeting.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <vector>

#include <mpi.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace assay::training {

namespace {

// In the child: the place as text.
std::string met(const std::string& word, size_t longest) {
  int given = 0, process = 0, processes = 1;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS) return {};
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  std::vector<char> text(longest + 1, '\0');
  std::memcpy(text.data(), word.data(), std::min(word.size(), longest));
  MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return std::to_string(process) + " " + std::to_string(processes) + " " + text.data();
}

[[noreturn]] void child(int out, pid_t parent, const std::string& word, size_t longest) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const std::string text = met(word, longest);
  const bool whole = ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::_exit(whole && !text.empty() ? 0 : 1);
}

}  // namespace

MpiPlace meet_by_mpi(const std::string& word, size_t longest) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) throw std::runtime_error(std::string("cannot fork: ") + std::strerror(errno));
  if (pid == 0) child(ends[1], parent, word, longest);
  ::close(ends[1]);
  std::string text;
  char chunk[4096];
  for (ssize_t n; (n = ::read(ends[0], chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) text.append(chunk, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (status != 0 || text.empty()) throw std::runtime_error("MPI could not bring the processes together");
  MpiPlace place;
  std::istringstream in(text);
  in >> place.process >> place.processes >> std::ws;
  std::getline(in, place.word);
  return place;
}

}  // namespace assay::training

#include "compare/process/worker.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare/process/guarded_memory.h"
#include "compare/process/processor_time.h"

namespace assay {

namespace {

constexpr size_t kMaxFrame = size_t{8} << 30;
constexpr size_t kShownErrors = 1500;  // bytes of standard error that a crash quotes

// The parent's ends of every worker's pipes among them: a later child must not keep them open, or the end of
// an earlier one would not be seen.
std::set<int>& own_descriptors() {
  static std::set<int> own;
  return own;
}

bool write_all(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool read_all(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

struct FrameHead {
  uint64_t bytes;
  uint32_t task;
  uint32_t done;  // 0: the task has begun; the bytes say where its standard error begins
};

bool send_frame(int fd, uint32_t task, bool done, const std::string& text) {
  const FrameHead head{text.size(), task, done};
  return write_all(fd, &head, sizeof head) && write_all(fd, text.data(), text.size());
}

size_t file_size(int fd) {
  struct stat s {};
  return fd >= 0 && ::fstat(fd, &s) == 0 ? static_cast<size_t>(s.st_size) : 0;
}

}  // namespace

void keep_from_workers(int descriptor) { own_descriptors().insert(descriptor); }

void close_own(int descriptor) {
  own_descriptors().erase(descriptor);
  ::close(descriptor);
}

Worker::Worker(const Task& task) {
  int down[2], up[2];
  if (::pipe2(down, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  if (::pipe2(up, O_CLOEXEC) != 0) {
    ::close(down[0]);
    ::close(down[1]);
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  errors_ = ::memfd_create("assay-worker-stderr", MFD_CLOEXEC);
  std::fflush(stdout);
  std::fflush(stderr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) {
    const int why = errno;
    for (int fd : {down[0], down[1], up[0], up[1], errors_}) ::close(fd);
    throw std::runtime_error(fmt::format("cannot fork a worker: {}", std::strerror(why)));
  }
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    for (int sig : {SIGINT, SIGTERM, SIGPIPE})
      std::signal(sig, sig == SIGINT ? SIG_IGN : SIG_DFL);  // the parent decides on Ctrl-C
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (int fd : own_descriptors()) ::close(fd);
    own_descriptors().clear();  // a task that has workers itself may get the same numbers
    ::close(down[1]);
    ::close(up[0]);
    tell_far_writes();
    if (errors_ >= 0) ::dup2(errors_, STDERR_FILENO);
    // What a subject prints must not mix with the report.
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    serve(task, down[0], up[1]);
  }
  ::close(down[0]);
  ::close(up[1]);
  to_child_ = down[1];
  from_child_ = up[0];
  ::fcntl(from_child_, F_SETFL, O_NONBLOCK);
  keep_from_workers(to_child_);
  keep_from_workers(from_child_);
}

void Worker::serve(const Task& task, int in, int out) {
  try {
    for (uint32_t i; read_all(in, &i, sizeof i);) {
      std::fflush(stdout);
      if (!send_frame(out, i, false, std::to_string(file_size(STDERR_FILENO)))) break;
      if (!send_frame(out, i, true, task(i))) break;
    }
  } catch (const std::exception& e) {  // must not unwind into the parent's code
    std::fprintf(stderr, "%s\n", e.what());
    std::fflush(stderr);
    ::_exit(70);
  }
  ::_exit(0);  // no destructors, no atexit: a worker owns nothing that outlives it
}

Worker::~Worker() {
  if (pid_ > 0) bury(true);
}

void Worker::give(const std::vector<size_t>& tasks) {
  if (pending_.empty()) since_ = Clock::now();
  std::vector<uint32_t> numbers(tasks.begin(), tasks.end());
  pending_.insert(pending_.end(), tasks.begin(), tasks.end());
  // A child that has died is noticed by receive(); a pipe holds far more than a batch.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  write_all(to_child_, numbers.data(), numbers.size() * sizeof(uint32_t));
  ::sigaction(SIGPIPE, &before, nullptr);
}

bool Worker::receive(std::vector<Event>& events) {
  bool open = true;
  char chunk[65536];
  for (;;) {
    const ssize_t n = ::read(from_child_, chunk, sizeof chunk);
    if (n > 0) {
      buffer_.append(chunk, static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    open = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    break;
  }
  size_t at = 0;
  while (buffer_.size() - at >= sizeof(FrameHead)) {
    FrameHead head;
    std::memcpy(&head, buffer_.data() + at, sizeof head);
    if (head.bytes > kMaxFrame || pending_.empty() || head.task != pending_.front())
      return false;  // the child wrote over its own memory
    if (buffer_.size() - at - sizeof head < head.bytes) break;
    since_ = Clock::now();
    if (!head.done) {
      errors_at_ = std::strtoull(buffer_.substr(at + sizeof head, head.bytes).c_str(), nullptr, 10);
      events.push_back({Event::Kind::started, pending_.front(), {}});
    } else {
      events.push_back({Event::Kind::done, pending_.front(), buffer_.substr(at + sizeof head, head.bytes)});
      pending_.erase(pending_.begin());
    }
    at += sizeof head + head.bytes;
  }
  buffer_.erase(0, at);
  return open;
}

double Worker::processor_seconds() const { return pid_ > 0 ? processor_seconds_of(pid_) : 0; }

double Worker::queued_seconds() const { return pid_ > 0 ? queued_seconds_of(pid_) : 0; }

std::string Worker::bury(bool kill) {
  if (pid_ <= 0) return "it had ended before";
  close_own(to_child_);
  close_own(from_child_);
  int status = 0;
  bool ended = false;
  if (!kill) {
    // Its end of the pipe is closed, so it is ending; one that only closed the pipe is not waited for.
    for (int i = 0; i < 500 && !ended; ++i) {
      ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
      if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  if (!ended) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
  }
  pid_ = -1;
  std::string how;
  if (WIFSIGNALED(status))
    how = fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  else
    how = fmt::format("the process ended with status {}", WIFEXITED(status) ? WEXITSTATUS(status) : status);
  if (errors_ >= 0) {
    const size_t size = file_size(errors_),
                 from = std::max(errors_at_, size > kShownErrors ? size - kShownErrors : 0);
    std::string tail(size - std::min(from, size), '\0');
    const ssize_t n = ::pread(errors_, tail.data(), tail.size(), static_cast<off_t>(from));
    tail.resize(n > 0 ? static_cast<size_t>(n) : 0);
    while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.pop_back();
    if (!tail.empty() && !kill) how += "; its last words:\n" + tail;
    ::close(errors_);
    errors_ = -1;
  }
  return how;
}

}  // namespace assay

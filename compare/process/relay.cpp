#include "compare/process/relay.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace assay {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{30};  // for processes that must say that they have ended
constexpr int64_t kShortest = 50'000, kLongest = 2'000'000;  // nanoseconds between two looks at the mail

class Relay {
 public:
  Relay(Mail& mail, int descriptor, pid_t program, int errors)
      : mail_(mail), descriptor_(descriptor), program_(program), errors_(errors) {
    outgoing_ = as_sent(-1, fmt::format("{} {}", mail.process, mail.processes));
  }

  int run() {
    while (!over_) {
      moved_ = false;
      read_program();
      read_mail();
      write_program();
      watch();
      pause();
    }
    return mail_.process == 0 ? end_as_first() : end_as_other();
  }

 private:
  void read_program() {
    char chunk[65536];
    ssize_t n;
    while ((n = ::recv(descriptor_, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
      incoming_.append(chunk, static_cast<size_t>(n));
    std::vector<Letter> letters;
    take_letters(incoming_, letters);
    for (Letter& l : letters) mail_.send(l.from, std::move(l.text));
    moved_ |= !letters.empty();
  }

  void read_mail() {
    while (std::optional<Letter> l = mail_.take()) {
      moved_ = true;
      if (static_cast<Word>(l->text[0]) == Word::end) over_ = true;
      else if (!ended_) outgoing_ += as_sent(l->from, l->text);
    }
  }

  void write_program() {
    while (!outgoing_.empty()) {
      const ssize_t n = ::send(descriptor_, outgoing_.data(), outgoing_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      outgoing_.erase(0, static_cast<size_t>(n));
    }
  }

  // Whether the program has ended, and whether the launcher wants the end.
  void watch() {
    if (mail_.told_to_end() && !told_ && mail_.process == 0) {
      told_ = true;
      outgoing_ += as_sent(0, std::string(1, static_cast<char>(Word::interrupt)));
    }
    int status = 0;
    if (ended_ || ::waitpid(program_, &status, WNOHANG) != program_) return;
    ended_ = true;
    read_program();
    const std::string how =
        WIFSIGNALED(status) ? fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                            : fmt::format("exit status {}", WEXITSTATUS(status));
    if (mail_.process == 0) {
      over_ = true;
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (WIFSIGNALED(status) && !told_)
        fmt::print(stderr,
                   "assay: rank 0 has ended: {}\nThe same command with --resume does what is missing\n", how);
    } else if (!mail_.told_to_end()) {
      mail_.send(0, static_cast<char>(Word::lost) + how + last_words());
    }
  }

  std::string last_words() const {
    constexpr off_t kShown = 1500;
    struct stat s {};
    if (errors_ < 0 || ::fstat(errors_, &s) != 0) return {};
    std::string text(static_cast<size_t>(std::min<off_t>(s.st_size, kShown)), '\0');
    const ssize_t n = ::pread(errors_, text.data(), text.size(), std::max<off_t>(0, s.st_size - kShown));
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.empty() ? text : "; its last words:\n" + text;
  }

  // Cores may be fewer than processes, so that waiting must not take one.
  void pause() {
    idle_ = moved_ ? kShortest : std::min(2 * idle_, kLongest);
    pollfd p{ended_ ? -1 : descriptor_, static_cast<short>(POLLIN | (outgoing_.empty() ? 0 : POLLOUT)), 0};
    const timespec wait{0, idle_};
    if (!over_) ::ppoll(&p, 1, &wait, nullptr);
  }

  // Every other relay answers with its last letter, so that nothing is under way when MPI ends.
  int end_as_first() {
    for (int p = 1; p < mail_.processes; ++p) mail_.send(p, std::string(1, static_cast<char>(Word::end)));
    const auto until = Clock::now() + kPatience;
    for (int missing = mail_.processes - 1; missing > 0 || !mail_.sent();) {
      while (const std::optional<Letter> l = mail_.take())
        missing -= static_cast<Word>(l->text[0]) == Word::last;
      if (Clock::now() > until) mail_.abort(status_);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return status_;
  }

  int end_as_other() {
    ::close(descriptor_);
    for (int i = 0; i < 2000 && !ended_; ++i) {
      ended_ = ::waitpid(program_, nullptr, WNOHANG) == program_;
      if (!ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!ended_) {
      ::kill(program_, SIGKILL);
      ::waitpid(program_, nullptr, 0);
    }
    mail_.send(0, std::string(1, static_cast<char>(Word::last)));
    while (!mail_.sent()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return 0;
  }

  Mail& mail_;
  int descriptor_;
  pid_t program_;
  int errors_, status_ = 0;
  bool over_ = false, ended_ = false, told_ = false, moved_ = false;
  int64_t idle_ = kShortest;
  std::string incoming_, outgoing_;
};

}  // namespace

int relay(Mail& mail, int descriptor, pid_t program, int errors) {
  return Relay(mail, descriptor, program, errors).run();
}

}  // namespace assay

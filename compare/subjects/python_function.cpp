#include "compare/subjects/python_function.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/text/shell.h"
#include "contract/line.h"
#include "contract/own_order.h"
#include "fixtures/json.h"

namespace assay {

namespace {

constexpr char kServe[] = "from assay._serve_program import main; main()";
constexpr size_t kMostAnswer = size_t{1} << 20;  // bytes of the line of an answer

// The time in which an interpreter had to answer is over.
struct Late {};

// A process that reads questions and writes answers: a line of JSON each, and bytes behind it.
class Interpreter {
 public:
  // Throws std::runtime_error when the system refuses.
  Interpreter(const std::string& program, const std::string& function, const std::string& spec) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
      throw std::runtime_error(std::string("no pipe for an interpreter: ") + std::strerror(errno));
    std::vector<const char*> words = {program.c_str(), "-c", kServe, function.c_str(), spec.c_str(), nullptr};
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error(std::string("no interpreter: ") + std::strerror(errno));
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a worker that is ended leaves none behind
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      execvp(program.c_str(), const_cast<char* const*>(words.data()));
      fmt::print(stderr, "{}: {}\n", program, std::strerror(errno));
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Interpreter() {
    close(to_);
    close(from_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // From now on reading throws Late once so many seconds have gone by; empty: it waits without an end, and
  // the limit of the task in progress holds.
  void must_answer_within(std::optional<double> seconds) {
    deadline_.reset();
    if (seconds)
      deadline_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
  }

  // Sends a question with the bytes behind it. False once the other side has ended.
  bool ask(const json::Value& question, std::span<const ConstBuffer> planes) {
    const std::string text = json::dump(question) + "\n";
    bool sent = write_all(text.data(), text.size());
    for (const ConstBuffer& b : planes) sent = sent && write_all(b.bytes.data(), b.bytes.size());
    return sent;
  }
  // The line of an answer, whose status is "ok" or which has a reason; nothing once the other side has ended.
  std::optional<json::Value> answer() {
    std::string text;
    for (char c = 0; c != '\n';) {
      if (!read_all(&c, 1)) return {};
      if (text.size() == kMostAnswer) throw unexpected("a line of more than 1 MiB", text);
      if (c != '\n') text += c;
    }
    const auto value = json::parse(text);
    if (!value) throw unexpected("what is not JSON", text);
    if (value->text("status") != "ok" && value->text("why").empty())
      throw unexpected("neither \"ok\" nor a reason", text);
    return *value;
  }
  bool read_all(void* to, size_t size) {
    for (auto* at = static_cast<char*>(to); size > 0;) {
      wait_for_bytes();
      const ssize_t n = ::read(from_, at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  // How it ended, in words. What it printed last is on standard error.
  std::string end() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                               : fmt::format("exit {}", WEXITSTATUS(status));
  }

 private:
  using Clock = std::chrono::steady_clock;

  static std::runtime_error unexpected(const char* found, const std::string& text) {
    return std::runtime_error(fmt::format("the interpreter answered {}: {}", found, text.substr(0, 200)));
  }
  void wait_for_bytes() const {
    if (!deadline_) return;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
      pollfd one{from_, POLLIN, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
      if (ready > 0 || (ready < 0 && errno != EINTR)) return;  // reading says what is wrong
      if (left <= 0) throw Late{};
    }
  }
  bool write_all(const void* from, size_t size) {
    for (auto* at = static_cast<const char*>(from); size > 0;) {
      const ssize_t n = ::write(to_, at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::optional<Clock::time_point> deadline_;
};

json::Value plane_words(const Plane& plane, size_t bytes) {
  return json::object({{"name", plane.name}, {"bytes", bytes}});
}

class PythonSubject final : public Subject {
 public:
  PythonSubject(std::string function, std::string spec, double timeout)
      : function_(std::move(function)), spec_(std::move(spec)), timeout_(timeout) {
    name_ = "python:" + function_.substr(function_.find(':') + 1);
    const char* chosen = std::getenv("ASSAY_PYTHON");
    program_ = chosen && *chosen ? chosen : "python3";
    signal(SIGPIPE, SIG_IGN);  // an interpreter that has ended is an answer
  }

  std::string_view name() const override { return name_; }
  std::string argument() const override {
    return "--python " + shell_word(function_) + (spec_.empty() ? "" : " --python-spec " + shell_word(spec_));
  }

  // The interpreter of this look is not kept: workers are forked from this process.
  Support present() const override {
    if (!looked_) {
      looked_ = true;
      absent_ = greeting(*std::make_unique<Interpreter>(program_, function_, spec_));
    }
    return {absent_.empty(), absent_};
  }

  Support supports(const Problem& p) const override {
    const json::Value said = asked(json::object({{"ask", "supports"}, {"line", to_canonical_line(p)}}), {});
    return {said.text("status") == "ok", std::string(said.text("why"))};
  }

  // The function may run on a GPU.
  std::optional<std::string> unpinned(const Problem& p) const override { return own_on_gpu(p); }
  std::string own_words() const override { return spec_.empty() ? "" : "quantize " + spec_; }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment&) override {
    json::Value given = json::array(), wanted = json::array();
    for (const ConstBuffer& b : inputs) given.push(plane_words(*b.plane, b.bytes.size()));
    for (const Buffer& b : outputs) wanted.push(plane_words(*b.plane, b.bytes.size()));
    const json::Value said =
        asked(json::object(
                  {{"ask", "run"}, {"line", to_canonical_line(p)}, {"inputs", given}, {"outputs", wanted}}),
              inputs);
    const std::string why(said.text("why"));
    if (said.text("status") == "unsupported") throw Unsupported(why);
    if (said.text("status") != "ok") throw std::runtime_error(why);
    for (const Buffer& b : outputs)
      if (!interpreter_->read_all(b.bytes.data(), b.bytes.size())) throw std::runtime_error(gone());
    return {function_, 0};
  }

 private:
  // What it says when it has imported the function; empty where all is well.
  std::string greeting(Interpreter& started) const {
    std::optional<json::Value> said;
    started.must_answer_within(timeout_);
    try {
      said = started.answer();
    } catch (const Late&) {
      return fmt::format(
          "the interpreter {} did not say within {:g} s that it has imported {}: it hangs, or the import "
          "takes longer than --timeout allows",
          program_, timeout_, function_);
    }
    started.must_answer_within({});
    if (said) return std::string(said->text("status") == "ok" ? std::string_view{} : said->text("why"));
    return fmt::format(
        "the interpreter {} ended with {} before it had imported the package: type  {} -m pip install .  in "
        "a "
        "clone of Assay, or set ASSAY_PYTHON to an interpreter that has it",
        program_, started.end(), program_);
  }

  std::string gone() const {
    const std::string how = interpreter_->end();
    interpreter_.reset();
    return "the interpreter ended with " + how + " in " + function_;
  }

  json::Value asked(const json::Value& question, std::span<const ConstBuffer> planes) const {
    if (owner_ != getpid()) {
      if (interpreter_) (void)interpreter_.release();  // the parent's, whose process is not ours to end
      owner_ = getpid();
    }
    if (!interpreter_) {
      interpreter_ = std::make_unique<Interpreter>(program_, function_, spec_);
      if (const std::string trouble = greeting(*interpreter_); !trouble.empty()) {
        interpreter_.reset();
        throw std::runtime_error(trouble);
      }
    }
    if (interpreter_->ask(question, planes))
      if (auto said = interpreter_->answer()) return std::move(*said);
    throw std::runtime_error(gone());
  }

  std::string function_, spec_, name_, program_;
  double timeout_;
  mutable std::unique_ptr<Interpreter> interpreter_;
  mutable pid_t owner_ = -1;
  mutable bool looked_ = false;
  mutable std::string absent_;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_python_subject(const std::string& function, const std::string& spec,
                                                     double timeout) {
  const size_t colon = function.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == function.size())
    return Error{fmt::format("--python: expected package.module:function, found '{}'", function), 0,
                 "such as kernels.mxfp8:quantize"};
  return {std::make_unique<PythonSubject>(function, spec, timeout)};
}

}  // namespace assay

// One worker: a forked child that does numbered tasks and sends each result back as a frame of bytes. The
// parent polls; a child that ends or hangs is an event, not the end.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace assay {

// A descriptor of this process that no worker keeps open: whoever reads the other end then hears at once that
// this process has ended. close_own() closes it.
void keep_from_workers(int descriptor);
void close_own(int descriptor);

class Worker {
 public:
  using Task =
      std::function<std::string(size_t)>;  // in the child: does task i and returns its result, any bytes
  using Clock = std::chrono::steady_clock;

  // Forks. This process must not have started threads. Throws std::runtime_error when the system refuses.
  explicit Worker(const Task& task);
  ~Worker();  // kills the child where it still lives
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Hands out tasks; they are done in order.
  void give(const std::vector<size_t>& tasks);
  int descriptor() const { return from_child_; }  // for poll()

  struct Event {
    enum class Kind { started, done } kind;
    size_t task;
    std::string result;  // done
  };
  // Reads what is there (call when poll() says so); appends complete events. False once the child has closed
  // its end.
  bool receive(std::vector<Event>& events);

  const std::vector<size_t>& pending() const {
    return pending_;
  }                                                   // given, not done; the first is in progress
  Clock::time_point since() const { return since_; }  // when the one in progress began
  // What the child and the processes below it have used until now, in all their threads.
  double processor_seconds() const;
  // How long these were ready to run and waited for a processor (compare/process/processor_time.h).
  double queued_seconds() const;
  // Ends the child and says how it ended: "signal 11 (Segmentation fault)", with the last lines of its
  // standard error.
  std::string bury(bool kill);

 private:
  [[noreturn]] void serve(const Task& task, int in, int out);
  int pid_ = -1, to_child_ = -1, from_child_ = -1, errors_ = -1;
  size_t errors_at_ = 0;  // where the standard error of the task in progress begins
  std::string buffer_;
  std::vector<size_t> pending_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace assay

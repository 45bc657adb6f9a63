// Some workers and what they are doing: tasks go to those that will soon have none, and what happens to the
// tasks comes back as events. A worker that ends or overruns its time costs one task.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "compare/process/worker.h"

namespace assay {

struct TaskEvent {
  enum class Kind : uint8_t { started, done, crashed } kind;
  size_t task;
  std::string text;  // done: the result; crashed: how the worker ended
};

// Tasks that a worker holds: one that it does, and one that hides the round trip. Whatever holds more sits on
// tasks that others could do, and tasks of one command differ by a factor of ten thousand.
inline constexpr size_t kHeld = 2;

class WorkerSet {
 public:
  // `timeout` as run_tasks has it. A worker is forked when it gets its first task.
  WorkerSet(Worker::Task task, size_t workers, double timeout);

  size_t size() const { return workers_.size(); }
  // Takes tasks from the front of the queue until each worker has `held`.
  void feed(std::deque<size_t>& queue, size_t held);
  // Waits until something has happened or the descriptor `also` (-1: none) can be read, a second at most.
  // The tasks behind one that crashed go back to the front of the queue.
  void wait(int also, std::deque<size_t>& queue, std::vector<TaskEvent>& events);

 private:
  // What is known of the processor time of a worker's task in progress.
  struct Watch {
    Worker::Clock::time_point task;     // Worker::since() of the task that this is about
    Worker::Clock::time_point looked;   // when it was last looked at
    Worker::Clock::time_point at_work;  // when it was last seen to work
    double first = 0, last = 0;  // seconds that the worker had used when the task began, and when looked at
    double queued = 0;           // and had waited for a processor when looked at
  };
  std::string overdue(const Worker& w, Watch& watch) const;
  void lose(size_t worker, const std::string& why, std::deque<size_t>& queue, std::vector<TaskEvent>& events);

  Worker::Task task_;
  double timeout_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Watch> watches_;  // of the workers
};

}  // namespace assay

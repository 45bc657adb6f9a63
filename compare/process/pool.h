// Runs many tasks in worker processes. This process starts no thread and touches no device, so a worker is a
// plain fork. Results come back in the order of the tasks, whatever the number of workers.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "compare/process/journal.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// Tasks that have numbers of their own in the whole command, so that a later run can take over their results.
struct NumberedTasks {
  size_t first = 0;            // the number of task 0
  Journal* journal = nullptr;  // of results; may be null
  // Whether a task is left out; its result is then empty. The function may be empty.
  std::function<bool(size_t)> not_needed = {};
};

// What run_tasks does with tasks 0..count-1.
struct TaskHooks {
  std::function<std::string(size_t)> task;  // in a worker: the result, any bytes
  std::function<std::string(const std::string& why)>
      crashed;                          // the result of a task whose worker ended or ran out of time
  std::function<void(size_t)> started;  // here, when a worker says so; may be empty
  std::function<bool(size_t, std::string)> result;  // here, in order; false: stop
  std::function<void()> waiting = {};  // here, once a second or more often while workers work; may be empty
  std::optional<NumberedTasks> numbered = {};
};
// A task may use `timeout` seconds of processor time, and stand still, neither using nor waiting for a
// processor, for as long but at most kLongestPause: so a busy machine ends no task that works, and a deadlock
// ends all the same.
inline constexpr double kLongestPause = 30;  // seconds
// Returns the number of results handed over: fewer than `count` where a hook stopped it, or the user did
// (compare/process/interrupt.h). jobs 0: the cores of this machine.
size_t run_tasks(size_t count, int jobs, double timeout, TaskHooks hooks);

// Runs `work` in a child process and returns the text that it returns, or an Error that says how the child
// ended. `waiting` as TaskHooks has it.
Result<std::string> in_child(const std::function<std::string()>& work, double timeout,
                             const std::function<void()>& waiting = {});

// While one lives, what its thread would run in a child process runs on the thread itself, and tasks on
// threads beside it. For hosts that must not be forked, such as a Python interpreter with threads: a crash is
// then the host's, and no time limit holds.
class InThisProcess {
 public:
  InThisProcess();
  ~InThisProcess();
  InThisProcess(const InThisProcess&) = delete;
  InThisProcess& operator=(const InThisProcess&) = delete;
};

// Subject::present() and Subject::supports(), asked in a child process: a subject may touch a device to
// answer, and a process that forks workers must not.
Support present_in_child(const Subject& subject);
Support supports_in_child(const Subject& subject, const Problem& problem);

}  // namespace assay

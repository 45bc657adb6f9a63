#include "compare/process/pool.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "compare/process/crew.h"
#include "compare/process/interrupt.h"
#include "compare/process/worker_set.h"

namespace assay {

namespace {

// Runs tasks 0..count-1 in worker processes, and in those of the crew where they are numbered, and hands over
// the results in order.
class Pool {
 public:
  Pool(size_t count, int jobs, double timeout, TaskHooks hooks)
      : count_(count),
        hooks_(std::move(hooks)),
        workers_(hooks_.task, std::clamp<size_t>(static_cast<size_t>(jobs), 1, std::max<size_t>(count, 1)),
                 timeout),
        crew_(hooks_.numbered ? crew() : nullptr) {}

  size_t run() {
    for (size_t i = 0; i < count_ && !stopped_ && !interrupted(); ++i)
      if (not_needed(i)) deliver(i, {});
      else if (const std::string* known = known_result(i)) deliver(i, *known);
      else queue_.push_back(i);
    std::vector<TaskEvent> events;
    while (!stopped_ && !interrupted() && next_ < count_) {
      // Nobody holds a second task before everybody has one.
      for (size_t held = 1; held <= kHeld; ++held) {
        workers_.feed(queue_, held);
        if (crew_) crew_->feed(queue_, hooks_.numbered->first, held);
      }
      events.clear();
      workers_.wait(crew_ ? crew_->descriptor() : -1, queue_, events);
      // Also where a signal has come: a launcher sends it where another process has died, which this says.
      if (crew_) crew_->receive(hooks_.numbered->first, count_, events);
      if (hooks_.waiting) hooks_.waiting();
      for (TaskEvent& e : events)
        if (!stopped_) take(e);
    }
    return next_;
  }

 private:
  bool not_needed(size_t task) const {
    return hooks_.numbered && hooks_.numbered->not_needed && hooks_.numbered->not_needed(task);
  }
  const std::string* known_result(size_t task) const {
    if (!hooks_.numbered || !hooks_.numbered->journal) return nullptr;
    return hooks_.numbered->journal->find(hooks_.numbered->first + task);
  }

  void take(TaskEvent& e) {
    switch (e.kind) {
      case TaskEvent::Kind::started:
        if (hooks_.started) hooks_.started(e.task);
        return;
      case TaskEvent::Kind::done:
        if (hooks_.numbered && hooks_.numbered->journal)
          hooks_.numbered->journal->add(hooks_.numbered->first + e.task, e.text);
        return deliver(e.task, std::move(e.text));
      case TaskEvent::Kind::crashed:
        // A signal to the whole group (`timeout`, a batch system) ends the workers too: that is no crash. One
        // that crashed has no result to keep: the machine may be to blame, so a later run tries it again.
        if (!interrupted()) deliver(e.task, hooks_.crashed(e.text));
        return;
    }
  }

  void deliver(size_t task, std::string result) {
    early_.emplace(task, std::move(result));
    for (auto it = early_.begin(); !stopped_ && it != early_.end() && it->first == next_;
         it = early_.erase(it)) {
      stopped_ = !hooks_.result(it->first, std::move(it->second));
      ++next_;
    }
  }

  size_t count_, next_ = 0;
  bool stopped_ = false;
  TaskHooks hooks_;
  WorkerSet workers_;
  Crew* crew_;
  std::deque<size_t> queue_;
  std::map<size_t, std::string> early_;  // done before an earlier one
};

// How many InThisProcess live on this thread.
thread_local int in_this_process = 0;

int cores() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

}  // namespace

InThisProcess::InThisProcess() { ++in_this_process; }
InThisProcess::~InThisProcess() { --in_this_process; }

namespace {

// Runs the tasks on threads of this process, as a Pool does in workers; what a task throws is thrown here.
size_t run_on_threads(size_t count, size_t jobs, const TaskHooks& hooks) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> stopped = false;
  std::mutex mutex;  // of what follows
  std::map<size_t, std::string> early;
  std::exception_ptr thrown;
  size_t handed_over = 0;
  const auto work = [&] {
    const InThisProcess here;  // on a thread of its own, too
    for (size_t i; !stopped && !interrupted() && (i = next++) < count;) try {
        std::string text = hooks.task(i);
        const std::lock_guard lock(mutex);
        early.emplace(i, std::move(text));
        for (auto it = early.begin(); !stopped && it != early.end() && it->first == handed_over;
             it = early.erase(it), ++handed_over)
          stopped = !hooks.result(it->first, std::move(it->second));
      } catch (...) {
        const std::lock_guard lock(mutex);
        stopped = true;
        thrown = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    for (size_t t = 1; t < std::min(jobs, count); ++t) others.emplace_back(work);
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
  return handed_over;
}

}  // namespace

size_t run_tasks(size_t count, int jobs, double timeout, TaskHooks hooks) {
  if (in_this_process > 0)
    return run_on_threads(count, static_cast<size_t>(jobs > 0 ? jobs : cores()), hooks);
  return Pool(count, jobs > 0 ? jobs : cores(), timeout, std::move(hooks)).run();
}

Result<std::string> in_child(const std::function<std::string()>& work, double timeout,
                             const std::function<void()>& waiting) {
  if (in_this_process > 0) return work();
  std::optional<std::string> text;
  std::string why;
  TaskHooks hooks;
  hooks.task = [&](size_t) { return work(); };
  hooks.waiting = waiting;
  hooks.crashed = [&](const std::string& reason) {
    why = reason;
    return std::string();
  };
  hooks.result = [&](size_t, std::string v) {
    if (why.empty()) text = std::move(v);
    return true;
  };
  run_tasks(1, 1, timeout, std::move(hooks));
  if (!text && why.empty() && interrupted()) return Error{"interrupted", 0, ""};
  if (!text) return Error{"the child process crashed: " + why, 0, ""};
  return std::move(*text);
}

namespace {

Support support_in_child(const Subject& subject, const char* what, const std::function<Support()>& asked) {
  const Result<std::string> answer = in_child(
      [&] {
        const Support support = asked();
        return (support.yes ? "y" : "n") + support.why;
      },
      60);
  if (!answer)
    return {false,
            fmt::format("{} did not say whether it {}: {}", subject.name(), what, answer.error().text())};
  return {answer->starts_with('y'), answer->substr(1)};
}

}  // namespace

Support present_in_child(const Subject& subject) {
  return support_in_child(subject, "is here", [&] { return subject.present(); });
}

Support supports_in_child(const Subject& subject, const Problem& problem) {
  return support_in_child(subject, "supports the line", [&] { return subject.supports(problem); });
}

}  // namespace assay

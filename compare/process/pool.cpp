#include "compare/process/pool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "compare/process/interrupt.h"
#include "compare/process/worker.h"

namespace assay {

namespace {

// Runs tasks 0..count-1 in worker processes and hands over the results in order.
class Pool {
 public:
  Pool(size_t count, int jobs, double timeout, TaskHooks hooks)
      : count_(count), timeout_(timeout), hooks_(std::move(hooks)) {
    workers_.resize(std::clamp<size_t>(static_cast<size_t>(jobs), 1, std::max<size_t>(count, 1)));
    watches_.resize(workers_.size());
  }

  size_t run() {
    for (size_t i = 0; i < count_ && !stopped_ && !interrupted(); ++i)
      if (not_needed(i)) deliver(i, {});
      else if (const std::string* known = known_result(i)) deliver(i, *known);
      else queue_.push_back(i);
    while (!stopped_ && !interrupted() && next_ < count_) {
      for (std::unique_ptr<Worker>& w : workers_) feed(w);
      wait();
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
  // A task that crashed has none to keep: the machine may be to blame, so a later run tries it again.
  void keep(size_t task, const std::string& result) {
    if (hooks_.numbered && hooks_.numbered->journal)
      hooks_.numbered->journal->add(hooks_.numbered->first + task, result);
  }

  // Tasks that a worker gets at once: enough to hide the round trip, few enough that no worker sits on a
  // tail.
  size_t batch() const { return std::clamp<size_t>(queue_.size() / (workers_.size() * 8), 1, 16); }

  void feed(std::unique_ptr<Worker>& w) {
    if (queue_.empty() || (w && w->pending().size() > 1)) return;
    if (!w) w = std::make_unique<Worker>(hooks_.task);
    std::vector<size_t> tasks;
    for (size_t n = batch(); n > 0 && !queue_.empty(); --n) {
      tasks.push_back(queue_.front());
      queue_.pop_front();
    }
    w->give(tasks);
  }

  void wait() {
    std::vector<pollfd> polled;
    std::vector<std::unique_ptr<Worker>*> owners;
    for (std::unique_ptr<Worker>& w : workers_) {
      if (!w || w->pending().empty()) continue;
      polled.push_back({w->descriptor(), POLLIN, 0});
      owners.push_back(&w);
    }
    const double wait = std::min(timeout_, kLongestPause) / 4;
    const int wait_ms = static_cast<int>(std::clamp(wait * 1000, 1.0, 1000.0));
    if (::poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR)
      throw std::runtime_error("poll failed");
    if (hooks_.waiting) hooks_.waiting();
    for (size_t i = 0; i < polled.size() && !stopped_; ++i) {
      std::unique_ptr<Worker>& w = *owners[i];
      if (polled[i].revents != 0) {
        std::vector<Worker::Event> events;
        const bool open = w->receive(events);
        for (Worker::Event& e : events) {
          if (e.kind == Worker::Event::Kind::done) {
            keep(e.task, e.result);
            deliver(e.task, std::move(e.result));
          } else if (hooks_.started) {
            hooks_.started(e.task);
          }
        }
        if (!open) replace(w, w->bury(false));
      } else if (const std::string why = overdue(*w, watches_[static_cast<size_t>(&w - workers_.data())]);
                 !why.empty()) {
        w->bury(true);
        replace(w, why);
      }
    }
  }

  // What is known of the processor time of a worker's task in progress.
  struct Watch {
    Worker::Clock::time_point task;     // Worker::since() of the task that this is about
    Worker::Clock::time_point looked;   // when it was last looked at
    Worker::Clock::time_point at_work;  // when it was last seen to work
    double first = 0, last = 0;  // seconds that the worker had used when the task began, and when looked at
  };

  // Why the task in progress is given up, or an empty string.
  std::string overdue(const Worker& w, Watch& watch) const {
    constexpr double kAtWork = 0.02;  // of a processor: less is only waiting
    const auto now = Worker::Clock::now();
    const auto seconds = [](Worker::Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    if (watch.task != w.since()) {
      const double used = w.processor_seconds();
      watch = {w.since(), now, now, used, used};
      return {};
    }
    if (seconds(now - watch.looked) < std::min(timeout_, kLongestPause) / 8) return {};
    const double used = w.processor_seconds(), pause = std::min(timeout_, kLongestPause);
    if (used - watch.last > kAtWork * seconds(now - watch.looked)) watch.at_work = now;
    watch.looked = now;
    watch.last = used;
    if (used - watch.first > timeout_)
      return fmt::format("timed out after {:g} s of processor time", timeout_);
    if (seconds(now - watch.at_work) > pause)
      return fmt::format("timed out after {:g} s without any work", pause);
    return {};
  }

  // The task in progress is lost with its worker; those behind it go to another.
  void replace(std::unique_ptr<Worker>& w, const std::string& why) {
    const std::vector<size_t> pending = w->pending();
    w.reset();
    // A signal to the whole group (`timeout`, a batch system) ends the workers too: that is no crash.
    if (pending.empty() || interrupted()) return;
    queue_.insert(queue_.begin(), pending.begin() + 1, pending.end());
    deliver(pending[0], hooks_.crashed(why));
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
  double timeout_;
  bool stopped_ = false;
  TaskHooks hooks_;
  std::deque<size_t> queue_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Watch> watches_;           // of the workers
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

Support present_in_child(const Subject& subject) {
  const Result<std::string> answer = in_child(
      [&] {
        const Support p = subject.present();
        return (p.yes ? "y" : "n") + p.why;
      },
      60);
  if (!answer) return {false, answer.error().text()};
  return {answer->starts_with('y'), answer->substr(1)};
}

}  // namespace assay

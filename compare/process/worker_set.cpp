#include "compare/process/worker_set.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "compare/process/pool.h"

namespace assay {

WorkerSet::WorkerSet(Worker::Task task, size_t workers, double timeout)
    : task_(std::move(task)), timeout_(timeout), workers_(workers), watches_(workers) {}

void WorkerSet::feed(std::deque<size_t>& queue, size_t held) {
  for (std::unique_ptr<Worker>& w : workers_) {
    if (queue.empty()) return;
    if (w && w->pending().size() >= held) continue;
    if (!w) w = std::make_unique<Worker>(task_);
    w->give({queue.front()});
    queue.pop_front();
  }
}

void WorkerSet::wait(int also, std::deque<size_t>& queue, std::vector<TaskEvent>& events) {
  std::vector<pollfd> polled;
  std::vector<size_t> owners;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i] || workers_[i]->pending().empty()) continue;
    polled.push_back({workers_[i]->descriptor(), POLLIN, 0});
    owners.push_back(i);
  }
  if (also >= 0) polled.push_back({also, POLLIN, 0});
  const double wait = std::min(timeout_, kLongestPause) / 4;
  const int wait_ms = static_cast<int>(std::clamp(wait * 1000, 1.0, 1000.0));
  if (::poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR)
    throw std::runtime_error("poll failed");
  for (size_t i = 0; i < owners.size(); ++i) {
    Worker& w = *workers_[owners[i]];
    if (polled[i].revents != 0) {
      std::vector<Worker::Event> happened;
      const bool open = w.receive(happened);
      for (Worker::Event& e : happened) {
        const bool done = e.kind == Worker::Event::Kind::done;
        events.push_back(
            {done ? TaskEvent::Kind::done : TaskEvent::Kind::started, e.task, std::move(e.result)});
      }
      if (!open) lose(owners[i], w.bury(false), queue, events);
    } else if (const std::string why = overdue(w, watches_[owners[i]]); !why.empty()) {
      w.bury(true);
      lose(owners[i], why, queue, events);
    }
  }
}

// Why the task in progress is given up, or an empty string.
std::string WorkerSet::overdue(const Worker& w, Watch& watch) const {
  constexpr double kAtWork = 0.02;  // of a processor: less is only waiting
  const auto now = Worker::Clock::now();
  const auto seconds = [](Worker::Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  if (watch.task != w.since()) {
    const double used = w.processor_seconds();
    watch = {w.since(), now, now, used, used, w.queued_seconds()};
    return {};
  }
  if (seconds(now - watch.looked) < std::min(timeout_, kLongestPause) / 8) return {};
  const double used = w.processor_seconds(), queued = w.queued_seconds();
  const double pause = std::min(timeout_, kLongestPause);
  // On a machine that is full, a worker of a low priority gets next to nothing and is ready all the same.
  if (used - watch.last + std::max(0.0, queued - watch.queued) > kAtWork * seconds(now - watch.looked))
    watch.at_work = now;
  watch.looked = now;
  watch.last = used;
  watch.queued = queued;
  if (used - watch.first > timeout_) return fmt::format("timed out after {:g} s of processor time", timeout_);
  if (seconds(now - watch.at_work) > pause)
    return fmt::format("timed out after {:g} s without any work", pause);
  return {};
}

// The task in progress is lost with its worker; those behind it go to another.
void WorkerSet::lose(size_t worker, const std::string& why, std::deque<size_t>& queue,
                     std::vector<TaskEvent>& events) {
  const std::vector<size_t> pending = workers_[worker]->pending();
  workers_[worker].reset();
  if (pending.empty()) return;
  queue.insert(queue.begin(), pending.begin() + 1, pending.end());
  events.push_back({TaskEvent::Kind::crashed, pending[0], why});
}

}  // namespace assay

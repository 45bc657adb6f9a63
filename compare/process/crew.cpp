#include "compare/process/crew.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compare/process/interrupt.h"

namespace assay {

namespace {

constexpr uint32_t kLongestLetter = uint32_t{1} << 30;

std::unique_ptr<Crew>& current() {
  static std::unique_ptr<Crew> crew;
  return crew;
}

std::string bytes_of(size_t number) {
  const auto n = static_cast<uint32_t>(number);
  return {reinterpret_cast<const char*>(&n), sizeof n};
}

// The number at the front of the text, which loses it.
size_t take_number(std::string_view& text) {
  uint32_t n = 0;
  if (text.size() < sizeof n) throw std::runtime_error("a letter between processes is cut short");
  std::memcpy(&n, text.data(), sizeof n);
  text.remove_prefix(sizeof n);
  return n;
}

constexpr std::pair<Word, TaskEvent::Kind> kEvents[] = {{Word::started, TaskEvent::Kind::started},
                                                        {Word::done, TaskEvent::Kind::done},
                                                        {Word::crashed, TaskEvent::Kind::crashed}};
Word word_of(TaskEvent::Kind kind) {
  return std::find_if(std::begin(kEvents), std::end(kEvents), [&](const auto& e) { return e.second == kind; })
      ->first;
}

}  // namespace

std::string as_sent(Word word, std::string_view text) {
  std::string out = bytes_of(text.size() + 1);
  out += static_cast<char>(word);
  return out.append(text);
}

bool take_letters(std::string& buffer, std::vector<std::string>& letters) {
  size_t at = 0;
  uint32_t bytes = 0;
  bool good = true;
  while (buffer.size() - at >= sizeof bytes) {
    std::memcpy(&bytes, buffer.data() + at, sizeof bytes);
    good = bytes > 0 && bytes <= kLongestLetter;
    if (!good || buffer.size() - at - sizeof bytes < bytes) break;
    letters.push_back(buffer.substr(at + sizeof bytes, bytes));
    at += sizeof bytes + bytes;
  }
  buffer.erase(0, at);
  return good;
}

Crew::Crew(int process, std::vector<Connection> connections)
    : process_(process), events_(::epoll_create1(EPOLL_CLOEXEC)) {
  keep_from_workers(events_);
  for (Connection& c : connections) {
    keep_from_workers(c.descriptor);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = others_.size();
    if (::epoll_ctl(events_, EPOLL_CTL_ADD, c.descriptor, &event) != 0)
      throw std::runtime_error(fmt::format("cannot wait for other processes: {}", std::strerror(errno)));
    others_.push_back({std::move(c), {}, 0, {}, false});
  }
}

Crew::~Crew() {
  for (const Other& o : others_) close_own(o.to.descriptor);
  close_own(events_);
}

void Crew::tell(std::string_view text) {
  for (Other& o : others_)
    if (!o.gone) send(o, Word::told, text);
}

void Crew::feed(std::deque<size_t>& queue, size_t first, size_t held) {
  for (Other& o : others_) {
    std::string numbers;
    for (; !o.gone && o.given.size() < held * o.workers && !queue.empty(); queue.pop_front()) {
      o.given.insert(first + queue.front());
      numbers += bytes_of(first + queue.front());
    }
    if (!numbers.empty()) send(o, Word::tasks, numbers);
  }
}

void Crew::receive(size_t first, size_t count, std::vector<TaskEvent>& events) {
  constexpr int kAtOnce = 64;
  epoll_event ready[kAtOnce];
  const int n = ::epoll_wait(events_, ready, kAtOnce, 0);
  for (int i = 0; i < n; ++i) {
    const size_t at = ready[i].data.u64;
    Other& o = others_[at];
    std::vector<std::string> letters;
    const bool open = read(o, letters);
    for (const std::string& l : letters) take(at, l, first, count, events);
    if (open) continue;
    if (!o.gone)
      throw std::runtime_error(fmt::format("rank {}, {}, has ended; {}", at + 1, o.to.who, again_));
    ::epoll_ctl(events_, EPOLL_CTL_DEL, o.to.descriptor, nullptr);
  }
}

void Crew::take(size_t other, std::string_view letter, size_t first, size_t count,
                std::vector<TaskEvent>& events) {
  Other& o = others_[other];
  std::string_view text = letter.substr(1);
  const auto word = static_cast<Word>(letter[0]);
  if (word == Word::hello) return say_hello(other, text);
  if (word == Word::leaves) {
    if (!text.empty())
      throw std::runtime_error(fmt::format("rank {}, {}, cannot take part: {}", other + 1, o.to.who, text));
    o.gone = true;
    return interrupt_now();
  }
  const auto* const event =
      std::find_if(std::begin(kEvents), std::end(kEvents), [&](const auto& e) { return e.first == word; });
  if (event == std::end(kEvents))
    throw std::runtime_error(
        fmt::format("rank {}, {}, has sent an unknown word; start every process from the same build",
                    other + 1, o.to.who));
  const TaskEvent::Kind kind = event->second;
  const size_t number = take_number(text);
  if (!o.given.contains(number)) return;
  if (kind != TaskEvent::Kind::started) o.given.erase(number);
  // A task that an earlier call had handed out, and that ended early, counts no more.
  if (number >= first && number - first < count) events.push_back({kind, number - first, std::string(text)});
}

void Crew::say_hello(size_t other, std::string_view text) {
  Other& o = others_[other];
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) throw std::runtime_error("a letter between processes is cut short");
  if (text.substr(line + 1) != digest_)
    throw std::runtime_error(fmt::format(
        "rank {}, {}, was told to do something else, or has another build or other files than rank 0; start "
        "every process with the same arguments, and see that each machine has the same program, suites and "
        "plugins",
        other + 1, o.to.who));
  o.workers = std::strtoul(std::string(text.substr(0, line)).c_str(), nullptr, 10);
}

void Crew::serve(const Worker::Task& task, int workers, double timeout, const std::string& digest,
                 const std::function<void(std::string_view)>& told) {
  const InterruptScope scope;
  Other& to_first = others_.front();
  const auto count = static_cast<size_t>(std::max(workers, 1));
  std::optional<WorkerSet> set(std::in_place, task, count, timeout);
  std::deque<size_t> queue;
  std::vector<std::string> letters;
  std::vector<TaskEvent> events;
  send(to_first, Word::hello, fmt::format("{}\n{}", count, digest));
  while (!interrupted()) {
    for (size_t held = 1; held <= kHeld; ++held) set->feed(queue, held);
    events.clear();
    set->wait(descriptor(), queue, events);
    // A signal to the whole group ends the workers too: that is no crash.
    for (const TaskEvent& e : events)
      if (e.kind != TaskEvent::Kind::crashed || !interrupted())
        send(to_first, word_of(e.kind), bytes_of(e.task) + e.text);
    letters.clear();
    if (!read(to_first, letters)) return;
    for (const std::string& l : letters) {
      std::string_view text = std::string_view(l).substr(1);
      if (static_cast<Word>(l[0]) == Word::tasks)
        while (!text.empty()) queue.push_back(take_number(text));
      if (static_cast<Word>(l[0]) != Word::told || !told) continue;
      told(text);
      set.emplace(task, count, timeout);  // workers know what was known when they were forked
    }
  }
  leave("");
}

void Crew::leave(const std::string& why) { send(others_.front(), Word::leaves, why); }

// The first process waits only where it tells what tasks are, before any is given: another has few tasks at a
// time, so one that does not read them is not at work. Another process may wait for the first.
void Crew::send(Other& o, Word word, std::string_view text) {
  const std::string whole = as_sent(word, text);
  const int how = MSG_NOSIGNAL | (process_ == 0 && word != Word::told ? MSG_DONTWAIT : 0);
  for (size_t at = 0; at < whole.size();) {
    const ssize_t n = ::send(o.to.descriptor, whole.data() + at, whole.size() - at, how);
    if (n > 0) at += static_cast<size_t>(n);
    else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      throw std::runtime_error(fmt::format("{} takes no more tasks", o.to.who));
    else if (n < 0 && errno != EINTR) return;  // read() will say that it has ended
  }
}

bool Crew::read(Other& o, std::vector<std::string>& letters) {
  char chunk[65536];
  for (;;) {
    const ssize_t n = ::recv(o.to.descriptor, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      o.buffer.append(chunk, static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const bool open = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return take_letters(o.buffer, letters) && open;
  }
}

Crew* crew() { return current().get(); }
void set_crew(std::unique_ptr<Crew> made) { current() = std::move(made); }

}  // namespace assay

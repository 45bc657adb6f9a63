#include "compare/process/crew.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compare/process/interrupt.h"

namespace assay {

namespace {

std::unique_ptr<Crew>& current() {
  static std::unique_ptr<Crew> crew;
  return crew;
}

std::string letter(Word word, std::string_view text) { return static_cast<char>(word) + std::string(text); }

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

std::string host_and_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}:{}", host, ::getpid());
}

}  // namespace

bool take_letters(std::string& buffer, std::vector<Letter>& letters) {
  size_t at = 0;
  bool good = true;
  while (buffer.size() - at >= sizeof(LetterHead)) {
    LetterHead head;
    std::memcpy(&head, buffer.data() + at, sizeof head);
    good = head.bytes > 0 && head.bytes <= kLongestLetter;
    if (!good || buffer.size() - at - sizeof head < head.bytes) break;
    letters.push_back({head.process, buffer.substr(at + sizeof head, head.bytes)});
    at += sizeof head + head.bytes;
  }
  buffer.erase(0, at);
  return good;
}

std::string as_sent(int process, std::string_view text) {
  const LetterHead head{process, static_cast<uint32_t>(text.size())};
  std::string out(reinterpret_cast<const char*>(&head), sizeof head);
  return out.append(text);
}

Crew::Crew(int descriptor) : descriptor_(descriptor) {
  ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  std::vector<Letter> letters;
  while (letters.empty()) {
    pollfd p{descriptor_, POLLIN, 0};
    ::poll(&p, 1, -1);
    if (!read(letters)) throw std::runtime_error("the process that speaks MPI has ended");
  }
  char* rest = nullptr;
  process_ = static_cast<int>(std::strtol(letters.front().text.c_str(), &rest, 10));
  processes_ = static_cast<int>(std::strtol(rest, nullptr, 10));
  hands_.resize(static_cast<size_t>(processes_));
  early_.assign(letters.begin() + 1, letters.end());
}

Crew::~Crew() { ::close(descriptor_); }

size_t Crew::workers() const {
  size_t sum = 0;
  for (const Hand& hand : hands_) sum += hand.workers;
  return sum;
}

void Crew::feed(std::deque<size_t>& queue, size_t first, size_t batch) {
  for (size_t p = 1; p < hands_.size() && !queue.empty(); ++p) {
    Hand& hand = hands_[p];
    if (hand.workers == 0 || hand.given.size() > hand.workers) continue;
    std::string numbers;
    for (size_t n = batch * hand.workers; n > 0 && !queue.empty(); --n, queue.pop_front()) {
      hand.given.insert(first + queue.front());
      numbers += bytes_of(first + queue.front());
    }
    send(static_cast<int>(p), letter(Word::tasks, numbers));
  }
}

void Crew::receive(size_t first, size_t count, std::vector<TaskEvent>& events) {
  std::vector<Letter> letters;
  const bool open = read(letters);
  for (const Letter& l : letters) take(l, first, count, events);
  if (!open)
    throw std::runtime_error(
        "the process that speaks MPI has ended; the same command with --resume does what is missing");
}

void Crew::take(const Letter& l, size_t first, size_t count, std::vector<TaskEvent>& events) {
  std::string_view text = std::string_view(l.text).substr(1);
  const auto word = static_cast<Word>(l.text[0]);
  if (word == Word::interrupt) return interrupt_now();
  if (l.from <= 0 || l.from >= processes_) throw std::runtime_error("a letter from no process of this run");
  Hand& hand = hands_[static_cast<size_t>(l.from)];
  if (word == Word::hello) return say_hello(l.from, l.text.substr(1));
  if (word == Word::lost) {
    if (interrupted()) return;
    throw std::runtime_error(
        fmt::format("rank {}{} has ended: {}\nThe same command with --resume does what is missing", l.from,
                    hand.who.empty() ? "" : ", " + hand.who + ",", text));
  }
  const size_t number = take_number(text);
  const auto kind = word == Word::started ? TaskEvent::Kind::started
                    : word == Word::done  ? TaskEvent::Kind::done
                                          : TaskEvent::Kind::crashed;
  if (!hand.given.contains(number)) return;
  if (kind != TaskEvent::Kind::started) hand.given.erase(number);
  // What an earlier call that ended early had handed out is nobody's business any more.
  if (number >= first && number - first < count) events.push_back({kind, number - first, std::string(text)});
}

void Crew::say_hello(int from, const std::string& text) {
  const size_t line = text.find('\n'), end = text.find('\n', line + 1);
  if (end == std::string::npos) throw std::runtime_error("a letter between processes is cut short");
  Hand& hand = hands_[static_cast<size_t>(from)];
  hand.who = text.substr(end + 1);
  if (text.substr(line + 1, end - line - 1) != digest_)
    throw std::runtime_error(fmt::format(
        "rank {}, {}, was told to do something else, or has another build or other files than rank "
        "0; start every process with the same arguments, and see that each machine has the same "
        "program, suites and plugins",
        from, hand.who));
  hand.workers = std::strtoul(text.c_str(), nullptr, 10);
}

void Crew::serve(const Worker::Task& task, int workers, double timeout, const std::string& digest) {
  WorkerSet set(task, static_cast<size_t>(std::max(workers, 1)), timeout);
  std::deque<size_t> queue;
  std::vector<Letter> letters;
  std::vector<TaskEvent> events;
  send(0, letter(Word::hello, fmt::format("{}\n{}\n{}", set.size(), digest, host_and_process())));
  for (bool open = true; open;) {
    set.feed(queue, 1);
    events.clear();
    set.wait(descriptor_, queue, events);
    for (const TaskEvent& e : events) {
      const Word word = e.kind == TaskEvent::Kind::started ? Word::started
                        : e.kind == TaskEvent::Kind::done  ? Word::done
                                                           : Word::crashed;
      send(0, letter(word, bytes_of(e.task) + e.text));
    }
    letters.clear();
    open = read(letters);
    for (const Letter& l : letters) {
      std::string_view numbers = std::string_view(l.text).substr(1);
      if (static_cast<Word>(l.text[0]) == Word::tasks)
        while (!numbers.empty()) queue.push_back(take_number(numbers));
    }
  }
}

// The relay always reads, so this never waits long.
void Crew::send(int to, std::string_view text) {
  const std::string whole = as_sent(to, text);
  for (size_t at = 0; at < whole.size();) {
    const ssize_t n = ::send(descriptor_, whole.data() + at, whole.size() - at, MSG_NOSIGNAL);
    if (n > 0) at += static_cast<size_t>(n);
    else if (n < 0 && errno != EINTR) return;  // read() will say that the relay is gone
  }
}

bool Crew::read(std::vector<Letter>& letters) {
  letters.insert(letters.end(), early_.begin(), early_.end());
  early_.clear();
  char chunk[65536];
  for (;;) {
    const ssize_t n = ::recv(descriptor_, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(chunk, static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const bool open = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return take_letters(buffer_, letters) && open;
  }
}

Crew* crew() { return current().get(); }
void set_crew(std::unique_ptr<Crew> made) { current() = std::move(made); }

}  // namespace assay

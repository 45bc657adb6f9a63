// The processes that a launcher has started and that share the tasks of one command. The first one hands out
// numbers of tasks and takes the results; the others run the tasks in workers of their own. Each process of
// the launcher is two: one that speaks MPI and forks nothing (compare/process/relay.h), and one that runs the
// program, forks workers and knows of MPI only this descriptor.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/process/worker_set.h"

namespace assay {

// What one process says to another. The first byte is what it is about.
enum class Word : char {
  hello = 'H',      // to the first: how many workers, a line end, the digest of the tasks, a line end, who
  tasks = 'T',      // from the first: numbers of tasks
  started = 'S',    // to the first: a number
  done = 'D',       // to the first: a number and the result
  crashed = 'C',    // to the first: a number, and how the worker ended
  lost = 'L',       // to the first, from a relay: the program of that process is gone, and how it ended
  interrupt = 'I',  // from the own relay: the launcher has asked for the end
  end = 'E',        // from the first's relay to the others
  last = 'F',       // from another's relay to the first: it sends nothing after this
};

struct Letter {
  int from = 0;
  std::string text;  // begins with a Word
};

// A letter on the descriptor between a program and its relay: this head, then the text.
struct LetterHead {
  int32_t process;  // to whom, or from whom
  uint32_t bytes;
};
constexpr uint32_t kLongestLetter = uint32_t{1} << 30;

// Takes the whole letters out of what was read. False where it cannot be letters.
bool take_letters(std::string& buffer, std::vector<Letter>& letters);
std::string as_sent(int process, std::string_view text);

class Crew {
 public:
  // Waits for the first letter of the relay, which says who this is. Throws where there is none.
  explicit Crew(int descriptor);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int process() const { return process_; }
  int processes() const { return processes_; }
  int descriptor() const { return descriptor_; }

  // In the first process.
  // What all must have been told to do. Another process that says another digest throws in receive().
  void agree_on(std::string digest) { digest_ = std::move(digest); }
  size_t workers() const;  // of the others that have said hello
  // Hands out tasks from the front of the queue; the number of task 0 of the queue is `first`.
  void feed(std::deque<size_t>& queue, size_t first, size_t batch);
  // What has happened to tasks first..first + count - 1. Throws where a process is gone or disagrees.
  void receive(size_t first, size_t count, std::vector<TaskEvent>& events);

  // In another process: runs what the first one hands out until it ends the run. `task` is given the number.
  void serve(const Worker::Task& task, int workers, double timeout, const std::string& digest);

 private:
  struct Hand {
    size_t workers = 0;      // 0: it has not said hello
    std::set<size_t> given;  // numbers of tasks, of which no result has come
    std::string who;         // "node1:4711"
  };
  void send(int to, std::string_view text);
  // False once the relay is gone.
  bool read(std::vector<Letter>& letters);
  void take(const Letter&, size_t first, size_t count, std::vector<TaskEvent>& events);
  void say_hello(int from, const std::string& text);

  int descriptor_, process_ = 0, processes_ = 1;
  std::string buffer_, digest_;
  std::vector<Letter> early_;  // came together with the one that says who this is
  std::vector<Hand> hands_;
};

// That of this process; null where no launcher has started it together with others.
Crew* crew();
void set_crew(std::unique_ptr<Crew>);

}  // namespace assay

// The processes that a launcher has started and that share the tasks of one command. The first one hands out
// numbers of tasks and takes the results; the others run the tasks in workers of their own. They are
// connected by sockets (crew_sockets.h), so that each waits in poll() for its workers and the others alike,
// and hears at once when another ends.
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

// What one process says to another. The first byte of a letter is what it is about.
enum class Word : char {
  hello = 'H',    // to the first: how many workers, a line end, the digest of the tasks
  told = 'K',     // from the first: what the next tasks are, in words of the command
  tasks = 'T',    // from the first: numbers of tasks
  started = 'S',  // to the first: a number
  done = 'D',     // to the first: a number and the result
  crashed = 'C',  // to the first: a number, and how the worker ended
  leaves = 'L',   // to the first: why; nothing where the launcher has told it to end
};

// A letter as it is sent: how many bytes follow, then those.
std::string as_sent(Word word, std::string_view text);
// Takes the whole letters out of what was read. False where it cannot be letters.
bool take_letters(std::string& buffer, std::vector<std::string>& letters);

struct Connection {
  int descriptor = -1;
  std::string who;  // "node1:4711"
};

class Crew {
 public:
  // `process` is 0 in the first, whose connections are those to the others, in their order; another has one,
  // to the first. Takes the descriptors, which no worker keeps.
  Crew(int process, std::vector<Connection> connections);
  ~Crew();  // of the first: the others then end
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int process() const { return process_; }
  // Readable where a letter has come or another process has ended.
  int descriptor() const { return events_; }

  // In the first process.
  // What all must have been told to do. Another process that says another digest throws in receive().
  // `again`: what is said of the command to type where one of them has died.
  void agree_on(std::string digest,
                std::string again = "the same command with --resume does what is missing") {
    digest_ = std::move(digest);
    again_ = std::move(again);
  }
  // Of tasks that the others cannot know beforehand: what their servant is given before the first of them.
  void tell(std::string_view text);
  // Takes tasks from the front of the queue until each worker of the others has `held`. The number of task 0
  // is `first`.
  void feed(std::deque<size_t>& queue, size_t first, size_t held);
  // What has happened to tasks first..first + count - 1. Throws where a process is gone, cannot take part or
  // disagrees.
  void receive(size_t first, size_t count, std::vector<TaskEvent>& events);

  // In another process.
  // Runs what the first one hands out until that ends the run. `task` is given the number. What the first one
  // tells goes to `told`, before workers are forked that do the tasks which it is about.
  void serve(const Worker::Task& task, int workers, double timeout, const std::string& digest,
             const std::function<void(std::string_view)>& told = {});
  // Tells the first one that this process ends, and why.
  void leave(const std::string& why);

 private:
  struct Other {
    Connection to;
    std::string buffer;
    size_t workers = 0;      // 0: it has not said hello
    std::set<size_t> given;  // numbers of tasks, of which no result has come
    bool gone = false;       // it was told to end, and has
  };
  void send(Other&, Word word, std::string_view text);
  // Takes what has come. False where the other process has ended.
  static bool read(Other&, std::vector<std::string>& letters);
  void take(size_t other, std::string_view letter, size_t first, size_t count,
            std::vector<TaskEvent>& events);
  void say_hello(size_t other, std::string_view text);

  int process_, events_;
  std::string digest_, again_;
  std::vector<Other> others_;
};

// That of this process; null where no launcher has started it together with others.
Crew* crew();
void set_crew(std::unique_ptr<Crew>);

}  // namespace assay

// Processes that share tasks, with queues in memory where MPI carries the letters: each program is a forked
// child, as under a launcher, and each relay a thread of this process.
#include "compare/process/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare/process/pool.h"
#include "compare/process/relay.h"

namespace assay {
namespace {

// What carries letters between the relays of one test.
struct PostOffice {
  explicit PostOffice(size_t n) : boxes(n) {}
  std::mutex mutex;
  std::vector<std::deque<Letter>> boxes;

  Mail mail(int process) {
    Mail m;
    m.process = process;
    m.processes = static_cast<int>(boxes.size());
    m.send = [this, process](int to, std::string text) {
      const std::lock_guard lock(mutex);
      boxes.at(static_cast<size_t>(to)).push_back({process, std::move(text)});
    };
    m.take = [this, process]() -> std::optional<Letter> {
      const std::lock_guard lock(mutex);
      auto& box = boxes[static_cast<size_t>(process)];
      if (box.empty()) return std::nullopt;
      Letter l = std::move(box.front());
      box.pop_front();
      return l;
    };
    m.sent = [] { return true; };
    m.told_to_end = [] { return false; };
    m.abort = [](int) { std::abort(); };
    return m;
  }
};

struct Ended {
  std::vector<int> statuses;  // of the processes
  std::string output;         // what the first one's program wrote to its descriptor
};

// Runs `program` as so many processes. It is given where it may write, and returns its exit status.
Ended run_processes(int n, const std::function<int(int out)>& program) {
  PostOffice office(static_cast<size_t>(n));
  std::vector<pid_t> programs;
  std::vector<int> relays, errors;
  const int out = ::memfd_create("crew-test", 0);
  for (int p = 0; p < n; ++p) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    errors.push_back(::memfd_create("crew-test-errors", 0));
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      for (const int other : relays) ::close(other);
      ::dup2(errors.back(), STDERR_FILENO);
      try {
        set_crew(std::make_unique<Crew>(ends[1]));
        ::_exit(program(out));
      } catch (const std::exception& e) {
        ::dprintf(crew() && crew()->process() == 0 ? out : STDERR_FILENO, "%s", e.what());
        ::_exit(2);
      }
    }
    ::close(ends[1]);
    programs.push_back(child);
    relays.push_back(ends[0]);
  }
  Ended ended;
  ended.statuses.resize(static_cast<size_t>(n), -1);
  {
    std::vector<std::jthread> threads;
    for (int p = 0; p < n; ++p)
      threads.emplace_back([&, p] {
        Mail mail = office.mail(p);
        const auto at = static_cast<size_t>(p);
        ended.statuses[at] = relay(mail, relays[at], programs[at], errors[at]);
      });
  }
  char text[65536];
  const ssize_t size = ::pread(out, text, sizeof text, 0);
  ended.output.assign(text, size > 0 ? static_cast<size_t>(size) : 0);
  ::close(out);
  for (const int e : errors) ::close(e);
  return ended;
}

// Tasks whose results say which process ran them; the first process writes them in the order in which they
// are handed over.
TaskHooks told(int out, const Worker::Task& task) {
  TaskHooks hooks;
  hooks.share = TaskShare{1000, nullptr};
  hooks.task = [task](size_t i) { return task(1000 + i); };
  hooks.crashed = [](const std::string& why) { return why.substr(0, 8); };
  hooks.result = [out](size_t i, const std::string& text) {
    return ::dprintf(out, "%zu:%s ", i, text.c_str()) > 0;
  };
  return hooks;
}

int share(int out, size_t count, const Worker::Task& task, const std::string& digest = "same") {
  if (crew()->process() > 0) return crew()->serve(task, 1, 60, digest), 0;
  crew()->agree_on("same");
  return run_tasks(count, 1, 60, told(out, task)) == count ? 0 : 1;
}

TEST(Crew, EveryProcessRunsTasksAndTheResultsComeInTheirOrder) {
  // No task ends before each process has begun one, however late a busy machine starts it.
  const auto at_work = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Ended e = run_processes(3, [&](int out) {
    return share(out, 60, [&](size_t number) {
      at_work->fetch_or(1 << crew()->process());
      for (int i = 0; i < 20000 && *at_work != 7; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::to_string(number) + "@" + std::to_string(crew()->process());
    });
  });
  ::munmap(at_work, sizeof(std::atomic<int>));
  EXPECT_EQ(e.statuses, (std::vector<int>{0, 0, 0}));
  std::string wanted, found = e.output;
  for (const char* at : {"@0", "@1", "@2"}) {
    EXPECT_NE(found.find(at), std::string::npos) << "no task ran there" << at << ": " << e.output;
    for (size_t i; (i = found.find(at)) != std::string::npos;) found.erase(i, 2);
  }
  for (size_t i = 0; i < 60; ++i) wanted += std::to_string(i) + ":" + std::to_string(1000 + i) + " ";
  EXPECT_EQ(found, wanted) << e.output;
}

TEST(Crew, ACrashCostsOneTaskWhereverItIs) {
  const Ended e = run_processes(2, [](int out) {
    return share(out, 40, [](size_t number) -> std::string {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (number % 4 == 0) std::raise(SIGKILL);
      return "good";
    });
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{0, 0}));
  std::string wanted;
  for (size_t i = 0; i < 40; ++i) wanted += std::to_string(i) + (i % 4 == 0 ? ":signal 9 " : ":good ");
  EXPECT_EQ(e.output, wanted);
}

TEST(Crew, AProcessThatDiesEndsTheRunAndIsNamed) {
  const Ended e = run_processes(3, [](int out) {
    if (crew()->process() == 2) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        ::dprintf(STDERR_FILENO, "no memory\n");
        std::raise(SIGKILL);
      }).detach();
    }
    return share(out, 100000, [](size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return std::string();
    });
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{2, 0, 0}));
  EXPECT_NE(e.output.find("rank 2, "), std::string::npos) << e.output;
  EXPECT_NE(e.output.find(
                "has ended: signal 9 (Killed); its last words:\nno memory\nThe same command with --resume"),
            std::string::npos)
      << e.output;
}

TEST(Crew, AProcessThatWasToldSomethingElseIsRefused) {
  const Ended e = run_processes(2, [](int out) {
    return share(
        out, 10000,
        [](size_t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return std::string();
        },
        "other");
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{2, 0}));
  EXPECT_NE(e.output.find("was told to do something else"), std::string::npos) << e.output;
}

TEST(Crew, AFirstProcessThatHasNothingToDoEndsTheOthers) {
  const Ended e = run_processes(3, [](int) {
    if (crew()->process() > 0) return crew()->serve([](size_t) { return std::string(); }, 2, 60, "same"), 0;
    return 3;
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{3, 0, 0}));
}

TEST(Crew, WhatComesWithTheFirstLetterIsNotLost) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const std::string both = as_sent(-1, "0 2") + as_sent(1, "H3\nsame\nnode:7");
  ASSERT_EQ(::write(ends[0], both.data(), both.size()), static_cast<ssize_t>(both.size()));
  Crew crew(ends[1]);
  crew.agree_on("same");
  std::vector<TaskEvent> events;
  crew.receive(0, 1, events);
  EXPECT_EQ(crew.workers(), 3u);
  ::close(ends[0]);
}

TEST(Crew, LettersAreTakenWhole) {
  std::string buffer = as_sent(4, "Dseven");
  buffer += as_sent(5, "S").substr(0, 6);
  std::vector<Letter> letters;
  EXPECT_TRUE(take_letters(buffer, letters));
  ASSERT_EQ(letters.size(), 1u);
  EXPECT_EQ(letters[0].from, 4);
  EXPECT_EQ(letters[0].text, "Dseven");
  EXPECT_EQ(buffer.size(), 6u);
  buffer = as_sent(4, "");  // no letter is empty
  EXPECT_FALSE(take_letters(buffer, letters));
}

}  // namespace
}  // namespace assay

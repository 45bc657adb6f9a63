// Processes that share tasks: forked children that find one another as under a launcher, but for MPI, whose
// broadcast a pipe stands for. None may wait for ever: an alarm ends each of them, and the test fails.
#include "compare/process/crew.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare/process/crew_sockets.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"

namespace assay {
namespace {

constexpr unsigned kLimit = 60;  // seconds

struct Ended {
  std::vector<int> statuses;  // of the processes; 128 and the signal where one ended it
  std::string output;         // what the first one wrote
};

// Runs `program` as so many processes. It is given where it may write, and returns its exit status.
Ended run_processes(int n, const std::function<int(int out)>& program) {
  const int out = ::memfd_create("crew-test", 0);
  std::vector<pid_t> pids;
  {
    Door door;
    for (int p = 0; p < n; ++p) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(kLimit);
        try {
          std::vector<Connection> to;
          if (p == 0) to = door.let_in(n, 20);
          else to.push_back(enter(door.word(), p, 20));
          set_crew(std::make_unique<Crew>(p, std::move(to)));
          ::_exit(program(out));
        } catch (const std::exception& e) {
          if (p == 0) ::dprintf(out, "%s", e.what());
          ::_exit(2);
        }
      }
      pids.push_back(child);
    }
  }
  Ended ended;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    ended.statuses.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  char text[65536];
  const ssize_t size = ::pread(out, text, sizeof text, 0);
  ended.output.assign(text, size > 0 ? static_cast<size_t>(size) : 0);
  ::close(out);
  return ended;
}

// Tasks whose results say which process ran them; the first process writes them in the order in which they
// are handed over.
TaskHooks told(int out, const Worker::Task& task) {
  TaskHooks hooks;
  hooks.numbered = NumberedTasks{1000, nullptr};
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

std::string slow(size_t) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return {};
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

// More than a socket holds. The first process's own tasks wait until the other has begun one.
TEST(Crew, LongResultsComeWhole) {
  const auto begun = static_cast<std::atomic<bool>*>(
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto text_of = [](size_t number) {
    std::string text;
    text.resize(20'000'000, static_cast<char>('a' + number % 26));
    return text;
  };
  const Ended e = run_processes(2, [&](int out) {
    const Worker::Task task = [&](size_t number) {
      if (crew()->process() == 1) *begun = true;
      for (int i = 0; i < 20000 && !*begun; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return text_of(number);
    };
    if (crew()->process() == 1) return crew()->serve(task, 1, 60, "same"), 0;
    crew()->agree_on("same");
    TaskHooks hooks = told(out, task);
    size_t good = 0;
    hooks.result = [&](size_t i, const std::string& text) {
      good += text == text_of(1000 + i);
      return true;
    };
    run_tasks(8, 1, 60, std::move(hooks));
    return good == 8 ? 0 : 1;
  });
  EXPECT_TRUE(*begun);
  ::munmap(begun, sizeof(std::atomic<bool>));
  EXPECT_EQ(e.statuses, (std::vector<int>{0, 0})) << e.output;
}

// Tasks that the others learn of one batch after the other, longer than what a socket takes at once.
TEST(Crew, WhatIsToldIsKnownToTheTasksAfterIt) {
  const Ended e = run_processes(3, [](int out) {
    std::string known;
    const Worker::Task task = [&known](size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return known.substr(0, 3) + std::to_string(known.size());
    };
    if (crew()->process() > 0) {
      crew()->serve(task, 1, 60, "same", [&](std::string_view text) { known = text; });
      return 0;
    }
    crew()->agree_on("same");
    for (const char* word : {"one", "two", "six"}) {
      known = word;
      known.resize(5'000'003, '.');
      crew()->tell(known);
      run_tasks(30, 1, 60, told(out, task));
    }
    return 0;
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{0, 0, 0}));
  std::string wanted;
  for (const char* word : {"one", "two", "six"})
    for (size_t i = 0; i < 30; ++i) wanted += std::to_string(i) + ":" + word + "5000003 ";
  EXPECT_EQ(e.output, wanted);
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
        std::raise(SIGKILL);
      }).detach();
    }
    return share(out, 100000, slow);
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{2, 0, 128 + SIGKILL}));
  EXPECT_NE(e.output.find("rank 2, "), std::string::npos) << e.output;
  EXPECT_NE(e.output.find(" has ended; the same command with --resume does what is missing"),
            std::string::npos)
      << e.output;
}

// A launcher tells the others to end where one has died. Who died is said all the same.
TEST(Crew, AProcessThatDiesIsNamedWhereASignalEndsTheOthers) {
  const Ended e = run_processes(2, [](int out) {
    if (crew()->process() == 1) ::raise(SIGKILL);
    const InterruptScope scope;
    const pid_t first = ::getpid();
    return share(out, 100000, [first](size_t number) {
      if (number == 0) ::kill(first, SIGTERM);  // once: a second signal ends a process at once
      return slow(0);
    });
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{2, 128 + SIGKILL}));
  EXPECT_NE(e.output.find("rank 1, "), std::string::npos) << e.output;
}

TEST(Crew, WhoIsToldToEndSaysSoAndTheFirstEndsAsIfInterrupted) {
  const Ended e = run_processes(3, [](int out) {
    std::optional<InterruptScope> scope;
    if (crew()->process() == 0) scope.emplace();
    const pid_t self = ::getpid();
    const int process = crew()->process();
    const int status = share(out, 100000, [=](size_t) {
      if (process == 1) ::kill(self, SIGTERM);
      return slow(0);
    });
    return process == 0 && interrupted() ? 130 : status;
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{130, 0, 0}));
}

TEST(Crew, AProcessThatWasToldSomethingElseIsRefused) {
  const Ended e = run_processes(2, [](int out) { return share(out, 10000, slow, "other"); });
  EXPECT_EQ(e.statuses, (std::vector<int>{2, 0}));
  EXPECT_NE(e.output.find("was told to do something else"), std::string::npos) << e.output;
}

TEST(Crew, AProcessThatCannotTakePartSaysWhy) {
  const Ended e = run_processes(2, [](int out) {
    if (crew()->process() == 1) return crew()->leave("no such plugin"), 0;
    return share(out, 10000, slow);
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{2, 0}));
  EXPECT_NE(e.output.find("cannot take part: no such plugin"), std::string::npos) << e.output;
}

TEST(Crew, AFirstProcessThatHasNothingToDoEndsTheOthers) {
  const Ended e = run_processes(3, [](int) {
    if (crew()->process() > 0) return crew()->serve([](size_t) { return std::string(); }, 2, 60, "same"), 0;
    return 3;
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{3, 0, 0}));
}

// Its workers hold no end of a connection, and end with it.
TEST(Crew, AFirstProcessThatDiesEndsTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  const Ended e = run_processes(3, [](int out) {
    if (crew()->process() == 0)
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::raise(SIGKILL);
      }).detach();
    return share(out, 100000, slow);
  });
  EXPECT_EQ(e.statuses, (std::vector<int>{128 + SIGKILL, 0, 0}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Crew, LettersAreTakenWhole) {
  std::string buffer = as_sent(Word::done, "seven");
  buffer += as_sent(Word::started, "").substr(0, 4);
  std::vector<std::string> letters;
  EXPECT_TRUE(take_letters(buffer, letters));
  EXPECT_EQ(letters, (std::vector<std::string>{"Dseven"}));
  EXPECT_EQ(buffer.size(), 4u);
  buffer = std::string(4, '\0');  // no letter is empty
  EXPECT_FALSE(take_letters(buffer, letters));
}

class Doors : public ::testing::Test {
 protected:
  // Process 1 comes, and goes.
  void come() {
    try {
      ::close(enter(door_.word(), 1, 20).descriptor);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  // A connection that says something else than the others do.
  int stranger(const std::string& text) {
    std::string rest;
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int port = 0;
    std::istringstream(door_.word()) >> rest >> rest >> rest >> port;
    at.sin_port = htons(static_cast<uint16_t>(port));
    const int s = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(s, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::send(s, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return s;
  }
  Door door_;
};

TEST_F(Doors, StrangersAreNotLetIn) {
  const int silent = stranger(""), wrong = stranger("0123 1 node:7\n"),
            endless = stranger(std::string(5000, 'x'));
  std::jthread other([&] { come(); });
  const std::vector<Connection> inside = door_.let_in(2, 20);
  ASSERT_EQ(inside.size(), 1u);
  EXPECT_NE(inside[0].who.find(':'), std::string::npos);
  ::close(inside[0].descriptor);
  for (const int s : {silent, wrong, endless}) ::close(s);
}

TEST_F(Doors, WhoDoesNotComeIsNamed) {
  std::jthread other([&] { come(); });
  try {
    door_.let_in(4, 3);
    FAIL() << "two have not come";
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(), "of 4 processes these did not come within 3 s: 2, 3");
  }
}

TEST(Door, AFirstProcessThatIsGoneIsSaid) {
  const std::string word = [] { return Door().word(); }();
  try {
    enter(word, 1, 5);
    FAIL() << "nobody is there";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("cannot reach rank 0 at port "), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("127.0.0.1: Connection refused"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace assay

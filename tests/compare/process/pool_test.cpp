// Tasks on threads of this process: their results come in order, and what a task throws reaches the caller.
#include "compare/process/pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace assay {
namespace {

TaskHooks counted(std::vector<std::string>& results) {
  TaskHooks hooks;
  hooks.task = [](size_t i) {  // a later task ends sooner
    std::this_thread::sleep_for(std::chrono::microseconds(i % 7 == 0 ? 3000 : 10));
    return std::to_string(i) + " " + std::to_string(::getpid());
  };
  hooks.result = [&](size_t, std::string text) {
    results.push_back(std::move(text));
    return true;
  };
  return hooks;
}

TEST(TasksInThisProcess, ResultsComeInOrderWhateverTheNumberOfThreads) {
  const InThisProcess here;
  for (const int jobs : {1, 4, 0}) {
    std::vector<std::string> results;
    EXPECT_EQ(run_tasks(100, jobs, 60, counted(results)), 100u);
    ASSERT_EQ(results.size(), 100u);
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i], std::to_string(i) + " " + std::to_string(::getpid()));
  }
}

TEST(TasksInThisProcess, AResultMayEndThem) {
  const InThisProcess here;
  std::vector<std::string> results;
  TaskHooks hooks = counted(results);
  hooks.result = [&](size_t i, const std::string&) { return i < 4; };
  EXPECT_EQ(run_tasks(100, 4, 60, std::move(hooks)), 5u);
}

TEST(TasksInThisProcess, WhatATaskThrowsReachesTheCaller) {
  const InThisProcess here;
  std::vector<std::string> results;
  TaskHooks hooks = counted(results);
  hooks.task = [](size_t i) -> std::string {
    if (i == 9) throw std::out_of_range("nine");
    return "";
  };
  EXPECT_THROW(run_tasks(100, 4, 60, std::move(hooks)), std::out_of_range);
  EXPECT_LE(results.size(), 9u);
}

TEST(TasksInThisProcess, ATaskForksNoChildEither) {
  const InThisProcess here;
  std::atomic<int> elsewhere = 0;
  std::vector<std::string> results;
  TaskHooks hooks = counted(results);
  hooks.task = [&](size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // every thread gets some
    const auto pid = in_child([] { return std::to_string(::getpid()); }, 60);
    elsewhere += !pid || *pid != std::to_string(::getpid());
    return std::string();
  };
  run_tasks(20, 4, 60, std::move(hooks));
  EXPECT_EQ(elsewhere, 0);
}

TEST(Tasks, ATaskMayHaveWorkersOfItsOwn) {
  std::vector<std::string> results;
  TaskHooks hooks = counted(results);
  hooks.task = [](size_t i) {
    const auto text = in_child([i] { return std::to_string(i); }, 60);
    return text ? *text : text.error().text();
  };
  run_tasks(12, 3, 60, std::move(hooks));
  std::vector<std::string> wanted;
  for (size_t i = 0; i < 12; ++i) wanted.push_back(std::to_string(i));
  EXPECT_EQ(results, wanted);
}

}  // namespace
}  // namespace assay

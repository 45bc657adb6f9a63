// What the worker of each task is at, in memory that it shares with its parent: the parent can read it after
// the worker has died.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace assay {

class LastWords {
 public:
  static constexpr size_t kMost = 4095;  // bytes of a text; what is longer is cut
  explicit LastWords(size_t tasks);      // before the workers are forked; throws std::bad_alloc
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  void say(size_t task, std::string_view text);
  std::string of(size_t task) const;  // empty where nothing was said

 private:
  char* place(size_t task) const { return memory_ + task * (kMost + 1); }
  size_t bytes_;
  char* memory_;
};

}  // namespace assay

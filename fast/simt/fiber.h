// A stack that can be left and continued: boost::context::fiber with a guarded stack of our own and with the
// annotations that AddressSanitizer needs to follow the switch (Debian's Boost.Context makes none).
#pragma once
#include <boost/context/fiber.hpp>
#include <cstddef>

namespace assay::simt {

class Fiber {
 public:
  // Stands for the stack of the OS thread itself.
  Fiber() = default;
  // Runs body(argument), which must never return, when first switched to. `number` counts the fibers of one
  // worker: stack tops are spread over cache sets by it, without which 256 fibers share one set.
  Fiber(void (*body)(void*), void* argument, size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from`, which is running, and continues `to`. Returns when `from` is continued. Both belong to
  // this OS thread.
  static void switch_between(Fiber& from, Fiber& to);

  // Drops what the fiber was suspended in, without unwinding it; it starts anew. Not on a fiber that runs.
  void restart();

  // Whether `p` lies in the page below the stack: the stack has overflowed.
  bool overflowed(const void* p) const;

  // Kernels on a GPU have little stack; sanitized frames are several times larger.
  static const size_t kStackBytes;

 private:
  void start();
  void arrived(boost::context::fiber&& left);

  boost::context::fiber context_;  // where to continue; empty while running
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  size_t colour_ = 0;
  std::byte* mapping_ = nullptr;  // guard page, then the stack
  const void* stack_ = nullptr;   // bounds as AddressSanitizer wants them
  size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace assay::simt

#include "fast/simt/fiber.h"

#include <sys/mman.h>

#include <memory>
#include <new>

#include "fast/simt/sanitizer.h"

namespace assay::simt {

namespace {

constexpr size_t kPage = 4096;

// The fiber that this OS thread left last: its context arrives at the fiber that continues.
constinit thread_local Fiber* left_last = nullptr;

// The stack belongs to the Fiber, not to the boost::context::fiber on it.
struct KeepStack {
  boost::context::stack_context allocate() { return {}; }
  void deallocate(boost::context::stack_context&) {}
};

}  // namespace

const size_t Fiber::kStackBytes = kAsan ? 512 * 1024 : 128 * 1024;

Fiber::Fiber(void (*body)(void*), void* argument, size_t number)
    : body_(body), argument_(argument), colour_(number * 192 % kPage), stack_bytes_(kStackBytes) {
  void* p = mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, kPage, PROT_NONE) != 0) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(p);
  stack_ = mapping_ + kPage;
  start();
}

Fiber::~Fiber() {
  if (!mapping_) return;
  // boost's destructor would unwind the suspended frames, on a stack that AddressSanitizer does not expect.
  // They own nothing.
  new (&context_) boost::context::fiber();
  unpoison(stack_, stack_bytes_);
  munmap(mapping_, kPage + kStackBytes);
}

void Fiber::start() {
  boost::context::stack_context bounds;
  bounds.sp = mapping_ + kPage + kStackBytes - colour_;
  bounds.size = kStackBytes - colour_;
  new (&context_)
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(bounds.sp, bounds.size, bounds),
                            KeepStack{}, [this](boost::context::fiber&& left) -> boost::context::fiber {
                              arrived(std::move(left));
                              body_(argument_);
                              __builtin_trap();
                            });
}

void Fiber::restart() {
  unpoison(stack_, stack_bytes_);
  start();  // keeps its fake stack, which AddressSanitizer could free only from within
}

void Fiber::arrived(boost::context::fiber&& left) {
#if SIMT_ASAN
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (!left_last->mapping_) {  // the OS thread's stack: its bounds are known only now
    left_last->stack_ = bottom;
    left_last->stack_bytes_ = bytes;
  }
#endif
  left_last->context_ = std::move(left);
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  left_last = &from;
#if SIMT_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
  from.arrived(std::move(to.context_).resume());
}

bool Fiber::overflowed(const void* p) const { return mapping_ && p >= mapping_ && p < mapping_ + kPage; }

}  // namespace assay::simt

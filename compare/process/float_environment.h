// The control of this thread's floating-point arithmetic (N1.1): how it rounds, and what becomes of denormal
// numbers. A library may change it when it is loaded and in every call, and would change our own arithmetic
// with it.
#pragma once
#include <cstdint>
#include <string>

namespace assay {

// Two are equal where arithmetic is: the flags of exceptions that have come do not count.
struct FloatEnvironment {
  uint64_t control = 0;  // MXCSR, or FPCR on ARM, or fegetround() elsewhere
  uint16_t x87 = 0;      // the control word of x87 arithmetic; 0 elsewhere than on x86
  static FloatEnvironment now();
  void set() const;
  bool operator==(const FloatEnvironment&) const = default;
};

// What arithmetic does under `left` that it did not under `before`: "rounds toward zero, flushes denormal
// results to zero". Empty where nothing changed.
std::string changes(const FloatEnvironment& before, const FloatEnvironment& left);

// While it lives, foreign code runs: under `inside`, or under what it found. After it the environment is what
// it was before.
class ForeignFloats {
 public:
  ForeignFloats() : before_(FloatEnvironment::now()), inside_(before_) {}
  explicit ForeignFloats(const FloatEnvironment& inside) : before_(FloatEnvironment::now()), inside_(inside) {
    inside_.set();
  }
  ~ForeignFloats() { before_.set(); }
  ForeignFloats(const ForeignFloats&) = delete;
  ForeignFloats& operator=(const ForeignFloats&) = delete;

  // "left the float environment changed: rounds toward zero"; empty where the code left it as it was.
  std::string left() const;

 private:
  FloatEnvironment before_, inside_;
};

}  // namespace assay

#include "compare/process/float_environment.h"

#include <cfenv>
#include <string_view>

#include <fmt/format.h>

namespace assay {

namespace {

#if defined(__x86_64__) || defined(__aarch64__)
constexpr uint64_t bits(int first, int count) { return ((uint64_t{1} << count) - 1) << first; }
constexpr uint64_t field(uint64_t word, int first, int count) { return (word & bits(first, count)) >> first; }
#endif

#if defined(__x86_64__)
constexpr uint32_t kMxcsrFlags = 0x3F;  // exceptions that have come
constexpr std::string_view kRoundings[] = {"to nearest", "toward negative infinity",
                                           "toward positive infinity", "toward zero"};
#elif defined(__aarch64__)
constexpr std::string_view kRoundings[] = {"to nearest", "toward positive infinity",
                                           "toward negative infinity", "toward zero"};
#endif

}  // namespace

#if defined(__x86_64__)

FloatEnvironment FloatEnvironment::now() {
  uint32_t mxcsr = 0;
  uint16_t x87 = 0;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return {mxcsr & ~kMxcsrFlags, x87};
}

void FloatEnvironment::set() const {
  if (*this == now()) return;
  const auto mxcsr = static_cast<uint32_t>(control);
  __asm__ volatile("fnclex; fldcw %0" : : "m"(x87));  // a flag would trap where its exception is unmasked
  __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}

std::string changes(const FloatEnvironment& before, const FloatEnvironment& left) {
  const uint64_t changed = before.control ^ left.control;
  const int x87_changed = before.x87 ^ left.x87;
  std::string out;
  const auto say = [&](std::string_view what) { out += fmt::format("{}{}", out.empty() ? "" : ", ", what); };
  const uint64_t x87_rounding = field(left.x87, 10, 2);
  if (changed & bits(13, 2)) say(fmt::format("rounds {}", kRoundings[field(left.control, 13, 2)]));
  else if (x87_changed & 0x0C00) say(fmt::format("rounds {} in x87 arithmetic", kRoundings[x87_rounding]));
  if (changed & bits(15, 1))
    say(left.control & bits(15, 1) ? "flushes denormal results to zero" : "keeps denormal results");
  if (changed & bits(6, 1))
    say(left.control & bits(6, 1) ? "takes denormal operands for zero"
                                  : "takes denormal operands as they are");
  if (x87_changed & 0x0300) say("has another precision in x87 arithmetic");
  if ((changed & bits(7, 6)) || (x87_changed & 0x003F)) say("traps on other exceptions");
  if (out.empty() && !(before == left)) say("has other control bits");
  return out;
}

#elif defined(__aarch64__)

FloatEnvironment FloatEnvironment::now() {
  uint64_t fpcr = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return {fpcr, 0};
}

void FloatEnvironment::set() const {
  if (*this == now()) return;
  __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

std::string changes(const FloatEnvironment& before, const FloatEnvironment& left) {
  const uint64_t changed = before.control ^ left.control;
  std::string out;
  const auto say = [&](std::string_view what) { out += fmt::format("{}{}", out.empty() ? "" : ", ", what); };
  if (changed & bits(22, 2)) say(fmt::format("rounds {}", kRoundings[field(left.control, 22, 2)]));
  if (changed & bits(24, 1))
    say(left.control & bits(24, 1) ? "flushes denormal results to zero, takes denormal operands for zero"
                                   : "keeps denormal results, takes denormal operands as they are");
  if (changed & bits(8, 8)) say("traps on other exceptions");
  if (out.empty() && changed) say("has other control bits");
  return out;
}

#else

FloatEnvironment FloatEnvironment::now() { return {static_cast<uint64_t>(std::fegetround()), 0}; }

void FloatEnvironment::set() const { std::fesetround(static_cast<int>(control)); }

std::string changes(const FloatEnvironment& before, const FloatEnvironment& left) {
  if (before == left) return {};
  return fmt::format("rounds {}", left.control == FE_TOWARDZERO ? "toward zero"
                                  : left.control == FE_DOWNWARD ? "toward negative infinity"
                                  : left.control == FE_UPWARD   ? "toward positive infinity"
                                                                : "to nearest");
}

#endif

std::string ForeignFloats::left() const {
  const std::string what = changes(inside_, FloatEnvironment::now());
  return what.empty() ? what : "left the float environment changed: " + what;
}

}  // namespace assay

// What integer and bit instructions make of their operands: one function object for each rule
// (9.7.1, 9.7.2, 9.7.8, 9.7.9.7). T is the type of the instruction: an unsigned or signed integer of 16, 32
// or 64 bits.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace assay::ptx {

template <class T> inline constexpr unsigned kBits = 8 * sizeof(T);
template <class T> using Unsigned = std::make_unsigned_t<T>;
// The type of twice the width and the same signedness.
template <class T>
using Twice = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 2, int32_t, std::conditional_t<sizeof(T) == 4, int64_t, __int128>>,
    std::conditional_t<sizeof(T) == 2, uint32_t,
                       std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>>>;

// 9.7.1.1 to 9.7.1.4: modulo 2^n. Products of 16 bits are made in 32, where C++ would overflow.
struct Add {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b)); }
};
struct Sub {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b)); }
};
struct MulLo {
  template <class T> T operator()(T a, T b) const {
    using Wide = std::conditional_t<sizeof(T) == 2, uint32_t, Unsigned<T>>;
    return static_cast<T>(static_cast<Wide>(Unsigned<T>(a)) * static_cast<Wide>(Unsigned<T>(b)));
  }
};
struct MulWide {
  template <class T> Twice<T> operator()(T a, T b) const {
    return static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b);
  }
};
struct MulHi {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(MulWide{}(a, b) >> kBits<T>); }
};
struct MadLo {
  template <class T> T operator()(T a, T b, T c) const { return Add{}(MulLo{}(a, b), c); }
};
struct MadHi {
  template <class T> T operator()(T a, T b, T c) const { return Add{}(MulHi{}(a, b), c); }
};
struct MadWide {
  template <class T> Twice<T> operator()(T a, T b, Twice<T> c) const { return Add{}(MulWide{}(a, b), c); }
};
inline int32_t clamp_s32(int64_t v) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(v, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}
struct AddSat {
  int32_t operator()(int32_t a, int32_t b) const { return clamp_s32(int64_t{a} + b); }
};
struct SubSat {
  int32_t operator()(int32_t a, int32_t b) const { return clamp_s32(int64_t{a} - b); }
};
struct MadHiSat {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const { return clamp_s32(int64_t{MulHi{}(a, b)} + c); }
};

// 9.7.1.5, 9.7.1.6: the 48 bits of the product of the low 24 bits; .lo its low 32 bits, .hi its high 32.
template <class T> int64_t product24(T a, T b) {
  const auto low = [](T v) -> int64_t {
    if constexpr (std::is_signed_v<T>) return static_cast<int32_t>(static_cast<uint32_t>(v) << 8) >> 8;
    else return v & 0xFFFFFF;
  };
  return low(a) * low(b);
}
struct Mul24Lo {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(product24(a, b)); }
};
struct Mul24Hi {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(product24(a, b) >> 16); }
};
struct Mad24Lo {
  template <class T> T operator()(T a, T b, T c) const { return Add{}(Mul24Lo{}(a, b), c); }
};
struct Mad24Hi {
  template <class T> T operator()(T a, T b, T c) const { return Add{}(Mul24Hi{}(a, b), c); }
};

// 9.7.1.7: c + |a - b|.
struct Sad {
  template <class T> T operator()(T a, T b, T c) const { return Add{}(c, a < b ? Sub{}(b, a) : Sub{}(a, b)); }
};

// 9.7.1.8, 9.7.1.9: truncated. A division by zero is unspecified and is refused before these are asked
// (choose_integer.cpp).
struct Div {
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return Sub{}(T(0), a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return T(0);
    return static_cast<T>(a % b);
  }
};

struct Neg {
  template <class T> T operator()(T a) const { return Sub{}(T(0), a); }
};
struct Abs {
  template <class T> T operator()(T a) const { return a < 0 ? Neg{}(a) : a; }
};
struct Min {
  template <class T> T operator()(T a, T b) const { return a < b ? a : b; }
};
struct Max {
  template <class T> T operator()(T a, T b) const { return a > b ? a : b; }
};
// Two halves without a carry between them: Rule of int16_t or uint16_t.
template <class Rule, class Half> struct Halves {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    const auto low = static_cast<uint16_t>(Rule{}(static_cast<Half>(a), static_cast<Half>(b)));
    const auto high = static_cast<uint16_t>(Rule{}(static_cast<Half>(a >> 16), static_cast<Half>(b >> 16)));
    return low | static_cast<uint32_t>(high) << 16;
  }
};

// 9.7.1.14 to 9.7.1.18.
struct Popc {
  template <class T> uint32_t operator()(T a) const { return static_cast<uint32_t>(std::popcount(a)); }
};
struct Clz {
  template <class T> uint32_t operator()(T a) const { return static_cast<uint32_t>(std::countl_zero(a)); }
};
// The position of the most significant bit that is no copy of the sign; all ones where there is none.
struct Bfind {
  template <class T> uint32_t operator()(T a) const {
    const Unsigned<T> bits = a < 0 ? ~Unsigned<T>(a) : Unsigned<T>(a);
    return bits == 0 ? ~0u : kBits<T> - 1 - Clz{}(bits);
  }
};
struct BfindShift {
  template <class T> uint32_t operator()(T a) const {
    const uint32_t at = Bfind{}(a);
    return at == ~0u ? at : kBits<T> - 1 - at;
  }
};
struct Brev {
  template <class T> T operator()(T a) const {
    T out = 0;
    for (unsigned k = 0; k < kBits<T>; ++k) out = static_cast<T>(out | (a >> k & 1) << (kBits<T> - 1 - k));
    return out;
  }
};
// The n-th set bit of `mask` from bit `base`, upwards for n > 0, downwards for n < 0; for n == 0 the bit
// `base` itself.
struct Fns {
  uint32_t operator()(uint32_t mask, uint32_t base, uint32_t count) const {
    const auto n = static_cast<int32_t>(count);
    if (n == 0) return base < 32 && (mask >> base & 1) ? base : ~0u;
    int64_t left = n < 0 ? -int64_t{n} : int64_t{n};
    for (int64_t at = base; at >= 0 && at < 32; at += n < 0 ? -1 : 1)
      if ((mask >> at & 1) && --left == 0) return static_cast<uint32_t>(at);
    return ~0u;
  }
};

// 9.7.1.19: `count` bits from `place` on; beyond the most significant bit zeros, or the sign.
struct Bfe {
  template <class T> T operator()(T a, uint32_t place, uint32_t count) const {
    place &= 255, count &= 255;
    if (count == 0) return 0;
    const auto bits = Unsigned<T>(a);
    const unsigned top = std::min(place + count - 1, kBits<T> - 1);
    const bool sign = std::is_signed_v<T> && (bits >> top & 1);
    const Unsigned<T> field = place < kBits<T> ? bits >> place : 0;
    const unsigned kept = place < kBits<T> ? std::min(count, kBits<T> - place) : 0;
    if (kept >= kBits<T>) return static_cast<T>(field);
    const Unsigned<T> mask = (Unsigned<T>(1) << kept) - 1;
    return static_cast<T>(sign ? field | ~mask : field & mask);
  }
};
// 9.7.1.20: the low bits of a, put into b from `place` on.
struct Bfi {
  template <class T> T operator()(T a, T b, uint32_t place, uint32_t count) const {
    place &= 255, count &= 255;
    if (place >= kBits<T> || count == 0) return b;
    const unsigned kept = std::min(count, kBits<T> - place);
    const T mask = static_cast<T>((kept == kBits<T> ? ~T(0) : (T(1) << kept) - 1) << place);
    return static_cast<T>((b & ~mask) | (a << place & mask));
  }
};
// 9.7.1.21: the low `count` bits of a, extended by zeros or their sign. .clamp takes at most 32 bits, .wrap
// modulo 32.
template <bool kWrap> struct Szext {
  template <class T> T operator()(T a, uint32_t count) const {
    const uint32_t n = kWrap ? count & 31 : std::min(count, 32u);
    return n == 0 ? T(0) : n == 32 ? a : Bfe{}(a, 0u, n);
  }
};
// 9.7.1.22: `count` ones from `place` on.
template <bool kWrap> struct Bmsk {
  uint32_t operator()(uint32_t place, uint32_t count) const {
    const uint32_t at = kWrap ? place & 31 : std::min(place, 32u),
                   n = kWrap ? count & 31 : std::min(count, 32u);
    const uint64_t ones = ((uint64_t{1} << n) - 1) << at;
    return static_cast<uint32_t>(ones);
  }
};
// 9.7.1.23: products of the four bytes, added to c. A: signedness of the bytes of a, B of b.
template <class A, class B> struct Dp4a {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (int k = 0; k < 4; ++k)
      c += static_cast<uint32_t>(int32_t{static_cast<A>(a >> 8 * k)} * int32_t{static_cast<B>(b >> 8 * k)});
    return c;
  }
};
// 9.7.1.24: products of the two halves of a with the low or high two bytes of b.
template <class A, class B, bool kHigh> struct Dp2a {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (int k = 0; k < 2; ++k)
      c += static_cast<uint32_t>(int32_t{static_cast<A>(a >> 16 * k)} *
                                 int32_t{static_cast<B>(b >> (8 * k + (kHigh ? 16 : 0)))});
    return c;
  }
};

// 9.7.8.1 to 9.7.8.5.
struct And {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct Or {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct Xor {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
struct Not {
  template <class T> T operator()(T a) const { return static_cast<T>(~a); }
};
struct Cnot {
  template <class T> T operator()(T a) const { return a == 0 ? T(1) : T(0); }
};
// 9.7.8.6: bit i of the table is the value at (a, b, c) = bits 2, 1, 0 of i.
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t out = 0;
  for (unsigned i = 0; i < 8; ++i)
    if (table >> i & 1) out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return out;
}
// 9.7.8.7: .l the high word of {b, a} << n, .r the low word of {b, a} >> n; a is the low word.
template <bool kLeft, bool kWrap> struct Shf {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t count) const {
    const uint32_t n = kWrap ? count & 31 : std::min(count, 32u);
    const uint64_t both = uint64_t{b} << 32 | a;
    if constexpr (kLeft) return n == 32 ? a : static_cast<uint32_t>(both << n >> 32);
    else return static_cast<uint32_t>(both >> n);
  }
};
// 9.7.8.8, 9.7.8.9: the amount is unsigned and clamped to the width.
struct Shl {
  template <class T> T operator()(T a, uint32_t n) const {
    return n >= kBits<T> ? T(0) : static_cast<T>(Unsigned<T>(a) << n);
  }
};
struct Shr {
  template <class T> T operator()(T a, uint32_t n) const {
    return n >= kBits<T> ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n);
  }
};

// 9.7.9.7: byte k of the result is the byte of {b, a} that nibble k of the selector names; its top bit asks
// for the byte's sign instead.
struct Prmt {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t out = 0;
    for (unsigned k = 0; k < 4; ++k) {
      const uint32_t nibble = selector >> (4 * k) & 15;
      uint32_t byte = static_cast<uint32_t>(both >> (8 * (nibble & 7))) & 0xFF;
      if (nibble & 8) byte = byte & 0x80 ? 0xFF : 0;
      out |= byte << (8 * k);
    }
    return out;
  }
};
// The modes of prmt choose their selector by the low two bits of c.
enum class PrmtMode : uint8_t { f4e, b4e, rc8, ecl, ecr, rc16 };
inline uint32_t prmt_selector(PrmtMode mode, uint32_t c) {
  static constexpr uint16_t kSelectors[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
      {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
  return kSelectors[static_cast<size_t>(mode)][c & 3];
}
template <PrmtMode kMode> struct PrmtBy {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    return Prmt{}(a, b, prmt_selector(kMode, c));
  }
};

}  // namespace assay::ptx

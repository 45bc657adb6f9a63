// Templates of handlers: a rule for one value becomes an instruction of 32 lanes. Operands are always
// registers; numbers and special registers are registers too, so no loop asks what its operand is. Included
// by the files choose_*.cpp alone, because it compiles slowly.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "fast/ptx/machine.h"

namespace assay::ptx {

// A handler that stands behind this word is compiled twice, and a processor of x86-64-v3 (AVX2) takes the
// wider code when the program starts. No result depends on it: each lane does the same operations. Sanitizers
// see the plain code alone, and so does clang, which does not take the attribute on a template.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ASSAY_PTX_PLAIN)
#define ASSAY_PTX_WIDE [[gnu::target_clones("arch=x86-64-v3", "default")]]
#else
#define ASSAY_PTX_WIDE
#endif

// Calls f(lane) for every active lane. Where all are active, the loop has no dependence between lanes that a
// compiler need mind.
template <class F> [[gnu::always_inline]] inline void for_lanes(uint32_t active, F&& f) {
  if (active == ~0u) {
#pragma GCC ivdep
    for (unsigned l = 0; l < kLanes; ++l) f(l);
  } else {
    for (uint32_t m = active; m; m &= m - 1) f(static_cast<unsigned>(std::countr_zero(m)));
  }
}

// A register's cell for one lane: types of up to 32 bits take four bytes, whose upper part is not read.
template <class T> using Cell = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T> [[gnu::always_inline]] inline T get(Cell<T> cell) {
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<T>(cell);
  else return static_cast<T>(cell);
}
template <class T> [[gnu::always_inline]] inline Cell<T> put(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<Cell<T>>(v);
  else return static_cast<Cell<T>>(static_cast<std::make_unsigned_t<T>>(v));
}
// A value that fills its register, extended by its own sign: what loads and conversions leave in a wider
// register (9.4.1).
template <class T> [[gnu::always_inline]] inline uint64_t extend(T v) {
  if constexpr (std::is_signed_v<T>) return static_cast<uint64_t>(static_cast<int64_t>(v));
  else return static_cast<uint64_t>(v);
}
template <class T> [[gnu::always_inline]] inline Cell<T>* cells(Warp& w, uint32_t place) {
  return reinterpret_cast<Cell<T>*>(w.words + place);
}
// One lane of a register that takes four or eight bytes.
inline uint64_t read_cell(Warp& w, uint32_t place, bool wide, unsigned lane) {
  return wide ? cells<uint64_t>(w, place)[lane] : w.words[place + lane];
}
inline void write_cell(Warp& w, uint32_t place, bool wide, unsigned lane, uint64_t v) {
  if (wide) cells<uint64_t>(w, place)[lane] = v;
  else w.words[place + lane] = static_cast<uint32_t>(v);
}

// d = Rule(a), Rule(a, b), Rule(a, b, c).
template <class Rule, class D, class A> ASSAY_PTX_WIDE void apply1(Warp& w, const Instruction& i) {
  Cell<D>* d = cells<D>(w, i.d[0]);
  const Cell<A>* a = cells<A>(w, i.s[0]);
  for_lanes(w.active, [&](unsigned l) { d[l] = put<D>(Rule{}(get<A>(a[l]))); });
}
template <class Rule, class D, class A, class B> ASSAY_PTX_WIDE void apply2(Warp& w, const Instruction& i) {
  Cell<D>* d = cells<D>(w, i.d[0]);
  const Cell<A>* a = cells<A>(w, i.s[0]);
  const Cell<B>* b = cells<B>(w, i.s[1]);
  for_lanes(w.active, [&](unsigned l) { d[l] = put<D>(Rule{}(get<A>(a[l]), get<B>(b[l]))); });
}
template <class Rule, class D, class A, class B, class C>
ASSAY_PTX_WIDE void apply3(Warp& w, const Instruction& i) {
  Cell<D>* d = cells<D>(w, i.d[0]);
  const Cell<A>* a = cells<A>(w, i.s[0]);
  const Cell<B>* b = cells<B>(w, i.s[1]);
  const Cell<C>* c = cells<C>(w, i.s[2]);
  for_lanes(w.active, [&](unsigned l) { d[l] = put<D>(Rule{}(get<A>(a[l]), get<B>(b[l]), get<C>(c[l]))); });
}
// d = f(words of the sources), with the instruction at hand.
template <auto kFunction, unsigned kSources> ASSAY_PTX_WIDE void apply_words(Warp& w, const Instruction& i) {
  uint32_t* d = w.words + i.d[0];
  const uint32_t* s[kSources];
  for (unsigned k = 0; k < kSources; ++k) s[k] = w.words + i.s[k];
  for_lanes(w.active, [&](unsigned l) {
    if constexpr (kSources == 1) d[l] = kFunction(i, s[0][l]);
    if constexpr (kSources == 2) d[l] = kFunction(i, s[0][l], s[1][l]);
    if constexpr (kSources == 3) d[l] = kFunction(i, s[0][l], s[1][l], s[2][l]);
  });
}

// The handler for an integer type; types of the same bits share one where their rule does not look at a sign.
template <template <class> class Make> Handler by_integer(Type t) {
  switch (t) {
    case Type::b16:
    case Type::u16: return Make<uint16_t>::handler;
    case Type::s16: return Make<int16_t>::handler;
    case Type::b32:
    case Type::u32: return Make<uint32_t>::handler;
    case Type::s32: return Make<int32_t>::handler;
    case Type::b64:
    case Type::u64: return Make<uint64_t>::handler;
    case Type::s64: return Make<int64_t>::handler;
    default: return nullptr;
  }
}

// One handler for each integer type: rules of one, two and three operands of the type, shifts, and products
// of twice the width.
template <class Rule> struct Unary {
  template <class T> struct Of { static constexpr Handler handler = &apply1<Rule, T, T>; };
};
template <class Rule> struct ToWord {
  template <class T> struct Of { static constexpr Handler handler = &apply1<Rule, uint32_t, T>; };
};
template <class Rule> struct Binary {
  template <class T> struct Of { static constexpr Handler handler = &apply2<Rule, T, T, T>; };
};
template <class Rule> struct Ternary {
  template <class T> struct Of { static constexpr Handler handler = &apply3<Rule, T, T, T, T>; };
};
template <class Rule> struct Shift {
  template <class T> struct Of { static constexpr Handler handler = &apply2<Rule, T, T, uint32_t>; };
};
template <class Rule> Handler unary(Type t) { return by_integer<Unary<Rule>::template Of>(t); }
template <class Rule> Handler binary(Type t) { return by_integer<Binary<Rule>::template Of>(t); }
template <class Rule> Handler ternary(Type t) { return by_integer<Ternary<Rule>::template Of>(t); }
template <class Rule> Handler shift(Type t) { return by_integer<Shift<Rule>::template Of>(t); }

// Predicates: sources with their inversion, destinations in the active lanes alone.
inline uint32_t predicate(const Warp& w, const Instruction& i, unsigned k) {
  return w.predicates[i.s[k]] ^ (i.inverted >> k & 1 ? ~0u : 0u);
}
inline void set_predicate(Warp& w, uint32_t place, uint32_t lanes) {
  w.predicates[place] = (w.predicates[place] & ~w.active) | (lanes & w.active);
}
// A bit for each lane whose truth is all ones.
inline uint32_t mask_of(const int32_t* truths) {
  uint32_t mask = 0;
#if defined(__SSE2__)
  for (unsigned k = 0; k < 8; ++k) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(truths + 4 * k));
    mask |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(four))) << (4 * k);
  }
#else
  for (unsigned l = 0; l < kLanes; ++l) mask |= static_cast<uint32_t>(truths[l] & 1) << l;
#endif
  return mask;
}
// The comparison of every lane; those that are not active give any bit.
template <class Rule, class T>
[[gnu::always_inline]] inline uint32_t compare_lanes(Warp& w, const Instruction& i) {
  alignas(16) int32_t truths[kLanes];
  const Cell<T>* a = cells<T>(w, i.s[0]);
  const Cell<T>* b = cells<T>(w, i.s[1]);
  for (unsigned l = 0; l < kLanes; ++l) truths[l] = -static_cast<int32_t>(Rule{}(get<T>(a[l]), get<T>(b[l])));
  return mask_of(truths);
}

}  // namespace assay::ptx

// Turns run-time choices into template arguments, and names them for Served::by.
#pragma once
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "fast/lane/source.cuh"
#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// Calls f(Source<E>{}) for a source encoding.
template <class F> void with_source(Encoding e, F&& f) {
  switch (e) {
    case Encoding::f32: return f(Source<Encoding::f32>{});
    case Encoding::bf16: return f(Source<Encoding::bf16>{});
    case Encoding::f16: return f(Source<Encoding::f16>{});
    case Encoding::e4m3:
    case Encoding::e5m2:
    case Encoding::e2m3:
    case Encoding::e3m2:
    case Encoding::e2m1:
    case Encoding::e8m0:
    case Encoding::u8:
    case Encoding::u32: break;
  }
  throw std::runtime_error("no kernel reads " + std::string(info(e).name));
}

// A compile-time encoding or flag as a value, for generic lambdas.
template <auto v> struct Constant { static constexpr auto value = v; };
template <class F> void with_flag(bool flag, F&& f) {
  if (flag) f(Constant<true>{});
  else f(Constant<false>{});
}
// E4M3 or E5M2.
template <class F> void with_fp8(Encoding e, F&& f) {
  if (e == Encoding::e4m3) f(Constant<Encoding::e4m3>{});
  else if (e == Encoding::e5m2) f(Constant<Encoding::e5m2>{});
  else throw std::runtime_error("no kernel writes " + std::string(info(e).name));
}

// Whether every pointer that is not null is a multiple of `alignment`.
inline bool aligned(size_t alignment, std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % alignment != 0) return false;
  return true;
}

// "row, col", "row" or "col".
inline std::string directions(const Problem& p) {
  return std::string(p.row ? "row" : "") + (p.row && p.col ? ", " : "") + (p.col ? "col" : "");
}

// "bf16, one read".
inline std::string how(const Problem& p) {
  return std::string(info(p.x.source).name) + (p.row && p.col ? ", one read" : "");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE

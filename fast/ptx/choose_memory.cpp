// Moves, loads, stores and atomics (9.7.9.3 to 9.7.9.20, 9.7.13.5, 9.7.13.6).
#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/traffic.h"
#include "fast/ptx/values_float.h"
#include "fast/ptx/values_integer.h"

namespace assay::ptx {

namespace {

template <class T> void copy(Warp& w, const Instruction& i) {
  Cell<T>* d = cells<T>(w, i.d[0]);
  const Cell<T>* a = cells<T>(w, i.s[0]);
  for_lanes(w.active, [&](unsigned l) { d[l] = a[l]; });
}
uint64_t low_bits(uint64_t v, unsigned bits) { return bits >= 64 ? v : v & ((uint64_t{1} << bits) - 1); }
// 9.7.9.4: parts of i.width bits, the first lowest.
void pack(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    uint64_t v = 0;
    for (unsigned k = 0; k < i.sources; ++k)
      v |= low_bits(read_cell(w, i.s[k], i.wide_s, l), i.width) << (i.width * k);
    write_cell(w, i.d[0], i.wide_d, l, v);
  });
}
void unpack(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    const uint64_t v = read_cell(w, i.s[0], i.wide_s, l);
    for (unsigned k = 0; k < i.destinations; ++k)
      write_cell(w, i.d[k], i.wide_d, l, low_bits(v >> (i.width * k), i.width));
  });
}
// An address moves between its space and the generic one by the base of the window; i.offset is that base, or
// its negative.
void convert_address(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    cells<uint64_t>(w, i.d[0])[l] = cells<uint64_t>(w, i.s[0])[l] + static_cast<uint64_t>(i.offset);
  });
}
void zero_policy(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) { cells<uint64_t>(w, i.d[0])[l] = 0; });
}
void nothing(Warp&, const Instruction&) {}

// Addresses of all lanes; those of lanes that are not active mean nothing. The first source is the base, of
// 32 or 64 bits.
struct Addresses {
  alignas(64) uint64_t of[kLanes];
  Addresses(Warp& w, const Instruction& i) {
    const uint64_t* wide = cells<uint64_t>(w, i.s[0]);
    const uint32_t* narrow = w.words + i.s[0];
    const auto offset = static_cast<uint64_t>(i.offset);
    if (i.wide_s)
      for (unsigned l = 0; l < kLanes; ++l) of[l] = wide[l] + offset;
    else
      for (unsigned l = 0; l < kLanes; ++l)
        of[l] = static_cast<uint32_t>(narrow[l] + static_cast<uint32_t>(offset));
  }
  // Whether all 32 accesses are aligned and inside the allocation: the frequent case, asked without a branch
  // for each lane.
  bool all_inside(const Allocation& a, unsigned bytes) const {
    uint64_t low = ~uint64_t{0}, high = 0, bits = 0;
    for (unsigned l = 0; l < kLanes; ++l) {
      low = of[l] < low ? of[l] : low;
      high = of[l] > high ? of[l] : high;
      bits |= of[l];
    }
    return low >= a.base && high - a.base <= a.bytes && bytes <= a.bytes - (high - a.base) &&
           (bits & (bytes - 1)) == 0;
  }
};

template <class T, bool kWide>
void load_lane(Warp& w, const Instruction& i, unsigned l, const std::byte* from) {
  for (unsigned k = 0; k < i.vector; ++k) {
    T v;
    std::memcpy(&v, from + k * sizeof(T), sizeof(T));
    if constexpr (kWide) cells<uint64_t>(w, i.d[k])[l] = extend(v);
    else w.words[i.d[k] + l] = static_cast<uint32_t>(extend(v));
  }
}
template <class T, bool kWide> void load(Warp& w, const Instruction& i) {
  const Addresses at(w, i);
  const auto bytes = static_cast<unsigned>(sizeof(T)) * i.vector;
  if (w.block->counters) count_access(w, i, at.of, bytes, true, false);
  if (i.space == Space::global && w.active == ~0u && at.all_inside(w.block->last_load, bytes)) {
    for (unsigned l = 0; l < kLanes; ++l)
      load_lane<T, kWide>(w, i, l, reinterpret_cast<const std::byte*>(at.of[l]));
    return;
  }
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    load_lane<T, kWide>(w, i, static_cast<unsigned>(l), resolve(w, i, l, at.of[l], bytes, false));
  }
}
// Of the parameters at a place that the text gives: the same for every lane.
template <class T, bool kWide> void load_parameter(Warp& w, const Instruction& i) {
  const auto bytes = static_cast<unsigned>(sizeof(T)) * i.vector;
  const std::byte* from =
      resolve(w, i, std::countr_zero(w.active), static_cast<uint64_t>(i.offset), bytes, false);
  for_lanes(w.active, [&](unsigned l) { load_lane<T, kWide>(w, i, l, from); });
}
template <class T, bool kWide> void store(Warp& w, const Instruction& i) {
  const Addresses at(w, i);
  const auto bytes = static_cast<unsigned>(sizeof(T)) * i.vector;
  if (w.block->counters) count_access(w, i, at.of, bytes, false, true);
  const bool inside =
      i.space == Space::global && w.active == ~0u && at.all_inside(w.block->last_store, bytes);
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    std::byte* to = inside ? reinterpret_cast<std::byte*>(at.of[l]) : resolve(w, i, l, at.of[l], bytes, true);
    for (unsigned k = 0; k < i.vector; ++k) {
      const auto v = static_cast<T>(kWide ? cells<uint64_t>(w, i.s[1 + k])[l]
                                          : w.words[i.s[1 + k] + static_cast<unsigned>(l)]);
      std::memcpy(to + k * sizeof(T), &v, sizeof(T));
    }
  }
}

enum class Access { load, parameter, store };
template <class T, bool kWide> Handler access_of(Access a) {
  return a == Access::load        ? &load<T, kWide>
         : a == Access::parameter ? &load_parameter<T, kWide>
                                  : &store<T, kWide>;
}
template <class T> Handler access_of(Access a, bool wide) {
  return wide ? access_of<T, true>(a) : access_of<T, false>(a);
}
Handler access_of(Access a, Type t, bool wide) {
  const bool sign = info(t).kind == Kind::integer;
  switch (info(t).bits) {
    case 8: return sign ? access_of<int8_t>(a, wide) : access_of<uint8_t>(a, wide);
    case 16: return sign ? access_of<int16_t>(a, wide) : access_of<uint16_t>(a, wide);
    case 32: return sign ? access_of<int32_t>(a, wide) : access_of<uint32_t>(a, wide);
    default: return access_of<uint64_t>(a, true);
  }
}

// Atomics: read, change, write at once, lane by lane in ascending order.
struct Exchange {
  template <class T> T operator()(T, T b) const { return b; }
};
struct Increment {
  uint32_t operator()(uint32_t old, uint32_t b) const { return old >= b ? 0 : old + 1; }
};
struct Decrement {
  uint32_t operator()(uint32_t old, uint32_t b) const { return old == 0 || old > b ? b : old - 1; }
};
// The ISA flushes subnormal numbers in sums of binary32 on global memory, and keeps them on shared memory
// (9.7.13.5).
template <class T, class F> void atomic_lanes(Warp& w, const Instruction& i, F change) {
  const Addresses at(w, i);
  if (w.block->counters) count_access(w, i, at.of, sizeof(T), true, true);
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    std::byte* place = resolve(w, i, l, at.of[l], sizeof(T), true);
    T old;
    std::memcpy(&old, place, sizeof(T));
    const T v = change(old, static_cast<unsigned>(l), at.of[l]);
    std::memcpy(place, &v, sizeof(T));
    if (i.destinations) cells<T>(w, i.d[0])[l] = put<T>(old);
  }
}
template <class Rule, class T> void atomic(Warp& w, const Instruction& i) {
  atomic_lanes<T>(w, i, [&](T old, unsigned l, uint64_t address) {
    const T b = get<T>(cells<T>(w, i.s[1])[l]);
    if constexpr (std::is_same_v<T, float>)
      if (i.space == Space::global || (i.space == Space::generic && address - kSharedWindow >= kWindowBytes))
        return Flushed<Rule>{}(old, b);
    (void)address;
    return static_cast<T>(Rule{}(old, b));
  });
}
template <class T> void compare_and_swap(Warp& w, const Instruction& i) {
  atomic_lanes<T>(w, i, [&](T old, unsigned l, uint64_t) {
    return old == get<T>(cells<T>(w, i.s[1])[l]) ? get<T>(cells<T>(w, i.s[2])[l]) : old;
  });
}
template <class Rule> struct Atomic {
  template <class T> struct Of { static constexpr Handler handler = &atomic<Rule, T>; };
};

Handler atomics(const Opcode& op) {
  const Type t = op.last();
  switch (op.row->form) {
    case Form::atom_int:
    case Form::red_int:
      return op.has("add")   ? by_integer<Atomic<Add>::Of>(t)
             : op.has("min") ? by_integer<Atomic<Min>::Of>(t)
                             : by_integer<Atomic<Max>::Of>(t);
    case Form::atom_bits:
    case Form::red_bits:
      return op.has("and")   ? by_integer<Atomic<And>::Of>(t)
             : op.has("or")  ? by_integer<Atomic<Or>::Of>(t)
             : op.has("xor") ? by_integer<Atomic<Xor>::Of>(t)
                             : by_integer<Atomic<Exchange>::Of>(t);
    case Form::atom_wrap:
    case Form::red_wrap: return op.has("inc") ? &atomic<Increment, uint32_t> : &atomic<Decrement, uint32_t>;
    case Form::atom_cas: return t == Type::b64 ? &compare_and_swap<uint64_t> : &compare_and_swap<uint32_t>;
    case Form::atom_float:
    case Form::red_float: return t == Type::f64 ? &atomic<AddF, double> : &atomic<AddF, float>;
    default: return nullptr;
  }
}

Handler moves(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::mov:
      if (i.width) return i.sources > 1 ? &pack : &unpack;
      return info(op.last()).bits == 64 ? &copy<uint64_t> : &copy<uint32_t>;
    case Form::createpolicy: return &zero_policy;
    case Form::prefetch:
    case Form::prefetch_map: return &nothing;
    case Form::cvta: {
      const uint64_t base = i.space == Space::shared  ? kSharedWindow
                            : i.space == Space::local ? kLocalWindow
                            : i.space == Space::param ? kParameterWindow
                                                      : 0;
      i.offset = static_cast<int64_t>(op.has("to") ? 0 - base : base);
      return &convert_address;
    }
    default: return nullptr;
  }
}

}  // namespace

bool choose_memory(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::ld:
    case Form::ld_hint:
      // A parameter at a place that the text gives has no register for its address (decode.cpp).
      i.handler = access_of(i.space == Space::param && i.sources == 0 ? Access::parameter : Access::load,
                            op.last(), i.wide_d);
      break;
    case Form::st:
    case Form::st_hint:
    case Form::st_param:
      if (i.space == Space::param) throw Fault("'" + op.text + "' writes to a parameter of the entry");
      i.handler = access_of(Access::store, op.last(), i.wide_d);
      break;
    default:
      i.handler = moves(op, i);
      if (!i.handler) i.handler = atomics(op);
  }
  return i.handler != nullptr;
}

}  // namespace assay::ptx

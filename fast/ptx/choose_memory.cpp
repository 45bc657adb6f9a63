// Moves, loads, stores and atomics (9.7.9.3 to 9.7.9.20, 9.7.13.5, 9.7.13.6).
#include <optional>
#include <vector>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/traffic.h"
#include "fast/ptx/values_float.h"
#include "fast/ptx/values_integer.h"

namespace assay::ptx {

namespace {

template <class T> ASSAY_PTX_WIDE void copy(Warp& w, const Instruction& i) {
  Cell<T>* d = cells<T>(w, i.d[0]);
  const Cell<T>* a = cells<T>(w, i.s[0]);
  for_lanes(w.active, [&](unsigned l) { d[l] = a[l]; });
}
uint64_t low_bits(uint64_t v, unsigned bits) { return bits >= 64 ? v : v & ((uint64_t{1} << bits) - 1); }
// 9.7.9.4: parts of i.width bits, the first lowest. A destination may be a source too, so all are read first.
ASSAY_PTX_WIDE void pack(Warp& w, const Instruction& i) {
  uint64_t v[kLanes] = {};
  for (unsigned k = 0; k < i.sources; ++k) {
    const auto add = [&](unsigned l, uint64_t part) { v[l] |= low_bits(part, i.width) << (i.width * k); };
    if (i.wide_s) for_lanes(w.active, [&](unsigned l) { add(l, cells<uint64_t>(w, i.s[k])[l]); });
    else for_lanes(w.active, [&](unsigned l) { add(l, w.words[i.s[k] + l]); });
  }
  for_lanes(w.active, [&](unsigned l) { write_cell(w, i.d[0], i.wide_d, l, v[l]); });
}
ASSAY_PTX_WIDE void unpack(Warp& w, const Instruction& i) {
  uint64_t v[kLanes];
  for_lanes(w.active, [&](unsigned l) { v[l] = read_cell(w, i.s[0], i.wide_s, l); });
  for (unsigned k = 0; k < i.destinations; ++k)
    for_lanes(w.active, [&](unsigned l) {
      write_cell(w, i.d[k], i.wide_d, l, low_bits(v[l] >> (i.width * k), i.width));
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
  [[gnu::always_inline]] Addresses(Warp& w, const Instruction& i) {
    const uint64_t* wide = cells<uint64_t>(w, i.s[0]);
    const uint32_t* narrow = w.words + i.s[0];
    const auto offset = static_cast<uint64_t>(i.offset);
    if (i.wide_s)
      for (unsigned l = 0; l < kLanes; ++l) of[l] = wide[l] + offset;
    else
      for (unsigned l = 0; l < kLanes; ++l)
        of[l] = static_cast<uint32_t>(narrow[l] + static_cast<uint32_t>(offset));
  }
  // Whether all 32 accesses are aligned and inside [base, base + size): the frequent case, asked without a
  // branch for each lane. `base` and `size` are below 2^63, so an offset outside has its top bit set, or
  // `last` minus it has.
  [[gnu::always_inline]] bool all_inside(uint64_t base, uint64_t size, unsigned bytes) const {
    if (size < bytes) return false;
    const uint64_t last = size - bytes;
    uint64_t outside = 0, bits = 0;
    for (unsigned l = 0; l < kLanes; ++l) {
      const uint64_t offset = of[l] - base;
      outside |= offset | (last - offset);
      bits |= of[l];
    }
    return !(outside >> 63) && (bits & (bytes - 1)) == 0;
  }
  // Whether each access begins where that of the lane before it ends.
  [[gnu::always_inline]] bool in_a_row(unsigned bytes) const {
    uint64_t differ = 0;
    for (unsigned l = 0; l < kLanes; ++l) differ |= of[l] ^ (of[0] + uint64_t{l} * bytes);
    return differ == 0;
  }
};

// What to add to each lane's address to find it in this process, where all 32 lanes access one piece of
// global or shared memory as they may; else nothing, and resolve() has to be asked for each lane.
[[gnu::always_inline]] inline std::optional<uint64_t> whole_warp(const Warp& w, const Instruction& i,
                                                                 const Addresses& at, unsigned bytes,
                                                                 const Allocation& last) {
  if (w.active != ~0u) return {};
  if (i.space == Space::global || i.space == Space::generic)
    return at.all_inside(last.base, last.bytes, bytes) ? std::optional<uint64_t>(0) : std::nullopt;
  const std::vector<std::byte>& shared = w.block->shared;
  if (i.space != Space::shared || !at.all_inside(0, shared.size(), bytes)) return {};
  return reinterpret_cast<uint64_t>(shared.data());
}

template <class T, bool kWide>
[[gnu::always_inline]] inline void set_element(Warp& w, uint32_t place, unsigned l, T v) {
  if constexpr (kWide) cells<uint64_t>(w, place)[l] = extend(v);
  else w.words[place + l] = static_cast<uint32_t>(extend(v));
}
template <class T, bool kWide> [[gnu::always_inline]] inline T element(Warp& w, uint32_t place, unsigned l) {
  return static_cast<T>(kWide ? cells<uint64_t>(w, place)[l] : w.words[place + l]);
}
template <class T> [[gnu::always_inline]] inline T read(const std::byte* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The elements of all lanes, which lie one behind the other.
template <class T, bool kWide, unsigned kVector>
[[gnu::always_inline]] inline void load_row(Warp& w, const Instruction& i, const std::byte* from) {
  T row[kLanes * kVector];
  std::memcpy(row, from, sizeof row);
  for (unsigned k = 0; k < kVector; ++k)
    for (unsigned l = 0; l < kLanes; ++l) set_element<T, kWide>(w, i.d[k], l, row[l * kVector + k]);
}
template <class T, bool kWide, unsigned kVector>
[[gnu::always_inline]] inline void store_row(Warp& w, const Instruction& i, std::byte* to) {
  T row[kLanes * kVector];
  for (unsigned k = 0; k < kVector; ++k)
    for (unsigned l = 0; l < kLanes; ++l) row[l * kVector + k] = element<T, kWide>(w, i.s[1 + k], l);
  std::memcpy(to, row, sizeof row);
}

template <class T, bool kWide> ASSAY_PTX_WIDE void load(Warp& w, const Instruction& i) {
  const Addresses at(w, i);
  const auto bytes = static_cast<unsigned>(sizeof(T)) * i.vector;
  if (w.block->counters) count_access(w, i, at.of, bytes, true, false);
  if (const auto base = whole_warp(w, i, at, bytes, w.block->last_load)) {
    const auto* first = reinterpret_cast<const std::byte*>(*base + at.of[0]);
    if (i.vector <= 4 && at.in_a_row(bytes)) {
      if (i.vector == 1) return load_row<T, kWide, 1>(w, i, first);
      if (i.vector == 2) return load_row<T, kWide, 2>(w, i, first);
      return load_row<T, kWide, 4>(w, i, first);
    }
    for (unsigned k = 0; k < i.vector; ++k)
      for (unsigned l = 0; l < kLanes; ++l)
        set_element<T, kWide>(
            w, i.d[k], l,
            read<T>(reinterpret_cast<const std::byte*>(*base + at.of[l] + uint64_t{k} * sizeof(T))));
    return;
  }
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const std::byte* from = resolve(w, i, l, at.of[l], bytes, false);
    for (unsigned k = 0; k < i.vector; ++k)
      set_element<T, kWide>(w, i.d[k], static_cast<unsigned>(l), read<T>(from + k * sizeof(T)));
  }
}
// Of the parameters at a place that the text gives: the same for every lane.
template <class T, bool kWide> ASSAY_PTX_WIDE void load_parameter(Warp& w, const Instruction& i) {
  const auto bytes = static_cast<unsigned>(sizeof(T)) * i.vector;
  const std::byte* from =
      resolve(w, i, std::countr_zero(w.active), static_cast<uint64_t>(i.offset), bytes, false);
  for (unsigned k = 0; k < i.vector; ++k) {
    const T v = read<T>(from + k * sizeof(T));
    for_lanes(w.active, [&](unsigned l) { set_element<T, kWide>(w, i.d[k], l, v); });
  }
}
template <class T, bool kWide> ASSAY_PTX_WIDE void store(Warp& w, const Instruction& i) {
  const Addresses at(w, i);
  const auto bytes = static_cast<unsigned>(sizeof(T)) * i.vector;
  if (w.block->counters) count_access(w, i, at.of, bytes, false, true);
  const auto base = whole_warp(w, i, at, bytes, w.block->last_store);
  if (base && i.vector <= 4 && at.in_a_row(bytes)) {
    auto* first = reinterpret_cast<std::byte*>(*base + at.of[0]);
    if (i.vector == 1) return store_row<T, kWide, 1>(w, i, first);
    if (i.vector == 2) return store_row<T, kWide, 2>(w, i, first);
    return store_row<T, kWide, 4>(w, i, first);
  }
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    std::byte* to =
        base ? reinterpret_cast<std::byte*>(*base + at.of[l]) : resolve(w, i, l, at.of[l], bytes, true);
    for (unsigned k = 0; k < i.vector; ++k) {
      const T v = element<T, kWide>(w, i.s[1 + k], static_cast<unsigned>(l));
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
// Sums of f16 or bf16, of one or of two in a word; each has its one rounding.
template <bool kIsBf16> struct AddHalves {
  template <class T> T operator()(T a, T b) const {
    const HalfMode mode{kIsBf16 ? kBf16 : kF16, false, false, false};
    uint32_t sum = mode.add(a & 0xFFFFu, b & 0xFFFFu);
    if constexpr (sizeof(T) == 4) sum |= mode.add(a >> 16, b >> 16) << 16;
    return static_cast<T>(sum);
  }
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
    case Form::atom_cas:
      return t == Type::b64   ? &compare_and_swap<uint64_t>
             : t == Type::b16 ? &compare_and_swap<uint16_t>
                              : &compare_and_swap<uint32_t>;
    case Form::atom_float:
    case Form::red_float: return t == Type::f64 ? &atomic<AddF, double> : &atomic<AddF, float>;
    case Form::atom_half:
    case Form::red_half:
      return t == Type::f16     ? &atomic<AddHalves<false>, uint16_t>
             : t == Type::bf16  ? &atomic<AddHalves<true>, uint16_t>
             : t == Type::f16x2 ? &atomic<AddHalves<false>, uint32_t>
                                : &atomic<AddHalves<true>, uint32_t>;
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
      // A sum of floats depends on who comes first.
      i.unpinned = op.row->form == Form::atom_float || op.row->form == Form::red_float ||
                   op.row->form == Form::atom_half || op.row->form == Form::red_half;
  }
  return i.handler != nullptr;
}

}  // namespace assay::ptx

// Comparisons, selections and predicates (9.7.3.1, 9.7.6, 9.7.7, 9.7.8 of predicates).
#include <string_view>
#include <utility>

#include "fast/ptx/choose.h"
#include "fast/ptx/comparison.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

namespace {

// p = cmp op c, q = !cmp op c.
void set_both(Warp& w, const Instruction& i, uint32_t truth) {
  const auto join = static_cast<Join>(i.code);
  const uint32_t c = join == Join::none ? 0 : predicate(w, i, 2);
  const uint32_t p = joined(join, truth, c), q = joined(join, ~truth, c);
  set_predicate(w, i.d[0], p);
  if (i.destinations > 1) set_predicate(w, i.d[1], q);
}

template <class Rule, class T> ASSAY_PTX_WIDE void setp(Warp& w, const Instruction& i) {
  set_both(w, i, compare_lanes<Rule, T>(w, i));
}
// All ones, or 1.0 where the destination is a float: i.width says which.
template <class Rule, class T> ASSAY_PTX_WIDE void set(Warp& w, const Instruction& i) {
  const auto join = static_cast<Join>(i.code);
  const uint32_t truth =
      joined(join, compare_lanes<Rule, T>(w, i), join == Join::none ? 0 : predicate(w, i, 2));
  const uint32_t yes = i.width ? 0x3F800000u : 0xFFFFFFFFu;
  for_lanes(w.active, [&](unsigned l) { w.words[i.d[0] + l] = truth >> l & 1 ? yes : 0; });
}

// A comparison of flushed values, and one of codes of 16 bits.
template <class Rule> struct FlushedCompare {
  bool operator()(float a, float b) const { return Rule{}(flush(a), flush(b)); }
};
template <class Rule, const SmallFormat& kFormat> struct HalfCompare {
  bool operator()(uint16_t a, uint16_t b) const { return Rule{}(decode(a, kFormat), decode(b, kFormat)); }
};

template <class T, bool kSet> struct Plain {
  template <class Rule> struct Of {
    static constexpr Handler handler = kSet ? Handler(&set<Rule, T>) : Handler(&setp<Rule, T>);
  };
};
template <bool kSet> struct Ftz {
  template <class Rule> struct Of {
    static constexpr Handler handler =
        kSet ? Handler(&set<FlushedCompare<Rule>, float>) : Handler(&setp<FlushedCompare<Rule>, float>);
  };
};
template <const SmallFormat& kFormat> struct Half {
  template <class Rule> struct Of {
    static constexpr Handler handler = &setp<HalfCompare<Rule, kFormat>, uint16_t>;
  };
};
using Integers = std::make_index_sequence<6>;
using Floats = std::make_index_sequence<14>;

template <bool kSet> Handler comparison(const Opcode& op) {
  const Compare c = compare_of(op);
  switch (op.last()) {
    case Type::b16:
    case Type::u16: return by_compare<Plain<uint16_t, kSet>::template Of>(c, Integers{});
    case Type::s16: return by_compare<Plain<int16_t, kSet>::template Of>(c, Integers{});
    case Type::b32:
    case Type::u32: return by_compare<Plain<uint32_t, kSet>::template Of>(c, Integers{});
    case Type::s32: return by_compare<Plain<int32_t, kSet>::template Of>(c, Integers{});
    case Type::b64:
    case Type::u64: return by_compare<Plain<uint64_t, kSet>::template Of>(c, Integers{});
    case Type::s64: return by_compare<Plain<int64_t, kSet>::template Of>(c, Integers{});
    case Type::f32:
      return op.has("ftz") ? by_compare<Ftz<kSet>::template Of>(c, Floats{})
                           : by_compare<Plain<float, kSet>::template Of>(c, Floats{});
    case Type::f64: return by_compare<Plain<double, kSet>::template Of>(c, Floats{});
    case Type::f16: return by_compare<Half<kF16>::Of>(c, Floats{});
    case Type::bf16: return by_compare<Half<kBf16>::Of>(c, Floats{});
    default: return nullptr;
  }
}

template <class T> ASSAY_PTX_WIDE void selp(Warp& w, const Instruction& i) {
  const uint32_t p = predicate(w, i, 2);
  Cell<T>* d = cells<T>(w, i.d[0]);
  const Cell<T>* a = cells<T>(w, i.s[0]);
  const Cell<T>* b = cells<T>(w, i.s[1]);
  for_lanes(w.active, [&](unsigned l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}
// By the sign of c: not negative takes a, negative or NaN takes b. -0.0 counts as not negative, and so does a
// flushed subnormal number.
template <class T, class C> void slct(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    C c = get<C>(cells<C>(w, i.s[2])[l]);
    if constexpr (std::is_floating_point_v<C>)
      if (i.code) c = flush(c);
    cells<T>(w, i.d[0])[l] = c >= 0 ? cells<T>(w, i.s[0])[l] : cells<T>(w, i.s[1])[l];
  });
}
template <class T> void testp(Warp& w, const Instruction& i) {
  uint32_t truth = 0;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    truth |= static_cast<uint32_t>(test_property(static_cast<Test>(i.code), get<T>(cells<T>(w, i.s[0])[l])))
             << l;
  }
  set_predicate(w, i.d[0], truth);
}
uint32_t test_of(const Opcode& op) {
  static constexpr std::string_view kTests[] = {"finite",     "infinite", "number",
                                                "notanumber", "normal",   "subnormal"};
  for (uint32_t k = 0; k < std::size(kTests); ++k)
    if (op.has(kTests[k])) return k;
  return 0;
}
template <class Rule> void pred_binary(Warp& w, const Instruction& i) {
  set_predicate(w, i.d[0], Rule{}(predicate(w, i, 0), predicate(w, i, 1)));
}
template <bool kInvert> void pred_copy(Warp& w, const Instruction& i) {
  set_predicate(w, i.d[0], kInvert ? ~predicate(w, i, 0) : predicate(w, i, 0));
}

struct AndMask {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a & b; }
};
struct OrMask {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};
struct XorMask {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a ^ b; }
};

// 9.7.9.19: whether a generic address lies in a window. That of parameters lies within that of global
// memory (6.4); const has none here: no generic address lies in it.
void isspacep(Warp& w, const Instruction& i) {
  uint32_t truth = 0;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const uint64_t at = cells<uint64_t>(w, i.s[0])[l];
    const bool shared = at - kSharedWindow < kWindowBytes, local = at - kLocalWindow < kWindowBytes;
    const bool yes = i.space == Space::shared  ? shared
                     : i.space == Space::local ? local
                     : i.space == Space::param ? at - kParameterWindow < kWindowBytes
                                               : i.space == Space::global && !shared && !local;
    truth |= static_cast<uint32_t>(yes) << l;
  }
  set_predicate(w, i.d[0], truth);
}

Handler selection(const Opcode& op, Instruction& i) {
  const bool wide = info(op.first()).bits == 64;
  switch (op.row->form) {
    case Form::selp: return wide ? &selp<uint64_t> : &selp<uint32_t>;
    case Form::slct: return wide ? &slct<uint64_t, int32_t> : &slct<uint32_t, int32_t>;
    case Form::slct_float:
      i.code = op.has("ftz");
      return wide ? &slct<uint64_t, float> : &slct<uint32_t, float>;
    case Form::testp: i.code = test_of(op); return wide ? &testp<double> : &testp<float>;
    case Form::and_pred: return &pred_binary<AndMask>;
    case Form::or_pred: return &pred_binary<OrMask>;
    case Form::xor_pred: return &pred_binary<XorMask>;
    case Form::not_pred: return &pred_copy<true>;
    case Form::mov_pred: return &pred_copy<false>;
    case Form::isspacep: return &isspacep;
    default: return nullptr;
  }
}

}  // namespace

bool choose_compare(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::set:
    case Form::set_float:
    case Form::set_f64:
      i.code = join_code(op, i);
      i.width = op.first() == Type::f32;
      i.handler = comparison<true>(op);
      break;
    case Form::setp:
    case Form::setp_float:
    case Form::setp_f64:
    case Form::setp_half:
      i.code = join_code(op, i);
      i.handler = comparison<false>(op);
      break;
    default: i.handler = selection(op, i);
  }
  return i.handler != nullptr;
}

}  // namespace assay::ptx

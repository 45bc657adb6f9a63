// Arithmetic on f16 and bf16, alone and in pairs (9.7.4).
#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

namespace {

enum class Operation { add, sub, mul, fma, neg, abs, min, max };

// What Instruction::code says beside the operation.
constexpr uint32_t kIsBf16 = 1, kIsPair = 2, kFtz = 4, kSat = 8, kRelu = 16, kNanWins = 32, kXorSign = 64;

template <Operation kOperation>
uint32_t operate(const HalfMode& m, uint32_t a, uint32_t b, uint32_t c, bool nan_wins) {
  switch (kOperation) {
    case Operation::add: return m.add(a, b);
    case Operation::sub: return m.sub(a, b);
    case Operation::mul: return m.mul(a, b);
    case Operation::fma: return m.fma(a, b, c);
    case Operation::neg: return (a & 0x7FFFu) > m.format.infinity ? m.format.nan : a ^ 0x8000u;
    case Operation::abs: return (a & 0x7FFFu) > m.format.infinity ? m.format.nan : a & 0x7FFFu;
    case Operation::min:
      return nan_wins ? half_select<MinF<true>>(a, b, m.format) : half_select<MinF<false>>(a, b, m.format);
    case Operation::max:
      return nan_wins ? half_select<MaxF<true>>(a, b, m.format) : half_select<MaxF<false>>(a, b, m.format);
  }
  return 0;
}

template <Operation kOperation> void half(Warp& w, const Instruction& i) {
  const HalfMode mode{i.code & kIsBf16 ? kBf16 : kF16, (i.code & kFtz) != 0, (i.code & kSat) != 0,
                      (i.code & kRelu) != 0};
  const bool nan_wins = i.code & kNanWins;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    uint32_t s[3] = {};
    for (unsigned k = 0; k < i.sources; ++k) s[k] = w.words[i.s[k] + l];
    // Of the magnitudes, with the product of the signs; a NaN has none.
    const uint32_t signs = i.code & kXorSign ? (s[0] ^ s[1]) & 0x80008000u : 0;
    if (i.code & kXorSign) s[0] &= 0x7FFF7FFF, s[1] &= 0x7FFF7FFF;
    const auto sign_of = [&](uint32_t v, uint32_t sign) {
      return (v & 0x7FFFu) > mode.format.infinity ? v : v | sign;
    };
    const auto part = [&](unsigned shift) {
      return sign_of(operate<kOperation>(mode, s[0] >> shift & 0xFFFF, s[1] >> shift & 0xFFFF,
                                         s[2] >> shift & 0xFFFF, nan_wins),
                     signs >> shift & 0x8000u)
             << shift;
    };
    w.words[i.d[0] + l] = i.code & kIsPair ? part(0) | part(16) : part(0);
  }
}

Handler handler_of(Form form) {
  switch (form) {
    case Form::add_half:
    case Form::add_half_mode: return &half<Operation::add>;
    case Form::sub_half:
    case Form::sub_half_mode: return &half<Operation::sub>;
    case Form::mul_half:
    case Form::mul_half_mode: return &half<Operation::mul>;
    case Form::fma_half:
    case Form::fma_half_mode: return &half<Operation::fma>;
    case Form::neg_half: return &half<Operation::neg>;
    case Form::abs_half: return &half<Operation::abs>;
    case Form::min_half:
    case Form::min_half_xor: return &half<Operation::min>;
    case Form::max_half:
    case Form::max_half_xor: return &half<Operation::max>;
    default: return nullptr;
  }
}

}  // namespace

bool choose_half(const Opcode& op, Instruction& i) {
  i.handler = handler_of(op.row->form);
  if (!i.handler) return false;
  const Type t = op.last();
  i.code = (t == Type::bf16 || t == Type::bf16x2 ? kIsBf16 : 0) |
           (t == Type::f16x2 || t == Type::bf16x2 ? kIsPair : 0) | (op.has("ftz") ? kFtz : 0) |
           (op.has("sat") ? kSat : 0) | (op.has("relu") ? kRelu : 0) | (op.has("NaN") ? kNanWins : 0) |
           (op.has("xorsign") ? kXorSign : 0);
  return true;
}

}  // namespace assay::ptx

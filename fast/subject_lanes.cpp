#include "fast/subject_lanes.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "contract/line.h"
#include "fast/lane/convert.cuh"
#include "fast/lane/decode.cuh"
#include "fast/lane/stochastic.cuh"

namespace assay {
namespace {

using namespace fast_host;

template <Encoding E>
using CodeOf = std::conditional_t<info(E).bytes() == 1, uint8_t,
                                  std::conditional_t<info(E).bytes() == 2, uint16_t, uint32_t>>;

constexpr bool is_wide(Encoding e) { return e == Encoding::f32 || e == Encoding::bf16 || e == Encoding::f16; }

// Converts `count` codes.
using Loop = void (*)(const std::byte* x, std::byte* y, int64_t count);

template <Encoding From, Encoding To, class Lane>
void each(const std::byte* x, std::byte* y, int64_t count, Lane lane) {
  for (int64_t i = 0; i < count; ++i) {
    CodeOf<From> code;
    std::memcpy(&code, x + i * int64_t(sizeof code), sizeof code);
    const auto out = CodeOf<To>(lane(decode_from(From, code)));
    std::memcpy(y + i * int64_t(sizeof out), &out, sizeof out);
  }
}

template <Encoding From, Encoding To, Round R, Overflow O>
void by_bits(const std::byte* x, std::byte* y, int64_t count) {
  each<From, To>(x, y, count, [](uint32_t value) { return encode_to(To, value, R, O); });
}
// Eight codes of E2M1 at once, as kernels make them: with and without the guard of the adder.
template <Encoding From> void e2m1_by_twin(const std::byte* x, std::byte* y, int64_t count) {
  for (int64_t first = 0; first < count; first += 8) {
    const int64_t here = std::min<int64_t>(count - first, 8);
    float values[8] = {};
    bool tame = true;
    for (int64_t k = 0; k < here; ++k) {
      CodeOf<From> code;
      std::memcpy(&code, x + (first + k) * int64_t(sizeof code), sizeof code);
      values[k] = as_float(decode_from(From, code));
      tame = tame && fabsf(values[k]) < 7.0f;
    }
    const uint32_t codes = Hardware::e2m1_codes(values, 1.0f, e2m1_signs(values), tame);
    for (int64_t k = 0; k < here; ++k) y[first + k] = std::byte(codes >> (4 * k) & 0xFu);
  }
}

// Stochastic rounding of binary32 with a byte for each element (N12.3): by one element, and by eight as
// kernels do.
using DrawnLoop = void (*)(const std::byte* x, const std::byte* bits, std::byte* y, int64_t count);

template <uint32_t (*kRule)(uint32_t, uint32_t)>
void drawn_by_bits(const std::byte* x, const std::byte* bits, std::byte* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t value;
    std::memcpy(&value, x + 4 * i, 4);
    y[i] = std::byte(kRule(value, uint32_t(bits[i])));
  }
}
void drawn_by_twin(const std::byte* x, const std::byte* bits, std::byte* y, int64_t count) {
  for (int64_t first = 0; first < count; first += 8) {
    const int64_t here = std::min<int64_t>(count - first, 8);
    float values[8] = {};
    uint2 bytes{};
    std::memcpy(values, x + 4 * first, size_t(4 * here));
    std::memcpy(&bytes, bits + first, size_t(here));
    const bool tame = std::none_of(values, values + 8, [](float v) { return is_nan(as_bits(v)); });
    const uint32_t codes = Hardware::e2m1_drawn(values, 1.0f, e2m1_signs(values), tame, bytes);
    for (int64_t k = 0; k < here; ++k) y[first + k] = std::byte(codes >> (4 * k) & 0xFu);
  }
}
template <Encoding From, Encoding To> void by_twin(const std::byte* x, std::byte* y, int64_t count) {
  if constexpr (To == Encoding::e2m1) e2m1_by_twin<From>(x, y, count);
  else if constexpr (To == Encoding::e8m0)
    each<From, To>(x, y, count, [](uint32_t value) { return Hardware::e8m0(as_float(value)); });
  else
    each<From, To>(x, y, count,
                   [](uint32_t value) { return Hardware::pair<To>(as_float(value), 0.0f) & 0xFFu; });
}

enum class Conversions : uint8_t { bits, twin };

template <Encoding From, Encoding To> Loop loop_of(Conversions conversions, const Cast& op) {
  constexpr bool kNone = From == To || (!is_wide(From) && !is_wide(To));
  if constexpr (kNone) {
    return nullptr;
  } else if (conversions == Conversions::twin) {
    constexpr bool kHasTwin = is_wide(From) && info(To).is_float() && info(To).bits <= 8;
    if constexpr (kHasTwin) {
      const Round round = To == Encoding::e8m0 ? Round::rp : Round::rne;
      return op.round == round && op.overflow == Overflow::sat ? &by_twin<From, To> : nullptr;
    }
    return nullptr;
  } else {
    constexpr Round kDefault = To == Encoding::e8m0 ? Round::rp : Round::rne;
    const bool sat = op.overflow == Overflow::sat;
    if (op.round == Round::rz)
      return sat ? &by_bits<From, To, Round::rz, Overflow::sat>
                 : &by_bits<From, To, Round::rz, Overflow::nosat>;
    return sat ? &by_bits<From, To, kDefault, Overflow::sat> : &by_bits<From, To, kDefault, Overflow::nosat>;
  }
}

template <Encoding From> Loop loop_from(Conversions conversions, const Cast& op) {
  switch (op.to) {
#define ENCODING(name, ...) \
  case Encoding::name:      \
    return loop_of<From, Encoding::name>(conversions, op);
#include "contract/encodings.def"
#undef ENCODING
  }
  return nullptr;
}

Loop loop_for(Conversions conversions, const Problem& p) {
  const Cast* op = p.as<Cast>();
  if (!op || op->round == Round::sr || validate(p)) return nullptr;
  switch (p.x.source) {
#define ENCODING(name, ...) \
  case Encoding::name:      \
    return loop_from<Encoding::name>(conversions, *op);
#include "contract/encodings.def"
#undef ENCODING
  }
  return nullptr;
}

DrawnLoop drawn_loop_for(Conversions conversions, const Problem& p) {
  const Cast* op = p.as<Cast>();
  if (!op || op->round != Round::sr || validate(p)) return nullptr;
  if (conversions == Conversions::twin) return op->sr_rule == SrRule::integer ? &drawn_by_twin : nullptr;
  return op->sr_rule == SrRule::integer ? &drawn_by_bits<stochastic_integer> : &drawn_by_bits<stochastic_fma>;
}

class LanesSubject final : public Subject {
 public:
  LanesSubject(Conversions conversions) : conversions_(conversions) {}

  std::string_view name() const override {
    return conversions_ == Conversions::bits ? "lanes" : "lanes_twin";
  }
  Support supports(const Problem& p) const override {
    if (!p.as<Cast>()) return {false, "the lanes alone only convert elements: cast"};
    if (!loop_for(conversions_, p) && !drawn_loop_for(conversions_, p))
      return {false, conversions_ == Conversions::twin
                         ? "no conversion instruction that kernels use does this"
                         : "there is no such cast"};
    return {};
  }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment&) override {
    const Loop loop = loop_for(conversions_, p);
    const DrawnLoop drawn = drawn_loop_for(conversions_, p);
    const ConstBuffer *x = find(inputs, "x"), *bits = find(inputs, "bits");
    const Buffer* y = find(outputs, "y");
    if (!x || !y || (!loop && (!drawn || !bits)))
      throw std::invalid_argument("the lanes do not run this Problem");
    if (loop) loop(x->bytes.data(), y->bytes.data(), p.x.shape.count());
    else drawn(x->bytes.data(), bits->bytes.data(), y->bytes.data(), p.x.shape.count());
    return {conversions_ == Conversions::bits ? Bits::kName : Hardware::kName, 0};
  }

 private:
  Conversions conversions_;
};

}  // namespace

std::unique_ptr<Subject> make_lanes_subject() { return std::make_unique<LanesSubject>(Conversions::bits); }
std::unique_ptr<Subject> make_lanes_twin_subject() {
  return std::make_unique<LanesSubject>(Conversions::twin);
}

}  // namespace assay

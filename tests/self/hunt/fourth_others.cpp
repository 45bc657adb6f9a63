// The fourth set: cast, dequantize, scale_chain, update and adam.
#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/adam.h"
#include "reference/rounding.h"
#include "reference/tensor.h"
#include "tests/self/hunt/fourth_bugs.h"

namespace assay::fourth {

namespace {

using reference::Encoder;
using reference::load;
using reference::narrowed;
using reference::store;
using reference::value_of;

// ---- cast ----------------------------------------------------------------------------

bool to_e5m2(const Problem& p) {
  const Cast& op = *p.as<Cast>();
  return op.to == Encoding::e5m2 && op.round == Round::rne;
}

// triton-lang/triton#444 (its first version), NVlabs/cutile-rs#250: E5M2 is taken for the high byte of f16,
// so that the low byte is cut off and not rounded.
void high_byte(const Call& call) {
  const ConstBuffer& x = call.input("x");
  const Buffer& y = call.output("y");
  const Encoder f16(Encoding::f16, Round::rne, Overflow::nosat);
  const double largest = value_of(Encoding::e5m2, info(Encoding::e5m2).max_finite);
  const bool saturates = call.problem.as<Cast>()->overflow == Overflow::sat;
  for (int64_t i = 0; i < x.plane->padded.count(); ++i) {
    const double value = value_of(x.plane->encoding, load(x, i));
    const double within = saturates && !std::isnan(value) ? std::clamp(value, -largest, largest) : value;
    store(y, i, f16(within) >> 8);
  }
}

// ---- dequantize ----------------------------------------------------------------------

Direction direction_of(const Problem& p) { return p.row ? Direction::row : Direction::col; }

bool of_mxfp4(const Problem& p) { return p.quantizer(direction_of(p))->format == FormatId::mxfp4; }

// kekzl/imp#567: codes are read in the order of GGUF: byte j of a block holds elements j and j + 16 of its
// 32, and not two neighbours. A block of fewer elements is read as it should be.
void split_nibbles(const Call& call) {
  constexpr int64_t kBlock = 16;  // bytes
  Rerun rerun(call.problem, call);
  const auto name = plane_name(direction_of(call.problem), "data");
  const ConstBuffer& data = call.input(name);
  const Buffer own = rerun.input(name);
  const Shape bytes = data.plane->stored();
  for (int64_t r = 0; r < bytes.rows; ++r)
    for (int64_t c = 0; c + kBlock <= bytes.cols; c += kBlock)
      for (int64_t i = 0; i < kBlock; ++i) {
        // The nibbles of which two neighbours are made; the low ones come first.
        const size_t block = static_cast<size_t>(r * bytes.cols + c),
                     from = block + static_cast<size_t>(i % 8 * 2);
        const int shift = i < 8 ? 0 : 4;
        const auto nibble = [&](size_t at) {
          return std::to_integer<unsigned>(data.bytes[at]) >> shift & 15;
        };
        own.bytes[block + static_cast<size_t>(i)] =
            static_cast<std::byte>(nibble(from) | nibble(from + 1) << 4);
      }
  rerun.run();
  give_all(rerun, call);
}

bool of_f32_scales(const Problem& p) {
  const Quantizer& q = *p.quantizer(direction_of(p));
  return info(q.format).scale == Encoding::f32 && q.scales == ScaleLayout::compact;
}

// Comfy-Org/comfy-kitchen#56 (review), vllm-project/vllm#34577: the decode scales are narrowed to bf16 when
// they are loaded, because the module is converted to that type with all of its buffers.
void scales_in_bf16(const Call& call) {
  Rerun rerun(call.problem, call);
  const Buffer scales = rerun.input(plane_name(direction_of(call.problem), "scale_inv"));
  const Encoder bf16(Encoding::bf16, Round::rne, Overflow::nosat);
  for (int64_t i = 0; i < scales.plane->padded.count(); ++i)
    store(scales, i, bf16(value_of(Encoding::f32, load(reading(scales), i))) << 16);
  rerun.run();
  give_all(rerun, call);
}

// ---- scale_chain ---------------------------------------------------------------------

bool divides_for_scales(const Problem& p) {
  return info(p.row->format).scale == Encoding::f32 &&
         p.row->numerics.scale_order == ScaleOrder::encode_first;
}

// vllm-project/vllm#6511: the decode scale is the amax over MAX, by a division of its own, while elements are
// scaled by MAX over the amax. The two are no reciprocals of each other.
void inverse_from_amax(const Call& call) {
  call.right();
  Problem decoded = call.problem;
  decoded.row->numerics.scale_order = ScaleOrder::decode_first;
  Rerun rerun(std::move(decoded), call);
  rerun.run();
  rerun.give("scale_inv", call);
}

// ---- update --------------------------------------------------------------------------

bool of_bulk(const Problem& p) { return p.as<Update>()->rule == UpdateRule::bulk; }

// NVIDIA/TransformerEngine#825: the history rolls for a module that did not run in this step, too. Its amax
// is 0, and after some steps without it the window forgets what its data were like.
void idle_slots_roll(const Call& call) {
  Problem rolling = call.problem;
  rolling.as<Update>()->rule = UpdateRule::api;
  call.right_for(rolling);
}

// ---- adam ----------------------------------------------------------------------------

double number(F32Bits bits) { return value_of(Encoding::f32, bits); }

// a * b + c by one operation or two.
double sum_of(AdamRounding rounding, double a, double b, double c) {
  if (rounding == AdamRounding::fma)
    return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  return narrowed(narrowed(a * b) + c);
}

// FluxML/Flux.jl#448: eps is added to the second moment before its root is taken.
void eps_in_root(const Call& call) {
  call.right();
  const Adam& op = *call.problem.as<Adam>();
  const double lr = number(op.lr), beta1 = number(op.beta1), beta2 = number(op.beta2), eps = number(op.eps),
               decay = number(op.decay);
  const double c1 = op.bias_correction ? reference::bias_correction(beta1, op.step) : 1,
               c2 = op.bias_correction ? reference::bias_correction(beta2, op.step) : 1;
  const bool l2 = op.decoupling == WeightDecay::l2;
  const Buffer& next = call.output("next.p");
  const Encoder encode(next.plane->encoding, Round::rne, Overflow::nosat);
  for (int64_t i = 0; i < call.problem.x.shape.count(); ++i) {
    const auto value = [&](const char* name) {
      const ConstBuffer& b = call.input(name);
      return value_of(b.plane->encoding, load(b, i));
    };
    const double p = value("p"), g = l2 ? sum_of(op.adam, decay, p, value("x")) : value("x");
    const double m = sum_of(op.adam, beta1, value("m"), narrowed(narrowed(1 - beta1) * g)),
                 v = sum_of(op.adam, beta2, value("v"), narrowed(narrowed(narrowed(1 - beta2) * g) * g));
    const double root = narrowed(std::sqrt(narrowed(narrowed(v / c2) + eps)));
    double u = narrowed(narrowed(m / c1) / root);
    if (!l2) u = sum_of(op.adam, decay, p, u);
    const double result = sum_of(op.adam, -lr, u, p);
    store(next, i, next.plane->encoding == Encoding::f32 ? reference::f32_code(result) : encode(result));
  }
}

constexpr Bug kBugs[] = {
    {"cast_high_byte", "cast", to_e5m2, high_byte},
    {"dequantize_split_nibbles", "dequantize", of_mxfp4, split_nibbles},
    {"dequantize_scales_in_bf16", "dequantize", of_f32_scales, scales_in_bf16},
    {"scale_chain_inverse_from_amax", "scale_chain", divides_for_scales, inverse_from_amax},
    {"update_idle_slots_roll", "update", of_bulk, idle_slots_roll},
    {"adam_eps_in_root", "adam", any_line, eps_in_root},
};

}  // namespace

std::span<const Bug> bugs_of_others() { return kBugs; }

}  // namespace assay::fourth

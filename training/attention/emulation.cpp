#include "training/attention/emulation.h"

#include <stdexcept>
#include <string>

#include "training/base/f32.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"

namespace assay::training {

namespace {

constexpr EmulationStage kStages[] = {
    {"QKV", Mode::forward, true}, {"dQKV", Mode::forward, false}, {"dP", Mode::forward, false},
    {"S", Mode::forward, true},   {"O", Mode::forward, true},     {"dO", Mode::forward, false},
    {"dO", Mode::backward, true}, {"O", Mode::backward, false},   {"S", Mode::backward, false},
    {"dP", Mode::backward, true}, {"dQKV", Mode::backward, true}, {"QKV", Mode::backward, false},
};

// New, with default settings: the state's delayed quantizers of S and dP stay as they are.
QuantizerPtr fresh_current(const QuantizerPtr& q) {
  const Encoding dtype = [&] {
    if (const auto* delayed = dynamic_cast<const Float8Quantizer*>(q.get())) return delayed->dtype;
    return dynamic_cast<const Float8CurrentScalingQuantizer&>(*q).dtype;
  }();
  const auto out = std::make_shared<Float8CurrentScalingQuantizer>(dtype);
  out->set_usage(true, false);
  out->internal = q->internal;
  return out;
}

// (b, h, s, d) back to (s, b, h, d).
ArrayPtr from_bhsd(const ArrayPtr& a) {
  const Dims &m = a->shape, &n = a->strides;
  return contiguous(as_strided(a, {m[2], m[0], m[1], m[3]}, {n[2], n[0], n[1], n[3]}, a->offset));
}

ArrayPtr decoded(Session& session, const StoragePtr& s) {
  if (auto* fp8 = dynamic_cast<Float8Storage*>(s.get())) fp8->data = contiguous(fp8->data);
  return s->dequantize(session);
}

}  // namespace

std::span<const EmulationStage> emulation_stages() { return kStages; }

std::vector<Dims> emulation_shapes(std::string_view tensor, const EmulationShape& n) {
  if (tensor == "QKV" || tensor == "dQKV") {
    const Dims kv = {n.sk, n.b, n.h, n.d};
    return {{n.sq, n.b, n.h, n.d}, kv, kv};
  }
  if (tensor == "S") return {{n.b * n.h, n.sq, n.sk}};
  if (tensor == "dP") return {{n.b, n.h, n.sq, n.sk}};
  if (tensor == "O" || tensor == "dO") return {{n.sq, n.b, n.h * n.d}};
  throw std::logic_error("no step of the emulation is called '" + std::string(tensor) + "'");
}

Emulation::Emulation(const AttentionQuantizers& q) : quantizers_(q) {
  if (attention_kind(q.qkv) != AttentionKind::current) return;
  quantizers_.s = fresh_current(q.s);
  quantizers_.dp = fresh_current(q.dp);
}

const QuantizerPtr& Emulation::quantizer(std::string_view tensor) const {
  return quantizers_.*attention_slot(tensor).member;
}

std::vector<ArrayPtr> Emulation::pass(Session& session, const EmulationStage& stage,
                                      const std::vector<ArrayPtr>& in, const CastLog& log) const {
  const QuantizerPtr& q = quantizer(stage.tensor);
  if (!stage.casts || !q) return in;
  if (in.size() == 1) {
    if (log) log(*q, in[0]->shape);
    return {decoded(session, q->quantize(session, contiguous(in[0])))};
  }
  // MXFP8 packs for a forward kernel, gradients too: V and dV come from their columns.
  const bool mxfp8 = attention_kind(q) == AttentionKind::mxfp8;
  const QuantizedQkv cast =
      quantize_qkv(session, {"sbhd_sbhd_sbhd", in}, q, {.forward = true, .backward = false}, log, mxfp8);
  std::vector<ArrayPtr> out;
  for (const StoragePtr& s : cast.tensors)
    out.push_back(mxfp8 ? from_bhsd(decoded(session, s)) : decoded(session, s));
  return out;
}

StoragePtr Emulation::quantized_output(Session& session, const ArrayPtr& emulated_o) const {
  return quantizers_.o->quantize(session, emulated_o);
}

ArrayPtr sum_repeated_heads(Session& session, const ArrayPtr& gradient, int64_t groups) {
  const Dims m = gradient->shape;
  const int64_t repeats = m[2] / groups;
  if (repeats == 1) return gradient;
  const ArrayPtr apart = view(gradient, {m[0], m[1], groups, repeats, m[3]});
  const auto one = [&](int64_t r) {
    const ArrayPtr part = contiguous(slice(apart, 3, r, r + 1));
    return view(part, {m[0], m[1], groups, m[3]});
  };
  ArrayPtr sum = zeros({m[0], m[1], groups, m[3]}, DType::float32);
  for (int64_t r = 0; r < repeats; ++r) sum = add(session, sum, one(r));
  return cast(session, sum, gradient->dtype);
}

ArrayPtr repeat_heads(const ArrayPtr& x, int64_t h) {
  const Dims m = x->shape, n = x->strides;
  // A dimension of stride 0 shows every head as often as it is asked for.
  return view(
      contiguous(as_strided(x, {m[0], m[1], m[2], h / m[2], m[3]}, {n[0], n[1], n[2], 0, n[3]}, x->offset)),
      {m[0], m[1], h, m[3]});
}

}  // namespace assay::training

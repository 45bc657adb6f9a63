#include "training/attention/fused_flow.h"

#include "training/formats/float8.h"

namespace assay::training {

namespace {

StoragePtr quantized(Session& session, const ArrayPtr& x, const QuantizerPtr& q, const CastLog& log) {
  if (log) log(*q, x->shape);
  return q->quantize(session, x);
}

// A quantized tensor whose bytes may lie among those of others, in its nominal dtype.
ArrayPtr dequantized_alone(Session& session, const StoragePtr& s) {
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get())) {
    Float8Storage alone = *fp8;
    alone.data = contiguous(alone.data);
    return alone.dequantize(session);
  }
  return s->dequantize(session);
}

ArrayPtr in_16_bits(Session& session, const Tensorlike& t) {
  const StoragePtr* s = std::get_if<StoragePtr>(&t);
  return s ? dequantized_alone(session, *s) : std::get<ArrayPtr>(t);
}

// The quantizer of S as backward will use it: delayed scaling's keeps the scale that forward had.
QuantizerPtr saved_copy(const QuantizerPtr& s) {
  const auto* delayed = dynamic_cast<const Float8Quantizer*>(s.get());
  if (!delayed) return s;
  const QuantizerPtr copy = delayed->copy();
  static_cast<Float8Quantizer&>(*copy).scale = clone(delayed->scale);
  return copy;
}

std::array<Tensorlike, 3> as_tensors(const std::array<StoragePtr, 3>& t) { return {t[0], t[1], t[2]}; }
std::array<Tensorlike, 3> as_tensors(const std::array<ArrayPtr, 3>& t) { return {t[0], t[1], t[2]}; }

// What backward will read, of Q, K, V as they came and as they were cast.
SavedAttention saved_of(Session& session, const AttentionInput& in, const QuantizedQkv& cast,
                        const AttentionQuantizers& q, const FusedOptions& o) {
  SavedAttention saved;
  saved.backward_in_fp8 = o.switches.fp8_backward;
  saved.input_was_fp8 = std::holds_alternative<QuantizedQkv>(in);
  saved.quantizers = q;
  saved.quantizers.s = saved_copy(q.s);
  const auto* plain = std::get_if<PlainQkv>(&in);
  saved.plain_layout = plain ? plain->layout : cast.layout;
  if (saved.backward_in_fp8) {
    saved.qkv_fp8 = cast.tensors;
    saved.layout = cast.layout;
    saved.scale_format = cast.scale_format;
    return saved;
  }
  saved.layout = saved.plain_layout;
  if (plain) saved.qkv = split_qkv(*plain);
  else
    for (size_t i = 0; i < saved.qkv.size(); ++i) saved.qkv[i] = dequantized_alone(session, cast.tensors[i]);
  return saved;
}

}  // namespace

FusedForward fused_forward(Session& session, const AttentionInput& in, const AttentionQuantizers& q,
                           const FusedOptions& o, const AttentionKernels& kernels, const CastLog& log) {
  const AttentionKind kind = attention_kind(q.qkv);
  const auto* given = std::get_if<QuantizedQkv>(&in);
  const QuantizedQkv cast =
      given ? *given : quantize_qkv(session, std::get<PlainQkv>(in), q.qkv, {true, o.training}, log);
  const Tensorlike out =
      kernels.forward({cast.tensors, q.s, q.o, cast.layout, o.o_format, cast.scale_format});

  const bool backward_reads_fp8 =
      o.training && o.switches.fp8_backward &&
      (kind == AttentionKind::delayed || (kind == AttentionKind::current && !o.switches.o_in_16_bits));
  StoragePtr fp8;
  ArrayPtr plain;
  if (const StoragePtr* s = std::get_if<StoragePtr>(&out)) {
    fp8 = *s;
    if (!o.fp8_output || (o.training && !backward_reads_fp8)) plain = dequantized_alone(session, fp8);
  } else {
    plain = std::get<ArrayPtr>(out);
    if (o.fp8_output || backward_reads_fp8) fp8 = quantized(session, plain, q.o, log);
  }

  FusedForward result;
  result.out = o.fp8_output ? Tensorlike(fp8) : Tensorlike(plain);
  if (!o.training) return result;
  result.saved = saved_of(session, in, cast, q, o);
  if (backward_reads_fp8) result.saved->o_fp8 = fp8;
  else result.saved->o = plain;
  return result;
}

std::array<Tensorlike, 3> fused_backward(Session& session, const SavedAttention& saved, const Tensorlike& d_o,
                                         const FusedOptions& o, const AttentionKernels& kernels,
                                         const CastLog& log) {
  BackwardCall call;
  call.layout = saved.layout;
  call.dqkv_layout = saved.plain_layout;
  if (!saved.backward_in_fp8) {
    call.qkv = as_tensors(saved.qkv);
    call.o = saved.o;
    call.d_o = in_16_bits(session, d_o);
    return kernels.backward(call);
  }
  const AttentionQuantizers& q = saved.quantizers;
  const bool mxfp8 = attention_kind(q.qkv) == AttentionKind::mxfp8;
  call.qkv = as_tensors(saved.qkv_fp8);
  call.o = saved.o_fp8 ? Tensorlike(saved.o_fp8) : Tensorlike(saved.o);
  call.s = q.s, call.dp = q.dp, call.dqkv = q.dqkv;
  call.scale_format = saved.scale_format;
  if (std::holds_alternative<StoragePtr>(d_o)) {
    call.d_o = d_o;
  } else if (mxfp8) {
    call.d_o_in_16_bits = std::get<ArrayPtr>(d_o);
    call.d_o = quantize_mxfp8_in_place(session, call.d_o_in_16_bits, o.o_format, q.do_, log);
    call.do_scale_format = saved.scale_format;
  } else {
    call.d_o = quantized(session, std::get<ArrayPtr>(d_o), q.do_, log);
  }
  std::array<Tensorlike, 3> out = kernels.backward(call);
  const bool keep_fp8 = saved.input_was_fp8 && !o.gradient_in_16_bits;
  if (!keep_fp8) {
    for (Tensorlike& t : out) t = in_16_bits(session, t);
  } else if (std::holds_alternative<ArrayPtr>(out[0])) {
    // The gradients go back as Q, K and V came: cast together, with one scale.
    const auto tensor = [&](size_t i) { return std::get<ArrayPtr>(out[i]); };
    const PlainQkv plain{saved.plain_layout, pack_qkv(saved.plain_layout, {tensor(0), tensor(1), tensor(2)})};
    out = as_tensors(quantize_qkv(session, plain, q.dqkv, {true, true}, log).tensors);
  }
  return out;
}

}  // namespace assay::training

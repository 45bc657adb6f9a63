// The fused attention function around its two kernels: who casts what when, what is saved for backward, and
// what backward hands back (TE attention/dot_product_attention/backends.py). The kernels are the caller's; no
// product is computed here.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "training/attention/packing.h"
#include "training/attention/slots.h"
#include "training/attention/switches.h"
#include "training/formats/matmul.h"

namespace assay::training {

// What each kernel call is handed. Quantizers are null where the call is in 16 bits, those of S and dP also
// under MXFP8.
struct ForwardCall {
  std::array<StoragePtr, 3> qkv;
  QuantizerPtr s, o;
  std::string layout, o_format;             // "bshd"
  std::optional<std::string> scale_format;  // "bhsd" of MXFP8
};
struct BackwardCall {
  std::array<Tensorlike, 3> qkv;
  Tensorlike o, d_o;
  ArrayPtr d_o_in_16_bits;  // of MXFP8, one more auxiliary tensor; else null
  QuantizerPtr s, dp, dqkv;
  std::string layout, dqkv_layout;
  std::optional<std::string> scale_format, do_scale_format;
};
// Forward gives O: quantized by its quantizer for delayed scaling, in 16 bits for the others. Backward gives
// dQ, dK and dV: quantized for delayed scaling, in 16 bits for the others and for a call in 16 bits.
struct AttentionKernels {
  std::function<Tensorlike(const ForwardCall&)> forward;
  std::function<std::array<Tensorlike, 3>(const BackwardCall&)> backward;
};

struct FusedOptions {
  bool training = true;
  bool fp8_output = false;           // the caller wants O quantized
  bool gradient_in_16_bits = false;  // and dQ, dK, dV not, although Q, K, V came quantized
  std::string o_format = "bshd";
  AttentionSwitches switches;  // fp8_backward and o_in_16_bits
};

// Q, K, V as they come: plain, or quantized by the layer before, with their layout.
using AttentionInput = std::variant<PlainQkv, QuantizedQkv>;

struct SavedAttention {
  std::array<StoragePtr, 3> qkv_fp8;  // and o_fp8: null where backward runs in 16 bits
  StoragePtr o_fp8;                   // null too where backward reads O in 16 bits
  std::array<ArrayPtr, 3> qkv;        // where backward runs in 16 bits
  ArrayPtr o;
  bool backward_in_fp8 = false, input_was_fp8 = false;
  std::string layout, plain_layout;  // of the tensors that backward reads; of the caller's Q, K, V
  std::optional<std::string> scale_format;
  // S's is a copy with a scale of its own, so that an update of the amaxes between forward and backward does
  // not change how backward reads S; the others are the module's.
  AttentionQuantizers quantizers;
};
struct FusedForward {
  Tensorlike out;
  std::optional<SavedAttention> saved;  // of training
};

FusedForward fused_forward(Session&, const AttentionInput&, const AttentionQuantizers&, const FusedOptions&,
                           const AttentionKernels&, const CastLog& = {});
// dQ, dK, dV: quantized where Q, K, V were and backward ran in FP8, unless 16 bits were asked for. `d_o` is
// plain or quantized; its dimensions are the o_format of forward.
std::array<Tensorlike, 3> fused_backward(Session&, const SavedAttention&, const Tensorlike& d_o,
                                         const FusedOptions&, const AttentionKernels&, const CastLog& = {});

}  // namespace assay::training

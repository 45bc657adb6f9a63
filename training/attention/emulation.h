// The casts of emulated FP8 attention: the unfused core with a quantize-dequantize step at each of its six
// tensors, forward and backward (TE attention/dot_product_attention/backends.py, FP8EmulationFunc). Products
// and the softmax lie between the steps and are not computed here: a step is a function of its input and of
// its quantizer.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "training/attention/packing.h"
#include "training/attention/slots.h"

namespace assay::training {

// One step as it is passed in a direction. Every step is passed in both, and casts in one.
struct EmulationStage {
  std::string_view tensor;  // of attention_slots()
  Mode direction;
  bool casts;
};
// In the order of execution: six forward, six backward.
std::span<const EmulationStage> emulation_stages();

struct EmulationShape {
  int64_t b = 1, h = 1, sq = 1, sk = 1, d = 1;  // h: heads of Q; K and V are repeated to as many before
};
// The tensors that pass a step: Q, K and V, and their gradients, as (s, b, h, d); S as (b h, sq, sk), dP as
// (b, h, sq, sk); O and dO as (sq, b, h d). std::logic_error of another tensor.
std::vector<Dims> emulation_shapes(std::string_view tensor, const EmulationShape&);

class Emulation {
 public:
  // Under current scaling S and dP are cast by new quantizers of the same FP8 types with default settings,
  // not by those of the state; under MXFP8 not at all.
  explicit Emulation(const AttentionQuantizers&);

  // The quantizer of a step; null where the step never casts.
  const QuantizerPtr& quantizer(std::string_view tensor) const;
  // Quantized and dequantized to the nominal dtype: the three tensors of QKV and dQKV together, one tensor of
  // the others. A step that does not cast in this direction gives back what it got. MXFP8 needs what
  // quantize_qkv needs.
  std::vector<ArrayPtr> pass(Session&, const EmulationStage&, const std::vector<ArrayPtr>&,
                             const CastLog& = {}) const;
  // What the core returns where its caller wants O quantized: the result of step O, quantized a second time.
  StoragePtr quantized_output(Session&, const ArrayPtr& emulated_o) const;

 private:
  AttentionQuantizers quantizers_;
};

// Gradients of K or V (s, b, h, d) as those of `groups` heads (s, b, groups, d): sums over repeated heads,
// ascending from +0, in binary32, rounded once to the dtype. After the dQKV cast.
ArrayPtr sum_repeated_heads(Session&, const ArrayPtr& gradient, int64_t groups);
// The reverse, before the QKV cast: heads of (s, b, groups, d) repeated to h.
ArrayPtr repeat_heads(const ArrayPtr& x, int64_t h);

}  // namespace assay::training

// Attention's core between its projections: their buffers as the core takes them, one forward of it and its
// backward, and a core that runs again in backward (TE attention/multi_head_attention.py, distributed.py).
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/attention/core_kernels.h"
#include "training/recipes/delayed.h"
#include "training/state/checkpoint.h"

namespace assay::training {

// What a projection wrote, [rows, columns], in the dimensions of its part of a layout, and back.
Tensorlike in_dimensions(const Tensorlike&, const Dims&);
// The buffers of all projections, plain or in per-tensor FP8, as the layout packs them. Tensors of one buffer
// share its scale.
AttentionInput attention_input(const std::string& layout, const std::vector<Tensorlike>& buffers);
// dQ, dK and dV packed as Q, K and V came, each buffer as [rows, columns]: the gradients of the projections'
// outputs. Those in FP8 must be views of one cast, as the fused path hands them over.
std::vector<Tensorlike> packed_gradients(const std::string& layout, const std::array<Tensorlike, 3>&);

// The pieces of a call. No quantizers: the core runs in 16 bits.
struct CoreCall {
  CoreSettings sizes;
  AttentionInput in;
  std::optional<AttentionQuantizers> quantizers;
  FusedOptions options;
  std::vector<GemmRecord>* record = nullptr;  // outlives the run
  // Where set, the core is a region that is recomputed: its first forward keeps the input alone, and its
  // second one finds `delayed`, the forward state of the core, as the first one did. Both outlive the run.
  RecomputePhase* phase = nullptr;
  RecomputeStash* stash = nullptr;
  DelayedStatePtr delayed = nullptr;  // null: no delayed scaling
};

class CoreRun {
 public:
  explicit CoreRun(CoreCall call) : call_(std::move(call)) {}
  // (s, b, h, d): quantized where the options ask for it. Once.
  Tensorlike forward(Session&);
  // `d_o` (s, b, h, d), plain or quantized. Once, after forward; the session must be the same.
  std::array<Tensorlike, 3> backward(Session&, const Tensorlike& d_o);

 private:
  Tensorlike attend(Session&);
  std::array<Tensorlike, 3> differentiate(Session&, const Tensorlike& d_o);
  RegionResult region(Session&, const RegionView&);

  CoreCall call_;
  std::optional<SavedAttention> saved_;
  std::unique_ptr<Checkpoint> region_;
  // What goes into a region and comes out of it beside its own plain tensors, because it may be quantized.
  Tensorlike o_, d_o_;
  std::array<Tensorlike, 3> gradients_;
};

}  // namespace assay::training

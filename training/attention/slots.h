// The six quantizers that attention's core reads, of the fifteen that a module holds for it: one from a slot
// of each group, named by three GEMMs (TE FP8FwdTensors and FP8BwdTensors, attention/dot_product_attention).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "training/formats/quantizer.h"
#include "training/recipes/role.h"

namespace assay::training {

// The quantizers that the core reads. Borrowed from the module's state.
struct AttentionQuantizers {
  QuantizerPtr qkv, o, s, dqkv, do_, dp;  // s and dp are null where QKV is MXFP8
};

struct AttentionSlot {
  std::string_view tensor;  // "QKV", "O", "S", "dQKV", "dO", "dP" (the gradient of the logits)
  QuantizerPtr AttentionQuantizers::*member;
  Mode mode;
  size_t slot;  // in the module's list of that direction
  bool inner;   // S and dP never leave the core
};
// In the order in which their types are checked.
std::span<const AttentionSlot> attention_slots();
const AttentionSlot& attention_slot(std::string_view tensor);  // std::logic_error of another name

// What the core can work with.
enum class AttentionKind : uint8_t { none, delayed, current, mxfp8 };
AttentionKind attention_kind(const QuantizerPtr&);  // none of null and of every other class

// The six quantizers, with the usages that the core wants set on them: rows, and columns too where QKV is
// MXFP8; S and dP internal. Under MXFP8 S and dP are dropped, whatever they are. `module` is for errors:
//   RuntimeError    the lists are empty: nothing was built
//   IndexError      a list is too short for a slot
//   AttributeError  a slot is null, those of S and dP under MXFP8 included
//   TypeError       the first slot that is neither per-tensor FP8 (delayed or current) nor MXFP8: the core
//   has
//                   no kernel for hybrid, identity, block or NVFP4 tensors. Mixtures of the three pass.
// Settings of slots that come before the one in error stay changed, as in the original.
AttentionQuantizers attention_quantizers(const std::vector<QuantizerPtr>& forward,
                                         const std::vector<QuantizerPtr>& backward, std::string_view module);
// Throws as above for a quantizer that attention_kind calls none.
[[noreturn]] void refuse_attention_slot(const AttentionSlot&, const QuantizerPtr&, std::string_view module);

}  // namespace assay::training

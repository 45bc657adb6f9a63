#include "training/attention/slots.h"

#include <stdexcept>
#include <string>

#include "training/base/errors.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"

namespace assay::training {

namespace {

using std::string;

constexpr AttentionSlot kSlots[] = {
    {"QKV", &AttentionQuantizers::qkv, Mode::forward, 2, false},
    {"O", &AttentionQuantizers::o, Mode::forward, 3, false},
    {"S", &AttentionQuantizers::s, Mode::forward, 8, true},
    {"dQKV", &AttentionQuantizers::dqkv, Mode::backward, 0, false},
    {"dO", &AttentionQuantizers::do_, Mode::backward, 3, false},
    {"dP", &AttentionQuantizers::dp, Mode::backward, 5, true},
};
// The order in which the original reads them and sets their usages.
constexpr std::string_view kReadOrder[] = {"QKV", "S", "O", "dO", "dP", "dQKV"};

string called(std::string_view module) { return "attention '" + string(module) + "': "; }

const QuantizerPtr& read(const AttentionSlot& slot, const std::vector<QuantizerPtr>& list,
                         std::string_view module) {
  const string place = string(slot.mode == Mode::forward ? "forward" : "backward") + " list";
  if (list.empty())
    throw SemanticError(ErrorClass::runtime_error,
                        called(module) + "expected a quantizer in slot " + string(slot.tensor) +
                            ", found none: run init_fp8_metadata with a recipe that makes one");
  if (slot.slot >= list.size())
    throw SemanticError(ErrorClass::index_error,
                        called(module) + "expected a quantizer at " + std::to_string(slot.slot) + " of the " +
                            place + ", found a list of " + std::to_string(list.size()) +
                            ": the state was rebuilt for its last group alone; make the module anew");
  if (!list[slot.slot])
    throw SemanticError(ErrorClass::attribute_error,
                        called(module) + "expected a quantizer at " + std::to_string(slot.slot) + " of the " +
                            place + ", found none: let the factory return one for its role");
  return list[slot.slot];
}

}  // namespace

std::span<const AttentionSlot> attention_slots() { return kSlots; }

const AttentionSlot& attention_slot(std::string_view tensor) {
  for (const AttentionSlot& slot : kSlots)
    if (slot.tensor == tensor) return slot;
  throw std::logic_error("no tensor of attention is called '" + string(tensor) + "'");
}

AttentionKind attention_kind(const QuantizerPtr& q) {
  if (dynamic_cast<const Float8Quantizer*>(q.get())) return AttentionKind::delayed;
  if (dynamic_cast<const Float8CurrentScalingQuantizer*>(q.get())) return AttentionKind::current;
  if (dynamic_cast<const MXFP8Quantizer*>(q.get())) return AttentionKind::mxfp8;
  return AttentionKind::none;
}

void refuse_attention_slot(const AttentionSlot& slot, const QuantizerPtr& q, std::string_view module) {
  if (!q) read(slot, {}, module);
  throw SemanticError(ErrorClass::type_error,
                      called(module) +
                          "expected an FP8-compatible quantizer (Float8Quantizer, "
                          "Float8CurrentScalingQuantizer or MXFP8Quantizer) in slot " +
                          string(slot.tensor) + ", found " + string(q->class_name()) +
                          ": return one of them from the factory for every role of the core, that is QKV, O, "
                          "S, dQKV, the gradient of O, and dP");
}

AttentionQuantizers attention_quantizers(const std::vector<QuantizerPtr>& forward,
                                         const std::vector<QuantizerPtr>& backward, std::string_view module) {
  AttentionQuantizers found;
  for (const std::string_view tensor : kReadOrder) {
    const AttentionSlot& slot = attention_slot(tensor);
    const QuantizerPtr& q = read(slot, slot.mode == Mode::forward ? forward : backward, module);
    q->internal = slot.inner;
    q->set_usage(true, false);
    found.*slot.member = q;
  }
  if (attention_kind(found.qkv) == AttentionKind::mxfp8) {
    // MXFP8 operands are read along both of their dimensions. The kernel keeps S and dP in higher precision.
    for (const QuantizerPtr& q : {found.qkv, found.o, found.do_, found.dqkv}) q->set_usage(true, true);
    found.qkv->optimize_for_gemm = found.do_->optimize_for_gemm = true;
    found.s = found.dp = nullptr;
  }
  for (const AttentionSlot& slot : kSlots)
    if (const QuantizerPtr& q = found.*slot.member; q && attention_kind(q) == AttentionKind::none)
      refuse_attention_slot(slot, q, module);
  return found;
}

}  // namespace assay::training

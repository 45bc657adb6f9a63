// The fourth set: attention.
#include <algorithm>
#include <string_view>
#include <vector>

#include "contract/attention.h"
#include "tests/self/hunt/fourth_bugs.h"

namespace assay::fourth {

namespace {

// huggingface/transformers#39408, zml/zml#763: a model counts the query's own key among the keys of its
// window, and the kernel's left size does not. The size was passed on as it is, so that a query sees one key
// more before it.
void window_left(const Call& call) {
  Problem wider = call.problem;
  int64_t& left = wider.as<Attention>()->window_left;
  if (left >= 0) ++left;
  call.right_for(wider);
}

// Keys before the query's own by which the padded sizes differ.
int64_t padded_shift(const Problem& p) {
  const AttentionSizes n = attention_sizes(p);
  return n.kv - n.q;
}

// A mask of the bottom right corner over padded sizes can be written as a window of a line without a mask.
bool takes_padded_corner(const Problem& p) {
  const Attention& a = *p.as<Attention>();
  if (a.mask != AttentionMask::causal_bottom_right || a.lengths.empty()) return true;
  const int64_t shift = padded_shift(p);
  return shift >= 0 && (a.window_left < 0 || a.window_left >= shift);
}

// onnx/onnx#8068: the corner to which a causal mask is aligned is that of the padded sequences. Each sequence
// has a corner of its own, where its own tokens end.
void padded_corner(const Call& call) {
  Problem aligned = call.problem;
  Attention& a = *aligned.as<Attention>();
  if (a.mask == AttentionMask::causal_bottom_right && !a.lengths.empty()) {
    const int64_t shift = padded_shift(aligned);
    a.mask = AttentionMask::none;
    a.window_right = shift;
    if (a.window_left >= 0) a.window_left -= shift;
  }
  call.right_for(aligned);
}

// Where the head of a query stands if heads that read the same keys by `head % kv_heads` are made neighbours.
int64_t regrouped(int64_t head, const AttentionSizes& n) {
  return head % n.kv_heads * n.repeats() + head / n.kv_heads;
}

// Copies heads of `size` bytes, of which each of `groups` groups has all: head h goes to regrouped(h), or
// back.
void move_heads(std::span<const std::byte> from, std::span<std::byte> to, int64_t groups,
                const AttentionSizes& n, bool back) {
  const size_t size = from.size() / static_cast<size_t>(std::max<int64_t>(groups * n.heads, 1));
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t h = 0; h < n.heads; ++h) {
      const size_t own = static_cast<size_t>(g * n.heads + h) * size,
                   moved = static_cast<size_t>(g * n.heads + regrouped(h, n)) * size;
      const auto start = from.begin() + static_cast<std::ptrdiff_t>(back ? moved : own);
      std::copy_n(start, size, to.begin() + static_cast<std::ptrdiff_t>(back ? own : moved));
    }
}

// A forward pass without casts in blocks.
bool takes_tiled_heads(const Problem& p) {
  const Attention& a = *p.as<Attention>();
  return !a.backward && !info(a.slot(AttentionSlot::qkv).format).has_blocks() &&
         !info(a.slot(AttentionSlot::s).format).has_blocks() &&
         !info(a.slot(AttentionSlot::o).format).has_blocks();
}

// onnx/onnx#7274, apple/axlearn#842: the heads of K and V are tiled over the heads of Q, where each should be
// repeated for its group: head h of Q reads head h modulo kv_heads.
void tiled_heads(const Call& call) {
  const AttentionSizes n = attention_sizes(call.problem);
  call.right();
  if (n.repeats() == 1 || n.kv_heads == 1 || !find(call.inputs, "q")) return;
  Rerun rerun(call.problem, call);
  const int64_t tokens = call.problem.x.shape.rows;
  move_heads(call.input("q").bytes, rerun.input("q").bytes, tokens, n, false);
  if (rerun.has_input("bias")) move_heads(call.input("bias").bytes, rerun.input("bias").bytes, 1, n, false);
  if (rerun.has_input("keep"))
    move_heads(call.input("keep").bytes, rerun.input("keep").bytes, n.batch, n, false);
  rerun.run();
  for (const Buffer& b : call.outputs) {
    const std::string_view name = b.plane->name;
    if (name.starts_with("qkv.")) continue;
    const bool of_logits =
        b.plane->logical.rows == n.rows() && (name == "p" || name == "s" || name.starts_with("s."));
    const bool of_result =
        b.plane->logical.cols == n.heads * n.depth && (name == "o" || name == "o.data" || name == "out");
    if (of_logits) move_heads(rerun.output(name).bytes, b.bytes, n.batch, n, true);
    else if (of_result) move_heads(rerun.output(name).bytes, b.bytes, b.plane->logical.rows, n, true);
    else rerun.give(name, call);
  }
}

// pytorch/pytorch#190717: the backward pass draws the mask of the dropout again, from a state of the
// generator that the forward pass has moved on: by one step of Philox, which is four numbers.
void dropout_redrawn(const Call& call) {
  call.right();
  const Attention& a = *call.problem.as<Attention>();
  if (!a.backward || a.dropout == 0) return;
  Rerun rerun(call.problem, call);
  const std::span<std::byte> keep = rerun.input("keep").bytes;
  if (keep.size() > 4) std::rotate(keep.begin(), keep.begin() + 4, keep.end());
  rerun.run();
  bool backward = false;
  for (const Buffer& b : call.outputs) {
    if (backward) rerun.give(b.plane->name, call);
    backward = backward || b.plane->name == "out";
  }
}

constexpr Bug kBugs[] = {
    {"attention_window_left", "attention", any_line, window_left},
    {"attention_padded_corner", "attention", takes_padded_corner, padded_corner},
    {"attention_tiled_heads", "attention", takes_tiled_heads, tiled_heads},
    {"attention_dropout_redrawn", "attention", any_line, dropout_redrawn},
};

}  // namespace

std::span<const Bug> bugs_of_attention() { return kBugs; }

}  // namespace assay::fourth

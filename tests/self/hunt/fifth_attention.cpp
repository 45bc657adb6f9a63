// The fifth set: attention.
#include <algorithm>
#include <string>
#include <vector>

#include "contract/attention.h"
#include "reference/tensor.h"
#include "tests/self/hunt/fifth_bugs.h"

namespace assay::fifth {

namespace {

using reference::load;
using reference::store;

const Attention& attention_of(const Problem& p) { return *p.as<Attention>(); }

bool of_own_planes(const Problem& p) {
  const Attention& a = attention_of(p);
  return !a.backward && a.codes == AttentionCodes::none && part_of(a.layout, AttentionTensor::k).tensors == 1;
}

// FlashML-org/FreeToken#177, vllm-project/vllm#40792 (review): a tile is 4 heads of Q and reads the head of K
// and V of its first one. Where more than 4 share a head, and not a multiple of 4, some tiles reach into the
// next group.
void tiles_cross_groups(const Call& call) {
  const AttentionSizes n = attention_sizes(call.problem);
  call.right();
  if (n.repeats() <= 4 || n.repeats() % 4 == 0 || n.kv_heads == 1) return;
  Problem spread = call.problem;
  spread.as<Attention>()->kv_heads = n.heads;
  Rerun rerun(spread, call);
  for (const std::string name : {"k", "v"}) {
    const ConstBuffer& from = call.input(name);
    const Buffer to = rerun.input(name);
    const int64_t rows = from.plane->logical.rows;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t h = 0; h < n.heads; ++h)
        for (int64_t e = 0; e < n.depth; ++e) {
          const int64_t read = h / 4 * 4 / n.repeats();
          store(to, (row * n.heads + h) * n.depth + e, load(from, (row * n.kv_heads + read) * n.depth + e));
        }
  }
  rerun.run();
  for (const Buffer& b : call.outputs) {
    const std::string& name = b.plane->name;  // the casts of Q, K and V are right
    if (name == "p" || name == "s" || name == "o" || name == "out" || name.starts_with("s.") ||
        name.starts_with("o."))
      rerun.give(name, call);
  }
}

bool of_plain_softmax(const Problem& p) {
  const Attention& a = attention_of(p);
  return !a.backward && a.sums == AttentionSums::ascending &&
         a.slot(AttentionSlot::s).format == FormatId::identity &&
         a.slot(AttentionSlot::o).format == FormatId::identity;
}

bool sees_any(const Problem& p, int64_t b, int64_t i) {
  const Attention& a = attention_of(p);
  const int64_t queries = q_length(p, b), keys = kv_length(p, b);
  const int64_t own = i + (a.mask == AttentionMask::causal_bottom_right ? keys - queries : 0);
  int64_t first = 0, last = keys - 1;
  if (a.mask != AttentionMask::none) last = std::min(last, own);
  if (a.window_left >= 0) first = std::max(first, own - a.window_left);
  if (a.window_right >= 0) last = std::min(last, own + a.window_right);
  return first <= last;
}

constexpr uint32_t kNaN16 = 0x7FFF;

// tracel-ai/burn#4697, ml-explore/mlx#2608: masked logits are -infinity, so a query that sees no key has
// -infinity less -infinity in its softmax.
void hidden_rows_are_nan(const Call& call) {
  call.right();
  const Problem& p = call.problem;
  const AttentionSizes n = attention_sizes(p);
  const TokenOrder order = token_order(attention_of(p).layout);
  int64_t start = 0;  // where sequence b begins in a layout without padding
  for (int64_t b = 0; b < n.batch; start += q_length(p, b++))
    for (int64_t i = 0; i < q_length(p, b); ++i) {
      if (sees_any(p, b, i)) continue;
      for (int64_t h = 0; h < n.heads; ++h)
        for (int64_t j = 0; j < n.kv; ++j)
          store(call.output("s"), ((b * n.heads + h) * n.q + i) * n.kv + j, kNaN16);
      const int64_t width = n.heads * n.depth;
      const int64_t row = order == TokenOrder::sequence_first ? i * n.batch + b
                          : order == TokenOrder::batch_first  ? b * n.q + i
                                                              : start + i;
      for (int64_t c = 0; c < width; ++c) {
        store(call.output("o"), (i * n.batch + b) * width + c, kNaN16);
        store(call.output("out"), row * width + c, kNaN16);
      }
    }
}

bool of_padded_layouts(const Problem& p) { return token_order(attention_of(p).layout) != TokenOrder::ragged; }

// vllm-project/vllm-omni#3525, vllm-project/vllm-omni#5865: the lengths of the key sequences are made from
// those of the query sequences, as in attention of a sequence to itself.
void lengths_of_queries(const Call& call) {
  Problem same = call.problem;
  Attention& a = *same.as<Attention>();
  if (a.lengths.empty()) return call.right();
  const int64_t kv = attention_sizes(call.problem).kv;
  for (size_t b = 0; b < a.lengths.size(); ++b) a.kv_lengths[b] = std::min(a.lengths[b], kv);
  call.right_for(same);
}

constexpr Bug kAttention[] = {
    {"attention_tiles_cross_groups", "attention", of_own_planes, tiles_cross_groups},
    {"attention_hidden_rows_nan", "attention", of_plain_softmax, hidden_rows_are_nan},
    {"attention_lengths_of_queries", "attention", of_padded_layouts, lengths_of_queries},
};

}  // namespace

std::span<const Bug> bugs_of_attention() { return kAttention; }

}  // namespace assay::fifth

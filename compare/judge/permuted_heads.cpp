#include "compare/judge/permuted_heads.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "contract/attention.h"

namespace assay {

namespace {

// Elements of a plane are [outer][heads][inner].
struct Heads {
  int64_t outer, heads, inner;
};

// The tensors of a line in its layout.
std::optional<Heads> in_layout(const Problem& p, const AttentionSizes& n, std::string_view name,
                               int64_t rows) {
  for (const AttentionTensor t : {AttentionTensor::q, AttentionTensor::k, AttentionTensor::v}) {
    const AttentionPart held = part_of(p.as<Attention>()->layout, t);
    if (held.plane != name) continue;
    const int64_t heads = t == AttentionTensor::q ? n.heads : n.kv_heads;
    return held.within_heads ? Heads{rows, heads, held.tensors * n.depth}
                             : Heads{rows * held.tensors, heads, n.depth};
  }
  return {};
}

std::optional<Heads> heads_of(const Problem& p, const Plane& plane) {
  const AttentionSizes n = attention_sizes(p);
  const std::string_view name = plane.name;
  const int64_t rows = plane.logical.rows;
  if (const auto found = in_layout(p, n, name.starts_with("grad.") ? name.substr(5) : name, rows))
    return found;
  if (name == "o" || name == "out" || name == "do") return Heads{rows, n.heads, n.depth};
  if (name == "p" || name == "s" || name == "ds" || name == "dp" || name == "keep" || name == "s.data" ||
      name == "dp.data")
    return Heads{n.batch, n.heads, n.q * n.kv};
  if (name == "dq") return Heads{n.batch, n.heads, n.q * n.depth};
  if (name == "dk" || name == "dv") return Heads{n.batch, n.heads, n.kv * n.depth};
  if (name == "bias") return Heads{1, n.heads, n.q * n.kv};
  if (name.ends_with(".descale")) return Heads{n.batch, n.kv_heads, 1};
  return {};
}

}  // namespace

std::vector<PlaneData> with_moved_heads(const Problem& p, const std::vector<PlaneData>& planes) {
  const AttentionSizes n = attention_sizes(p);
  std::vector<PlaneData> out;
  for (const PlaneData& data : planes) {
    const auto found = heads_of(p, data.plane);
    const bool alone = data.plane.padded == Shape{1, 1} || data.plane.name.starts_with("cu_seqlens");
    if (!found) {
      if (alone) out.push_back(data);
      continue;
    }
    PlaneData moved = data;
    const int64_t by = found->heads == n.kv_heads ? 1 : n.repeats();
    const int64_t width = found->inner * info(data.plane.encoding).bytes();
    for (int64_t o = 0; o < found->outer; ++o)
      for (int64_t h = 0; h < found->heads; ++h)
        std::copy_n(data.bytes.begin() + (o * found->heads + h) * width, width,
                    moved.bytes.begin() + (o * found->heads + (h + by) % found->heads) * width);
    out.push_back(std::move(moved));
  }
  return out;
}

}  // namespace assay

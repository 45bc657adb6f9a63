// Attention by emulation E (N20) in the judge's own doubles: with a step done wrongly on purpose, for
// `assay explain`, or beside planes of a kernel whose bits are not pinned, with how far each element may be
// (N20.18). Casts are the reference's: they are quantizes of their own, and no part of the core.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// What is done otherwise than N20 says. Nothing set: E itself.
struct AttentionChange {
  // N20.3: the cast of S.
  bool s_not_descaled = false;  // the products take its codes
  bool s_not_scaled = false;    // it is cast as if its scale were 1, and descaled all the same
  enum class Normalised : uint8_t {
    before_cast,
    after_product,         // e_j is cast, and O divided by Z
    after_product_rounded  // likewise, with e_j rounded to n first
  } normalised = Normalised::before_cast;
  int mask_shift = 0;   // keys that a causal mask or a window shows beyond the last one (N20.6)
  int scale_times = 1;  // how often the softmax scale multiplies (N20.4)
  std::vector<int64_t> kv_head_of = {};  // which head of K and V each head of Q reads; empty: its own (N20.1)
  // The probabilities of a query that sees no key (N20.6).
  enum class Unseeing : uint8_t { equal, zero, nan } unseeing = Unseeing::equal;
  // Whose descale V takes (N20.17).
  enum class Descale : uint8_t {
    own,
    next_head,
    reversed_heads,
    heads_first,  // the plane is read as [head, sequence]
    first_head,
    first,  // of the first sequence and head
    of_k,
    of_q
  } v_descale = Descale::own;
  bool do_by_o = false;  // dO is cast by O's scale
  enum class LogitGradient : uint8_t {
    dp,
    ds,        // dS stands for it
    ds_masked  // likewise, with zeros at masked keys
  } logit_gradient = LogitGradient::dp;
  // The head of K and V that head h of Q reads, of which `repeats` share one.
  int64_t kv_head(int64_t h, int64_t repeats) const {
    return kv_head_of.empty() ? h / repeats : kv_head_of[static_cast<size_t>(h)];
  }
  bool operator==(const AttentionChange&) const = default;
};

// What a line gives on these inputs: the reference. Nothing where it does not run.
using RunLine =
    std::function<std::optional<std::vector<PlaneData>>(const Problem&, const std::vector<PlaneData>&)>;

// The output planes of an attention, in the order of output_planes. With `observed`, planes of a kernel that
// sums in its own order, the core goes on from what is observed, and elements inside the bound of N20.18 are
// the observed ones: what differs then lies outside. Nothing where a cast does not run, or an input is
// lacking.
std::optional<std::vector<PlaneData>> attention_planes(const Problem&, const std::vector<PlaneData>& inputs,
                                                       const AttentionChange&, const RunLine&,
                                                       const std::vector<PlaneData>* observed = nullptr);

}  // namespace assay

#include "compare/debug/shrink_steps.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/debug/shrink_crop.h"
#include "contract/attention.h"
#include "contract/line.h"
#include "fixtures/fill.h"

namespace assay::shrinking {

// ---- the line ---------------------------------------------------------------------------------------------

namespace {

// The line without its member `m`.
State without_member(const State& state, size_t m) {
  State out = state;
  Split& op = *out.problem.as<Split>();
  const Shape gone = op.members[m];
  op.members.erase(op.members.begin() + static_cast<std::ptrdiff_t>(m));
  Shape& x = out.problem.x.shape;
  op.capacity -= gone.count();
  if (op.vary == Vary::both) x.cols -= gone.count();
  else if (op.vary == Vary::last) x.cols -= gone.cols;
  else x.rows -= gone.rows;
  if (m == 0) out.problem.x.fill.at_row += gone.rows;
  return out;
}

}  // namespace

void drop_members(Trials& trials, State& state) {
  const Split* split = state.problem.as<Split>();
  const FillKind kind = state.problem.x.fill.kind;
  if (!split || kind == FillKind::literal || kind == FillKind::pack) return;
  for (const Problem& member : member_problems(state.problem))
    if (trials.keep(state, State{member, false, {}, {}})) return;
  for (size_t m = split->members.size(); m-- > 0;) {
    if (state.problem.as<Split>()->members.size() < 2) return;
    trials.keep(state, without_member(state, m));
  }
}

void drop_direction(Trials& trials, State& state) {
  const bool quantizes = state.problem.as<Quantize>() || state.problem.as<Split>();
  if (!quantizes || !state.problem.row || !state.problem.col) return;
  for (Direction d : kDirections) {
    State candidate = state;
    candidate.problem.quantizer(d).reset();
    if (trials.keep(state, candidate)) return;
  }
}

void drop_epilogue(Trials& trials, State& state) {
  if (!state.problem.as<Gemm>()) return;
  const Gemm plain;
  const std::initializer_list<std::function<void(Gemm&)>> drops = {[](Gemm& g) { g.bias.reset(); },
                                                                   [&](Gemm& g) { g.beta = plain.beta; },
                                                                   [&](Gemm& g) { g.alpha = plain.alpha; }};
  for (const auto& drop : drops) {
    State candidate = state;
    drop(*candidate.problem.as<Gemm>());
    if (!(candidate.problem == state.problem)) trials.keep(state, candidate);
  }
}

namespace {

// An attention's line with one thing less in it: fewer sequences, heads or keys, no gradients, no mask.
using Drop = std::function<void(Problem&, Attention&)>;
const std::initializer_list<Drop> kAttentionDrops = {
    [](Problem&, Attention& a) { a.backward = false; },
    [](Problem& p, Attention& a) {  // one sequence
      p.x.shape.rows = attention_sizes(p).q;
      a.batch = 1, a.lengths.clear(), a.kv_lengths.clear();
      if (token_order(a.layout) == TokenOrder::ragged) a.layout = AttentionLayout::bshd;
    },
    [](Problem& p, Attention& a) {  // one head
      p.x.shape.cols /= a.heads;
      a.heads = a.kv_heads = 1;
    },
    [](Problem&, Attention& a) { a.kv_heads = a.heads; },
    [](Problem&, Attention& a) { a.layout = AttentionLayout::bshd; },
    [](Problem&, Attention& a) { a.lengths.clear(), a.kv_lengths.clear(); },
    [](Problem&, Attention& a) { a.mask = AttentionMask::none; },
    [](Problem&, Attention& a) { a.window_left = a.window_right = -1; },
    [](Problem&, Attention& a) { a.bias = AttentionBias::none; },
    [](Problem&, Attention& a) { a.dropout = 0; },
    [](Problem&, Attention& a) { a.softmax_scale.reset(); },
};

// Half of the keys, or of the queries, as long as it fails.
void halve_tokens(Trials& trials, State& state) {
  for (const bool keys : {true, false})
    for (bool kept = true; kept && !trials.spent();) {
      State candidate = state;
      Attention& a = *candidate.problem.as<Attention>();
      int64_t& tokens = keys ? a.kv : candidate.problem.x.shape.rows;
      if (tokens <= 1 || !a.lengths.empty() || a.batch != 1) return;
      tokens = (tokens + 1) / 2;
      kept = trials.keep(state, candidate);
    }
}

}  // namespace

void drop_attention(Trials& trials, State& state) {
  if (!state.problem.as<Attention>()) return;
  for (const Drop& drop : kAttentionDrops) {
    State candidate = state;
    drop(candidate.problem, *candidate.problem.as<Attention>());
    if (!(candidate.problem == state.problem)) trials.keep(state, candidate);
  }
  halve_tokens(trials, state);
}

// ---- the data ---------------------------------------------------------------------------------------------

void zero(Trials& trials, State& state) {
  zero_around(trials, state);
  std::vector<int64_t> live = set_elements(state);
  for (size_t chunk = live.size(); chunk > 0; chunk = chunk > 1 ? (chunk + 1) / 2 : 0) {
    for (size_t at = 0; at < live.size();) {
      State candidate = state;
      const size_t end = std::min(at + chunk, live.size());
      for (size_t i = at; i < end; ++i) set_code(source(state), candidate.x, live[i], 0);
      if (trials.keep(state, candidate))
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at),
                   live.begin() + static_cast<std::ptrdiff_t>(end));
      else at = end;
      if (trials.spent()) return;
    }
  }
}

bool zero_around(Trials& trials, State& state) {
  const auto at = first_difference(state, trials.breach());
  if (!at || set_elements(state).size() <= kMaxLiteral) return false;
  const int64_t cols = state.problem.x.shape.cols;
  for (const int64_t size : {int64_t{1}, kWindow}) {
    const Region near{at->row0 / size * size, round_up(at->row1, size), at->col0 / size * size,
                      round_up(at->col1, size)};
    State candidate = state;
    for (int64_t i = 0; i < state.problem.x.shape.count(); ++i)
      if (!near.contains(i / cols, i % cols)) set_code(source(state), candidate.x, i, 0);
    if (trials.keep(state, candidate)) return true;
  }
  return false;
}

void simplify(Trials& trials, State& state) {
  const EncodingInfo& e = info(source(state));
  const std::vector<int64_t> live = set_elements(state);
  if (live.size() > kMaxLiteral) return;
  for (int64_t i : live) {
    const uint32_t code = element(state, i);
    auto attempt = [&](uint32_t simpler) {
      if (simpler == element(state, i)) return false;
      State candidate = state;
      set_code(source(state), candidate.x, i, simpler);
      return trials.keep(state, candidate);
    };
    if (e.has_sign() && code >> (e.bits - 1)) attempt(code & ~(1u << (e.bits - 1)));
    for (int cleared = e.mantissa_bits; cleared > 0; --cleared)  // from all mantissa bits to the lowest
      if (attempt(element(state, i) & ~((1u << cleared) - 1u))) break;
  }
}

}  // namespace assay::shrinking

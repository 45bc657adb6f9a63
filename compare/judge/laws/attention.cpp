#include "compare/judge/laws/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/judge/laws/laws.h"
#include "contract/attention.h"

namespace assay {

namespace {

// ---- the casts -----------------------------------------------------------------------

using Bytes = std::vector<std::byte>;

// Copies row after row of `depth` elements of n out of a plane in the line's layout, in the order of the
// casts (N20.1, N20.2).
Bytes gathered(const LawRecord& laws, AttentionTensor t) {
  const Attention& a = *laws.problem.as<Attention>();
  const AttentionSizes n = attention_sizes(laws.problem);
  const AttentionPart held = part_of(a.layout, t);
  const PlaneData& plane = laws.in(held.plane);
  const bool q = t == AttentionTensor::q;
  const int64_t heads = q ? n.heads : n.kv_heads, tokens = q ? n.q : n.kv, width = 2 * n.depth;
  Bytes out(static_cast<size_t>(n.batch * heads * tokens * width));
  int64_t before = 0;
  for (int64_t b = 0; b < n.batch; ++b) {
    const int64_t length = q ? q_length(laws.problem, b) : kv_length(laws.problem, b);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < tokens; ++i) {
        const TokenOrder order = token_order(a.layout);
        if (order == TokenOrder::ragged && i >= length) continue;
        const int64_t row = order == TokenOrder::sequence_first ? i * n.batch + b
                            : order == TokenOrder::batch_first  ? b * tokens + i
                                                                : before + i;
        const int64_t slot = held.within_heads ? h * held.tensors + held.which : held.which * heads + h;
        std::memcpy(out.data() + ((b * heads + h) * tokens + i) * width,
                    plane.bytes.data() + (row * held.tensors * heads + slot) * width,
                    static_cast<size_t>(width));
      }
    before += length;
  }
  return out;
}

Bytes joined(std::initializer_list<const Bytes*> parts) {
  Bytes out;
  for (const Bytes* part : parts) out.insert(out.end(), part->begin(), part->end());
  return out;
}

// What a slot's casts read, where the planes of the line have it.
std::vector<Bytes> cast_inputs(const LawRecord& laws, AttentionSlot slot, size_t casts) {
  switch (slot) {
    case AttentionSlot::qkv: {
      const Bytes q = gathered(laws, AttentionTensor::q), k = gathered(laws, AttentionTensor::k),
                  v = gathered(laws, AttentionTensor::v);
      return casts == 1 ? std::vector<Bytes>{joined({&q, &k, &v})} : std::vector<Bytes>{q, k, v};
    }
    case AttentionSlot::s: return {laws.out("s").bytes};
    case AttentionSlot::o: return {laws.out("o").bytes};
    case AttentionSlot::d_o: return {};  // in the line's layout; O's cast has the same quantizer and order
    case AttentionSlot::dp: return {laws.out("dp").bytes};
    case AttentionSlot::dqkv: {
      const Bytes &q = laws.out("dq").bytes, &k = laws.out("dk").bytes, &v = laws.out("dv").bytes;
      return casts == 1 ? std::vector<Bytes>{joined({&q, &k, &v})} : std::vector<Bytes>{q, k, v};
    }
  }
  return {};
}

// N20.3: a cast obeys the laws of the quantize that it is.
void check_casts(LawRecord& laws, AttentionSlot slot) {
  const std::vector<AttentionCast> casts = attention_casts(laws.problem, slot);
  if (casts.empty()) return;
  const std::vector<Bytes> inputs = cast_inputs(laws, slot, casts.size());
  for (size_t i = 0; i < casts.size() && i < inputs.size(); ++i) {
    std::vector<PlaneData> in, out;
    for (Plane& plane : input_planes(casts[i].line)) {
      Bytes bytes = plane.name == "x" ? inputs[i] : laws.in(plane_of_cast(casts[i], plane.name)).bytes;
      in.push_back({std::move(plane), std::move(bytes)});
    }
    for (Plane& plane : output_planes(casts[i].line)) {
      Bytes bytes = laws.out(plane_of_cast(casts[i], plane.name)).bytes;
      out.push_back({std::move(plane), std::move(bytes)});
    }
    for (Breach& b : check_laws(casts[i].line, in, out, laws.subject, &laws.evaluated)) {
      b.plane = plane_of_cast(casts[i], b.plane);
      laws.breaches.push_back(std::move(b));
    }
  }
}

// ---- rows ----------------------------------------------------------------------------

// The keys that a query sees, by the words of N20.6.
class Seen {
 public:
  explicit Seen(const Problem& p) : p_(p), a_(*p.as<Attention>()), n_(attention_sizes(p)) {}
  const AttentionSizes& sizes() const { return n_; }
  bool padding(int64_t row) const { return row % n_.q >= q_length(p_, sequence(row)); }
  bool operator()(int64_t row, int64_t j) const {
    const int64_t i = row % n_.q, queries = q_length(p_, sequence(row)), keys = kv_length(p_, sequence(row));
    if (i >= queries || j >= keys) return false;
    const int64_t own = a_.mask == AttentionMask::causal_bottom_right ? i + keys - queries : i;
    if (a_.mask != AttentionMask::none && own < j) return false;
    if (a_.window_left >= 0 && own - j > a_.window_left) return false;
    return a_.window_right < 0 || j - own <= a_.window_right;
  }

 private:
  int64_t sequence(int64_t row) const { return row / n_.q / n_.heads; }

  const Problem& p_;
  const Attention& a_;
  AttentionSizes n_;
};

// Half a last place of n, relative to the value.
double half_step(Encoding n) { return n == Encoding::bf16 ? 0x1p-8 : 0x1p-11; }

// What one row of the logits says beforehand.
struct RowFacts {
  bool finite = true;  // every logit that is seen
  bool far = false;    // one that is seen is so large that masked ones vanish
  bool equal = true;   // all that are seen are one value
  int64_t count = 0;   // keys that are seen
};
RowFacts facts_of(const Seen& seen, const PlaneData& p, int64_t row) {
  RowFacts f;
  double first = 0;
  for (int64_t j = 0; j < seen.sizes().kv; ++j) {
    if (!seen(row, j)) continue;
    const double x = value(p, row, j);
    f.finite = f.finite && std::isfinite(x);
    f.far = f.far || x > -9000;  // e^(-10000 + 9000) is 0 in binary32
    if (f.count++ == 0) first = x;
    f.equal = f.equal && x == first;
  }
  return f;
}

struct RowCheck {
  LawRecord& laws;
  const Seen& seen;
  const PlaneData &p, &s;
  double step;
};

// N20.7: padding rows are zeros, the others sum to 1 as nearly as the roundings of n allow.
void check_sum(const RowCheck& c, int64_t row, const RowFacts& f) {
  double sum = 0;
  const int64_t kv = c.seen.sizes().kv;
  for (int64_t j = 0; j < kv; ++j) sum += value(c.s, row, j);
  const bool padding = c.seen.padding(row);
  if (!padding && !f.finite) return;
  const double want = padding ? 0 : 1,
               slack = padding ? 0 : c.step + static_cast<double>(kv) * (0x1p-23 + 0x1p-25);
  if (std::fabs(sum - want) <= slack) return;
  c.laws.breach(c.s, row, 0, [&] {
    return fmt::format("the probabilities of row {} sum to {}, expected {} within {} (N20.7)", row,
                       number_text(sum), number_text(want), number_text(slack));
  });
}

// N20.6: what is masked beside a key that is seen has no probability.
void check_masked(const RowCheck& c, int64_t row, const RowFacts& f, const PlaneData& plane,
                  const char* what) {
  if (c.seen.padding(row) || !f.far || !f.finite) return;
  for (int64_t j = 0; j < c.seen.sizes().kv; ++j)
    if (!c.seen(row, j) && code(plane, row, j) != 0)
      c.laws.breach(plane, row, j, [&] {
        return fmt::format("query {} does not see key {}, yet {} is {} (N20.6, N20.14)", row, j, what,
                           number_text(value(plane, row, j)));
      });
}

// N20.7: 2^k equal logits have probabilities of 2^-k.
void check_exact(const RowCheck& c, int64_t row, const RowFacts& f) {
  if (!f.equal || !f.far || !f.finite || f.count == 0 ||
      !std::has_single_bit(static_cast<uint64_t>(f.count)) || f.count > 64)
    return;
  const double want = 1.0 / static_cast<double>(f.count);
  for (int64_t j = 0; j < c.seen.sizes().kv; ++j)
    if (c.seen(row, j) && value(c.s, row, j) != want)
      c.laws.breach(c.s, row, j, [&] {
        return fmt::format("{} equal logits, so each probability is {}, found {} (N20.7)", f.count,
                           number_text(want), number_text(value(c.s, row, j)));
      });
}

// N20.14: the keys that no query of a head sees get no gradient.
void check_unseen_keys(LawRecord& laws, const Seen& seen, const PlaneData& gradient, const char* what) {
  const AttentionSizes& n = seen.sizes();
  for (int64_t head = 0; head < n.batch * n.heads; ++head)
    for (int64_t j = 0; j < n.kv; ++j) {
      bool sees = false;
      for (int64_t i = 0; i < n.q && !sees; ++i) sees = seen(head * n.q + i, j);
      if (sees) continue;
      for (int64_t e = 0; e < n.depth; ++e) {
        const double g = value(gradient, head * n.kv + j, e);
        if (g == 0) continue;
        laws.breach(gradient, head * n.kv + j, e, [&] {
          return fmt::format("no query sees key {} of head {}, yet its {} is {} (N20.14)", j, head, what,
                             number_text(g));
        });
        break;
      }
    }
}

bool all_finite(const PlaneData& plane) {
  for (int64_t r = 0; r < plane.plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.plane.logical.cols; ++c)
      if (!std::isfinite(value(plane, r, c))) return false;
  return true;
}

}  // namespace

void check_attention(LawRecord& laws) {
  const Attention& a = *laws.problem.as<Attention>();
  for (AttentionSlot slot : kAttentionSlots)
    if (has_slot(a, slot)) check_casts(laws, slot);
  const Seen seen(laws.problem);
  const RowCheck c{laws, seen, laws.out("p"), laws.out("s"), half_step(laws.problem.x.source)};
  std::vector<RowFacts> facts;
  for (int64_t row = 0; row < seen.sizes().rows(); ++row) facts.push_back(facts_of(seen, c.p, row));
  const auto each = [&](auto check) {
    for (int64_t row = 0; row < seen.sizes().rows(); ++row) check(row, facts[static_cast<size_t>(row)]);
  };
  if (seen.sizes().kv == 0) return;
  if (a.dropout == 0) {
    laws.begin("rows");
    each([&](int64_t row, const RowFacts& f) { check_sum(c, row, f); });
    laws.begin("exact-rows");
    each([&](int64_t row, const RowFacts& f) { check_exact(c, row, f); });
  }
  laws.begin("masked-keys");
  each([&](int64_t row, const RowFacts& f) { check_masked(c, row, f, c.s, "its probability"); });
  if (!a.backward) return;
  each([&](int64_t row, const RowFacts& f) {
    check_masked(c, row, f, laws.out("dp"), "the gradient of its logit");
  });
  const bool far =
      std::all_of(facts.begin(), facts.end(), [](const RowFacts& f) { return f.far && f.finite; });
  const bool plain = a.lengths.empty() && far && all_finite(laws.out("dv")) && all_finite(laws.out("dk"));
  if (!plain) return;  // a row without a key to see shares itself among all keys
  check_unseen_keys(laws, seen, laws.out("dv"), "gradient of V");
  check_unseen_keys(laws, seen, laws.out("dk"), "gradient of K");
}

}  // namespace assay

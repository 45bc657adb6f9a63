#include "compare/judge/laws/ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/judge/laws/rounding.h"
#include "compare/judge/laws/scales.h"

namespace assay {

void check_cast(LawRecord& laws) {
  const Cast& op = *laws.problem.as<Cast>();
  const PlaneData &x = laws.in("x"), &y = laws.out("y");
  laws.begin(op.round == Round::rne ? "half-step" : "adjacent");
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r)
    for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c) {
      const double v = value(x, r, c);
      const std::string wrong =
          op.round == Round::rne
              ? nearest(op.to, code(y, r, c), v, 0, {.saturates = saturates(op.to, op.overflow)})
              : directed(op.to, code(y, r, c), v, op.round, saturates(op.to, op.overflow));
      if (!wrong.empty()) laws.breach(y, r, c, [&] { return wrong; });
    }
}

void check_monotone(LawRecord& laws) {
  const Cast& op = *laws.problem.as<Cast>();
  const PlaneData &x = laws.in("x"), &y = laws.out("y");
  laws.begin("monotone");
  struct Pair {
    double x, y;
    int64_t index;
  };
  std::vector<Pair> pairs;
  const int64_t cols = laws.problem.x.shape.cols;
  for (int64_t i = 0; i < laws.problem.x.shape.count(); ++i) {
    Pair p{value(x, i / cols, i % cols), value(y, i / cols, i % cols), i};
    if (op.to == Encoding::e8m0) p.x = std::fabs(p.x);
    if (!std::isnan(p.x) && !std::isnan(p.y)) pairs.push_back(p);
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return std::pair(a.x, a.index) < std::pair(b.x, b.index); });
  for (size_t i = 1; i < pairs.size(); ++i) {
    const Pair &a = pairs[i - 1], &b = pairs[i];
    const bool wrong = a.x == b.x ? a.y != b.y : a.y > b.y;
    if (wrong)
      laws.breach(y, b.index / cols, b.index % cols, [&] {
        return fmt::format("{} <= {}, but they gave {} and {}", number_text(a.x), number_text(b.x),
                           number_text(a.y), number_text(b.y));
      });
  }
}

void check_quantize(LawRecord& laws, Direction d, const Quantizer& q) {
  if (!info(q.format).scale) return;  // identity: check_coherent()
  const PlaneData& data = laws.out(plane_name(d, "data"));
  const ScaledValues scaled(laws.problem, d, laws.inputs, laws.outputs);
  const bool drawn = q.round == Round::sr;
  bool begun = false;
  for (int64_t i = 0; i < data.plane.logical.rows; ++i)
    for (int64_t j = 0; j < data.plane.logical.cols; ++j) {
      const std::optional<Scaled> v = scaled.at(i, j);
      if (!v) continue;
      if (!begun) laws.begin(drawn ? "adjacent" : "half-step");
      begun = true;
      Rounding rule = rounding_of(q);
      // N17.3: what a first rounding made zero was none when N5.6 and N17.4 looked.
      if (q.numerics.pre_round != PreRound::none && v->value == 0 && rule.zeros != NegZero::drop &&
          scaled.element(i, j) != 0.0)
        rule.zeros = NegZero::keep;
      const std::string wrong =
          drawn ? between(q.element, code(data, i, j), v->value, v->slack, q.numerics.neg_zero)
                : nearest(q.element, code(data, i, j), v->value, v->slack, rule);
      if (!wrong.empty()) laws.breach(data, i, j, [&] { return "scaled value " + wrong; });
    }
  if (info(q.format).has_blocks()) check_block_scales(laws, d, q, scaled);
  else check_tensor_scales(laws, d, q, scaled);
  if (q.format == FormatId::nvfp4) check_tensor_amax(laws, d, q, scaled);
}

void check_dequantize(LawRecord& laws) {
  const Direction d = laws.problem.row ? Direction::row : Direction::col;
  const Quantizer& q = *laws.problem.quantizer(d);
  const PlaneData &data = laws.in(plane_name(d, "data")), &y = laws.out("y");
  const bool scaled = info(q.format).scale.has_value();
  const PlaneData* scale = scaled ? &scale_plane(d, q, laws.inputs) : nullptr;
  const PlaneData* amax = find_plane(laws.inputs, plane_name(d, "amax"));
  laws.begin("half-step");
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r)
    for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c) {
      const int64_t i = data.plane.transposed ? c : r, j = data.plane.transposed ? r : c;
      const double element = value(data, i, j);
      double s = scaled ? value_of(scale->plane.encoding,
                                   code_at(scale->plane, scale->bytes, scale_index(q, scale->plane, i, j)))
                        : 1,
             slack = 0;
      if (q.format == FormatId::nvfp4) {  // N10.15: two products and a constant, each rounded
        const double a = value(*amax, q.row_scaled ? i : 0, 0), first = s * a;
        if (std::fabs(first) > 0x1.fffffep127 && std::isfinite(first)) continue;  // overflows on the way
        s = first / (q.e4m3_max == E4m3Max::m256 ? 1536.0 : 2688.0);
        slack = std::fabs(element) * (std::fabs(s) * 0x1p-21 + 0x1p-148);
      }
      const double v = element * s;
      const bool stands =
          slack == 0 && (!std::isfinite(v) || static_cast<double>(static_cast<float>(v)) == v);
      if (!stands) slack += narrowing(v);
      const std::string wrong =
          nearest(y.plane.encoding, code(y, r, c), v, std::isfinite(v) ? slack : 0, {.saturates = false});
      if (!wrong.empty()) laws.breach(y, r, c, [&] { return "code times scale " + wrong; });
    }
}

void check_stochastic_cast(LawRecord& laws) {
  const Encoding to = laws.problem.as<Cast>()->to;
  const PlaneData &x = laws.in("x"), &y = laws.out("y");
  laws.begin("adjacent");
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r)
    for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c)
      if (const std::string wrong = between(to, code(y, r, c), value(x, r, c), 0); !wrong.empty())
        laws.breach(y, r, c, [&] { return wrong; });
}

void check_hadamard(LawRecord& laws) {
  const Quantizer& q = *laws.problem.col;
  const PlaneData &x = laws.in("x"), &y = laws.out("y"), &stored = laws.out("amax");
  const bool exact = laws.problem.x.fill.kind == FillKind::exact_sums;
  laws.begin("orthogonal");
  double amax = 0;
  for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c)
    for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r)
      if (const double a = std::fabs(value(y, c, r)); a > amax) amax = a;
  for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c)
    for (int64_t first = 0; first < laws.problem.x.shape.rows; first += 16) {
      double back[16] = {}, most = 0, sum = 0;
      for (int64_t j = 0; j < 16; ++j) {
        const double v = value(y, c, first + j);
        sum += std::fabs(v);
        most = std::max(most, std::fabs(value(x, first + j, c)));
        for (unsigned i = 0; i < 16; ++i)
          back[i] += (std::popcount(i & static_cast<unsigned>(j)) & 1) != 0 ? -v / 4 : v / 4;
      }
      if (!std::isfinite(sum) || !rotated(x, q.sign_mask, first, c))
        continue;  // NaN, infinities and overflow spread (N11.3)
      const double slack = exact ? 0 : (sum * 0x1p-8 + 256 * most * 0x1p-22) / 4 + 0x1p-125;
      for (int64_t i = 0; i < 16; ++i) {
        const double v = value(x, first + i, c), got = (q.sign_mask >> i & 1) != 0 ? -back[i] : back[i];
        if (std::fabs(got - v) > slack)
          laws.breach(y, c, first + i, [&] {
            return fmt::format("rotated back, {} is {} (N11.1)", number_text(v), number_text(got));
          });
      }
    }
  laws.begin("range");
  if (value(stored, 0, 0) != amax)
    laws.breach(stored, 0, 0,
                [&] { return fmt::format("the largest magnitude of y is {}", number_text(amax)); });
}

void check_philox(LawRecord& laws) {
  const PlaneData &x = laws.in("x"), &key = laws.in("key"), &y = laws.out("y");
  laws.begin("injective");
  auto words = [](const PlaneData& p, int64_t r, int64_t n) {
    std::vector<uint32_t> out;
    for (int64_t c = 0; c < n; ++c) out.push_back(code(p, r, c));
    return out;
  };
  std::map<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>, int64_t> seen;
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r) {
    const auto [at, fresh] = seen.try_emplace({words(key, r, 2), words(y, r, 4)}, r);
    const int64_t first = at->second;
    if (!fresh && words(x, r, 4) != words(x, first, 4))
      laws.breach(y, r, 0, [&] {
        return fmt::format("the counters of rows {} and {} gave one output (N12.1)", first, r);
      });
  }
}

}  // namespace assay

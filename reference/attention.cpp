#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "contract/attention.h"
#include "reference/exponential.h"
#include "reference/parallel.h"
#include "reference/rounding.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

using Codes = std::vector<uint16_t>;  // of the nominal type n
using Row = std::vector<double>;

std::span<const std::byte> bytes_of(const Codes& c) { return std::as_bytes(std::span(c)); }

// A token of a head: which sequence, which head, which token of it.
struct Place {
  int64_t b, h, i;
};

class Core {
 public:
  Core(const Run& run, FormatOf format_of)
      : run_(run),
        op_(*run.problem.as<Attention>()),
        n_(attention_sizes(run.problem)),
        nominal_(run.problem.x.source),
        format_of_(format_of),
        decode_(nominal_),
        encode_(nominal_, Round::rne, Overflow::nosat),
        alpha_(op_.softmax_scale ? value_of(Encoding::f32, *op_.softmax_scale)
                                 : narrowed(1 / std::sqrt(static_cast<double>(n_.depth)))) {}

  void forward();
  void backward();
  std::vector<TraceStep> trace(int64_t row, int64_t col);

 private:
  uint16_t code(double v) const { return static_cast<uint16_t>(encode_(v)); }
  double rounded(double v) const { return decode_(encode_(v)); }  // one rounding to n
  Place place(int64_t row, int64_t tokens, int64_t heads) const {
    return {row / (heads * tokens), row / tokens % heads, row % tokens};
  }
  Place query(int64_t row) const { return place(row, n_.q, n_.heads); }

  // ---- where elements stand (N20.1, N20.2) ----
  int64_t token(AttentionTensor t, int64_t b, int64_t i) const {
    const int64_t tokens = t == AttentionTensor::q ? n_.q : n_.kv;
    switch (token_order(op_.layout)) {
      case TokenOrder::sequence_first: return i * n_.batch + b;
      case TokenOrder::batch_first: return b * tokens + i;
      case TokenOrder::ragged: break;
    }
    int64_t before = 0;
    for (int64_t s = 0; s < b; ++s) before += length(t, s);
    return before + i;
  }
  int64_t length(AttentionTensor t, int64_t b) const {
    return t == AttentionTensor::q ? q_length(run_.problem, b) : kv_length(run_.problem, b);
  }
  // Calls on(place in the codes, place in the plane) for every element; a ragged layout has no padding.
  template <class On> void each(AttentionTensor t, const AttentionPart& held, On on) const {
    const bool q = t == AttentionTensor::q, ragged = token_order(op_.layout) == TokenOrder::ragged;
    const int64_t heads = q ? n_.heads : n_.kv_heads, tokens = q ? n_.q : n_.kv;
    for (int64_t row = 0; row < n_.batch * heads * tokens; ++row) {
      const Place at = place(row, tokens, heads);
      if (ragged && at.i >= length(t, at.b)) continue;
      const int64_t head = held.within_heads ? at.h * held.tensors + held.which : held.which * heads + at.h;
      const int64_t from = (token(t, at.b, at.i) * held.tensors * heads + head) * n_.depth;
      for (int64_t e = 0; e < n_.depth; ++e) on(row * n_.depth + e, from + e);
    }
  }
  Codes gathered(AttentionTensor t) const {
    const AttentionPart held = part_of(op_.layout, t);
    const ConstBuffer& plane = run_.input(held.plane);
    Codes out(static_cast<size_t>((t == AttentionTensor::q ? n_.rows() : n_.kv_rows()) * n_.depth));
    if (op_.codes != AttentionCodes::none) return descaled(t, held, plane, std::move(out));
    each(t, held, [&](int64_t to, int64_t from) {
      out[static_cast<size_t>(to)] = static_cast<uint16_t>(load(plane, from));
    });
    return out;
  }
  // N20.17.
  Codes descaled(AttentionTensor t, const AttentionPart& held, const ConstBuffer& plane, Codes out) const {
    static constexpr const char* kScales[] = {"q.descale", "k.descale", "v.descale"};
    const ConstBuffer& scales = run_.input(kScales[static_cast<size_t>(t)]);
    const Decoder decode(input_encoding(run_.problem));
    const bool q = t == AttentionTensor::q;
    each(t, held, [&](int64_t to, int64_t from) {
      const Place at = place(to / n_.depth, q ? n_.q : n_.kv, q ? n_.heads : n_.kv_heads);
      const int64_t head = at.b * n_.kv_heads + (q ? at.h / n_.repeats() : at.h);
      const double scale = value_of(Encoding::f32, load(scales, head));
      out[static_cast<size_t>(to)] = code(narrowed(decode(load(plane, from)) * scale));
    });
    return out;
  }
  void scatter(const Codes& from, AttentionTensor t) const {
    const AttentionPart held = part_of(op_.layout, t);
    const Buffer& plane = run_.output("grad." + held.plane);
    each(t, held, [&](int64_t at, int64_t to) { store(plane, to, from[static_cast<size_t>(at)]); });
  }
  // Calls on(place in (i, b, h, e), place in the layout) for every element of O.
  template <class On> void each_result(On on) const {
    const bool ragged = token_order(op_.layout) == TokenOrder::ragged;
    const int64_t width = n_.heads * n_.depth;
    for (int64_t row = 0; row < n_.q * n_.batch; ++row) {
      const int64_t b = row % n_.batch, i = row / n_.batch;
      if (ragged && i >= length(AttentionTensor::q, b)) continue;
      for (int64_t c = 0; c < width; ++c) on(row * width + c, token(AttentionTensor::q, b, i) * width + c);
    }
  }
  int64_t result_row(const Place& at) const { return at.i * n_.batch + at.b; }

  // ---- casts (N20.3) ----
  // Writes the cast's planes, and gives the codes that its dequantized result has in n.
  Codes cast(const AttentionCast& cast, const Codes& x) const;
  Codes cast_slot(AttentionSlot slot, const Codes& x) const {
    const auto casts = attention_casts(run_.problem, slot);
    return casts.empty() ? x : cast(casts[0], x);
  }
  void cast_three(AttentionSlot slot, Codes& q, Codes& k, Codes& v) const;
  Values values_of(const Codes& codes, int64_t cols) const {
    Values out(static_cast<int64_t>(codes.size()) / cols, cols);
    for (size_t i = 0; i < codes.size(); ++i) out.data()[i] = static_cast<float>(decode_(codes[i]));
    return out;
  }
  void write(const char* plane, const Codes& codes) const {
    const Buffer& to = run_.output(plane);
    if (!codes.empty()) std::memcpy(to.bytes.data(), codes.data(), codes.size() * sizeof codes[0]);
  }

  // ---- rows ----
  // Row `row` of Q^ K^T, N16.2 over the elements.
  Row products(const Values& a, int64_t row, const Values& b_by_element, int64_t first, int64_t count) const {
    Row sums(static_cast<size_t>(count), 0.0);
    for (int64_t e = 0; e < n_.depth; ++e) {
      const double x = a(row, e);
      const float* const b = b_by_element.data() + e * b_by_element.cols() + first;
      for (size_t j = 0; j < sums.size(); ++j) sums[j] = narrowed(sums[j] + narrowed(x * b[j]));
    }
    return sums;
  }
  // The sum over j of weights(j) times row first + j of v, in ascending j.
  template <class Weight> Row weighted(int64_t count, Weight weight, const Values& v, int64_t first) const {
    Row sums(static_cast<size_t>(n_.depth), 0.0);
    for (int64_t j = 0; j < count; ++j) {
      const double w = weight(j);
      const float* const row = v.data() + (first + j) * n_.depth;
      for (size_t e = 0; e < sums.size(); ++e) sums[e] = narrowed(sums[e] + narrowed(w * row[e]));
    }
    return sums;
  }
  int64_t first_key(const Place& at) const { return (at.b * n_.kv_heads + at.h / n_.repeats()) * n_.kv; }
  uint16_t logit(double sum, const Place& at, int64_t j) const;
  bool masked(const Place& at, int64_t j) const;
  bool is_padding(const Place& at) const { return at.i >= length(AttentionTensor::q, at.b); }
  struct Softmax {
    double most = 0, sum = 0;
    Row s;
  };
  Softmax softmax(const uint16_t* p, const Place& at) const;
  double kept(double v, int64_t at) const {  // N20.10
    if (op_.dropout == 0) return v;
    const double factor = narrowed(1 / narrowed(1 - value_of(Encoding::f32, op_.dropout)));
    return load(run_.input("keep"), at) != 0 ? narrowed(v * factor) : 0.0;
  }
  double scaled_gradient(double sum) const {  // N20.15
    return op_.bias == AttentionBias::pre_scale ? rounded(sum) : rounded(narrowed(rounded(sum) * alpha_));
  }
  Codes summed_heads(const Codes& repeated) const;

  void make_logits(const Values& q, const Values& k);
  void make_probabilities();
  void make_result(const Values& v);
  void make_logit_gradients(const Values& d_o, const Values& v);
  Codes of_keys(const Values& weights, const Values& rows, bool by_result, bool scales) const;

  const Run& run_;
  const Attention& op_;
  AttentionSizes n_;
  Encoding nominal_;
  FormatOf format_of_;
  Decoder decode_;
  Encoder encode_;
  double alpha_;

  Values q_, k_, v_, s_;  // dequantized
  Codes p_codes_, s_codes_, o_codes_;
};

Codes Core::cast(const AttentionCast& cast, const Codes& x) const {
  const Direction d = cast.direction();
  const std::vector<Plane> read = input_planes(cast.line), made = output_planes(cast.line);
  std::vector<ConstBuffer> inputs;
  for (const Plane& plane : read)
    inputs.push_back(
        {&plane, plane.name == "x" ? bytes_of(x) : run_.input(plane_of_cast(cast, plane.name)).bytes});
  std::vector<Buffer> outputs;
  for (const Plane& plane : made)
    outputs.push_back({&plane, run_.output(plane_of_cast(cast, plane.name)).bytes});
  const Format& format = format_of_(*cast.line.quantizer(d));
  format.quantize({cast.line, inputs, outputs, run_.threads}, d);

  Problem back = cast.line;
  back.op = Dequantize{nominal_, CodesFrom::quantized};
  std::vector<ConstBuffer> stored;
  const std::vector<Plane> wanted = input_planes(back), given = output_planes(back);
  for (const Plane& plane : wanted)
    stored.push_back({&plane, find(std::span<const Buffer>(outputs), plane.name)->bytes});
  Codes y(x.size());
  const Buffer to{&given[0], std::as_writable_bytes(std::span(y))};
  format.dequantize({back, stored, std::span(&to, 1), run_.threads}, d);
  return y;
}

void Core::cast_three(AttentionSlot slot, Codes& q, Codes& k, Codes& v) const {
  const auto casts = attention_casts(run_.problem, slot);
  if (casts.size() == 3) {
    q = cast(casts[0], q), k = cast(casts[1], k), v = cast(casts[2], v);
  } else if (casts.size() == 1) {  // one scale for the three
    Codes all = q;
    all.insert(all.end(), k.begin(), k.end());
    all.insert(all.end(), v.begin(), v.end());
    all = cast(casts[0], all);
    const auto second = all.begin() + static_cast<int64_t>(q.size()),
               third = second + static_cast<int64_t>(k.size());
    q.assign(all.begin(), second), k.assign(second, third), v.assign(third, all.end());
  }
}

// N20.4, N20.5: from the sum to the logit.
uint16_t Core::logit(double sum, const Place& at, int64_t j) const {
  if (op_.bias == AttentionBias::none) return code(narrowed(sum * alpha_));
  const double bias = decode_(load(run_.input("bias"), (at.h * n_.q + at.i) * n_.kv + j));
  if (op_.bias == AttentionBias::pre_scale)
    return code(narrowed(rounded(narrowed(rounded(sum) + bias)) * alpha_));
  return code(narrowed(rounded(narrowed(sum * alpha_)) + bias));
}

// N20.6.
bool Core::masked(const Place& at, int64_t j) const {
  const int64_t queries = length(AttentionTensor::q, at.b), keys = length(AttentionTensor::k, at.b);
  if (at.i >= queries || j >= keys) return true;
  const bool bottom = op_.mask == AttentionMask::causal_bottom_right;
  const int64_t own = at.i + (bottom ? keys - queries : 0);  // the key that stands where the query stands
  if (op_.mask != AttentionMask::none && j > own) return true;
  return (op_.window_left >= 0 && j < own - op_.window_left) ||
         (op_.window_right >= 0 && j > own + op_.window_right);
}

// N20.7: of one row of logits.
Core::Softmax Core::softmax(const uint16_t* p, const Place& at) const {
  constexpr double kMasked = -10000;  // N20.6: exactly, in binary32
  Softmax out;
  out.s.resize(static_cast<size_t>(n_.kv));
  out.most = -kInfinity;
  for (int64_t j = 0; j < n_.kv; ++j) {
    const double x = masked(at, j) ? kMasked : decode_(p[j]);
    out.s[static_cast<size_t>(j)] = x;
    if (std::isnan(x) || std::isnan(out.most)) out.most = kNaN;
    else out.most = std::max(out.most, x);
  }
  for (double& x : out.s) {
    x = exponential(op_.exp, narrowed(x - out.most));
    out.sum = narrowed(out.sum + x);
  }
  for (double& x : out.s) x = narrowed(x / out.sum);
  return out;
}

void Core::make_logits(const Values& q, const Values& k) {
  p_codes_.resize(static_cast<size_t>(n_.rows() * n_.kv));
  const Values by_element = transposed(k, run_.threads);
  parallel_for(run_.threads, n_.rows(), [&](int64_t row) {
    const Place at = query(row);
    const Row sums = products(q, row, by_element, first_key(at), n_.kv);
    for (int64_t j = 0; j < n_.kv; ++j)
      p_codes_[static_cast<size_t>(row * n_.kv + j)] = logit(sums[static_cast<size_t>(j)], at, j);
  });
}

void Core::make_probabilities() {
  s_codes_.assign(static_cast<size_t>(n_.rows() * n_.kv), 0);
  parallel_for(run_.threads, n_.rows(), [&](int64_t row) {
    const Place at = query(row);
    if (is_padding(at)) return;  // N20.7: +0
    const Softmax row_of = softmax(p_codes_.data() + row * n_.kv, at);
    for (int64_t j = 0; j < n_.kv; ++j)
      s_codes_[static_cast<size_t>(row * n_.kv + j)] =
          op_.dropout == 0 ? code(row_of.s[static_cast<size_t>(j)])
                           : code(kept(rounded(row_of.s[static_cast<size_t>(j)]), row * n_.kv + j));
  });
}

void Core::make_result(const Values& v) {
  o_codes_.resize(static_cast<size_t>(n_.rows() * n_.depth));
  parallel_for(run_.threads, n_.rows(), [&](int64_t row) {
    const Place at = query(row);
    const Row sums = weighted(
        n_.kv, [&](int64_t j) { return double{s_(row, j)}; }, v, first_key(at));
    const int64_t to = (result_row(at) * n_.heads + at.h) * n_.depth;
    for (int64_t e = 0; e < n_.depth; ++e)
      o_codes_[static_cast<size_t>(to + e)] = code(sums[static_cast<size_t>(e)]);
  });
}

void Core::forward() {
  Codes q = gathered(AttentionTensor::q), k = gathered(AttentionTensor::k), v = gathered(AttentionTensor::v);
  cast_three(AttentionSlot::qkv, q, k, v);
  q_ = values_of(q, n_.depth), k_ = values_of(k, n_.depth), v_ = values_of(v, n_.depth);
  make_logits(q_, k_);
  write("p", p_codes_);
  make_probabilities();
  write("s", s_codes_);
  s_codes_ = cast_slot(AttentionSlot::s, s_codes_);
  s_ = values_of(s_codes_, std::max<int64_t>(n_.kv, 1));
  make_result(v_);
  write("o", o_codes_);
  o_codes_ = cast_slot(AttentionSlot::o, o_codes_);
  const Buffer& out = run_.output("out");
  each_result([&](int64_t from, int64_t to) { store(out, to, o_codes_[static_cast<size_t>(from)]); });
}

// Of each key and repeated head: the sum over ascending queries i of weights(i, j) times row i of `rows`,
// which are in the order of results or of queries. `scales`: times the softmax scale (N20.15).
Codes Core::of_keys(const Values& weights, const Values& rows, bool by_result, bool scales) const {
  Codes out(static_cast<size_t>(n_.repeated_rows() * n_.depth));
  parallel_for(run_.threads, n_.batch * n_.heads, [&](int64_t head) {
    const int64_t b = head / n_.heads, h = head % n_.heads;
    Matrix<double> sums = Matrix<double>::Zero(n_.kv, n_.depth);
    for (int64_t i = 0; i < n_.q; ++i) {
      const float* const x = by_result ? rows.data() + ((i * n_.batch + b) * n_.heads + h) * n_.depth
                                       : rows.data() + (head * n_.q + i) * n_.depth;
      for (int64_t j = 0; j < n_.kv; ++j) {
        const double w = weights(head * n_.q + i, j);
        double* const sum = sums.data() + j * n_.depth;
        for (int64_t e = 0; e < n_.depth; ++e) sum[e] = narrowed(sum[e] + narrowed(w * x[e]));
      }
    }
    for (int64_t i = 0; i < sums.size(); ++i)
      out[static_cast<size_t>(head * n_.kv * n_.depth + i)] =
          code(scales ? scaled_gradient(sums.data()[i]) : sums.data()[i]);
  });
  return out;
}

// N20.13, N20.14: dS, and the gradient of the logits.
void Core::make_logit_gradients(const Values& d_o, const Values& v) {
  Codes ds(p_codes_.size()), dp(p_codes_.size());
  const Values by_element = transposed(v, run_.threads);
  parallel_for(run_.threads, n_.rows(), [&](int64_t row) {
    const Place at = query(row);
    const Row sums = products(d_o, result_row(at) * n_.heads + at.h, by_element, first_key(at), n_.kv);
    uint16_t *const ds_row = ds.data() + row * n_.kv, *const dp_row = dp.data() + row * n_.kv;
    for (int64_t j = 0; j < n_.kv; ++j) {
      const double sum = sums[static_cast<size_t>(j)];
      ds_row[j] = op_.dropout == 0 ? code(sum) : code(kept(rounded(sum), row * n_.kv + j));
    }
    if (is_padding(at)) return;
    const Row s = softmax(p_codes_.data() + row * n_.kv, at).s;
    double total = 0;
    for (int64_t j = 0; j < n_.kv; ++j)
      total = narrowed(total + narrowed(decode_(ds_row[j]) * s[static_cast<size_t>(j)]));
    for (int64_t j = 0; j < n_.kv; ++j)
      if (!masked(at, j))
        dp_row[j] = code(narrowed(s[static_cast<size_t>(j)] * narrowed(decode_(ds_row[j]) - total)));
  });
  write("ds", ds);
  write("dp", dp);
  p_codes_ = cast_slot(AttentionSlot::dp, dp);
}

// N20.16: over the heads that share a key, in ascending order.
Codes Core::summed_heads(const Codes& repeated) const {
  if (n_.repeats() == 1) return repeated;
  Codes out(static_cast<size_t>(n_.kv_rows() * n_.depth));
  const int64_t head = n_.kv * n_.depth;
  for (int64_t at = 0; at < static_cast<int64_t>(out.size()); ++at) {
    const int64_t first = at / head * n_.repeats();  // (b, kv head) is one number, and so is (b, head)
    double sum = 0;
    for (int64_t r = 0; r < n_.repeats(); ++r)
      sum = narrowed(sum + decode_(repeated[static_cast<size_t>((first + r) * head + at % head)]));
    out[static_cast<size_t>(at)] = code(sum);
  }
  return out;
}

void Core::backward() {
  Codes d_o(o_codes_.size());
  const ConstBuffer& given = run_.input("do");
  each_result([&](int64_t to, int64_t from) {
    d_o[static_cast<size_t>(to)] = static_cast<uint16_t>(load(given, from));
  });
  const Values d_o_hat = values_of(cast_slot(AttentionSlot::d_o, d_o), n_.depth);  // (i, b, h)
  Codes dv = of_keys(s_, d_o_hat, true, false);                                    // N20.12
  write("dv", dv);
  make_logit_gradients(d_o_hat, v_);
  const Values dp = values_of(p_codes_, std::max<int64_t>(n_.kv, 1));
  Codes dq(static_cast<size_t>(n_.rows() * n_.depth));
  parallel_for(run_.threads, n_.rows(), [&](int64_t row) {
    const auto weight = [&](int64_t j) {
      return op_.bias == AttentionBias::pre_scale ? rounded(narrowed(dp(row, j) * alpha_))
                                                  : double{dp(row, j)};
    };
    const Row sums = weighted(n_.kv, weight, k_, first_key(query(row)));
    for (int64_t e = 0; e < n_.depth; ++e)
      dq[static_cast<size_t>(row * n_.depth + e)] = code(scaled_gradient(sums[static_cast<size_t>(e)]));
  });
  Values scaled = dp;
  if (op_.bias == AttentionBias::pre_scale)
    for (int64_t i = 0; i < scaled.size(); ++i)
      scaled.data()[i] = static_cast<float>(rounded(narrowed(scaled.data()[i] * alpha_)));
  Codes dk = of_keys(scaled, q_, false, true);
  write("dq", dq);
  write("dk", dk);
  cast_three(AttentionSlot::dqkv, dq, dk, dv);
  scatter(dq, AttentionTensor::q);
  scatter(summed_heads(dk), AttentionTensor::k);
  scatter(summed_heads(dv), AttentionTensor::v);
}

// N20.7, N20.11: the key that weighs most in a row of o, and what it adds.
std::vector<TraceStep> Core::trace(int64_t row, int64_t col) {
  const Place at{row % n_.batch, col / n_.depth, row / n_.batch};
  const int64_t e = col % n_.depth, query_row = (at.b * n_.heads + at.h) * n_.q + at.i;
  std::vector<TraceStep> steps = {value_step("N20.4", "softmax scale", alpha_)};
  if (n_.kv > 0) {
    const uint16_t* const p = p_codes_.data() + query_row * n_.kv;
    const Softmax all = softmax(p, at);
    int64_t most = 0;
    for (int64_t j = 1; j < n_.kv; ++j)
      if (all.s[static_cast<size_t>(j)] > all.s[static_cast<size_t>(most)]) most = j;
    const std::string key = " of key " + std::to_string(most) + ", the most probable";
    steps.push_back(code_step("N20.4", "logit" + key, nominal_, p[most]));
    steps.push_back(value_step("N20.7", "largest masked logit", all.most));
    steps.push_back(value_step("N20.7", "sum of exponentials", all.sum));
    steps.push_back(value_step("N20.7", "probability" + key, all.s[static_cast<size_t>(most)]));
    steps.push_back(value_step("N20.3", "probability after its cast" + key, s_(query_row, most)));
    steps.push_back(value_step("N20.3", "V after its cast" + key, v_(first_key(at) + most, e)));
  }
  const int64_t i = row * n_.heads * n_.depth + col;
  steps.push_back(
      code_step("N20.11", "o", nominal_, load({run_.output("o").plane, run_.output("o").bytes}, i)));
  steps.push_back(code_step("N20.11", "o after its cast", nominal_, o_codes_[static_cast<size_t>(i)]));
  return steps;
}

}  // namespace

void attention(const Run& run, FormatOf format_of) {
  Core core(run, format_of);
  core.forward();
  if (run.problem.as<Attention>()->backward) core.backward();
}

Tracer trace_attention(const Run& run, FormatOf format_of) {
  // The forward pass with the planes that it writes.
  struct Pass {
    Pass(const Run& of, FormatOf format_of)
        : planes(output_planes(of.problem)),
          bytes(bytes_of(planes)),
          outputs(buffers_of(planes, bytes)),
          run{of.problem, of.inputs, outputs, of.threads},
          core(run, format_of) {
      core.forward();
    }
    Pass(const Pass&) = delete;
    static std::vector<std::vector<std::byte>> bytes_of(const std::vector<Plane>& planes) {
      std::vector<std::vector<std::byte>> out;
      for (const Plane& plane : planes) out.emplace_back(plane.bytes());
      return out;
    }
    static std::vector<Buffer> buffers_of(const std::vector<Plane>& planes,
                                          std::vector<std::vector<std::byte>>& bytes) {
      std::vector<Buffer> out;
      for (size_t i = 0; i < planes.size(); ++i) out.push_back({&planes[i], bytes[i]});
      return out;
    }
    const std::vector<Plane> planes;
    std::vector<std::vector<std::byte>> bytes;
    const std::vector<Buffer> outputs;
    const Run run;
    Core core;
  };
  return [pass = std::make_shared<Pass>(run, format_of)](int64_t row, int64_t col) {
    return pass->core.trace(row, col);
  };
}

}  // namespace assay::reference

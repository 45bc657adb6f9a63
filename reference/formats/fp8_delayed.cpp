// fp8_delayed: per-tensor FP8 with a scale that earlier steps left behind, and the update that makes the next
// one.
#include <cstring>
#include <limits>
#include <vector>

#include "reference/blocks.h"
#include "reference/formats/format.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// What a given number means: the encode scale (N3.11), or the decode scale (N17.5).
struct Given {
  double scale_inv;
  ElementFactor factor;
};
Given given_scale(double number, const Quantizer& q) {
  switch (q.numerics.scale_order) {
    case ScaleOrder::decode_divide: return {number, {number, true}};
    case ScaleOrder::decode_first: return {number, {narrowed(1.0 / number)}};
    case ScaleOrder::encode_first: break;
  }
  return {decode_scale(number), {number}};  // N3.7
}

// N3.1, N3.12: the amax of the tensor or of each stored row, from the slot's prior value.
Values accumulated(const Values& x, const Values& prior, const Quantizer& q, int threads) {
  Values amax(prior.rows(), 1);
  for (int64_t i = 0; i < prior.rows(); ++i)
    amax(i, 0) = static_cast<float>(q.row_scaled ? tensor_amax(x.row(i), prior(i, 0), 1)
                                                 : tensor_amax(x, prior(i, 0), threads));  // exact
  return amax;
}

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = seen(run, d);  // N3.9: under one scale the transpose's codes are the codes' transpose
  const Values numbers = values(run.input(d, "given.scale"), run.threads),
               prior = values(run.input(d, "prior.amax"), run.threads);
  Values scale_inv(numbers.rows(), 1);
  std::vector<ElementFactor> factors;
  for (int64_t i = 0; i < numbers.rows(); ++i) {  // N3.12
    const Given given = given_scale(numbers(i, 0), q);
    scale_inv(i, 0) = static_cast<float>(given.scale_inv);  // exact
    factors.push_back(given.factor);
  }
  store(run.output(d, "amax"), accumulated(x, prior, q, run.threads));
  store(run.output(d, "scale_inv"), scale_inv);
  store(run.output(d, "data"), per_tensor_elements(x, factors, q, run.threads));  // N6.1
}

// N4: one slot. Floats are moved as they are, so that what rolls keeps its bits.
struct Slot {
  std::vector<float> history;
  float scale;
};

struct Updated {
  Slot slot;
  float last;
  double amax;
};

Updated updated(const Slot& old, const float* reduced, const Update& op, Encoding element) {
  const std::vector<float>& h = old.history;
  const size_t length = h.size();
  const bool bulk = op.rule == UpdateRule::bulk, unfused = op.rule == UpdateRule::unfused;
  float last = h[0];
  if (reduced && *reduced != 0.0f) last = *reduced;  // N4.1: NaN is not 0.0

  std::vector<float> window(h.begin() + 1, h.end());  // N4.2: a[i] = h[i+1], a[L-1] = last
  window.push_back(last);

  Updated u{old, last, 0};
  const bool rolls = !(bulk && last == 0.0f);  // N4.3; N4.4 and N4.5 always roll
  if (rolls) {
    for (size_t i = 1; i < length; ++i) u.slot.history[i] = window[i];
    u.slot.history[0] = 0.0f;
  }

  if (op.algo == AmaxAlgo::most_recent) {
    u.amax = last;
  } else if (rolls) {
    for (const float a : window) {
      if (unfused && std::isnan(a)) u.amax = kNaN;  // N4.5: NaN wins, and nothing is larger than it
      else if (a > u.amax) u.amax = a;              // N4.2: false for NaN
    }
  }

  if (std::isfinite(u.amax) && u.amax > 0) {  // N4.6: else the old scale stays
    const double max = max_of(element);
    const auto less_margin = [&](double v) {
      return narrowed(std::scalbln(v, -static_cast<long>(op.margin)));
    };                                                                              // fl(v * 2^-margin)
    const double s = unfused ? less_margin(narrowed(narrowed(1.0 / u.amax) * max))  // N4.5
                             : narrowed(less_margin(max) / u.amax);                 // N4.6
    u.slot.scale = static_cast<float>(s);
  }
  const bool clamped = unfused ? u.slot.scale == kInfinity : std::isinf(u.slot.scale);  // N4.7
  if (clamped) u.slot.scale = std::numeric_limits<float>::max();
  return u;
}

// A float as it is stored, NaN payload and all.
float moved_from(const ConstBuffer& b, int64_t i) {
  float value;
  std::memcpy(&value, b.bytes.data() + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}
void move_to(const Buffer& b, int64_t i, float value) {
  std::memcpy(b.bytes.data() + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
}
TraceStep bits_step(std::string clause, std::string what, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return code_step(std::move(clause), std::move(what), Encoding::f32, bits);
}

// Column `slot` of the planes of an update.
Updated updated_slot(const Run& run, int64_t slot) {
  const ConstBuffer& history = run.input("history");
  const int64_t length = history.plane->logical.rows, slots = history.plane->logical.cols;
  Slot old;
  for (int64_t i = 0; i < length; ++i) old.history.push_back(moved_from(history, i * slots + slot));
  old.scale = moved_from(run.input("scale"), slot);
  const Update& op = *run.problem.as<Update>();
  const float reduced = op.reduction ? moved_from(run.input("reduced"), slot) : 0.0f;
  return updated(old, op.reduction ? &reduced : nullptr, op, run.quantizer(Direction::row).element);
}

void update(const Run& run) {
  const Buffer &history = run.output("next.history"), &scale = run.output("next.scale");
  const int64_t length = history.plane->logical.rows, slots = history.plane->logical.cols;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const Slot next = updated_slot(run, slot).slot;
    for (int64_t i = 0; i < length; ++i)
      move_to(history, i * slots + slot, next.history[static_cast<size_t>(i)]);
    move_to(scale, slot, next.scale);
  }
}

std::vector<TraceStep> trace_update(const Run& run, int64_t slot) {
  const Updated u = updated_slot(run, slot);
  const bool most_recent = run.problem.as<Update>()->algo == AmaxAlgo::most_recent;
  return {bits_step("N4.1", "latest amax", u.last),
          value_step("N4.2", most_recent ? "amax: the latest" : "amax over the window", u.amax),
          bits_step("N4.6", "new scale (N4.7 applied)", u.slot.scale)};
}

// What the elements of a quantize share: x as it is stored, and what is given.
struct Traced {
  Values stored, number, prior, amax;
};

std::vector<TraceStep> trace_quantize(const Traced& t, const Quantizer& q, int64_t i, int64_t j) {
  const int64_t of = scale_row(q, i);
  const bool decodes = q.numerics.scale_order != ScaleOrder::encode_first;
  const Given given = given_scale(t.number(of, 0), q);
  std::vector<TraceStep> steps = {
      value_step("N3.1", "prior amax", t.prior(of, 0)),
      value_step(q.row_scaled ? "N3.12" : "N3.1",
                 q.row_scaled ? "amax of the stored row" : "amax of the tensor", t.amax(of, 0)),
      decodes ? value_step("N17.5", "decode scale (given)", t.number(of, 0))
              : value_step("N3.11", "scale (given)", t.number(of, 0)),
      decodes ? value_step("N17.5", "factor", given.factor.value)
              : value_step("N3.7", "decode scale", given.scale_inv)};
  for (TraceStep& step : trace_element(t.stored(i, j), given.factor, q, "N3.8"))
    steps.push_back(std::move(step));
  return steps;
}

Tracer trace(const Run& run, Direction d) {
  if (run.problem.as<Dequantize>()) return trace_dequantize_per_tensor(run, d);
  if (run.problem.as<Update>()) return [run](int64_t, int64_t col) { return trace_update(run, col); };
  Traced t{seen(run, d),
           values(run.input(d, "given.scale"), run.threads),
           values(run.input(d, "prior.amax"), run.threads),
           {}};
  t.amax = accumulated(t.stored, t.prior, run.quantizer(d), run.threads);
  return [run, d, t = std::move(t)](int64_t row, int64_t col) {
    const auto [i, j] = seen_at(d, row, col);
    return trace_quantize(t, run.quantizer(d), i, j);
  };
}

}  // namespace

const Format formats::fp8_delayed = {
    .quantize = quantize, .dequantize = dequantize_per_tensor, .update = update, .trace = trace};

}  // namespace assay::reference

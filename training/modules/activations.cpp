#include "training/modules/activations.h"

#include <cmath>
#include <iterator>

#include "training/base/f32.h"

namespace assay::training {
namespace {

float tanh32(float x) { return static_cast<float>(std::tanh(static_cast<double>(x))); }
float exp32(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

float sigmoid(float x) { return 1.0f / (1.0f + exp32(-x)); }
float dsigmoid(float x) {
  const float s = sigmoid(x);
  return s * (1.0f - s);
}
float gelu(float x) { return x * (0.5f + 0.5f * tanh32(x * (0.79788456f + 0.03567741f * x * x))); }
float dgelu(float x) {
  const float t = tanh32(0.79788456f * x * (1.0f + 0.044715f * x * x));
  return 0.5f * x * ((1.0f - t * t) * (0.79788456f + 0.1070322243f * x * x)) + 0.5f * (1.0f + t);
}
float qgelu(float x) { return x * sigmoid(1.702f * x); }
float dqgelu(float x) { return 1.702f * x * dsigmoid(1.702f * x) + sigmoid(1.702f * x); }
float relu(float x) { return x > 0 ? x : 0.0f; }  // NaN and -0 give +0
float drelu(float x) { return x > 0 ? 1.0f : 0.0f; }
float srelu(float x) { return x > 0 ? x * x : 0.0f; }
float dsrelu(float x) { return x > 0 ? 2.0f * x : 0.0f; }
float silu(float x) { return x * sigmoid(x); }
float dsilu(float x) { return x * dsigmoid(x) + sigmoid(x); }

struct Row {
  std::string_view name;
  bool gated;
  float (*f)(float);
  float (*df)(float);
};
constexpr Row kRows[] = {
    {"gelu", false, gelu, dgelu},    {"qgelu", false, qgelu, dqgelu}, {"relu", false, relu, drelu},
    {"srelu", false, srelu, dsrelu}, {"silu", false, silu, dsilu},    {"glu", true, sigmoid, dsigmoid},
    {"geglu", true, gelu, dgelu},    {"qgeglu", true, qgelu, dqgelu}, {"reglu", true, relu, drelu},
    {"sreglu", true, srelu, dsrelu}, {"swiglu", true, silu, dsilu},
};
const Row& row_of(Activation a) { return kRows[static_cast<size_t>(a)]; }

}  // namespace

std::string_view name_of(Activation a) { return row_of(a).name; }
bool is_gated(Activation a) { return row_of(a).gated; }
std::optional<Activation> activation_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].name == name) return static_cast<Activation>(i);
  return std::nullopt;
}

ArrayPtr activation_forward(Session& session, Activation which, const ArrayPtr& x) {
  const Row& row = row_of(which);
  const std::vector<float> in = floats(session, x);
  Dims shape = x->shape;
  if (row.gated) shape.back() /= 2;
  const size_t width = static_cast<size_t>(shape.back());
  std::vector<float> out(static_cast<size_t>(count_of(shape)));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t a = row.gated ? i / width * 2 * width + i % width : i;
    out[i] = row.gated ? row.f(in[a]) * in[a + width] : row.f(in[a]);
  }
  return f32_array(shape, out);
}

ArrayPtr activation_backward(Session& session, Activation which, const ArrayPtr& d, const ArrayPtr& x) {
  const Row& row = row_of(which);
  const std::vector<float> in = floats(session, x), grad = floats(session, d);
  const size_t width = static_cast<size_t>(d->shape.back());
  std::vector<float> out(in.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t a = row.gated ? i / width * 2 * width + i % width : i;
    out[a] = row.gated ? row.df(in[a]) * grad[i] * in[a + width] : row.df(in[a]) * grad[i];
    if (row.gated) out[a + width] = grad[i] * row.f(in[a]);
  }
  return f32_array(x->shape, out);
}

}  // namespace assay::training

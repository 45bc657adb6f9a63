#include "training/modules/norms.h"

#include <cmath>

#include "training/base/f32.h"

namespace assay::training {
namespace {

std::vector<float> scale_of(Session& session, const NormSettings& settings, const ArrayPtr& gamma) {
  std::vector<float> g = floats(session, gamma);
  if (settings.zero_centered_gamma)
    for (float& v : g) v += 1.0f;
  return g;
}

}  // namespace

std::string_view name_of(Norm n) { return n == Norm::LayerNorm ? "LayerNorm" : "RMSNorm"; }

NormForward norm_forward(Session& session, const NormSettings& settings, const ArrayPtr& x,
                         const ArrayPtr& gamma, const ArrayPtr& beta) {
  const bool centred = settings.norm == Norm::LayerNorm;
  const Shape s = flattened(x->shape);
  const size_t rows = static_cast<size_t>(s.rows), cols = static_cast<size_t>(s.cols);
  const std::vector<float> in = floats(session, x), g = scale_of(session, settings, gamma),
                           b = beta ? floats(session, beta) : std::vector<float>(cols, 0.0f);
  const float n = static_cast<float>(s.cols);
  std::vector<float> out(in.size()), mean(rows, 0.0f), rsigma(rows);
  for (size_t r = 0; r < rows; ++r) {
    const float* row = in.data() + r * cols;
    float sum = 0, squares = 0;
    if (centred)
      for (size_t c = 0; c < cols; ++c) sum += row[c];
    mean[r] = centred ? sum / n : 0.0f;
    for (size_t c = 0; c < cols; ++c) {
      const float d = row[c] - mean[r];
      squares += d * d;
    }
    rsigma[r] = 1.0f / std::sqrt(squares / n + settings.eps);
    for (size_t c = 0; c < cols; ++c) {
      const float y = (row[c] - mean[r]) * rsigma[r] * g[c];
      out[r * cols + c] = beta ? y + b[c] : y;  // without beta nothing is added: -0 stays
    }
  }
  return {f32_array(x->shape, out), centred ? f32_array({s.rows}, mean) : nullptr,
          f32_array({s.rows}, rsigma)};
}

NormBackward norm_backward(Session& session, const NormSettings& settings, const ArrayPtr& dz,
                           const ArrayPtr& x, const ArrayPtr& gamma, const NormForward& saved) {
  const bool centred = settings.norm == Norm::LayerNorm;
  const Shape s = flattened(x->shape);
  const size_t rows = static_cast<size_t>(s.rows), cols = static_cast<size_t>(s.cols);
  const std::vector<float> in = floats(session, x), grad = floats(session, dz),
                           g = scale_of(session, settings, gamma), rsigma = floats(session, saved.rsigma);
  const std::vector<float> mean = centred ? floats(session, saved.mean) : std::vector<float>(rows, 0.0f);
  const float n = static_cast<float>(s.cols);
  std::vector<float> dx(in.size()), dgamma(cols, 0.0f), dbeta(cols, 0.0f), y(cols);
  for (size_t r = 0; r < rows; ++r) {
    float sum_gy = 0, sum_g = 0;
    for (size_t c = 0; c < cols; ++c) {
      const float d = grad[r * cols + c];
      y[c] = (in[r * cols + c] - mean[r]) * rsigma[r];
      sum_gy += d * g[c] * y[c];
      sum_g += d * g[c];
      dgamma[c] += d * y[c];
      dbeta[c] += d;
    }
    for (size_t c = 0; c < cols; ++c) {
      const float projected = sum_gy / n * y[c];
      dx[r * cols + c] =
          rsigma[r] * (grad[r * cols + c] * g[c] - (centred ? projected + sum_g / n : projected));
    }
  }
  return {f32_array(x->shape, dx), f32_array({s.cols}, dgamma),
          centred ? f32_array({s.cols}, dbeta) : nullptr};
}

}  // namespace assay::training

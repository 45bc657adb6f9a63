#include "compare/arithmetic/rotation.h"

#include <bit>
#include <cmath>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"

namespace assay {

double rotated16(const float (&x)[16], uint16_t sign_mask, int64_t k, unsigned stages, bool rounded) {
  float v[16];
  for (unsigned i = 0; i < 16; ++i) v[i] = (sign_mask >> i & 1) != 0 ? -x[i] : x[i];
  for (unsigned h = 1; h < 16; h *= 2) {
    for (unsigned i = 0; i < 16 && (stages & h) != 0; ++i)
      if ((i & h) == 0) {
        const float a = v[i], b = v[i | h];
        v[i] = a + b;
        v[i | h] = a - b;
      }
    for (float& f : v)
      if (rounded) f = static_cast<float>(bf16_of(f));
  }
  return v[k] * 0.25f;
}

std::optional<double> rotated(const PlaneData& x, uint16_t sign_mask, int64_t r, int64_t c) {
  const int64_t first = r / 16 * 16;
  const unsigned j = static_cast<unsigned>(r % 16);
  double sum = 0;
  for (unsigned i = 0; i < 16; ++i) {
    const double v = value_of(x.plane.encoding, code_at(x.plane, x.bytes, index_of(x.plane, first + i, c)));
    if (!std::isfinite(v)) return {};
    sum += ((sign_mask >> i & 1) ^ (std::popcount(i & j) & 1)) != 0 ? -v : v;
  }
  return sum;
}

}  // namespace assay

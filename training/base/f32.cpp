#include "training/base/f32.h"

#include <algorithm>
#include <cstring>

namespace assay::training {

std::vector<F32Bits> f32_bits(const Array& a) {
  std::vector<F32Bits> out(static_cast<size_t>(a.count()));
  if (!out.empty()) std::memcpy(out.data(), a.bytes().data(), out.size() * sizeof(F32Bits));
  return out;
}

std::vector<float> floats(Session& session, const ArrayPtr& x) {
  const ArrayPtr wide = contiguous(cast(session, x, DType::float32));
  std::vector<float> values(static_cast<size_t>(wide->count()));
  if (!values.empty()) std::memcpy(values.data(), wide->data(), values.size() * sizeof(float));
  return values;
}

ArrayPtr f32_array(Dims shape, std::span<const float> values) {
  return from_bytes(std::move(shape), DType::float32, std::as_bytes(values));
}

ArrayPtr sum_rows(Session& session, const ArrayPtr& x, RowSum order, int64_t rows_of_chunk) {
  const std::vector<float> v = floats(session, x);
  const Shape s = flattened(x->shape);
  const int64_t chunk = order == RowSum::plain ? std::max<int64_t>(s.rows, 1) : rows_of_chunk;
  const int64_t lanes = order == RowSum::chunks_rowwise_only ? 32 : 1;
  std::vector<float> total(static_cast<size_t>(s.cols), 0.0f);
  for (int64_t c = 0; c < s.cols; ++c)
    for (int64_t first = 0; first < s.rows; first += chunk) {
      float of_chunk = 0;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        float of_lane = 0;
        for (int64_t r = first + lane; r < std::min(first + chunk, s.rows); r += lanes)
          of_lane += v[static_cast<size_t>(r * s.cols + c)];
        of_chunk += of_lane;
      }
      total[static_cast<size_t>(c)] += of_chunk;
    }
  return f32_array({s.cols}, total);
}

ArrayPtr add(Session& session, const ArrayPtr& a, const ArrayPtr& b) {
  std::vector<float> sum = floats(session, a);
  const std::vector<float> other = floats(session, b);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return f32_array(a->shape, sum);
}

}  // namespace assay::training

#include "training/modules/fused_producers.h"

#include <bit>
#include <cmath>

#include "training/base/f32.h"
#include "training/formats/nvfp4.h"
#include "training/formats/observer.h"
#include "training/modules/tensor_parallel.h"

namespace assay::training {
namespace {

// The largest magnitude, NaN skipped (N3.1): what an activation's kernel leaves beside its rounded result.
F32Bits amax_of(Session& session, const ArrayPtr& x) {
  float amax = 0;
  for (const float v : floats(session, x)) amax = std::fabs(v) > amax ? std::fabs(v) : amax;
  return std::bit_cast<F32Bits>(amax);
}

// Classes whose activation kernels take the amax before they round. NVFP4 with RHT needs the amax of the
// rotated tensor instead.
bool takes_amax_unrounded(const Quantizer& q) {
  const auto* fp4 = dynamic_cast<const NVFP4Quantizer*>(&q);
  return q.class_name() == "Float8CurrentScalingQuantizer" ||
         (fp4 && !fp4->with_rht && !fp4->row_scaled_nvfp4);
}

}  // namespace

Produced produce(Session& session, const ArrayPtr& unrounded, DType dtype, ProducerKind kind,
                 Quantizer* given, bool fuse, const std::string& who, Usages usages, const GroupPtr& group) {
  Produced out;
  Quantizer* q = given ? &unwrapped(*given) : nullptr;
  if (!fuse || !q || !fuses_with_producers(*q)) {
    out.tensor = out.rounded = cast(session, unrounded, dtype);
    return out;
  }
  out.quantized = true;
  StoragePtr made;
  if (q->class_name() == "Float8Quantizer") {
    made = quantize_for(session, *given, unrounded, who, usages, group);
    made->dtype = dtype;
  } else {
    out.rounded = cast(session, unrounded, dtype);
    const bool gives_amax = kind == ProducerKind::activation && takes_amax_unrounded(*q);
    made = quantize_for(session, *given, out.rounded, who, usages, group,
                        gives_amax ? std::optional(amax_of(session, unrounded)) : std::nullopt);
  }
  out.tensor = made;
  return out;
}

bool fuses_before_gather(const LinearCall& c) { return !meets(c.input_group()) || c.options.fusions.gathers; }

Usages usages_behind_norm(const LinearCall& c) {
  const Quantizer* q = c.quantizers.input.get();
  const bool rows_travel = q && meets(c.input_group()) && q->supports_only_rowwise_all_gather();
  return {true, c.columns_of_input() && !rows_travel};
}

}  // namespace assay::training

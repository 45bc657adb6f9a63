// Philox: one thread a counter (N12.1).
#include "fast/lane/philox.cuh"
#include "fast/move/patch.cuh"
#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct PhiloxArgs {
  const uint32_t *counters = nullptr, *keys = nullptr;
  uint32_t* words = nullptr;
  int64_t count = 0;
  int rounds = 10;
};

__global__ void __launch_bounds__(kThreads) philox_kernel(PhiloxArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const uint32_t* c = a.counters + 4 * i;
  const uint4 words =
      philox(make_uint4(c[0], c[1], c[2], c[3]), make_uint2(a.keys[2 * i], a.keys[2 * i + 1]), a.rounds);
  uint32_t* to = a.words + 4 * i;
  to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
}

}  // namespace

std::string run_philox(const Job& job) {
  const PhiloxArgs args{job.input("x"), job.input("key"), job.output("y"), job.problem.x.shape.rows,
                        job.problem.as<Philox>()->rounds};
  if (args.count != 0)
    launch({.name = "philox", .grid = unsigned((args.count + kThreads - 1) / kThreads), .block = kThreads},
           philox_kernel, args);
  return "philox";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE

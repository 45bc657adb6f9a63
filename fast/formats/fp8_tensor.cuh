// Launches that delayed and current scaling share: one tuned patch kernel. Other Numerics and alignments go
// through direction lanes.
#pragma once
#include "fast/choose.h"
#include "fast/directions.h"
#include "fast/lane/fp8_tensor.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/pair.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// What the tuned kernel needs: vectors, the default Numerics but for what the scale alone shows, and columns
// that hold the bytes of the rows (N3.9).
inline bool fp8_tunable(const Job& job) {
  const Problem& p = job.problem;
  const Quantizer& any = p.row ? *p.row : *p.col;
  Numerics tuned;
  tuned.inf_amax = any.numerics.inf_amax, tuned.scale_limit = any.numerics.scale_limit;
  const Shape s = p.x.shape;
  return job.policy != Policy::general && any.numerics == tuned && (!p.row || !p.col || *p.row == *p.col) &&
         s.cols % kPatch == 0 && (!p.col || s.rows % kPatch == 0) && aligned(16, {job.input<void>("x")}) &&
         aligned(8, {job.output<void>("row.data"), job.output<void>("col.data")});
}

// Casts every element. `name` is the format's; lane(element, i): the lane of rows (0) or columns (1).
// `second`: another pass has just read x.
template <class MakeLane>
std::string launch_fp8_pair(const Job& job, const std::string& name, bool second, MakeLane lane) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  auto arguments = [&](auto row_lane, auto col_lane) {
    return PairArgs<decltype(row_lane), decltype(col_lane)>{job.input<void>("x"),
                                                            job.input("noop"),
                                                            {s.rows, s.cols},
                                                            row_lane,
                                                            col_lane,
                                                            job.output<uint8_t>("row.data"),
                                                            job.output<uint8_t>("col.data"),
                                                            second};
  };
  with_source(p.x.source, [&](auto source) {
    using S = decltype(source);
    with_fp8((p.row ? p.row : p.col)->element, [&](auto element) {
      const auto row_lane = lane(element, 0), col_lane = lane(element, 1);
      if (p.row && p.col) launch_pair<S>("fp8_pair<row, col>", arguments(row_lane, col_lane));
      else if constexpr (decltype(row_lane)::kLines)
        launch_pair<S>("fp8_pair<col>",
                       arguments(None{}, col_lane));  // rows alone have a kernel of their own
      else if (p.row) launch_pair<S>("fp8_pair<row>", arguments(row_lane, None{}));
      else launch_pair<S>("fp8_pair<col>", arguments(None{}, col_lane));
    });
  });
  return name + "_pair<" + directions(p) + "> " + how(p);
}

// The scale_inv of the tensor or of the stored row (N3.10, N3.12).
struct Fp8DecodeScale {
  const uint32_t* scale_inv = nullptr;
  bool by_line = false;
  ASSAY_LANE float operator()(int64_t, int64_t line) const { return as_float(scale_inv[by_line ? line : 0]); }
};

template <FormatId F> std::string dequantize_fp8(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  const Fp8DecodeScale rule{job.input(d, "scale_inv"), job.problem.quantizer(d)->row_scaled};
  if (d == Direction::row)
    return launch_dequantize<F, false>(job, d, BlockScales<false, Fp8DecodeScale>{rule, {}});
  return launch_dequantize<F, true>(job, d, BlockScales<true, Fp8DecodeScale>{rule, {}});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE

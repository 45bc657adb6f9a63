// The fifth set: gemm.
#include <string>

#include "reference/tensor.h"
#include "tests/self/hunt/fifth_bugs.h"

namespace assay::fifth {

namespace {

using reference::load;
using reference::store;

const Gemm& gemm_of(const Problem& p) { return *p.as<Gemm>(); }

// Of which operand and part a plane is: "a.data".
std::string plane_of(Side s, std::string_view stem) {
  return std::string(name_of(s)) + "." + std::string(stem);
}

bool is_plain(const Operand& o) { return o.quantizer.format == FormatId::identity; }

bool of_whole_codes(const Problem& p) {
  return !is_packed(gemm_of(p).a.quantizer) && !is_packed(gemm_of(p).b.quantizer);
}

// NVIDIA/cutlass#3536: tiles of 32 go through 2 stages. The tail behind the last whole tile is left out where
// the stages come out even, because the place that tells whether there is one has run ahead by then.
void tail_after_even_stages(const Call& call) {
  const Gemm& g = gemm_of(call.problem);
  const int64_t whole = g.k / 32 * 32;
  if (g.k == whole || whole == 0 || whole % 64 != 0) return call.right();
  Rerun rerun(call.problem, call);
  for (Side s : kSides) {
    const Buffer data = rerun.input(plane_of(s, "data"));
    const bool down = g.direction(s) == Direction::col && !data.plane->transposed;  // k counts rows
    const Shape shape = data.plane->padded;
    for (int64_t i = 0; i < shape.rows; ++i)
      for (int64_t j = 0; j < shape.cols; ++j)
        if ((down ? i : j) >= whole) store(data, i * shape.cols + j, 0);
  }
  rerun.run();
  rerun.give("d", call);
}

bool of_bias(const Problem& p) { return gemm_of(p).bias.has_value(); }

// ROCm/tritonBLAS#67: from k = 128 on two workgroups share a tile, and the one that adds up their sums leaves
// the bias out.
void split_without_bias(const Call& call) {
  if (gemm_of(call.problem).k < 128) return call.right();
  Problem bare = call.problem;
  bare.as<Gemm>()->bias.reset();
  Rerun rerun(bare, call);
  rerun.run();
  rerun.give("d", call);
}

bool of_plain_f32(const Problem& p) {
  const Gemm& g = gemm_of(p);
  return is_plain(g.a) && is_plain(g.b) && g.a.source == Encoding::f32 && g.b.source == Encoding::f32 &&
         (g.sum == GemmSum::f32_sequential || g.sum == GemmSum::exact);
}

// ml-explore/mlx#3860: operands of f32 go to the tensor cores as TF32 wherever their sizes let them, which is
// where all are multiples of 4. Of a fraction only the first 10 bits are read.
void aligned_as_tf32(const Call& call) {
  const Gemm& g = gemm_of(call.problem);
  const Shape d = call.problem.x.shape;
  if (d.rows % 4 != 0 || d.cols % 4 != 0 || g.k % 4 != 0) return call.right();
  Rerun rerun(call.problem, call);
  for (Side s : kSides) {
    const Buffer data = rerun.input(plane_of(s, "data"));
    for (int64_t i = 0; i < data.plane->padded.count(); ++i) {
      const uint32_t bits = load(reading(data), i);
      if ((bits & 0x7FFFFFFF) <= 0x7F800000) store(data, i, bits & ~0x1FFFu);  // a NaN stays one
    }
  }
  rerun.run();
  rerun.give("d", call);
}

bool of_plain_weight(const Problem& p) { return is_plain(gemm_of(p).a) && gemm_of(p).op != GemmOp::TN; }

// vllm-project/vllm#44110: whether the weight has to be transposed is told from its shape. A square one has
// both shapes, and is taken for one that was transposed before.
void square_as_it_is(const Call& call) {
  const int64_t m = call.problem.x.shape.cols;
  if (m != gemm_of(call.problem).k) return call.right();
  Rerun rerun(call.problem, call);
  const ConstBuffer& from = call.input("a.data");
  const Buffer data = rerun.input("a.data");
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) store(data, i * m + j, load(from, j * m + i));
  rerun.run();
  rerun.give("d", call);
}

constexpr Bug kGemm[] = {
    {"gemm_tail_after_even_stages", "gemm", of_whole_codes, tail_after_even_stages},
    {"gemm_split_without_bias", "gemm", of_bias, split_without_bias},
    {"gemm_aligned_as_tf32", "gemm", of_plain_f32, aligned_as_tf32},
    {"gemm_square_as_it_is", "gemm", of_plain_weight, square_as_it_is},
};

}  // namespace

std::span<const Bug> bugs_of_gemm() { return kGemm; }

}  // namespace assay::fifth

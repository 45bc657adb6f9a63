#include "training/attention/core_kernels.h"

#include "tests/training/formats/quantizer_kit.h"

namespace assay::training {

namespace {

// (s, b, h, d) of one sequence, one head and one element: a number for each token.
ArrayPtr tokens(Session& session, const std::vector<float>& v) {
  const Dims shape = {static_cast<int64_t>(v.size()), 1, 1, 1};
  return cast(session, from_bytes(shape, DType::float32, std::as_bytes(std::span(v))), DType::bfloat16);
}
std::vector<float> numbers(Session& session, const Tensorlike& t) {
  const ArrayPtr wide = cast(session, std::get<ArrayPtr>(t), DType::float32);
  std::vector<float> out(static_cast<size_t>(wide->count()));
  std::ranges::copy(wide->bytes(), std::as_writable_bytes(std::span(out)).begin());
  return out;
}

}  // namespace

// One query of zero sees two keys alike, so S is 1/2 twice, and dP is 1/4 and -1/4 (N20.14). Scales that are
// too large cut both off at 448 / scale, and every product behind a cast has to show it (N20.11, N20.12,
// N20.15).
TEST(CoreKernels, ProductsReadSAndDPAsTheirQuantizersCastThem) {
  Setting t;
  Session& session = t.session;
  std::vector<GemmRecord> record;
  CoreSettings one_query;
  one_query.kv = 2, one_query.causal = false;
  const AttentionKernels kernels = core_kernels(session, one_query, record);
  const auto one = delayed(1);
  const std::array<StoragePtr, 3> qkv = {one->quantize(session, tokens(session, {0})),
                                         one->quantize(session, tokens(session, {1, 0})),
                                         one->quantize(session, tokens(session, {1, 0}))};
  const ArrayPtr d_o = tokens(session, {1});
  const struct {
    QuantizerPtr s, dp;
    float o, dv, dq;
  } cases[] = {
      {nullptr, nullptr, 0.5f, 0.5f, 0.25f},
      {delayed(1024), nullptr, 0.4375f, 0.4375f, 0.25f},
      {nullptr, delayed(4096), 0.5f, 0.5f, 0.109375f},
      {delayed(1024), delayed(4096), 0.4375f, 0.4375f, 0.109375f},
  };
  for (const auto& c : cases) {
    ForwardCall forward;
    forward.qkv = qkv, forward.s = c.s, forward.layout = "sbhd_sbhd_sbhd";
    const Tensorlike o = kernels.forward(forward);
    EXPECT_EQ(numbers(session, o), std::vector<float>{c.o});
    BackwardCall backward;
    backward.qkv = {qkv[0], qkv[1], qkv[2]}, backward.layout = forward.layout;
    backward.o = o, backward.d_o = d_o, backward.s = c.s, backward.dp = c.dp;
    const std::array<Tensorlike, 3> d = kernels.backward(backward);
    EXPECT_EQ(numbers(session, d[0]), std::vector<float>{c.dq});
    EXPECT_EQ(numbers(session, d[1]), (std::vector<float>{0, 0})) << "Q is zero";
    EXPECT_EQ(numbers(session, d[2]), (std::vector<float>{c.dv, c.dv}));
  }
}

}  // namespace assay::training

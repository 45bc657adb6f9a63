// The judge judged: one bit is flipped in every plane of every format and op, at the first, last, middle and tail elements and in the padding, and
// must be found there, with the right codes.
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "compare/claims.h"
#include "compare/runner.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// Copies the reference, then flips one bit.
class Injector final : public Subject {
 public:
  Injector() : reference_(make_reference_subject()) {}
  std::string_view name() const override { return "injected"; }
  Support supports(const Problem& p) const override { return reference_->supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out, const Environment& env) override {
    Environment alone = env;
    alone.threads = 1;
    const Served s = reference_->run(p, in, out, alone);
    if (const Buffer* b = find<Buffer>(out, plane)) {
      before = code_at(b->plane->encoding, b->bytes, index);
      after = before ^ (1u << bit);
      set_code(b->plane->encoding, b->bytes, index, after);
    }
    return s;
  }
  std::string plane;
  int64_t index = 0;
  int bit = 0;
  uint32_t before = 0, after = 0;

 private:
  std::unique_ptr<Subject> reference_;
};

const char* const kLines[] = {
    "cast e4m3 5x67 bf16", "cast e5m2 5x67 f32", "cast e2m1 5x67 f16", "cast e2m3 5x67 bf16", "cast e3m2 5x67 bf16", "cast e8m0 5x67 f32 round=rp", "cast bf16 5x67 f32",
    "cast f16 5x67 bf16", "cast f32 5x67 e4m3 fill=every_code",
    "quantize identity 5x67 bf16 dir=both", "quantize fp8_delayed 33x67 bf16 dir=both", "quantize fp8_current 33x67 f32 dir=both", "quantize mxfp8 33x67 bf16 dir=both",
    "quantize mxfp8 130x160 f16 dir=both scales=gemm", "quantize mxfp8 33x67 bf16 dir=both block=32x32", "quantize mxfp8/fp8_current 33x67 bf16",
    "dequantize fp8_delayed 33x67 bf16", "dequantize fp8_current 33x67 bf16 dir=col", "dequantize mxfp8 33x67 f32", "dequantize identity 5x67 bf16",
    "update fp8_delayed 16x12 f32", "swizzle mxfp8 130x160 e8m0", "swizzle mxfp8 130x160 e8m0 dir=col inverse=1", "scale_chain mxfp8 1x64 f32", "scale_chain fp8_current 1x64 f32",
};

TEST(JudgeInjection, EveryPlaneEveryCorner) {
  Subjects subjects;
  subjects.owned.push_back(std::make_unique<fakes::Spoiled>("reference", nullptr));
  subjects.owned.push_back(std::make_unique<Injector>());
  Injector& injector = static_cast<Injector&>(*subjects.owned[1]);
  std::set<std::string> ops, formats;
  size_t injected = 0;
  for (const char* line : kLines) {
    SCOPED_TRACE(line);
    const Result<Problem> problem = parse_line(line);
    ASSERT_TRUE(problem) << problem.error().text();
    ops.emplace(op_name(*problem));
    for (Direction d : kDirections)
      if (problem->quantizer(d)) formats.emplace(info(problem->quantizer(d)->format).name);
    SuiteEntry entry = entry_of(*problem);
    for (const Plane& plane : output_planes(*problem)) {
      SCOPED_TRACE(plane.name);
      const Shape l = plane.logical, p = plane.padded;
      std::set<std::pair<int64_t, int64_t>> places = {{0, 0}, {l.rows - 1, l.cols - 1}, {l.rows / 2, l.cols / 2}, {0, l.cols - 1}, {l.rows - 1, 0}};
      if (p.cols > l.cols) places.insert({{0, l.cols}, {l.rows - 1, p.cols - 1}});
      if (p.rows > l.rows) places.insert({{l.rows, 0}, {p.rows - 1, p.cols - 1}});
      for (const auto& [row, col] : places)
        for (int bit : {0, info(plane.encoding).bits - 1}) {
          injector.plane = plane.name;
          injector.index = index_of(plane, row, col);
          injector.bit = bit;
          const Verdict v = judge_case(entry, subjects, {"injected"}, {})[0];
          const bool padding = row >= l.rows || col >= l.cols;
          ASSERT_EQ(v.outcome, Outcome::failed) << "(" << row << ", " << col << ") bit " << bit;
          ASSERT_FALSE(v.breaches.empty());
          const Breach& b = v.breaches[0];
          ASSERT_EQ(b.claim, padding ? "padding" : "parity");
          ASSERT_EQ(b.plane, plane.name);
          ASSERT_EQ(b.row, row);
          ASSERT_EQ(b.col, col);
          ASSERT_EQ(b.in_padding, padding);
          ASSERT_EQ(b.differ, 1);
          ASSERT_EQ(b.got_code, injector.after);
          if (!padding) {
            ASSERT_EQ(b.want_code, injector.before);
          }
          ++injected;
        }
    }
  }
  EXPECT_EQ(ops.size(), std::size(kOps));            // a new op or format must be added above
  EXPECT_EQ(formats.size(), kFormats.size());
  EXPECT_GT(injected, 400u);
}

}  // namespace
}  // namespace assay

// The judge judged: one bit is flipped in every plane of every format and op, at the first, last, middle and
// tail elements and in the padding, and must be found there, with the right codes.
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "compare/judge/cases.h"
#include "compare/judge/claims.h"
#include "compare/subjects/forwarding.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// Copies the reference, then flips one bit of one line's output.
class Injector final : public ForwardingSubject {
 public:
  Injector() : ForwardingSubject(make_reference_subject(), "injected") {}
  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out,
             const Environment& env) override {
    Environment alone = env;
    alone.threads = 1;
    const Served s = ForwardingSubject::run(p, in, out, alone);
    if (!(p == problem)) return s;  // a claim runs other lines too: directions, members
    if (const Buffer* b = find<Buffer>(out, plane)) {
      before = code_at(*b->plane, b->bytes, index);
      after = before ^ (1u << bit);
      set_code(*b->plane, b->bytes, index, after);
    }
    return s;
  }
  Problem problem;
  std::string plane;
  int64_t index = 0;
  int bit = 0;
  uint32_t before = 0, after = 0;
};

const char* const kLines[] = {
    "cast e4m3 5x67 bf16",
    "cast e5m2 5x67 f32",
    "cast e2m1 5x67 f16",
    "cast e2m3 5x67 bf16",
    "cast e3m2 5x67 bf16",
    "cast e8m0 5x67 f32 round=rp",
    "cast bf16 5x67 f32",
    "cast f16 5x67 bf16",
    "cast f32 5x67 e4m3 fill=every_code",
    "quantize identity 5x67 bf16 dir=both",
    "quantize fp8_delayed 33x67 bf16 dir=both",
    "quantize fp8_current 33x67 f32 dir=both",
    "quantize mxfp8 33x67 bf16 dir=both",
    "quantize mxfp8 130x160 f16 dir=both scales=gemm",
    "quantize mxfp8 33x67 bf16 dir=both block=32x32",
    "quantize mxfp8/fp8_current 33x67 bf16",
    "dequantize fp8_delayed 33x67 bf16",
    "dequantize fp8_current 33x67 bf16 dir=col",
    "dequantize mxfp8 33x67 f32",
    "dequantize identity 5x67 bf16",
    "update fp8_delayed 16x12 f32",
    "swizzle mxfp8 130x160 e8m0",
    "swizzle mxfp8 130x160 e8m0 dir=col inverse=1",
    "scale_chain mxfp8 1x64 f32",
    "scale_chain fp8_current 1x64 f32",
    "quantize fp8_block 130x260 bf16",
    "quantize fp8_block 130x260 bf16 block=128x128 scales=gemm",
    "quantize nvfp4 33x67 bf16",
    "quantize nvfp4 48x80 bf16 row_scaled=1 scales=gemm",
    "quantize nvfp4 48x80 bf16 col.rht=1 round=sr",
    "quantize mxfp4 33x67 f32",
    "quantize mxfp6 33x67 bf16",
    "quantize mxfp6 33x67 f32 element=e3m2 packing=packed",
    "quantize mxfp6/nvfp4 33x67 bf16 row.packing=packed col_source=row_dequantized",
    "dequantize mxfp6 33x67 bf16 dir=col packing=packed",
    "split mxfp6 49x67 bf16 groups=16,33 packing=packed capacity=4000",
    "gemm a=mxfp6 b=identity 33x20x50 a.packing=packed out=f32",
    "quantize mxfp8/nvfp4 33x67 bf16 col_source=row_dequantized",
    "dequantize fp8_block 33x67 bf16",
    "dequantize nvfp4 33x67 f32 dir=col",
    "dequantize mxfp4 33x67 bf16",
    "swizzle nvfp4 130x160 e4m3 dir=col",
    "swizzle fp8_block 130x260 f32",
    "scale_chain nvfp4 64x2 f32",
    "hadamard nvfp4 32x67 bf16",
    "philox u32 16x4 u32",
    "adam bf16 9x17 f32 step=3",
    "scale_state f16 9x17 f32",
    "cast e2m1 5x67 f32 round=sr",
    "split nvfp4 49x67 bf16 groups=16,0,33 capacity=4000",
    "split mxfp8/fp8_block 49x67 bf16 groups=16,33 scales=gemm",
    "split fp8_current 1x1139 bf16 vary=both groups=5x67,12x67",
    "quantize fp8_current 33x67 f32 dir=both row_scaled=1",
    "quantize fp8_current/mxfp8 33x67 bf16 row.row_scaled=1 col_source=row_dequantized",
    "dequantize fp8_current 33x67 bf16 dir=col row_scaled=1",
    "split fp8_current 49x67 bf16 groups=16,0,33 row_scaled=1",
    "gemm a=fp8_current b=fp8_current 33x20x64 row_scaled=1",
    "gemm a=mxfp8 b=nvfp4 33x20x64 fill=wide",
    "gemm a=fp8_block b=fp8_block 20x33x130 op=NT out=f32 beta=1 bias=f32",
    "attention fp8_current 24x32 bf16 heads=2 backward=1 mask=causal",
};

// One array that the judge describes by itself: a plane, or a member of a grouped one, `offset` elements into
// it.
struct Piece {
  Plane plane;
  int64_t offset;
};
std::vector<Piece> pieces_of(const Plane& plane) {
  if (plane.members.empty()) return {{plane, 0}};
  std::vector<Piece> out;
  for (size_t m = 0; m < plane.members.size(); ++m) {
    if (plane.members[m].logical.count() == 0) continue;
    out.push_back({member_plane(plane, m), plane.members[m].offset});
    out.back().plane.name += "[" + std::to_string(m) + "]";
  }
  return out;
}

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
    injector.problem = *problem;
    for (const Plane& whole : output_planes(*problem))
      for (const auto& [plane, offset] : pieces_of(whole)) {
        SCOPED_TRACE(plane.name);
        const Shape l = plane.logical, p = plane.padded;
        std::set<std::pair<int64_t, int64_t>> places = {
            {0, 0}, {l.rows - 1, l.cols - 1}, {l.rows / 2, l.cols / 2}, {0, l.cols - 1}, {l.rows - 1, 0}};
        if (p.cols > l.cols) places.insert({{0, l.cols}, {l.rows - 1, p.cols - 1}});
        if (p.rows > l.rows) places.insert({{l.rows, 0}, {p.rows - 1, p.cols - 1}});
        for (const auto& [row, col] : places)
          for (int bit : {0, info(plane.encoding).bits - 1}) {
            injector.plane = whole.name;
            injector.index = offset + index_of(plane, row, col);
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
    for (const Plane& whole : output_planes(*problem)) {  // N14.6: what stands beyond the members
      if (whole.padding != Padding::untouched) continue;
      injector.plane = whole.name;
      injector.index = whole.padded.cols - 1;
      injector.bit = 0;
      const Verdict v = judge_case(entry, subjects, {"injected"}, {})[0];
      ASSERT_EQ(v.outcome, Outcome::failed) << whole.name;
      ASSERT_EQ(v.breaches[0].claim, "untouched") << whole.name;
      ++injected;
    }
  }
  EXPECT_EQ(ops.size(), std::size(kOps));  // a new op or format must be added above
  EXPECT_EQ(formats.size(), kFormats.size());
  EXPECT_GT(injected, 1000u);
}

}  // namespace
}  // namespace assay

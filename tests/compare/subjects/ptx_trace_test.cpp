// The slice of a compiled kernel beside the reference's steps: on kernels whose first wrong instruction is
// known.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "compare/debug/slice_rows.h"
#include "compare/debug/trace.h"
#include "compare/subjects/forwarding.h"
#include "tests/compare/subjects/ptx_fixtures.h"

namespace assay {
namespace {

using namespace ptx_fixtures;

Slice slice_of(const std::string& path, const std::string& line, const std::string& plane = "") {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(load(path));
  TraceOptions options;
  options.problem = parsed(line);
  options.subject = subjects.owned[1]->name();
  options.plane = plane;
  options.slice = true;
  const auto traced = trace(options, subjects);
  if (!traced) throw std::runtime_error(traced.error().text());
  if (!traced->slice) throw std::runtime_error("no slice");
  return *traced->slice;
}
bool begins(const std::string& text, const std::string& with) { return text.starts_with(with); }

// docs/triton.md: the logarithm is rounded to -32, and the exponent of the scale is one too large.
TEST(PtxTrace, NamesTheFirstValueThatMissesTheReferences) {
  const Slice s = slice_of(fixture("mxfp8_log2_f32.json"),
                           "quantize mxfp8 1x1 f32 dir=row flavour=ocp fill=literal:2f7ffff0@0.0");
  EXPECT_EQ(s.plane, "row.scale_inv");
  ASSERT_TRUE(s.parting && s.parting->agreed);
  EXPECT_EQ(s.rows[*s.parting->agreed].same->what, "amax of the block");
  EXPECT_EQ(s.rows[*s.parting->agreed].step.bits, 0x2F7FFFF0u);
  EXPECT_EQ(s.parting->step.clause, "N17.6");
  EXPECT_TRUE(begins(s.rows[s.parting->row].step.instruction, "add.f32 %r62, %r61, 0fC1000000"))
      << s.rows[s.parting->row].step.instruction;
  EXPECT_EQ(s.rows[s.parting->row].step.source, "mx_kernels.py:63");
  const auto sum = std::find_if(s.rows.begin(), s.rows.end(),
                                [](const SliceRow& r) { return begins(r.step.instruction, "add.f32 %r78"); });
  ASSERT_NE(sum, s.rows.end());
  EXPECT_EQ(sum->step.bits, 0xC2000000u);
  EXPECT_EQ(s.rows.front().step.memory, "x");
  EXPECT_EQ(s.rows.back().step.memory, "row.scale_inv");
}

TEST(PtxTrace, NamesTheReciprocalOfTritonsQuotient) {
  const Slice s =
      slice_of(fixture("fp8_blocks.json"), "quantize fp8_block 64x512 bf16 dir=row flavour=vllm.group");
  ASSERT_TRUE(s.parting);
  EXPECT_TRUE(begins(s.rows[s.parting->row].step.instruction, "mul.f32"))
      << s.rows[s.parting->row].step.instruction;
  EXPECT_TRUE(std::any_of(s.rows.begin(), s.rows.end(),
                          [](const SliceRow& r) { return begins(r.step.instruction, "div.approx.f32"); }));
}

// The product is the reference's -0; a comparison with 0 then loses its sign.
TEST(PtxTrace, EmulatedNvfp4LosesTheSignOfAProductThatRoundsToZero) {
  const Slice s = slice_of(fixture("nvfp4_emulated.json"),
                           "quantize nvfp4 64x256 bf16 dir=row flavour=vllm.nvfp4_emulated fill=edges");
  EXPECT_EQ(s.plane, "row.data");
  ASSERT_TRUE(s.parting && s.parting->agreed);
  const SliceRow& product = s.rows[*s.parting->agreed];
  EXPECT_EQ(product.same->clause, "N10.9");
  EXPECT_EQ(product.step.bits, 0x80000000u);
  const auto sign = std::find_if(s.rows.begin(), s.rows.end(),
                                 [](const SliceRow& r) { return begins(r.step.instruction, "setp.lt.f32"); });
  ASSERT_NE(sign, s.rows.end());
  EXPECT_EQ(sign->step.bits, 0u);
  // The element's own nibble alone: nothing of the other element of the byte is behind it.
  EXPECT_TRUE(std::none_of(s.rows.begin(), s.rows.end(), [](const SliceRow& r) {
    return r.step.memory == "x" && begins(r.step.who, "nvfp4_emulated") && r.step.offset == 2 &&
           r.step.thread == 1 && r.step.bits != 0x7F7F;
  }));
}

TEST(PtxTrace, EqualBytesPartNowhere) {
  const Slice s =
      slice_of(fixture("mxfp8_rows_sm90.json"), "quantize mxfp8 4x64 bf16 dir=row", "row.scale_inv");
  EXPECT_FALSE(s.parting);
  EXPECT_TRUE(std::any_of(s.rows.begin(), s.rows.end(),
                          [](const SliceRow& r) { return r.same && r.same->what == "amax of the block"; }));
}

// A broken copy: the instruction that was changed lies behind the last value in common.
TEST(PtxTrace, ABrokenInstructionLiesBehindTheLastValueInCommon) {
  Copy copy("mxfp8_floor");
  copy.change_text("cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e5m2x2.f32");
  const Slice s = slice_of(copy.write(), "quantize mxfp8 8x64 bf16 dir=row flavour=ocp");
  ASSERT_TRUE(s.parting && s.parting->agreed);
  const auto changed = std::find_if(s.rows.begin(), s.rows.end(), [](const SliceRow& r) {
    return begins(r.step.instruction, "cvt.rn.satfinite.e5m2x2.f32");
  });
  ASSERT_NE(changed, s.rows.end());
  EXPECT_GT(changed - s.rows.begin(), static_cast<std::ptrdiff_t>(*s.parting->agreed));
}

TEST(PtxTrace, TheWayOutOfAChildKeepsEverything) {
  const std::vector<SliceStep> steps = {{"st.global.b64 [%rd1], %rd2", 7, "a.cu:3", "k block (0,0,0)", 31,
                                         "x", 1ull << 40, "b64", 0xFEDCBA9876543210ull}};
  const auto back = slice_steps_of(to_json(steps));
  ASSERT_TRUE(back && back->size() == 1);
  EXPECT_EQ(back->front().bits, steps[0].bits);
  EXPECT_EQ(back->front().offset, steps[0].offset);
  EXPECT_EQ(back->front().instruction, steps[0].instruction);
  EXPECT_EQ(slice_value_text(back->front()), "FEDCBA9876543210");
}

// N6.7: a kernel that does not look at the flag is not judged under it, whatever the flag's value.
TEST(PtxKernel, ALineWithAFlagNeedsAKernelThatTakesIt) {
  const auto subject = load(fixture("mxfp8_rows_sm90.json"));
  for (const char* flag : {"noop=0", "noop=1"}) {
    const Support s = subject->supports(parsed(std::string("quantize mxfp8 64x256 bf16 dir=row ") + flag));
    EXPECT_FALSE(s.yes);
    EXPECT_EQ(s.why, "the line has noop=, and no launch is given noop");
  }
  EXPECT_TRUE(subject->supports(parsed("quantize mxfp8 64x256 bf16 dir=row")).yes);
}

TEST(PtxKernel, CountsItsLaunches) {
  const auto subject = load(fixture("nvcc_mxfp8_rows.json"));
  EXPECT_TRUE(subject->interprets());
  const Problem p = parsed("quantize mxfp8 64x256 bf16 dir=row");
  const auto reference = make_reference_subject();
  const auto inputs = make_inputs(p, *reference);
  const auto counts = subject->count(p, views(*inputs), {});
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts[0].grid, "(2,64,1)");
  const auto total = [&](const std::string& name) {
    for (const auto& [each, n] : counts[0].totals)
      if (each == name) return n;
    return ~uint64_t{0};
  };
  EXPECT_EQ(total("global load bytes"), 64u * 256 * 2);
  EXPECT_EQ(total("global store bytes"), 64u * 256 + 64 * 256 / 32);
  uint64_t lanes = 0;
  for (const auto& line : counts[0].lines) lanes += line.counts[1];
  EXPECT_EQ(lanes, total("lane instructions"));
  EXPECT_EQ(total("global load sectors"), 64u * 256 * 2 / 32);
  // The sectors are those of planes on a GPU, wherever this process keeps x.
  std::vector<std::byte> elsewhere(inputs->front().bytes.size() + 256);
  for (const size_t shift : {16, 48}) {
    std::vector<ConstBuffer> moved = views(*inputs);
    const std::span<std::byte> x(elsewhere.data() + shift, inputs->front().bytes.size());
    std::copy(moved[0].bytes.begin(), moved[0].bytes.end(), x.begin());
    moved[0].bytes = x;
    EXPECT_EQ(subject->count(p, moved, {})[0].totals, counts[0].totals) << shift;
  }
}

}  // namespace
}  // namespace assay

// The reference as a Subject: what it accepts, noop, pairs of formats, threads, and traces that end in the byte that run() wrote.
#include "tests/reference/run_line.h"

namespace assay {
namespace {

Blob noise(size_t bytes, uint32_t state = 1) {
  Blob out(bytes);
  for (std::byte& b : out) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return out;
}
// Inputs of any line: every plane noise.
std::map<std::string, Blob> noisy_inputs(std::string_view line) {
  std::map<std::string, Blob> in;
  for (const Plane& plane : input_planes(problem(line))) in[plane.name] = noise(plane.bytes(), static_cast<uint32_t>(plane.name.size()));
  return in;
}

TEST(ReferenceSubject, SaysNoToWhatHasNoMeaning) {
  const auto subject = make_reference_subject();
  EXPECT_EQ(subject->name(), "reference");
  EXPECT_TRUE(subject->present().yes);
  EXPECT_TRUE(subject->supports(problem("quantize mxfp8 1x1 f16")).yes);
  Problem p = problem("scale_chain mxfp8 1x1 f32");
  p.row->format = FormatId::fp8_delayed;
  p.row->block = Block::tensor;
  const Support s = subject->supports(p);
  EXPECT_FALSE(s.yes);
  EXPECT_NE(s.why.find("scale_chain"), std::string::npos) << s.why;
  EXPECT_THROW(subject->run(p, {}, {}, {}), std::exception);
}

TEST(ReferenceSubject, MissingPlanesAreErrors) {
  LineCase c("quantize mxfp8 1x32 bf16", {});
  EXPECT_THROW(make_reference_subject()->run(c.p, {}, c.outputs, {}), std::exception);
  c.inputs[0].bytes = c.inputs[0].bytes.first(10);
  EXPECT_THROW(make_reference_subject()->run(c.p, c.inputs, c.outputs, {}), std::exception);
}

TEST(ReferenceSubject, NoopIsExactlyOne) {   // N6.7
  for (const char* format : {"identity", "fp8_delayed", "fp8_current", "mxfp8"}) {
    for (const uint32_t flag : {0x3F800000u, 0x00000000u, 0x40000000u, 0x7FC00000u, 0x3F800001u}) {
      const std::string line = std::string("quantize ") + format + " 33x40 bf16 noop=1";
      std::map<std::string, Blob> in = noisy_inputs(line);
      in["noop"] = blob<uint32_t>({flag});
      const Outputs out = run_line(line, in);
      for (const auto& [name, bytes] : out) {
        const bool untouched = bytes == Blob(bytes.size(), std::byte{0x5A});   // what run_line fills outputs with
        EXPECT_EQ(untouched, flag == 0x3F800000u) << format << " " << name << std::hex << " " << flag;
      }
    }
  }
}

TEST(ReferenceSubject, EachDirectionOfAPairIsItsVanilla) {
  const char* const formats[] = {"identity", "fp8_delayed", "fp8_current", "mxfp8"};
  for (const std::string row : formats)
    for (const std::string col : formats) {
      if (row == col) continue;
      const std::string line = "quantize " + row + "/" + col + " 35x50 bf16";
      const std::map<std::string, Blob> in = noisy_inputs(line);
      const Outputs pair = run_line(line, in);
      for (const std::string d : {"row", "col"}) {
        const std::string vanilla_line = "quantize " + (d == "row" ? row : col) + " 35x50 bf16 dir=" + d;
        std::map<std::string, Blob> vanilla_in;
        for (const Plane& plane : input_planes(problem(vanilla_line))) vanilla_in[plane.name] = in.at(plane.name);
        for (const auto& [name, bytes] : run_line(vanilla_line, vanilla_in)) EXPECT_EQ(pair.at(name), bytes) << line << " " << name;
      }
    }
}

const char* const kLines[] = {
    "quantize identity 35x50 f16",
    "quantize fp8_delayed 35x50 bf16 element=e5m2 neg_zero=plus",
    "quantize fp8_current 35x50 f16 pow2=1 eps=0.01",
    "quantize fp8_current 35x50 f32 amax=3",
    "quantize mxfp8 67x130 bf16",
    "quantize mxfp8 67x130 f32 element=e5m2 block=32x32 scales=gemm",
    "quantize mxfp8 67x130 bf16 nan_amax=propagate neg_zero=plus",
    "dequantize identity 35x50 bf16 dir=col",
    "dequantize fp8_current 35x50 bf16 dir=col out=f16",
    "dequantize fp8_delayed 35x50 bf16 dir=row out=f32 element=e5m2",
    "dequantize mxfp8 67x130 bf16 dir=row out=bf16",
    "dequantize mxfp8 67x130 bf16 dir=col out=f32 scales=gemm",
    "cast e4m3 5x100 f32 overflow=nosat",
    "cast e8m0 5x100 bf16 round=rp",
    "cast f16 5x100 e5m2",
    "scale_chain fp8_current 3x40 f32 pow2=1",
    "scale_chain mxfp8 3x40 f32",
    "scale_chain mxfp8 3x40 e8m0",
    "update fp8_delayed 9x21 f32 reduction=1",
    "update fp8_delayed 9x21 f32 rule=unfused margin=3",
    "swizzle mxfp8 67x130 e8m0 dir=col",
};

TEST(ReferenceSubject, ThreadsDecideNoBit) {
  for (const char* line : kLines) {
    const std::map<std::string, Blob> in = noisy_inputs(line);
    const Outputs one = run_line(line, in, 1);
    for (int threads : {2, 7}) EXPECT_EQ(run_line(line, in, threads), one) << line << " threads=" << threads;
  }
}

// The last step of a trace is what run() stored at that place.
TEST(ReferenceSubject, TracesEndInTheByteThatWasWritten) {
  for (const std::string line : kLines) {
    if (line.starts_with("swizzle")) continue;   // nothing is computed
    LineCase c(line, noisy_inputs(line));
    const auto subject = make_reference_subject();
    subject->run(c.p, c.inputs, c.outputs, {});
    for (size_t plane = 0; plane < c.out_planes.size(); ++plane) {
      const Plane& out = c.out_planes[plane];
      const bool data = out.name.ends_with("data") || out.name == "y" || out.name == "next.scale" || out.name == "decoded" ||
                        (out.name == "scale_inv" && out.encoding == Encoding::f32);
      if (!data) continue;
      const Direction d = out.direction.value_or(c.p.row ? Direction::row : Direction::col);
      for (int64_t i = 0; i < out.logical.count(); i += 23) {
        int64_t r = i / out.logical.cols, s = i % out.logical.cols;
        if (out.transposed) std::swap(r, s);
        const std::vector<TraceStep> steps = subject->trace(c.p, c.inputs, d, r, s);
        ASSERT_FALSE(steps.empty()) << line;
        uint32_t stored = 0;
        const size_t bytes = static_cast<size_t>(info(out.encoding).bytes());
        std::memcpy(&stored, c.out_bytes[plane].data() + static_cast<size_t>(i) * bytes, bytes);
        EXPECT_EQ(steps.back().bits, stored) << line << " " << out.name << " at " << r << "," << s << ": " << steps.back().what;
        EXPECT_EQ(steps.back().encoding, out.encoding) << line;
        for (const TraceStep& step : steps) EXPECT_TRUE(step.clause.starts_with("N")) << step.what;
      }
    }
  }
}

TEST(ReferenceSubject, TraceNamesTheSteps) {
  std::vector<uint16_t> x(32);
  x[3] = 0x43E1;   // 450
  LineCase c("quantize mxfp8 1x32 bf16 dir=row", {{"x", blob(x)}});
  const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 3);
  std::string clauses;
  for (const TraceStep& s : steps) clauses += s.clause + " ";
  EXPECT_EQ(clauses, "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N2.1 ");
  EXPECT_EQ(steps[0].bits, 0x43E10000u);   // amax
  EXPECT_EQ(steps[2].bits, 0x80u);         // scale 2
  EXPECT_EQ(steps[3].bits, 0x3F000000u);   // multiplier 1/2
  EXPECT_EQ(steps[6].bits, 0x76u);         // 225 -> 224
}

}  // namespace
}  // namespace assay

// The reference as a Subject: what it accepts, noop, pairs of formats, threads, and traces that end in the
// byte that run() wrote.
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
  for (const Plane& plane : input_planes(problem(line)))
    in[plane.name] = noise(plane.bytes(), static_cast<uint32_t>(plane.name.size()));
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

TEST(ReferenceSubject, NoopIsExactlyOne) {  // N6.7
  for (const FormatInfo& format : kFormats) {
    for (const uint32_t flag : {0x3F800000u, 0x00000000u, 0x40000000u, 0x7FC00000u, 0x3F800001u}) {
      const std::string line = "quantize " + std::string(format.name) + " 33x40 bf16 noop=1";
      std::map<std::string, Blob> in = noisy_inputs(line);
      in["noop"] = blob<uint32_t>({flag});
      const Outputs out = run_line(line, in);
      for (const auto& [name, bytes] : out) {
        const bool untouched =
            bytes == Blob(bytes.size(), std::byte{0x5A});  // what run_line fills outputs with
        EXPECT_EQ(untouched, flag == 0x3F800000u) << format.name << " " << name << std::hex << " " << flag;
      }
    }
  }
}

TEST(ReferenceSubject, EachDirectionOfAPairIsItsVanilla) {
  for (const FormatInfo& row_format : kFormats)
    for (const FormatInfo& col_format : kFormats) {
      const std::string row(row_format.name), col(col_format.name);
      if (row == col) continue;
      const std::string line = "quantize " + row + "/" + col + " 35x50 bf16";
      const std::map<std::string, Blob> in = noisy_inputs(line);
      const Outputs pair = run_line(line, in);
      for (const std::string d : {"row", "col"}) {
        const std::string vanilla_line = "quantize " + (d == "row" ? row : col) + " 35x50 bf16 dir=" + d;
        std::map<std::string, Blob> vanilla_in;
        for (const Plane& plane : input_planes(problem(vanilla_line)))
          vanilla_in[plane.name] = in.at(plane.name);
        for (const auto& [name, bytes] : run_line(vanilla_line, vanilla_in))
          EXPECT_EQ(pair.at(name), bytes) << line << " " << name;
      }
    }
}

// ---- columns of the dequantized rows (N13.1) ----------------------------------------------------

TEST(ReferenceSubject, ColumnsOfTheDequantizedRowsByHand) {
  // 11 and 448 / 11 = 4222E8BA: the code of 448, and back by 3CC92493 it is 41300001 in F32, 11 in BF16: the
  // columns see x's encoding.
  const std::string line = "quantize fp8_current/identity 1x2 ";
  EXPECT_EQ(run_line(line + "f32 col_source=row_dequantized", {{"x", blob<uint32_t>({0x41300000, 0})}})
                .u32("col.data"),
            (std::vector<uint32_t>{0x41300001, 0}));
  EXPECT_EQ(run_line(line + "bf16 col_source=row_dequantized", {{"x", blob<uint16_t>({0x4130, 0})}})
                .u16("col.data"),
            (std::vector<uint16_t>{0x4130, 0}));
  EXPECT_EQ(run_line(line + "f32", {{"x", blob<uint32_t>({0x41300000, 0})}}).u32("col.data"),
            (std::vector<uint32_t>{0x41300000, 0}));
  // MXFP8 makes 450 to 448 under scale 2 and 17 to 17 or, beside it, 8.5 to 8 (a tie): the columns' amaxes
  // are 448 and 16.
  const Outputs out =
      run_line("quantize mxfp8/fp8_delayed 1x2 bf16 col_source=row_dequantized",
               {{"x", blob<uint16_t>({0x43E1, 0x4188})}, {"col.given.scale", blob<uint32_t>({0x3F800000})}});
  EXPECT_EQ(out.u8("row.data"), (std::vector<uint8_t>{0x76, 0x50}));
  EXPECT_EQ(out.u8("col.data"), (std::vector<uint8_t>{0x7E, 0x58}));
  EXPECT_EQ(out.u32("col.amax")[0], 0x43E00000u);
}

TEST(ReferenceSubject, DequantizedRowsGiveUpNothingUnderNoop) {  // N6.7
  const std::string line = "quantize mxfp8/mxfp4 33x40 bf16 col_source=row_dequantized noop=1";
  std::map<std::string, Blob> in = noisy_inputs(line);
  in["noop"] = blob<uint32_t>({0x3F800000});
  for (const auto& [name, bytes] : run_line(line, in))
    EXPECT_EQ(bytes, Blob(bytes.size(), std::byte{0x5A})) << name;
}

// In three lines that know nothing of each other: the rows, their dequantize, and the columns of that.
TEST(ReferenceSubject, ColumnsOfTheDequantizedRowsInThreeLines) {
  for (const FormatInfo& row_format : kFormats)
    for (const FormatInfo& col_format : kFormats)
      for (const std::string keys : {"", " row.amax=3", " row.scales=gemm",
                                     " row.block=128x128 row.scales=gemm", " row.row_scaled=1"}) {
        const std::string row(row_format.name), col(col_format.name), shape = " 35x50 bf16";
        const std::string line = "quantize " + row + "/" + col + shape + " col_source=row_dequantized" + keys;
        if (!parse_line(line)) continue;  // a key of another format
        const std::map<std::string, Blob> in = noisy_inputs(line);
        const Outputs pair = run_line(line, in);
        const auto alone = [&](Problem p, Direction d, std::map<std::string, Blob> more) {
          p.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
          p.col_source = ColSource::original;
          std::map<std::string, Blob> given;
          for (const Plane& plane : input_planes(p))
            given[plane.name] = more.count(plane.name) ? more.at(plane.name) : in.at(plane.name);
          return run_line(to_line(p), given);
        };
        const Outputs rows = alone(problem(line), Direction::row, {});
        std::map<std::string, Blob> made(rows.begin(), rows.end());
        if (in.count("row.given.amax"))
          made["row.amax"] = in.at("row.given.amax");  // N10.1: a given amax is no output
        Problem back = problem(line);
        back.op = Dequantize{.out = Encoding::bf16};
        const Outputs y = alone(back, Direction::row, made);
        const Outputs cols = alone(problem(line), Direction::col, {{"x", y.at("y")}});
        for (const auto& [name, bytes] : rows) EXPECT_EQ(pair.at(name), bytes) << line << " " << name;
        for (const auto& [name, bytes] : cols) EXPECT_EQ(pair.at(name), bytes) << line << " " << name;
      }
}

const char* const kLines[] = {
    "quantize identity 35x50 f16",
    "quantize fp8_delayed 35x50 bf16 element=e5m2 neg_zero=plus",
    "quantize fp8_current 35x50 f16 pow2=1 eps=0.01",
    "quantize fp8_current 35x50 f32 amax=3",
    "quantize fp8_current 35x50 bf16 row_scaled=1 eps=0.01",
    "quantize fp8_current/mxfp8 35x50 bf16 row.row_scaled=1 col_source=row_dequantized",
    "quantize mxfp8 67x130 bf16",
    "quantize mxfp8 67x130 f32 element=e5m2 block=32x32 scales=gemm",
    "quantize mxfp8 67x130 bf16 nan_amax=propagate neg_zero=plus",
    "dequantize identity 35x50 bf16 dir=col",
    "dequantize fp8_current 35x50 bf16 dir=col out=f16",
    "dequantize fp8_current 35x50 bf16 dir=col row_scaled=1",
    "gemm a=fp8_current b=fp8_current 35x29x50 row_scaled=1 sum=hopper_fp8_split",
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
    "quantize fp8_block 135x140 bf16 pow2=0 eps=0.01",
    "quantize fp8_block 135x140 f32 element=e5m2 block=128x128 scales=gemm neg_zero=plus",
    "quantize mxfp4 67x131 bf16 nan_amax=propagate",
    "quantize mxfp4 67x131 f32 scales=gemm neg_zero=plus",
    "quantize mxfp8/mxfp4 67x131 f16 col_source=row_dequantized",
    "quantize fp8_delayed/fp8_block 67x131 f16 col_source=row_dequantized",
    "dequantize fp8_block 135x140 bf16 dir=col out=f32",
    "dequantize fp8_block 135x140 bf16 dir=row block=128x128 scales=gemm",
    "dequantize mxfp4 67x131 bf16 dir=row out=f16",
    "dequantize mxfp4 67x131 bf16 dir=col scales=gemm",
    "scale_chain fp8_block 3x40 f32 pow2=0",
    "scale_chain mxfp4 3x40 f32",
    "scale_chain mxfp4 3x40 e8m0",
    "swizzle fp8_block 67x330 f32 dir=col",
    "swizzle fp8_block 67x330 f32 block=128x128 inverse=1",
    "swizzle mxfp4 67x130 e8m0 dir=col",
    "quantize nvfp4 67x131 bf16",
    "quantize nvfp4 67x131 f32 block=16x16 scales=gemm neg_zero=plus",
    "quantize nvfp4 67x131 f16 row_scaled=1 nan_amax=propagate nan_clamp=propagate",
    "quantize nvfp4 67x131 bf16 four_over_six=mse e4m3_max=256 block=16x16",
    "quantize nvfp4 67x131 bf16 four_over_six=mae four_over_six_error=fast row_scaled=1",
    "quantize nvfp4 67x131 bf16 amax=3 multiplier=bf16_quotient",
    "quantize nvfp4 80x131 bf16 round=sr col.rht=1 rng=1,2,3",
    ("quantize nvfp4 32x71 bf16 round=sr draw=te_fb sr_rule=fma sr_bytes=interleaved col.rht=1 "
     "col.rht_sum=exact"),
    "quantize nvfp4 96x160 bf16 round=sr draw=te_t1d",
    ("quantize nvfp4 64x128 bf16 round=sr draw=te_rhtrc col.rht=1 col.rht_sum=tc16 inf_amax=zero "
     "nan_tensor_amax=unit"),
    "quantize nvfp4 67x131 bf16 round=sr col_source=row_dequantized",
    "dequantize nvfp4 67x131 bf16 dir=row out=f32",
    "dequantize nvfp4 67x131 bf16 dir=col row_scaled=1 scales=gemm",
    "scale_chain nvfp4 100x2 f32",
    "hadamard nvfp4 80x131 bf16",
    "hadamard nvfp4 80x131 bf16 rht_sum=tc16 sign_mask=0x1234",
    "cast e2m1 5x100 f32 round=sr",
    "cast e2m1 5x100 f32 round=sr sr_rule=fma",
    "philox u32 100x4 u32",
    "swizzle nvfp4 67x330 e4m3 dir=col",
    "split nvfp4 67x131 bf16 groups=30,0,37 round=sr",
    "split mxfp4 67x131 bf16 groups=30,0,37 capacity=9000",
    "split fp8_current 67x131 bf16 groups=30,0,37 row_scaled=1",
    "split fp8_current/mxfp8 1x1770 bf16 vary=both groups=30x40,19x30 col_source=row_dequantized",
};

// The code of a plane's logical element (r, c); of member m of a grouped one.
uint32_t code_at(const Plane& plane, const Blob& bytes, int64_t r, int64_t c, size_t m = 0) {
  if (!plane.members.empty()) {
    const Plane member = member_plane(plane, m);
    const auto at = bytes.begin() + static_cast<ptrdiff_t>(plane.bytes_of(plane.members[m].offset));
    return code_at(member, Blob(at, at + static_cast<ptrdiff_t>(member.bytes())), r, c);
  }
  const int64_t i = r * plane.padded.cols + c;
  if (plane.packed)
    return std::to_integer<uint32_t>(bytes[static_cast<size_t>(i / 2)]) >> (i % 2 == 0 ? 0 : 4) & 15;
  const size_t size = static_cast<size_t>(info(plane.encoding).bytes());
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + static_cast<size_t>(i) * size, size);
  return code;
}

TEST(ReferenceSubject, ThreadsDecideNoBit) {
  for (const char* line : kLines) {
    const std::map<std::string, Blob> in = noisy_inputs(line);
    const Outputs one = run_line(line, in, 1);
    for (int threads : {2, 7}) EXPECT_EQ(run_line(line, in, threads), one) << line << " threads=" << threads;
  }
}

// The last step of a trace is what run() stored at that place, whichever elements the tracer was asked about
// before.
TEST(ReferenceSubject, TracesEndInTheByteThatWasWritten) {
  for (const std::string line : kLines) {
    if (line.starts_with("swizzle") || line.starts_with("philox"))
      continue;  // nothing is computed, or nothing has a direction
    LineCase c(line, noisy_inputs(line));
    const auto subject = make_reference_subject();
    subject->run(c.p, c.inputs, c.outputs, {});
    for (size_t plane = 0; plane < c.out_planes.size(); ++plane) {
      const Plane& out = c.out_planes[plane];
      const bool data = out.name.ends_with("data") || out.name == "y" || out.name == "d" ||
                        out.name == "next.scale" || out.name == "decoded" ||
                        (out.name == "scale_inv" && out.encoding == Encoding::f32);
      if (!data) continue;
      const Direction d = out.direction.value_or(c.p.row ? Direction::row : Direction::col);
      const Tracer trace = dynamic_cast<Tracing&>(*subject).tracer(c.p, c.inputs, d);
      int64_t before = 0;  // elements of x before this member's
      for (size_t m = 0; m < std::max<size_t>(out.members.size(), 1); ++m) {
        const Shape logical = out.members.empty() ? out.logical : out.members[m].logical;
        for (int64_t i = 0; i < logical.count(); i += 23) {
          const int64_t stored_row = i / logical.cols, stored_col = i % logical.cols;
          int64_t r = out.transposed ? stored_col : stored_row, s = out.transposed ? stored_row : stored_col;
          if (!out.members.empty()) {  // N14.1: x's rows know nothing of its members
            const int64_t flat = before + r * (out.transposed ? logical.rows : logical.cols) + s;
            r = flat / c.p.x.shape.cols;
            s = flat % c.p.x.shape.cols;
          }
          const std::vector<TraceStep> steps = trace(r, s);
          ASSERT_FALSE(steps.empty()) << line;
          EXPECT_EQ(steps.back().bits, code_at(out, c.out_bytes[plane], stored_row, stored_col, m))
              << line << " " << out.name << " at " << r << "," << s << ": " << steps.back().what;
          EXPECT_EQ(steps.back().encoding, out.encoding) << line;
          for (const TraceStep& step : steps) EXPECT_TRUE(step.clause.starts_with("N")) << step.what;
        }
        before += logical.count();
      }
    }
  }
}

TEST(ReferenceSubject, TraceNamesTheSteps) {
  std::vector<uint16_t> x(32);
  x[3] = 0x43E1;  // 450
  LineCase c("quantize mxfp8 1x32 bf16 dir=row", {{"x", blob(x)}});
  const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 3);
  std::string clauses;
  for (const TraceStep& s : steps) clauses += s.clause + " ";
  EXPECT_EQ(clauses, "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N2.1 ");
  EXPECT_EQ(steps[0].bits, 0x43E10000u);  // amax
  EXPECT_EQ(steps[2].bits, 0x80u);        // scale 2
  EXPECT_EQ(steps[3].bits, 0x3F000000u);  // multiplier 1/2
  EXPECT_EQ(steps[6].bits, 0x76u);        // 225 -> 224
}

// N3.1: the slot's amax joins the elements'.
TEST(ReferenceSubject, TraceTellsTheAmaxThatADelayedScaleKeeps) {
  const std::vector<uint16_t> x = {0x3F80, 0xC100, 0x4000};  // 1, -8, 2
  for (const auto& [prior, amax] :
       {std::pair{0x40000000u, 0x41000000u}, {0x41800000u, 0x41800000u}, {0u, 0x41000000u}}) {
    LineCase c("quantize fp8_delayed 1x3 bf16 dir=row scale=2",
               {{"x", blob(x)}, {"row.prior.amax", blob(std::vector<uint32_t>{prior})}});
    const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0);
    ASSERT_GE(steps.size(), 2u);
    EXPECT_EQ(steps[0].bits, prior);
    EXPECT_EQ(steps[1].bits, amax) << prior;
  }
}

TEST(ReferenceSubject, NothingIsToldWhereNothingIsComputed) {
  for (const char* line : {"swizzle nvfp4 67x330 e4m3 dir=col", "philox u32 100x4 u32",
                           "quantize mxfp8 3x5 bf16 dir=row", "hadamard nvfp4 16x16 bf16"}) {
    LineCase c(line, noisy_inputs(line));
    const Direction other = c.p.col ? Direction::row : Direction::col;
    EXPECT_TRUE(make_reference_subject()->trace(c.p, c.inputs, other, 0, 0).empty()) << line;
    if (c.p.as<Swizzle>()) {
      EXPECT_TRUE(make_reference_subject()->trace(c.p, c.inputs, Direction::col, 0, 0).empty()) << line;
    }
  }
}

// Which clauses an element goes through, in their order, by the choices of a line. numerics.md gives what
// each of them takes the place of.
TEST(ReferenceSubject, TraceNamesTheClausesOfEveryChoice) {
  const auto clauses_of = [](const std::string& line, const std::map<std::string, Blob>& in) {
    LineCase c(line, in);
    std::string clauses;
    for (const TraceStep& s : make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 3))
      clauses += s.clause + " ";
    return clauses;
  };
  const std::pair<const char*, const char*> rows[] = {
      {"quantize mxfp8 1x32 bf16 dir=row mx_scale=floor", "N5.1 N17.6 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize mxfp8 1x32 bf16 dir=row mx_scale=ceil", "N5.1 N17.6 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize mxfp8 1x32 bf16 dir=row mx_scale=even", "N5.1 N17.6 N17.6 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize mxfp8 1x32 bf16 dir=row mx_scale=even_e2m1", "N5.1 N17.6 N17.6 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize mxfp8 1x32 bf16 dir=row mx_scale=down", "N5.1 N5.2 N17.6 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize mxfp8 1x32 bf16 dir=row scale_from=scale", "N17.12 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize mxfp8 1x32 bf16 dir=row scale_from=amax", "N17.12 N5.2 N5.3 N5.4 N1.2 N5.5 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row",
       "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row scale_from=scale",
       "N10.1 N10.2 N10.7 N17.12 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row scale_from=amax",
       "N10.1 N10.2 N10.7 N17.12 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row four_over_six=mae",
       "N10.1 N10.2 N10.7 N10.4 N10.10 N10.10 N10.11 N10.11 N10.11 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row nvfp4_scale=decode",
       "N10.1 N10.2 N10.7 N17.8 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row nvfp4_scale=decode scale_division=reciprocal",
       "N10.1 N17.14 N17.14 N10.7 N17.14 N17.14 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row nvfp4_scale=unit",
       "N10.1 N10.2 N10.7 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row nvfp4_floor=least_normal",
       "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N17.9 N10.8 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row multiplier=quotient",
       "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N10.9 N2.1 "},
      {"quantize nvfp4 1x32 bf16 dir=row scale_round=away_240",
       "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N17.11 N10.8 N1.2 N10.9 N2.1 "},
  };
  for (const auto& [line, clauses] : rows) EXPECT_EQ(clauses_of(line, noisy_inputs(line)), clauses) << line;
  // A multiplier of a block without amax is 0 by a choice, not by the division of N10.8.
  const std::string zero = "quantize nvfp4 1x32 bf16 dir=row zero_multiplier=zero";
  EXPECT_EQ(clauses_of(zero, {{"x", blob(std::vector<uint16_t>(32))}}),
            "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N10.9 N2.1 ");
}

}  // namespace
}  // namespace assay

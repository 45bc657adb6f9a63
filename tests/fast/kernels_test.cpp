// The kernels on the host executor: equal bytes in every environment, by every kernel that may serve, and equal to the lanes applied
// element by element in plain loops. Equality with the reference is judged by the suites.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fast/lane/fp8_current.cuh"
#include "fast/lane/mxfp8.cuh"
#include "fast/subject_gpu.h"
#include "tests/fast/run.h"

namespace assay {
namespace {

// Shapes at and around every edge: the patch (8), the block (32), the warp's piece (64), the tile (128); aligned and not.
const std::vector<std::string> kShapes = {"1x1", "1x32", "32x1", "7x8", "8x7", "31x33", "64x64", "65x72", "127x129", "128x128", "129x136", "136x264", "200x40", "256x384"};
std::vector<std::string> quantize_lines(const std::vector<std::string>& shapes) {
  std::vector<std::string> out;
  for (const std::string& shape : shapes)
    for (const char* source : {"bf16", "f16", "f32"})
      for (const char* format : {"identity", "fp8_delayed scale=3.7 prior_amax=0.25", "fp8_current", "fp8_current amax=5 element=e5m2", "mxfp8",
                                 "mxfp8 element=e5m2 scales=gemm", "mxfp8 block=32x32", "mxfp8 neg_zero=plus col.nan_amax=propagate",
                                 "mxfp8 row.element=e5m2 col.block=32x32", "fp8_current neg_zero=plus pow2=1"})
        for (const char* dir : {"row", "col", "both"}) {
          const std::string f = format;
          if (std::string(dir) != "both" && (f.find("row.") != std::string::npos || f.find("col.") != std::string::npos)) continue;
          const size_t space = f.find(' ');
          out.push_back("quantize " + f.substr(0, space) + " " + shape + " " + source + " dir=" + dir + (space == std::string::npos ? "" : f.substr(space)));
        }
  return out;
}

TEST(Kernels, EnvironmentDecidesNoBit) {
  std::vector<std::string> lines = quantize_lines({"1x1", "65x72", "136x264", "127x129"});
  for (const char* more : {"cast e4m3 33x41 bf16", "cast f16 7x24 f32", "cast bf16 16x16 e5m2", "cast e8m0 5x9 f32 round=rp", "dequantize mxfp8 65x72 bf16 dir=col",
                           "dequantize fp8_current 40x136 bf16 dir=col out=f32", "swizzle mxfp8 200x300 e8m0 dir=row", "swizzle mxfp8 200x300 e8m0 dir=col inverse=1",
                           "update fp8_delayed 5x300 f32", "scale_chain mxfp8 3x100 f32", "scale_chain fp8_current 3x100 f32"})
    lines.push_back(more);
  for (const std::string& line : lines) {
    const Planes want = run(line).out;
    int changed = 0;
    for (const char* text : {"order=reverse,poison=00", "order=5,threads=2", "order=17,poison=ff,threads=2", "alignment=16", "alignment=8,order=3", "alignment=4,poison=80", "alignment=1"}) {
      const auto env = parse_environment(text);
      ASSERT_TRUE(env) << env.error().text();
      expect_equal(run(line, *env).out, want, line + " --env " + text);
      if (HasFatalFailure()) return;
      ++changed;
    }
    ASSERT_EQ(changed, 7);
  }
}

// The general kernel and the tuned one, the integer conversions and the twins of the hardware's.
TEST(Kernels, EveryPolicyGivesTheSameBytes) {
  int tuned = 0, vector_general = 0;
  for (const std::string& line : quantize_lines(kShapes)) {
    const Ran automatic = run(line), general = run(parsed(line), *make_general_host_subject());
    expect_equal(general.out, automatic.out, line);
    if (HasFatalFailure()) return;
    EXPECT_EQ(general.served.by.find("pair<"), line.find("identity") != std::string::npos ? general.served.by.find("pair<") : std::string::npos) << general.served.by;
    tuned += automatic.served.by.find("_general") == std::string::npos;
    vector_general += general.served.by.find("_general") != std::string::npos && general.served.by.find("vector") != std::string::npos;
  }
  EXPECT_GT(tuned, 100);
  EXPECT_GT(vector_general, 100);
}

TEST(Kernels, OneReadEqualsTwo) {
  for (const std::string& line : quantize_lines(kShapes)) {
    if (line.find("dir=both") == std::string::npos) continue;
    const Problem both = parsed(line);
    const Planes want = run(line).out;
    Planes got;
    for (Direction d : kDirections) {
      Problem single = both;
      single.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
      got.merge(run(single, *make_host_subject()).out);
    }
    expect_equal(got, want, line);
    if (HasFatalFailure()) return;
  }
}

// Every data element and every scale against the trace, which walks the block of one element in plain loops.
TEST(Kernels, DataAndScalesEqualTheTrace) {
  const auto host = make_host_subject();
  for (const std::string& line : quantize_lines({"7x8", "31x33", "65x72"})) {
    const Problem p = parsed(line);
    const Ran r = run(line);
    std::vector<ConstBuffer> inputs;
    for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Quantizer& q = *p.quantizer(d);
      const std::string prefix = std::string(name_of(d)) + ".";
      const Shape s = p.x.shape;
      const bool transposed = geometry(q, s, d).transposed, mx = q.format == FormatId::mxfp8;
      for (int64_t row = 0; row < s.rows; row += q.format == FormatId::identity ? 1 : 3)
        for (int64_t col = 0; col < s.cols; ++col) {
          const std::vector<TraceStep> steps = host->trace(p, inputs, d, row, col);
          ASSERT_FALSE(steps.empty()) << line;
          const Bytes& data = r.out.at(prefix + "data");
          ASSERT_EQ(at(data, transposed ? col * s.rows + row : row * s.cols + col, info(q.element).bytes()), steps.back().bits) << line << ' ' << row << ' ' << col;
          for (const TraceStep& step : steps) {
            if (!mx && (step.what == "scale_inv" || step.what == "scale")) {
              ASSERT_EQ(at(r.out.at(prefix + step.what), 0, 4), step.bits) << line;
            }
            if (step.what != "scale" || !mx || q.scales != ScaleLayout::compact) continue;
            const int64_t pitch = d == Direction::row ? round_up(ceil_div(s.cols, 32), 4) : round_up(s.cols, 128);
            const int64_t index = d == Direction::row ? row * pitch + col / 32 : row / 32 * pitch + col;
            ASSERT_EQ(at(r.out.at(prefix + "scale_inv"), index, 1), step.bits) << line << ' ' << row << ' ' << col;
          }
        }
    }
  }
}

// N6.4, partial 32x32 blocks included, whose scale is repeated for rows and columns inside the tensor only.
TEST(Kernels, PaddingIsZero) {
  int64_t padding = 0;
  for (const std::string& line : quantize_lines(kShapes)) {
    if (line.find("mxfp8") == std::string::npos) continue;
    const Ran r = run(line);
    for (const Plane& plane : r.out_planes) {
      const Bytes& bytes = r.out.at(plane.name);
      const bool row = plane.direction == Direction::row;
      for (int64_t a = 0; a < plane.padded.rows; ++a)
        for (int64_t b = 0; b < plane.padded.cols; ++b) {
          if (a < plane.logical.rows && b < plane.logical.cols) continue;
          const int64_t i = row ? a : b, j = row ? b : a, tiles = (row ? plane.padded.cols : plane.padded.rows) / 4;
          const int64_t place = plane.layout == ScaleLayout::gemm ? (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4 : a * plane.padded.cols + b;
          ASSERT_EQ(at(bytes, place, 1), 0u) << line << ' ' << plane.name << ' ' << a << ' ' << b;
          ++padding;
        }
    }
  }
  EXPECT_GT(padding, 100000);
}

TEST(Kernels, CastAndDequantizeEqualTheTrace) {
  const auto host = make_host_subject();
  for (const char* shape : {"7x8", "31x33", "64x136", "65x72"})
    for (const char* what : {"cast e4m3 # bf16", "cast e5m2 # f16 overflow=nosat", "cast e2m1 # f32 round=rz", "cast f16 # f32", "cast f32 # f16", "cast bf16 # e5m2", "cast f32 # e8m0",
                             "dequantize mxfp8 # bf16 dir=row", "dequantize mxfp8 # bf16 dir=col scales=gemm out=f32", "dequantize mxfp8 # f32 dir=col element=e5m2 out=f16",
                             "dequantize mxfp8 # f32 dir=row scales=gemm", "dequantize fp8_current # bf16 dir=row", "dequantize fp8_delayed # bf16 dir=col out=f32",
                             "dequantize identity # f16 dir=col out=f16"}) {
      std::string line = what;
      line.replace(line.find('#'), 1, shape);
      const Problem p = parsed(line);
      const Ran r = run(line);
      std::vector<ConstBuffer> inputs;
      for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
      const Plane& y = r.out_planes[0];
      for (int64_t row = 0; row < p.x.shape.rows; ++row)
        for (int64_t col = 0; col < p.x.shape.cols; ++col)
          ASSERT_EQ(at(r.out.at("y"), row * p.x.shape.cols + col, info(y.encoding).bytes()),
                    host->trace(p, inputs, p.col ? Direction::col : Direction::row, row, col).back().bits) << line << ' ' << row << ' ' << col;
    }
}

// N6.3 by reshape and transposition: [i/128][4][32] x [j/4][4] becomes [i/128][j/4][32][4][4].
TEST(Kernels, GemmLayoutIsTheTransposedReshape) {
  for (const char* shape : {"1x1", "128x128", "200x300", "257x1000", "40x4100"})
    for (const char* dir : {"row", "col"}) {
      const Problem p = parsed(std::string("swizzle mxfp8 ") + shape + " e8m0 dir=" + dir);
      const bool row = p.row.has_value();
      const Ran forward = run(p, *make_host_subject());
      const Plane& compact = forward.in_planes[0];
      const Bytes& from = forward.in[0];
      const Bytes& to = forward.out.at(std::string(dir) + ".scale_gemm");
      ASSERT_EQ(to.size(), from.size());
      const int64_t ni = row ? compact.padded.rows : compact.padded.cols, nj = row ? compact.padded.cols : compact.padded.rows;
      size_t place = 0;
      for (int64_t a = 0; a < ni / 128; ++a)
        for (int64_t b = 0; b < nj / 4; ++b)
          for (int64_t c = 0; c < 32; ++c)
            for (int64_t e = 0; e < 4; ++e)
              for (int64_t f = 0; f < 4; ++f, ++place) {
                const int64_t i = a * 128 + e * 32 + c, j = b * 4 + f;
                const bool meaningful = i < (row ? compact.logical.rows : compact.logical.cols) && j < (row ? compact.logical.cols : compact.logical.rows);
                const int want = meaningful ? std::to_integer<int>(from[static_cast<size_t>(row ? i * nj + j : j * ni + i)]) : 0;
                ASSERT_EQ(std::to_integer<int>(to[place]), want) << shape << ' ' << dir << ' ' << i << ' ' << j;
              }
      // The inverse copies everything (N6.5).
      Problem back = p;
      back.as<Swizzle>()->inverse = true;
      const Ran inverse = run(back, *make_host_subject());
      const Ran again = run(p, *make_host_subject(), {}, {{std::string(dir) + ".scale_inv", inverse.out.at(std::string(dir) + ".scale_inv")}});
      for (int64_t i = 0; i < (row ? compact.logical.rows : compact.logical.cols); ++i)
        for (int64_t j = 0; j < (row ? compact.logical.cols : compact.logical.rows); ++j) {
          const size_t byte = static_cast<size_t>(((i / 128) * (nj / 4) + j / 4) * 512 + (i % 32) * 16 + ((i % 128) / 32) * 4 + j % 4);
          ASSERT_EQ(again.out.at(std::string(dir) + ".scale_gemm")[byte], inverse.in[0][byte]);
        }
    }
}

TEST(Kernels, QuantizingToTheGemmLayoutIsQuantizingThenSwizzling) {
  for (const char* shape : {"31x33", "128x256", "200x300", "129x136"})
    for (const char* dir : {"row", "col"}) {
      const std::string s = shape, d = dir;
      const Planes compact = run("quantize mxfp8 " + s + " bf16 dir=" + d).out, gemm = run("quantize mxfp8 " + s + " bf16 scales=gemm dir=" + d).out;
      const Planes swizzled = run("swizzle mxfp8 " + s + " e8m0 dir=" + d, {}, {{d + ".scale_inv", compact.at(d + ".scale_inv")}}).out;
      expect_equal({{"scale", gemm.at(d + ".scale_gemm")}}, {{"scale", swizzled.at(d + ".scale_gemm")}}, s + d);
    }
}

// N6.6: floor counts whole blocks only.
TEST(Kernels, SwizzleExtent) {
  const Planes ceil = run("swizzle mxfp8 4x40 e8m0 dir=row").out, floor = run("swizzle mxfp8 4x40 e8m0 dir=row swizzle_extent=floor").out;
  const Bytes &c = ceil.at("row.scale_gemm"), &f = floor.at("row.scale_gemm");
  EXPECT_EQ(c[0], f[0]);
  EXPECT_NE(c[1], std::byte{0});
  EXPECT_EQ(f[1], std::byte{0});
}

// N6.7: exactly 1.0 and nothing else.
TEST(Kernels, NoopLeavesEveryByte) {
  for (const std::string& line : quantize_lines({"65x72", "127x129"})) {
    Problem p = parsed(line);
    const Planes want = run(p, *make_host_subject()).out;
    p.as<Quantize>()->noop = 0x3F800000u;
    auto flag = [](uint32_t bits) {
      Bytes b(4);
      std::memcpy(b.data(), &bits, 4);
      return b;
    };
    const Ran off = run(p, *make_host_subject(), {.poison = 0xA5}, {{"noop", flag(0x3F800000u)}});
    for (const auto& [name, bytes] : off.out)
      for (std::byte b : bytes) ASSERT_EQ(b, std::byte{0xA5}) << line << ' ' << name;
    for (uint32_t other : {0x00000000u, 0x3F800001u, 0x40000000u, 0x7FFFFFFFu, 0xBF800000u}) expect_equal(run(p, *make_host_subject(), {}, {{"noop", flag(other)}}).out, want, line);
    if (HasFatalFailure()) return;
  }
}

TEST(Kernels, EmptyTensors) {
  for (const char* shape : {"0x0", "0x64", "64x0"}) {
    const std::string s = shape;
    for (const char* line : {"quantize identity ", "quantize mxfp8 "}) EXPECT_EQ(run(line + s + " bf16 dir=both").served.launches, 0) << line << s;
    const Ran current = run("quantize fp8_current " + s + " bf16 dir=both");   // N3.1: amax +0, and so scale 1
    for (const char* d : {"row.", "col."}) {
      EXPECT_EQ(at(current.out.at(d + std::string("amax")), 0, 4), 0u);
      EXPECT_EQ(at(current.out.at(d + std::string("scale")), 0, 4), 0x3F800000u);
      EXPECT_EQ(at(current.out.at(d + std::string("scale_inv")), 0, 4), 0x3F800000u);
    }
    EXPECT_EQ(run("cast e4m3 " + s + " bf16").served.launches, 0);
    EXPECT_EQ(run("swizzle mxfp8 " + s + " e8m0 dir=row").served.launches, 0);
    EXPECT_EQ(run("dequantize mxfp8 " + s + " bf16 dir=row").served.launches, 0);
  }
}

TEST(Kernels, ReportsSayWhatServed) {
  EXPECT_EQ(run("quantize mxfp8 64x64 bf16 dir=both").served.by, "mxfp8_pair<row, col> bf16, vector, one read");
  EXPECT_EQ(run("quantize mxfp8 64x63 bf16 dir=both").served.by, "mxfp8_pair_general<row, col> bf16, scalar, one read");
  EXPECT_EQ(run("quantize mxfp8 64x64 bf16 dir=both", {.alignment = 4}).served.by, "mxfp8_pair_general<row, col> bf16, scalar, one read");
  const Ran hybrid = run("quantize mxfp8/fp8_current 64x64 bf16");
  EXPECT_NE(hybrid.served.by.find("two reads"), std::string::npos);
  EXPECT_EQ(hybrid.served.launches, 5);
}

// Two slots worked by hand: N4.1 to N4.6.
TEST(Kernels, Update) {
  auto floats = [](std::vector<float> v) {
    Bytes b(v.size() * 4);
    std::memcpy(b.data(), v.data(), b.size());
    return b;
  };
  //                                         slot 0  slot 1
  const Planes given = {{"history", floats({4, 0, 8, 16, 2, 1})}, {"scale", floats({1, 3})}, {"reduced", floats({0, 32})}};
  auto update = [&](const std::string& keys) { return run("update fp8_delayed 3x2 f32 " + keys, {}, given).out; };
  auto expect = [&](const std::string& keys, std::vector<float> history, std::vector<float> scale) {
    expect_equal(update(keys), {{"next.history", floats(history)}, {"next.scale", floats(scale)}}, keys);
  };
  expect("algo=max rule=bulk", {0, 0, 2, 16, 4, 1}, {56, 3});            // slot 1: last is 0, all stays
  expect("algo=max rule=api", {0, 0, 2, 1, 4, 0}, {56, 28});
  expect("algo=most_recent rule=api", {0, 0, 2, 1, 4, 0}, {112, 3});
  expect("algo=max rule=bulk margin=1", {0, 0, 2, 16, 4, 1}, {28, 3});
  expect("algo=max rule=unfused", {0, 0, 2, 1, 4, 0}, {56, 28});
  expect("algo=max rule=bulk reduction=1", {0, 0, 2, 1, 4, 32}, {56, 14});
}

TEST(Kernels, GpuSubjectSaysWhyItIsAbsent) {
  const auto gpu = make_gpu_subject();
  EXPECT_EQ(gpu->name(), "gpu");
  const Support present = gpu->present();
  EXPECT_EQ(present.yes, present.why.empty());
}

}  // namespace
}  // namespace assay

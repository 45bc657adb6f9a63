// Gemm on the host executor: sums whose order shows, every pair of formats against dequantize and a plain
// loop, and the steps after the sum.
#include <gtest/gtest.h>

#include <bit>

#include "fast/gemm_plan.h"
#include "fast/lane/decode.cuh"
#include "fast/simt/device_buffer.h"
#include "fast/transpose.h"
#include "tests/fast/run.h"

namespace assay {
namespace {

Bytes floats(const std::vector<float>& values) {
  Bytes out(4 * values.size());
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}
Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}
// d[0] as a code.
uint32_t first(const std::string& line, const Planes& given) {
  return at(run(line, {}, given).out.at("d"), 0, info(parsed(line).x.source).bytes());
}
float sum_of(const std::vector<float>& a, const std::vector<float>& b, const std::string& keys = "",
             Planes more = {}) {
  more["a.data"] = floats(a), more["b.data"] = floats(b);
  return std::bit_cast<float>(
      first("gemm a=identity b=identity 1x1x" + std::to_string(a.size()) + " f32 out=f32 " + keys, more));
}

TEST(Gemm, SumsForwardsAndRoundsTwice) {
  EXPECT_EQ(sum_of({0x1p24f, 1, -0x1p24f}, {1, 1, 1}), 0.0f);                   // backwards, or exactly: 1
  EXPECT_EQ(sum_of({1, 0x1p24f, -0x1p24f}, {1, 1, 1}), 0.0f);                   // pairs from the right: 1
  EXPECT_EQ(sum_of({0x1p24f, -0x1p24f, 1}, {1, 1, 1}), 1.0f);                   // even and odd k apart: 0
  EXPECT_EQ(sum_of({-(1 + 0x1p-11f), 1 + 0x1p-12f}, {1, 1 + 0x1p-12f}), 0.0f);  // fused: 2^-24
  std::vector<float> a(65, 0.0f), b(65, 1.0f);  // over the edge of two tiles of k
  a[0] = 0x1p24f, a[31] = 1, a[32] = 1, a[64] = -0x1p24f;
  EXPECT_EQ(sum_of(a, b), 0.0f);
  std::swap(a[31], a[64]);
  EXPECT_EQ(sum_of(a, b), 2.0f);
}

TEST(Gemm, NothingToSum) {
  EXPECT_EQ(first("gemm a=mxfp8 b=nvfp4 1x1x0 out=f32", {}), 0u);
  EXPECT_EQ(first("gemm a=identity b=fp8_block 1x1x0 out=f32 bias=f32", {{"bias", floats({-3})}}),
            0xC0400000u);
  EXPECT_TRUE(run("gemm a=mxfp8 b=mxfp8 0x5x32 out=f32").out.at("d").empty());
  EXPECT_EQ(run("gemm a=mxfp8 b=mxfp8 5x0x32 out=f32").served.launches, 0);
}

// The kernel stores eight results at once where every row of d begins at 16 bytes, and says which it did.
TEST(Gemm, SaysHowItStores) {
  EXPECT_TRUE(run("gemm a=mxfp8 b=mxfp8 16x8x64").served.by.ends_with("d vector"));
  EXPECT_TRUE(run("gemm a=mxfp8 b=mxfp8 12x8x64").served.by.ends_with("d scalar"));
  EXPECT_TRUE(run("gemm a=mxfp8 b=mxfp8 16x8x64", {.alignment = 8}).served.by.ends_with("d scalar"));
}

TEST(Gemm, StepsAfterTheSum) {
  EXPECT_EQ(sum_of({1}, {1}, "beta=1 bias=f32", {{"c", floats({0x1p24f})}, {"bias", floats({-0x1p24f})}}),
            0.0f);                                                            // bias first: 1
  EXPECT_EQ(sum_of({1}, {1}, "alpha=2 beta=1", {{"c", floats({3})}}), 5.0f);  // alpha last: 8
  EXPECT_EQ(sum_of({1}, {1}, "alpha=0x33800000 bias=f32", {{"bias", floats({1})}}),
            1.0f);  // 2^-24: alpha last gives 2^-23
  EXPECT_EQ(sum_of({1}, {-(1 + 0x1p-11f)}, "beta=0x3F800800", {{"c", floats({1 + 0x1p-12f})}}),
            0.0f);  // fused: 2^-24
  EXPECT_EQ(sum_of({1 + 0x1p-12f}, {1}, "alpha=0x3F800800 bias=f32", {{"bias", floats({-(1 + 0x1p-11f)})}}),
            0.0f);                                                                // fused: 2^-24
  EXPECT_EQ(std::bit_cast<uint32_t>(sum_of({0}, {1}, "alpha=-1")), 0x80000000u);  // + 0 would lose the sign
  EXPECT_EQ(std::bit_cast<uint32_t>(sum_of({0}, {1}, "alpha=-1 bias=f32", {{"bias", floats({0})}})), 0u);
  // f16: 65520 is past the last value, to infinity; e4m3 stays at 448, and takes a negative one too. A NaN is
  // stored as one.
  const Planes big{{"a.data", floats({65520})}, {"b.data", floats({1})}},
      nan{{"a.data", floats({std::bit_cast<float>(0xFFC00001u)})}, {"b.data", floats({1})}};
  const std::string line = "gemm a=identity b=identity 1x1x1 f32 ";
  EXPECT_EQ(first(line + "out=f16", big), 0x7C00u);
  EXPECT_EQ(first(line + "out=bf16", big), 0x4780u);
  EXPECT_EQ(first(line + "out=e4m3 alpha=-1", big), 0xFEu);
  EXPECT_EQ(first(line + "out=e5m2", big), 0x7Bu);
  EXPECT_EQ(first(line + "out=f32", nan), 0x7FFFFFFFu);
  EXPECT_EQ(first(line + "out=bf16", nan), 0x7FFFu);
  // Row n of c and column m of both c and the bias.
  const Ran r = run("gemm a=identity b=identity 2x2x1 f32 out=f32 beta=2 bias=bf16", {},
                    {{"a.data", floats({1, 2})},
                     {"b.data", floats({10, 20})},
                     {"c", floats({100, 200, 300, 400})},
                     {"bias", bytes_of({0, 0, 0, 0x3F})}});
  EXPECT_EQ(r.out.at("d"), floats({210, 420.5f, 620, 840.5f}));
}

// One 16 of codes 1.0 and zeros under a scale of 1.0: what remains is the amaxes.
TEST(Gemm, RowAmaxesComeAfterTheSum) {
  const float third = 1.0f / 3, fifth = 1.0f / 5, inverse = std::bit_cast<float>(0x39C30C31u),
              v = inverse * inverse;
  const auto product = [&](const char* keys, int m, int n) {
    const std::string line = std::string("gemm a=nvfp4 b=nvfp4 2x2x16 out=f32 ") + keys;
    const Problem p = parsed(line);
    Planes given;
    for (const Plane& plane : input_planes(p)) {
      Bytes bytes(plane.bytes(), std::byte{0});
      if (plane.name.ends_with(".data")) bytes[0] = bytes[8] = std::byte{0x02};
      if (plane.name.ends_with(".scale_inv")) bytes[0] = bytes[4] = std::byte{0x38};
      if (plane.name == "a.amax") bytes = plane.logical.rows == 2 ? floats({1, third}) : floats({third});
      if (plane.name == "bias") bytes = floats({1, 1});
      if (plane.name == "b.amax") bytes = plane.logical.rows == 2 ? floats({1, fifth}) : floats({fifth});
      given[plane.name] = bytes;
    }
    return std::bit_cast<float>(at(run(line, {}, given).out.at("d"), n * 2 + m, 4));
  };
  EXPECT_EQ(product("row_scaled=1", 0, 0), v);
  EXPECT_EQ(product("row_scaled=1", 1, 0), v * third);
  EXPECT_EQ(product("row_scaled=1", 0, 1), v * fifth);
  EXPECT_EQ(product("row_scaled=1", 1, 1), (v * fifth) * third);
  EXPECT_EQ(product("a.row_scaled=1", 1, 1), v * (third * fifth));
  EXPECT_EQ(product("a.row_scaled=1", 0, 0), v * fifth);
  EXPECT_EQ(product("b.row_scaled=1", 1, 1), v * (third * fifth));
  EXPECT_EQ(product("row_scaled=1 bias=f32", 1, 1), (v * fifth) * third + 1);  // amaxes last: about 1/15
  EXPECT_EQ(product("", 1, 1), (third * inverse) * (fifth * inverse));
  EXPECT_NE((v * fifth) * third, v * (third * fifth));
}

// The scale_inv of row m of a and of row n of b (N3.12), in the elements and not after the sum: N16.9 is of
// nvfp4.
TEST(Gemm, RowScalesAreOfTheElements) {
  const Bytes ones = bytes_of({0x38, 0x38});
  const auto products = [&](const char* keys, const std::vector<float>& a, const std::vector<float>& b) {
    return run(std::string("gemm a=fp8_current b=fp8_current 2x2x1 out=f32 ") + keys, {},
               {{"a.data", ones}, {"b.data", ones}, {"a.scale_inv", floats(a)}, {"b.scale_inv", floats(b)}})
        .out.at("d");
  };
  for (const char* op : {"op=TN", "op=NN", "op=NT"})
    EXPECT_EQ(products((std::string("row_scaled=1 ") + op).c_str(), {2, 3}, {5, 7}),
              floats({10, 15, 14, 21}));
  EXPECT_EQ(products("a.row_scaled=1", {2, 3}, {5}), floats({10, 15, 10, 15}));
  EXPECT_EQ(products("b.row_scaled=1", {2}, {5, 7}), floats({10, 10, 14, 14}));
  // 1/19 and 7 beside 1 and 1.5: after the sum they would give 3F6BCA1B as one factor and 3F6BCA1C one by
  // one.
  EXPECT_EQ(first("gemm a=fp8_current b=fp8_current 1x1x2 out=f32 row_scaled=1",
                  {{"a.data", bytes_of({0x38, 0x3C})},
                   {"b.data", ones},
                   {"a.scale_inv", floats({1.0f / 19})},
                   {"b.scale_inv", floats({7})}}),
            0x3F6BCA1Au);
}

// Every plane with values that neither overflow nor vanish beside each other: no NaN hides a sum.
Planes moderate(const Problem& p) {
  Planes out;
  for (const Plane& plane : input_planes(p)) {
    Bytes bytes(plane.bytes());
    const EncodingInfo& e = info(plane.encoding);
    for (int64_t i = 0; i < plane.padded.count(); ++i) {
      const uint64_t h = mix(static_cast<uint64_t>(i) * 613 + plane.name[0] + plane.name.size());
      const bool scale = plane.name.ends_with("scale_inv") || plane.name.ends_with("amax");
      uint32_t code = static_cast<uint32_t>(h);
      if (plane.encoding == Encoding::e8m0) code = 124 + static_cast<uint32_t>(h % 7);
      else if (e.bits > 4)
        code = (code & (((1u << e.mantissa_bits) - 1) | (scale ? 0 : 1u << (e.bits - 1)))) |
               static_cast<uint32_t>(e.bias - 2 + static_cast<int>(h >> 40) % 5) << e.mantissa_bits;
      if (plane.packed)
        bytes[static_cast<size_t>(i / 2)] |= static_cast<std::byte>((code & 0xF) << (i % 2 * 4));
      else std::memcpy(bytes.data() + i * e.bytes(), &code, static_cast<size_t>(e.bytes()));
    }
    out[plane.name] = bytes;
  }
  return out;
}

// The operand as its own dequantize gives it, [line][k].
std::vector<float> operand(const Problem& p, Side side, const Ran& gemm) {
  const Problem alone = operand_dequantize(p, side);
  Planes given;
  for (const Plane& plane : input_planes(alone)) {
    const std::string name = std::string(name_of(side)) + plane.name.substr(plane.name.find('.'));
    for (size_t i = 0; i < gemm.in_planes.size(); ++i)
      if (gemm.in_planes[i].name == name) given[plane.name] = gemm.in[i];
  }
  EXPECT_EQ(given.size(), input_planes(alone).size());
  const auto subject = make_host_subject();
  const Bytes y = run(alone, *subject, {}, given).out.at("y");
  const Encoding e = output_planes(alone)[0].encoding;
  const Gemm& g = *p.as<Gemm>();
  const bool rows = g.direction(side) == Direction::row;
  const int64_t lines = rows ? alone.x.shape.rows : alone.x.shape.cols;
  std::vector<float> out;
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t k = 0; k < g.k; ++k)
      out.push_back(fast_host::as_float(
          fast_host::decode_from(e, at(y, rows ? line * g.k + k : k * lines + line, info(e).bytes()))));
  return out;
}

TEST(Gemm, EveryPairOfFormatsAndEveryLayout) {
  const std::vector<std::string> operands = {"identity", "fp8_delayed", "fp8_current", "fp8_block",
                                             "mxfp8",    "nvfp4",       "mxfp4"};
  const std::vector<std::string> shapes = {"1x1x1",     "9x7x33",    "64x64x32",
                                           "72x40x160", "129x66x47", "130x8x256"};
  int compared = 0, vectors = 0, scalars = 0;
  for (const std::string& a : operands)
    for (const std::string& b : operands)
      for (const char* op : {"TN", "NN", "NT"}) {
        const std::string& shape = shapes[static_cast<size_t>(
            mix(a.size() * 131 + b.size() * 17 + a[0] * 7 + b.back() * 3 + op[0] + 2 * op[1]) %
            shapes.size())];
        std::string keys = " op=" + std::string(op) + " out=f32";
        if (a == "mxfp8" || a.starts_with("fp8")) keys += " a.element=e5m2";
        if (b == "fp8_block") keys += " b.block=128x128";
        if (a == "fp8_current" && op[0] == 'N') keys += " a.row_scaled=1";  // N3.12
        if (b == "fp8_current" && op[1] == 'N') keys += " b.row_scaled=1";
        const std::string line =
            "gemm a=" + a + " b=" + b + " " + shape + (a == "identity" ? " f16" : " bf16") + keys;
        const Problem p = parsed(line);
        const auto subject = make_host_subject();
        const Ran r = run(p, *subject, {}, moderate(p));
        const std::vector<float> left = operand(p, Side::a, r), right = operand(p, Side::b, r);
        const Gemm& g = *p.as<Gemm>();
        Bytes want;
        for (int64_t n = 0; n < p.x.shape.rows; ++n)
          for (int64_t m = 0; m < p.x.shape.cols; ++m) {
            float acc = 0;
            for (int64_t k = 0; k < g.k; ++k)
              acc = acc + left[static_cast<size_t>(m * g.k + k)] * right[static_cast<size_t>(n * g.k + k)];
            ASSERT_TRUE(acc < 0x1p60f && acc > -0x1p60f) << line;
            const uint32_t code = std::bit_cast<uint32_t>(acc);
            want.insert(want.end(), reinterpret_cast<const std::byte*>(&code),
                        reinterpret_cast<const std::byte*>(&code) + 4);
          }
        expect_equal(r.out, {{"d", want}}, line);
        if (HasFatalFailure()) return;
        ++compared;
        (r.served.by.find("a vector") != std::string::npos ? vectors : scalars)++;
      }
  EXPECT_EQ(compared, 147);
  EXPECT_GT(vectors, 20);
  EXPECT_GT(scalars, 20);
}

TEST(Gemm, TransposedElementsKeepTheirBits) {
  for (int bytes : {1, 2, 4})
    for (const auto& [rows, cols] :
         {std::pair{1, 1}, std::pair{33, 70}, std::pair{64, 32}, std::pair{5, 0}}) {
      simt::DeviceBuffer from(static_cast<size_t>(rows * cols * bytes), "from"),
          to(static_cast<size_t>(rows * cols * bytes), "to");
      for (int i = 0; i < rows * cols * bytes; ++i)
        from.as<uint8_t>()[i] = static_cast<uint8_t>(mix(static_cast<uint64_t>(i)));
      fast_host::transpose_elements(from.data(), to.data(), rows, cols, bytes);
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c)
          ASSERT_EQ(std::memcmp(to.as<uint8_t>() + (c * rows + r) * bytes,
                                from.as<uint8_t>() + (r * cols + c) * bytes, static_cast<size_t>(bytes)),
                    0)
              << rows << 'x' << cols << ' ' << r << ' ' << c;
      EXPECT_FALSE(to.intact());
    }
}

TEST(Gemm, EnvironmentDecidesNoBit) {
  for (const char* line : {"gemm a=mxfp8 b=nvfp4 129x66x160 op=NT out=bf16 bias=f16 beta=2",
                           "gemm a=identity b=fp8_block 72x80x256 f32 op=NN out=f32",
                           "gemm a=nvfp4 b=nvfp4 70x66x48 row_scaled=1 out=e4m3",
                           "gemm a=fp8_current b=mxfp4 64x128x64 out=e5m2 alpha=3"}) {
    const Planes given = moderate(parsed(line)), want = run(line, {}, given).out;
    for (const char* text : {"order=reverse,poison=00", "order=5,threads=2", "alignment=16,order=3",
                             "alignment=8", "alignment=4,poison=ff", "alignment=1"})
      expect_equal(run(line, *parse_environment(text), given).out, want,
                   std::string(line) + " --env " + text);
  }
}

}  // namespace
}  // namespace assay

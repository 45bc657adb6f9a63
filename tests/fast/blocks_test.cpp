// Blockwise FP8 and MXFP4 on the host executor, and the swizzles of every format with blocks: bytes worked by
// hand from the clauses, tails, equal bytes in every environment and by every policy. Equality with the
// reference is judged by the suites.
#include "fast/lane/fp8_block.cuh"
#include "fast/lane/mxfp4.cuh"
#include "tests/fast/run.h"

namespace assay {
namespace {

template <class T> Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}
Bytes bits(const std::vector<uint32_t>& v) { return bytes_of(v); }
Bytes codes(const std::vector<uint8_t>& v) { return bytes_of(v); }
Bytes floats(const std::vector<float>& v) { return bytes_of(v); }

// Element (i, j) of a compact plane, packed or not.
uint32_t element(const Plane& plane, const Bytes& bytes, int64_t i, int64_t j) {
  const int64_t index = i * plane.padded.cols + j;
  if (plane.packed)
    return std::to_integer<uint32_t>(bytes[static_cast<size_t>(index / 2)]) >> (index % 2 * 4) & 0xF;
  return at(bytes, index, info(plane.encoding).bytes());
}
const Plane& plane_of(const Ran& r, const std::string& name) {
  for (const Plane& p : r.out_planes)
    if (p.name == name) return p;
  throw std::runtime_error("no plane " + name);
}

// A single element, one more than a block, one less and one more than a tile, two tiles and a bit; aligned
// and not.
const std::vector<std::string> kShapes = {"1x1",   "1x129",   "129x1",   "8x24",
                                          "31x33", "127x257", "128x128", "136x264"};
const std::vector<std::string> kQuantizers = {"fp8_block #",
                                              "fp8_block # element=e5m2 pow2=0 eps=0.03",
                                              "fp8_block # block=128x128 pow2=0",
                                              "fp8_block # block=128x128 scales=gemm",
                                              "fp8_block # scales=gemm neg_zero=plus inf_amax=zero",
                                              "fp8_block # row.block=128x128 col.element=e5m2 col.pow2=0",
                                              "mxfp4 #",
                                              "mxfp4 # scales=gemm",
                                              "mxfp4 # neg_zero=plus row.nan_amax=propagate"};
std::vector<std::string> quantize_lines(const std::vector<std::string>& shapes,
                                        const std::vector<std::string>& sources = {"bf16", "f16", "f32"}) {
  std::vector<std::string> out;
  for (const std::string& shape : shapes)
    for (const std::string& source : sources)
      for (const std::string& q : kQuantizers)
        for (const char* dir : {"row", "col", "both"}) {
          if (std::string(dir) != "both" &&
              (q.find("row.") != std::string::npos || q.find("col.") != std::string::npos))
            continue;
          std::string line = q;
          out.push_back("quantize " + line.replace(line.find('#'), 1, shape + " " + source + " dir=" + dir));
        }
  return out;
}

// The table of scales that TransformerEngine's formula gives, worked on a CPU by third parties: amax, then
// scale and scale_inv of E4M3, E4M3 with pow2, and E5M2 (N9.2).
struct ScaleRow {
  uint32_t amax, e4m3[2], pow2[2], e5m2[2];
};
const std::vector<ScaleRow> kScaleTable = {
    {0x00000000, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}},
    {0x3F800000, {0x43E00000, 0x3B124925}, {0x43800000, 0x3B800000}, {0x47600000, 0x37924925}},
    {0x40400000, {0x43155555, 0x3BDB6DB7}, {0x43000000, 0x3C000000}, {0x46955555, 0x385B6DB7}},
    {0x3E99999A, {0x44BAAAAA, 0x3A2F8AF9}, {0x44800000, 0x3A800000}, {0x483AAAAA, 0x36AF8AF9}},
    {0x43E00000, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x43000000, 0x3C000000}},
    {0x43E08000, {0x3F7F6E0A, 0x3F804925}, {0x3F000000, 0x40000000}, {0x42FF6E0A, 0x3C004925}},
    {0x47600000, {0x3C000000, 0x43000000}, {0x3C000000, 0x43000000}, {0x3F800000, 0x3F800000}},
    {0x03AA2425, {0x7F7FFFFF, 0x00200000}, {0x7F000000, 0x00400000}, {0x7F7FFFFF, 0x00200000}},
    {0x00000001, {0x7F7FFFFF, 0x00200000}, {0x7F000000, 0x00400000}, {0x7F7FFFFF, 0x00200000}},
    {0x04600001, {0x7EFFFFFF, 0x00400000}, {0x7E800000, 0x00800000}, {0x7F7FFFFF, 0x00200000}},
    {0x7F7FFFFF, {0x03E00001, 0x7B124924}, {0x03800000, 0x7B800000}, {0x07600001, 0x77924924}},
    {0x7F800000, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}},
};

TEST(Blocks, ScalesOfBlockwiseFp8EqualTheTable) {
  std::vector<uint32_t> amax;
  for (const ScaleRow& row : kScaleTable) amax.push_back(row.amax);
  const std::string line = "scale_chain fp8_block 1x" + std::to_string(amax.size()) + " f32 ";
  for (const auto& [keys, column] : {std::pair{"pow2=0", &ScaleRow::e4m3},
                                     {"pow2=1", &ScaleRow::pow2},
                                     {"pow2=0 element=e5m2", &ScaleRow::e5m2}}) {
    const Planes out = run(line + keys, {}, {{"x", bits(amax)}}).out;
    for (size_t i = 0; i < amax.size(); ++i) {
      EXPECT_EQ(at(out.at("scale"), static_cast<int64_t>(i), 4), (kScaleTable[i].*column)[0])
          << keys << ' ' << std::hex << amax[i];
      EXPECT_EQ(at(out.at("scale_inv"), static_cast<int64_t>(i), 4), (kScaleTable[i].*column)[1])
          << keys << ' ' << std::hex << amax[i];
    }
  }
}

// The same out of tensors of one element.
TEST(Blocks, BlockwiseFp8QuantizesWithTheTablesScales) {
  for (const ScaleRow& row : kScaleTable)
    for (const char* block : {"1x128", "128x128"}) {
      const Ran r =
          run("quantize fp8_block 1x1 f32 pow2=0 block=" + std::string(block), {}, {{"x", bits({row.amax})}});
      for (const char* d : {"row", "col"}) {
        EXPECT_EQ(at(r.out.at(std::string(d) + ".scale_inv"), 0, 4), row.e4m3[1]) << std::hex << row.amax;
        for (int64_t pad = 1; pad < 4; ++pad)
          EXPECT_EQ(at(r.out.at(std::string(d) + ".scale_inv"), pad, 4), 0u);
      }
    }
}

// fl(amax / 6) rounded up to a power of two (N15.2, N5.3), multiplier and decode scale (N5.4, N5.9).
TEST(Blocks, ScalesOfMxfp4) {
  struct Row {
    uint32_t amax, code, multiplier, decoded;
  };
  const std::vector<Row> rows = {
      {0x00000000, 0x00, 0x7F000000, 0x00400000},  // 0
      {0x00000001, 0x00, 0x7F000000, 0x00400000},  // 2^-149 / 6 rounds to 0
      {0x3F800000, 0x7D, 0x40800000, 0x3E800000},  // 1 / 6 = 0.1667 -> 2^-2
      {0x40400000, 0x7E, 0x40000000, 0x3F000000},  // 3 / 6 = 2^-1 exactly
      {0x40400001, 0x7F, 0x3F800000, 0x3F800000},  // just above: 3F000001 -> 2^0
      {0x40A00000, 0x7F, 0x3F800000, 0x3F800000},  // 5 / 6 -> 2^0
      {0x40C00000, 0x7F, 0x3F800000, 0x3F800000},  // 6 / 6 = 2^0
      {0x40C00001, 0x80, 0x3F000000, 0x40000000},  // 1 + 2/3 of its last place, to 3F800001 -> 2^1
      {0x01C00000, 0x01, 0x7E800000, 0x00800000},  // 1.5 * 2^-124 / 6 = 2^-126 exactly
      {0x01400001, 0x00, 0x7F000000,
       0x00400000},  // 1.5 * 2^-125 and a last place: 2^-127 + 2^-149 / 3, which rounds to 2^-127
      {0x01400003, 0x01, 0x7E800000, 0x00800000},  // three last places: 2^-127 + 2^-149
      {0x7F7FFFFF, 0xFD, 0x00800000, 0x7E800000},  // FLT_MAX / 6 = 2^125.4 -> 2^126
      {0x7F800000, 0xFE, 0x00400000, 0x7F000000},  // infinity
      {0x7FC00000, 0xFF, 0x7FFFFFFF, 0x7FFFFFFF},  // NaN
  };
  std::vector<uint32_t> amax;
  for (const Row& row : rows) amax.push_back(row.amax);
  const std::string count = std::to_string(rows.size());
  const Planes out = run("scale_chain mxfp4 1x" + count + " f32", {}, {{"x", bits(amax)}}).out;
  std::vector<uint8_t> stored;
  for (size_t i = 0; i < rows.size(); ++i) {
    stored.push_back(static_cast<uint8_t>(rows[i].code));
    EXPECT_EQ(at(out.at("scale_inv"), static_cast<int64_t>(i), 1), rows[i].code) << std::hex << rows[i].amax;
    EXPECT_EQ(at(out.at("multiplier"), static_cast<int64_t>(i), 4), rows[i].multiplier)
        << std::hex << rows[i].amax;
    EXPECT_EQ(at(out.at("decoded"), static_cast<int64_t>(i), 4), rows[i].decoded) << std::hex << rows[i].amax;
  }
  const Planes from_codes = run("scale_chain mxfp4 1x" + count + " e8m0", {}, {{"x", codes(stored)}}).out;
  for (const char* name : {"multiplier", "decoded"}) EXPECT_EQ(from_codes.at(name), out.at(name)) << name;
}

// x = 1, 3, -0, -0.3: amax 3, and with pow2 scale 2^7 (N9.2). 1 * 128 = 2^7; 3 * 128 = 1.5 * 2^8; -0.3 * 128
// = -38.4 -> -40 on a grid of 4. Without pow2, 448/3 = 149.33: 1 -> 144 on a grid of 16; 3 -> 448; -0.3 ->
// -44.8 -> -44.
TEST(Blocks, BlockwiseFp8ByHand) {
  const Planes x = {{"x", floats({1, 3, -0.0f, -0.3f})}};
  const Planes pow2 = run("quantize fp8_block 1x4 f32 dir=row", {}, x).out,
               plain = run("quantize fp8_block 1x4 f32 dir=row pow2=0", {}, x).out;
  EXPECT_EQ(pow2.at("row.data"), codes({0x70, 0x7C, 0x80, 0xE2}));
  EXPECT_EQ(pow2.at("row.scale_inv"), bits({0x3C000000, 0, 0, 0}));
  EXPECT_EQ(plain.at("row.data"), codes({0x71, 0x7E, 0x80, 0xE3}));
  EXPECT_EQ(plain.at("row.scale_inv"), bits({0x3BDB6DB7, 0, 0, 0}));
  EXPECT_EQ(run("quantize fp8_block 1x4 f32 dir=row neg_zero=plus", {}, x).out.at("row.data"),
            codes({0x70, 0x7C, 0x00, 0xE2}));  // N5.6
  // Columns of one element each: 448 / 1, and so on; -0 has scale 1 (N3.4). Stored [4, 1], scales [1, 4]
  // (N9.4).
  const Planes col = run("quantize fp8_block 1x4 f32 dir=col", {}, x).out;
  EXPECT_EQ(col.at("col.data"),
            codes({0x78, 0x7C, 0x80, 0xFA}));  // 256, 384, -0, -0.3 * 1024 = -307.2 -> -320
  EXPECT_EQ(col.at("col.scale_inv"), bits({0x3B800000, 0x3C000000, 0x3F800000, 0x3A800000}));
  // One tile for all (128x128): the row's scale in both directions.
  const Planes square = run("quantize fp8_block 1x4 f32 block=128x128", {}, x).out;
  for (const char* d : {"row", "col"}) {
    EXPECT_EQ(square.at(std::string(d) + ".data"), codes({0x70, 0x7C, 0x80, 0xE2}));
    EXPECT_EQ(square.at(std::string(d) + ".scale_inv"), bits({0x3C000000, 0, 0, 0}));
  }
  // GEMM layout: the exponent field four times (N9.6).
  const Planes gemm = run("quantize fp8_block 1x4 f32 dir=row scales=gemm", {}, x).out;
  ASSERT_EQ(gemm.at("row.scale_gemm").size(), 512u);
  for (int64_t i = 0; i < 512; ++i) EXPECT_EQ(at(gemm.at("row.scale_gemm"), i, 1), i < 4 ? 0x78u : 0u) << i;
}

// An infinity sets the block's scale to 1 (N3.4), or to 0 under inf_amax=zero: then every finite element is 0
// and the infinity NaN. NaN does not count.
TEST(Blocks, SpecialValuesOfBlockwiseFp8) {
  const Planes inf = {{"x", bits({0x7F800000, 0x3F800000, 0xFF800000, 0x7FC00000})}};
  const Planes unit = run("quantize fp8_block 1x4 f32 dir=row", {}, inf).out,
               zero = run("quantize fp8_block 1x4 f32 dir=row inf_amax=zero", {}, inf).out;
  EXPECT_EQ(unit.at("row.data"), codes({0x7E, 0x38, 0xFE, 0x7F}));
  EXPECT_EQ(at(unit.at("row.scale_inv"), 0, 4), 0x3F800000u);
  EXPECT_EQ(zero.at("row.data"), codes({0x7F, 0x00, 0x7F, 0x7F}));
  EXPECT_EQ(at(zero.at("row.scale_inv"), 0, 4), 0x7F800000u);
  const Planes nan = {{"x", bits({0x7FC00000, 0x3F800000, 0xFFC00000, 0x80000001})}};
  EXPECT_EQ(run("quantize fp8_block 1x4 f32 dir=row", {}, nan).out.at("row.data"),
            codes({0x7F, 0x78, 0x7F, 0x80}));
  // An infinite scale is replaced before pow2 is applied: FLT_MAX, or the source's largest (N3.5).
  const Planes tiny = {{"x", bytes_of(std::vector<uint16_t>{0x0001})}};
  EXPECT_EQ(run("quantize fp8_block 1x1 bf16 dir=row pow2=0", {}, tiny).out.at("row.scale_inv"),
            bits({0x00200000, 0, 0, 0}));
  EXPECT_EQ(run("quantize fp8_block 1x1 bf16 dir=row pow2=0 scale_limit=source_max", {}, tiny)
                .out.at("row.scale_inv"),
            bits({0x00202020, 0, 0, 0}));
  EXPECT_EQ(
      run("quantize fp8_block 1x1 bf16 dir=row scale_limit=source_max", {}, tiny).out.at("row.scale_inv"),
      bits({0x00400000, 0, 0, 0}));
}

// x = 6, 1, -3, 0.25, -0: amax 6, scale 2^0. 6 -> 7, 1 -> 2, -3 -> D, 0.25 is a tie between 0 and 0.5 and
// goes to 0, -0 -> 8. Two in a byte, the first low, an odd row padded with 0 (N6.8).
TEST(Blocks, Mxfp4ByHand) {
  const Planes x = {{"x", floats({6, 1, -3, 0.25f, -0.0f})}};
  const Ran row = run("quantize mxfp4 1x5 f32 dir=row", {}, x);
  EXPECT_EQ(row.out.at("row.data"), codes({0x27, 0x0D, 0x08}));
  for (int64_t i = 0; i < 512; ++i) EXPECT_EQ(at(row.out.at("row.scale_inv"), i, 1), i == 0 ? 0x7Fu : 0u);
  EXPECT_EQ(run("quantize mxfp4 1x5 f32 dir=row neg_zero=plus", {}, x).out.at("row.data"),
            codes({0x27, 0x0D, 0x00}));
  // Columns are stored [5, 1], a block each: 6 / 6 = 2^0; 1 / 6 -> 2^-2, 1 * 4 = 4 -> 6; 3 / 6 = 2^-1, -3 * 2
  // = -6 -> F; 0.25 / 6 -> 2^-4, 4 -> 6; 0 -> 2^-127.
  const Ran col = run("quantize mxfp4 1x5 f32 dir=col", {}, x);
  EXPECT_EQ(col.out.at("col.data"), codes({0x07, 0x06, 0x0F, 0x06, 0x08}));
  const uint32_t scales[] = {0x7F, 0x7D, 0x7E, 0x7B, 0x00};
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_EQ(at(col.out.at("col.scale_inv"), i * 4 + j, 1), j == 0 ? scales[i] : 0u);
  // NaN elements are 7 and do not count, or take the whole block with them (N5.7); infinities give FE, and
  // what is finite beside them 0.
  const Planes nan = {{"x", bits({0x7FC00000, 0x3F800000})}}, inf = {{"x", bits({0xFF800000, 0x3F800000})}};
  EXPECT_EQ(run("quantize mxfp4 1x2 f32 dir=row", {}, nan).out.at("row.data"), codes({0x67}));
  const Planes spread = run("quantize mxfp4 1x2 f32 dir=row nan_amax=propagate", {}, nan).out;
  EXPECT_EQ(spread.at("row.data"), codes({0x77}));
  EXPECT_EQ(at(spread.at("row.scale_inv"), 0, 1), 0xFFu);
  const Planes infinite = run("quantize mxfp4 1x2 f32 dir=row", {}, inf).out;
  EXPECT_EQ(infinite.at("row.data"), codes({0x0F}));
  EXPECT_EQ(at(infinite.at("row.scale_inv"), 0, 1), 0xFEu);
}

TEST(Blocks, DequantizeByHand) {
  // Codes 7, 2, D, 0, 8 (6, 1, -3, 0, -0) times 2^-1.
  Bytes scale(512, std::byte{0xEE});
  scale[0] = std::byte{0x7E};
  EXPECT_EQ(run("dequantize mxfp4 1x5 f32 dir=row out=f32", {},
                {{"row.data", codes({0x27, 0x0D, 0xF8})}, {"row.scale_inv", scale}})
                .out.at("y"),
            floats({3, 0.5f, -1.5f, 0, -0.0f}));
  // Stored [5, 1]: a scale for each; FF makes NaN, 00 the subnormal 2^-127.
  const uint8_t each[] = {0x7F, 0x80, 0xFF, 0x00, 0x7F};
  for (size_t i = 0; i < 5; ++i) scale[i * 4] = std::byte{each[i]};
  EXPECT_EQ(run("dequantize mxfp4 1x5 f32 dir=col out=f32", {},
                {{"col.data", codes({0x07, 0x02, 0x0D, 0x02, 0x08})}, {"col.scale_inv", scale}})
                .out.at("y"),
            bits({0x40C00000, 0x40000000, 0x7FFFFFFF, 0x00400000, 0x80000000}));
  // 448, 1, NaN by 0.75 and, in bf16, one rounding more: 448 * 0.7514 = 336.6 -> 336.
  EXPECT_EQ(run("dequantize fp8_block 1x3 f32 dir=row out=f32", {},
                {{"row.data", codes({0x7E, 0xB8, 0x7F})}, {"row.scale_inv", floats({0.75f, 9, 9, 9})}})
                .out.at("y"),
            bits({0x43A80000, 0xBF400000, 0x7FFFFFFF}));
  EXPECT_EQ(run("dequantize fp8_block 1x1 bf16 dir=row", {},
                {{"row.data", codes({0x7E})}, {"row.scale_inv", floats({0.7514f, 9, 9, 9})}})
                .out.at("y"),
            bytes_of(std::vector<uint16_t>{0x43A8}));
}

// N9.6: element (i, j) of the stored data takes the code at j/32 of its own row, whatever its copies hold.
TEST(Blocks, DequantizeReadsItsOwnCopyOfAGemmScale) {
  for (const char* dir : {"row", "col"})
    for (const char* block : {"1x128", "128x128"}) {
      const std::string d = dir;
      const Problem p =
          parsed("dequantize fp8_block 130x260 f32 out=f32 scales=gemm dir=" + d + " block=" + block);
      Bytes data(130 * 260, std::byte{0x38});  // 1
      Bytes scales = filled(input_planes(p)[0]);
      const Planes out =
          run(p, *make_host_subject(), {}, {{d + ".data", data}, {d + ".scale_gemm", scales}}).out;
      const int64_t tiles = d == "row" ? 3 : 2;
      for (int64_t r = 0; r < 130; ++r)
        for (int64_t c = 0; c < 260; ++c) {
          const int64_t i = d == "row" ? r : c, j = (d == "row" ? c : r) / 32;
          const uint32_t code =
              at(scales, (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4, 1);
          const uint32_t want = code == 255 ? 0x7FFFFFFFu : code == 0 ? 0x00400000u : code << 23;
          ASSERT_EQ(at(out.at("y"), r * 260 + c, 4), want) << dir << ' ' << block << ' ' << r << ' ' << c;
        }
    }
}

TEST(Blocks, EnvironmentDecidesNoBit) {
  std::vector<std::string> lines = quantize_lines({"1x1", "31x33", "127x257"}, {"bf16", "f32"});
  for (const char* more :
       {"quantize fp8_block 300x300 bf16", "quantize mxfp4 300x300 bf16",
        "quantize fp8_block/mxfp4 127x257 bf16 col_source=row_dequantized",
        "quantize mxfp4/fp8_block 127x257 f32 col_source=row_dequantized",
        "dequantize mxfp4 65x72 bf16 dir=col", "dequantize mxfp4 65x73 f32 dir=row scales=gemm",
        "dequantize fp8_block 136x264 bf16 dir=col out=f32",
        "dequantize fp8_block 129x257 bf16 dir=col block=128x128 out=f16",
        "swizzle mxfp4 200x300 e8m0 dir=col", "swizzle nvfp4 200x300 e4m3 dir=col inverse=1",
        "swizzle fp8_block 200x300 f32 dir=row", "swizzle fp8_block 200x300 f32 dir=col block=128x128",
        "swizzle fp8_block 200x300 f32 dir=col inverse=1", "scale_chain fp8_block 3x100 f32",
        "scale_chain mxfp4 3x100 f32"})
    lines.push_back(more);
  for (const std::string& line : lines) {
    const Planes want = run(line).out;
    for (const char* text : {"order=reverse,poison=00", "order=5,threads=2", "order=17,poison=ff,threads=2",
                             "alignment=16", "alignment=8,order=3", "alignment=4,poison=80", "alignment=1"}) {
      const auto env = parse_environment(text);
      ASSERT_TRUE(env) << env.error().text();
      expect_equal(run(line, *env).out, want, line + " --env " + text);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Blocks, EveryPolicyGivesTheSameBytes) {
  for (const std::string& line : quantize_lines(kShapes)) {
    const Ran automatic = run(line);
    expect_equal(run(parsed(line), *make_general_host_subject()).out, automatic.out, line);
    expect_equal(run(parsed(line), *make_apart_host_subject()).out, automatic.out, line);
    if (HasFatalFailure()) return;
  }
}

// N13.2: the planes of a pair are those of its formats alone.
TEST(Blocks, APairIsItsFormatsAlone) {
  for (const char* other : {"identity", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "mxfp4"})
    for (const char* mine : {"fp8_block", "mxfp4"})
      for (const auto& [row, col] : {std::pair{mine, other}, {other, mine}}) {
        const std::string tail = " 127x257 bf16";
        Planes want = run("quantize " + std::string(row) + tail + " dir=row").out;
        want.merge(run("quantize " + std::string(col) + tail + " dir=col").out);
        expect_equal(run("quantize " + std::string(row) + "/" + col + tail).out, want,
                     std::string(row) + "/" + col);
        if (HasFatalFailure()) return;
      }
}

// N13.1: columns of the dequantized rows are columns of what dequantize gives.
TEST(Blocks, ColumnsOfTheDequantizedRows) {
  for (const char* row : {"fp8_block", "fp8_block pow2=0", "fp8_block block=128x128", "fp8_block scales=gemm",
                          "mxfp4", "mxfp4 scales=gemm"})
    for (const char* source : {"bf16", "f32"}) {
      const std::string keys = row, format = keys.substr(0, keys.find(' ')),
                        rest = keys.find(' ') == std::string::npos ? "" : keys.substr(keys.find(' '));
      const std::string tail = " 127x257 " + std::string(source);
      std::string row_keys = rest;
      if (!rest.empty()) row_keys = " row." + rest.substr(1);
      const Planes alone = run("quantize " + format + tail + " dir=row" + rest).out;
      const bool gemm = rest == " scales=gemm";
      std::string dequantize =
          "dequantize " + format + tail + " dir=row out=" + source + (rest == " pow2=0" ? "" : rest);
      const std::string scale = gemm ? "row.scale_gemm" : "row.scale_inv";
      const Planes y =
          run(dequantize, {}, {{"row.data", alone.at("row.data")}, {scale, alone.at(scale)}}).out;
      const Planes want = run("quantize mxfp8" + tail + " dir=col", {}, {{"x", y.at("y")}}).out;
      Planes got = run("quantize " + format + "/mxfp8" + tail + " col_source=row_dequantized" + row_keys).out;
      std::erase_if(got, [](const auto& plane) { return plane.first.starts_with("row."); });
      expect_equal(got, want, keys + tail);
      if (HasFatalFailure()) return;
    }
}

// Data and scales of every element against the trace, which walks the element's block in plain loops.
TEST(Blocks, DataAndScalesEqualTheTrace) {
  const auto host = make_host_subject();
  int scales_seen = 0;
  for (const std::string& line : quantize_lines({"7x8", "31x33", "130x5", "3x140"}, {"bf16"})) {
    const Problem p = parsed(line);
    const Ran r = run(line);
    std::vector<ConstBuffer> inputs;
    for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Quantizer& q = *p.quantizer(d);
      const Plane& data = plane_of(r, plane_name(d, "data"));
      for (int64_t row = 0; row < p.x.shape.rows; ++row)
        for (int64_t col = 0; col < p.x.shape.cols; ++col) {
          const std::vector<TraceStep> steps = host->trace(p, inputs, d, row, col);
          ASSERT_FALSE(steps.empty()) << line;
          ASSERT_EQ(
              element(data, r.out.at(data.name), data.transposed ? col : row, data.transposed ? row : col),
              steps.back().bits)
              << line << ' ' << row << ' ' << col;
          if (q.scales == ScaleLayout::gemm) continue;
          const Plane& scale = plane_of(r, plane_name(d, "scale_inv"));
          const bool fp8 = q.format == FormatId::fp8_block;
          const int64_t i = d == Direction::row ? row : col,
                        j = (d == Direction::row ? col : row) / length_of(q.block);
          for (const TraceStep& step : steps)
            if (step.what == (fp8 ? "scale_inv" : "scale")) {
              ASSERT_EQ(element(scale, r.out.at(scale.name), fp8 ? (is_square(q.block) ? i / 128 : j) : i,
                                fp8 && !is_square(q.block) ? i : j),
                        step.bits)
                  << line << ' ' << row << ' ' << col;
              ++scales_seen;
            }
        }
    }
  }
  EXPECT_GT(scales_seen, 10000);
}

TEST(Blocks, DequantizeEqualsTheTrace) {
  const auto host = make_host_subject();
  for (const char* shape : {"7x8", "31x33", "136x24", "129x140"})
    for (const char* what :
         {"mxfp4 # bf16 dir=row", "mxfp4 # bf16 dir=col out=f32", "mxfp4 # f32 dir=col scales=gemm out=f16",
          "fp8_block # bf16 dir=row", "fp8_block # bf16 dir=col element=e5m2",
          "fp8_block # bf16 dir=col block=128x128 out=f32", "fp8_block # bf16 dir=row scales=gemm",
          "fp8_block # bf16 dir=col scales=gemm block=128x128"}) {
      std::string line = "dequantize " + std::string(what);
      line.replace(line.find('#'), 1, shape);
      const Problem p = parsed(line);
      const Ran r = run(line);
      std::vector<ConstBuffer> inputs;
      for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
      for (int64_t row = 0; row < p.x.shape.rows; ++row)
        for (int64_t col = 0; col < p.x.shape.cols; ++col)
          ASSERT_EQ(at(r.out.at("y"), row * p.x.shape.cols + col, info(r.out_planes[0].encoding).bytes()),
                    host->trace(p, inputs, p.col ? Direction::col : Direction::row, row, col).back().bits)
              << line << ' ' << row << ' ' << col;
    }
}

// N6.4, N6.8.
TEST(Blocks, PaddingIsZero) {
  int64_t padding = 0;
  for (const std::string& line : quantize_lines(kShapes, {"bf16"})) {
    const Ran r = run(line, {.poison = 0x5A});
    for (const Plane& plane : r.out_planes)
      for (int64_t i = 0; i < plane.padded.rows; ++i)
        for (int64_t j = 0; j < plane.padded.cols; ++j) {
          if (i < plane.logical.rows && j < plane.logical.cols) continue;
          const int64_t tiles = plane.padded.cols / 4;
          const uint32_t got =
              plane.layout == ScaleLayout::gemm
                  ? at(r.out.at(plane.name),
                       (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4, 1)
                  : element(plane, r.out.at(plane.name), i, j);
          ASSERT_EQ(got, 0u) << line << ' ' << plane.name << ' ' << i << ' ' << j;
          ++padding;
        }
  }
  EXPECT_GT(padding, 50000);
}

// Columns that are stored transposed have scales like rows: GEMM layout by reshape and transposition (N6.3,
// N6.6).
TEST(Blocks, SwizzleOfRowLikeScales) {
  for (const char* what : {"mxfp4 # e8m0", "nvfp4 # e4m3", "nvfp4 # e4m3 block=16x16"})
    for (const char* shape : {"1x1", "128x128", "200x300", "257x700"})
      for (const char* dir : {"row", "col"}) {
        std::string line = "swizzle " + std::string(what) + " dir=" + dir;
        line.replace(line.find('#'), 1, shape);
        const Ran r = run(line);
        const Plane& compact = r.in_planes[0];
        const Bytes& to = r.out.at(std::string(dir) + ".scale_gemm");
        ASSERT_EQ(to.size(), r.in[0].size());
        int64_t place = 0;
        for (int64_t a = 0; a < compact.padded.rows / 128; ++a)
          for (int64_t b = 0; b < compact.padded.cols / 4; ++b)
            for (int64_t c = 0; c < 32; ++c)
              for (int64_t e = 0; e < 4; ++e)
                for (int64_t f = 0; f < 4; ++f, ++place) {
                  const int64_t i = a * 128 + e * 32 + c, j = b * 4 + f;
                  const bool meaningful = i < compact.logical.rows && j < compact.logical.cols;
                  ASSERT_EQ(at(to, place, 1), meaningful ? element(compact, r.in[0], i, j) : 0u)
                      << line << ' ' << i << ' ' << j;
                }
        const Ran back =
            run(line + " inverse=1", {}, {{std::string(dir) + ".scale_gemm", r.in[0]}});  // any bytes will do
        const Ran again =
            run(line, {}, {{std::string(dir) + ".scale_inv", back.out.at(std::string(dir) + ".scale_inv")}});
        for (int64_t i = 0; i < compact.logical.rows; ++i)
          for (int64_t j = 0; j < compact.logical.cols; ++j) {
            const int64_t byte =
                (i / 128 * (compact.padded.cols / 4) + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
            ASSERT_EQ(at(again.out.at(std::string(dir) + ".scale_gemm"), byte, 1), at(r.in[0], byte, 1))
                << line;
          }
      }
}

// N9.6 both ways, every byte: the exponent field of any scale at all, four times, and for every line of a
// tile; the first copy back.
TEST(Blocks, SwizzleOfBlockwiseFp8) {
  for (const char* shape : {"1x1", "128x128", "129x1", "200x300", "257x700"})
    for (const char* dir : {"row", "col"})
      for (const char* block : {"1x128", "128x128"}) {
        const std::string d = dir, line = "swizzle fp8_block " + std::string(shape) + " f32 dir=" + d +
                                          " block=" + block;
        const bool square = std::string(block) == "128x128";
        const Ran r = run(line), back = run(line + " inverse=1");
        const Plane &compact = r.in_planes[0], &gemm = r.out_planes[0];
        const int64_t lines = gemm.logical.rows, blocks = gemm.logical.cols / 4;
        auto place = [&](int64_t i, int64_t j) {
          return (i / 128 * blocks + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
        };
        auto scale = [&](const Bytes& plane, int64_t i, int64_t b) {
          return element(compact, plane, square ? i / 128 : b, square ? b : i);
        };
        for (int64_t i = 0; i < gemm.padded.rows; ++i)
          for (int64_t j = 0; j < gemm.padded.cols; ++j)
            ASSERT_EQ(at(r.out.at(gemm.name), place(i, j), 1),
                      i < lines ? scale(r.in[0], i, j / 4) >> 23 & 0xFF : 0u)
                << line << ' ' << i << ' ' << j;
        const Bytes& returned = back.out.at(compact.name);
        for (int64_t a = 0; a < compact.padded.rows; ++a)
          for (int64_t b = 0; b < compact.padded.cols; ++b) {
            const bool meaningful = a < compact.logical.rows && b < compact.logical.cols;
            const uint32_t code =
                meaningful ? at(back.in[0], place(square ? a * 128 : b, 4 * (square ? b : a)), 1) : 0u;
            ASSERT_EQ(element(compact, returned, a, b), !meaningful   ? 0u
                                                        : code == 255 ? 0x7FFFFFFFu
                                                        : code == 0   ? 0x00400000u
                                                                      : code << 23)
                << line << ' ' << a << ' ' << b;
          }
      }
}

TEST(Blocks, QuantizingToTheGemmLayoutIsQuantizingThenSwizzling) {
  for (const char* shape : {"31x33", "128x256", "200x300", "129x136"})
    for (const char* dir : {"row", "col"})
      for (const auto& [format, scale, block] : {std::tuple{"mxfp4", "e8m0", ""},
                                                 {"fp8_block", "f32", " block=1x128"},
                                                 {"fp8_block", "f32", " block=128x128"}}) {
        const std::string s = shape, d = dir, f = format, b = block;
        const Planes compact = run("quantize " + f + " " + s + " bf16 dir=" + d + b).out,
                     gemm = run("quantize " + f + " " + s + " bf16 scales=gemm dir=" + d + b).out;
        const Planes swizzled = run("swizzle " + f + " " + s + " " + scale + " dir=" + d + b, {},
                                    {{d + ".scale_inv", compact.at(d + ".scale_inv")}})
                                    .out;
        expect_equal({{"scale", gemm.at(d + ".scale_gemm")}}, {{"scale", swizzled.at(d + ".scale_gemm")}},
                     f + s + d);
        expect_equal({{"data", gemm.at(d + ".data")}}, {{"data", compact.at(d + ".data")}}, f + s + d);
        // Scales that are powers of two come back as they were.
        const Planes back =
            run("swizzle " + f + " " + s + " " + scale + " inverse=1 dir=" + d + b, {}, swizzled).out;
        expect_equal(back, {{d + ".scale_inv", compact.at(d + ".scale_inv")}}, f + s + d);
      }
}

TEST(Blocks, EmptyTensors) {
  for (const char* shape : {"0x0", "0x64", "64x0"}) {
    const std::string s = shape;
    for (const std::string& line :
         {"quantize fp8_block " + s + " bf16", "quantize mxfp4 " + s + " bf16",
          "dequantize fp8_block " + s + " bf16 dir=col", "dequantize mxfp4 " + s + " bf16 dir=row",
          "swizzle fp8_block " + s + " f32 dir=row", "swizzle fp8_block " + s + " f32 dir=row inverse=1",
          "swizzle mxfp4 " + s + " e8m0 dir=col", "scale_chain fp8_block " + s + " f32",
          "scale_chain mxfp4 " + s + " e8m0"})
      EXPECT_EQ(run(line).served.launches, 0) << line;
  }
}

TEST(Blocks, NoopLeavesEveryByte) {
  for (const std::string& line : quantize_lines({"31x33", "127x257"}, {"bf16"})) {
    Problem p = parsed(line);
    p.as<Quantize>()->noop = 0x3F800000u;
    for (const auto& [name, bytes] :
         run(p, *make_host_subject(), {.poison = 0xA5}, {{"noop", bits({0x3F800000})}}).out)
      for (std::byte b : bytes) ASSERT_EQ(b, std::byte{0xA5}) << line << ' ' << name;
  }
}

}  // namespace
}  // namespace assay

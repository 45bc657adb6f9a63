// fp8_current under row_scaled=1, worked by hand (N3.12, N16.6): every stored row is a tensor of its own.
#include <cmath>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

using Codes = std::vector<uint8_t>;
using Words = std::vector<uint32_t>;

Blob f32(const std::vector<float>& x) {
  Words words;
  for (float v : x) words.push_back(std::bit_cast<uint32_t>(v));
  return blob(words);
}
std::vector<float> floats(const Blob& b) {
  std::vector<float> out;
  for (uint32_t w : codes<uint32_t>(b)) out.push_back(std::bit_cast<float>(w));
  return out;
}

// What a direction of quantize writes.
struct Written {
  Words amax, scale, scale_inv;
  Codes data;
  bool operator==(const Written&) const = default;
};
Written written(const Outputs& out, const std::string& d) {
  return {out.u32(d + ".amax"), out.u32(d + ".scale"), out.u32(d + ".scale_inv"), out.u8(d + ".data")};
}
void PrintTo(const Written& w, std::ostream* os) {
  *os << std::hex;
  for (const Words& plane : {w.amax, w.scale, w.scale_inv, Words(w.data.begin(), w.data.end())}) {
    for (uint32_t code : plane) *os << code << ' ';
    *os << "| ";
  }
}

constexpr uint32_t kOne = 0x3F800000, kInf = 0x7F800000, k448 = 0x43E00000;

// A full row, zeros, an infinity, NaN alone, one whose scale is a power of two, one whose scale is 448 / 11 =
// 4222E8BA: 3CC92493 is its reciprocal.
const std::vector<float> kRows = {448, -224, 7,   0, -0.0f, 0, INFINITY, -448, NAN,
                                  NAN, -NAN, NAN, 7, -3.5f, 0, 11,       -1,   0};
const Words kAmax = {k448, 0, kInf, 0, 0x40E00000, 0x41300000};  // N3.2: whatever eps is
const Codes kFirst = {0x7E, 0xF6, 0x4E, 0x00, 0x80, 0x00, 0x7E, 0xFE, 0x7F, 0x7F, 0x7F, 0x7F};

Codes followed_by(Codes first, const Codes& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// The rows as they are, and as the columns of their transpose: the same planes.
void expect_rows(const std::string& keys, const Written& want) {
  EXPECT_EQ(written(run_line("quantize fp8_current 6x3 f32 dir=row row_scaled=1" + keys, {{"x", f32(kRows)}}),
                    "row"),
            want)
      << keys;
  std::vector<float> turned;
  for (size_t c = 0; c < 3; ++c)
    for (size_t r = 0; r < 6; ++r) turned.push_back(kRows[3 * r + c]);
  EXPECT_EQ(
      written(run_line("quantize fp8_current 3x6 f32 dir=col row_scaled=1" + keys, {{"x", f32(turned)}}),
              "col"),
      want)
      << keys << " columns";
}

TEST(RowScales, EachRowHasItsOwnChain) {
  expect_rows("", {kAmax,
                   {kOne, kOne, kOne, kOne, 0x42800000, 0x4222E8BA},
                   {kOne, kOne, kOne, kOne, 0x3C800000, 0x3CC92493},
                   followed_by(kFirst, {0x7E, 0xF6, 0x00, 0x7E, 0xE2, 0x00})});
  // N3.6: 40.7 becomes 32.
  expect_rows(" pow2=1", {kAmax,
                          {kOne, kOne, kOne, kOne, 0x42800000, 0x42000000},
                          {kOne, kOne, kOne, kOne, 0x3C800000, 0x3D000000},
                          followed_by(kFirst, {0x7E, 0xF6, 0x00, 0x7B, 0xE0, 0x00})});
  // N3.2: four rows are below 14, the one of zeros and the one of NaN among them.
  expect_rows(" eps=14", {kAmax,
                          {kOne, 0x42000000, kOne, 0x42000000, 0x42000000, 0x42000000},
                          {kOne, 0x3D000000, kOne, 0x3D000000, 0x3D000000, 0x3D000000},
                          followed_by(kFirst, {0x76, 0xEE, 0x00, 0x7B, 0xE0, 0x00})});
  // N3.4: the infinite row alone has the scale 0.
  expect_rows(" inf_amax=zero", {kAmax,
                                 {kOne, kOne, 0, kOne, 0x42800000, 0x4222E8BA},
                                 {kOne, kOne, kInf, kOne, 0x3C800000, 0x3CC92493},
                                 {0x7E, 0xF6, 0x4E, 0x00, 0x80, 0x00, 0x7F, 0x80, 0x7F, 0x7F, 0x7F, 0x7F,
                                  0x7E, 0xF6, 0x00, 0x7E, 0xE2, 0x00}});
  // N17.5: the decode scale is rounded first, 11 / 448 = 3CC92492.
  expect_rows(" scale_order=decode_divide", {kAmax,
                                             {kOne, kOne, kOne, kOne, 0x42800000, 0x4222E8BA},
                                             {kOne, kOne, kOne, kOne, 0x3C800000, 0x3CC92492},
                                             followed_by(kFirst, {0x7E, 0xF6, 0x00, 0x7E, 0xE2, 0x00})});
}

// The rows of one read and its columns part: 1 / 448 is 3B124925.
TEST(RowScales, ColumnsHaveScalesOfTheirOwn) {
  const std::map<std::string, Blob> x = {{"x", f32({7, 14, 0, 3.5f, 448, 1})}};
  const Outputs both = run_line("quantize fp8_current 2x3 f32 row_scaled=1", x);
  EXPECT_EQ(
      written(both, "row"),
      (Written{
          {0x41600000, k448}, {0x42000000, kOne}, {0x3D000000, kOne}, {0x76, 0x7E, 0x00, 0x46, 0x7E, 0x38}}));
  const Written columns = {{0x40E00000, k448, kOne},
                           {0x42800000, kOne, k448},
                           {0x3C800000, kOne, 0x3B124925},
                           {0x7E, 0x76, 0x56, 0x7E, 0x00, 0x7E}};
  EXPECT_EQ(written(both, "col"), columns);
  // One direction may scale by rows beside one that does not, whose columns are the byte transpose of its
  // rows (N3.9).
  const Outputs mixed = run_line("quantize fp8_current 2x3 f32 col.row_scaled=1", x);
  EXPECT_EQ(written(mixed, "row"), (Written{{k448}, {kOne}, {kOne}, {0x4E, 0x56, 0x00, 0x46, 0x7E, 0x38}}));
  EXPECT_EQ(written(mixed, "col"), columns);
  EXPECT_EQ(written(run_line("quantize fp8_current 2x3 f32 row.row_scaled=1", x), "col"),
            (Written{{k448}, {kOne}, {kOne}, {0x4E, 0x46, 0x56, 0x7E, 0x00, 0x38}}));
}

TEST(RowScales, NoRowsAndEmptyRows) {
  const Outputs none = run_line("quantize fp8_current 0x5 f32 row_scaled=1", {});
  EXPECT_EQ(written(none, "row"), Written{});
  EXPECT_EQ(written(none, "col"), (Written{Words(5, 0), Words(5, kOne), Words(5, kOne), {}}));  // N3.1, N3.4
}

// N3.10: of the stored row, which of columns is the tensor's column.
TEST(RowScales, DequantizeTakesTheElementsRow) {
  const std::string line = "dequantize fp8_current 2x3 f32 row_scaled=1 ";
  EXPECT_EQ(
      floats(run_line(line + "dir=row", {{"row.scale_inv", f32({2, 0.5f})},
                                         {"row.data", blob<uint8_t>({0x38, 0x40, 0xB8, 0x38, 0x40, 0x7E})}})
                 .at("y")),
      (std::vector<float>{2, 4, -2, 0.5f, 1, 224}));
  EXPECT_EQ(
      floats(run_line(line + "dir=col", {{"col.scale_inv", f32({2, 0.5f, 8})},
                                         {"col.data", blob<uint8_t>({0x38, 0x40, 0xB8, 0x38, 0x40, 0x7E})}})
                 .at("y")),
      (std::vector<float>{2, -0.5f, 16, 4, 0.5f, 3584}));
}

// N14: a split is its members, each with rows of its own.
TEST(RowScales, SplitIsItsMembers) {
  const std::vector<float> x = {7, 14, 0, 3.5f, 448, 1, 0, 0, 2};
  const Outputs split = run_line("split fp8_current 3x3 f32 row_scaled=1 groups=2,1",
                                 {{"x", f32(x)}, {"first_dims", blob<uint32_t>({2, 1})}});
  EXPECT_EQ(split.u32("row.scale"), (Words{0x42000000, kOne, 0x43600000}));
  EXPECT_EQ(split.u32("col.amax"), (Words{0x40E00000, k448, kOne, 0, 0, 0x40000000}));
  EXPECT_EQ(split.u8("col.data"), (Codes{0x7E, 0x76, 0x56, 0x7E, 0x00, 0x7E, 0x00, 0x00, 0x7E}));
}

// N16.6: acc = 3 for every element; the rows' scales are multiplied first, and each by its own.
TEST(RowScales, ScalesOfASumOfCodes) {
  const float s = 1 + 0x1p-12f, t = 1 + 0x1p-11f;
  ASSERT_NE(3 * (s * s), 3 * s * s);
  const std::map<std::string, Blob> given = {{"a.scale_inv", f32({s, 2})},
                                             {"a.data", blob<uint8_t>({0x44, 0x44})},
                                             {"b.scale_inv", f32({s, t, 0.5f})},
                                             {"b.data", blob<uint8_t>({0x38, 0x38, 0x38})}};
  std::map<std::string, Blob> of_tensor = given;
  of_tensor["b.scale_inv"] = f32({s});
  for (const std::string sum : {"hopper_fp8_split", "hopper_fp8_fast"})
    for (const std::string op : {"TN", "NN", "NT"}) {
      const std::string line = "gemm a=fp8_current b=fp8_current 2x3x1 out=f32 sum=" + sum + " op=" + op;
      EXPECT_EQ(floats(run_line(line + " row_scaled=1", given).at("d")),
                (std::vector<float>{3 * (s * s), 3 * (2 * s), 3 * (s * t), 3 * (2 * t), 3 * (s * 0.5f), 3}))
          << line;
      EXPECT_EQ(floats(run_line(line + " a.row_scaled=1", of_tensor).at("d")),
                (std::vector<float>{3 * (s * s), 6 * s, 3 * (s * s), 6 * s, 3 * (s * s), 6 * s}))
          << line;
    }
}

// The other sums dequantize each operand by its own rows. N16.9 is of nvfp4: beside rows of fp8_current its
// amax stays where it is.
TEST(RowScales, SumsOfDequantizedOperands) {
  const std::map<std::string, Blob> fp8 = {{"a.scale_inv", f32({2, 8})},
                                           {"a.data", blob<uint8_t>({0x38, 0x40, 0x44, 0x38})},
                                           {"b.scale_inv", f32({0.5f})},
                                           {"b.data", blob<uint8_t>({0x38, 0x40})}};
  std::map<std::string, Blob> nvfp4 = fp8;  // 1 and 2 of E2M1 under 1 and an amax of 1344: 0.5 and 1
  nvfp4["b.amax"] = f32({1344});
  nvfp4["b.scale_inv"] = blob(padded_with_zeros<uint8_t>({0x38}, 128 * 4));
  nvfp4["b.data"] = blob<uint8_t>({0x42});
  for (const std::string sum : {"f32_sequential", "exact"}) {
    EXPECT_EQ(floats(run_line("gemm a=fp8_current b=fp8_current 2x1x2 out=f32 a.row_scaled=1 sum=" + sum, fp8)
                         .at("d")),
              (std::vector<float>{5, 20}))
        << sum;
    EXPECT_EQ(
        floats(run_line("gemm a=fp8_current b=nvfp4 2x1x2 out=f32 a.row_scaled=1 sum=" + sum, nvfp4).at("d")),
        (std::vector<float>{5, 20}))
        << sum;
  }
}

TEST(RowScales, TraceSaysWhoseAmaxItIs) {
  LineCase c("quantize fp8_current 2x3 f32 row_scaled=1", {{"x", f32({7, 14, 0, 3.5f, 448, 1})}});
  const auto amax = [&](Direction d) { return make_reference_subject()->trace(c.p, c.inputs, d, 1, 0)[0]; };
  EXPECT_EQ(amax(Direction::row).what, "amax of the stored row");
  EXPECT_EQ(amax(Direction::row).bits, k448);
  EXPECT_EQ(amax(Direction::col).bits, 0x40E00000u);
}

}  // namespace
}  // namespace assay

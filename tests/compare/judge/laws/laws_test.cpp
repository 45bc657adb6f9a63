#include "compare/judge/laws/laws.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "contract/line.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// The laws without any second side: outputs of the reference with one fault that parity would see, judged by
// check_laws alone.
std::vector<Breach> lawless(const std::string& line,
                            const std::function<void(std::vector<PlaneData>&)>& spoil) {
  const Problem p = fakes::problem(line);
  auto reference = make_reference_subject();
  const auto inputs = *make_inputs(p, *reference);
  std::vector<PlaneData> out = execute(*reference, p, inputs, {}).planes;
  EXPECT_TRUE(check_laws(p, inputs, out, "reference").empty()) << line;
  spoil(out);
  const std::vector<Breach> breaches = check_laws(p, inputs, out, "reference");
  for (const Breach& b : breaches) {
    const PlaneData* at = find_plane(out, b.plane);
    EXPECT_TRUE(at && b.row >= 0 && b.row < at->plane.padded.rows && b.col >= 0 &&
                b.col < at->plane.padded.cols)
        << line << ": " << b.claim << " at " << b.plane << ' ' << b.row << ' ' << b.col;
  }
  return breaches;
}
PlaneData& plane(std::vector<PlaneData>& planes, const std::string& name) {
  for (PlaneData& p : planes)
    if (p.plane.name == name) return p;
  throw std::runtime_error("no plane " + name);
}
void expect_law(const std::vector<Breach>& breaches, const std::string& claim,
                const std::string& plane_name) {
  EXPECT_TRUE(std::any_of(breaches.begin(), breaches.end(),
                          [&](const Breach& b) { return b.claim == claim && b.plane == plane_name; }))
      << claim << " at " << plane_name << " is not broken";
}
// The first breach, with its place.
void expect_first(const std::vector<Breach>& breaches, const std::string& claim,
                  const std::string& plane_name, std::pair<int64_t, int64_t> place) {
  ASSERT_FALSE(breaches.empty());
  EXPECT_EQ(breaches[0].claim, claim);
  EXPECT_EQ(breaches[0].plane, plane_name);
  EXPECT_EQ(std::pair(breaches[0].row, breaches[0].col), place);
}

TEST(Laws, HalfStepSeesAnyOtherCode) {
  // Every element moved by one code, one at a time.
  for (const char* line : {"cast e4m3 2x40 f32 fill=ties", "quantize mxfp8 4x40 bf16 dir=row",
                           "quantize fp8_current 4x40 f32 dir=row", "dequantize mxfp8 4x40 f32 out=bf16"}) {
    const Problem p = fakes::problem(line);
    const std::string name = output_planes(p).back().name;
    for (int64_t i = 0; i < p.x.shape.count(); i += 7) {
      const auto breaches = lawless(line, [&](auto& out) {
        PlaneData& d = plane(out, name);
        set_code(d.plane.encoding, d.bytes, i, code_at(d.plane.encoding, d.bytes, i) ^ 1);
      });
      expect_law(breaches, "half-step", name);
      ASSERT_FALSE(breaches.empty());
      EXPECT_EQ(breaches[0].row * p.x.shape.cols + breaches[0].col, i);
    }
  }
}

TEST(Laws, TiesGoToEven) {
  // 1.0625 lies midway between 1 (38) and 1.125 (39).
  const auto breaches = lawless("cast e4m3 1x1 f32 fill=literal:3f880000", [](auto& out) {
    ASSERT_EQ(out[0].bytes[0], std::byte{0x38});
    out[0].bytes[0] = std::byte{0x39};
  });
  expect_law(breaches, "half-step", "y");
}

TEST(Laws, Adjacent) {
  expect_law(
      lawless("cast e5m2 4x40 f32 round=rz", [](auto& out) { plane(out, "y").bytes[9] ^= std::byte{1}; }),
      "adjacent", "y");
  expect_law(
      lawless("cast e8m0 4x40 f32 round=rp", [](auto& out) { plane(out, "y").bytes[9] ^= std::byte{1}; }),
      "adjacent", "y");
}

TEST(Laws, ADirectedCastKeepsTheSign) {
  for (const char* round : {"rz", "sr"})
    expect_law(lawless(std::string("cast e2m1 1x4 f32 fill=literal:3fc00000 round=") + round,
                       [](auto& out) { plane(out, "y").bytes[0] ^= std::byte{0x08}; }),
               "adjacent", "y");
}

TEST(Laws, AZeroIsCastToAZero) {
  expect_law(lawless("cast e5m2 1x4 f32 round=rz fill=zeros",
                     [](auto& out) { plane(out, "y").bytes[1] = std::byte{0x3C}; }),
             "adjacent", "y");
}

TEST(Laws, Monotone) {
  // Equal elements have equal codes: one that is greater is seen, first or last.
  for (const size_t at : {0, 7})
    expect_law(lawless("cast e4m3 1x8 f32 fill=zeros",
                       [at](auto& out) { plane(out, "y").bytes[at] = std::byte{0x38}; }),
               "monotone", "y");
  expect_law(lawless("cast e4m3 4x64 f32", [](auto& out) { plane(out, "y").bytes[9] ^= std::byte{0x20}; }),
             "monotone", "y");
}

TEST(Laws, Range) {
  auto bump = [](const char* name) {
    return [name](std::vector<PlaneData>& out) {
      PlaneData& s = plane(out, name);
      set_code(s.plane.encoding, s.bytes, 0, code_at(s.plane.encoding, s.bytes, 0) + 1);
    };
  };
  expect_law(lawless("quantize mxfp8 32x96 bf16 dir=row", bump("row.scale_inv")), "range", "row.scale_inv");
  expect_law(lawless("quantize mxfp8 32x96 bf16 dir=col scales=gemm", bump("col.scale_gemm")), "range",
             "col.scale_gemm");
  expect_law(lawless("quantize mxfp8 32x96 bf16 dir=row block=32x32", bump("row.scale_inv")), "range",
             "row.scale_inv");
  expect_law(lawless("quantize fp8_current 32x96 bf16 dir=row", bump("row.amax")), "range", "row.amax");
  expect_law(lawless("quantize fp8_delayed 32x96 bf16 dir=row scale=3", bump("row.scale_inv")), "range",
             "row.scale_inv");
  expect_law(lawless("quantize nvfp4 32x96 bf16 dir=row row_scaled=1", bump("row.amax")), "range",
             "row.amax");
  expect_law(lawless("scale_chain mxfp8 1x64 f32", bump("decoded")), "range", "decoded");
  // The block's 3 of the tensor's 400 is scaled by 3.36. Rounded up that is 3.5 (46); 3.75 (47) is too much.
  expect_law(lawless("quantize nvfp4 1x17 f32 dir=row scale_round=rp fill=literal:43c80000@0.0+40400000@0.16",
                     [](auto& out) {
                       PlaneData& scales = plane(out, "row.scale_inv");
                       ASSERT_EQ(scales.bytes[1], std::byte{0x46});
                       scales.bytes[1] = std::byte{0x47};
                     }),
             "range", "row.scale_inv");
}

// The scale of a pair of amaxes, and of a block, one code away: above and below.
TEST(Laws, ScalesOfAnNvfp4Chain) {
  for (const std::string chain :
       {"folded", "quotient_first", "product_first", "decode", "decode_product", "unit"})
    for (const int by : {-1, 1}) {
      const auto moved = [&](const char* name) {
        return lawless("scale_chain nvfp4 8x2 f32 nvfp4_scale=" + chain, [&](auto& out) {
          PlaneData& p = plane(out, name);
          set_code(p.plane.encoding, p.bytes, 3,
                   code_at(p.plane.encoding, p.bytes, 3) + static_cast<uint32_t>(by));
        });
      };
      expect_law(moved("scale_inv"), "range", "scale_inv");
      if (chain != "unit") expect_law(moved("encode_scale"), "range", "encode_scale");
    }
}

TEST(Laws, TheMultiplierOfAnNvfp4ChainIsItsOwnPlace) {
  const auto breaches = lawless("scale_chain nvfp4 8x2 f32", [](auto& out) {
    set_code(Encoding::f32, plane(out, "multiplier").bytes, 3, 0x3F800000);
  });
  expect_first(breaches, "range", "multiplier", {3, 0});
}

// N17.15: an amax so small that its decode scale vanishes has the epsilon of its source, and no other has.
TEST(Laws, TheEpsilonOfADecodeScaleThatVanishes) {
  // The scale is the inverse of the wrong one, so that nothing else is broken.
  for (const auto& [amax, scale_inv, scale] :
       {std::tuple{"00000001", 0x3F800000u, 0x3F800000u}, {"3f800000", 0x34000000u, 0x4B000000u}})
    expect_law(lawless("quantize fp8_current 1x1 f32 dir=row scale_order=decode_first zero_amax=epsilon "
                       "fill=literal:" +
                           std::string(amax),
                       [scale_inv = scale_inv, scale = scale](auto& out) {
                         set_code(Encoding::f32, plane(out, "row.scale_inv").bytes, 0, scale_inv);
                         set_code(Encoding::f32, plane(out, "row.scale").bytes, 0, scale);
                       }),
               "range", "row.scale_inv");
}

// Without four_over_six no block has the scale of a largest code of 4, which is half as much again (N10.10).
TEST(Laws, TheScaleForFourIsForFourOverSixOnly) {
  const std::string line = "quantize nvfp4 1x17 f32 dir=row fill=literal:43c80000@0.0+40400000@0.16";
  expect_law(lawless(line,
                     [](auto& out) {
                       PlaneData& scales = plane(out, "row.scale_inv");
                       ASSERT_EQ(scales.bytes[1], std::byte{0x45});  // 3.25, of 3.36
                       scales.bytes[1] = std::byte{0x4A};            // 5, of 5.04
                     }),
             "range", "row.scale_inv");
}

// A product of a code and a scale that binary32 has exactly, and that lies midway between two values of bf16.
TEST(Laws, TiesOfADequantizedProductGoToEven) {
  const Problem p = fakes::problem("dequantize fp8_current 1x1 f32 dir=row out=bf16");
  const auto reference = make_reference_subject();
  auto inputs = *make_inputs(p, *reference);
  set_code(Encoding::e4m3, plane(inputs, "row.data").bytes, 0, 0x3C);            // 1.5
  set_code(Encoding::f32, plane(inputs, "row.scale_inv").bytes, 0, 0x3F810000);  // 1 + 2^-7
  std::vector<PlaneData> out = execute(*reference, p, inputs, {}).planes;
  EXPECT_EQ(code_at(Encoding::bf16, plane(out, "y").bytes, 0), 0x3FC2u);
  EXPECT_TRUE(check_laws(p, inputs, out, "reference").empty());
  set_code(Encoding::bf16, plane(out, "y").bytes, 0, 0x3FC1);
  expect_law(check_laws(p, inputs, out, "reference"), "half-step", "y");
}

TEST(Laws, Coherent) {
  auto touch = [](const char* name) {
    return [name](std::vector<PlaneData>& out) { plane(out, name).bytes[1] ^= std::byte{0x40}; };
  };
  expect_law(lawless("quantize fp8_current 16x24 bf16 dir=both", touch("col.data")), "coherent", "col.data");
  expect_law(lawless("quantize mxfp8 64x64 bf16 dir=both block=32x32", touch("col.data")), "coherent",
             "col.data");
  expect_law(lawless("quantize mxfp8 64x64 bf16 dir=col block=32x32", touch("col.scale_inv")), "coherent",
             "col.scale_inv");
  expect_law(lawless("quantize identity 4x8 bf16 dir=both", touch("col.data")), "coherent", "col.data");
}

// N3.9, N10.1: where no parity is, one amax and one scale of both directions are compared with each other.
TEST(Laws, BothDirectionsShareTheirAmaxAndScale) {
  for (const auto& [line, name] : {std::pair("quantize fp8_current 16x24 bf16", "col.amax"),
                                   {"quantize fp8_current 16x24 bf16", "col.scale"},
                                   {"quantize nvfp4 32x48 bf16", "col.amax"}}) {
    const auto breaches =
        lawless(line, [at = name](auto& out) { plane(out, at).bytes[1] ^= std::byte{0x40}; });
    EXPECT_TRUE(std::any_of(
        breaches.begin(), breaches.end(),
        [](const Breach& b) { return b.message.find("both directions share it") != std::string::npos; }))
        << line << ' ' << name;
  }
}

// N3.12: each stored row by itself, and the place says which.
TEST(Laws, RowScales) {
  constexpr int64_t kRow = 5;
  const auto touch = [](const char* name, int64_t row, uint32_t flip) {
    return [=](std::vector<PlaneData>& out) {
      PlaneData& p = plane(out, name);
      const int64_t i = index_of(p.plane, row, 0);
      set_code(p.plane, p.bytes, i, code_at(p.plane, p.bytes, i) ^ flip);
    };
  };
  const auto where_of = [](const std::vector<Breach>& breaches, const std::string& plane_name) {
    const auto at = std::find_if(breaches.begin(), breaches.end(),
                                 [&](const Breach& b) { return b.plane == plane_name; });
    return at == breaches.end() ? "nowhere" : at->where;
  };
  for (const std::string keys :
       {"", " pow2=1", " scale_order=decode_first", " scale_order=decode_divide", " eps=0.5 element=e5m2"}) {
    const std::string row = "quantize fp8_current 16x24 f32 dir=row row_scaled=1" + keys,
                      col = "quantize fp8_current 16x24 f32 dir=col row_scaled=1" + keys;
    for (const char* stem : {"amax", "scale", "scale_inv"}) {
      const uint32_t flip = keys == " pow2=1" && stem[0] == 's' ? 0x00800000 : 1;
      const std::string of_row = std::string("row.") + stem, of_col = std::string("col.") + stem;
      const auto rows = lawless(row, touch(of_row.c_str(), kRow, flip)),
                 cols = lawless(col, touch(of_col.c_str(), kRow, flip));
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                              [](const Breach& b) { return b.claim == "range" && b.row == kRow; }))
          << row << " " << of_row;
      EXPECT_TRUE(std::any_of(cols.begin(), cols.end(),
                              [](const Breach& b) { return b.claim == "range" && b.row == kRow; }))
          << col << " " << of_col;
    }
    EXPECT_EQ(where_of(lawless(row, touch("row.amax", kRow, 1)), "row.amax"), "row 5, columns 0..23");
    EXPECT_EQ(where_of(lawless(col, touch("col.amax", kRow, 1)), "col.amax"), "rows 0..15, column 5");
    expect_law(lawless(row, touch("row.data", kRow, 2)), "half-step", "row.data");
    expect_law(lawless(col, touch("col.data", kRow, 2)), "half-step", "col.data");
  }
  // Scales of the row above: every code of the row is another.
  expect_law(lawless("quantize fp8_current 16x24 f32 dir=row row_scaled=1",
                     [](auto& out) {
                       for (const char* name : {"row.scale", "row.scale_inv"}) {
                         PlaneData& p = plane(out, name);
                         std::rotate(p.bytes.begin(), p.bytes.begin() + 4, p.bytes.end());
                       }
                     }),
             "half-step", "row.data");
  // pow2=1 gives many rows and columns one scale, and then their elements one code.
  expect_law(lawless("quantize fp8_current 16x24 bf16 dir=both row_scaled=1 pow2=1",
                     [](auto& out) {
                       for (std::byte& b : plane(out, "col.data").bytes) b ^= std::byte{1};
                     }),
             "coherent", "col.data");
  for (const char* d : {"row", "col"})
    expect_law(lawless("dequantize fp8_current 16x24 bf16 dir=" + std::string(d) + " row_scaled=1 out=f32",
                       touch("y", kRow, 0x100)),
               "half-step", "y");
}

// The largest magnitudes of the rows are 8 and 4, of the columns 2 and 8: only row 0 and column 1 have the
// same scale, and the element where they meet has one code.
TEST(Laws, ARowAndAColumnOfOneScaleMeetInOneCode) {
  expect_law(lawless("quantize fp8_current 2x2 f32 dir=both row_scaled=1 "
                     "fill=literal:3f800000410000004000000040800000",
                     [](auto& out) {
                       PlaneData& col = plane(out, "col.data");
                       ASSERT_EQ(col.bytes[2], std::byte{0x7E});
                       col.bytes[2] = std::byte{0x7D};
                     }),
             "coherent", "col.data");
}

// N14.3: the last offset is the size of all members.
TEST(Laws, OffsetsOfMembers) {
  for (const char* name : {"offsets", "row.scale_offsets"})
    for (const int64_t entry : {0, 1, 2, 3})
      expect_law(lawless("split nvfp4 96x64 bf16 groups=32,0,64",
                         [&](auto& out) {
                           PlaneData& offsets = plane(out, name);
                           offsets.bytes[static_cast<size_t>(4 * entry)] ^= std::byte{1};
                         }),
                 "member", name);
}

// A gemm reads the scale of its own stored row (N16.6).
TEST(Laws, RowScalesOfAGemm) {
  for (const char* sum : {"f32_sequential", "exact", "hopper_fp8_split", "hopper_fp8_fast"})
    for (const char* op : {"TN", "NN", "NT"}) {
      const Problem p =
          fakes::problem(std::string("gemm a=fp8_current b=fp8_current 20x18x160 row_scaled=1 out=f32 sum=") +
                         sum + " op=" + op);
      auto reference = make_reference_subject();
      const auto inputs = *make_inputs(p, *reference);
      EXPECT_TRUE(check_laws(p, inputs, execute(*reference, p, inputs, {}).planes, "reference").empty())
          << to_line(p);
      for (const char* name : {"a.scale_inv", "b.scale_inv"}) {
        auto shifted = inputs;
        PlaneData& s = plane(shifted, name);
        ASSERT_EQ(s.plane.logical.rows, name[0] == 'a' ? 20 : 18);
        std::rotate(s.bytes.begin(), s.bytes.begin() + 4, s.bytes.end());
        expect_law(check_laws(p, inputs, execute(*reference, p, shifted, {}).planes, "reference"), "bound",
                   "d");
      }
    }
}

TEST(Laws, SwizzlePlacesAndPadding) {
  expect_law(lawless("swizzle mxfp8 130x256 e8m0",
                     [](auto& out) {
                       std::swap(plane(out, "row.scale_gemm").bytes[0],
                                 plane(out, "row.scale_gemm").bytes[17]);
                     }),
             "round-trip", "row.scale_gemm");
  expect_law(lawless("quantize mxfp8 33x70 bf16 dir=row",
                     [](auto& out) { plane(out, "row.scale_inv").bytes[3] = std::byte{1}; }),
             "padding", "row.scale_inv");
  // N9.6: every one of the four copies.
  for (const size_t copy : {0, 1, 3, 4})
    expect_law(lawless("swizzle fp8_block 130x256 f32 dir=row",
                       [copy](auto& out) { plane(out, "row.scale_gemm").bytes[copy] ^= std::byte{1}; }),
               "round-trip", "row.scale_gemm");
}

// N17.5: a decode scale that is given is the one that is stored.
TEST(Laws, AGivenDecodeScaleIsStored) {
  const auto breaches =
      lawless("quantize fp8_delayed 4x8 f32 dir=row scale=3 scale_order=decode_first",
              [](auto& out) { set_code(Encoding::f32, plane(out, "row.scale_inv").bytes, 0, 0x40400001); });
  expect_first(breaches, "range", "row.scale_inv", {0, 0});
}

// Codes under one given scale are one in both directions; only the exponents that fp8_block stores in the
// GEMM layout are other numbers than what is given (N9.6, N17.12).
TEST(Laws, CodesUnderOneGivenScaleAreCompared) {
  const Problem p = fakes::problem("quantize mxfp8 32x32 bf16 scale_from=scale scales=gemm");
  const auto reference = make_reference_subject();
  auto inputs = *make_inputs(p, *reference);
  for (const char* given : {"row.given.scale_inv", "col.given.scale_inv"})
    for (std::byte& scale : plane(inputs, given).bytes) scale = std::byte{0x7F};
  std::vector<PlaneData> out = execute(*reference, p, inputs, {}).planes;
  EXPECT_TRUE(check_laws(p, inputs, out, "reference").empty());
  plane(out, "col.data").bytes[40] ^= std::byte{0x40};
  expect_law(check_laws(p, inputs, out, "reference"), "coherent", "col.data");
}

TEST(Laws, EveryFormatsCodesAreNearestToTheScaledValue) {
  for (const char* line :
       {"quantize nvfp4 16x64 bf16 dir=row", "quantize nvfp4 32x33 f32 dir=col",
        "quantize mxfp4 33x40 bf16 dir=col", "quantize fp8_block 33x140 bf16 dir=col pow2=0",
        "quantize fp8_block 33x140 bf16 dir=row scales=gemm",
        "quantize nvfp4 16x64 bf16 dir=row row_scaled=1", "quantize nvfp4 32x32 bf16 dir=col block=16x16",
        "quantize nvfp4 16x64 bf16 dir=row four_over_six=mae",
        "quantize nvfp4 32x48 bf16 dir=col rht=1 fill=exact_sums",
        "quantize nvfp4 16x64 bf16 dir=row multiplier=bf16_quotient"}) {
    const Problem p = fakes::problem(line);
    const Direction d = p.row ? Direction::row : Direction::col;
    const auto data = plane_name(d, "data"), scale = plane_name(d, scale_stem(p.quantizer(d)->scales));
    EXPECT_TRUE(lawless(line, [](auto&) {}).empty()) << line;
    expect_law(lawless(line,
                       [&](auto& out) {  // two codes away, in the direction that exists
                         PlaneData& x = plane(out, data);
                         const uint32_t code = code_at(x.plane, x.bytes, 7), magnitude = code & 7;
                         set_code(x.plane, x.bytes, 7, magnitude > 3 ? code - 2 : code + 2);
                       }),
               "half-step", data);
    expect_law(lawless(line,
                       [&](auto& out) {  // twice or half the scale
                         PlaneData& x = plane(out, scale);
                         const int mantissa = info(x.plane.encoding).mantissa_bits;
                         set_code(x.plane, x.bytes, index_of(x.plane, 0, 0),
                                  code_at(x.plane, x.bytes, index_of(x.plane, 0, 0)) - (1u << mantissa));
                       }),
               "range", scale);
  }
  for (const char* line :
       {"quantize nvfp4 16x64 bf16 dir=row round=sr", "cast e2m1 4x64 f32 round=sr fill=ties"}) {
    const std::string name = output_planes(fakes::problem(line)).back().name;
    expect_law(lawless(line,
                       [&](auto& out) {
                         PlaneData& x = plane(out, name);
                         const uint32_t code = code_at(x.plane, x.bytes, 9);
                         set_code(x.plane, x.bytes, 9, (code & 7) > 3 ? code - 3 : code + 3);
                       }),
               "adjacent", name);
  }
}

// 1 is a code of E2M1, so that it keeps its code whatever the random bits are (N12.3); A is -1.
TEST(Laws, AStochasticCastKeepsTheSign) {
  expect_law(lawless("cast e2m1 1x1 f32 round=sr fill=literal:3f800000",
                     [](auto& out) {
                       ASSERT_EQ(out[0].bytes[0], std::byte{0x2});
                       out[0].bytes[0] = std::byte{0xA};
                     }),
             "adjacent", "y");
}

TEST(Laws, TheAmaxOfARotationIsItsOwnPlace) {
  const auto breaches = lawless("hadamard nvfp4 32x16 bf16", [](auto& out) {
    set_code(Encoding::f32, plane(out, "amax").bytes, 0, 0x7F000000);
  });
  expect_first(breaches, "range", "amax", {0, 0});
}

TEST(Laws, RotationAndPhiloxAreSeen) {
  for (const char* fill : {"exact_sums", "wide"})
    expect_law(lawless("hadamard nvfp4 32x8 bf16 fill=" + std::string(fill),
                       [](auto& out) { plane(out, "y").bytes[41] ^= std::byte{0x80}; }),
               "orthogonal", "y");
  expect_law(
      lawless("hadamard nvfp4 32x8 bf16", [](auto& out) { plane(out, "amax").bytes[2] ^= std::byte{1}; }),
      "range", "amax");
  const Problem p = fakes::problem("philox u32 8x4 u32");
  const auto reference = make_reference_subject();
  auto inputs = *make_inputs(p, *reference);
  for (PlaneData& in : inputs)
    if (in.plane.name == "key") std::fill(in.bytes.begin(), in.bytes.end(), std::byte{0});
  Execution e = execute(*reference, p, inputs, {});
  EXPECT_TRUE(check_laws(p, inputs, e.planes, "fake").empty());
  std::copy_n(e.planes[0].bytes.begin(), 16, e.planes[0].bytes.begin() + 48);
  expect_law(check_laws(p, inputs, e.planes, "fake"), "injective", "y");
}

TEST(Laws, SquareBlocksAreOneInBothDirections) {
  for (const char* line : {"quantize fp8_block 130x140 bf16 block=128x128",
                           "quantize nvfp4 32x32 bf16 block=16x16", "quantize mxfp8 64x64 bf16 block=32x32"})
    expect_law(lawless(line, [](auto& out) { plane(out, "col.data").bytes[5] ^= std::byte{1}; }), "coherent",
               "col.data");
}

}  // namespace
}  // namespace assay

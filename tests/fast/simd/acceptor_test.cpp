// What the acceptor of the vectorised method says of right and of wrong dumps, and which lines it takes.
#include "contract/acceptor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "tests/fast/simd/simd_cases.h"

namespace assay {
namespace {

// A recorded direction with room beside it: strides are longer than rows, and what stands there is noise.
struct Dump {
  Problem problem;
  Direction direction;
  Shape shape;
  size_t x_width = 2;
  std::vector<std::byte> x, data, scales;
  size_t x_stride = 0, stride = 0, scale_stride = 0;

  FormatId format() const { return problem.quantizer(direction)->format; }
  int64_t length() const {
    return format() == FormatId::fp8_block ? 128 : format() == FormatId::nvfp4 ? 16 : 32;
  }
  bool is_fp4() const { return format() == FormatId::nvfp4 || format() == FormatId::mxfp4; }
  bool transposed() const { return direction == Direction::col && format() != FormatId::mxfp8; }
  bool one_byte_scales() const { return format() == FormatId::mxfp8 || is_fp4(); }
  size_t scale_width() const { return one_byte_scales() ? 1 : 4; }
  // The byte that holds the code of an element of x, and the first byte of the scale of a block.
  std::byte& code(int64_t r, int64_t c) {
    if (transposed()) std::swap(r, c);
    if (is_fp4()) c /= 2;
    return data[static_cast<size_t>(r) * stride + static_cast<size_t>(c)];
  }
  std::byte& scale(int64_t r, int64_t c) {
    if (direction == Direction::row ? format() == FormatId::fp8_block : is_fp4()) std::swap(r, c);
    return scales[static_cast<size_t>(r) * scale_stride + static_cast<size_t>(c) * scale_width()];
  }
  Shape grid() const {
    if (direction == Direction::row) return {shape.rows, ceil_div(shape.cols, length())};
    return {ceil_div(shape.rows, length()), shape.cols};
  }
};

std::vector<std::byte> with_room(const PlaneData& p, Shape used, size_t width, size_t& stride) {
  stride = (static_cast<size_t>(used.cols) + 5) * width;
  std::vector<std::byte> out(static_cast<size_t>(used.rows) * stride + 64, std::byte{0xA5});
  for (int64_t r = 0; r < used.rows; ++r)
    std::memcpy(out.data() + static_cast<size_t>(r) * stride,
                p.bytes.data() + static_cast<size_t>(r) * p.plane.bytes_of(p.plane.padded.cols),
                static_cast<size_t>(used.cols) * width);
  return out;
}

// These quantizers of bf16 with each of their elements: FP4 has one.
std::vector<std::string> with_elements(std::initializer_list<const char*> quantizers) {
  std::vector<std::string> out;
  for (const std::string quantizer : quantizers) {
    const std::string text = "quantize " + quantizer + " bf16 dir=both";
    if (quantizer.starts_with("nvfp4") || quantizer.starts_with("mxfp4")) out.push_back(text);
    else
      for (const char* element : {" element=e4m3", " element=e5m2"}) out.push_back(text + element);
  }
  return out;
}

using Blocks = std::set<std::pair<uint32_t, uint32_t>>;

class SimdAcceptor : public Simd {
 protected:
  Acceptor& acceptor() { return dynamic_cast<Acceptor&>(*simd_); }

  Dump right_dump(const std::string& text, Direction d) {
    const Problem p = line(text);
    return right_dump(p, d, *make_inputs(p, *reference_));
  }
  Dump right_dump(const Problem& p, Direction d, const std::vector<PlaneData>& inputs) {
    Dump out{p, d, {}, 2, {}, {}, {}};
    const auto planes = run(*reference_, out.problem, inputs);
    const PlaneData &data = *find_plane(planes, plane_name(d, "data")),
                    &scales = *find_plane(planes, plane_name(d, "scale_inv"));
    out.shape = out.problem.x.shape;
    out.x_width = inputs.front().plane.bytes_of(1);
    out.x = with_room(inputs.front(), out.shape, out.x_width, out.x_stride);
    out.data = with_room(data, data.plane.packed ? data.plane.stored() : data.plane.logical, 1, out.stride);
    out.scales = with_room(scales, scales.plane.logical, out.scale_width(), out.scale_stride);
    if (const PlaneData* amax = find_plane(planes, plane_name(d, "amax"))) {
      F32Bits bits;
      std::memcpy(&bits, amax->bytes.data(), 4);
      for (const Direction each : kDirections) out.problem.quantizer(each)->amax = bits;
    }
    return out;
  }

  Blocks unknown(const Dump& d) {
    Blocks out;
    for (const BlockPlace& b :
         acceptor().unknown(d.problem, d.direction, {d.x.data(), d.x_stride}, {d.data.data(), d.stride},
                            {d.scales.data(), d.scale_stride}))
      EXPECT_TRUE(out.emplace(b.row, b.col).second) << "a block is named twice";
    return out;
  }

  std::pair<uint32_t, uint32_t> block_at(const Dump& d, int64_t r, int64_t c) {
    if (d.direction == Direction::row) c /= d.length();
    else r /= d.length();
    return {static_cast<uint32_t>(r), static_cast<uint32_t>(c)};
  }

  // The blocks that always go to the reference, from the reference's own codes.
  Blocks special(Dump& d) { return d.is_fp4() ? special_scales(d) : special_codes(d); }

  // By N10.6, or N15.2, and by the elements of x; d's are bf16.
  Blocks special_scales(Dump& d) {
    Blocks out;
    std::set<std::pair<uint32_t, uint32_t>> with_amax;
    for (int64_t r = 0; r < d.shape.rows; ++r)
      for (int64_t c = 0; c < d.shape.cols; ++c) {
        uint16_t bits = 0;
        std::memcpy(&bits, d.x.data() + static_cast<size_t>(r) * d.x_stride + static_cast<size_t>(c) * 2, 2);
        if ((bits & 0x7F80) == 0x7F80) out.insert(block_at(d, r, c));
        if (bits & 0x7FFF) with_amax.insert(block_at(d, r, c));
      }
    for (int64_t r = 0; r < d.grid().rows; ++r)
      for (int64_t c = 0; c < d.grid().cols; ++c) {
        const std::pair block{static_cast<uint32_t>(r), static_cast<uint32_t>(c)};
        const auto code = static_cast<uint32_t>(d.scale(r, c));
        const bool mx = d.format() == FormatId::mxfp4;
        if (code >= (mx ? 254 : 0x7E) || (code < (mx ? 64 : 8) && with_amax.contains(block)))
          out.insert(block);
      }
    return out;
  }

  Blocks special_codes(Dump& d) {
    const bool e4m3 = d.problem.quantizer(d.direction)->element == Encoding::e4m3;
    const uint32_t top = e4m3 ? 0x7E : 0x7B, normal = e4m3 ? 8 : 4;
    Blocks out;
    for (int64_t r = 0; r < d.shape.rows; ++r)
      for (int64_t c = 0; c < d.shape.cols; ++c) {
        const uint32_t code = static_cast<uint32_t>(d.code(r, c)) & 0x7F;
        if (code >= top || (code > 0 && code < normal)) out.insert(block_at(d, r, c));
      }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(On, SimdAcceptor, testing::ValuesIn(targets()),
                         [](const auto& i) { return i.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SimdAcceptor);

TEST_P(SimdAcceptor, ARightDumpIsKnownButForItsSpecialBlocks) {
  size_t known = 0;
  for (const char* fill : kFills)
    for (const char* source : {"bf16", "f16", "f32"})
      for (const char* element : {"e4m3", "e5m2"})
        for (const Direction d : kDirections)
          for (const char* format : {"mxfp8 70x49", "mxfp8 64x96", "mxfp8 31x160", "mxfp8 9x1345",
                                     "fp8_current 70x49", "fp8_block 140x49", "fp8_block 30x259"}) {
            const std::string text = std::string("quantize ") + format + " " + source +
                                     " dir=both element=" + element + " fill=" + fill;
            Dump dump = right_dump(text, d);
            const Blocks want = special(dump);
            EXPECT_EQ(unknown(dump), want) << text << " " << name_of(d);
            known += static_cast<size_t>(dump.grid().count()) - want.size();
          }
  EXPECT_GT(known, 10000u);
}

// What fills up the last pieces of a row are zeros, whose codes have the sign of the scale, or are NaNs.
TEST_P(SimdAcceptor, ARightDumpUnderAnyGivenScaleIsKnownButForItsSpecialBlocks) {
  for (const char* scale : {"-3", "0", "-0.0", "0x7f800000", "0xff800000", "0x7fc00000"})
    for (const char* tensor : {"fp8_delayed 70x49", "fp8_delayed 5x259"})
      for (const Direction d : kDirections) {
        const std::string text = std::string("quantize ") + tensor + " bf16 dir=both scale=" + scale;
        Dump dump = right_dump(text, d);
        EXPECT_EQ(unknown(dump), special(dump)) << text;
      }
}

TEST_P(SimdAcceptor, ARightDumpOfFp4IsKnownButForItsSpecialBlocks) {
  size_t known = 0;
  for (const char* fill : kFills)
    for (const Direction d : kDirections)
      for (const char* tensor : {"nvfp4 70x49", "nvfp4 64x96", "nvfp4 31x160", "nvfp4 16x16", "mxfp4 70x49",
                                 "mxfp4 64x96", "mxfp4 31x160", "mxfp4 32x32"}) {
        const std::string text = std::string("quantize ") + tensor + " bf16 dir=both fill=" + fill;
        Dump dump = right_dump(text, d);
        const Blocks want = special(dump);
        EXPECT_EQ(unknown(dump), want) << text << " " << name_of(d);
        known += static_cast<size_t>(dump.grid().count()) - want.size();
      }
  EXPECT_GT(known, 5000u);
}

// Every bit of every code and of every scale, one at a time: the block is named, and no other one beside
// those of the right dump.
TEST_P(SimdAcceptor, OneWrongBitIsNamedWhereverItStands) {
  for (const Direction d : kDirections)
    for (const std::string& text :
         with_elements({"mxfp8 37x41", "mxfp8 5x64", "mxfp8 1x1345", "fp8_current 36x41", "fp8_block 131x3",
                        "fp8_block 3x131", "fp8_current 2x300", "nvfp4 37x41", "nvfp4 18x5", "nvfp4 5x150",
                        "mxfp4 37x41", "mxfp4 34x5", "mxfp4 5x150"})) {
      Dump dump = right_dump(text, d);
      const Blocks before = unknown(dump);
      const auto expect_named = [&](std::byte& wrong, std::pair<uint32_t, uint32_t> block) {
        for (int bit = 0; bit < 8; ++bit) {
          wrong ^= std::byte{1} << bit;
          Blocks want = before;
          want.insert(block);
          ASSERT_EQ(unknown(dump), want) << text << " " << name_of(d) << " bit " << bit;
          wrong ^= std::byte{1} << bit;
        }
      };
      for (int64_t r = 0; r < dump.shape.rows; ++r)
        for (int64_t c = 0; c < dump.shape.cols; ++c) expect_named(dump.code(r, c), block_at(dump, r, c));
      if (dump.format() == FormatId::fp8_current) continue;  // the reference judges its scale
      for (int64_t r = 0; r < dump.grid().rows; ++r)
        for (int64_t c = 0; c < dump.grid().cols; ++c)
          expect_named(dump.scale(r, c), {static_cast<uint32_t>(r), static_cast<uint32_t>(c)});
    }
}

// Each row has one special block among those that are taken together, and another one whose code, or scale,
// is wrong: both are named, and nothing else is.
TEST_P(SimdAcceptor, OneBlockOfARowIsNamedAmongItsNeighbours) {
  for (const bool wide : {false, true})
    for (const char* element : {"e4m3", "e5m2"})
      for (const Odd odd : kEveryOdd) {
        SCOPED_TRACE(testing::Message() << element << " " << static_cast<int>(odd) << (wide ? " f32" : ""));
        const Problem p = line_of_rows(element, wide);
        Dump dump = right_dump(p, Direction::row, row_of(p, rows_with_one(odd, element, wide)));
        const std::set goes{Odd::subnormal, Odd::top, Odd::infinite, Odd::nan};  // to the reference
        Blocks want;
        for (uint32_t r = 0; goes.contains(odd) && r < kRowBlocks; ++r) want.emplace(r, r);
        ASSERT_EQ(special(dump), want);
        EXPECT_EQ(unknown(dump), want);
        for (const uint32_t away : {1u, 5u, 8u, 40u})
          for (const bool scale : {false, true}) {
            Dump wrong = dump;
            Blocks both = want;
            for (uint32_t r = 0; r < kRowBlocks; ++r) {
              const uint32_t b = (r + away) % kRowBlocks;
              (scale ? wrong.scale(r, b) : wrong.code(r, b * 32 + r % 32)) ^= std::byte{1};
              both.emplace(r, b);
            }
            EXPECT_EQ(unknown(wrong), both) << away << scale;
          }
      }
}

// Of blocks that differ it says how many codes do, where the first one stands down a column, and whether the
// scale differs; unless they are special.
TEST_P(SimdAcceptor, WhatDiffersIsCounted) {
  size_t seen = 0;
  for (const Direction d : kDirections)
    for (const std::string& text :
         with_elements({"mxfp8 70x49", "mxfp8 37x160", "mxfp8 8x1345", "fp8_current 70x49",
                        "fp8_current 5x300", "fp8_block 140x49", "fp8_block 30x259", "nvfp4 70x49",
                        "nvfp4 37x160", "mxfp4 70x49", "mxfp4 37x160"}))
      for (const int every : {1, 3, 29}) {
        Dump dump = right_dump(text, d);
        const Blocks rare = special(dump);
        std::map<std::pair<uint32_t, uint32_t>, std::pair<int, int>> want;  // how many, and the first
        for (int64_t c = 0; c < dump.shape.cols; ++c)
          for (int64_t r = 0; r < dump.shape.rows; ++r) {
            if ((r * 7 + c * 5) % every) continue;
            const bool high = (d == Direction::row ? c : r) % 2;  // of two codes in a byte
            const int bits = !dump.is_fp4() ? 0x81 : high ? 0x90 : 0x09;
            dump.code(r, c) ^= static_cast<std::byte>(bits);
            auto& [count, first] = want[block_at(dump, r, c)];
            if (count++ == 0 && d == Direction::col) first = static_cast<int>(r % dump.length());
          }
        Blocks scales;
        if (dump.format() != FormatId::fp8_current)
          for (int64_t r = 0; r < dump.grid().rows; r += 2) {
            dump.scale(r, 0) ^= std::byte{4};
            scales.emplace(static_cast<uint32_t>(r), 0u);
          }
        for (const DoubtfulBlock& b :
             acceptor().unknown(dump.problem, d, {dump.x.data(), dump.x_stride},
                                {dump.data.data(), dump.stride}, {dump.scales.data(), dump.scale_stride})) {
          const std::pair place(b.row, b.col);
          ASSERT_EQ(b.special, rare.contains(place)) << text;
          if (b.special) continue;
          ++seen;
          ASSERT_EQ(b.differ, want[place].first) << text << " " << b.row << "," << b.col;
          ASSERT_EQ(b.first, want[place].second) << text << " " << b.row << "," << b.col;
          ASSERT_EQ(b.scale, scales.contains(place)) << text;
        }
      }
  EXPECT_GT(seen, 5000u);
}

// An infinity makes the scale 2^127, under which a method that did not look would code it as 2.
TEST_P(SimdAcceptor, AnInfinityIsNeverKnown) {
  for (const Direction d : kDirections) {
    Dump dump = right_dump("quantize mxfp8 32x32 f32 dir=both fill=zeros", d);
    const uint32_t infinity = 0x7F800000;
    std::memcpy(dump.x.data(), &infinity, 4);
    dump.scale(0, 0) = std::byte{254};
    dump.code(0, 0) = std::byte{0x40};
    EXPECT_TRUE(unknown(dump).contains({0, 0}));
  }
}

TEST(SimdLines, OnlyDefaultsAreTaken) {
  const auto subject = make_simd_subject();
  if (!subject->present().yes) GTEST_SKIP() << subject->present().why;
  const auto& acceptor = dynamic_cast<Acceptor&>(*subject);
  for (const char* text : {"quantize mxfp8 64x96 bf16", "quantize mxfp8 64x96 f16 dir=row element=e5m2",
                           "quantize mxfp8 64x96 f32 dir=col fill=wide seed=7",
                           "quantize fp8_block 64x96 bf16", "quantize fp8_current 64x96 bf16 amax=3",
                           "quantize nvfp4 64x96 bf16 amax=3", "quantize mxfp4 64x96 bf16"})
    EXPECT_TRUE(acceptor.accepts(line(text)).yes) << text;
  for (const char* text : {"quantize mxfp6 64x96 bf16",
                           "quantize mxfp8 64x96 bf16 block=32x32",
                           "quantize mxfp4 64x96 bf16 mx_scale=floor",
                           "quantize mxfp8/nvfp4 64x96 bf16",
                           "quantize nvfp4 64x96 bf16",
                           "quantize nvfp4 64x96 bf16 amax=-3",
                           "quantize nvfp4 64x96 bf16 amax=3 round=sr",
                           "quantize nvfp4 64x96 bf16 amax=3 block=16x16",
                           "quantize nvfp4 64x96 bf16 amax=3 rht=1",
                           "quantize nvfp4 64x96 bf16 dir=row row_scaled=1",
                           "quantize mxfp8 64x96 bf16 col_source=row_dequantized",
                           "quantize mxfp8 64x96 bf16 noop=0.0",
                           "quantize mxfp8 64x96 bf16 dir=row scales=gemm",
                           "quantize fp8_current 64x96 bf16",
                           "quantize fp8_current 64x96 bf16 amax=3 eps=1",
                           "quantize fp8_block 64x96 bf16 block=128x128",
                           "quantize fp8_current 64x96 bf16 amax=-3",
                           "quantize mxfp8 64x96 bf16 dir=row scale_from=amax",
                           "quantize mxfp8 64x128 bf16 dir=row flavour=te",
                           "cast e4m3 64x96 bf16"})
    EXPECT_FALSE(acceptor.accepts(line(text)).yes) << text;
  for (const char* text :
       {"quantize fp8_current 64x96 bf16 amax=-3", "quantize fp8_delayed 64x96 bf16 prior_amax=-0.0"})
    EXPECT_FALSE(subject->supports(line(text)).yes) << text;  // N3.1, N3.2
}

// Every key of numerics.def, at a value that is not the default.
TEST(SimdLines, NoOtherNumericsAreTaken) {
  const auto subject = make_simd_subject();
  if (!subject->present().yes) GTEST_SKIP() << subject->present().why;
  const auto& acceptor = dynamic_cast<Acceptor&>(*subject);
  for (const char* text : {"quantize mxfp8 64x96 bf16 dir=row", "quantize fp8_block 64x96 bf16 dir=row",
                           "quantize fp8_current 64x96 bf16 dir=row amax=3",
                           "quantize nvfp4 64x96 bf16 dir=row amax=3", "quantize mxfp4 64x96 bf16 dir=row"}) {
    Problem p = line(text);
    ASSERT_TRUE(acceptor.accepts(p).yes);
#define NUMERIC(name, Type, ...)                  \
  p.row->numerics.name = static_cast<Type>(1);    \
  EXPECT_FALSE(acceptor.accepts(p).yes) << #name; \
  p.row->numerics.name = {};
#include "contract/numerics.def"
#undef NUMERIC
  }
}

}  // namespace
}  // namespace assay

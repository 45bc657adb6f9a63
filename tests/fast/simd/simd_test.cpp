// The vectorised method against the reference: its steps alone, and whole tensors with edges.
#include <gtest/gtest.h>

#include <array>

#include "tests/fast/simd/simd_cases.h"

namespace assay {
namespace {

// Every pattern that ends in one of `low`.
std::vector<uint32_t> ending_in(std::initializer_list<uint32_t> low) {
  std::vector<uint32_t> out;
  for (uint32_t high = 0; high < 1u << 20; ++high)
    for (const uint32_t l : low) out.push_back(high << 12 | l);
  return out;
}
std::vector<uint32_t> every_16_bits() {
  std::vector<uint32_t> out(1 << 16);
  for (uint32_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

INSTANTIATE_TEST_SUITE_P(On, Simd, testing::ValuesIn(targets()), [](const auto& i) { return i.param; });
// A machine without these instructions has nothing to test here.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Simd);

TEST_P(Simd, EveryCastOf16BitsAndEveryBoundaryOfFloats) {
  const auto halves = every_16_bits(), floats = ending_in({0x000, 0x001, 0xFFF});
  for (const char* element : {"e4m3", "e5m2", "e2m1"}) {
    for (const char* source : {"bf16", "f16"}) {
      const Problem p = line(std::string("cast ") + element + " 1x65536 " + source);
      expect_as_reference(p, row_of(p, halves));
    }
    const Problem p = line(std::string("cast ") + element + " 1x" + std::to_string(floats.size()) + " f32");
    expect_as_reference(p, row_of(p, floats));
  }
}

TEST_P(Simd, CastsThatFillNoVector) {
  for (int n = 0; n < 40; ++n)
    for (const char* source : {" f32", " bf16", " f16"})
      for (const char* element : {"e4m3", "e5m2", "e2m1"}) {
        const Problem p = line(std::string("cast ") + element + " 3x" + std::to_string(n) + source);
        expect_as_reference(p, *make_inputs(p, *reference_));
      }
}

TEST_P(Simd, TheScaleOfEveryKindOfAmax) {
  std::vector<uint32_t> amaxes = ending_in({0x000, 0x001, 0x7FF, 0x800, 0xFFF});
  const std::string shape = " 1x" + std::to_string(amaxes.size()) + " f32";
  for (const std::string& text : {"mxfp8" + shape, "mxfp8" + shape + " element=e5m2", "mxfp4" + shape}) {
    const Problem p = line("scale_chain " + text);
    expect_as_reference(p, row_of(p, amaxes));
  }
}

const char* const kFills[] = {"normal", "ties",       "edges",    "wide",     "outliers",
                              "zeros",  "every_code", "denormal", "nonfinite"};

TEST_P(Simd, TensorsOfEveryFillSourceAndShape) {
  for (const char* fill : kFills)
    for (const char* source : {"bf16", "f16", "f32"})
      for (const char* element : {"e4m3", "e5m2"})
        for (const char* shape : {"1x1", "33x65", "64x96", "31x160", "70x49"}) {
          const Problem p = line(std::string("quantize mxfp8 ") + shape + " " + source +
                                 " dir=both element=" + element + " fill=" + fill);
          expect_as_reference(p, *make_inputs(p, *reference_));
        }
}

TEST_P(Simd, Mxfp4TensorsOfEveryFillSourceAndShape) {
  for (const char* fill : kFills)
    for (const char* source : {"bf16", "f16", "f32"})
      for (const char* shape : {"1x1", "33x65", "64x96", "31x160", "70x259"}) {
        const Problem p =
            line(std::string("quantize mxfp4 ") + shape + " " + source + " dir=both fill=" + fill);
        expect_as_reference(p, *make_inputs(p, *reference_));
      }
}

// Blocks along rows, alone or all in one, or down a column, of one amax and 31 of the magnitudes up to it,
// with signs in turn: every code, every midpoint and its neighbours, and the magnitudes that are too small
// for a code, under scales where blocks are taken in lanes of 16 bits, and beside them.
TEST_P(Simd, EveryMagnitudeUnderAScale) {
  for (const uint32_t amax :
       {0x0040u, 0x0080u, 0x20E0u, 0x20E1u, 0x2160u, 0x3F80u, 0x43E0u, 0x43E1u, 0x7E60u, 0x7F7Fu})
    for (const char* quantizer : {"mxfp8", "mxfp8 e5m2", "mxfp4"})
      for (const bool wide : {false, true}) {
        const std::string text(quantizer);
        const uint32_t blocks = (amax + 30) / 31;
        std::vector<uint32_t> x;
        for (uint32_t i = 0; x.size() < size_t{blocks} * 32; ++i) {
          if (x.size() % 32 == i % 32) x.push_back(amax);
          const uint32_t low = wide ? std::array{0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu}[i % 5] : 0;
          x.push_back(std::min(i, amax - 1) | i % 2 << 15);
          if (wide) x.back() = x.back() << 16 | low;
        }
        x.resize(size_t{blocks} * 32);
        if (wide)
          for (uint32_t& bits : x)
            if (bits == amax) bits <<= 16;
        const std::string element = text.ends_with("e5m2") ? " element=e5m2" : "";
        const std::string source = wide ? " f32" : " bf16";
        const std::string format = text.substr(0, 5) + " ", count = std::to_string(blocks);
        const Problem rows = line("quantize " + format + count + "x32" + source + " dir=row" + element);
        expect_as_reference(rows, row_of(rows, x));
        const std::string length = std::to_string(blocks * 32);
        const Problem row = line("quantize " + format + "1x" + length + source + " dir=row" + element);
        expect_as_reference(row, row_of(row, x));
        const Problem columns = line("quantize " + format + "32x" + count + source + " dir=col" + element);
        std::vector<uint32_t> down(x.size());
        for (size_t i = 0; i < x.size(); ++i) down[i % 32 * blocks + i / 32] = x[i];
        expect_as_reference(columns, row_of(columns, down));
      }
}

// Row r holds one number of every binade, among zeros, subnormals and the least normal numbers; or column r
// does, so that neighbouring blocks down columns have tiny scales and large ones.
TEST_P(Simd, BlocksOfEveryBinade) {
  for (const char* element : {"e4m3", "e5m2"}) {
    for (const bool down : {false, true}) {
      const Problem p = line(std::string("quantize mxfp8 ") + (down ? "32x255" : "255x32") +
                             " f32 dir=both element=" + element);
      std::vector<uint32_t> x(255 * 32);
      for (uint32_t binade = 0; binade < 255; ++binade)
        for (uint32_t i = 0; i < 32; ++i) {
          const uint32_t beside[] = {0, 0x80000000, 1, 0x00400000, 0x007FFFFF, 0x80800000, binade << 22};
          const uint32_t value = i == binade % 32 ? binade << 23 | 0x5A5A5A : beside[i % std::size(beside)];
          x[down ? i * 255 + (binade * 37) % 255 : binade * 32 + i] = value;
        }
      expect_as_reference(p, row_of(p, x));
    }
  }
}

// ---- neighbouring blocks along rows, which are taken together -------------------------------------------

TEST_P(Simd, OneBlockOfARowIsUnlikeTheOthers) {
  for (const bool wide : {false, true})
    for (const char* element : {"e4m3", "e5m2"})
      for (const Odd odd : kEveryOdd) {
        SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(odd));
        const Problem p = line_of_rows(element, wide);
        expect_as_reference(p, row_of(p, rows_with_one(odd, element, wide)));
      }
}

// As many blocks as any vector takes together and more, and every length of the last one; of f32 every
// seventh length of a row, which are all lengths of a block in turn.
TEST_P(Simd, RowsOfEveryLength) {
  for (const bool wide : {false, true})
    for (const char* element : {"e4m3", "e5m2"}) {
      const auto x = rows_with_one(Odd::subnormal, element, wide);
      const std::string source = wide ? " f32" : " bf16";
      for (int64_t cols = 1; cols <= kRowBlocks * 32; cols += wide ? 7 : 1) {
        const Problem p =
            line("quantize mxfp8 2x" + std::to_string(cols) + source + " dir=row element=" + element);
        expect_as_reference(p, row_of(p, {x.begin(), x.begin() + 2 * cols}));
      }
    }
}

// The same rows in blocks of 128, and under one scale for all: with infinities and NaNs, and with codes that
// are subnormal or 0.
TEST_P(Simd, OneBlockOfARowOfFp8IsUnlikeTheOthers) {
  for (const char* keys :
       {"fp8_block pow2=0", "fp8_block pow2=1", "fp8_delayed scale=3", "fp8_delayed scale=-40"})
    for (const bool wide : {false, true})
      for (const char* element : {"e4m3", "e5m2"})
        for (const Odd odd : kEveryOdd) {
          const std::string text(keys),
              size = std::to_string(kRowBlocks) + "x" + std::to_string(kRowBlocks * 32);
          const size_t at = text.find(' ');
          const Problem p = line("quantize " + text.substr(0, at) + " " + size + (wide ? " f32" : " bf16") +
                                 " dir=row element=" + element + text.substr(at));
          std::vector<uint32_t> x = rows_with_one(odd, element, wide);
          // Amaxes of a row lie up to 50 binades apart. Within four, most blocks of 128 are ordinary ones.
          const int shift = wide ? 23 : 7;
          for (uint32_t& bits : x) {
            const uint32_t exponent = bits >> shift & 0xFF;
            if (exponent >= 97 && exponent != 0xFF) bits += (125 - exponent + exponent % 4) << shift;
          }
          auto inputs = *make_inputs(p, *reference_);  // of a given scale, a plane beside x
          inputs.front() = row_of(p, x).front();
          expect_as_reference(p, inputs);
        }
}

TEST_P(Simd, ScalesOfBinary32) {
  const std::vector<uint32_t> amaxes = ending_in({0x000, 0x001, 0x800, 0xFFF});
  for (const char* rest : {"fp8_current", "fp8_block"})
    for (const char* keys : {"", " element=e5m2", " pow2=0", " pow2=1 element=e5m2"}) {
      const Problem p =
          line(std::string("scale_chain ") + rest + " 1x" + std::to_string(amaxes.size()) + " f32" + keys);
      std::vector<uint32_t> x = amaxes;
      for (uint32_t& bits : x) bits &= 0x7FFFFFFF;  // an amax has no sign
      expect_as_reference(p, row_of(p, x));
    }
}

TEST_P(Simd, Fp8TensorsOfEveryFillSourceAndShape) {
  for (const char* format : {"fp8_current", "fp8_block"})
    for (const char* fill : kFills)
      for (const char* source : {"bf16", "f16", "f32"})
        for (const char* keys : {" pow2=0", " pow2=1 element=e5m2"})
          for (const char* shape : {"1x1", "33x65", "130x160", "70x259", "2x2440"}) {
            const Problem p = line(std::string("quantize ") + format + " " + shape + " " + source +
                                   " dir=both" + keys + " fill=" + fill);
            expect_as_reference(p, *make_inputs(p, *reference_));
          }
}

// Every amax of a block that ends in these bits, under amaxes of tensors of every kind.
TEST_P(Simd, ScalesOfNvfp4) {
  const std::vector<uint32_t> blocks = ending_in({0x000, 0x001, 0x7FF, 0x800});
  std::vector<uint32_t> pairs;
  for (const uint32_t tensor : {0x00000000u, 0x00000001u, 0x00800000u, 0x3F800000u, 0x40C00000u, 0x45280000u,
                                0x4049F123u, 0x7F7FFFFFu, 0x7F800000u, 0x7FC00000u})
    for (const uint32_t block : blocks) {
      if (block >> 31) continue;  // an amax has no sign
      pairs.push_back(tensor);
      pairs.push_back(block);
    }
  const Problem p = line("scale_chain nvfp4 " + std::to_string(pairs.size() / 2) + "x2 f32");
  expect_as_reference(p, row_of(p, pairs));
}

TEST_P(Simd, Nvfp4TensorsOfEveryFillSourceAndShape) {
  for (const char* fill : kFills)
    for (const char* source : {"bf16", "f16", "f32"})
      for (const char* keys : {"", " amax=0.25", " amax=0", " amax=0x7f800000"})
        for (const char* shape : {"1x1", "33x65", "16x16", "31x160", "70x259"}) {
          const Problem p = line(std::string("quantize nvfp4 ") + shape + " " + source + " dir=both" + keys +
                                 " fill=" + fill);
          expect_as_reference(p, *make_inputs(p, *reference_));
        }
}

TEST_P(Simd, DelayedScales) {
  for (const char* keys : {"", " scale=-3", " scale=0", " scale=0x7f800000", " scale=0x7fc00000",
                           " scale=0x00000001", " prior_amax=100", " prior_amax=0x7fc00000"})
    for (const char* fill : {"normal", "nonfinite", "wide"})
      for (const char* shape : {"33x65", "0x8"}) {
        const Problem p =
            line(std::string("quantize fp8_delayed ") + shape + " bf16 dir=both fill=" + fill + keys);
        expect_as_reference(p, *make_inputs(p, *reference_));
      }
}

// Tensors of several strips, which threads take in turn; the amax of the tensor stands in one of them.
TEST_P(Simd, StripsOnThreads) {
  for (const char* rest :
       {"mxfp8", "mxfp4", "fp8_current", "fp8_block pow2=0", "nvfp4", "fp8_delayed scale=3"})
    for (const char* shape : {"1000x301", "3x131073", "300x0"})
      for (const char* dir : {"row", "both"}) {
        const std::string text(rest);
        const size_t at = std::min(text.find(' '), text.size());
        const Problem p = line("quantize " + text.substr(0, at) + " " + shape +
                               " bf16 fill=outliers dir=" + dir + text.substr(at));
        for (const int threads : {1, 3}) expect_as_reference(p, *make_inputs(p, *reference_), threads);
      }
  const Problem p = line("cast e4m3 700x401 f32");
  expect_as_reference(p, *make_inputs(p, *reference_), 3);
}

}  // namespace
}  // namespace assay

// What the tests of the vectorised method share: lines, tensors, and the method beside the reference on every
// instruction set of this machine.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contract/line.h"
#include "fast/simd/simd.h"
#include "fast/subject_simd.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"

namespace assay {

inline Problem line(const std::string& text) {
  auto p = parse_line(text);
  if (!p) throw std::runtime_error(text + ": " + p.error().text());
  return *p;
}

inline std::vector<PlaneData> run(Subject& subject, const Problem& p, const std::vector<PlaneData>& inputs,
                                  int threads = 1) {
  std::vector<PlaneData> out;
  for (Plane& plane : output_planes(p)) {
    const size_t bytes = plane.bytes();
    out.push_back({std::move(plane), std::vector<std::byte>(bytes, std::byte{0x5A})});
  }
  std::vector<Buffer> buffers;
  for (PlaneData& d : out) buffers.push_back({&d.plane, d.bytes});
  Environment environment;
  environment.threads = threads;
  subject.run(p, views(inputs), buffers, environment);
  return out;
}

// x of a line of one row, with these patterns.
inline std::vector<PlaneData> row_of(const Problem& p, const std::vector<uint32_t>& patterns) {
  PlaneData x{input_planes(p).front(), {}};
  x.bytes.resize(x.plane.bytes());
  const size_t width = x.plane.bytes_of(1);
  for (size_t i = 0; i < patterns.size(); ++i) std::memcpy(x.bytes.data() + i * width, &patterns[i], width);
  return {x};
}

class Simd : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(simd::use_target(GetParam())); }

  void expect_as_reference(const Problem& p, const std::vector<PlaneData>& inputs, int threads = 1) {
    const auto want = run(*reference_, p, inputs), got = run(*simd_, p, inputs, threads);
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const auto differ = std::mismatch(want[i].bytes.begin(), want[i].bytes.end(), got[i].bytes.begin());
      EXPECT_EQ(differ.first, want[i].bytes.end())
          << to_line(p) << " " << want[i].plane.name << " byte " << differ.first - want[i].bytes.begin();
    }
  }

  std::unique_ptr<Subject> reference_ = make_reference_subject(), simd_ = make_simd_subject();
};

inline std::vector<std::string> targets() {
  std::vector<std::string> out;
  for (const std::string_view t : simd::targets()) out.emplace_back(t);
  return out;
}
inline const char* const kFills[] = {"normal", "ties",       "edges",    "wide",     "outliers",
                                     "zeros",  "every_code", "denormal", "nonfinite"};

// Blocks of bf16 of which one, in each row another, is special in this way. Every row has its amaxes in
// another place of the blocks, and neighbouring blocks have other scales. Codes of the others are normal, and
// below the largest one. `wide`: the same of f32, most of them with bits below those of bf16.
inline constexpr int64_t kRowBlocks = 73;
enum class Odd : uint8_t { none, subnormal, just_zero, top, zeros, tiny, infinite, nan };
inline std::vector<uint32_t> rows_with_one(Odd odd, std::string_view element, bool wide) {
  const uint32_t subnormal = element == "e4m3" ? 16 : 30;  // binades below the amax
  std::vector<uint32_t> out;
  for (uint32_t row = 0; row < kRowBlocks; ++row)
    for (uint32_t block = 0; block < kRowBlocks; ++block) {
      const uint32_t exponent = 100 + block * 29 % 50, amax = exponent << 7 | 0x41;
      for (uint32_t i = 0; i < 32; ++i) {
        const bool first = i == row % 32, second = i == (row + 7) % 32;
        uint32_t bits = first ? amax : (exponent - 3) << 7 | (i * 37 + block) % 128;
        if (block == row) {
          if (odd == Odd::subnormal && second) bits = (exponent - subnormal) << 7;
          if (odd == Odd::just_zero && second) bits = (exponent - 40) << 7;
          if (odd == Odd::top && first) bits = exponent << 7 | 0x5F;
          if (odd == Odd::zeros) bits = 0;
          if (odd == Odd::tiny) bits = first ? 0x0941 : 0x0300 + i;
          if (odd == Odd::infinite && second) bits = 0x7F80;
          if (odd == Odd::nan && second) bits = 0x7FC1;
        }
        const bool exact = bits == 0 || bits == 0x7F80;  // a zero or an infinity, which stays one
        bits |= (i + block) % 2 << 15;
        out.push_back(wide ? bits << 16 | (exact ? 0 : (i * 0x2F35 + block * 0x1101) % 0x10000) : bits);
      }
    }
  return out;
}
inline constexpr Odd kEveryOdd[] = {Odd::none,  Odd::subnormal, Odd::just_zero, Odd::top,
                                    Odd::zeros, Odd::tiny,      Odd::infinite,  Odd::nan};
inline Problem line_of_rows(const char* element, bool wide) {
  const std::string count = std::to_string(kRowBlocks), cols = std::to_string(kRowBlocks * 32);
  return line("quantize mxfp8 " + count + "x" + cols + (wide ? " f32" : " bf16") +
              " dir=row element=" + element);
}

}  // namespace assay

// The vectorised method against the reference, on every instruction set of this machine: its steps alone,
// whole tensors with edges, and what the acceptor says of right and of wrong dumps.
#include "fast/simd/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "contract/acceptor.h"
#include "contract/line.h"
#include "fast/subject_simd.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"

namespace assay {
namespace {

Problem line(const std::string& text) {
  auto p = parse_line(text);
  if (!p) throw std::runtime_error(text + ": " + p.error().text());
  return *p;
}

std::vector<PlaneData> run(Subject& subject, const Problem& p, const std::vector<PlaneData>& inputs,
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
std::vector<PlaneData> row_of(const Problem& p, const std::vector<uint32_t>& patterns) {
  PlaneData x{input_planes(p).front(), {}};
  x.bytes.resize(x.plane.bytes());
  const size_t width = x.plane.bytes_of(1);
  for (size_t i = 0; i < patterns.size(); ++i) std::memcpy(x.bytes.data() + i * width, &patterns[i], width);
  return {x};
}

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

std::vector<std::string> targets() {
  std::vector<std::string> out;
  for (const std::string_view t : simd::targets()) out.emplace_back(t);
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
    for (const char* element : {"e4m3", "e2m1"}) {
      const Problem p = line(std::string("cast ") + element + " 3x" + std::to_string(n) + " f32");
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

// Blocks along a row, or down a column, of one amax and 31 of the magnitudes up to it, with signs in turn:
// every code, every midpoint and its neighbours, and the magnitudes that are too small for a code, under
// scales where blocks are taken in lanes of 16 bits, and beside them.
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

// Blocks of bf16 of which one, in each row another, is special in this way. Every row has its amaxes in
// another place of the blocks, and neighbouring blocks have other scales. Codes of the others are normal, and
// below the largest one.
constexpr int64_t kRowBlocks = 73;
enum class Odd : uint8_t { none, subnormal, just_zero, top, zeros, tiny, infinite, nan };
std::vector<uint32_t> rows_with_one(Odd odd, std::string_view element) {
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
        out.push_back(bits | (i + block) % 2 << 15);
      }
    }
  return out;
}
constexpr Odd kEveryOdd[] = {Odd::none,  Odd::subnormal, Odd::just_zero, Odd::top,
                             Odd::zeros, Odd::tiny,      Odd::infinite,  Odd::nan};
Problem line_of_rows(const char* element) {
  const std::string count = std::to_string(kRowBlocks), cols = std::to_string(kRowBlocks * 32);
  return line("quantize mxfp8 " + count + "x" + cols + " bf16 dir=row element=" + element);
}

TEST_P(Simd, OneBlockOfARowIsUnlikeTheOthers) {
  for (const char* element : {"e4m3", "e5m2"})
    for (const Odd odd : kEveryOdd) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(odd));
      const Problem p = line_of_rows(element);
      expect_as_reference(p, row_of(p, rows_with_one(odd, element)));
    }
}

// As many blocks as any vector takes together and more, and every length of the last one.
TEST_P(Simd, RowsOfEveryLength) {
  for (const char* element : {"e4m3", "e5m2"}) {
    const auto x = rows_with_one(Odd::subnormal, element);
    for (int64_t cols = 1; cols <= kRowBlocks * 32; ++cols) {
      const Problem p = line("quantize mxfp8 2x" + std::to_string(cols) + " bf16 dir=row element=" + element);
      expect_as_reference(p, row_of(p, {x.begin(), x.begin() + 2 * cols}));
    }
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
          for (const char* shape : {"1x1", "33x65", "130x160", "70x259"}) {
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

// ---- the acceptor ---------------------------------------------------------------------------------

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
                        "fp8_block 3x131", "nvfp4 37x41", "nvfp4 18x5", "nvfp4 5x150", "mxfp4 37x41",
                        "mxfp4 34x5", "mxfp4 5x150"})) {
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
  for (const char* element : {"e4m3", "e5m2"})
    for (const Odd odd : kEveryOdd) {
      const Problem p = line_of_rows(element);
      Dump dump = right_dump(p, Direction::row, row_of(p, rows_with_one(odd, element)));
      const std::set goes{Odd::subnormal, Odd::top, Odd::infinite, Odd::nan};  // to the reference
      Blocks want;
      for (uint32_t r = 0; goes.contains(odd) && r < kRowBlocks; ++r) want.emplace(r, r);
      ASSERT_EQ(special(dump), want) << element << static_cast<int>(odd);
      EXPECT_EQ(unknown(dump), want) << element << static_cast<int>(odd);
      for (const uint32_t away : {1u, 5u, 8u, 40u})
        for (const bool scale : {false, true}) {
          Dump wrong = dump;
          Blocks both = want;
          for (uint32_t r = 0; r < kRowBlocks; ++r) {
            const uint32_t b = (r + away) % kRowBlocks;
            (scale ? wrong.scale(r, b) : wrong.code(r, b * 32 + r % 32)) ^= std::byte{1};
            both.emplace(r, b);
          }
          EXPECT_EQ(unknown(wrong), both) << element << static_cast<int>(odd) << " " << away << scale;
        }
    }
}

// Of blocks that differ it says how many codes do, where the first one stands down a column, and whether the
// scale differs; unless they are special.
TEST_P(SimdAcceptor, WhatDiffersIsCounted) {
  size_t seen = 0;
  for (const Direction d : kDirections)
    for (const std::string& text : with_elements(
             {"mxfp8 70x49", "mxfp8 37x160", "mxfp8 8x1345", "fp8_current 70x49", "fp8_block 140x49",
              "fp8_block 30x259", "nvfp4 70x49", "nvfp4 37x160", "mxfp4 70x49", "mxfp4 37x160"}))
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

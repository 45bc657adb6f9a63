// Causes of an attention's softmax scale, of a split's offsets and amaxes, of a Hadamard transform, of a
// swizzle back and of Adam's moments. What came is made by loops of this file, or by a line that says the
// same in numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/library/group_offsets.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/process/plain_run.h"
#include "tests/compare/diagnosis/narrow.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using std::string;
using Planes = std::vector<PlaneData>;

PlaneData& called(Planes& planes, const string& name) {
  for (PlaneData& p : planes)
    if (p.plane.name == name) return p;
  throw std::runtime_error("no plane " + name);
}

Diagnosis diagnosed(const planes::Case& c, Planes got) {
  auto d = diagnose(Observation{c.problem, "test", c.inputs, std::move(got)}, *make_reference_subject(), {});
  EXPECT_TRUE(d);
  return d ? std::move(*d) : Diagnosis{};
}

// The exact explanation of that id says the same bytes once more.
void expect_named(const string& id, const planes::Case& c, Planes got) {
  const Diagnosis d = diagnosed(c, got);
  const Explanation* named = nullptr;
  for (const Explanation& e : d.explanations)
    if (e.exact() && e.ids == std::vector{id}) named = &e;
  ASSERT_TRUE(named) << id << '\n' << diagnosis_screen(d);
  const auto again = predict(*named, c.problem, c.inputs, *make_reference_subject());
  ASSERT_TRUE(again) << id;
  for (const PlaneData& plane : *again) {
    const PlaneData& came = called(got, plane.plane.name);
    const std::vector<Member>& members = plane.plane.members;
    if (members.empty()) {
      EXPECT_EQ(plane.bytes, came.bytes) << id << ' ' << plane.plane.name;
      continue;
    }
    // A kernel may leave anything where no member was written.
    if (id.starts_with("split.scale_offsets") && plane.plane.name.find(".scale_") != string::npos) continue;
    for (const Member& m : members) {
      const size_t end = plane.plane.bytes_of(m.offset + m.padded.count());
      for (size_t i = plane.plane.bytes_of(m.offset); i < end; ++i)
        ASSERT_EQ(plane.bytes[i], came.bytes[i]) << id << ' ' << plane.plane.name << ' ' << i;
    }
  }
}

// ---- attention -------------------------------------------------------------------------------------------

// Heads of 24 elements, two of them.
struct Scale {
  const char *id, *number;
};
constexpr Scale kScales[] = {
    {"scale_of_all_heads", "0.14433756"},  // 1 / sqrt(48)
    {"scale_unrooted", "0.041666668"},     // 1 / 24
    {"scale_inverted", "4.8989797"},       // sqrt(24)
    {"scale_by_log2e", "0.29448771"},      // log2(e) / sqrt(24)
    {"scale_by_ln2", "0.14148824"},        // ln(2) / sqrt(24)
    {"scale_padded=32", "0.17677669"},     // 1 / sqrt(32)
    {"scale_padded=128", "0.088388346"},   // 1 / sqrt(128)
};

TEST(OtherOps, SoftmaxScalesAreNamed) {
  const string line = "attention fp8_current 12x48 bf16 heads=2";
  const planes::Case c(line);
  for (const Scale& scale : kScales)
    expect_named(string("attention.") + scale.id, c,
                 planes::Case(line + " softmax_scale=" + scale.number).want);
}

TEST(OtherOps, TheDefaultSoftmaxScaleIsNamed) {
  const planes::Case c("attention fp8_current 12x48 bf16 heads=2 softmax_scale=3");
  expect_named("attention.scale_default", c, planes::Case("attention fp8_current 12x48 bf16 heads=2").want);
}

TEST(OtherOps, SidesOfAWindowAreNamed) {
  const string line = "attention fp8_current 24x32 bf16 heads=2 window=";
  const planes::Case c(line + "3,5");
  for (const auto& [id, sides] : {std::pair("window_left_more", "4,5"), std::pair("window_left_less", "2,5"),
                                  std::pair("window_turned", "5,3")})
    expect_named(string("attention.") + id, c, planes::Case(line + sides).want);
}

TEST(OtherOps, TheCornerOfPaddedSequencesIsNamed) {
  const string line =
      "attention fp8_current 32x64 bf16 heads=2 batch=2 kv=24 lengths=10,16 kv_lengths=24,17 ";
  expect_named("attention.corner_padded", planes::Case(line + "mask=causal_bottom_right"),
               planes::Case(line + "window=-1,8").want);
}

TEST(OtherOps, AMaskOfDropoutThatMovedIsNamed) {
  const planes::Case c("attention fp8_current 32x64 bf16 heads=2 dropout=0.25 backward=1");
  const std::pair<const char*, size_t> causes[] = {
      {"dropout_missing", 0}, {"dropout_moved=1", 1}, {"dropout_moved=4", 4}, {"dropout_moved=16", 16}};
  for (const auto& [id, moved] : causes) {
    Planes other = c.inputs;
    std::vector<std::byte>& keep = called(other, "keep").bytes;
    const std::vector<std::byte> before = keep;
    for (size_t i = 0; i < keep.size(); ++i)
      keep[i] = moved ? before[(i + moved) % keep.size()] : std::byte{1};
    const auto backward = plain_run(*make_reference_subject(), c.problem, other);
    ASSERT_TRUE(backward);
    Planes got = c.want;
    bool gradients = false;  // they come behind `out`
    for (PlaneData& plane : got) {
      if (gradients) plane.bytes = find_plane(*backward, plane.plane.name)->bytes;
      gradients |= plane.plane.name == "out";
    }
    expect_named(string("attention.") + id, c, got);
  }
}

// ---- split -----------------------------------------------------------------------------------------------

void put_offset(PlaneData& plane, size_t i, size_t v) {
  const auto word = static_cast<uint32_t>(v);
  std::memcpy(plane.bytes.data() + 4 * i, &word, 4);
}

// Rows of 128 scales and more that a member of so many rows takes room for.
using Room = size_t (*)(size_t rows);

TEST(OtherOps, OffsetsOfScalesAreNamed) {
  const planes::Case c("split mxfp8 320x128 bf16 groups=100,130,90 dir=row");
  const size_t rows[] = {100, 130, 90}, padded[] = {128, 256, 128};
  const std::pair<const char*, Room> causes[] = {
      {"tiles_floored", [](size_t n) { return n / 128 * 128; }},
      {"without_padding", [](size_t n) { return n; }},
      {"as_the_first", [](size_t) { return size_t{128}; }},
      {"none", [](size_t) { return size_t{0}; }},
  };
  for (const auto& [id, room] : causes)
    for (const bool shown : {true, false}) {
      Planes got = c.want;
      PlaneData& scales = called(got, "row.scale_inv");
      size_t from = 0, at = 0;
      for (size_t m = 0; m < 3; ++m) {
        std::memcpy(scales.bytes.data() + at, c.wanted("row.scale_inv").bytes.data() + from, padded[m] * 4);
        from += padded[m] * 4, at += room(rows[m]) * 4;
        if (shown) put_offset(called(got, "row.scale_offsets"), m + 1, at);
      }
      expect_named(string("split.scale_offsets=") + id + (shown ? "" : ",hidden"), c, got);
    }
}

TEST(OtherOps, EveryOffsetCauseIsTried) {
  std::set<string> names;
  for (const OffsetCause& cause : offset_causes(*parse_line("split mxfp8 320x128 bf16 groups=100,130,90")))
    if (cause.shown) names.insert(cause.id);
  EXPECT_EQ(names,
            (std::set<string>{"split.scale_offsets=tiles_floored", "split.scale_offsets=without_padding",
                              "split.scale_offsets=as_the_first", "split.scale_offsets=none"}));
}

// Two causes that make the same bytes are both told.
TEST(OtherOps, OffsetsThatAreTheSameAreEquivalent) {
  const planes::Case c("split mxfp8 200x128 bf16 groups=100,100 dir=row");
  Planes got = c.want;
  PlaneData& scales = called(got, "row.scale_inv");
  std::memcpy(scales.bytes.data(), c.wanted("row.scale_inv").bytes.data() + 512, 512);
  for (const size_t i : {size_t{1}, size_t{2}}) put_offset(called(got, "row.scale_offsets"), i, 0);
  const Diagnosis d = diagnosed(c, got);
  EXPECT_EQ(d.confidence, Confidence::equivalent) << diagnosis_screen(d);
  std::set<string> ids;
  for (const Explanation& e : d.explanations) ids.insert(e.ids.front());
  EXPECT_TRUE(ids.contains("split.scale_offsets=none") && ids.contains("split.scale_offsets=tiles_floored"));
}

// Offsets explain no scales of the other direction, and no offsets of the data.
TEST(OtherOps, OffsetsExplainNothingElse) {
  for (const bool of_data : {false, true}) {
    planes::Case c("split mxfp8/fp8_current 200x128 bf16 groups=100,100");
    PlaneData& scales = c["row.scale_inv"];
    std::memcpy(scales.bytes.data(), c.wanted("row.scale_inv").bytes.data() + 512, 512);
    for (const size_t i : {size_t{1}, size_t{2}}) put_offset(c["row.scale_offsets"], i, 0);
    PlaneData& wrong = c[of_data ? "offsets" : "col.scale_inv"];
    for (std::byte& b : wrong.bytes) b = std::byte{0x3F};
    for (const Explanation& e : diagnosed(c, c.got).explanations)
      EXPECT_FALSE(e.exact() && e.ids.front().starts_with("split.scale_offsets")) << e.ids.front();
  }
}

// Most codes of a swizzle are in another order, and some are wrong besides.
TEST(OtherOps, ASwizzleWithWrongCodesIsNoOrderAlone) {
  const planes::Case c("swizzle mxfp8 256x512 e8m0 dir=row fill=wide");
  Planes got = c.want;
  for (size_t r = 0; r < 256; ++r)
    for (size_t k = 0; k < 16; ++k) got.front().bytes[k * 256 + r] = c.inputs.front().bytes[r * 16 + k];
  for (const size_t i : {3, 700, 1500, 2400, 4000}) got.front().bytes[i] ^= std::byte{0x55};
  EXPECT_NE(diagnosed(c, got).confidence, Confidence::certain);
}

// A member whose scales are wrong is not explained by where they stand.
TEST(OtherOps, AWrongScaleIsNoOffset) {
  planes::Case c("split mxfp8 320x128 bf16 groups=100,130,90 dir=row");
  c["row.scale_inv"].bytes[7] ^= std::byte{1};
  for (const Explanation& e : diagnosed(c, c.got).explanations)
    EXPECT_FALSE(e.exact() && e.ids.front().starts_with("split.scale_offsets")) << e.ids.front();
}

TEST(OtherOps, TheAmaxOfAGroupIsNamed) {
  // The members' own amaxes are replaced by a given one, the largest of them.
  for (const char* rotation : {"rht=0", "rht=1"}) {
    const string line = string("split nvfp4 192x64 bf16 groups=64,128 dir=col ") + rotation;
    const planes::Case c(line);
    const PlaneData& amax = c.wanted("col.amax");
    float a[2];
    std::memcpy(a, amax.bytes.data(), sizeof a);
    ASSERT_NE(a[0], a[1]);
    const int larger = a[0] < a[1];
    Planes given = c.inputs;
    Problem p = c.problem;
    p.col->amax = F32Bits{0x3F800000};
    for (const Plane& plane : input_planes(p))
      if (plane.name == "col.given.amax") {
        const float both[2] = {a[larger], a[larger]};
        std::vector<std::byte> bytes(sizeof both);
        std::memcpy(bytes.data(), both, sizeof both);
        given.push_back({plane, bytes});
      }
    const auto made = plain_run(*make_reference_subject(), p, given);
    ASSERT_TRUE(made) << made.error().text();
    Planes got = c.want;
    for (const PlaneData& plane : *made) called(got, plane.plane.name).bytes = plane.bytes;
    for (size_t m : {size_t{0}, size_t{1}})
      std::memcpy(called(got, "col.amax").bytes.data() + 4 * m, &a[larger], 4);
    expect_named("tensor_amax.of_group", c, got);
  }
}

TEST(OtherOps, AGivenValueOfTheFirstMemberIsNamed) {
  const planes::Case c("split fp8_delayed 64x64 bf16 dir=row groups=16,0,32,16 scale=4");
  Planes read = c.inputs;
  std::vector<std::byte>& given = called(read, "row.given.scale").bytes;
  for (size_t m = 1; m < given.size() / 4; ++m) std::memcpy(given.data() + 4 * m, given.data(), 4);
  const auto got = plain_run(*make_reference_subject(), c.problem, read);
  ASSERT_TRUE(got);
  expect_named("split.given_of=first", c, *got);
}

TEST(OtherOps, MembersThatAreReadAsSlicesAreNamed) {
  const planes::Case c("split fp8_current 8x24 bf16 dir=row vary=last groups=4,12,8");
  Planes read = c.inputs;
  std::vector<std::byte>& x = called(read, "x").bytes;
  const std::vector<std::byte> before = x;
  const size_t first[] = {0, 4, 16, 24};
  size_t to = 0;
  for (size_t m = 0; m < 3; ++m)
    for (size_t row = 0; row < 8; ++row)
      for (size_t column = first[m]; column < first[m + 1]; ++column, ++to)
        std::memcpy(x.data() + 2 * to, before.data() + 2 * (row * 24 + column), 2);
  const auto got = plain_run(*make_reference_subject(), c.problem, read);
  ASSERT_TRUE(got);
  expect_named("split.column_slices", c, *got);
}

// Columns of E8M0 scales: of each 32 rows from where a member begins the code is that of 448 times a power of
// two that covers the largest element, rows of the next member among them.
TEST(OtherOps, ALastBlockThatReadsOnIsNamed) {
  const planes::Case c("split mxfp8 64x32 bf16 dir=col groups=20,44");
  const planes::Case longer("quantize mxfp8 32x32 bf16 dir=col");
  Planes in = longer.inputs;
  const std::vector<std::byte>& x = find_plane(c.inputs, "x")->bytes;
  std::copy_n(x.begin(), static_cast<std::ptrdiff_t>(32 * 32 * 2), called(in, "x").bytes.begin());
  const auto read_on = plain_run(*make_reference_subject(), longer.problem, in);
  ASSERT_TRUE(read_on);
  Planes got = c.want;
  // One row of scales, and the first 20 of 32 rows of data, which begin at the planes' first bytes.
  const PlaneData &scales = *find_plane(*read_on, "col.scale_inv"), &data = *find_plane(*read_on, "col.data");
  std::copy_n(scales.bytes.begin(), 32, called(got, "col.scale_inv").bytes.begin());
  std::copy_n(data.bytes.begin(), 20 * 32, called(got, "col.data").bytes.begin());
  expect_named("split.tail_reads_on", c, got);
}

// ---- the others ------------------------------------------------------------------------------------------

// The transform by the matrix itself: entry (i, j) of it is 1 or -1 by the parity of i & j.
float bf16_of_code(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }
uint16_t code_of(double v) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(v));
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

TEST(OtherOps, ATransformWithSignsBehindItIsNamed) {
  const planes::Case c("hadamard nvfp4 64x48 bf16 sign_mask=0x9C3B");
  const std::vector<std::byte> x = find_plane(c.inputs, "x")->bytes;
  Planes got = c.want;
  float amax = 0;
  for (size_t column = 0; column < 48; ++column)
    for (size_t row = 0; row < 64; ++row) {
      double sum = 0;
      for (size_t k = 0; k < 16; ++k) {
        uint16_t code;
        std::memcpy(&code, x.data() + 2 * ((row / 16 * 16 + k) * 48 + column), 2);
        sum += std::popcount(k & row % 16) % 2 ? -bf16_of_code(code) : bf16_of_code(code);
      }
      const uint16_t code = code_of(0x9C3B >> row % 16 & 1 ? -sum / 4 : sum / 4);
      std::memcpy(called(got, "y").bytes.data() + 2 * (column * 64 + row), &code, 2);
      amax = std::max(amax, std::fabs(bf16_of_code(code)));
    }
  std::memcpy(called(got, "amax").bytes.data(), &amax, 4);
  expect_named("rht.signs_after", c, got);
}

TEST(OtherOps, SignsOfATransformAreNamed) {
  const planes::Case c("hadamard nvfp4 64x48 bf16 sign_mask=0x9C3B");
  expect_named("rht.sign_bytes_swapped", c, planes::Case("hadamard nvfp4 64x48 bf16 sign_mask=0x3B9C").want);
}

TEST(OtherOps, ASwizzleBackThatReadsAnotherOrderIsNamed) {
  const planes::Case c("swizzle mxfp8 256x256 e8m0 dir=row inverse=1 fill=wide");
  Planes got = c.want;
  const std::vector<std::byte> from = c.inputs.front().bytes;
  for (size_t r = 0; r < 256; ++r)
    for (size_t k = 0; k < 8; ++k)  // the tile below comes next, where the one beside it should
      got.front().bytes[r * 8 + k] =
          from[(k / 4 * 2 + r / 128) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + k % 4];
  expect_named("swizzle.read_as:tiles_128x4_down", c, got);
}

TEST(OtherOps, ScalesInFewerBitsAreNamed) {
  for (const bool half : {false, true}) {
    const planes::Case c("dequantize fp8_current 64x64 bf16 dir=row row_scaled=1");
    Planes read = c.inputs;
    std::vector<std::byte>& scales = called(read, "row.scale_inv").bytes;
    for (size_t i = 0; i < scales.size() / 4; ++i) {
      float v;
      std::memcpy(&v, scales.data() + 4 * i, 4);
      v = half ? narrow::to_f16(v) : narrow::to_bf16(v);
      std::memcpy(scales.data() + 4 * i, &v, 4);
    }
    const auto got = plain_run(*make_reference_subject(), c.problem, read);
    ASSERT_TRUE(got);
    expect_named(half ? "dequantize.scale.in_f16" : "dequantize.scale.in_bf16", c, *got);
  }
}

// E5M2 is the high byte of f16: what is cut of f16 is cut toward zero.
TEST(OtherOps, ACastByTheHighByteOfF16IsNamed) {
  const planes::Case c("cast e5m2 16x64 f32");
  Planes got = c.want;
  const std::vector<std::byte>& x = find_plane(c.inputs, "x")->bytes;
  for (size_t i = 0; i < 16 * 64; ++i) {
    float v;
    std::memcpy(&v, x.data() + 4 * i, 4);
    got.front().bytes[i] = static_cast<std::byte>(narrow::f16_code(v) >> 8);
  }
  expect_named("cast.cut_through_f16", c, got);
}

TEST(OtherOps, ACastThatRoundsTwiceIsNamed) {
  const planes::Case c("cast e4m3 64x64 f32");
  std::vector<std::byte> x = find_plane(c.inputs, "x")->bytes;
  for (size_t i = 0; i < x.size() / 4; ++i) {
    float v;
    std::memcpy(&v, x.data() + 4 * i, 4);
    v = narrow::to_bf16(v);
    std::memcpy(x.data() + 4 * i, &v, 4);
  }
  Planes read = c.inputs;
  called(read, "x").bytes = x;
  const auto got = plain_run(*make_reference_subject(), c.problem, read);
  ASSERT_TRUE(got);
  expect_named("cast.through_bf16", c, *got);
}

TEST(OtherOps, ADecodeScaleThatIsDividedIsNamed) {
  const planes::Case c("scale_chain fp8_current 16x64 f32");
  Planes got = c.want;
  const std::vector<std::byte>& x = find_plane(c.inputs, "x")->bytes;
  PlaneData& inverse = called(got, "scale_inv");
  for (size_t i = 0; i < 16 * 64; ++i) {
    float amax;
    std::memcpy(&amax, x.data() + 4 * i, 4);
    const float divided = amax / 448;
    if (amax > 0 && std::isfinite(amax)) std::memcpy(inverse.bytes.data() + 4 * i, &divided, 4);
  }
  expect_named("scale_chain.inverse_divided", c, got);
}

// One step of Adam in binary32, with a slip in what the update is made of.
struct Moments {
  float p, m, v, c1, c2, eps;
};
TEST(OtherOps, StepsOfAdamAreNamed) {
  const std::pair<const char*, float (*)(const Moments&)> slips[] = {
      {"eps_in_root", [](const Moments& s) { return s.m / s.c1 / std::sqrt(s.v / s.c2 + s.eps); }},
      {"eps_before_correction",
       [](const Moments& s) { return s.m / s.c1 / ((std::sqrt(s.v) + s.eps) / std::sqrt(s.c2)); }},
      {"first_uncorrected", [](const Moments& s) { return s.m / (std::sqrt(s.v / s.c2) + s.eps); }},
      {"second_uncorrected", [](const Moments& s) { return s.m / s.c1 / (std::sqrt(s.v) + s.eps); }},
      {"root_missing", [](const Moments& s) { return s.m / s.c1 / (s.v / s.c2 + s.eps); }},
      {"", [](const Moments& s) { return s.m / s.c1 / (std::sqrt(s.v / s.c2) + s.eps); }},
  };
  const float lr = 0.001f, beta1 = 0.9f, beta2 = 0.999f;
  const planes::Case c("adam f32 16x16 f32 moments=f32 step=3 eps=0.01");
  const auto numbers = [&](const char* name) {
    std::vector<float> out(256);
    std::memcpy(out.data(), find_plane(c.inputs, name)->bytes.data(), 1024);
    return out;
  };
  const auto g = numbers("x"), p = numbers("p"), m = numbers("m"), v = numbers("v");
  for (const auto& [id, update] : slips) {
    Planes got = c.want;
    for (size_t i = 0; i < 256; ++i) {
      const Moments s{p[i],
                      beta1 * m[i] + (1 - beta1) * g[i],
                      beta2 * v[i] + (1 - beta2) * g[i] * g[i],
                      static_cast<float>(1 - std::pow(static_cast<double>(beta1), 3)),
                      static_cast<float>(1 - std::pow(static_cast<double>(beta2), 3)),
                      0.01f};
      const float next = -lr * (0 * s.p + update(s)) + s.p;
      std::memcpy(called(got, "next.p").bytes.data() + 4 * i, &next, 4);
    }
    if (*id) expect_named(string("adam.") + id, c, got);
    else EXPECT_EQ(called(got, "next.p").bytes, c.wanted("next.p").bytes) << "without a slip";
  }
}

TEST(OtherOps, ADecayBeforeTheUpdateIsNamed) {
  // With lr = 1 / 1024 and decay = 1 / 2 the product 1 - lr * decay is exact.
  const planes::Case exact("adam f32 16x16 f32 moments=f32 step=1 decay=0.5 lr=0.0009765625 beta1=0 eps=0");
  Planes late = exact.want;
  for (size_t i = 0; i < 256; ++i) {
    float p, g;
    std::memcpy(&p, find_plane(exact.inputs, "p")->bytes.data() + 4 * i, 4);
    std::memcpy(&g, find_plane(exact.inputs, "x")->bytes.data() + 4 * i, 4);
    float v;
    std::memcpy(&v, find_plane(exact.inputs, "v")->bytes.data() + 4 * i, 4);
    const float beta2 = 0.999f, second = beta2 * v + (1 - beta2) * g * g,
                c2 = static_cast<float>(1 - static_cast<double>(beta2)), root = std::sqrt(second / c2);
    const float u = g / root, next = -0.0009765625f * (0 * p + u) + p * (1 - 0.0009765625f * 0.5f);
    std::memcpy(called(late, "next.p").bytes.data() + 4 * i, &next, 4);
  }
  expect_named("adam.decay_first", exact, late);
}

TEST(OtherOps, MomentsOfAnotherEncodingAreNamed) {
  for (const bool half : {false, true}) {
    const planes::Case c("adam f32 8x16 bf16 moments=f32");
    Planes got = c.want;
    for (const char* name : {"next.m", "next.v"})
      for (size_t i = 0; i < 128; ++i) {
        float v;
        std::memcpy(&v, called(got, name).bytes.data() + 4 * i, 4);
        v = half ? narrow::to_f16(v) : narrow::to_bf16(v);
        std::memcpy(called(got, name).bytes.data() + 4 * i, &v, 4);
      }
    expect_named(half ? "adam.moments_in_f16" : "adam.moments_in_bf16", c, got);
  }
}

}  // namespace
}  // namespace assay

#include "compare/judge/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <functional>
#include <set>
#include <string>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/verdict.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

std::vector<PlaneData> outputs_of(const Problem& p) {
  auto reference = make_reference_subject();
  return execute(*reference, p, *make_inputs(p, *reference), {}).planes;
}
PlaneData& plane(std::vector<PlaneData>& planes, const std::string& name) {
  for (PlaneData& p : planes)
    if (p.plane.name == name) return p;
  throw std::runtime_error("no plane " + name);
}
void flip(std::vector<PlaneData>& planes, const std::string& name, int64_t row, int64_t col,
          uint32_t mask = 1) {
  PlaneData& p = plane(planes, name);
  const int64_t i = index_of(p.plane, row, col);
  set_code(p.plane.encoding, p.bytes, i, code_at(p.plane.encoding, p.bytes, i) ^ mask);
}

TEST(Judge, EqualPlanesAreEqual) {
  const Problem p = fakes::problem("quantize mxfp8 64x96 bf16 dir=both");
  const auto want = outputs_of(p);
  const Judgement j = judge(&p, want, want);
  EXPECT_TRUE(j.equal());
  EXPECT_EQ(j.compared, 2 * 64 * 96 + 64 * 3 + 2 * 96);
}

TEST(Judge, NamesTheCauseAndCountsWhatFollows) {
  const Problem p = fakes::problem("quantize mxfp8 64x96 bf16 dir=both");
  const auto want = outputs_of(p);
  auto got = want;
  flip(got, "row.scale_inv", 12, 1);
  for (int c : {32, 40, 63}) flip(got, "row.data", 12, c);
  flip(got, "row.data", 50, 0);  // outside the block
  flip(got, "col.data", 3, 4);   // of the other chain
  const Judgement j = judge(&p, got, want);
  ASSERT_TRUE(j.cause);
  EXPECT_EQ(j.cause->plane.name, "row.scale_inv");
  EXPECT_EQ(j.cause->place, (Place{false, 12, 1}));
  EXPECT_EQ(j.cause->differ, 1);
  EXPECT_EQ(j.cause->apart, 1);
  ASSERT_EQ(j.after.size(), 1u);
  EXPECT_EQ(j.after[0].plane.name, "row.data");
  EXPECT_EQ(j.after[0].differ, 4);
  EXPECT_EQ(j.after[0].explained, 3);
  ASSERT_EQ(j.beside.size(), 1u);
  EXPECT_EQ(j.beside[0].plane.name, "col.data");
}

TEST(Judge, TheFirstOfATileOrderIsTheFirstInRowsAndColumns) {
  const Problem p = fakes::problem("quantize mxfp8 130x256 bf16 dir=row scales=gemm");
  const auto want = outputs_of(p);
  auto got = want;
  flip(got, "row.scale_gemm", 40, 1);  // byte 133
  flip(got, "row.scale_gemm", 33, 2);  // byte 22
  flip(got, "row.scale_gemm", 32, 7);  // byte 519
  const Judgement j = judge(&p, got, want);
  ASSERT_TRUE(j.cause);
  EXPECT_EQ(j.cause->place, (Place{false, 32, 7}));
  EXPECT_EQ(j.cause->differ, 3);
  EXPECT_TRUE(j.padding.empty());
}

TEST(Judge, EveryOutcomeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const Outcome o : {Outcome::passed, Outcome::failed, Outcome::mistrusted, Outcome::unsupported,
                          Outcome::skipped, Outcome::crashed, Outcome::stale}) {
    EXPECT_EQ(outcome_named(name_of(o)), o);
    EXPECT_TRUE(names.insert(std::string(name_of(o))).second) << name_of(o);
  }
  EXPECT_FALSE(outcome_named(""));
}

TEST(Judge, PaddingIsJudgedApart) {
  const Problem p = fakes::problem("quantize mxfp8 33x70 bf16 dir=row");
  const auto want = outputs_of(p);
  auto got = want;
  flip(got, "row.scale_inv", 127, 3);
  const Judgement j = judge(&p, got, want);
  EXPECT_TRUE(j.equal());
  ASSERT_EQ(j.padding.size(), 1u);
  EXPECT_EQ(j.padding[0].place, (Place{true, 127, 3}));
}

TEST(Judge, NothingComparedIsAnError) {
  const Problem p = fakes::problem("quantize mxfp8 32x32 bf16");
  EXPECT_FALSE(judge(&p, {}, {}).error.empty());
  auto want = outputs_of(p);
  auto short_one = want;
  short_one.pop_back();
  EXPECT_NE(judge(&p, short_one, want).error.find("missing"), std::string::npos);
  EXPECT_NE(judge(&p, want, short_one).error.find("one side only"), std::string::npos);
  for (const bool packed : {true, false}) {  // the same codes, in half of the bytes or one in each
    const Problem fp6 =
        fakes::problem(packed ? "quantize mxfp6 32x32 bf16 packing=packed" : "quantize mxfp6 32x32 bf16");
    const auto stored = outputs_of(fp6);
    auto other = stored;
    std::find_if(other.begin(), other.end(), [](const PlaneData& d) {
      return d.plane.name == "row.data";
    })->plane.packed = !packed;
    EXPECT_NE(judge(&fp6, other, stored).error.find("is stored in a different way"), std::string::npos)
        << judge(&fp6, other, stored).error;
  }
  auto cut = want;
  cut[0].bytes.pop_back();
  EXPECT_FALSE(judge(&p, cut, want).error.empty());
  const Problem empty = fakes::problem("cast e4m3 0x32 bf16");
  const auto nothing = outputs_of(empty);
  EXPECT_TRUE(judge(&empty, nothing, nothing).equal());
  EXPECT_FALSE(judge(&p, nothing, nothing).error.empty());
}

std::string hint_after(const char* line, const std::function<void(std::vector<PlaneData>&)>& spoil) {
  const Problem p = fakes::problem(line);
  const auto want = outputs_of(p);
  auto got = want;
  spoil(got);
  return judge(&p, got, want).hint;
}

TEST(Judge, Hints) {
  auto has = [](const std::string& hint, const char* word) {
    EXPECT_NE(hint.find(word), std::string::npos) << "'" << hint << "' lacks '" << word << "'";
  };
  const char* mx = "quantize mxfp8 64x96 bf16 dir=row";
  has(hint_after(mx, [](auto& g) { flip(g, "row.data", 3, 3, 1); }), "one code apart");
  has(hint_after(mx, [](auto& g) { flip(g, "row.data", 3, 3, 0x80); }), "the sign only");
  has(hint_after(mx,
                 [](auto& g) {
                   for (auto& b : plane(g, "row.scale_inv").bytes)
                     if (b != std::byte{0}) b = static_cast<std::byte>(static_cast<uint8_t>(b) - 1);
                 }),
      "one binade too small");
  has(hint_after(mx,
                 [](auto& g) {
                   std::fill(plane(g, "row.data").bytes.begin(), plane(g, "row.data").bytes.end(),
                             std::byte{0x33});
                 }),
      "the code 33 in all");
  has(hint_after(mx,
                 [](auto& g) {
                   PlaneData& d = plane(g, "row.data");
                   std::reverse(d.bytes.begin(), d.bytes.end());
                 }),
      "another order");
  has(hint_after("quantize mxfp8 64x64 bf16 dir=row",
                 [](auto& g) {
                   PlaneData& d = plane(g, "row.data");
                   const auto old = d.bytes;
                   for (size_t i = 0; i < 64; ++i)
                     for (size_t k = 0; k < 64; ++k) d.bytes[i * 64 + k] = old[k * 64 + i];
                 }),
      "transposed");
  has(hint_after("quantize mxfp8 128x256 bf16 dir=row scales=gemm",
                 [](auto& g) {
                   PlaneData& d = plane(g, "row.scale_gemm");
                   Plane compact = d.plane;
                   compact.layout = ScaleLayout::compact;
                   const auto old = d.bytes;
                   for (int64_t r = 0; r < 128; ++r)
                     for (int64_t c = 0; c < 8; ++c)
                       d.bytes[static_cast<size_t>(index_of(compact, r, c))] =
                           old[static_cast<size_t>(index_of(d.plane, r, c))];
                 }),
      "compact order");
  has(hint_after("quantize mxfp8 64x70 bf16 dir=row",
                 [](auto& g) {
                   for (int r = 0; r < 64; r += 3) {
                     flip(g, "row.data", r, 66, 3);
                     flip(g, "row.data", r, 69, 5);
                   }
                 }),
      "only in the last 6 columns");
  const auto ends = [](int64_t rows, int64_t cols, bool of_column) {
    return [=](auto& g) {
      for (int64_t k = 0; k < (of_column ? rows : cols); k += 3)
        flip(g, "row.data", of_column ? k : rows - 1, of_column ? cols - 1 : k, k % 2 == 0 ? 3 : 5);
    };
  };
  has(hint_after("quantize mxfp8 64x70 bf16 dir=row", ends(64, 70, true)), "only in the last column");
  has(hint_after("quantize mxfp8 64x70 bf16 dir=row", ends(64, 70, false)), "only in the last row");
  // Where there is one column or row, all of it is the last, which says nothing.
  EXPECT_EQ(hint_after("quantize mxfp8 64x1 bf16 dir=row", ends(64, 1, true)).find("only in"),
            std::string::npos);
  EXPECT_EQ(hint_after("quantize mxfp8 1x70 bf16 dir=row", ends(1, 70, false)).find("only in"),
            std::string::npos);
  has(hint_after("cast e4m3 8x32 bf16 fill=zeros", [](auto& g) { flip(g, "y", 1, 1, 0x80); }),
      "sign of zero");
  has(hint_after(mx,
                 [](auto& g) {
                   PlaneData& d = plane(g, "row.data");
                   set_code(d.plane.encoding, d.bytes, 7, 0x7F);
                 }),
      "NaN only on the judged side");
  // A rule that is one off in one binade writes one code there; the step says more of it than the code.
  has(hint_after(mx,
                 [](auto& g) {
                   auto& scales = plane(g, "row.scale_inv").bytes;
                   const auto often = [&](std::byte b) {
                     return std::count(scales.begin(), scales.end(), b);
                   };
                   std::byte one = scales[0];
                   for (const std::byte b : scales)
                     if (b != std::byte{0} && often(b) > often(one)) one = b;
                   ASSERT_GE(often(one), 8);
                   const auto less = static_cast<std::byte>(static_cast<uint8_t>(one) - 1);
                   std::replace(scales.begin(), scales.end(), one, less);
                 }),
      "one binade too small");
  // One element that came as the largest value is no pattern; a NaN in its place is.
  EXPECT_EQ(hint_after("cast e4m3 1x1 bf16 fill=zeros",
                       [](auto& g) { set_code(g[0].plane.encoding, g[0].bytes, 0, 0x7E); }),
            "");
  has(hint_after("cast e4m3 1x1 bf16 fill=zeros",
                 [](auto& g) { set_code(g[0].plane.encoding, g[0].bytes, 0, 0x7F); }),
      "NaN only");
}

// What one coincidence can make is no pattern.
TEST(Judge, HintsThatChanceCouldMakeAreNotGiven) {
  const char* line = "quantize mxfp8 64x70 bf16 dir=row";
  const auto says = [](const std::string& hint, const char* word) {
    return hint.find(word) != std::string::npos;
  };
  // One element in an end of the plane, or a few in an end that is a large part of it.
  EXPECT_FALSE(says(hint_after(line, [](auto& g) { flip(g, "row.data", 9, 68, 5); }), "only in"));
  const auto third = [](int count) {
    return [=](auto& g) {
      for (int k = 0; k < count; ++k) flip(g, "row.data", 3 * k, 64 + k, 5);
    };
  };
  EXPECT_FALSE(says(hint_after("quantize mxfp8 64x90 bf16 dir=row", third(3)), "only in"));
  EXPECT_TRUE(says(hint_after("quantize mxfp8 64x90 bf16 dir=row", third(4)), "only in the last 26 columns"));
  const auto last_row = [](int count) {
    return [=](auto& g) {
      for (int k = 0; k < count; ++k) flip(g, "row.data", 1, 3 * k, k % 2 == 0 ? 3 : 5);
    };
  };
  EXPECT_FALSE(says(hint_after("quantize mxfp8 2x64 bf16 dir=row", last_row(6)), "only in"));
  EXPECT_TRUE(says(hint_after("quantize mxfp8 2x64 bf16 dir=row", last_row(7)), "only in the last row"));
  // Zeros and one other code change their places.
  const auto exchanged = [](const std::vector<uint32_t>& codes) {
    return [=](auto& g) {
      PlaneData& d = plane(g, "row.data");
      for (size_t k = 0; k < codes.size(); ++k)
        set_code(d.plane.encoding, d.bytes, static_cast<int64_t>(k), codes[codes.size() - 1 - k]);
    };
  };
  EXPECT_FALSE(says(hint_after("quantize mxfp8 1x4 bf16 dir=row fill=literal:43e00000000043e0",
                               exchanged({0, 0x7E, 0x7E, 0})),
                    "another order"));
  EXPECT_TRUE(says(hint_after("quantize mxfp8 1x4 bf16 dir=row fill=literal:43e0438043400000",
                              exchanged({0x7E, 0x78, 0x74, 0})),
                   "another order"));
}

TEST(Judge, ScalesThatAreNoTilesHaveNoGemmOrder) {
  // 1 x 65,536 scales are as many as 128 tiles have, and a search for them in GEMM order would leave the
  // plane.
  const std::string hint = hint_after("quantize fp8_block 1x65536 bf16 dir=col", [](auto& g) {
    for (int64_t c = 0; c < 65536; c += 7) flip(g, "col.scale_inv", 0, c, static_cast<uint32_t>(c % 5 + 1));
  });
  EXPECT_EQ(hint.find("GEMM"), std::string::npos) << hint;
}

TEST(Judge, AFactorIsNamed) {
  const auto scaled = [](const std::vector<float>& by) {
    return [=](auto& g) {
      PlaneData& d = plane(g, "row.scale_inv");
      for (size_t k = 0; k < by.size(); ++k) {
        const auto i = static_cast<int64_t>(k);
        const float right = std::bit_cast<float>(code_at(d.plane, d.bytes, i));
        set_code(d.plane.encoding, d.bytes, i, std::bit_cast<uint32_t>(right * by[k]));
      }
    };
  };
  const char* tensor = "quantize fp8_current 8x8 bf16 dir=row";
  EXPECT_EQ(hint_after(tensor, scaled({0.5F})), "2^-1 times the right value: a factor, not rounding");
  EXPECT_EQ(hint_after(tensor, scaled({0.75F})), "");
  const char* blocks = "quantize fp8_block 12x128 bf16 dir=row block=1x128";
  const std::vector<float> twelve(12, 4.0F);
  EXPECT_EQ(hint_after(blocks, scaled(twelve)),
            "2^2 times the right value in all of them: a factor, not rounding");
  auto other = twelve;
  other.back() = 2;
  EXPECT_EQ(hint_after(blocks, scaled(other)), "");
  // Offsets are sums of sizes, and often powers of two.
  EXPECT_EQ(hint_after("split mxfp8 128x64 bf16 dir=row groups=32,32,32,32",
                       [](auto& g) { set_code(Encoding::u32, plane(g, "offsets").bytes, 2, 2048); }),
            "");
  // One value in all of them is no memory that was not written where one value was right too; zeros may be.
  const auto everywhere = [](uint8_t code) {
    return [=](auto& g) { std::fill(g[0].bytes.begin(), g[0].bytes.end(), std::byte{code}); };
  };
  const char* zeros = "cast e4m3 1x8 bf16 fill=zeros";
  const char* ones = "cast e4m3 1x8 bf16 fill=literal:3f803f803f803f803f803f803f803f80";
  EXPECT_EQ(hint_after(ones, everywhere(0x44)), "");
  for (const std::string& hint : {hint_after(ones, everywhere(0)), hint_after(zeros, everywhere(0x44))})
    EXPECT_NE(hint.find("not written"), std::string::npos) << hint;
}

double cpu_seconds_of(const std::function<void()>& work) {
  double least = 1e9;
  for (int run = 0; run < 3; ++run) {
    timespec from{}, to{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    work();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    least = std::min(least, static_cast<double>(to.tv_sec - from.tv_sec) +
                                1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec));
  }
  return least;
}

// A part of a dump that is wrong in every element takes little longer than a right one: what is looked for in
// the differences costs less than the reference does. (It had cost ten times as much.)
TEST(Judge, WhereEveryElementDiffersItTakesNoLongerThanTheReference) {
  const Problem p = fakes::problem("quantize fp8_delayed 2048x1024 bf16 dir=row scale=17");
  auto reference = make_reference_subject();
  const auto inputs = *make_inputs(p, *reference);
  std::vector<PlaneData> want;
  const double run = cpu_seconds_of([&] { want = execute(*reference, p, inputs, {}).planes; });
  auto got = want;
  for (std::byte& code : plane(got, "row.data").bytes) code ^= std::byte{1};
  Judgement j;
  const double judged = cpu_seconds_of([&] { j = judge(&p, got, want, true); });
  ASSERT_TRUE(j.cause);
  EXPECT_EQ(j.cause->differ, 2048 * 1024);
  EXPECT_EQ(j.hint, "one code apart: rounding or its order, not layout");
  EXPECT_LT(judged, 2 * run);
}

// Each entry of the offsets says something of the whole tensor; it is looked through once, not once for each.
TEST(Judge, WrongOffsetsOfManyMembersTakeLittleLongerThanOne) {
  const Problem p = fakes::problem("split mxfp8 32768x64 bf16 dir=row groups=" + [] {
    std::string sizes = "128";
    for (int m = 1; m < 256; ++m) sizes += ",128";
    return sizes;
  }());
  auto reference = make_reference_subject();
  const std::vector<PlaneData> want = execute(*reference, p, *make_inputs(p, *reference), {}).planes;
  const auto judged_with = [&](int64_t wrong) {
    auto got = want;
    for (const char* name : {"offsets", "row.scale_offsets"})
      for (int64_t i = 0; i < wrong; ++i)
        set_code(plane(got, name).plane.encoding, plane(got, name).bytes, i, 3);
    Judgement j;
    const double seconds = cpu_seconds_of([&] { j = judge(&p, got, want); });
    EXPECT_EQ(j.cause ? j.cause->differ : 0, wrong);
    EXPECT_EQ(j.after.size(), 1U);
    EXPECT_EQ(j.after.empty() ? 0 : j.after[0].explained, wrong);
    return seconds;
  };
  const double one = judged_with(1), all = judged_with(256);
  EXPECT_LT(all, 3 * one + 0.01);
}

TEST(Judge, HintsOfAProduct) {
  auto has = [](const std::string& hint, const char* word) {
    EXPECT_NE(hint.find(word), std::string::npos) << "'" << hint << "' lacks '" << word << "'";
  };
  const char* line = "gemm a=mxfp8 b=mxfp8 70x50x96 out=f32";  // d is 50x70
  const auto add = [](std::vector<PlaneData>& g, int64_t n, int64_t m, int64_t codes) {
    PlaneData& d = plane(g, "d");
    const int64_t i = index_of(d.plane, n, m);
    set_code(d.plane.encoding, d.bytes, i,
             static_cast<uint32_t>(code_at(d.plane.encoding, d.bytes, i) + codes));
  };
  has(hint_after(line,
                 [&](auto& g) {
                   for (int m : {0, 9, 64}) add(g, 7, m, 5000);
                 }),
      "only in row n = 7 of d: line 7 of b");
  has(hint_after(line,
                 [&](auto& g) {
                   for (int n : {0, 9, 40}) add(g, n, 7, 5000);
                 }),
      "only in column m = 7 of d: line 7 of a");
  has(hint_after(line,
                 [&](auto& g) {
                   for (int n : {16, 19, 31}) add(g, n, n, 5000);
                 }),
      "only in rows n = 16..31 of d");
  has(hint_after(line,
                 [&](auto& g) {
                   for (int n : {1, 19, 47}) add(g, n, 32 + n / 4, 5000);
                 }),
      "only in columns m = 32..47 of d");
  has(hint_after("gemm a=mxfp8 b=mxfp8 300x3x96 out=f32",
                 [&](auto& g) {
                   for (int n : {0, 1, 2}) add(g, n, 130 + 60 * n, 5000);
                 }),
      "only in columns m = 128..255 of d");
  const char* narrow = "gemm a=mxfp8 b=mxfp8 70x2x96 out=f32";  // d is 2x70
  has(hint_after(narrow,
                 [&](auto& g) {
                   for (int m : {0, 9, 64}) add(g, 0, m, 5000);
                 }),
      "only in row n = 0 of d");
  has(hint_after("gemm a=mxfp8 b=mxfp8 2x50x96 out=f32",
                 [&](auto& g) {
                   for (int n : {0, 9, 40}) add(g, n, 0, 5000);
                 }),
      "only in column m = 0 of d");
  has(hint_after(line,
                 [&](auto& g) {
                   for (int n = 0; n < 50; ++n)
                     for (int m = 0; m < 70; ++m) add(g, n, m, int64_t{1} << 23);
                 }),
      "about 2 times the right value");
  has(hint_after(line,
                 [&](auto& g) {
                   for (int n = 0; n < 50; ++n)
                     for (int m = 0; m < 70; ++m) add(g, n, m, -1 - m % 3);
                 }),
      "always toward zero");
  has(hint_after(line,
                 [&](auto& g) {
                   for (int n = 0; n < 50; ++n)
                     for (int m = 0; m < 70; ++m) add(g, n, m, m % 3 - 1);
                 }),
      "the sum's own roundings");
  EXPECT_EQ(hint_after(line,
                       [&](auto& g) {
                         for (int n = 0; n < 50; ++n)
                           for (int m = 0; m < 70; ++m) add(g, n, m, (n * 70 + m) % 11 * 600000);
                       }),
            "");
}

// The bytes are the same, and what they mean is not.
TEST(Judge, ScalesInAnotherLayoutCannotBeCompared) {
  const Problem p = fakes::problem("quantize mxfp8 128x128 bf16 dir=row");
  const auto want = outputs_of(p);
  auto got = want;
  plane(got, "row.scale_inv").plane.layout = ScaleLayout::gemm;
  EXPECT_EQ(judge(&p, got, want).error, "plane row.scale_inv has a different scale layout");
}

// Each column of x has a scale of its own (N3.12): that of column 5 explains what differs in column 5.
TEST(Judge, CountsWhatFollowsInColumnsThatAreStoredAsRows) {
  const Problem p = fakes::problem("quantize fp8_current 16x24 bf16 dir=col row_scaled=1");
  const auto want = outputs_of(p);
  auto got = want;
  flip(got, "col.scale", 5, 0);
  flip(got, "col.scale_inv", 5, 0);
  flip(got, "col.scale_inv", 6, 0);
  for (const int column : {5, 6}) flip(got, "col.data", column, 9);
  flip(got, "col.data", 5, 3);
  const Judgement j = judge(&p, got, want);
  ASSERT_TRUE(j.cause);
  EXPECT_EQ(j.cause->plane.name, "col.scale");
  ASSERT_EQ(j.after.size(), 2u);
  EXPECT_EQ(j.after[0].plane.name, "col.scale_inv");
  EXPECT_EQ(j.after[0].differ, 2);
  EXPECT_EQ(j.after[0].explained, 1);
  EXPECT_EQ(j.after[1].plane.name, "col.data");
  EXPECT_EQ(j.after[1].differ, 3);
  EXPECT_EQ(j.after[1].explained, 2);
}

// N14.2: a member is its own line, whether it stands before or behind the one where the first difference is.
TEST(Judge, WhatDiffersInAnotherMemberHasACauseOfItsOwn) {
  const Problem p = fakes::problem("split mxfp8 96x32 bf16 groups=32,32,32 dir=row");
  const auto want = outputs_of(p);
  auto got = want;
  const Plane &scales = plane(got, "row.scale_inv").plane, &data = plane(got, "row.data").plane;
  plane(got, "row.scale_inv").bytes[static_cast<size_t>(scales.members[1].offset)] ^= std::byte{1};
  for (const Member& member : data.members)
    plane(got, "row.data").bytes[static_cast<size_t>(member.offset)] ^= std::byte{1};
  const Judgement j = judge(&p, got, want);
  ASSERT_TRUE(j.cause);
  EXPECT_EQ(j.cause->plane.name, "row.scale_inv[1]");
  ASSERT_EQ(j.after.size(), 1u);
  EXPECT_EQ(j.after[0].plane.name, "row.data[1]");
  EXPECT_EQ(j.after[0].explained, 1);
  ASSERT_EQ(j.beside.size(), 2u);
  EXPECT_EQ(j.beside[0].plane.name, "row.data[0]");
  EXPECT_EQ(j.beside[1].plane.name, "row.data[2]");
}

// Its gradients have the keys' rows, of which Q may have none.
TEST(Judge, PlanesOfAnAttentionMayBeLargerThanItsQuery) {
  const Problem p = fakes::problem(
      "attention fp8_delayed/fp8_current 0x8 f16 batch=2 layout=thd lengths=0,0 kv_lengths=8,8 backward=1");
  const std::vector<PlaneData> want = outputs_of(p);
  std::vector<PlaneData> got = want;
  for (PlaneData& plane : got)
    for (std::byte& b : plane.bytes) b ^= std::byte{1};
  const Judgement j = judge(&p, got, want);
  ASSERT_TRUE(j.cause);
  EXPECT_TRUE(std::any_of(j.after.begin(), j.after.end(),
                          [](const PlaneDifference& d) { return d.plane.name == "dqkv.data"; }));
}

}  // namespace
}  // namespace assay

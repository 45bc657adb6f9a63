// Causes of a split: offsets and values of its members. What came is made by loops of this file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/library/group_offsets.h"
#include "compare/diagnosis/report/text.h"
#include "compare/process/plain_run.h"
#include "tests/compare/diagnosis/named.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using named::called, named::diagnosed, named::expect_named, named::Planes;
using std::string;

void put_offset(PlaneData& plane, size_t i, size_t v) {
  const auto word = static_cast<uint32_t>(v);
  std::memcpy(plane.bytes.data() + 4 * i, &word, 4);
}

// Rows of 128 scales and more that a member of so many rows takes room for.
using Room = size_t (*)(size_t rows);

TEST(SplitCauses, OffsetsOfScalesAreNamed) {
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

TEST(SplitCauses, EveryOffsetCauseIsTried) {
  std::set<string> names;
  for (const OffsetCause& cause : offset_causes(*parse_line("split mxfp8 320x128 bf16 groups=100,130,90")))
    if (cause.shown) names.insert(cause.id);
  EXPECT_EQ(names,
            (std::set<string>{"split.scale_offsets=tiles_floored", "split.scale_offsets=without_padding",
                              "split.scale_offsets=as_the_first", "split.scale_offsets=none"}));
}

// Two causes that make the same bytes are both told.
TEST(SplitCauses, OffsetsThatAreTheSameAreEquivalent) {
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

// Where a line has no offsets of scales, offsets of the elements alone are no cause of their own.
TEST(SplitCauses, OffsetsOfElementsAreAllThatATensorwideScaleHas) {
  for (const auto& [format, cause] :
       {std::pair("fp8_current", "split.offsets=zero"), std::pair("mxfp8", "split.offsets=zero,elements")}) {
    const planes::Case c(string("split ") + format + " 96x64 bf16 groups=32,32,32 dir=row");
    Planes got = c.want;
    for (size_t i = 0; i < 4; ++i) put_offset(called(got, "offsets"), i, 0);
    const Diagnosis d = diagnosed(c, got);
    EXPECT_EQ(d.confidence, Confidence::certain) << diagnosis_screen(d);
    ASSERT_EQ(d.explanations.size(), 1U);
    EXPECT_EQ(d.explanations[0].ids.front(), cause);
  }
}

// Offsets explain no scales of the other direction, and no offsets of the data.
TEST(SplitCauses, OffsetsExplainNothingElse) {
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

// A member whose scales are wrong is not explained by where they stand.
TEST(SplitCauses, AWrongScaleIsNoOffset) {
  planes::Case c("split mxfp8 320x128 bf16 groups=100,130,90 dir=row");
  c["row.scale_inv"].bytes[7] ^= std::byte{1};
  for (const Explanation& e : diagnosed(c, c.got).explanations)
    EXPECT_FALSE(e.exact() && e.ids.front().starts_with("split.scale_offsets")) << e.ids.front();
}

TEST(SplitCauses, TheAmaxOfAGroupIsNamed) {
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

TEST(SplitCauses, AGivenValueOfTheFirstMemberIsNamed) {
  const planes::Case c("split fp8_delayed 64x64 bf16 dir=row groups=16,0,32,16 scale=4");
  Planes read = c.inputs;
  std::vector<std::byte>& given = called(read, "row.given.scale").bytes;
  for (size_t m = 1; m < given.size() / 4; ++m) std::memcpy(given.data() + 4 * m, given.data(), 4);
  const auto got = plain_run(*make_reference_subject(), c.problem, read);
  ASSERT_TRUE(got);
  expect_named("split.given_of=first", c, *got);
}

TEST(SplitCauses, MembersThatAreReadAsSlicesAreNamed) {
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

TEST(SplitCauses, MembersThatAreStoredAsOneMatrixAreNamed) {
  // Columns: 24 lines of all 20 rows. Rows: 8 lines of all 24 columns.
  const planes::Case stacked("split fp8_current 20x24 bf16 groups=4,0,16"),
      beside("split fp8_current 8x24 bf16 dir=row vary=last groups=4,12,8");
  Planes got = stacked.want;
  std::vector<std::byte>& columns = called(got, "col.data").bytes;
  const std::vector<std::byte> right = columns;
  for (size_t line = 0; line < 24; ++line) {
    std::copy_n(right.begin() + static_cast<std::ptrdiff_t>(line * 4), 4,
                columns.begin() + static_cast<std::ptrdiff_t>(line * 20));
    std::copy_n(right.begin() + static_cast<std::ptrdiff_t>(24 * 4 + line * 16), 16,
                columns.begin() + static_cast<std::ptrdiff_t>(line * 20 + 4));
  }
  expect_named("split.as_one_matrix=col", stacked, got);
  got = beside.want;
  std::vector<std::byte>& rows = called(got, "row.data").bytes;
  const std::vector<std::byte> apart = rows;
  const size_t widths[] = {4, 12, 8}, firsts[] = {0, 4, 16};
  for (size_t m = 0, from = 0; m < 3; ++m)
    for (size_t line = 0; line < 8; ++line, from += widths[m])
      std::copy_n(apart.begin() + static_cast<std::ptrdiff_t>(from), widths[m],
                  rows.begin() + static_cast<std::ptrdiff_t>(line * 24 + firsts[m]));
  expect_named("split.as_one_matrix=row", beside, got);
}

// Columns of E8M0 scales: of each 32 rows from where a member begins the code is that of 448 times a power of
// two that covers the largest element, rows of the next member among them.
TEST(SplitCauses, ALastBlockThatReadsOnIsNamed) {
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

// ---- values that are given for other members -------------------------------------------------------------

struct Given {
  const char* id;
  int of[6];
};
// Of six members, of which those between the first, the third and the last are empty.
constexpr Given kGivens[] = {
    {"first", {0, 0, 0, 0, 0, 0}}, {"previous", {0, 0, 1, 2, 3, 4}}, {"next", {1, 2, 3, 4, 5, 5}},
    {"last", {5, 5, 5, 5, 5, 5}},  {"empty", {0, 1, 1, 3, 3, 3}},
};

TEST(SplitCauses, ValuesGivenForOtherMembersAreNamed) {
  for (const char* line : {"split fp8_delayed 64x33 bf16 groups=16,0,32,0,0,16 scale=3",
                           "split nvfp4 32x32 bf16 dir=row groups=8,0,16,0,0,8 amax=3"}) {
    const planes::Case c(line);
    for (const Given& given : kGivens) {
      Planes read = c.inputs;
      for (PlaneData& plane : read)
        if (plane.plane.name.find(".given.") != string::npos)
          for (size_t m = 0; m < 6; ++m)
            std::memcpy(plane.bytes.data() + 4 * m,
                        find_plane(c.inputs, plane.plane.name)->bytes.data() + 4 * given.of[m], 4);
      const auto got = plain_run(*make_reference_subject(), c.problem, read);
      ASSERT_TRUE(got);
      expect_named(string("split.given_of=") + given.id, c, *got);
      Planes elements = c.want;
      for (const char* name : {"row.data", "col.data"})
        if (const PlaneData* data = find_plane(*got, name)) called(elements, name).bytes = data->bytes;
      expect_named(string("split.given_of=") + given.id + ",elements", c, elements);
    }
  }
}

// Twice the scale of the first member is no other member's, nor do the members that are right speak against
// it.
TEST(SplitCauses, OneMemberUnderTwiceTheRightScaleIsNamed) {
  const planes::Case c("split fp8_delayed 64x33 bf16 groups=16,16,16,16 scale=3");
  Planes read = c.inputs;
  for (const char* name : {"row.given.scale", "col.given.scale"}) {
    float scale;
    std::memcpy(&scale, called(read, name).bytes.data(), 4);
    scale *= 2;
    std::memcpy(called(read, name).bytes.data(), &scale, 4);
  }
  const auto twice = plain_run(*make_reference_subject(), c.problem, read);
  ASSERT_TRUE(twice);
  Planes got = c.want;
  for (const char* name : {"row.data", "col.data"}) called(got, name).bytes = find_plane(*twice, name)->bytes;
  const Diagnosis d = diagnosed(c, got);
  EXPECT_TRUE(std::ranges::any_of(d.explanations, [](const Explanation& e) {
    return e.exact() && e.ids == std::vector<string>{"scaled.doubled"};
  })) << diagnosis_screen(d);
  EXPECT_TRUE(std::ranges::none_of(d.explanations, [](const Explanation& e) {
    return e.ids.front().starts_with("split.");
  })) << diagnosis_screen(d);
}

// ---- sums of members' sizes ------------------------------------------------------------------------------

// The n + 1 sums of n sizes, as a kernel makes them that is wrong in one way.
using Sums = std::vector<uint32_t>;
struct WrongSums {
  const char* id;
  Sums (*of)(const Sums& sizes);
};
Sums inclusive(const Sums& sizes) {
  Sums out;
  for (uint32_t sum = 0; const uint32_t size : sizes) out.push_back(sum += size);
  out.push_back(out.back());
  return out;
}
Sums exclusive(const Sums& sizes) {
  Sums out = {0};
  for (const uint32_t size : sizes) out.push_back(out.back() + size);
  return out;
}
Sums as_sizes(const Sums& sizes) {
  Sums out = sizes;
  out.push_back(exclusive(sizes).back());
  return out;
}
Sums without_total(const Sums& sizes) {
  Sums out = exclusive(sizes);
  out.back() = 0;
  return out;
}
Sums zeros(const Sums& sizes) { return Sums(sizes.size() + 1, 0); }
// Of so many members at once; each entry is the sum before its member. The last entry is the sum of the
// members that were added last, or of all.
template <size_t lanes, bool total> Sums without_carry(const Sums& sizes) {
  Sums out;
  uint32_t sum = 0, all = 0;
  for (size_t m = 0; m < sizes.size(); ++m) {
    if (m % lanes == 0) sum = 0;
    out.push_back(sum);
    sum += sizes[m], all += sizes[m];
  }
  out.push_back(total ? all : sum);
  return out;
}

constexpr WrongSums kSums[] = {
    {"inclusive", inclusive},
    {"sizes", as_sizes},
    {"total_missing", without_total},
    {"zero", zeros},
    {"carry_lost=16", without_carry<16, true>},
    {"carry_lost=16,total", without_carry<16, false>},
    {"carry_lost=32", without_carry<32, true>},
    {"carry_lost=32,total", without_carry<32, false>},
};
constexpr WrongSums kOfMany[] = {
    {"carry_lost=64", without_carry<64, true>},
    {"carry_lost=64,total", without_carry<64, false>},
    {"carry_lost=128,total", without_carry<128, false>},
};
constexpr WrongSums kOfVeryMany[] = {
    {"carry_lost=256", without_carry<256, true>},
    {"carry_lost=512,total", without_carry<512, false>},
    {"carry_lost=1024", without_carry<1024, true>},
};

void put_sums(PlaneData& plane, Sums (*wrong)(const Sums&)) {
  Sums right(plane.bytes.size() / 4), sizes;
  std::memcpy(right.data(), plane.bytes.data(), plane.bytes.size());
  for (size_t m = 0; m + 1 < right.size(); ++m) sizes.push_back(right[m + 1] - right[m]);
  ASSERT_EQ(exclusive(sizes), right);
  const Sums sums = wrong(sizes);
  std::memcpy(plane.bytes.data(), sums.data(), plane.bytes.size());
}

// Whichever planes hold the sums: all, those of scales of all directions, or that of elements.
template <size_t n> void expect_sums_named(const planes::Case& c, const WrongSums (&rows)[n]) {
  for (const WrongSums& row : rows)
    for (const char* which : {"", ",scales", ",elements"}) {
      Planes got = c.want;
      for (PlaneData& plane : got) {
        const bool of_scales = plane.plane.name.ends_with(".scale_offsets");
        if (of_scales ? string(which) != ",elements"
                      : plane.plane.name == "offsets" && string(which) != ",scales")
          put_sums(plane, row.of);
      }
      expect_named(string("split.offsets=") + row.id + which, c, got);
    }
}

string of_members(size_t members, const char* dir) {
  string groups, line = "split mxfp8 " + std::to_string(members) + "x32 bf16 groups=";
  for (size_t m = 0; m < members; ++m) groups += m ? ",1" : "1";
  return line + groups + dir;
}

TEST(SplitCauses, SumsOfSizesAreNamed) {
  expect_sums_named(
      planes::Case("split mxfp8 148x32 bf16 "
                   "groups=5,4,3,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4"),
      kSums);
}

TEST(SplitCauses, SumsOfManySizesAreNamed) {
  expect_sums_named(planes::Case(of_members(130, " dir=row")), kOfMany);
  expect_sums_named(planes::Case(of_members(1030, " dir=row")), kOfVeryMany);
}

}  // namespace
}  // namespace assay

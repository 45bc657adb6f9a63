#include "compare/diagnosis/patterns/coordinates.h"
#include "compare/diagnosis/patterns/fingerprints.h"
#include "compare/diagnosis/patterns/summaries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compare/arithmetic/expected_values.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using planes::Case;
using std::string;

constexpr const char* kMx = "quantize mxfp8 256x256 bf16 dir=row";

std::vector<string> ids(Case& c, const string& plane) {
  std::vector<string> out;
  for (const Fingerprint& f : fingerprints(c.problem, c[plane], c.wanted(plane), c.inputs, c.got)) {
    EXPECT_FALSE(f.text.empty());
    out.push_back(f.id);
  }
  return out;
}
bool has(const std::vector<string>& all, const string& id) {
  return std::find(all.begin(), all.end(), id) != all.end();
}
std::vector<string> where(Case& c, const string& plane) {
  std::vector<string> out;
  for (const Coordinate& k : coordinates(c.problem, c[plane], c.wanted(plane))) out.push_back(k.what);
  return out;
}
uint32_t hashed(int64_t r, int64_t c) {
  return static_cast<uint32_t>(
      (static_cast<uint64_t>(r) * 1000003 + static_cast<uint64_t>(c)) * 0x9E3779B97F4A7C15u >> 40);
}
// A neighbour toward zero, or nothing of a zero.
uint32_t toward_zero(uint32_t code, uint32_t mask) { return (code & mask) ? code - 1 : code; }

TEST(Patterns, NothingDiffers) {
  Case c(kMx);
  const PlaneSummary s = summarize(c.problem, c["row.data"], c.wanted("row.data"), c.inputs, c.got);
  EXPECT_EQ(s.differ, 0);
  EXPECT_EQ(s.of, 256 * 256);
  EXPECT_TRUE(s.code_distance.empty());
  EXPECT_TRUE(ids(c, "row.data").empty());
  EXPECT_TRUE(where(c, "row.data").empty());
}

TEST(Patterns, SummaryCountsDistancesBinadesAndTies) {
  Case c("quantize mxfp8 64x96 bf16 dir=row fill=ties");
  int64_t ties = 0;
  {
    const ScaledValues scaled(c.problem, Direction::row, c.inputs, c.want);
    c.spoil("row.data", [&](int64_t r, int64_t k, uint32_t w) {
      const double v = std::fabs(scaled.at(r, k)->value), step = step_at(Encoding::e4m3, v);
      if (v >= 448 || std::fmod(v, step) != step / 2) return w;
      ++ties;
      return (w & 0x7F) == 0x7E ? w - 1 : w ^ 1;  // whatever it is: another code, and no NaN
    });
  }
  ASSERT_GT(ties, 100);
  const PlaneSummary s = summarize(c.problem, c["row.data"], c.wanted("row.data"), c.inputs, c.got);
  EXPECT_EQ(s.plane, "row.data");
  EXPECT_EQ(s.encoding, "e4m3");
  EXPECT_EQ(s.differ, ties);
  EXPECT_EQ(s.of, 64 * 96);
  ASSERT_EQ(s.code_distance.size(), 1u);
  EXPECT_EQ(s.code_distance[0], (std::pair<string, int64_t>("1", ties)));
  int64_t binades = 0, all = 0;
  for (const auto& [name, count] : s.exponent) binades += count;
  EXPECT_EQ(binades, ties);
  EXPECT_LE(s.exponent.size(), 12u);
  EXPECT_LE(s.tie_distance.size(), 12u);
  for (const auto& b : s.tie_distance) {
    EXPECT_EQ(b.differ, b.name == "a tie" ? ties : 0) << b.name;
    EXPECT_TRUE(b.name != "a tie" || b.of == ties);
    all += b.of;
  }
  EXPECT_EQ(all, s.of);
}

TEST(Patterns, SummaryOfScalesAndNaN) {
  Case c(kMx);
  c.spoil("row.scale_inv", [](int64_t r, int64_t, uint32_t w) { return r < 8 ? w - 5 : r < 10 ? 0xFF : w; });
  const PlaneSummary s = summarize(c.problem, c["row.scale_inv"], c.wanted("row.scale_inv"), c.inputs, c.got);
  EXPECT_EQ(s.code_distance, (std::vector<std::pair<string, int64_t>>{{"4..7", 64}, {"NaN", 16}}));
  EXPECT_TRUE(s.tie_distance.empty());
}

TEST(Patterns, HeatMapHasAtMost64Tiles) {
  Case c("quantize mxfp8 300x4128 bf16 dir=both");
  c.spoil("col.data", [](int64_t r, int64_t k, uint32_t w) { return r == 299 && k == 4127 ? w ^ 1 : w; });
  HeatMap m = heat_map(c.problem, c["col.data"], c.wanted("col.data"));
  EXPECT_EQ(m.tile_rows, 8);
  EXPECT_EQ(m.tile_cols, 128);
  EXPECT_EQ(m.rows, 38);
  EXPECT_EQ(m.cols, 33);
  EXPECT_EQ(m.differ.back(), 1);
  EXPECT_EQ(m.of.back(), 4 * 32);
  int64_t all = 0;
  for (int64_t n : m.of) all += n;
  EXPECT_EQ(all, 300 * 4128);
  c.spoil("col.scale_inv",
          [](int64_t r, int64_t k, uint32_t w) { return r == 2 && k == 130 ? w + 1 : w; });  // of rows 64..95
  m = heat_map(c.problem, c["col.scale_inv"], c.wanted("col.scale_inv"));
  EXPECT_EQ(m.differ[static_cast<size_t>(64 / 8 * 33 + 1)], 1);
  // Columns that are stored transposed stand where the tensor has them.
  Case t("quantize nvfp4 64x128 bf16 dir=both");
  t.spoil("col.data", [](int64_t r, int64_t k, uint32_t w) { return r == 100 && k == 3 ? w ^ 1 : w; });
  m = heat_map(t.problem, t["col.data"], t.wanted("col.data"));
  EXPECT_EQ(m.differ[static_cast<size_t>(3 / m.tile_rows * m.cols + 100 / m.tile_cols)], 1);
}

struct Place2 {
  const char* what;
  bool (*bad)(int64_t r, int64_t c);
};
TEST(Patterns, CoordinatesFindWhereItIs) {
  const Place2 table[] = {
      {"column % 32 == 31 (the last of each block)", [](int64_t, int64_t c) { return c % 32 == 31; }},
      {"column % 32 in 16..31 (the second half of each block)",
       [](int64_t r, int64_t c) { return c % 32 >= 16 && hashed(r, c) % 3 == 0; }},
      {"row % 2 == 1", [](int64_t r, int64_t) { return r % 2 == 1; }},
      {"row >= 128", [](int64_t r, int64_t c) { return r >= 128 && hashed(r, c) % 2 == 0; }},
      {"row in 64..95", [](int64_t r, int64_t) { return r / 32 == 2; }},
      {"the last row", [](int64_t r, int64_t) { return r == 255; }},
      {"row in 128..191 and column < 64", [](int64_t r, int64_t c) { return r / 64 == 2 && c < 64; }},
      {"column / 8 % 32 == 5 (lanes of 8 elements)",
       [](int64_t r, int64_t c) { return c / 8 % 32 == 5 && hashed(r, c) % 4 != 0; }},
      {"row % 32 in 16..31", [](int64_t r, int64_t c) { return r / 16 % 2 == 1 && hashed(r, c) % 2; }},
  };
  for (const Place2& row : table) {
    Case c("quantize mxfp8 256x512 bf16 dir=row");
    c.spoil("row.data", [&](int64_t r, int64_t k, uint32_t w) { return row.bad(r, k) ? w ^ 1 : w; });
    const auto found = where(c, "row.data");
    ASSERT_FALSE(found.empty()) << row.what;
    EXPECT_EQ(found[0], row.what);
    EXPECT_LE(found.size(), 2u) << row.what << " and " << found[1];  // the same in other words is left out
  }
}

TEST(Patterns, CoordinatesKnowThePartialBlock) {
  Case c("quantize mxfp8 128x200 bf16 dir=row");
  c.spoil("row.data", [&](int64_t, int64_t k, uint32_t w) { return k >= 192 ? w ^ 1 : w; });
  EXPECT_EQ(where(c, "row.data").at(0), "the partial last block (columns 192..199)");
}

TEST(Patterns, CoordinatesAreSilentWithoutAPattern) {
  for (const uint32_t rate : {2u, 7u, 100u, 1000u}) {
    Case c(kMx);
    c.spoil("row.data",
            [&](int64_t r, int64_t k, uint32_t w) { return hashed(r, k) % rate == 0 ? w ^ 1 : w; });
    EXPECT_TRUE(where(c, "row.data").empty()) << rate << ": " << where(c, "row.data").front();
  }
  // A handful of whole blocks is no pattern either, though it is hundreds of elements.
  Case c(kMx);
  c.spoil("row.data",
          [&](int64_t r, int64_t k, uint32_t w) { return hashed(r, k / 32) % 200 == 0 ? w ^ 1 : w; });
  const auto found = where(c, "row.data");
  EXPECT_TRUE(found.empty()) << found.front();
}

// What lies in one small place is said, however few they are.
TEST(Patterns, CoordinatesOfASmallPlace) {
  Case row("quantize mxfp8 64x128 bf16 dir=row"), tile("quantize mxfp8 256x512 bf16 dir=row"),
      one("quantize mxfp8 64x128 bf16 dir=row");
  row.spoil("row.data", [&](int64_t r, int64_t k, uint32_t w) { return r == 33 && k % 32 != 5 ? w ^ 1 : w; });
  EXPECT_EQ(where(row, "row.data").at(0), "all in row 33, columns 0..127");
  tile.spoil("row.data",
             [&](int64_t r, int64_t k, uint32_t w) { return r == 40 && k / 32 == 3 ? w ^ 1 : w; });
  EXPECT_EQ(where(tile, "row.data").at(0), "all in row 40, columns 96..127");
  one.spoil("row.scale_inv", [&](int64_t r, int64_t k, uint32_t w) { return r == 7 && k == 2 ? w + 1 : w; });
  EXPECT_EQ(where(one, "row.scale_inv").at(0), "all in row 7, columns 64..95");
}

TEST(Patterns, CoordinatesOfScalesAndMembers) {
  Case c("quantize mxfp8 256x1024 bf16 dir=row");
  c.spoil("row.scale_inv", [&](int64_t, int64_t k, uint32_t w) { return k % 4 == 3 ? w + 1 : w; });
  EXPECT_EQ(where(c, "row.scale_inv").at(0), "column / 32 % 4 == 3");
  Case b("quantize fp8_block 2048x2048 bf16 dir=row fill=zeros");
  b.spoil("row.scale_inv", [&](int64_t i, int64_t, uint32_t w) { return i >= 8 ? w + 1 : w; });
  EXPECT_EQ(where(b, "row.scale_inv").at(0), "column >= 1024");
  Case s("split mxfp8 192x128 bf16 groups=64,64,64");
  s.spoil("row.data", [&](int64_t, int64_t k, uint32_t w) {
    return k >= 64 * 128 && k < 128 * 128 && hashed(0, k) % 2 ? w ^ 1 : w;
  });
  EXPECT_EQ(where(s, "row.data").at(0), "member 1");
}

TEST(Patterns, FingerprintsOfOrder) {
  Case c(kMx);
  c.spoil("row.data", [&](int64_t r, int64_t k, uint32_t) { return c.code("row.data", r, 255 - k); });
  EXPECT_TRUE(has(ids(c, "row.data"), "multiset"));
  EXPECT_TRUE(has(ids(c, "row.data"), "multiset_rows"));
  EXPECT_FALSE(has(ids(c, "row.data"), "multiset_columns"));
  c.spoil("row.data", [&](int64_t r, int64_t k, uint32_t) { return c.code("row.data", r ^ 1, k); });
  EXPECT_TRUE(has(ids(c, "row.data"), "multiset_columns"));
  c.spoil("row.data", [&](int64_t r, int64_t k, uint32_t w) {
    return r == 7 && k == 9 ? w ^ 1 : c.code("row.data", r ^ 1, k);
  });
  EXPECT_FALSE(has(ids(c, "row.data"), "multiset"));
}

TEST(Patterns, FingerprintsOfCodes) {
  struct Row {
    const char* id;
    uint32_t (*spoil)(int64_t r, int64_t c, uint32_t w);
  };
  const Row table[] = {
      {"smaller", [](int64_t, int64_t, uint32_t w) { return toward_zero(w, 0x7F); }},
      {"neighbours", [](int64_t, int64_t, uint32_t w) { return toward_zero(w, 0x7F); }},
      {"larger", [](int64_t r, int64_t c,
                    uint32_t w) { return hashed(r, c) % 5 == 0 && (w & 0x7F) < 0x70 ? w + 8 : w; }},
      {"nan_got", [](int64_t r, int64_t c, uint32_t w) { return hashed(r, c) % 50 == 0 ? 0x7F : w; }},
      {"zero_got", [](int64_t r, int64_t, uint32_t w) { return r % 2 ? 0 : w; }},
      {"sign", [](int64_t, int64_t, uint32_t w) { return w & 0x7F; }},
      {"bit", [](int64_t, int64_t, uint32_t w) { return w ^ 4; }},
      {"constant", [](int64_t r, int64_t, uint32_t w) { return r > 30 ? 0x3Au : w; }},
      {"maximum", [](int64_t, int64_t, uint32_t w) { return (w & 0x7F) == 0x7E ? w - 1 : w; }},
  };
  for (const Row& row : table) {
    Case c("quantize mxfp8 256x256 f32 dir=row fill=outliers");
    if (string(row.id) == "maximum") c = Case("quantize mxfp8 256x256 bf16 dir=row fill=edges");
    c.spoil("row.data", row.spoil);
    EXPECT_TRUE(has(ids(c, "row.data"), row.id)) << row.id;
  }
  // The sign alone is neither smaller nor larger, and one element that does not fit ends it.
  Case c(kMx);
  c.spoil("row.data", [](int64_t, int64_t, uint32_t w) { return w ^ 0x80; });
  EXPECT_FALSE(has(ids(c, "row.data"), "smaller"));
  EXPECT_FALSE(has(ids(c, "row.data"), "larger"));
  c.spoil("row.data",
          [](int64_t r, int64_t k, uint32_t w) { return r == 200 && k == 3 ? w + 1 : toward_zero(w, 0x7F); });
  EXPECT_FALSE(has(ids(c, "row.data"), "smaller"));
}

TEST(Patterns, FingerprintsOfScales) {
  Case c(kMx);
  c.spoil("row.scale_inv", [](int64_t r, int64_t, uint32_t w) { return r % 3 ? w : w - 1; });
  EXPECT_TRUE(has(ids(c, "row.scale_inv"), "scale_down"));
  EXPECT_FALSE(has(ids(c, "row.scale_inv"), "scale_up"));
  // A rule that is one off in one binade writes one code wherever it is wrong: that is no constant.
  int wrong = 0;
  c.spoil("row.scale_inv", [&](int64_t, int64_t, uint32_t w) { return w == 0x78 ? ++wrong, w - 1 : w; });
  ASSERT_GT(wrong, 100);
  EXPECT_TRUE(has(ids(c, "row.scale_inv"), "scale_down"));
  EXPECT_FALSE(has(ids(c, "row.scale_inv"), "constant"));
  Case b("quantize fp8_block 256x256 bf16 dir=row");
  b.spoil("row.scale_inv", [](int64_t, int64_t, uint32_t w) { return w + (1u << 23); });
  const auto all = fingerprints(b.problem, b["row.scale_inv"], b.wanted("row.scale_inv"), b.inputs, b.got);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Fingerprint& f) {
    return f.id == "scale_factor" && f.text.starts_with("2 times");
  }));
}

// Codes rounded otherwise from the right scaled values: which values they come from tells how.
TEST(Patterns, FingerprintsOfRounding) {
  for (const string line :
       {"quantize mxfp4 256x256 bf16 dir=row", "quantize nvfp4 256x256 bf16 dir=row",
        "quantize nvfp4 256x256 bf16 dir=col", "quantize fp8_current 256x256 bf16 dir=row"}) {
    Case c(line);
    const Direction d = c.problem.row ? Direction::row : Direction::col;
    const string data = plane_name(d, "data");
    const Encoding e = c[data].plane.encoding;
    const uint32_t mask = (1u << (info(e).bits - 1)) - 1;
    const ScaledValues scaled(c.problem, d, c.inputs, c.want);
    auto rounded = [&](auto up) {
      return [&, up](int64_t r, int64_t k, uint32_t w) {
        const double v = std::fabs(scaled.at(r, k)->value), step = step_at(e, v),
                     low = std::floor(v / step) * step;
        uint32_t m = w & mask;
        if (v >= value_of(e, info(e).max_finite)) return w;
        while (value_of(e, m) > low) --m;
        return (w & ~mask) | (m + (v > low && up(r, k, (v - low) / step)));
      };
    };
    c.spoil(data, rounded([](int64_t r, int64_t k, double f) { return hashed(r, k) % 1024 < f * 1024; }));
    EXPECT_TRUE(has(ids(c, data), "adjacent")) << line;
    EXPECT_FALSE(has(ids(c, data), "ties")) << line;
    c.spoil(data, [&](int64_t r, int64_t k, uint32_t) {
      const PlaneData& p = c[data];
      return code_at(p.plane, p.bytes, index_of(p.plane, r, k)) ^
             ((r + k) % 5 ? 0 : mask + 1);  // and some signs
    });
    EXPECT_FALSE(has(ids(c, data), "adjacent")) << line;
    c.spoil(data, rounded([](int64_t, int64_t, double) { return false; }));
    EXPECT_TRUE(has(ids(c, data), "smaller")) << line;
    EXPECT_FALSE(has(ids(c, data), "adjacent")) << line;
    c.spoil(data, [&](int64_t r, int64_t k, uint32_t w) {
      const double v = std::fabs(scaled.at(r, k)->value), step = step_at(e, v), f = std::fmod(v, step) / step;
      return f == 0.5 && v < value_of(e, info(e).max_finite) ? w ^ 1 : w;
    });
    EXPECT_TRUE(ids(c, data).empty() || has(ids(c, data), "ties")) << line;
    c.spoil(data,
            [&](int64_t r, int64_t k, uint32_t w) { return hashed(r, k) % 9 || !(w & mask) ? w : w ^ mask; });
    EXPECT_FALSE(has(ids(c, data), "adjacent")) << line;
    EXPECT_FALSE(has(ids(c, data), "ties")) << line;
  }
}

// Blocks whose largest element is left out of the amax: the index tells the loop that ends too early.
TEST(Patterns, FingerprintsOfAmax) {
  auto missed = [](const char* line, auto left_out) {
    Case c(line);
    const string scale = "row.scale_inv";
    c.spoil(scale, [&](int64_t r, int64_t b, uint32_t w) {
      const PlaneData& x = c.inputs[0];
      double most = 0, seen = 0;
      for (int64_t k = 0; k < 32; ++k) {
        const double v =
            value_of(x.plane.encoding, code_at(x.plane, x.bytes, index_of(x.plane, r, b * 32 + k)));
        most = std::max(most, std::fabs(v));
        if (!left_out(k, v)) seen = std::max(seen, std::fabs(v));
      }
      return seen < most / 2 ? w - 1 : w;
    });
    return ids(c, scale);
  };
  EXPECT_TRUE(
      has(missed("quantize mxfp8 512x512 bf16 dir=row fill=wide", [](int64_t k, double) { return k == 31; }),
          "amax_index"));
  EXPECT_FALSE(
      has(missed("quantize mxfp8 512x512 bf16 dir=row fill=wide", [](int64_t k, double) { return k == 31; }),
          "amax_negative"));
  EXPECT_TRUE(
      has(missed("quantize mxfp8 512x512 bf16 dir=row fill=wide", [](int64_t k, double) { return k >= 24; }),
          "amax_last_quarter"));
  EXPECT_TRUE(
      has(missed("quantize mxfp8 512x512 bf16 dir=row fill=wide", [](int64_t k, double) { return k >= 16; }),
          "amax_second_half"));
  EXPECT_TRUE(
      has(missed("quantize mxfp8 512x512 bf16 dir=row fill=wide", [](int64_t k, double) { return k < 16; }),
          "amax_first_half"));
  EXPECT_TRUE(
      has(missed("quantize mxfp8 512x512 bf16 dir=row fill=wide", [](int64_t, double v) { return v < 0; }),
          "amax_negative"));
}

// Padding, missing planes and empty tensors are nobody's pattern.
TEST(Patterns, DoNotNeedEverything) {
  Case c("quantize nvfp4 33x70 bf16 dir=row scales=gemm");
  c.spoil("row.data", [](int64_t, int64_t k, uint32_t w) { return k == 69 ? w ^ 1 : w; });
  const PlaneSummary s = summarize(c.problem, c["row.data"], c.wanted("row.data"), {}, {});
  EXPECT_EQ(s.differ, 33);
  EXPECT_TRUE(s.tie_distance.empty());
  EXPECT_FALSE(fingerprints(c.problem, c["row.data"], c.wanted("row.data"), {}, {}).empty());
  PlaneData padded = c.wanted("row.scale_gemm");
  set_code(padded.plane, padded.bytes, index_of(padded.plane, 127, 3), 0x7F);
  EXPECT_EQ(summarize(c.problem, padded, c.wanted("row.scale_gemm"), c.inputs, c.got).differ, 0);
  Case empty("quantize mxfp8 0x32 bf16 dir=row");
  EXPECT_EQ(summarize(empty.problem, empty["row.data"], empty.wanted("row.data"), empty.inputs, empty.got).of,
            0);
  EXPECT_EQ(heat_map(empty.problem, empty["row.data"], empty.wanted("row.data")).rows, 0);
}

}  // namespace
}  // namespace assay

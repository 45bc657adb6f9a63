#include "compare/diagnosis/patterns/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "contract/line.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using planes::Case;
using std::string;

constexpr const char* kData = "quantize mxfp8 128x256 bf16 dir=row";
constexpr const char* kScales = "quantize mxfp8 256x1024 bf16 dir=row scales=gemm fill=outliers";

// got[i] = want[from(i)], by address; -1 leaves the code as it is.
void permute(Case& c, const string& name, const std::function<int64_t(int64_t)>& from) {
  PlaneData& p = c[name];
  const PlaneData& w = c.wanted(name);
  for (int64_t i = 0; i < p.plane.padded.count(); ++i)
    if (const int64_t j = from(i); j >= 0) set_code(p.plane, p.bytes, i, code_at(w.plane, w.bytes, j));
}
std::vector<LayoutFit> fits(Case& c, const string& name) {
  return fit_layouts(c[name].plane, c[name].bytes, c.wanted(name).bytes);
}
// The best fit is exact, has this name, and undoes what was done.
void expect_exact(Case& c, const string& plane, const string& name) {
  const auto all = fits(c, plane);
  ASSERT_FALSE(all.empty()) << name;
  EXPECT_EQ(all[0].name.substr(0, all[0].name.find('=')), name) << all[0].description;
  EXPECT_TRUE(all[0].exact) << name << " " << all[0].share;
  EXPECT_EQ(all[0].share, 1) << name;
  const auto back = relayout(all[0], c[plane].plane, c[plane].bytes, c.wanted(plane).bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, c.wanted(plane).bytes) << name;
  if (name == "runs" || name == "strides") return;
  const auto again = layout_named(all[0].name, c[plane].plane);  // without the data
  ASSERT_TRUE(again) << all[0].name;
  EXPECT_EQ(again->source, all[0].source) << all[0].name;
}

TEST(Layouts, NothingToFind) {
  Case c(kData);
  EXPECT_TRUE(fits(c, "row.data").empty());
  // Values that are wrong are no layout, nor is noise, nor a constant plane.
  c.spoil("row.data", [](int64_t, int64_t, uint32_t w) { return (w & 0x7F) ? w - 1 : w; });
  EXPECT_TRUE(fits(c, "row.data").empty());
  c.spoil("row.data", [](int64_t r, int64_t k, uint32_t) {
    return static_cast<uint32_t>((r * 2654435761 + k * 40503) >> 7) & 0xFF;
  });
  EXPECT_TRUE(fits(c, "row.data").empty());
  Case z("quantize mxfp8 128x256 bf16 dir=row fill=zeros");
  z.spoil("row.data", [](int64_t r, int64_t, uint32_t) { return r == 3; });
  EXPECT_TRUE(fits(z, "row.data").empty());
}

// Smooth scales fit shifted copies of themselves nearly as well as anything: values that are off by one are
// no layout.
TEST(Layouts, SmoothScalesAreNoLayout) {
  for (const char* line : {"quantize mxfp8 65x97 f32 dir=both fill=amax_edges",
                           "quantize mxfp8 65x97 f32 dir=both scales=gemm fill=amax_edges",
                           "quantize mxfp8 31x33 bf16 dir=both fill=outliers"})
    for (const string name : {"row", "col"}) {
      Case c(line);
      const string plane =
          c.problem.row->scales == ScaleLayout::gemm ? name + ".scale_gemm" : name + ".scale_inv";
      for (const int every : {1, 2, 10}) {
        c.spoil(plane, [&](int64_t r, int64_t k, uint32_t w) {
          return (r * 7 + k * 3) % every ? w : (w + 1) & 0xFF;
        });
        const auto all = fits(c, plane);
        EXPECT_TRUE(all.empty()) << line << " " << plane << " " << every << ": " << all[0].name << " "
                                 << all[0].share;
      }
    }
}

TEST(Layouts, OfData) {
  Case c(kData);
  permute(c, "row.data", [](int64_t i) { return i % 128 * 256 + i / 128; });
  expect_exact(c, "row.data", "column_major");
  permute(c, "row.data", [](int64_t i) { return i ^ 3; });
  expect_exact(c, "row.data", "codes_reversed_4");
  permute(c, "row.data", [](int64_t i) { return i ^ 256; });
  expect_exact(c, "row.data", "rows_swapped_1");
  permute(c, "row.data", [](int64_t i) { return i ^ 32; });
  expect_exact(c, "row.data", "columns_swapped_32");
  permute(c, "row.data", [](int64_t i) {
    const int64_t t = i / 1024, r = i / 32 % 32, k = i % 32;
    return (t / 8 * 32 + r) * 256 + t % 8 * 32 + k;
  });
  expect_exact(c, "row.data", "tiles_32x32");
  permute(c, "row.data", [](int64_t i) {
    const int64_t r = i / 256, k = i % 256;
    return (r / 16 * 16 + k % 16) * 256 + k / 16 * 16 + r % 16;
  });
  expect_exact(c, "row.data", "transposed_16x16");
  Case n("quantize nvfp4 96x160 bf16 dir=row");
  permute(n, "row.data", [](int64_t i) { return i ^ 1; });
  expect_exact(n, "row.data", "nibbles_swapped");
  permute(n, "row.data", [](int64_t i) { return i ^ 6; });
  expect_exact(n, "row.data", "bytes_reversed_4");
}

// Which element is the last at its place, by writing all of them.
TEST(Layouts, TilesThatOverlapKeepWhatIsWrittenLast) {
  struct Row {
    const char* name;
    // From 128 lines to the next; negative: no such layout.
    std::function<int64_t(int64_t lines, int64_t cols)> stride;
  };
  const Row rows[] = {
      {"floored", [](int64_t, int64_t cols) { return cols % 4 != 0 && cols > 4 ? cols / 4 * 512 : -1; }},
      {"floored_to_0", [](int64_t, int64_t cols) { return cols < 4 ? 0 : -1; }},
      {"one_less", [](int64_t, int64_t cols) { return cols % 4 == 0 ? cols / 4 * 512 - 512 : -1; }},
      {"groups_close", [](int64_t, int64_t cols) { return cols % 4 != 0 ? cols * 128 : -1; }},
      {"of_others_32",
       [](int64_t lines, int64_t cols) {
         const int64_t others = (lines + 127) / 128;
         return lines > 128 && others != (cols + 3) / 4 ? others * 512 : -1;
       }},
  };
  for (const int64_t lines : {100, 129, 300, 512})
    for (const int64_t cols : {1, 2, 3, 4, 5, 6, 8, 9, 17})
      for (const Row& row : rows)
        for (const bool across : {false, true}) {
          const string line = fmt::format("quantize mxfp8 {}x{} bf16 dir=row scales=gemm", lines, 32 * cols);
          const auto planes = output_planes(*parse_line(line));
          const Plane& plane = *std::find_if(planes.begin(), planes.end(),
                                             [](const Plane& p) { return p.name == "row.scale_gemm"; });
          const string name = fmt::format("tiles_128x4_{}{}", row.name, across ? "_across" : "");
          const auto fit = layout_named(name, plane);
          const int64_t stride = row.stride(lines, cols), room = (cols + 3) / 4 * 512;
          ASSERT_EQ(fit.has_value(), stride >= 0 && (!across || (cols > 4 && stride < room)))
              << line << ' ' << name;
          if (!fit) continue;
          std::vector<int32_t> last(static_cast<size_t>(plane.padded.count()), -1);
          for (int64_t i = 0; i < lines * cols; ++i) {
            const int64_t o = across ? i % lines : i / cols, k = across ? i / lines : i % cols;
            const int64_t to = o / 128 * stride + k / 4 * 512 + o % 32 * 16 + o % 128 / 32 * 4 + k % 4;
            if (to < plane.padded.count())
              last[static_cast<size_t>(to)] = static_cast<int32_t>(index_of(plane, o, k));
          }
          EXPECT_EQ(fit->source, last) << line << ' ' << name;
        }
}

// A layout that a few places refute takes no look at all of a large plane, of some hundred that are tried.
TEST(Layouts, TilesThatOverlapCostLittleWhereTheyAreNot) {
  const auto seconds_of = [](const char* line, const char* name) {
    const auto planes = output_planes(*parse_line(line));
    const Plane& plane =
        *std::find_if(planes.begin(), planes.end(), [&](const Plane& p) { return p.name == name; });
    std::vector<std::byte> got(plane.bytes()), want(plane.bytes());
    for (size_t i = 0; i < got.size(); ++i)
      got[i] = std::byte(i * 2654435761 >> 13 & 1), want[i] = std::byte(i * 40503 >> 7 & 1);
    timespec from{}, to{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    EXPECT_TRUE(exact_layouts(plane, got, want).empty());
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    return static_cast<double>(to.tv_sec - from.tv_sec) +
           1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec);
  };
  const double compact = seconds_of("quantize mxfp8 2048x8224 bf16 dir=row", "row.scale_inv");
  EXPECT_LT(seconds_of("quantize mxfp8 2048x8224 bf16 dir=row scales=gemm", "row.scale_gemm"),
            10 * compact + 0.5);
}

// Places that repeat others lose some: relayout takes those from what is wanted.
TEST(Layouts, OfRepeatedPlaces) {
  Case n("quantize nvfp4 96x160 bf16 dir=row");
  permute(n, "row.data", [](int64_t i) { return i & ~int64_t{1}; });
  expect_exact(n, "row.data", "low_twice");
  permute(n, "row.data", [](int64_t i) { return i / 160 / 32 * 32 * 160 + i % 160; });
  expect_exact(n, "row.data", "first_row_of_32");
}

TEST(Layouts, OfScales) {
  Case c(kScales);
  const string name = "row.scale_gemm";
  const Plane plane = c[name].plane;
  ASSERT_EQ(plane.padded, (Shape{256, 32}));
  auto swizzled = [&](int64_t i) { return index_of(plane, i / 32, i % 32); };
  std::vector<int64_t> unswizzled(256 * 32);
  for (int64_t i = 0; i < 256 * 32; ++i) unswizzled[static_cast<size_t>(swizzled(i))] = i;
  permute(c, name, swizzled);  // left as it was: compact
  expect_exact(c, name, "row_major");
  permute(c, name, [&](int64_t i) { return unswizzled[static_cast<size_t>(i)]; });
  expect_exact(c, name, "swizzled_twice");
  permute(c, name, [&](int64_t i) {
    const int64_t t = i / 512, w = i % 512;
    return swizzled((t / 8 * 128 + w / 4 % 32 * 4 + w / 128) * 32 + t % 8 * 4 + w % 4);
  });
  expect_exact(c, name, "tiles_128x4_reshaped");
  permute(c, name, [&](int64_t i) {
    const int64_t t = i / 32, w = i % 32;
    return swizzled((t / 8 * 8 + w / 4) * 32 + t % 8 * 4 + w % 4);
  });
  expect_exact(c, name, "tiles_8x4");
  permute(c, name, [&](int64_t i) {
    const int64_t t = i / 512, w = i % 512;
    return t % 2 * 4096 + t / 2 * 512 + w;
  });
  expect_exact(c, name, "tiles_128x4_down");
  // Compact ones swizzled where nobody asked for it; words of four, transposed.
  Case k("quantize mxfp8 256x1024 bf16 dir=row fill=outliers");
  permute(k, "row.scale_inv", [&](int64_t i) { return unswizzled[static_cast<size_t>(i)]; });
  expect_exact(k, "row.scale_inv", "tiles_128x4");
  permute(k, "row.scale_inv", [&](int64_t i) { return i / 4 % 256 * 32 + i / 1024 * 4 + i % 4; });
  expect_exact(k, "row.scale_inv", "words_along");
  // Scales of columns that are stored as they are go by columns.
  Case d("quantize mxfp8 1024x256 bf16 dir=col scales=gemm fill=outliers");
  const Plane down = d["col.scale_gemm"].plane;
  permute(d, "col.scale_gemm", [&](int64_t i) { return index_of(down, i % 32, i / 32); });
  const auto all = fits(d, "col.scale_gemm");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].name, "row_major");
  EXPECT_TRUE(all[0].exact);
}

TEST(Layouts, OfPaddedPlanes) {
  Case c("quantize mxfp8 100x200 bf16 dir=row fill=outliers");  // scales [100, 7] in [128, 8]
  PlaneData& p = c["row.scale_inv"];
  ASSERT_EQ(p.plane.padded, (Shape{128, 8}));
  std::fill(p.bytes.begin(), p.bytes.end(), std::byte{0});
  for (int64_t r = 0; r < 100; ++r)
    for (int64_t k = 0; k < 7; ++k) set_code(p.plane, p.bytes, r * 7 + k, c.code("row.scale_inv", r, k));
  expect_exact(c, "row.scale_inv", "row_major_unpadded");
}

// Tiles of the rows and columns that there are, where they should be filled up to 128x4.
TEST(Layouts, OfTilesWithoutPadding) {
  Case rows("quantize mxfp8 96x256 bf16 dir=row scales=gemm fill=outliers");
  PlaneData& r = rows["row.scale_gemm"];
  ASSERT_EQ(r.plane.padded, (Shape{128, 8}));
  std::fill(r.bytes.begin(), r.bytes.end(), std::byte{0});
  for (int64_t i = 0; i < 96; ++i)
    for (int64_t k = 0; k < 8; ++k)
      set_code(r.plane, r.bytes, ((k / 4 * 32 + i % 32) * 3 + i / 32) * 4 + k % 4,
               rows.code("row.scale_gemm", i, k));
  expect_exact(rows, "row.scale_gemm", "tiles_128x4_cut");
  Case cols("quantize mxfp8 128x192 bf16 dir=row scales=gemm fill=outliers");
  PlaneData& c = cols["row.scale_gemm"];
  std::fill(c.bytes.begin(), c.bytes.end(), std::byte{0});
  for (int64_t i = 0; i < 128; ++i)
    for (int64_t k = 0; k < 6; ++k)
      set_code(c.plane, c.bytes, (i % 32 * 4 + i / 32) * 6 + k, cols.code("row.scale_gemm", i, k));
  expect_exact(cols, "row.scale_gemm", "tiles_128_whole_unpadded");
}

// Tensor-core tiles that overlap, since too few are counted or 128 lines take too little room: what a kernel
// writes line after line, or column after column.
TEST(Layouts, OfTilesThatOverlap) {
  struct Overlap {
    const char *line, *name;
    int64_t group;  // scales from 128 lines to the next
    bool across;
  };
  for (const Overlap& o : {Overlap{"quantize mxfp4 160x64 bf16 dir=row", "groups_close", 256, false},
                           {"quantize mxfp8 300x160 bf16 dir=row", "groups_close", 640, false},
                           {"quantize mxfp8 300x160 bf16 dir=row", "groups_close_across", 640, true},
                           {"quantize mxfp8 300x160 bf16 dir=row", "floored", 512, false},
                           {"quantize mxfp8 300x160 bf16 dir=row", "floored_across", 512, true},
                           {"quantize mxfp8 256x96 bf16 dir=row", "floored_to_0", 0, false},
                           {"quantize mxfp8 300x256 bf16 dir=row", "one_less", 512, false},
                           {"quantize mxfp8 300x256 bf16 dir=row", "one_less_across", 512, true},
                           {"quantize mxfp8 300x160 bf16 dir=row", "of_others_32", 1536, false},
                           {"quantize mxfp8 256x400 bf16 dir=row", "of_others_32", 1024, false},
                           {"quantize nvfp4 160x400 bf16 dir=row", "of_others_16_across", 1536, true}}) {
    Case c(string(o.line) + " scales=gemm fill=outliers");
    PlaneData& p = c["row.scale_gemm"];
    std::fill(p.bytes.begin(), p.bytes.end(), std::byte{0});
    const int64_t rows = p.plane.logical.rows, cols = p.plane.logical.cols;
    for (int64_t n = 0; n < rows * cols; ++n) {
      const int64_t i = o.across ? n % rows : n / cols, k = o.across ? n / rows : n % cols;
      const int64_t to = i / 128 * o.group + k / 4 * 512 + i % 32 * 16 + i % 128 / 32 * 4 + k % 4;
      if (to < p.plane.padded.count()) set_code(p.plane, p.bytes, to, c.code("row.scale_gemm", i, k));
    }
    const auto all = exact_layouts(p.plane, p.bytes, c.wanted("row.scale_gemm").bytes);
    EXPECT_NE(std::ranges::find(all, string("tiles_128x4_") + o.name, &LayoutFit::name), all.end())
        << o.line << ' ' << o.name << ' ' << (all.empty() ? "" : all[0].name);
  }
}

TEST(Layouts, OfALastTileWithItsRowsInOrder) {
  Case c("quantize mxfp8 200x288 bf16 dir=row scales=gemm fill=outliers");  // nine scales along a row
  PlaneData& p = c["row.scale_gemm"];
  std::fill(p.bytes.begin(), p.bytes.end(), std::byte{0});
  for (int64_t i = 0; i < 200; ++i)
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t within = k == 8 ? i % 128 * 4 : i % 32 * 16 + i % 128 / 32 * 4 + k % 4;
      set_code(p.plane, p.bytes, (i / 128 * 3 + k / 4) * 512 + within, c.code("row.scale_gemm", i, k));
    }
  expect_exact(c, "row.scale_gemm", "tiles_128x4_last_rows");
}

TEST(Layouts, AddressBitsOfAnySwizzle) {
  Case c(kData);
  // Four bits of row and column exchanged and two of them mixed, as shared memory is swizzled.
  auto mapped = [](int64_t i) {
    const int64_t r = i / 256, k = i % 256;
    return (r ^ (k >> 6 & 1)) * 256 + (k ^ ((r >> 1 & 7) << 4));
  };
  permute(c, "row.data", mapped);
  expect_exact(c, "row.data", "address_bits");
  EXPECT_NE(fits(c, "row.data")[0].description.find("r3^c6"), string::npos)
      << fits(c, "row.data")[0].description;
  permute(c, "row.data", [](int64_t i) {
    return (i & ~int64_t{7}) | ((i & 1) << 2) | ((i >> 1 & 3));
  });  // nibble interleaves look like this
  expect_exact(c, "row.data", "address_bits");
  EXPECT_NE(fits(c, "row.data")[0].description.find("c1 c0 c2 instead of"), string::npos)
      << fits(c, "row.data")[0].description;
  // A plane whose size is no power of two: within the bits that are whole.
  Case odd("quantize nvfp4 48x160 bf16 dir=row");
  permute(odd, "row.data", [](int64_t i) { return (i & ~int64_t{15}) | ((i & 3) << 2) | (i >> 2 & 3); });
  expect_exact(odd, "row.data", "address_bits");
}

TEST(Layouts, RunsOfAnyOrder) {
  Case c("quantize mxfp8 96x160 bf16 dir=row");
  permute(c, "row.data", [](int64_t i) { return i / 160 * 37 % 96 * 160 + i % 160; });
  auto all = fits(c, "row.data");
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(all[0].exact) << all[0].share;
  EXPECT_EQ(all[0].name, "runs");
  EXPECT_NE(all[0].description.find("runs of 160 codes in another order: they come from (row, column) (0, "
                                    "0), (37, 0), (74, 0), (15, 0)"),
            string::npos)
      << all[0].description;
  // Three loops.
  permute(c, "row.data", [](int64_t i) {
    const int64_t run = i / 32;
    return (run % 3 * 160 + run / 3 % 32 * 3 * 160 + run / 96 * 32) + i % 32;
  });
  all = fits(c, "row.data");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].name, "blocks_32");
  permute(c, "row.data", [](int64_t i) {
    const int64_t run = i / 32;
    return (run % 32 * 3 * 160 + run / 32 % 3 * 160 + run / 96 * 32) + i % 32;
  });
  all = fits(c, "row.data");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].name, "strides");
  EXPECT_NE(all[0].description.find(
                "runs of 32 codes; their places, the fastest first: 32 steps of 480, 3 of 160, 5 of 32"),
            string::npos)
      << all[0].description;
  permute(c, "row.data", [](int64_t i) { return i >= 77 ? i - 77 : -1; });
  all = fits(c, "row.data");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].name, "offset_77");
}

TEST(Layouts, ByNameOnAnotherPlane) {
  const Case c("quantize mxfp8 48x160 bf16 dir=row");
  const Plane& plane = c.wanted("row.data").plane;
  EXPECT_EQ(layout_named("column_major", plane)->source[1], 160);
  EXPECT_EQ(layout_named("offset_77", plane)->source[100], 23);
  EXPECT_EQ(layout_named("offset_77", plane)->source[76], -1);
  EXPECT_EQ(layout_named("row_offset_-5", plane)->source[0], 800);
  EXPECT_EQ(layout_named("address_bits=2,!1", plane)->source[4], 5);
  for (const char* name : {"", "nonsense", "address_bits=", "address_bits=xyz", "address_bits=3,3", "offset_",
                           "offset_99999999999999999999"})
    EXPECT_FALSE(layout_named(name, plane)) << name;
}

TEST(Layouts, ALayoutUnderOtherFaultsIsStillFound) {
  Case c(kScales);
  const Plane plane = c["row.scale_gemm"].plane;
  permute(c, "row.scale_gemm", [&](int64_t i) { return index_of(plane, i / 32, i % 32); });
  PlaneData& p = c["row.scale_gemm"];
  for (size_t i = 0; i < p.bytes.size(); i += 10)
    p.bytes[i] = static_cast<std::byte>(std::to_integer<int>(p.bytes[i]) + 1);
  const auto all = fits(c, "row.scale_gemm");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].name, "row_major");
  EXPECT_FALSE(all[0].exact);
  EXPECT_NEAR(all[0].share, 0.9, 0.01);
}

}  // namespace
}  // namespace assay

// The kernels on the host executor: equal bytes in every environment, by every kernel that may serve, and
// equal to the lanes applied element by element in plain loops. Equality with the reference is judged by the
// suites.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fast/lane/fp8_current.cuh"
#include "fast/lane/mxfp8.cuh"
#include "fast/subject_cublaslt.h"
#include "fast/subject_gpu.h"
#include "tests/fast/run.h"

namespace assay {
namespace {

// Shapes at and around every edge: the patch (8), the block (32), the warp's piece (64), the tile (128);
// aligned and not.
const std::vector<std::string> kShapes = {"1x1",     "1x32",    "32x1",   "7x8",     "8x7",
                                          "31x33",   "64x64",   "65x72",  "127x129", "128x128",
                                          "129x136", "136x264", "200x40", "256x384"};
std::vector<std::string> quantize_lines(const std::vector<std::string>& shapes) {
  std::vector<std::string> out;
  for (const std::string& shape : shapes)
    for (const char* source : {"bf16", "f16", "f32"})
      for (const char* format :
           {"identity", "fp8_delayed scale=3.7 prior_amax=0.25", "fp8_current",
            "fp8_current amax=5 element=e5m2", "mxfp8", "mxfp8 element=e5m2 scales=gemm", "mxfp8 block=32x32",
            "mxfp8 neg_zero=plus col.nan_amax=propagate", "mxfp8 row.element=e5m2 col.block=32x32",
            "fp8_current neg_zero=plus pow2=1", "fp8_current row_scaled=1",
            "fp8_current row_scaled=1 element=e5m2 eps=1 pow2=1"})
        for (const char* dir : {"row", "col", "both"}) {
          const std::string f = format;
          if (std::string(dir) != "both" &&
              (f.find("row.") != std::string::npos || f.find("col.") != std::string::npos))
            continue;
          const size_t space = f.find(' ');
          out.push_back("quantize " + f.substr(0, space) + " " + shape + " " + source + " dir=" + dir +
                        (space == std::string::npos ? "" : f.substr(space)));
        }
  return out;
}

TEST(Kernels, EnvironmentDecidesNoBit) {
  std::vector<std::string> lines = quantize_lines({"1x1", "65x72", "136x264", "127x129"});
  for (const char* more :
       {"cast e4m3 33x41 bf16", "cast f16 7x24 f32", "cast bf16 16x16 e5m2", "cast e8m0 5x9 f32 round=rp",
        "dequantize mxfp8 65x72 bf16 dir=col", "dequantize fp8_current 40x136 bf16 dir=col out=f32",
        "swizzle mxfp8 200x300 e8m0 dir=row", "swizzle mxfp8 200x300 e8m0 dir=col inverse=1",
        "update fp8_delayed 5x300 f32", "scale_chain mxfp8 3x100 f32", "scale_chain fp8_current 3x100 f32"})
    lines.push_back(more);
  for (const std::string& line : lines) {
    const Planes want = run(line).out;
    int changed = 0;
    for (const char* text : {"order=reverse,poison=00", "order=5,threads=2", "order=17,poison=ff,threads=2",
                             "alignment=16", "alignment=8,order=3", "alignment=4,poison=80", "alignment=1"}) {
      const auto env = parse_environment(text);
      ASSERT_TRUE(env) << env.error().text();
      expect_equal(run(line, *env).out, want, line + " --env " + text);
      if (HasFatalFailure()) return;
      ++changed;
    }
    ASSERT_EQ(changed, 7);
  }
}

bool tuned(const Ran& r) { return r.served.by.find("_pair<") != std::string::npos; }

// The direction lanes and the tuned kernels, the integer conversions and the twins of the hardware's.
TEST(Kernels, EveryPolicyGivesTheSameBytes) {
  int by_tuned = 0;
  for (const std::string& line : quantize_lines(kShapes)) {
    const Ran automatic = run(line), general = run(parsed(line), *make_general_host_subject());
    expect_equal(general.out, automatic.out, line);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(!tuned(general) || line.find("identity") != std::string::npos) << general.served.by;
    by_tuned += tuned(automatic);
  }
  EXPECT_GT(by_tuned, 100);
}

TEST(Kernels, OneReadEqualsTwo) {
  for (const std::string& line : quantize_lines(kShapes)) {
    if (line.find("dir=both") == std::string::npos) continue;
    const Problem both = parsed(line);
    const Planes want = run(line).out;
    Planes got;
    for (Direction d : kDirections) {
      Problem single = both;
      single.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
      got.merge(run(single, *make_host_subject()).out);
    }
    expect_equal(got, want, line);
    if (HasFatalFailure()) return;
  }
}

// Every format with settings that take another path through its lane.
const std::vector<std::string> kQuantizers = {"identity",
                                              "fp8_delayed scale=3.7 prior_amax=0.25 element=e5m2",
                                              "fp8_current pow2=1",
                                              "fp8_current amax=5",
                                              "fp8_current row_scaled=1",
                                              "fp8_block",
                                              "fp8_block block=128x128 pow2=0",
                                              "fp8_block scales=gemm",
                                              "mxfp8 scales=gemm",
                                              "mxfp8 block=32x32 neg_zero=plus nan_amax=propagate",
                                              "mxfp4",
                                              "nvfp4",
                                              "nvfp4 block=16x16 scales=gemm",
                                              "nvfp4 row_scaled=1",
                                              "nvfp4 four_over_six=mae",
                                              "nvfp4 round=sr"};
Problem pair_of(const std::string& row, const std::string& col, const std::string& shape,
                const std::string& source) {
  auto single = [&](const std::string& q, const char* dir) {
    const size_t space = q.find(' ');
    return parsed("quantize " + q.substr(0, space) + " " + shape + " " + source + " dir=" + dir +
                  (space == std::string::npos ? "" : q.substr(space)));
  };
  Problem p = single(row, "row");
  p.col = single(col, "col").col;
  return p;
}
Problem alone(Problem p, Direction d) {
  p.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
  p.col_source = ColSource::original;
  return p;
}
Planes of_direction(const Ran& r, Direction d) {
  Planes out;
  for (const Plane& plane : r.out_planes)
    if (plane.direction == d) out[plane.name] = r.out.at(plane.name);
  return out;
}

// N13.2, N13.1: rows as on their own; columns as on their own, of x or of what the dequantize kernels make of
// the rows.
TEST(Kernels, PairsEqualTheirDirectionsAlone) {
  const auto host = make_host_subject();
  int pairs = 0;
  for (const std::string& row : kQuantizers)
    for (const std::string& col : kQuantizers) {
      const char* sources[] = {"bf16", "f16", "f32"};
      const char* shapes[] = {"129x257", "31x33", "1x1", "128x136", "200x40"};
      const std::string source = sources[pairs % 3], shape = shapes[pairs % 5],
                        what = row + " / " + col + " " + shape + " " + source;
      ++pairs;
      Problem p = pair_of(row, col, shape, source);
      const Ran original = run(p, *host), row_alone = run(alone(p, Direction::row), *host);
      expect_equal(of_direction(original, Direction::row), row_alone.out, what + " row");
      expect_equal(of_direction(original, Direction::col), run(alone(p, Direction::col), *host).out,
                   what + " col");
      EXPECT_NE(original.served.by.find("one read"), std::string::npos) << original.served.by;

      p.col_source = ColSource::row_dequantized;
      const Ran decoded = run(p, *host);
      Problem back = alone(p, Direction::row);
      back.op = Dequantize{p.x.source, CodesFrom::quantized};
      Planes rows = row_alone.out;
      if (p.row->format == FormatId::nvfp4 && p.row->amax) rows["row.amax"] = row_alone.in[1];
      const Bytes y = run(back, *host, {}, rows).out.at("y");
      expect_equal(of_direction(decoded, Direction::row), row_alone.out, what + " row, decoded");
      expect_equal(of_direction(decoded, Direction::col),
                   run(alone(p, Direction::col), *host, {}, {{"x", y}}).out, what + " col of decoded rows");
      EXPECT_NE(decoded.served.by.find("one read, columns of the decoded rows"), std::string::npos)
          << decoded.served.by;
      if (HasFatalFailure()) return;
    }
  EXPECT_EQ(pairs, 256);
}

TEST(Kernels, PairsInEveryEnvironment) {
  for (size_t i = 0; i < kQuantizers.size(); ++i) {
    Problem p = pair_of(kQuantizers[i], kQuantizers[(i + 4) % kQuantizers.size()], "130x140", "bf16");
    for (ColSource source : {ColSource::original, ColSource::row_dequantized}) {
      p.col_source = source;
      const Planes want = run(p, *make_host_subject()).out;
      expect_equal(run(p, *make_general_host_subject()).out, want, to_line(p) + " by integers");
      for (const char* text : {"order=reverse,poison=00", "order=17,poison=ff,threads=2", "alignment=16",
                               "alignment=4,order=5", "alignment=1"}) {
        const auto env = parse_environment(text);
        ASSERT_TRUE(env) << env.error().text();
        expect_equal(run(p, *make_host_subject(), *env).out, want, to_line(p) + " --env " + text);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The two ways to run a pair: one launch that reads x once, or one launch for each direction.
TEST(Kernels, OneReadAndTwoReadsSayWhichTheyAre) {
  int tuned_pairs = 0;
  for (const std::string& line : quantize_lines({"64x64", "65x72"})) {
    if (line.find("dir=both") == std::string::npos) continue;
    const Ran one = run(line), two = run(parsed(line), *make_apart_host_subject());
    expect_equal(two.out, one.out, line);
    EXPECT_EQ(one.served.by.find("two reads"), std::string::npos) << one.served.by;
    EXPECT_NE(two.served.by.find("; two reads"), std::string::npos) << two.served.by;
    EXPECT_GE(two.served.launches, 2);
    tuned_pairs += tuned(one);
  }
  EXPECT_GT(tuned_pairs, 10);
}

std::vector<uint32_t> words(const Bytes& bytes) {
  std::vector<uint32_t> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
Bytes bytes_of(const std::vector<uint32_t>& words) {
  Bytes out(words.size() * 4);
  std::memcpy(out.data(), words.data(), out.size());
  return out;
}
Planes dims_of(const Split& op) {
  std::vector<uint32_t> first, last;
  for (Shape m : op.members)
    first.push_back(static_cast<uint32_t>(m.rows)), last.push_back(static_cast<uint32_t>(m.cols));
  return {{"first_dims", bytes_of(first)}, {"last_dims", bytes_of(last)}};
}
// Runs a split and its members alone, on the same bytes; returns how many bytes were compared.
int64_t split_equals_members(const Problem& p, const Environment& env) {
  const auto host = make_host_subject();
  const std::string line = to_line(p);
  const Split& op = *p.as<Split>();
  const Ran r = run(p, *host, env, dims_of(op));
  const std::vector<Problem> members = member_problems(p);
  std::map<std::string, int64_t> ends;
  int64_t compared = 0, elements = 0;
  const std::vector<uint32_t> offsets = words(r.out.at("offsets"));
  EXPECT_EQ(offsets.size(), members.size() + 1);
  for (size_t m = 0; m < members.size(); ++m) {
    EXPECT_EQ(int64_t{offsets[m]}, elements) << line;
    elements += members[m].x.shape.count();
    Planes given;
    for (size_t i = 0; i < r.in.size(); ++i) {
      const Plane& plane = r.in_planes[i];
      if (plane.members.empty()) continue;
      const auto from =
          r.in[i].begin() + static_cast<std::ptrdiff_t>(plane.bytes_of(plane.members[m].offset));
      given[plane.name] =
          Bytes(from, from + static_cast<std::ptrdiff_t>(plane.bytes_of(plane.members[m].padded.count())));
    }
    const Ran single = run(members[m], *host, {}, given);
    for (const Plane& plane : r.out_planes) {
      if (plane.members.empty()) continue;
      const Bytes& all = r.out.at(plane.name);
      const size_t at = plane.bytes_of(plane.members[m].offset),
                   n = plane.bytes_of(plane.members[m].padded.count());
      expect_equal({{plane.name, Bytes(all.begin() + static_cast<std::ptrdiff_t>(at),
                                       all.begin() + static_cast<std::ptrdiff_t>(at + n))}},
                   {{plane.name, single.out.at(plane.name)}}, line + " member " + std::to_string(m));
      if (plane.name.find(".scale_") != std::string::npos &&
          r.out.contains(plane_name(*plane.direction, "scale_offsets"))) {
        const std::vector<uint32_t> scales = words(r.out.at(plane_name(*plane.direction, "scale_offsets")));
        EXPECT_EQ(int64_t{scales[m]}, plane.members[m].offset) << line;
        EXPECT_EQ(int64_t{scales[m + 1]}, plane.members[m].offset + plane.members[m].padded.count()) << line;
      }
      ends[plane.name] = static_cast<int64_t>(at + n);
      compared += static_cast<int64_t>(n);
    }
  }
  EXPECT_EQ(int64_t{offsets.back()}, elements) << line;
  for (const auto& [name, end] : ends)  // N14.6
    for (size_t i = static_cast<size_t>(end); i < r.out.at(name).size(); ++i)
      EXPECT_EQ(r.out.at(name)[i], std::byte{env.poison}) << line << ' ' << name;
  return compared;
}

// N14: every format and setting, groups of each kind, zero-size members, spare capacity.
TEST(Kernels, SplitsEqualTheirMembersAlone) {
  const std::vector<std::string> groups = {
      "160x140 # vary=first groups=31,0,1,128 capacity=30000", "136x290 # vary=last groups=0,130,17,15,128",
      "96x72 # vary=none groups=32,32,32", "1x9000 # vary=both groups=7x9,0x5,130x67,1x227"};
  int64_t compared = 0;
  int runs = 0;
  for (size_t i = 0; i < kQuantizers.size(); ++i) {
    const char* sources[] = {"bf16", "f16", "f32"};
    std::string shape = groups[i % groups.size()];
    shape.replace(shape.find('#'), 1, sources[i % 3]);
    for (size_t other : {i, (i + 3) % kQuantizers.size()}) {
      Problem p = parsed("split identity " + shape);
      const Problem pair = pair_of(kQuantizers[i], kQuantizers[other], "32x32", sources[i % 3]);
      p.row = pair.row, p.col = pair.col;
      if (other != i) p.col_source = ColSource::row_dequantized;
      for (const char* text : {"threads=1", "order=7,poison=a5,alignment=4"})
        compared += split_equals_members(p, *parse_environment(text));
      if (HasFailure()) return;
      ++runs;
    }
  }
  EXPECT_EQ(runs, 32);
  EXPECT_GT(compared, 1000000);
}

// More members than the scan takes at a time, most of them small, some empty.
TEST(Kernels, SplitsOfManyMembers) {
  std::string groups;
  int64_t rows = 0;
  for (int m = 0; m < 600; ++m) {
    const int size = m % 7 == 3 ? 0 : m % 5;
    rows += size;
    groups += (m == 0 ? "" : ",") + std::to_string(size);
  }
  const Problem p = parsed("split mxfp8/nvfp4 " + std::to_string(rows) + "x24 bf16 groups=" + groups);
  EXPECT_GT(split_equals_members(p, {}), 0);
}

// The sizes on the device decide, not those that the line was made with.
TEST(Kernels, SplitsTakeTheirSizesFromTheDevice) {
  const Problem p = parsed("split identity 64x16 bf16 groups=31,33");
  const Ran r = run(p, *make_host_subject(), {}, {{"first_dims", bytes_of({40, 24})}});
  EXPECT_EQ(words(r.out.at("offsets")), (std::vector<uint32_t>{0, 40 * 16, 64 * 16}));
}

// N3.12, worked by hand: 448 over the amax of each row, of each column.
TEST(Kernels, RowScalesByHand) {
  const Ran r = run("quantize fp8_current 2x2 f32 row_scaled=1", {},
                    {{"x", bytes_of({0x3F800000, 0xC0000000, 0x40800000, 0x3F000000})}});  // 1 -2; 4 0.5
  const std::vector<uint32_t> amax{0x40000000, 0x40800000}, scale{0x43600000, 0x42E00000},
      inverse{0x3B924925, 0x3C124925};  // 2 4; 224 112
  EXPECT_EQ(words(r.out.at("row.amax")), amax);
  EXPECT_EQ(words(r.out.at("row.scale")), scale);
  EXPECT_EQ(words(r.out.at("row.scale_inv")), inverse);
  EXPECT_EQ(at(r.out.at("row.data"), 0, 4), 0x667EFE76u);  // 224 -448; 448 56
  EXPECT_EQ(words(r.out.at("col.amax")), (std::vector{amax[1], amax[0]}));
  EXPECT_EQ(words(r.out.at("col.scale")), (std::vector{scale[1], scale[0]}));
  EXPECT_EQ(words(r.out.at("col.scale_inv")), (std::vector{inverse[1], inverse[0]}));
  EXPECT_EQ(at(r.out.at("col.data"), 0, 4), 0x6EFE7E6Eu);  // 112 448; -448 112
}

// N3.12: each stored row is what a tensor of that row alone is; rows longer than a block's registers hold
// too.
TEST(Kernels, RowScalesEqualRowsAlone) {
  int rows = 0;
  for (const char* what :
       {"1x1 f32", "9x31 bf16", "33x72 f16 pow2=1", "40x136 f32 eps=30", "130x264 bf16 element=e5m2",
        "3x8264 bf16", "2x8203 f16", "2x20008 f32 inf_amax=zero", "72x40 bf16 scale_order=decode_divide",
        "8x16 f32 neg_zero=minus pre_round=bf16"}) {
    const Problem p = parsed(std::string("quantize fp8_current ") + what + " row_scaled=1");
    const Ran r = run(p, *make_host_subject());
    const Shape s = p.x.shape;
    const int size = info(p.x.source).bytes();
    for (Direction d : kDirections) {
      const int64_t lines = d == Direction::row ? s.rows : s.cols, length = s.count() / lines;
      for (int64_t line = 0; line<lines; line += lines> 1000 ? 997 : 1) {
        Problem one = alone(p, Direction::row);
        one.row->row_scaled = false;
        one.x.shape = {1, length};
        Bytes x(static_cast<size_t>(length * size));
        for (int64_t i = 0; i < length; ++i)
          std::memcpy(&x[static_cast<size_t>(i * size)],
                      &r.in[0][static_cast<size_t>(
                          (d == Direction::row ? line * s.cols + i : i * s.cols + line) * size)],
                      static_cast<size_t>(size));
        for (const auto& [name, bytes] : run(one, *make_host_subject(), {}, {{"x", x}}).out) {
          const Bytes& all = r.out.at(plane_name(d, name.substr(name.find('.') + 1)));
          const auto from = all.begin() + static_cast<std::ptrdiff_t>(bytes.size()) * line;
          ASSERT_EQ(Bytes(from, from + static_cast<std::ptrdiff_t>(bytes.size())), bytes)
              << to_line(p) << ' ' << name_of(d) << ' ' << name << " of line " << line;
        }
        ++rows;
      }
    }
  }
  EXPECT_GT(rows, 700);
}

// Every data element and every scale against the trace, which walks the block of one element in plain loops.
TEST(Kernels, DataAndScalesEqualTheTrace) {
  const auto host = make_host_subject();
  for (const std::string& line : quantize_lines({"7x8", "31x33", "65x72"})) {
    const Problem p = parsed(line);
    const Ran r = run(line);
    std::vector<ConstBuffer> inputs;
    for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Quantizer& q = *p.quantizer(d);
      const std::string prefix = std::string(name_of(d)) + ".";
      const Shape s = p.x.shape;
      const bool transposed = geometry(q, s, d).transposed, mx = q.format == FormatId::mxfp8;
      for (int64_t row = 0; row < s.rows; row += q.format == FormatId::identity ? 1 : 3)
        for (int64_t col = 0; col < s.cols; ++col) {
          const std::vector<TraceStep> steps = host->trace(p, inputs, d, row, col);
          ASSERT_FALSE(steps.empty()) << line;
          const Bytes& data = r.out.at(prefix + "data");
          ASSERT_EQ(at(data, transposed ? col * s.rows + row : row * s.cols + col, info(q.element).bytes()),
                    steps.back().bits)
              << line << ' ' << row << ' ' << col;
          for (const TraceStep& step : steps) {
            if (!mx && (step.what == "scale_inv" || step.what == "scale")) {
              ASSERT_EQ(at(r.out.at(prefix + step.what),
                           !q.row_scaled         ? 0
                           : d == Direction::row ? row
                                                 : col,
                           4),
                        step.bits)
                  << line;
            }
            if (step.what != "scale" || !mx || q.scales != ScaleLayout::compact) continue;
            const int64_t pitch =
                d == Direction::row ? round_up(ceil_div(s.cols, 32), 4) : round_up(s.cols, 128);
            const int64_t index = d == Direction::row ? row * pitch + col / 32 : row / 32 * pitch + col;
            ASSERT_EQ(at(r.out.at(prefix + "scale_inv"), index, 1), step.bits)
                << line << ' ' << row << ' ' << col;
          }
        }
    }
  }
}

// N6.4, partial 32x32 blocks included, whose scale is repeated for rows and columns inside the tensor only.
TEST(Kernels, PaddingIsZero) {
  int64_t padding = 0;
  for (const std::string& line : quantize_lines(kShapes)) {
    if (line.find("mxfp8") == std::string::npos) continue;
    const Ran r = run(line);
    for (const Plane& plane : r.out_planes) {
      const Bytes& bytes = r.out.at(plane.name);
      const bool row = plane.direction == Direction::row;
      for (int64_t a = 0; a < plane.padded.rows; ++a)
        for (int64_t b = 0; b < plane.padded.cols; ++b) {
          if (a < plane.logical.rows && b < plane.logical.cols) continue;
          const int64_t i = row ? a : b, j = row ? b : a,
                        tiles = (row ? plane.padded.cols : plane.padded.rows) / 4;
          const int64_t place = plane.layout == ScaleLayout::gemm
                                    ? (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4
                                    : a * plane.padded.cols + b;
          ASSERT_EQ(at(bytes, place, 1), 0u) << line << ' ' << plane.name << ' ' << a << ' ' << b;
          ++padding;
        }
    }
  }
  EXPECT_GT(padding, 100000);
}

TEST(Kernels, CastAndDequantizeEqualTheTrace) {
  const auto host = make_host_subject();
  for (const char* shape : {"7x8", "31x33", "64x136", "65x72"})
    for (const char* what :
         {"cast e4m3 # bf16", "cast e5m2 # f16 overflow=nosat", "cast e2m1 # f32 round=rz", "cast f16 # f32",
          "cast f32 # f16", "cast bf16 # e5m2", "cast f32 # e8m0", "dequantize mxfp8 # bf16 dir=row",
          "dequantize mxfp8 # bf16 dir=col scales=gemm out=f32",
          "dequantize mxfp8 # f32 dir=col element=e5m2 out=f16", "dequantize mxfp8 # f32 dir=row scales=gemm",
          "dequantize fp8_current # bf16 dir=row", "dequantize fp8_current # f16 dir=row row_scaled=1",
          "dequantize fp8_current # bf16 dir=col out=f32 row_scaled=1",
          "dequantize fp8_delayed # bf16 dir=col out=f32", "dequantize identity # f16 dir=col out=f16"}) {
      std::string line = what;
      line.replace(line.find('#'), 1, shape);
      const Problem p = parsed(line);
      const Ran r = run(line);
      std::vector<ConstBuffer> inputs;
      for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
      const Plane& y = r.out_planes[0];
      for (int64_t row = 0; row < p.x.shape.rows; ++row)
        for (int64_t col = 0; col < p.x.shape.cols; ++col)
          ASSERT_EQ(at(r.out.at("y"), row * p.x.shape.cols + col, info(y.encoding).bytes()),
                    host->trace(p, inputs, p.col ? Direction::col : Direction::row, row, col).back().bits)
              << line << ' ' << row << ' ' << col;
    }
}

// N6.3 by reshape and transposition: [i/128][4][32] x [j/4][4] becomes [i/128][j/4][32][4][4].
TEST(Kernels, GemmLayoutIsTheTransposedReshape) {
  for (const char* shape : {"1x1", "128x128", "200x300", "257x1000", "40x4100"})
    for (const char* dir : {"row", "col"}) {
      const Problem p = parsed(std::string("swizzle mxfp8 ") + shape + " e8m0 dir=" + dir);
      const bool row = p.row.has_value();
      const Ran forward = run(p, *make_host_subject());
      const Plane& compact = forward.in_planes[0];
      const Bytes& from = forward.in[0];
      const Bytes& to = forward.out.at(std::string(dir) + ".scale_gemm");
      ASSERT_EQ(to.size(), from.size());
      const int64_t ni = row ? compact.padded.rows : compact.padded.cols,
                    nj = row ? compact.padded.cols : compact.padded.rows;
      size_t place = 0;
      for (int64_t a = 0; a < ni / 128; ++a)
        for (int64_t b = 0; b < nj / 4; ++b)
          for (int64_t c = 0; c < 32; ++c)
            for (int64_t e = 0; e < 4; ++e)
              for (int64_t f = 0; f < 4; ++f, ++place) {
                const int64_t i = a * 128 + e * 32 + c, j = b * 4 + f;
                const bool meaningful = i < (row ? compact.logical.rows : compact.logical.cols) &&
                                        j < (row ? compact.logical.cols : compact.logical.rows);
                const int want =
                    meaningful
                        ? std::to_integer<int>(from[static_cast<size_t>(row ? i * nj + j : j * ni + i)])
                        : 0;
                ASSERT_EQ(std::to_integer<int>(to[place]), want)
                    << shape << ' ' << dir << ' ' << i << ' ' << j;
              }
      // The inverse copies everything (N6.5).
      Problem back = p;
      back.as<Swizzle>()->inverse = true;
      const Ran inverse = run(back, *make_host_subject());
      const Ran again =
          run(p, *make_host_subject(), {},
              {{std::string(dir) + ".scale_inv", inverse.out.at(std::string(dir) + ".scale_inv")}});
      for (int64_t i = 0; i < (row ? compact.logical.rows : compact.logical.cols); ++i)
        for (int64_t j = 0; j < (row ? compact.logical.cols : compact.logical.rows); ++j) {
          const size_t byte = static_cast<size_t>(((i / 128) * (nj / 4) + j / 4) * 512 + (i % 32) * 16 +
                                                  ((i % 128) / 32) * 4 + j % 4);
          ASSERT_EQ(again.out.at(std::string(dir) + ".scale_gemm")[byte], inverse.in[0][byte]);
        }
    }
}

TEST(Kernels, QuantizingToTheGemmLayoutIsQuantizingThenSwizzling) {
  for (const char* shape : {"31x33", "128x256", "200x300", "129x136"})
    for (const char* dir : {"row", "col"}) {
      const std::string s = shape, d = dir;
      const Planes compact = run("quantize mxfp8 " + s + " bf16 dir=" + d).out,
                   gemm = run("quantize mxfp8 " + s + " bf16 scales=gemm dir=" + d).out;
      const Planes swizzled =
          run("swizzle mxfp8 " + s + " e8m0 dir=" + d, {}, {{d + ".scale_inv", compact.at(d + ".scale_inv")}})
              .out;
      expect_equal({{"scale", gemm.at(d + ".scale_gemm")}}, {{"scale", swizzled.at(d + ".scale_gemm")}},
                   s + d);
    }
}

// N6.6: floor counts whole blocks only.
TEST(Kernels, SwizzleExtent) {
  const Planes ceil = run("swizzle mxfp8 4x40 e8m0 dir=row").out,
               floor = run("swizzle mxfp8 4x40 e8m0 dir=row swizzle_extent=floor").out;
  const Bytes &c = ceil.at("row.scale_gemm"), &f = floor.at("row.scale_gemm");
  EXPECT_EQ(c[0], f[0]);
  EXPECT_NE(c[1], std::byte{0});
  EXPECT_EQ(f[1], std::byte{0});
}

// N6.7: exactly 1.0 and nothing else.
TEST(Kernels, NoopLeavesEveryByte) {
  for (const std::string& line : quantize_lines({"65x72", "127x129"})) {
    Problem p = parsed(line);
    const Planes want = run(p, *make_host_subject()).out;
    p.as<Quantize>()->noop = 0x3F800000u;
    auto flag = [](uint32_t bits) {
      Bytes b(4);
      std::memcpy(b.data(), &bits, 4);
      return b;
    };
    const Ran off = run(p, *make_host_subject(), {.poison = 0xA5}, {{"noop", flag(0x3F800000u)}});
    for (const auto& [name, bytes] : off.out)
      for (std::byte b : bytes) ASSERT_EQ(b, std::byte{0xA5}) << line << ' ' << name;
    for (uint32_t other : {0x00000000u, 0x3F800001u, 0x40000000u, 0x7FFFFFFFu, 0xBF800000u})
      expect_equal(run(p, *make_host_subject(), {}, {{"noop", flag(other)}}).out, want, line);
    if (HasFatalFailure()) return;
  }
}

// The same of pairs and splits, whose offsets stay too.
TEST(Kernels, NoopLeavesPairsAndSplits) {
  for (size_t i = 0; i < kQuantizers.size(); ++i) {
    const Problem pair = pair_of(kQuantizers[i], kQuantizers[(i + 5) % kQuantizers.size()], "65x72", "bf16");
    Problem split = parsed("split identity 65x72 bf16 groups=33,32");
    split.row = pair.row, split.col = pair.col;
    for (Problem p : {pair, split}) {
      if (p.as<Split>()) p.as<Split>()->noop = 0x3F800000u;
      else p.as<Quantize>()->noop = 0x3F800000u;
      const Ran r = run(p, *make_host_subject(), {.poison = 0xA5},
                        {{"noop", bytes_of({0x3F800000u})}, {"first_dims", bytes_of({33, 32})}});
      for (const auto& [name, bytes] : r.out)
        for (std::byte b : bytes) ASSERT_EQ(b, std::byte{0xA5}) << to_line(p) << ' ' << name;
    }
  }
}

TEST(Kernels, EmptyTensors) {
  for (const char* shape : {"0x0", "0x64", "64x0"}) {
    const std::string s = shape;
    for (const char* line : {"quantize identity ", "quantize mxfp8 "})
      EXPECT_EQ(run(line + s + " bf16 dir=both").served.launches, 0) << line << s;
    const Ran current = run("quantize fp8_current " + s + " bf16 dir=both");  // N3.1: amax +0, and so scale 1
    for (const char* d : {"row.", "col."}) {
      EXPECT_EQ(at(current.out.at(d + std::string("amax")), 0, 4), 0u);
      EXPECT_EQ(at(current.out.at(d + std::string("scale")), 0, 4), 0x3F800000u);
      EXPECT_EQ(at(current.out.at(d + std::string("scale_inv")), 0, 4), 0x3F800000u);
    }
    const Ran rows = run("quantize fp8_current " + s +
                         " bf16 dir=both row_scaled=1");  // N3.12: the same for each stored row
    for (const Plane& plane : rows.out_planes)
      for (int64_t i = 0; i < plane.logical.count(); ++i)
        EXPECT_EQ(at(rows.out.at(plane.name), i, 4), plane.name.ends_with("amax") ? 0u : 0x3F800000u)
            << plane.name;
    EXPECT_EQ(run("cast e4m3 " + s + " bf16").served.launches, 0);
    EXPECT_EQ(run("swizzle mxfp8 " + s + " e8m0 dir=row").served.launches, 0);
    EXPECT_EQ(run("dequantize mxfp8 " + s + " bf16 dir=row").served.launches, 0);
  }
}

TEST(Kernels, ReportsSayWhatServed) {
  EXPECT_EQ(run("quantize mxfp8 64x64 bf16 dir=both").served.by, "mxfp8_pair<row, col> bf16, one read");
  EXPECT_EQ(run("quantize mxfp8 64x63 bf16 dir=both").served.by, "pair<mxfp8 row, mxfp8 col> bf16, one read");
  EXPECT_EQ(run("quantize mxfp8 64x64 bf16 dir=both", {.alignment = 4}).served.by,
            "pair<mxfp8 row, mxfp8 col> bf16, one read");
  const Ran hybrid = run("quantize mxfp8/fp8_current 64x64 bf16");
  EXPECT_EQ(hybrid.served.by, "amax pass; pair<mxfp8 row, fp8_current col> bf16, one read");
  EXPECT_EQ(hybrid.served.launches, 4);  // slot cleared, amax, scale, pair
  const Ran decoded = run("quantize fp8_current/nvfp4 64x64 bf16 col_source=row_dequantized");
  EXPECT_EQ(decoded.served.by,
            "amax pass; amax pass of the decoded rows; pair<fp8_current row, nvfp4 col> bf16, one read, "
            "columns of the decoded rows");
  EXPECT_EQ(run("quantize fp8_current 64x64 bf16 dir=row row_scaled=1").served.by,
            "fp8_current_rows<row> bf16");
  EXPECT_EQ(run("quantize fp8_current 64x64 bf16 dir=row row_scaled=1").served.launches, 1);
  EXPECT_EQ(run("quantize fp8_current 64x64 bf16").served.launches, 2);  // the amax, the cast
  EXPECT_EQ(run("quantize nvfp4 64x64 bf16 col.rht=1").served.launches, 2);
  EXPECT_EQ(run("quantize mxfp8/nvfp4 64x64 bf16").served.launches, 2);
  EXPECT_EQ(run("quantize fp8_current 64x64 bf16 row_scaled=1").served.by,
            "amax of lines, fp8_current_pair<row, col> bf16, one read");
  EXPECT_EQ(run("split mxfp8 64x64 bf16 groups=31,33", {}, {{"first_dims", bytes_of({31, 33})}}).served.by,
            "member_offsets; mxfp8_members<row, col> bf16, one read, 2 members");
}

// Two slots worked by hand: N4.1 to N4.6.
TEST(Kernels, Update) {
  auto floats = [](std::vector<float> v) {
    Bytes b(v.size() * 4);
    std::memcpy(b.data(), v.data(), b.size());
    return b;
  };
  //                                         slot 0  slot 1
  const Planes given = {
      {"history", floats({4, 0, 8, 16, 2, 1})}, {"scale", floats({1, 3})}, {"reduced", floats({0, 32})}};
  auto update = [&](const std::string& keys) {
    return run("update fp8_delayed 3x2 f32 " + keys, {}, given).out;
  };
  auto expect = [&](const std::string& keys, const std::vector<float>& history,
                    const std::vector<float>& scale) {
    expect_equal(update(keys), {{"next.history", floats(history)}, {"next.scale", floats(scale)}}, keys);
  };
  expect("algo=max rule=bulk", {0, 0, 2, 16, 4, 1}, {56, 3});  // slot 1: last is 0, all stays
  expect("algo=max rule=api", {0, 0, 2, 1, 4, 0}, {56, 28});
  expect("algo=most_recent rule=api", {0, 0, 2, 1, 4, 0}, {112, 3});
  expect("algo=max rule=bulk margin=1", {0, 0, 2, 16, 4, 1}, {28, 3});
  expect("algo=max rule=unfused", {0, 0, 2, 1, 4, 0}, {56, 28});
  expect("algo=max rule=bulk reduction=1", {0, 0, 2, 1, 4, 32}, {56, 14});
}

TEST(Kernels, SubjectsOfAGpuSayWhyTheyAreAbsent) {
  EXPECT_EQ(make_gpu_subject()->name(), "gpu");
  EXPECT_EQ(make_cublaslt_subject()->name(), "cublaslt");
  for (auto* make : {&make_gpu_subject, &make_cublaslt_subject}) {
    const std::unique_ptr<Subject> subject = make();
    const Support present = subject->present();
    EXPECT_EQ(present.yes, present.why.empty());
    if (present.yes) continue;
    EXPECT_EQ(subject->supports(parsed("gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split")).why,
              present.why);
    EXPECT_THROW(run(parsed("quantize mxfp8 32x32 bf16"), *subject), std::runtime_error);
  }
}

}  // namespace
}  // namespace assay

// The parts of the model whose results can be worked by hand: occupancy, straight lines, times.
#include <gtest/gtest.h>

#include <algorithm>

#include "compare/model/occupancy.h"
#include "compare/model/sampling.h"
#include "compare/model/time.h"
#include "contract/line.h"

namespace assay::model {
namespace {

// CUDA's occupancy calculator gives these for compute capability 9.0.
TEST(ModelOccupancy, IsThatOfTheOccupancyCalculator) {
  struct Row {
    int registers, threads;
    uint64_t dynamic_shared;
    int blocks;
    const char* limit;
  };
  for (const Row& row :
       {Row{32, 256, 0, 8, "threads"}, Row{80, 256, 0, 3, "registers"}, Row{112, 256, 0, 2, "registers"},
        Row{190, 256, 0, 1, "registers"}, Row{16, 32, 0, 32, "blocks"}, Row{33, 256, 0, 6, "registers"},
        Row{32, 128, 64 * 1024, 3, "shared memory"}, Row{255, 512, 0, 0, "registers"}}) {
    Compiled c;
    c.registers = row.registers;
    const Occupancy o = occupancy(c, row.threads, row.dynamic_shared);
    EXPECT_EQ(o.blocks, row.blocks) << row.registers << " registers, " << row.threads << " threads";
    EXPECT_EQ(o.limit, row.limit) << row.registers << " registers, " << row.threads << " threads";
  }
}

SizedTotals sized(double elements, double a, double b) {
  return {elements, {{"warp instructions", 10 * elements}, {"sectors", a + b * elements}}};
}

TEST(ModelSampling, FollowsAStraightLineAndSeesOneThatIsNot) {
  const Extrapolated straight =
      extrapolated({sized(1e6, 500, .25), sized(2e6, 500, .25), sized(4e6, 500, .25)}, 1e9);
  EXPECT_NEAR(straight.totals.at("sectors"), 500 + .25e9, 1);
  EXPECT_LT(straight.departure, 1e-9);
  // The smallest size is off by a tenth of the largest count.
  std::vector<SizedTotals> bent = {sized(1e6, 500, .25), sized(2e6, 500, .25), sized(4e6, 500, .25)};
  bent[0].totals["sectors"] += 1e5;
  const Extrapolated seen = extrapolated(bent, 1e9);
  EXPECT_NEAR(seen.departure, 1e5 / (500 + 1e6), 1e-6);
  EXPECT_EQ(seen.departing, "sectors");
  // What is nearly nothing beside the instructions proves nothing.
  for (SizedTotals& s : bent) s.totals["rare"] = 17;
  bent[0].totals["rare"] = 1000, bent[0].totals["sectors"] -= 1e5;
  EXPECT_LT(extrapolated(bent, 1e9).departure, 1e-9);
}

TEST(ModelSampling, SmallerTensorsKeepTheRemaindersOfTheTile) {
  const auto p = parse_line("quantize mxfp8 16389x16395 bf16");
  ASSERT_TRUE(p);
  const auto lines = sample_lines(*p);
  ASSERT_TRUE(lines) << lines.error().text();
  ASSERT_EQ(lines->size(), 3u);
  for (const Problem& line : *lines) {
    EXPECT_EQ(line.x.shape.rows % 256, 16389 % 256);
    EXPECT_EQ(line.x.shape.cols % 256, 16395 % 256);
    EXPECT_FALSE(validate(line));
  }
  // More than the 1184 blocks of 8192 elements that the amax of a tensor takes; both ways to grow.
  EXPECT_GT((*lines)[1].x.shape.count(), 1184 * 8192);
  EXPECT_GT((*lines)[0].x.shape.cols, (*lines)[1].x.shape.cols);
  EXPECT_GT((*lines)[2].x.shape.rows, (*lines)[1].x.shape.rows);
  // In a line of memory of 128 bytes lie the scales of 4096 rows.
  const auto large = sample_lines(*p, Sample::large);
  ASSERT_TRUE(large) << large.error().text();
  for (const Problem& line : *large) EXPECT_GE(line.x.shape.rows, 4096);
  const auto small = parse_line("quantize mxfp8 64x256 bf16");
  EXPECT_EQ(*sample_lines(*small), std::vector<Problem>{*small});
}

TEST(ModelSampling, MembersOfASplitKeepTheirRows) {
  const auto p = parse_line("split mxfp8 16384x16384 bf16 groups=8192,8192");
  ASSERT_TRUE(p) << p.error().text();
  const auto lines = sample_lines(*p);
  ASSERT_TRUE(lines) << lines.error().text();
  for (const Problem& line : *lines) {
    EXPECT_EQ(line.x.shape.rows, 16384);
    EXPECT_LE(line.x.shape.cols, 2048);
  }
}

const Gpu& h200() { return *gpu_named("h200"); }
double limit_of(const LaunchTime& t, const char* name) {
  const auto found =
      std::find_if(t.limits.begin(), t.limits.end(), [&](const auto& l) { return l.first == name; });
  return found == t.limits.end() ? -1 : found->second;
}

// A copy of 2^28 bf16 elements by blocks that hide their latency.
Work copy_work() {
  Work w;
  w.blocks = 65536, w.threads = 256;
  w.bytes_read = w.bytes_written = 536870912;
  w.lines = 2 * 536870912.0 / 128;
  w.warp_instructions = 268435456.0 * 2 / 32;
  w.by_pipe[static_cast<size_t>(Pipe::alu)] = 268435456.0 / 32;
  return w;
}

TEST(ModelTime, OfACopyIsThatOfItsBytes) {
  const LaunchTime t = launch_time(copy_work(), Occupancy{8, "threads"}, h200());
  EXPECT_EQ(t.limit, "memory");
  EXPECT_NEAR(t.seconds, 1073741824 / 4.3e12, 1e-9);
  // 268435456 instructions of lanes at 64 per clock, a tenth less, on 132 SMs at 1.98 GHz.
  EXPECT_NEAR(limit_of(t, "alu"), 268435456 / (64 * .9 * 132 * 1.98e9), 1e-12);
  EXPECT_NEAR(limit_of(t, "issue"), 2 * 268435456 / (128 * .85 * 132 * 1.98e9), 1e-12);
  EXPECT_NEAR(limit_of(t, "lines"), 8388608 / (132 * 1.98e9), 1e-12);
}

TEST(ModelTime, SectorsWrittenInPartTakeLongerAndReadingAloneDoesNot) {
  Work w = copy_work();
  w.partial_writes = 1e6;
  EXPECT_NEAR(limit_of(launch_time(w, {}, h200()), "memory"), (1073741824 + 32e6) / 4.3e12, 1e-12);
  w.partial_writes = 0, w.bytes_written = 0;
  EXPECT_NEAR(limit_of(launch_time(w, {}, h200()), "memory"), 536870912 / (4.3e12 * 1.05), 1e-12);
}

// The one-block kernel of fp8_block before it was tuned: 13.6 instructions for each of 16384 elements, 8
// warps.
TEST(ModelTime, LatencyBindsWhereOneBlockFitsAnSm) {
  constexpr double kElements = 16384.0 * 16384;
  Work w;
  w.blocks = kElements / 16384, w.threads = 256;
  w.bytes_read = 2 * kElements, w.bytes_written = 1.03125 * kElements;
  w.warp_instructions = 13.6 * kElements / 32;
  const LaunchTime one = launch_time(w, Occupancy{1, "registers"}, h200());
  EXPECT_EQ(one.limit, "latency");
  const double clocks = 400 + 900 + 32768 / 32.0 + 13.6 * 16384 / 32 / 1.8;
  EXPECT_NEAR(one.seconds, w.blocks / 132 * clocks / 1.98e9, 1e-9);
  const LaunchTime four = launch_time(w, Occupancy{4, "registers"}, h200());
  EXPECT_EQ(four.limit, "memory");
  EXPECT_EQ(limit_of(launch_time(w, {}, h200()), "latency"), -1)
      << "without ptxas nothing is said of latency";
}

}  // namespace
}  // namespace assay::model

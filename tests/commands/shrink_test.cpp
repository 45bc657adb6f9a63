// Shrink and trace on known faults: what is left is what the fault needs, the line says all of it, and its neighbour passes.
#include "compare/shrink.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "compare/describe.h"
#include "compare/runner.h"
#include "compare/trace.h"
#include "fixtures/fill.h"
#include "tests/commands/faulty_subject.h"

namespace assay {
namespace {

// Data codes 0x30 and up in magnitude are one too small where the element of x has its lowest mantissa bit set.
void truncation(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
  const Buffer* data = find(outputs, "row.data");
  const ConstBuffer* x = find(inputs, "x");
  if (!data || p.x.source != Encoding::bf16) return;
  for (size_t i = 0; i < data->bytes.size(); ++i)
    if ((x->bytes[2 * i] & std::byte{1}) != std::byte{0} && (data->bytes[i] & std::byte{0x7F}) > std::byte{0x30} && (data->bytes[i] & std::byte{0x7F}) < std::byte{0x7F})
      data->bytes[i] = static_cast<std::byte>(static_cast<int>(data->bytes[i]) - 1);
}

Result<Shrunk> shrink_line(const std::string& text, const Subjects& subjects) {
  ShrinkOptions options;
  options.problem = line(text);
  options.subject = "faulty";
  options.timeout = 10;
  return shrink(options, subjects);
}

// Whether the line alone, printed and parsed again, fails on the faulty subject.
Outcome outcome(const Problem& p, const Subjects& subjects) {
  RunSettings settings;
  settings.subjects = {"faulty"};
  settings.jobs = 1;
  settings.claims.laws = false;
  const auto reparsed = parse_line(to_line(p));
  EXPECT_TRUE(reparsed) << to_line(p);
  const auto verdicts = run_one(*reparsed, subjects, settings);
  return verdicts.at(0).outcome;
}

TEST(Shrink, OneElementIsLeftOfAThousand) {
  const Subjects subjects = with_fault(truncation);
  for (const char* text : {"quantize mxfp8 96x160 bf16 dir=both seed=5", "quantize mxfp8 96x160 bf16 dir=row fill=wide at=7,64", "quantize fp8_current 64x64 bf16 dir=row",
                           "quantize fp8_delayed 64x64 bf16 dir=both scale=16"}) {
    const auto s = shrink_line(text, subjects);
    ASSERT_TRUE(s) << text << ": " << s.error().text();
    EXPECT_EQ(s->bad.x.fill.kind, FillKind::literal) << to_line(s->bad);
    EXPECT_EQ(s->bad.x.fill.payload.find('+'), std::string::npos) << to_line(s->bad);   // one element
    EXPECT_LE(s->bad.x.shape.count(), 32) << to_line(s->bad);
    EXPECT_EQ(s->breach.plane, "row.data");
    EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
    ASSERT_TRUE(s->good) << text;
    EXPECT_NE(outcome(*s->good, subjects), Outcome::failed) << to_line(*s->good);
    EXPECT_EQ(s->good->x.shape, s->bad.x.shape);
    EXPECT_LT(s->runs, 400u);
  }
}

TEST(Shrink, AnAmaxIsPinnedWhereACropWouldChangeIt) {
  // Wrong only where the scale is that of the whole tensor, whose amax stands in one corner and the wrong element in the other.
  auto fault = [](const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
    const Buffer *scale = find(outputs, "row.scale"), *data = find(outputs, "row.data");
    if (!scale || p.x.fill.payload.empty()) return;
    (void)inputs;
    if (code_at(Encoding::f32, scale->bytes, 0) == 0x40600000u)   // 448 / 128 = 3.5
      for (std::byte& b : data->bytes)
        if (b == std::byte{0x46}) b = std::byte{0x47};   // 3.5, of the element 1.0
  };
  const Subjects subjects = with_fault(fault);
  const auto s = shrink_line("quantize fp8_current 64x64 bf16 dir=row fill=literal:4300@0.0+3f80@63.63", subjects);
  ASSERT_TRUE(s) << s.error().text();
  ASSERT_TRUE(s->bad.row && s->bad.row->amax) << to_line(s->bad);
  EXPECT_EQ(*s->bad.row->amax, 0x43000000u);
  EXPECT_EQ(s->bad.x.shape, (Shape{1, 1})) << to_line(s->bad);
  EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed);
}

TEST(Shrink, ACrashIsShrunkToo) {
  auto crash = [](const Problem&, std::span<const ConstBuffer> inputs, std::span<const Buffer>) {
    for (std::byte b : find(inputs, "x")->bytes)
      if (b == std::byte{0x41}) std::raise(SIGKILL);
  };
  const auto s = shrink_line("quantize identity 64x64 bf16 dir=row fill=wide", with_fault(crash));
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->breach.claim, "crash");
  EXPECT_EQ(s->bad.x.shape.count(), 1) << to_line(s->bad);
}

TEST(Shrink, RefusesWhatPassesAndWhatIsNotDeterministic) {
  const auto passes = shrink_line("quantize mxfp8 64x64 bf16 dir=row", with_fault(no_fault));
  ASSERT_FALSE(passes);
  EXPECT_NE(passes.error().message.find("passes on faulty"), std::string::npos);
  auto random = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (size_t i = 0; i < 8; ++i) outputs.back().bytes[i] = static_cast<std::byte>(t.tv_nsec >> i);
  };
  const auto noise = shrink_line("quantize mxfp8 64x64 bf16 dir=row", with_fault(random));
  ASSERT_FALSE(noise);
  EXPECT_NE(noise.error().message.find("not deterministic"), std::string::npos) << noise.error().message;
}

TEST(Shrink, PrintsBothLinesAndARepro) {
  ShrinkOptions options;
  options.problem = line("quantize mxfp8 64x64 bf16 dir=row");
  options.subject = "faulty";
  std::ostringstream out, err;
  EXPECT_EQ(run_shrink(options, with_fault(truncation), out, err), 0) << err.str();
  for (const char* expected : {"  fails    quantize mxfp8 ", "  passes   quantize mxfp8 ", "  cause    row.data (e4m3)   1 of ", "assay run --subject faulty '"})
    EXPECT_NE(out.str().find(expected), std::string::npos) << expected << "\n" << out.str();
  options.subject = "nobody";
  EXPECT_EQ(run_shrink(options, with_fault(no_fault), out, err), 2);
}

TEST(Trace, NamesTheFirstDifferenceByDefault) {
  TraceOptions options;
  options.problem = line("quantize mxfp8 64x64 bf16 dir=both");
  options.subject = "faulty";
  auto fault = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) { find(outputs, "col.data")->bytes[5 * 64 + 9] ^= std::byte{1}; };
  const Subjects subjects = with_fault(fault);
  const auto t = trace(options, subjects);
  ASSERT_TRUE(t) << t.error().text();
  EXPECT_EQ(t->direction, Direction::col);
  EXPECT_EQ(t->row, 5);
  EXPECT_EQ(t->col, 9);
  ASSERT_EQ(t->outputs.size(), 2u);
  EXPECT_FALSE(t->outputs[0].differs());
  EXPECT_TRUE(t->outputs[1].differs());
  EXPECT_FALSE(t->steps.empty());
  std::ostringstream out, err;
  EXPECT_EQ(run_trace(options, subjects, out, err), 1);
  EXPECT_NE(out.str().find("<- parts here"), std::string::npos) << out.str();
}

TEST(Trace, TransposedColumnsAreFoundByTheirTensorCoordinates) {
  TraceOptions options;
  options.problem = line("quantize fp8_delayed 6x10 bf16 dir=both scale=4");
  options.subject = "faulty";
  auto fault = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) { find(outputs, "col.data")->bytes[7 * 6 + 2] ^= std::byte{1}; };   // stored (7, 2)
  const auto t = trace(options, with_fault(fault));
  ASSERT_TRUE(t) << t.error().text();
  EXPECT_EQ(t->row, 2);
  EXPECT_EQ(t->col, 7);
  EXPECT_TRUE(t->outputs.back().differs());
}

TEST(Trace, BothSidesOfARightKernelAgreeStepByStep) {
  TraceOptions options;
  options.subject = "host";
  const Subjects subjects = with_fault(no_fault);
  for (const char* text : {"quantize mxfp8 64x64 bf16 dir=both", "quantize fp8_current 8x8 f32 dir=row pow2=1", "quantize fp8_delayed 8x8 f16 dir=row scale=3", "cast e4m3 4x16 f32 fill=edges",
                           "dequantize mxfp8 33x40 bf16 dir=col"}) {
    options.problem = line(text);
    options.at = {3, 5};
    std::ostringstream out, err;
    EXPECT_EQ(run_trace(options, subjects, out, err), 0) << out.str() << err.str();
    EXPECT_NE(out.str().find("no step and no output of this element differs"), std::string::npos);
  }
  options.at = {64, 0};
  std::ostringstream out, err;
  EXPECT_EQ(run_trace(options, subjects, out, err), 2);
  EXPECT_NE(err.str().find("outside"), std::string::npos);
}

// A split shrinks to the line of one member; what only the whole split gets wrong to the members that matter.
TEST(Shrink, SplitsLoseMembersAndPackedCodesShrink) {
  const auto wrong_code = [](std::span<const Buffer> out) {
    const Buffer* data = find(out, "row.data");
    for (size_t i = 0; data && i < data->plane->bytes_of(data->plane->logical.count()); ++i)
      if ((data->bytes[i] & std::byte{7}) == std::byte{5}) data->bytes[i] ^= std::byte{1};
  };
  const Subjects anywhere = with_fault([&](const Problem&, auto, auto out) { wrong_code(out); });
  auto s = shrink_line("split mxfp4 64x64 bf16 groups=16,0,48 seed=2", anywhere);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_TRUE(s->bad.as<Quantize>()) << to_line(s->bad);
  EXPECT_LE(s->bad.x.shape.count(), 32) << to_line(s->bad);
  s = shrink_line("quantize nvfp4 64x64 bf16 seed=2", anywhere);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_LE(s->bad.x.shape.count(), 32) << to_line(s->bad);
  const Subjects grouped = with_fault([&](const Problem& p, auto, auto out) { if (p.as<Split>()) wrong_code(out); });
  s = shrink_line("split mxfp4 64x64 bf16 groups=16,0,48 seed=2", grouped);
  ASSERT_TRUE(s) << s.error().text();
  ASSERT_TRUE(s->bad.as<Split>()) << to_line(s->bad);
  EXPECT_EQ(s->bad.as<Split>()->members.size(), 1u) << to_line(s->bad);
}

}  // namespace
}  // namespace assay

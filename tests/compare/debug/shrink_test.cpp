// Shrink and trace on known faults: what is left is what the fault needs, the line says all of it, and its
// neighbour passes.
#include "compare/commands/shrink.h"
#include "compare/debug/shrink.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "compare/arithmetic/codes.h"
#include "compare/commands/trace.h"
#include "compare/debug/trace.h"
#include "compare/judge/cases.h"
#include "fixtures/fill.h"
#include "tests/compare/faulty_subject.h"
#include "tests/compare/interrupting.h"

namespace assay {
namespace {

// Data codes 0x30 and up in magnitude are one too small where the element of x has its lowest mantissa bit
// set.
void truncation(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
  const Buffer* data = find(outputs, "row.data");
  const ConstBuffer* x = find(inputs, "x");
  if (!data || p.x.source != Encoding::bf16) return;
  for (size_t i = 0; i < data->bytes.size(); ++i)
    if ((x->bytes[2 * i] & std::byte{1}) != std::byte{0} &&
        (data->bytes[i] & std::byte{0x7F}) > std::byte{0x30} &&
        (data->bytes[i] & std::byte{0x7F}) < std::byte{0x7F})
      data->bytes[i] = static_cast<std::byte>(static_cast<int>(data->bytes[i]) - 1);
}

// d(n, m) is one code off where one of a's codes of line m is 5B.
void wrong_product(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
  const ConstBuffer* a = find(inputs, "a.data");
  const Buffer* d = find(outputs, "d");
  if (!a || !p.as<Gemm>()) return;
  const int64_t k = p.as<Gemm>()->k;
  for (int64_t i = 0; i < d->plane->logical.count(); ++i)
    for (int64_t at = i % p.x.shape.cols * k, end = at + k; at < end; ++at)
      if ((a->bytes[static_cast<size_t>(at)] & std::byte{0x7F}) == std::byte{0x5B}) {
        d->bytes[2 * static_cast<size_t>(i)] ^= std::byte{1};
        break;
      }
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
  for (const char* text :
       {"quantize mxfp8 96x160 bf16 dir=both seed=5", "quantize mxfp8 96x160 bf16 dir=row fill=wide at=7,64",
        "quantize fp8_current 64x64 bf16 dir=row", "quantize fp8_delayed 64x64 bf16 dir=both scale=16"}) {
    const auto s = shrink_line(text, subjects);
    ASSERT_TRUE(s) << text << ": " << s.error().text();
    EXPECT_EQ(s->bad.x.fill.kind, FillKind::literal) << to_line(s->bad);
    EXPECT_EQ(s->bad.x.fill.payload.find('+'), std::string::npos) << to_line(s->bad);  // one element
    EXPECT_LE(s->bad.x.shape.count(), 32) << to_line(s->bad);
    EXPECT_EQ(s->breach.plane, "row.data");
    EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
    ASSERT_TRUE(s->good) << text;
    EXPECT_NE(outcome(*s->good, subjects), Outcome::failed) << to_line(*s->good);
    EXPECT_EQ(s->good->x.shape, s->bad.x.shape);
    EXPECT_LT(s->runs, 400u);
  }
}

// TransformerEngine's kernels need a multiple of 16 columns: `run` skips a narrower line, so it is no answer.
TEST(Shrink, EveryLineIsOneThatRunJudges) {
  const Subjects subjects = with_fault(truncation);
  const auto s = shrink_line("quantize mxfp8 96x160 bf16 dir=row seed=5 flavour=te", subjects);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->bad.x.shape, (Shape{1, 16})) << to_line(s->bad);
  EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
  ASSERT_TRUE(s->good);
  EXPECT_NE(outcome(*s->good, subjects), Outcome::failed) << to_line(*s->good);
  EXPECT_NE(outcome(*s->good, subjects), Outcome::unsupported) << to_line(*s->good);
}

TEST(Shrink, AnAmaxIsPinnedWhereACropWouldChangeIt) {
  // Wrong only where the scale is that of the whole tensor, whose amax stands in one corner and the wrong
  // element in the other.
  auto fault = [](const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
    const Buffer *scale = find(outputs, "row.scale"), *data = find(outputs, "row.data");
    if (!scale || p.x.fill.payload.empty()) return;
    (void)inputs;
    if (code_at(Encoding::f32, scale->bytes, 0) == 0x40600000u)  // 448 / 128 = 3.5
      for (std::byte& b : data->bytes)
        if (b == std::byte{0x46}) b = std::byte{0x47};  // 3.5, of the element 1.0
  };
  const Subjects subjects = with_fault(fault);
  const auto s =
      shrink_line("quantize fp8_current 64x64 bf16 dir=row fill=literal:4300@0.0+3f80@63.63", subjects);
  ASSERT_TRUE(s) << s.error().text();
  ASSERT_TRUE(s->bad.row && s->bad.row->amax) << to_line(s->bad);
  EXPECT_EQ(*s->bad.row->amax, 0x43000000u);
  EXPECT_EQ(s->bad.x.shape, (Shape{1, 1})) << to_line(s->bad);
  EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed);
}

// A literal fills p, m and v of an adam as well as x. The fault is wrong where m and x have other signs,
// which no literal gives.
TEST(Shrink, DataStayDrawnWhereALiteralChangesOtherInputs) {
  const auto fault = [](const Problem&, std::span<const ConstBuffer> inputs,
                        std::span<const Buffer> outputs) {
    const ConstBuffer *x = find(inputs, "x"), *m = find(inputs, "m");
    for (size_t i = 1; i < x->bytes.size(); i += 2)
      if (((x->bytes[i] ^ m->bytes[i]) & std::byte{0x80}) != std::byte{0})
        find(outputs, "next.m")->bytes[i - 1] ^= std::byte{1};
  };
  const Subjects subjects = with_fault(fault);
  const auto s = shrink_line("adam bf16 16x16 bf16 moments=bf16 fill=edges seed=5", subjects);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->bad.x.fill.kind, FillKind::edges) << to_line(s->bad);
  EXPECT_EQ(s->bad.x.shape.count(), 1) << to_line(s->bad);
  EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
  if (s->good) {
    EXPECT_NE(outcome(*s->good, subjects), Outcome::failed) << to_line(*s->good);
  }
}

// A limit may end the search while a crop of a literal still has its data beside the line.
TEST(Shrink, ALineThatBeginsAsALiteralStaysValid) {
  const auto fault = [](const Problem&, std::span<const ConstBuffer> inputs,
                        std::span<const Buffer> outputs) {
    const ConstBuffer *x = find(inputs, "x"), *m = find(inputs, "m");
    for (size_t i = 0; i < x->bytes.size(); i += 2) {
      const auto at = [i](const ConstBuffer* b) {
        return std::to_integer<int>(b->bytes[i]) | std::to_integer<int>(b->bytes[i + 1]) << 8;
      };
      if (at(x) == 0x3F81 || (at(x) != 0 && at(m) == 0)) find(outputs, "next.m")->bytes[i] ^= std::byte{1};
    }
  };
  const Subjects subjects = with_fault(fault);
  for (const size_t most : {6, 10, 15, 1000}) {
    ShrinkOptions options;
    options.problem = line("adam bf16 16x16 bf16 moments=bf16 fill=literal:3f81@7.9");
    options.subject = "faulty";
    options.timeout = 10;
    options.max_runs = most;
    const auto s = shrink(options, subjects);
    ASSERT_TRUE(s) << most << ": " << s.error().text();
    EXPECT_TRUE(make_inputs(s->bad, subjects.reference())) << to_line(s->bad);
    EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
  }
}

TEST(Shrink, OfALargeTensorTheFirstDifferenceComesFirst) {
  // One wrong element needs its window alone, and what no crop keeps, the halves of all rows swapped, one
  // element that is not zero.
  const auto swapped = [](const Problem& p, std::span<const ConstBuffer>, std::span<const Buffer> outputs) {
    const Buffer* data = find(outputs, "row.data");
    const auto columns = static_cast<std::ptrdiff_t>(p.x.shape.cols);
    if (!data || p.x.shape != Shape{256, 512}) return;
    for (auto row = data->bytes.begin(); row != data->bytes.end(); row += columns)
      std::rotate(row, row + columns / 2, row + columns);
  };
  for (const auto& [fault, halves] :
       {std::pair(Fault(truncation), 3),
        std::pair(Fault(swapped), 6)}) {  // of the whole, that its runs may come to
    const Subjects subjects = with_fault(fault);
    ShrinkOptions options;
    options.problem = line("quantize mxfp8 256x512 bf16 dir=row");
    options.subject = "faulty";
    options.timeout = 10;
    options.known = true;
    options.max_elements = halves * 256 * 512 / 2;
    const auto s = shrink(options, subjects);
    ASSERT_TRUE(s) << s.error().text();
    EXPECT_EQ(s->bad.x.fill.kind, FillKind::literal) << to_line(s->bad);
    EXPECT_EQ(s->bad.x.fill.payload.find('+'), std::string::npos) << to_line(s->bad);
    EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
    EXPECT_LT(s->runs, 100u);
  }
}

TEST(Shrink, ALimitEndsItAndIsSaid) {
  const Subjects subjects = with_fault(truncation);
  ShrinkOptions options;
  options.problem = line("quantize mxfp8 96x160 bf16 dir=row seed=5");
  options.subject = "faulty";
  options.max_elements = 1;
  const auto elements = shrink(options, subjects);
  ASSERT_TRUE(elements) << elements.error().text();
  EXPECT_TRUE(elements->exhausted);
  EXPECT_EQ(to_line(elements->bad), to_line(options.problem));
  options.max_elements = 0;
  options.max_seconds = 1e-9;
  const auto seconds = shrink(options, subjects);
  ASSERT_TRUE(seconds) << seconds.error().text();
  EXPECT_TRUE(seconds->exhausted);
  options.max_seconds = 100;
  EXPECT_FALSE(shrink(options, subjects)->exhausted);
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
    // A process of its own runs every evaluation: its number never comes again soon, where a clock's low bits
    // may.
    for (size_t i = 0; i < 8; ++i) outputs.back().bytes[i] = static_cast<std::byte>(getpid() >> i);
  };
  const auto noise = shrink_line("quantize mxfp8 64x64 bf16 dir=row", with_fault(random));
  ASSERT_FALSE(noise);
  EXPECT_NE(noise.error().message.find("not deterministic"), std::string::npos) << noise.error().message;
}

TEST(Shrink, PrintsBothLinesAndARepro) {
  ShrinkCommandOptions options;
  options.problem = line("quantize mxfp8 64x64 bf16 dir=row");
  options.subject = "faulty";
  std::ostringstream out, err;
  EXPECT_EQ(run_shrink(options, with_fault(truncation), out, err), 0) << err.str();
  for (const char* expected : {"  fails    quantize mxfp8 ", "  passes   quantize mxfp8 ",
                               "  cause    row.data (e4m3)   1 of ", "assay run --subject faulty '"})
    EXPECT_NE(out.str().find(expected), std::string::npos) << expected << "\n" << out.str();
  options.subject = "nobody";
  EXPECT_EQ(run_shrink(options, with_fault(no_fault), out, err), 2);
}

TEST(Trace, NamesTheFirstDifferenceByDefault) {
  TraceOptions options;
  options.problem = line("quantize mxfp8 64x64 bf16 dir=both");
  options.subject = "faulty";
  auto fault = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) {
    find(outputs, "col.data")->bytes[5 * 64 + 9] ^= std::byte{1};
  };
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
  auto fault = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) {
    find(outputs, "col.data")->bytes[7 * 6 + 2] ^= std::byte{1};
  };  // stored (7, 2)
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
  for (const char* text :
       {"quantize mxfp8 64x64 bf16 dir=both", "quantize fp8_current 8x8 f32 dir=row pow2=1",
        "quantize fp8_delayed 8x8 f16 dir=row scale=3", "cast e4m3 4x16 f32 fill=edges",
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
  const Subjects grouped = with_fault([&](const Problem& p, auto, auto out) {
    if (p.as<Split>()) wrong_code(out);
  });
  s = shrink_line("split mxfp4 64x64 bf16 groups=16,0,48 seed=2", grouped);
  ASSERT_TRUE(s) << s.error().text();
  ASSERT_TRUE(s->bad.as<Split>()) << to_line(s->bad);
  EXPECT_EQ(s->bad.as<Split>()->members.size(), 1u) << to_line(s->bad);
}

TEST(Shrink, AProductShrinksInEverySizeAndToLiteralOperands) {
  const Subjects subjects = with_fault(wrong_product);
  for (const char* text : {"gemm a=mxfp8 b=mxfp8 40x36x96 bias=bf16 beta=1 alpha=2 fill=wide",
                           "gemm a=fp8_delayed b=nvfp4 33x20x70 a.scale=16 a.at=3,5"}) {
    const auto s = shrink_line(text, subjects);
    ASSERT_TRUE(s) << text << ": " << s.error().text();
    const Gemm& op = *s->bad.as<Gemm>();
    EXPECT_EQ(s->bad.x.shape, (Shape{1, 1})) << to_line(s->bad);
    EXPECT_LE(op.k, 16) << to_line(s->bad);
    EXPECT_FALSE(op.bias || op.reads_c() || op.multiplies()) << to_line(s->bad);
    EXPECT_EQ(op.a.fill.kind, FillKind::literal) << to_line(s->bad);
    EXPECT_LE(std::ranges::count(op.a.fill.payload, '+'), 1)
        << to_line(s->bad);  // the element and, of mxfp8, the one that scales it
    EXPECT_EQ(op.b.fill.kind, FillKind::zeros) << to_line(s->bad);  // the fault looks at a alone
    EXPECT_EQ(s->breach.plane, "d");
    EXPECT_EQ(outcome(s->bad, subjects), Outcome::failed) << to_line(s->bad);
    ASSERT_TRUE(s->good) << text;
    EXPECT_NE(outcome(*s->good, subjects), Outcome::failed) << to_line(*s->good);
    EXPECT_TRUE(s->good_differs.starts_with("a element (")) << s->good_differs;
  }
}

// The amax of all of a stands in another line than the element that goes wrong under it.
TEST(Shrink, AnOperandsAmaxIsPinned) {
  const auto s = shrink_line(
      "gemm a=fp8_current b=identity 64x32x32 a.fill=literal:43e0@0.0+3f80@63.31+3fb0@63.30 "
      "b.fill=exact_sums",
      with_fault([](const Problem& p, auto inputs, auto outputs) {
        const ConstBuffer *a = find(inputs, "a.data"), *scale = find(inputs, "a.scale_inv");
        if (p.as<Gemm>() && code_at(Encoding::f32, scale->bytes, 0) == 0x3F800000u &&
            a->bytes.back() == std::byte{0x38})
          find(outputs, "d")->bytes.back() ^= std::byte{1};
      }));
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->bad.x.shape, (Shape{1, 1})) << to_line(s->bad);
  ASSERT_TRUE(s->bad.as<Gemm>()->a.quantizer.amax) << to_line(s->bad);
  EXPECT_EQ(*s->bad.as<Gemm>()->a.quantizer.amax, 0x43E00000u);
}

// Unlike a name that no subject has, which is bad usage.
// Ctrl-C in the n-th run of the subject.
struct Ended {
  int status;
  std::string out, err;
};
Ended interrupted_in(int n, const std::string& text) {
  ShrinkCommandOptions options;
  options.problem = line(text);
  options.subject = "interrupting";
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(
      std::make_unique<fakes::Interrupting>("interrupting", n, std::make_unique<FaultySubject>(truncation)));
  std::ostringstream out, err;
  const int status = run_shrink(options, subjects, out, err);
  return {status, out.str(), err.str()};
}

TEST(Shrink, AnInterruptIsNoFailureOfTheLine) {
  for (const int n : {1, 2}) {
    const Ended r = interrupted_in(n, "quantize mxfp8 64x64 bf16 dir=row");
    EXPECT_EQ(r.status, 130) << r.out << r.err;
    EXPECT_EQ(r.err, "assay: interrupted before the line was seen to fail\n");
  }
}

TEST(Shrink, AnInterruptLeavesTheSmallestLineThatFailed) {
  for (const int n : {3, 6, 12, 20}) {
    const Ended r = interrupted_in(n, "quantize mxfp8 64x64 bf16 dir=row");
    EXPECT_EQ(r.status, 130) << r.out << r.err;
    EXPECT_EQ(r.err, "");
    EXPECT_NE(r.out.find("; it was interrupted"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("claim    parity"), std::string::npos) << r.out;
    const size_t at = r.out.find("  fails    ") + 11;
    const std::string left = r.out.substr(at, r.out.find('\n', at) - at);
    EXPECT_EQ(outcome(line(left), with_fault(truncation)), Outcome::failed) << left;
    EXPECT_EQ(n > 3, line(left).x.shape.count() < 64 * 64) << left;
  }
}

TEST(Shrink, AnAbsentSubjectIsStatusThree) {
  class Absent : public FaultySubject {
   public:
    Absent() : FaultySubject(no_fault) {}
    std::string_view name() const override { return "absent"; }
    Support present() const override { return {false, "no such machine"}; }
  };
  Subjects subjects = with_fault(no_fault);
  subjects.owned.push_back(std::make_unique<Absent>());
  ShrinkCommandOptions options;
  options.problem = line("quantize mxfp8 32x32 bf16 dir=row");
  options.subject = "absent";
  std::ostringstream out, err;
  EXPECT_EQ(run_shrink(options, subjects, out, err), 3);
  EXPECT_NE(err.str().find("subject absent is absent: no such machine"), std::string::npos) << err.str();
}

TEST(Trace, OfAProductNamesTheFirstElementOfDThatDiffers) {
  TraceOptions options;
  options.subject = "faulty";
  options.problem = line("gemm a=mxfp8 b=nvfp4 5x7x40 bias=f32");  // d is 7x5
  const Subjects subjects = with_fault(
      [](const Problem&, auto, auto outputs) { find(outputs, "d")->bytes[2 * (6 * 5 + 3)] ^= std::byte{1}; });
  const auto t = trace(options, subjects);
  ASSERT_TRUE(t) << t.error().text();
  EXPECT_EQ(t->row, 6);
  EXPECT_EQ(t->col, 3);
  ASSERT_EQ(t->outputs.size(), 1u);
  EXPECT_TRUE(t->outputs[0].differs());
  for (const auto& [at, said] :
       {std::pair{std::pair<int64_t, int64_t>{7, 0}, "outside d, which is [N, M] = 7x5"},
        {{0, 5}, "outside d"}}) {
    options.at = at;
    const auto outside = trace(options, subjects);
    ASSERT_FALSE(outside);
    EXPECT_NE(outside.error().text().find(said), std::string::npos) << outside.error().text();
  }
  options.at = {6, 3};
  options.direction = Direction::row;
  ASSERT_FALSE(trace(options, subjects));
  EXPECT_NE(trace(options, subjects).error().text().find("leave --direction out"), std::string::npos);
}

// The kernels' steps of a product against the reference's: a step that only one side has is as wrong as one
// that differs.
TEST(Trace, BothSidesOfAProductAgreeStepByStep) {
  TraceOptions options;
  const Subjects subjects = with_fault(no_fault);
  for (const char* text : {"gemm a=mxfp8 b=nvfp4 5x7x40 op=TN",
                           "gemm a=fp8_block b=fp8_current 5x7x300 op=NN alpha=3 beta=2 bias=f16",
                           "gemm a=identity b=mxfp4 16x32x32 op=NT out=e4m3 bias=f32",
                           "gemm a=nvfp4 b=nvfp4 5x7x40 a.row_scaled=1 out=f32",
                           "gemm a=identity b=identity 5x7x9 f32 fill=nonfinite out=f32",
                           "gemm a=mxfp8 b=mxfp8 5x7x0 bias=bf16"}) {
    options.problem = line(text);
    for (const auto& at : {std::pair<int64_t, int64_t>{0, 0}, {6, 4}, {3, 1}}) {
      options.at = at;
      const auto t = trace(options, subjects);
      ASSERT_TRUE(t) << text << ": " << t.error().text();
      ASSERT_GE(t->steps.size(), 2u) << text;
      for (const TraceRow& r : t->steps)
        EXPECT_TRUE(r.left && r.right && !r.differs()) << text << ": " << r.clause << " " << r.what;
      // The last step is what stands in d.
      EXPECT_EQ(t->steps.back().right, t->outputs.at(0).right) << text;
    }
  }
}

}  // namespace
}  // namespace assay

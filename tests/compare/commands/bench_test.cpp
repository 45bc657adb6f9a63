// Bench: no number without a verdict, results that can be read back, regressions beyond the noise.
#include "compare/commands/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "compare/judge/cases.h"
#include "compare/subjects/forwarding.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "tests/compare/faulty_subject.h"
#include "tests/compare/interrupting.h"

namespace assay {
namespace {

struct Ran {
  int status;
  std::string out, err;
};
Ran bench(BenchOptions options, const Subjects& subjects,
          const std::string& text = "quantize mxfp8 64x64 bf16 dir=row") {
  options.entries = {entry_of(line(text))};
  options.repetitions = 3;
  options.min_time = 0.001;
  std::ostringstream out, err;
  const int status = run_bench(options, subjects, out, err);
  return {status, out.str(), err.str()};
}
std::string scratch(const std::string& name) { return testing::TempDir() + "assay_bench_" + name; }

TEST(Bench, TimesWhatPassesAndLabelsTheHostExecutor) {
  BenchOptions options;
  options.output = scratch("a.json");
  const Ran r = bench(options, with_fault(no_fault));
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("host executor: no performance figure"), std::string::npos) << r.out;
  const auto file = json::read(options.output);
  ASSERT_TRUE(file) << file.error().text();
  EXPECT_EQ(file->text("schema"), "assay.bench/1");
  EXPECT_FALSE(file->text("fingerprint").empty());
  const json::Array& rows = *file->find("results")->array();
  ASSERT_EQ(rows.size(), 2u);
  for (const json::Value& row : rows) {
    EXPECT_EQ(row.find("samples")->to_int(), 3);
    EXPECT_GT(*row.find("seconds")->find("median")->to_double(), 0);
    EXPECT_LE(*row.find("seconds")->find("min")->to_double(),
              *row.find("seconds")->find("median")->to_double());
    EXPECT_GT(*row.find("copy_seconds")->to_double(), 0);
    EXPECT_EQ(row.find("bytes")->to_int(), 64 * 64 * 2 + 128 * 4 + 64 * 64);
    EXPECT_EQ(row.find("elements")->to_int(), 64 * 64);
  }
}

TEST(Bench, AWrongKernelGetsNoTime) {
  BenchOptions options;
  options.subjects = {"faulty"};
  auto fault = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) {
    outputs.back().bytes[0] ^= std::byte{1};
  };
  const Ran r = bench(options, with_fault(fault));
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("not timed: failed (claim parity)"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("median"), std::string::npos) << r.out;
}

// Ctrl-C in the verdict, and in the timing: the case is neither timed nor failed. What was timed before is
// kept; before the verdicts nothing is.
TEST(Bench, AnInterruptIsNoFailure) {
  for (const int n : {1, 2, 4}) {  // a sample is one run or more
    BenchOptions options;
    options.subjects = {"reference", "interrupting"};
    options.output = scratch("interrupted.json");
    Subjects subjects = with_fault(no_fault);
    subjects.owned.push_back(std::make_unique<fakes::Interrupting>("interrupting", n));
    const Ran r = bench(options, subjects);
    EXPECT_EQ(r.status, 130) << r.out;
    EXPECT_EQ(r.out.find("crashed"), std::string::npos) << r.out;
    const size_t timed = n == 4;
    EXPECT_NE(r.out.find("interrupted: 0 of 1 lines were judged and timed\n" + std::to_string(timed) +
                         " timed, 0 failed, 0 skipped\n"),
              std::string::npos)
        << r.out;
    EXPECT_EQ(json::read(options.output)->find("results")->array()->size(), timed);
  }
}

// The lines of an earlier group were judged and timed before.
TEST(Bench, AnInterruptInALaterGroupLeavesTheTimesOfEarlierOnes) {
  const auto group = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  BenchOptions options;
  options.subjects = {"interrupting"};
  options.repetitions = 1, options.min_time = 1e-6;
  for (int64_t rows = 1; rows <= group + 1; ++rows)
    options.entries.push_back(entry_of(line("quantize mxfp8 " + std::to_string(rows) + "x64 bf16 dir=row")));
  Subjects subjects = with_fault(no_fault);
  auto late = std::make_unique<fakes::Interrupting>("interrupting", 1);
  late->counted = [=](const Problem& p) { return p.x.shape.rows == group + 1; };
  subjects.owned.push_back(std::move(late));
  std::ostringstream out, err;
  EXPECT_EQ(run_bench(options, subjects, out, err), 130) << out.str();
  const std::string all = std::to_string(group + 1), some = std::to_string(group);
  EXPECT_NE(out.str().find("interrupted: " + some + " of " + all + " lines were judged and timed\n" + some +
                           " timed, 0 failed, 0 skipped\n"),
            std::string::npos)
      << out.str();
}

// The time of an interpreter of PTX is not that of the kernel.
TEST(Bench, ASubjectThatInterpretsGetsNoTimeButACommand) {
  struct Interpreter final : ForwardingSubject {
    using ForwardingSubject::ForwardingSubject;
    bool interprets() const override { return true; }
  };
  BenchOptions options;
  options.subjects = {"interpreter"};
  Subjects subjects = with_fault(no_fault);
  subjects.owned.push_back(std::make_unique<Interpreter>(make_reference_subject(), "interpreter"));
  const Ran r = bench(options, subjects);
  EXPECT_EQ(r.status, 3) << r.out;
  EXPECT_NE(r.out.find("assay count 'quantize mxfp8 64x64 bf16 dir=row' --subject interpreter"),
            std::string::npos)
      << r.out;
  EXPECT_EQ(r.out.find("median"), std::string::npos) << r.out;
}

TEST(Bench, ARegressionIsStatusOne) {
  BenchOptions options;
  options.subjects = {"faulty"};  // sound here, and not the host executor, whose times are not compared
  options.output = scratch("now.json");
  const Subjects subjects = with_fault(no_fault);
  ASSERT_EQ(bench(options, subjects).status, 0);
  auto file = *json::read(options.output);
  auto scaled = [&](double factor, const std::function<void(json::Value&)>& change) {
    json::Value copy = file;
    json::Value row = (*copy.find("results")->array())[0];
    json::Value seconds = *row.find("seconds");
    seconds.set("median", *seconds.find("median")->to_double() * factor);
    row.set("seconds", seconds);
    copy.set("results", json::array({row}));
    change(copy);
    const std::string path = scratch("earlier.json");
    EXPECT_FALSE(write_file(path, std::string_view(json::dump(copy))));
    return path;
  };
  auto as_is = [](json::Value&) {};
  options.output.clear();
  options.against = scaled(0.01, as_is);
  Ran r = bench(options, subjects);
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.out.find("SLOWER than"), std::string::npos);
  options.against = scaled(100, as_is);
  r = bench(options, subjects);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("1 compared"), std::string::npos);
  options.against = scaled(1, [](json::Value& f) {
    f.set("machines", json::object({{"faulty", "another machine"}}));
  });
  EXPECT_EQ(bench(options, subjects).status, 2);
  options.against = scaled(1, [](json::Value& f) { f.set("schema", "other"); });
  EXPECT_EQ(bench(options, subjects).status, 2);
  options.against = scratch("absent.json");
  EXPECT_EQ(bench(options, subjects).status, 2);
}

TEST(Bench, AnUnwritablePathIsRefusedBeforeTheRun) {
  BenchOptions options;
  options.subjects = {"faulty"};
  options.output = scratch("no folder") + "/times.json";
  const Ran r = bench(options, with_fault(no_fault));
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("--output: cannot write"), std::string::npos) << r.err;
}

TEST(Bench, NothingTimedIsStatusThree) {
  class Picky : public FaultySubject {
   public:
    Picky() : FaultySubject(no_fault) {}
    Support supports(const Problem&) const override { return {false, "picky"}; }
  };
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(std::make_unique<Picky>());
  BenchOptions options;
  options.subjects = {"faulty"};
  const Ran r = bench(options, subjects);
  EXPECT_EQ(r.status, 3) << r.out;
  EXPECT_NE(r.out.find("unsupported: picky"), std::string::npos) << r.out;
}

}  // namespace
}  // namespace assay

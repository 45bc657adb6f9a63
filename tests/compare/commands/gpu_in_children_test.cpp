// A process that has asked a GPU's driver for anything cannot fork workers that use the GPU: commands ask a
// subject in children alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "compare/commands/bench.h"
#include "compare/commands/certify.h"
#include "compare/commands/explain.h"
#include "compare/commands/hunt.h"
#include "compare/commands/record.h"
#include "compare/commands/run.h"
#include "compare/commands/shrink.h"
#include "compare/commands/trace.h"
#include "tests/compare/fakes.h"
#include "tests/fixtures/scratch.h"

namespace assay {
namespace {

const std::string kLine = "quantize mxfp8 33x64 bf16 dir=row";

SuiteEntry entry() { return {"line", 1, kLine, fakes::problem(kLine), {}}; }

struct Ran {
  int status = 0;
  std::string text;
};
// Runs a command that writes to files.
template <class Command> Ran ran(Command&& command) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* both = open_memstream(&text, &size);
  Ran r;
  r.status = command(both);
  std::fclose(both);
  r.text.assign(text, size);
  std::free(text);
  return r;
}
void expect(const Ran& r, int status, const std::string& says) {
  EXPECT_EQ(r.status, status) << r.text;
  EXPECT_NE(r.text.find(says), std::string::npos) << r.text;
  EXPECT_EQ(r.text.find("initialization error"), std::string::npos) << r.text;
}

TEST(GpuInChildren, Run) {
  RunOptions options;
  options.entries = {entry()};
  options.settings.subjects = {"gpu"};
  options.require = {"gpu"};
  expect(ran([&](std::FILE* f) { return run_run(options, fakes::on_a_gpu(), f, f); }), 0, "1 passed");
  expect(ran([&](std::FILE* f) { return run_run(options, fakes::on_a_gpu(true), f, f); }), 1, "1 failed");
}

TEST(GpuInChildren, Certify) {
  CertifyOptions options;
  options.extent = CertifyExtent::quick;
  options.only = "cast e4m3 bf16";
  options.subjects = {"gpu"};
  expect(ran([&](std::FILE* f) { return run_certify(options, fakes::on_a_gpu(), f, f); }), 0, "passed");
  expect(ran([&](std::FILE* f) { return run_certify(options, fakes::on_a_gpu(true), f, f); }), 1,
         "1 code apart");
}

TEST(GpuInChildren, Explain) {
  ExplainOptions options;
  options.what = kLine;
  options.subject = "gpu";
  options.budget = 1;
  expect(ran([&](std::FILE* f) { return run_explain(options, fakes::on_a_gpu(true), f, f); }), 1, "row.data");
}

TEST(GpuInChildren, ShrinkAndTrace) {
  std::ostringstream out;
  ShrinkCommandOptions shrink;
  shrink.problem = fakes::problem(kLine), shrink.subject = "gpu";
  EXPECT_EQ(run_shrink(shrink, fakes::on_a_gpu(true), out, out), 0) << out.str();
  TraceOptions trace;
  trace.problem = fakes::problem(kLine), trace.subject = "gpu";
  EXPECT_EQ(run_trace(trace, fakes::on_a_gpu(true), out, out), 1) << out.str();
  EXPECT_EQ(out.str().find("initialization error"), std::string::npos) << out.str();
}

TEST(GpuInChildren, Bench) {
  BenchOptions options;
  // More than one group, of which the last is not full.
  const size_t lines = 2 * std::max(1u, std::thread::hardware_concurrency()) + 1;
  for (size_t n = 1; n <= lines; ++n) {
    const std::string line = "quantize mxfp8 " + std::to_string(n) + "x64 bf16 dir=row";
    options.entries.push_back({"line", n, line, fakes::problem(line), {}});
  }
  options.subjects = {"gpu"};
  options.repetitions = 1, options.min_time = 1e-6;
  std::ostringstream out;
  EXPECT_EQ(run_bench(options, fakes::on_a_gpu(), out, out), 0) << out.str();
  size_t last = 0;
  for (const SuiteEntry& one : options.entries) {
    const size_t at = out.str().find(one.text + "\n", last);
    EXPECT_NE(at, std::string::npos) << one.text << " is not behind the lines before it in\n" << out.str();
    last = at;
  }
  EXPECT_NE(out.str().find("\n" + std::to_string(lines) + " timed"), std::string::npos) << out.str();
}

TEST(GpuInChildren, RecordAndHunt) {
  const Scratch scratch;
  RecordOptions record;
  record.entries = {entry()};
  record.subject = "gpu";
  record.output = scratch.path("record.safetensors");
  expect(ran([&](std::FILE* f) { return run_record(record, fakes::on_a_gpu(), f, f); }), 0, "1 passed");
  HuntOptions hunt;
  hunt.subject = "gpu";
  hunt.folder = scratch.path("hunt");
  hunt.batches = 1;
  expect(ran([&](std::FILE* f) { return run_hunt(hunt, fakes::on_a_gpu(), f, f); }), 0, "0 failures");
}

}  // namespace
}  // namespace assay

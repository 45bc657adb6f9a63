#include "compare/report/report.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compare/commands/run.h"
#include "compare/report/screen.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& p) {
  std::ifstream in(p);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

struct Ran {
  int status;
  std::string out, junit, jsonl;
};
Ran run(const std::vector<SuiteEntry>& entries, const Subjects& subjects, RunOptions o = {}) {
  const fs::path dir = fs::temp_directory_path() / ("assay_report_" + std::to_string(::getpid()));
  fs::create_directories(dir);
  o.entries = entries;
  if (o.settings.subjects == std::vector<std::string>{"host"}) o.settings.subjects = {"fake"};
  if (o.settings.jobs == RunOptions{}.settings.jobs) o.settings.jobs = 2;
  o.report.junit = dir / "r.xml";
  o.report.jsonl = dir / "r.jsonl";
  std::FILE* out = std::fopen((dir / "out").c_str(), "w");
  std::FILE* err = std::fopen((dir / "err").c_str(), "w");
  const int status = run_run(o, subjects, out, err);
  std::fclose(out);
  std::fclose(err);
  Ran r{status, slurp(dir / "out"), slurp(dir / "r.xml"), slurp(dir / "r.jsonl")};
  fs::remove_all(dir);
  return r;
}
std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n'), start = text.rfind('\n', end);
  return text.substr(start + 1, end - start);
}
// What was written to a file, which is closed.
std::string closed(std::FILE* file) {
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}
void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
}

SuiteEntry entry(const std::string& line, size_t number) {
  SuiteEntry e;
  e.file = "some.cases";
  e.line = number;
  e.text = line;
  e.problem = fakes::problem(line);
  return e;
}
const std::string kLine = "quantize mxfp8 64x96 bf16 dir=both";

TEST(Report, AFailureFitsOneScreen) {
  const Subjects subjects = fakes::with("fake", [](auto&, auto out, auto&) {
    fakes::output(out, "row.scale_inv")->bytes[12 * 4 + 1] ^= std::byte{1};
  });
  const Ran r = run({entry(kLine, 5)}, subjects);
  EXPECT_EQ(r.status, 1);
  for (const char* part :
       {"FAILED  some.cases:5\n  quantize mxfp8 64x96", "claim    fake == reference", "policy bitwise",
        "cause    row.scale_inv (e8m0)   1 of 192 differ     first at row 12, columns 32..63", "1 code apart",
        "reference", "hint     one binade",
        "witness  row.data:", "repro    assay run 'quantize mxfp8 64x96 bf16 dir=both' --subject fake",
        "smaller  assay shrink '", "--at 12,32"})
    expect_in(r.out, part);
  EXPECT_LE(std::count(r.out.begin(), r.out.end(), '\n'), 24);
  EXPECT_EQ(last_line(r.out), "0 passed, 1 failed, 0 skipped");
  expect_in(r.out, "4 kernels launched\n");
}

// A pass of nothing says so.
TEST(Report, CasesWithoutAnElementAreCounted) {
  const Subjects subjects = fakes::with("fake", nullptr);
  const Ran r = run({entry("quantize mxfp8 0x256 bf16", 1), entry(kLine, 2)}, subjects);
  EXPECT_EQ(last_line(r.out), "2 passed, 0 failed, 0 skipped");
  expect_in(r.out, "1 of the passed has no element: nothing was compared there\n");
  EXPECT_EQ(run({entry(kLine, 2)}, subjects).out.find("no element"), std::string::npos);
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

// What fails everywhere in one way is told once, also after another failure between, which is not swallowed.
TEST(Report, OneCauseOfManyLinesIsToldOnce) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    if (p.x.fill.seed == 3) fakes::output(out, "row.data")->bytes[0] ^= std::byte{1};
    else throw std::runtime_error("no device");
  });
  std::vector<SuiteEntry> entries;
  for (size_t i = 0; i < 7; ++i) entries.push_back(entry(fmt::format("{} seed={}", kLine, i), i + 1));
  const Ran r = run(entries, subjects);
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(last_line(r.out), "0 passed, 7 failed, 0 skipped");
  expect_in(r.out, "same cause as above: 2 more lines (-v shows them)");   // before the other one
  expect_in(r.out, "same causes as above: 3 more lines (-v shows them)");  // and after it
  expect_in(r.out, "causes of the 7 failures, as far as they show\n       6  ");
  expect_in(r.out, "no device   first some.cases:1\n       1  fake == reference at data: one code apart");
  EXPECT_EQ(count_of(r.out, "FAILED  some.cases"), 2u) << r.out;
}

// A plugin with one mistake fails on many lines, in both directions and several formats, and its first
// difference is another number each time.
TEST(Report, APluginThatFailsEverywhereHasOneCause) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    const Buffer* b = fakes::output(out, p.x.fill.seed % 2 ? "col.data" : "row.data");
    const size_t n = std::min<size_t>(b->bytes.size(), 4 + p.x.fill.seed * 3);
    for (size_t i = p.x.fill.seed; i < n; ++i) b->bytes[i] ^= static_cast<std::byte>(8 << (i % 3));
  });
  std::vector<SuiteEntry> entries;
  for (size_t i = 0; i < 12; ++i)
    entries.push_back(entry(
        fmt::format("quantize {} {}x96 bf16 seed={}", i % 3 ? "mxfp8" : "fp8_current", 32 + 32 * (i % 2), i),
        i + 1));
  const Ran r = run(entries, subjects);
  EXPECT_EQ(last_line(r.out), "0 passed, 12 failed, 0 skipped");
  EXPECT_EQ(count_of(r.out, "FAILED  some.cases"), 1u) << r.out;
  expect_in(r.out, "same cause as above: 11 more lines (-v shows them)");
  expect_in(r.out, "      12  fake == reference at data: several codes apart   first some.cases:1\n");
  EXPECT_EQ(count_of(r.jsonl, "\"record\": \"case\""), 12u) << "the files hold every failure";
  EXPECT_EQ(count_of(r.junit, "<failure "), 12u);
  RunOptions all;
  all.report.verbose = true;
  EXPECT_EQ(count_of(run(entries, subjects, all).out, "FAILED  some.cases"), 12u);
}

// One mistake that looks like another one on another input: eight scales and more hold a constant, a single
// one is several codes off. The cause that explains the one predicts the other.
TEST(Report, PatternsOfOneCauseAreOneCause) {
  const Subjects subjects = fakes::with("fake", [](auto&, auto out, auto&) {
    for (std::byte& scale : fakes::output(out, "row.scale_inv")->bytes) scale = std::byte{0};
  });
  const std::vector<SuiteEntry> entries = {entry("quantize mxfp8 64x96 bf16 dir=row", 1),
                                           entry("quantize mxfp8 1x1 bf16 dir=row", 2),
                                           entry("quantize mxfp8 64x96 bf16 dir=row seed=1", 3)};
  RunOptions options;
  options.settings.jobs = 1;  // in the order of the lines
  const Ran r = run(entries, subjects, options);
  EXPECT_EQ(last_line(r.out), "0 passed, 3 failed, 0 skipped");
  EXPECT_EQ(count_of(r.out, "FAILED  some.cases"), 1u) << r.out;
  expect_in(r.out, "       3  fake == reference at scales: the code 00 in all of them");
  expect_in(r.out, "and 1 more pattern; one cause makes every byte of the first line of each: scales are 0");
  expect_in(r.out, "[scale.zero.stored]");
  options.budget = 0;  // no search
  EXPECT_EQ(count_of(run(entries, subjects, options).out, "FAILED  some.cases"), 2u);
}

// Two mistakes in one plane stay two, whichever comes first: neither cause predicts the other's bytes.
TEST(Report, PatternsOfTwoCausesStayApart) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    for (std::byte& scale : fakes::output(out, "row.scale_inv")->bytes)
      scale = p.x.fill.seed % 2 ? static_cast<std::byte>(std::to_integer<int>(scale) - 1) : std::byte{0};
  });
  std::vector<SuiteEntry> entries;
  for (size_t i = 0; i < 6; ++i)
    entries.push_back(entry(fmt::format("quantize mxfp8 64x96 bf16 dir=row seed={}", i), i + 1));
  for (const bool turned : {false, true}) {
    if (turned) std::reverse(entries.begin(), entries.end());
    const Ran r = run(entries, subjects);
    EXPECT_EQ(count_of(r.out, "FAILED  some.cases"), 2u) << r.out;
    EXPECT_EQ(count_of(r.out, "\n       3  fake == reference at scales: "), 2u) << r.out;
    EXPECT_EQ(r.out.find("more pattern"), std::string::npos) << r.out;
  }
}

// What a law says has other numbers on each line.
TEST(Report, ALawThatFailsOnManyLinesIsOneCause) {
  std::FILE* out = std::tmpfile();
  const auto report = make_text_report(out, {});
  Totals totals;
  for (const char* amax : {"3", "1.7e+38", "448"}) {
    Verdict v;
    v.subject = "host";
    v.outcome = Outcome::failed;
    Breach& b = v.breaches.emplace_back();
    b.claim = "range";
    b.got = "reference";
    b.plane = "row.scale";
    b.differ = b.of = 1;
    b.got_code = 0;
    b.message = fmt::format("the amax {} has the scale 0", amax);
    totals.add(v);
    report->result(entry(kLine, totals.failed), v);
  }
  report->finish(totals);
  const std::string said = closed(out);
  expect_in(said, "same cause as above: 2 more lines");
  expect_in(said, "       3  range of reference at scale: the amax 3 has the scale 0   first some.cases:1\n");
}

// What passes here may fail on a GPU. What a subject says about that is printed once for all its cases.
TEST(Report, WhatMayDifferOnAGpuIsTold) {
  std::FILE* out = std::tmpfile();
  const auto report = make_text_report(out, {});
  Totals totals;
  for (const char* served :
       {"k; 12 lane instructions; depends on contraction at PTX line 3", "k; independent of contraction",
        "k; 14 lane instructions; depends on contraction at PTX line 3"}) {
    Verdict v;
    v.subject = "ptx:k";
    v.outcome = Outcome::passed;
    v.served = served;
    totals.add(v);
    report->result(entry(kLine, totals.passed), v);
  }
  report->finish(totals);
  const std::string said = closed(out);
  EXPECT_TRUE(said.starts_with("a GPU may give other bytes 2: ptx:k depends on contraction at PTX line 3\n"))
      << said;
}

// However many workers judge, the lines come in the suite's order, and so do the causes.
TEST(Report, TheCausesAreTheSameForAnyNumberOfWorkers) {
  std::vector<SuiteEntry> entries;
  for (size_t i = 0; i < 24; ++i) entries.push_back(entry(fmt::format("{} seed={}", kLine, i), i + 1));
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    const auto seed = p.x.fill.seed;
    if (seed % 3 == 0) fakes::output(out, "row.data")->bytes[seed] ^= std::byte{1};
    else fakes::output(out, seed % 3 == 1 ? "row.scale_inv" : "col.scale_inv")->bytes[0] ^= std::byte{0x10};
  });
  const auto shown = [&](int jobs) {
    RunOptions o;
    o.settings.jobs = jobs;
    return run(entries, subjects, o).out;
  };
  const std::string one = shown(1);
  expect_in(one, "causes of the 24 failures");
  EXPECT_EQ(one, shown(4));
}

TEST(Report, StatusAndLastLine) {
  const Subjects good = fakes::with("fake", nullptr);
  const Ran ok = run({entry(kLine, 1), entry("quantize mxfp8 96x160 bf16 flavour=te arch=sm90", 2)}, good);
  EXPECT_EQ(ok.status, 0);
  EXPECT_EQ(last_line(ok.out), "1 passed, 0 failed, 1 skipped");
  expect_in(ok.out, "skipped 1: fake does not support it: ");
  const Ran nothing = run({}, good);
  EXPECT_EQ(nothing.status, 3);
  EXPECT_EQ(last_line(nothing.out), "0 passed, 0 failed, 0 skipped");
  const Ran weak = run({entry("cast e4m3 8x32 bf16 fill=zeros", 1)}, good);
  EXPECT_EQ(weak.status, 1);
  expect_in(weak.out, "MISTRUSTED  some.cases:1");

  Subjects absent = fakes::with("fake", nullptr);
  static_cast<fakes::Spoiled&>(*absent.owned[1]).present_ = {false, "no device"};
  EXPECT_EQ(run({entry(kLine, 1)}, absent).status, 3);
  RunOptions required;
  required.require = {"fake"};
  const Ran missing = run({entry(kLine, 1)}, absent, required);
  EXPECT_EQ(missing.status, 3);
  EXPECT_EQ(last_line(missing.out), "0 passed, 0 failed, 1 skipped");
}

TEST(Report, GithubAnnotatesWhereItIsAsked) {
  const Subjects subjects = fakes::with(
      "fake", [](auto&, auto out, auto&) { fakes::output(out, "row.data")->bytes[5] ^= std::byte{0x10}; });
  EXPECT_EQ(run({entry(kLine, 5)}, subjects).out.find("::error"), std::string::npos);
  RunOptions o;
  o.report.github = true;
  const Ran r = run({entry(kLine, 5)}, subjects, o);
  expect_in(r.out, "::error title=fake failed at row.data::quantize mxfp8 64x96 bf16");
  expect_in(r.out, "::notice title=assay::0 passed, 1 failed, 0 skipped\n");
  EXPECT_EQ(last_line(r.out), "0 passed, 1 failed, 0 skipped");
}

// Other commands show that part of a screen alone.
TEST(Report, ForeignTextRemainsTextInTheCauseAlone) {
  Breach b = complaint("run", "fake", "said\n::warning::one\x1b[31m");
  b.hint = "\x1b[0m";
  EXPECT_EQ(cause_text(b), "  cause    said\n\\x3a:warning::one\\x1b[31m\n  hint     \\x1b[0m\n");
}

// The cause of the first claim is not the only place of a screen that holds foreign text.
TEST(Report, ForeignTextRemainsTextOnAWholeScreen) {
  const std::string foreign = "::error::said\x1b[31m";
  Verdict v;
  v.outcome = Outcome::failed;
  v.subject = "fake";
  v.reason = foreign;
  v.about = {foreign};
  v.served = v.witness = foreign;
  const auto expect_text = [&](size_t times) {
    const std::string screen = failure_screen(entry(kLine, 5), v, {});
    EXPECT_EQ(screen.find('\x1b'), std::string::npos) << screen;
    size_t found = 0;
    for (size_t at = 0; (at = screen.find("said\\x1b[31m", at)) != std::string::npos; ++at) ++found;
    EXPECT_EQ(found, times) << screen;
    expect_in(screen, "\n  \\x3a:error::said");
  };
  expect_text(4);
  v.breaches = {complaint("run", "fake", "said"), complaint("run", "fake", foreign)};
  expect_text(4);
}

// What a plugin says is no command to the service that keeps the log, and none to a terminal.
TEST(Report, ForeignTextRemainsText) {
  const std::string foreign = "said\n::warning::one\n  ::error::two\x1b[31m";
  const auto expect_text = [](const Ran& r) {
    for (const char* part : {"\n::warning", "  ::error::two", "\x1b"})
      EXPECT_EQ(r.out.find(part), std::string::npos) << part << " is in:\n" << r.out;
    expect_in(r.out, "\\x3a:warning::one");
    expect_in(r.out, "two\\x1b[31m");
  };
  const Subjects failing =
      fakes::with("fake", [&](auto&, auto, auto&) { throw std::runtime_error(foreign); });
  const Subjects crashing = fakes::with("fake", [&](auto&, auto, auto&) {
    std::fprintf(stderr, "%s\n", foreign.c_str());
    std::fflush(stderr);
    std::abort();
  });
  Subjects absent = fakes::with("fake", nullptr);
  dynamic_cast<fakes::Spoiled&>(*absent.owned.back()).present_ = {false, foreign};
  for (const bool verbose : {false, true}) {
    RunOptions o;
    o.report.verbose = verbose;
    expect_text(run({entry(kLine, 5)}, failing, o));
    expect_text(run({entry(kLine, 5)}, crashing, o));
    expect_text(run({entry(kLine, 5)}, absent, o));
  }
}

TEST(Report, JsonLines) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    if (p.x.fill.seed == 1) fakes::output(out, "row.data")->bytes[5] ^= std::byte{0x10};
  });
  const Ran r = run({entry(kLine, 1), entry(kLine + " seed=1", 2)}, subjects);
  std::istringstream lines(r.jsonl);
  std::vector<json::Value> records;
  for (std::string line; std::getline(lines, line);) {
    auto v = json::parse(line);
    ASSERT_TRUE(v) << line;
    records.push_back(*v);
  }
  ASSERT_GE(records.size(), 4u);
  EXPECT_EQ(records[0].text("record"), "head");
  EXPECT_EQ(records[0].find("version")->to_int(), kReportVersion);
  EXPECT_TRUE(records[0].find("doctor")->object());
  EXPECT_EQ(records[1].text("outcome"), "passed");
  EXPECT_EQ(records[2].text("outcome"), "failed");
  EXPECT_EQ(records[2].text("claim"), "parity");
  EXPECT_EQ(records[2].text("plane"), "row.data");
  EXPECT_EQ(records[2].find("line_number")->to_int(), 2);
  bool half_step = false;  // the law that fails with it has a record of its own
  for (const json::Value& v : records)
    half_step |= v.text("record") == "breach" && v.text("claim") == "half-step";
  EXPECT_TRUE(half_step);
  EXPECT_EQ(records.back().text("record"), "totals");
  EXPECT_EQ(records.back().find("failed")->to_int(), 1);
}

// A report that is not there or not whole must not pass for one: exit 2, and what it was.
TEST(Report, WhatCannotBeWrittenIsAnError) {
  const Subjects subjects = fakes::with("fake", [](const Problem&, auto, auto&) {});
  const auto attempt = [&](const std::string& junit, const std::string& jsonl, const char* out_path) {
    RunOptions o;
    o.entries = {entry("quantize mxfp8 96x160 bf16 flavour=te arch=sm90", 1)};
    o.settings.subjects = {"fake"};
    o.report.junit = junit;
    o.report.jsonl = jsonl;
    const fs::path said = fs::temp_directory_path() / ("assay_report_err_" + std::to_string(::getpid()));
    std::FILE *out = std::fopen(out_path, "w"), *err = std::fopen(said.c_str(), "w");
    const int status = run_run(o, subjects, out, err);
    std::fclose(out);
    std::fclose(err);
    std::string text = slurp(said);
    fs::remove(said);
    return std::pair(status, text);
  };
  EXPECT_EQ(attempt("", "", "/dev/null").first, 3);  // nothing to judge: the status that the others replace
  for (const auto& [status, text] :
       {attempt("/nonexistent/r.xml", "", "/dev/null"), attempt("", "/nonexistent/r.jsonl", "/dev/null"),
        attempt("", "/dev/full", "/dev/null"), attempt("", "", "/dev/full")}) {
    EXPECT_EQ(status, 2);
    expect_in(text, "assay: cannot write ");
  }
}

TEST(Report, JunitIsValidAndEscaped) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto, auto&) {
    if (p.x.fill.seed == 1) throw std::runtime_error("a < b && \"c\" \x01 \xFF ]]>");
    if (p.x.fill.seed == 2) std::abort();
  });
  const Ran r = run({entry(kLine, 1), entry(kLine + " seed=1", 2), entry(kLine + " seed=2", 3),
                     entry("quantize mxfp8 96x160 bf16 flavour=te arch=sm90", 4)},
                    subjects);
  expect_in(r.junit, "<testsuites name=\"assay\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\"");
  expect_in(r.junit, "a &lt; b &amp;&amp; &quot;c&quot; ? \xEF\xBF\xBD ]]&gt;");
  expect_in(r.junit, "<error message=\"crashed: signal 6");
  EXPECT_EQ(r.junit.find('\x01'), std::string::npos);
}

}  // namespace
}  // namespace assay

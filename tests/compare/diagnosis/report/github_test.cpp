#include "compare/diagnosis/report/github.h"
#include "compare/report/github.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "contract/line.h"
#include "tests/compare/diagnosis/sample_diagnosis.h"

namespace assay {
namespace {

using std::string;
namespace fs = std::filesystem;

void expect_in(const string& text, const string& part) {
  EXPECT_NE(text.find(part), string::npos) << "'" << part << "' is not in:\n" << text;
}

// A workspace with a suite and a pack, the working directory in it, and a file for the summary.
class Github : public testing::Test {
 protected:
  void SetUp() override {
    back_ = fs::current_path();
    root_ = fs::temp_directory_path() / ("assay_github_" + std::to_string(::getpid()));
    fs::create_directories(root_ / "fixtures/suites");
    fs::create_directories(root_ / "dumps");
    std::ofstream(root_ / "fixtures/suites/some.cases") << "#\n";
    std::ofstream(root_ / "dumps/a.safetensors") << "x";
    fs::current_path(root_);
    ::setenv("GITHUB_WORKSPACE", root_.c_str(), 1);
    ::setenv("GITHUB_STEP_SUMMARY", (root_ / "summary.md").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("GITHUB_WORKSPACE");
    ::unsetenv("GITHUB_STEP_SUMMARY");
    fs::current_path(back_);
    fs::remove_all(root_);
  }
  string summary() const {
    std::ifstream in(root_ / "summary.md");
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  fs::path root_, back_;
};

SuiteEntry entry(size_t line) {
  SuiteEntry e;
  e.file = "some.cases";
  e.line = line;
  e.text = "quantize mxfp8 64x96 bf16";
  e.problem = *parse_line(e.text);
  return e;
}
Verdict failure() {
  Verdict v;
  v.subject = "plugin:mine";
  v.argument = "--plugin ./libmine.so";
  v.outcome = Outcome::failed;
  Breach b;
  b.claim = "parity";
  b.plane = "row.scale_inv";
  b.encoding = "e8m0";
  b.where = "row 12, columns 32..63";
  b.differ = 1;
  b.of = 192;
  b.hint = "one binade too small";
  v.breaches = {b};
  return v;
}

TEST(WorkflowCommand, EscapesWhatWouldEndIt) {
  EXPECT_EQ(workflow_command({"error", "50 %: a, b\r\n", "one\n::error::two 100%", "a,b.cases", 5}),
            "::error title=50 %25%3A a%2C b%0D%0A,file=a%2Cb.cases,line=5::one%0A::error::two 100%25\n");
  EXPECT_EQ(workflow_command({"notice", "", "m", "", 0}), "::notice::m\n");
}

TEST_F(Github, NamesFilesFromTheRootOfTheRepository) {
  EXPECT_EQ(repository_path("some.cases"), "fixtures/suites/some.cases");
  EXPECT_EQ(repository_path("fixtures/suites/some.cases"), "fixtures/suites/some.cases");
  EXPECT_EQ(repository_path("dumps/a.safetensors:fc1.weight"), "dumps/a.safetensors");
  EXPECT_EQ(repository_path((root_ / "dumps/a.safetensors").string() + "#3"), "dumps/a.safetensors");
  fs::current_path(root_ / "dumps");
  EXPECT_EQ(repository_path("a.safetensors"), "dumps/a.safetensors");
  for (const char* none : {"", "scenarios", "other.cases", "/dev/null", "/proc/self/status", "dumps"})
    EXPECT_EQ(repository_path(none), "") << none;
}

TEST_F(Github, AnnotatesAFailureWhereItsLineStands) {
  string out;
  const auto report = make_github_report([&](const string& text) { out += text; });
  report->result(entry(5), failure());
  EXPECT_EQ(out,
            "::error title=plugin%3Amine failed at "
            "row.scale_inv,file=fixtures/suites/some.cases,line=5::quantize mxfp8 64x96 bf16%0Arow.scale_inv "
            "(e8m0): 1 of 192 differ, first at row 12, columns 32..63; one binade too small"
            "%0Aassay explain 'quantize mxfp8 64x96 bf16' --plugin ./libmine.so\n");
  Totals totals;
  totals.add(failure());
  report->finish(totals);
  expect_in(out, "::notice title=assay::0 passed, 1 failed, 0 skipped\n");
  expect_in(summary(), "### assay: 0 passed, 1 failed, 0 skipped\n");
  expect_in(summary(),
            "| failed | plugin&#58;mine | some.cases&#58;5 | <code>quantize mxfp8 64x96 bf16</code> |");
}

TEST_F(Github, TheTenthErrorCountsTheRest) {
  string out;
  Totals totals;
  const auto report = make_github_report([&](const string& text) { out += text; });
  for (size_t i = 1; i <= 150; ++i) {
    report->result(entry(i), failure());
    totals.add(failure());
  }
  report->finish(totals);
  size_t errors = 0;
  std::istringstream lines(out);
  for (string line; std::getline(lines, line);) errors += line.starts_with("::error");
  EXPECT_EQ(errors, 10u);
  expect_in(out, "141 more failed");
  expect_in(summary(), "50 more failed.");
}

TEST_F(Github, ASweepIsNamedOnceForAPlane) {
  string out;
  const auto report = make_github_report([&](const string& text) { out += text; });
  Verdict other = failure();
  other.breaches[0].plane = "row.data";
  for (int i = 0; i < 5; ++i)
    for (const Verdict& v : {failure(), other}) report->result(entry(5), v);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
  Totals totals;
  totals.failed = 10;
  report->finish(totals);
  expect_in(out, "8 more failed");
}

TEST_F(Github, PassedCasesAreSilentAndNothingJudgedIsAnError) {
  string out;
  const auto report = make_github_report([&](const string& text) { out += text; });
  Verdict good;
  good.subject = "host";
  report->result(entry(1), good);
  EXPECT_EQ(out, "");
  report->finish({});
  expect_in(out, "::error title=assay::nothing was judged");
}

TEST_F(Github, ACaseOfAPackSaysHowToExplainIt) {
  string out;
  Totals totals;
  const auto report = make_github_report([&](const string& text) { out += text; });
  report_check(*report, totals, "dumps/a.safetensors:fc1.weight",
               "quantize mxfp8 64x96 bf16 dir=both fill=normal seed=0", failure().breaches[0]);
  report_check(*report, totals, "dumps/a.safetensors:fc2.weight", "quantize mxfp8 64x96 bf16", std::nullopt);
  EXPECT_EQ(totals.last_line(), "1 passed, 1 failed, 0 skipped");
  expect_in(out, ",file=dumps/a.safetensors::quantize mxfp8 64x96 bf16%0A");  // the short line
  expect_in(out, "%0Aassay explain 'dumps/a.safetensors' --case 'fc1.weight'\n");
}

TEST_F(Github, ADiagnosisIsOneAnnotationAndASection) {
  for (const Diagnosis& d : {samples::certain(), samples::hostile()}) {
    std::FILE* file = std::tmpfile();
    annotate_diagnosis(d, file);
    std::rewind(file);
    string text(1 << 16, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1)
        << text;  // one line: nothing of it begins a command
    EXPECT_TRUE(text.starts_with("::error title=block scale%2C rows%3A ")) << text;
  }
  const string markdown = summary();
  expect_in(markdown, "### assay explain: block scale&#44; rows&#58; E8M0 scale from the floored exponent\n");
  expect_in(markdown, "| E8M0 scale from the floored exponent | block scale | 100 % | 100 % |");
  for (const char* part : {"<script", "<img", "</code></title>"})
    EXPECT_EQ(markdown.find(part), string::npos) << part;
}

}  // namespace
}  // namespace assay

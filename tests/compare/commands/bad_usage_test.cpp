// What the program says about a command line that it cannot run.
#include "compare/commands/bad_usage.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare/process/memory.h"
#include "contract/line.h"
#include "tests/compare/commands/called.h"
#include "tests/source_path.h"

namespace assay {
namespace {

TEST(BadUsage, NothingPrintsTheHelp) {
  const Said said = assay_called({});
  EXPECT_EQ(said.status, 0);
  EXPECT_EQ(said.err, "");
  EXPECT_EQ(said.out, assay_called({"--help"}).out);
  EXPECT_NE(said.out.find("\n  doctor  "), std::string::npos) << said.out;
}

TEST(BadUsage, HelpSaysWhatAnExitStatusMeans) {
  for (const char* command : {"run", "check", "replay", "list", "explain", "hunt"}) {
    const std::string help = assay_called({command, "--help"}).out;
    EXPECT_NE(help.find("Exit status"), std::string::npos) << help;
  }
  EXPECT_NE(assay_called({"--help"}).out.find("130 it was interrupted"), std::string::npos);
}

// One line on standard error, and exit status 2.
void expect_refused(const std::vector<std::string>& words, const std::string& message) {
  const Said said = assay_called(words);
  EXPECT_EQ(said.status, kBadUsage);
  EXPECT_EQ(said.out, "");
  EXPECT_EQ(said.err, "assay: " + message + "\n");
}

TEST(BadUsage, AnUnknownCommandNamesTheNearest) {
  expect_refused({"rnu"}, "no command 'rnu': did you mean run?; `assay --help` lists the commands");
  expect_refused({"zzzzzzzz", "--help"}, "no command 'zzzzzzzz'; `assay --help` lists the commands");
}

TEST(BadUsage, ARequiredNameThatNoSubjectHasIsRefused) {
  expect_refused({"run", "quantize mxfp8 8x32 bf16", "--require", "hosst"},
                 "unknown subject 'hosst' (did you mean 'host'?)");
  const Said said = assay_called({"run", "quantize mxfp8 8x32 bf16", "--require", "plugin:mine"});
  EXPECT_EQ(said.status, kBadUsage);
  EXPECT_EQ(said.out, "");
  EXPECT_TRUE(said.err.starts_with("assay: unknown subject 'plugin:mine' (")) << said.err;
}

TEST(BadUsage, AHuntTakesNoChoiceOfLinesWithoutLines) {
  for (const char* option : {"--filter", "--shard"})
    expect_refused(
        {"hunt", option, "1/2"},
        "--filter and --shard choose among lines and suites that you give: give some, or use --only for what "
        "is drawn");
}

TEST(BadUsage, AnAbsurdNumberOfElementsOrBatchesIsRefused) {
  for (const char* option : {"--max-elements", "--batches"}) {
    const Said said = assay_called({"hunt", option, "99999999999999999999"});
    EXPECT_EQ(said.status, kBadUsage);
    EXPECT_NE(said.err.find(option), std::string::npos) << said.err;
  }
}

TEST(BadUsage, ANumberThatCannotBeHeldIsRefused) {
  for (const char* seed : {"-1", "18446744073709551616", "abc", "1.5"}) {
    const Said said = assay_called({"hunt", "--seed", seed});
    EXPECT_EQ(said.status, kBadUsage);
    EXPECT_NE(said.err.find(std::string("expected an integer from 0 to 2^64-1, found ") + seed),
              std::string::npos)
        << said.err;
  }
  EXPECT_EQ(assay_called({"hunt", "--batches", "-1"}).status, kBadUsage);
}

TEST(BadUsage, AnUnknownOptionNamesTheNearestOfItsCommand) {
  expect_refused(
      {"run", "smoke", "--subjekt", "host"},
      "no option '--subjekt' of `assay run`: did you mean --subject?; `assay run --help` lists its options");
  expect_refused(
      {"run", "smoke", "--job=2"},
      "no option '--job' of `assay run`: did you mean --jobs?; `assay run --help` lists its options");
  expect_refused({"check", "--coherense"},
                 "no option '--coherense' of `assay check`: did you mean --coherence?; `assay check --help` "
                 "lists its options");
  expect_refused({"doctor", "--repetitions"},
                 "no option '--repetitions' of `assay doctor`; `assay doctor --help` lists its options");
  expect_refused(
      {"--vershion"},
      "no option '--vershion' of `assay`: did you mean --version?; `assay --help` lists its options");
}

TEST(BadUsage, ALaunchIsTypedBehindItsPtx) {
  for (const char* option : {"--entry", "--grid", "--block", "--shared", "--args", "--zeroed"})
    expect_refused(
        {"run", "quantize mxfp8 64x256 bf16", option, "1"},
        std::string(option) + " describes the launch of --ptx FILE, which is not given (docs/ptx.md)");
}

TEST(BadUsage, EveryErrorBeginsWithTheProgram) {
  expect_refused({"run"}, "what is required\nRun with --help for more information.");
  expect_refused({"run", "smoke", "--jobs", "0"},
                 "--jobs: Value 0 not in range 1 to 1024\nRun with --help for more information.");
  expect_refused({"run", "smoke", "--plugin", "./a.so", "--plugin", "./b.so"},
                 "--plugin takes one library, found 2");
  expect_refused({"run", "smoke", "--jobs", "1", "--jobs", "2"}, "--jobs takes one value, found 2");
  expect_refused({"diff", "a", "b", "c"},
                 "The following argument was not expected: c\nRun with --help for more information.");
  expect_refused(
      {"explain"},
      "explain takes a line in quotes or a pack: assay explain 'quantize mxfp8 64x256 bf16' --plugin "
      "./libmine.so, or assay explain dump.safetensors");
  expect_refused({"explain", "a.safetensors", "--budget", "0s"},
                 "--budget: expected a number above 0, found 0\nRun with --help for more information.");
  expect_refused({"explain", "a.safetensors", "--budget", "soon"},
                 "--budget: expected a number above 0, found soon\nRun with --help for more information.");
  expect_refused(
      {"run", "smoke", "--budget", "-1"},
      "--budget: expected 0 or a number above it, found -1\nRun with --help for more information.");
  expect_refused({"run", "quantize mxfp9 8x8 bf16", "--budget", "0s"},
                 "line:1:10: unknown format 'mxfp9' (did you mean 'mxfp8'?)");
  expect_refused({"explain", "a.safetensors", "--budget", "2s"}, "a.safetensors does not exist");
  expect_refused({"shrink", "quantize mxfp9 8x8 bf16"},
                 "column 10: unknown format 'mxfp9' (did you mean 'mxfp8'?)");
}

TEST(BadUsage, CoverageOfNothingIsNoCoverage) {
  expect_refused({"coverage", "--only", "nonsense", "--whole"},
                 "--only: no op with a format contains 'nonsense' (`assay coverage --list 0` lists them)");
  expect_refused({"coverage", "--evidence", "pirs"}, "--evidence: no suite 'pirs' (did you mean 'pairs'?)");
  expect_refused({"coverage", "smoke", "--cases", "--evidence", "ci"},
                 "--evidence says which pairs are valid; --cases counts no pairs");
  const Said none = assay_called({"coverage", "--subject", "simd", "--only", "adam"});
  EXPECT_EQ(none.status, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "assay: nothing was counted: simd runs no line that was drawn\n");
}

TEST(BadUsage, AFileThatIsMissingIsNoUnknownOp) {
  for (const char* command : {"trace", "shrink", "explain", "count"})
    expect_refused({command, "nosuch.dump"},
                   "'nosuch.dump' is no file that exists, and no line, as 'quantize mxfp8 64x256 bf16' is");
  for (const char* command : {"trace", "shrink", "explain"})
    expect_refused({command, "nosuch.safetensors"}, "nosuch.safetensors does not exist");
  EXPECT_NE(assay_called({"trace", "quantize"}).err.find("column"), std::string::npos);
}

TEST(BadUsage, ACaseOfAPackIsNamedInEitherWay) {
  const std::string pack = source_path("fixtures/packs/libraries/torchao_cpu.safetensors"),
                    id = "step0/mxfp8.rceil/input";
  const auto shrinks = [&](const std::string& more) {
    return "a recording holds the bytes of one input and cannot be run on a smaller one: assay explain '" +
           pack + "'" + more + " names the cause, and shrinks the case with what it named";
  };
  expect_refused({"shrink", pack}, shrinks(""));
  expect_refused({"shrink", pack, "--case", id}, shrinks(" --case '" + id + "'"));
  expect_refused({"shrink", pack + ":" + id}, shrinks(" --case '" + id + "'"));
  expect_refused({"shrink", "cast e4m3 8x8 bf16", "--case", "a"},
                 "--case names a case of a pack, and 'cast e4m3 8x8 bf16' is none");
  EXPECT_EQ(assay_called({"explain", pack + ":" + id}).out,
            assay_called({"explain", pack, "--case", id}).out);
  EXPECT_NE(assay_called({"trace", pack + ":" + id}).out.find(id), std::string::npos);
  EXPECT_NE(assay_called({"trace", pack + ":nobody"}).err.find("holds no case 'nobody'"), std::string::npos);
}

TEST(BadUsage, ADumpIsNoRecording) {
  const std::string pack = source_path("fixtures/packs/libraries/torchao_cpu.safetensors");
  expect_refused({"replay", pack},
                 pack +
                     " is a dump, and no recording of `assay record`, whose inputs are drawn from its lines: "
                     "assay check " +
                     pack + " judges it");
}

TEST(BadUsage, AFullDeviceIsSaid) {
  const Said said = assay_called({"explain", "quantize mxfp8 8x8 bf16 dir=row", "--html", "/dev/full"});
  EXPECT_EQ(said.status, kBadUsage);
  EXPECT_EQ(said.err, "assay: /dev/full: cannot write: No space left on device\n");
}

// A refusal, and no failure of the kernel.
TEST(BadUsage, ALineThatNeedsTooMuchMemoryIsRefused) {
  const std::string line = "quantize nvfp4 32768x65536 f32";
  if (!lacks_memory(*parse_line(line))) GTEST_SKIP() << "this machine has room for the largest line";
  for (const char* command : {"run", "bench", "shrink", "trace", "explain"}) {
    const Said said = assay_called({command, line});
    EXPECT_EQ(said.status, kBadUsage) << command;
    EXPECT_EQ(said.out, "") << command;
    EXPECT_NE(said.err.find(line + ": it needs about "), std::string::npos) << said.err;
  }
}

TEST(BadUsage, ALineWithoutQuotesIsQuoted) {
  const std::string advice = "a line is one argument: put it in quotes\n  assay ";
  expect_refused({"run", "quantize", "mxfp8", "64x256", "bf16"}, advice + "run 'quantize mxfp8 64x256 bf16'");
  expect_refused({"run", "--subject", "host", "cast", "e4m3", "8x8", "bf16", "seed=7", "-v"},
                 advice + "run --subject host 'cast e4m3 8x8 bf16 seed=7' -v");
  expect_refused({"shrink", "quantize", "mxfp8", "64x256", "bf16", "--plugin", "my lib.so"},
                 advice + "shrink 'quantize mxfp8 64x256 bf16' --plugin 'my lib.so'");
  expect_refused({"explain", "quantize", "mxfp8", "64x256", "bf16"},
                 advice + "explain 'quantize mxfp8 64x256 bf16'");
  expect_refused({"list", "roles", "factory=mxfp8_nvfp4x"}, advice + "list 'roles factory=mxfp8_nvfp4x'");
  // A command that takes no line, and words that are no line.
  expect_refused({"diff", "quantize", "mxfp8", "64x256"},
                 "The following argument was not expected: 64x256\nRun with --help for more information.");
  EXPECT_EQ(assay_called({"run", "smoek", "cast"}).err.find("quotes"), std::string::npos);
}

}  // namespace
}  // namespace assay

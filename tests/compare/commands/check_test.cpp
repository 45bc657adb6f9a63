// check and diff: foreign dumps in several shapes, what is missing, what is hostile, and the order in which a
// folder is judged.
#include "compare/commands/check.h"
#include "compare/commands/diff.h"
#include "compare/commands/simd_certificate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/packs/dump.h"
#include "fast/subject_simd.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "tests/compare/faulty_subject.h"
#include "tests/source_path.h"

namespace assay {

using namespace std::string_literals;
namespace {

namespace st = safetensors;
const std::string kLine = "quantize mxfp8 40x96 bf16 dir=row";

struct Ran {
  int status;
  std::string out, err;
};
Ran check(const CheckOptions& options) {
  std::ostringstream out, err;
  Subjects subjects = with_fault(no_fault);
  subjects.owned.push_back(make_simd_subject());
  const int status = run_check(options, subjects, out, err);
  return {status, out.str(), err.str()};
}
Ran check(std::vector<std::string> paths, bool github = false) {
  CheckOptions options;
  options.github = github;
  options.paths = std::move(paths);
  return check(options);
}
Ran diff(const std::string& a, const std::string& b) {
  std::ostringstream out, err;
  const int status = run_diff({a, b}, out, err);
  return {status, out.str(), err.str()};
}

// A dump as somebody else would write it: tensors named <case>/<plane> and the line.
class Dump {
 public:
  void add(const std::string& id, const std::string& text, bool with_x = true) {
    const Problem p = line(text);
    auto reference = make_reference_subject();
    const auto inputs = make_inputs(p, *reference);
    const Execution run = execute(*reference, p, *inputs, Environment{});
    if (with_x)
      for (const PlaneData& d : *inputs) put(id + "/" + d.plane.name, d);
    for (const PlaneData& d : run.planes) put(id + "/" + d.plane.name, d);
    metadata.emplace_back("assay.line." + id, text);
  }
  void put(const std::string& name, const PlaneData& d) {
    tensors.push_back(
        {{name, st::dtype_of(d.plane.encoding), {d.plane.padded.rows, d.plane.padded.cols}, {}}, d.bytes});
  }
  std::vector<std::byte>& of(const std::string& name) { return at(name).second; }
  std::pair<st::Tensor, std::vector<std::byte>>& at(const std::string& name) {
    for (auto& t : tensors)
      if (t.first.name == name) return t;
    throw std::runtime_error(name);
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const auto& t) { return t.first.name == name; });
  }
  std::string write(const std::string& file) {
    const std::string path = testing::TempDir() + "assay_check_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name() + "/" + file;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::vector<st::Tensor> list;
    for (auto& [tensor, bytes] : tensors) {
      tensor.bytes = bytes;
      list.push_back(tensor);
    }
    const auto error = st::write(path, list, metadata);
    EXPECT_FALSE(error) << error->text();
    return path;
  }
  std::vector<std::pair<st::Tensor, std::vector<std::byte>>> tensors;
  st::Metadata metadata;
};

std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

TEST(Check, ARightDumpPasses) {
  Dump d;
  d.add("a", kLine);
  d.add("b", "quantize fp8_current 8x8 f32 dir=both");
  d.add("c", "dequantize mxfp8 33x40 bf16 dir=row");
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("3 passed, 0 failed, 0 skipped"), std::string::npos) << r.out;
}

TEST(Check, AWrongScaleIsTheCauseAndTheCodesFollow) {
  Dump d;
  d.add("a", kLine);
  d.of("a/row.scale_inv")[4] ^= std::byte{1};  // row 1, columns 0..31: padded columns are 4
  for (size_t i = 0; i < 32; ++i) d.of("a/row.data")[96 + i] ^= std::byte{8};
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("cause    row.scale_inv (e8m0)   1 of 120 differ     first at row 1, columns 0..31"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("after    row.data"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("first divergence: "), std::string::npos);
}

// The verdict and the first place stand there before anybody looks for the cause; a cause can be left out.
TEST(Check, TheVerdictComesBeforeTheCause) {
  Dump d;
  d.add("a", kLine);
  for (std::byte& scale : d.of("a/row.scale_inv"))
    scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
  const std::string path = d.write("d.safetensors");
  const Ran r = check({path});
  const auto at = [&](const char* text) { return r.out.find(text); };
  EXPECT_LT(at("FAILED"), at("first divergence: "));
  EXPECT_LT(at("first divergence: "), at("\ncause: "));
  EXPECT_LT(at("\ncause: "), at("\nexplain: "));
  EXPECT_NE(at("\ncause: "), std::string::npos) << r.out;
  CheckOptions options;
  options.paths = {path};
  options.cause = false;
  std::ostringstream out, err;
  EXPECT_EQ(run_check(options, with_fault(no_fault), out, err), 1);
  EXPECT_EQ(out.str().find("\ncause: "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("\nexplain: "), std::string::npos) << out.str();
}

TEST(Check, ThatNoCauseWasFoundIsSaid) {
  Dump d;
  d.add("a", "quantize mxfp8 1x32 bf16 dir=row");
  size_t i = 0;
  for (std::byte& code : d.of("a/row.data")) code = static_cast<std::byte>((37 * ++i) % 120);
  CheckOptions options;
  options.paths = {d.write("d.safetensors")};
  options.budget = 60;  // the search ends much sooner
  const Ran r = check(options);
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.out.find("\ncause: none was found\n"), std::string::npos) << r.out;
}

// A large case is judged in parts: it says at once where it differs, and then prints what it prints as a
// whole; the cause is that of a part.
TEST(Check, ALargeCaseIsJudgedInParts) {
  Dump d;
  d.add("a", "quantize mxfp8 300x1100 bf16 dir=row");
  const std::string right = d.write("right.safetensors");
  for (std::byte& scale : d.of("a/row.scale_inv"))
    scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
  const std::string wrong = d.write("wrong.safetensors");
  CheckOptions options;
  options.large = 1;
  const auto ran = [&](const std::string& path) {
    options.paths = {path};
    std::ostringstream out, err;
    const int status = run_check(options, with_fault(no_fault), out, err);
    return Ran{status, out.str(), err.str()};
  };
  EXPECT_EQ(ran(right).status, 0);
  const Ran parts = ran(wrong), whole = check({wrong});
  EXPECT_EQ(parts.status, 1);
  const size_t verdict = parts.out.find("\nFAILED");
  EXPECT_EQ(parts.out.find("differs  "), 0u) << parts.out;
  EXPECT_NE(parts.out.find("at plane row.scale_inv, row 0, columns 0..31"), std::string::npos) << parts.out;
  ASSERT_NE(verdict, std::string::npos) << parts.out;
  EXPECT_EQ(parts.out.substr(verdict, parts.out.find("\ncause: ") - verdict),
            whole.out.substr(0, whole.out.find("\ncause: ")));
  EXPECT_NE(parts.out.find("in rows 0..255, columns 0..1023, the part that was searched"), std::string::npos)
      << parts.out;
}

// No part of a plane shows that all of it is in another order.
TEST(Check, AnOrderOfAWholeLargePlaneIsNamed) {
  Dump d;
  d.add("a", "quantize fp8_block 512x2048 bf16 dir=row");
  const std::vector<int64_t> shape = d.at("a/row.scale_inv").first.shape;
  const auto rows = static_cast<size_t>(shape[0]), cols = static_cast<size_t>(shape[1]);
  std::vector<std::byte>& scales = d.of("a/row.scale_inv");
  const std::vector<std::byte> right = scales;
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) std::copy_n(&right[(r * cols + c) * 4], 4, &scales[(c * rows + r) * 4]);
  CheckOptions options;
  options.large = 1;
  options.paths = {d.write("d.safetensors")};
  std::ostringstream out, err;
  EXPECT_EQ(run_check(options, with_fault(no_fault), out, err), 1);
  const Ran whole = check(options.paths);
  const auto cause = [](const std::string& text) {
    const size_t at = text.find("\ncause: ");
    return at == text.npos ? "" : text.substr(at, text.find('\n', at + 1) - at);
  };
  EXPECT_NE(cause(whole.out).find("scale_inv: "), std::string::npos) << whole.out;
  EXPECT_EQ(cause(out.str()), cause(whole.out)) << out.str();
}

// As tasks, which --resume and --mpi make of the cases, they give what they give one after the other: what is
// said early, counts of blocks and the cause of a part among it. A later run judges none of them again.
TEST(Check, CasesAsTasksGiveTheSame) {
  Dump d;
  for (const char* id : {"a", "b", "c", "d"}) d.add(id, "quantize mxfp8 300x1100 bf16 dir=row");
  d.add("e", kLine);
  d.add("f", kLine);
  d.metadata.back().second = "no line";
  for (std::byte& scale : d.of("c/row.scale_inv"))
    scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
  d.of("d/row.data")[0] ^= std::byte{1};
  CheckOptions options;
  options.paths = {d.write("d.safetensors")};
  const std::string folder = folder_of(options.paths[0]);
  options.json = folder + "/verdicts.json";
  options.large = 1000;
  options.jobs = 2;
  const Ran wanted = check(options);
  const auto json = *json::read(options.json);
  options.kept = {folder + "/results", "this command"};
  std::filesystem::remove_all(options.kept.folder);
  for (int i = 0; i < 2; ++i) {
    const Ran r = check(options);
    EXPECT_EQ(r.status, wanted.status) << r.err;
    EXPECT_EQ(r.out, wanted.out);
    EXPECT_EQ(*json::read(options.json), json);
  }
  d.of("a/row.data")[0] ^= std::byte{1};
  options.paths = {d.write("d.safetensors")};
  EXPECT_THROW(check(options), Refusal) << "results of other bytes were taken over";
}

TEST(Check, ALargeCaseThatCannotBeCutSaysWhatItTakes) {
  Dump d;
  d.add("a", "cast e2m1 64x96 f32 round=sr");
  CheckOptions options;
  options.large = 1;
  options.paths = {d.write("d.safetensors")};
  std::ostringstream out, err;
  EXPECT_EQ(run_check(options, with_fault(no_fault), out, err), 0) << out.str();
  EXPECT_NE(out.str().find("judged as a whole, in about 0.0 GiB of memory: round=sr counts its draws"),
            std::string::npos)
      << out.str();
}

// A large case says who judged it, on the screen and in JSON; --exact leaves all to the reference, and so
// does a line with another key. The verdict is the same.
TEST(Check, ALargeCaseSaysWhoJudgedIt) {
  const auto simd = make_simd_subject();
  if (!simd->present().yes) GTEST_SKIP() << simd->present().why;
  Dump d;
  d.add("a", "quantize mxfp8 256x512 bf16 dir=both");
  d.add("b", "quantize mxfp8 256x512 bf16 dir=row mx_scale=floor");
  d.add("c", "quantize mxfp8 256x512 bf16 dir=row");
  d.of("c/row.data")[7] ^= std::byte{1};
  CheckOptions options;
  options.paths = {d.write("d.safetensors")};
  options.json = folder_of(options.paths[0]) + "/verdicts.json";
  options.large = 256 * 512;
  options.cause = false;
  const auto blocks_of_case = [&](size_t i) {
    const auto file = json::read(options.json);
    const json::Value* blocks = file->find("cases")->array()->at(i).find("blocks");
    return blocks ? std::pair(*blocks->find("simd")->to_int(), *blocks->find("reference")->to_int())
                  : std::pair<int64_t, int64_t>(-1, -1);
  };
  Ran r = check(options);
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_NE(r.out.find("2 passed, 1 failed, 0 skipped"), std::string::npos) << r.out;
  const auto [simd_blocks, reference_blocks] = blocks_of_case(0);
  EXPECT_EQ(simd_blocks + reference_blocks, 2 * 256 * 512 / 32);
  EXPECT_GT(simd_blocks, reference_blocks);
  EXPECT_NE(r.out.find(fmt::format("judged by simd {}: {} of 8192 blocks; by the reference: {}",
                                   dynamic_cast<Acceptor&>(*simd).target(), simd_blocks, reference_blocks)),
            std::string::npos)
      << r.out;
  EXPECT_EQ(blocks_of_case(1).first, -1) << "no block of another line is taken";
  const auto [known, judged] = blocks_of_case(2);
  EXPECT_EQ(known + judged, 256 * 512 / 32) << "one block differs, which the reference judges";
  EXPECT_GT(known, judged);
  EXPECT_NE(r.out.find("row.data (e4m3)   1 of 131072 differ"), std::string::npos) << r.out;
  options.exact = true;
  const Ran exact = check(options);
  EXPECT_EQ(exact.status, 1);
  EXPECT_EQ(exact.out.find("simd"), std::string::npos) << exact.out;
  EXPECT_EQ(blocks_of_case(0).first, -1);
}

// What a machine certified is kept for its processor and these sources, and for no others.
TEST(SimdCertificate, IsOfThisProcessorAndTheseSources) {
  const auto simd = make_simd_subject();
  if (!simd->present().yes) GTEST_SKIP() << simd->present().why;
  const auto& acceptor = dynamic_cast<Acceptor&>(*simd);
  const std::string path = testing::TempDir() + "assay_simd_certificate/of/simd.json";
  std::filesystem::remove_all(folder_of(path));
  EXPECT_TRUE(certified_targets(path, acceptor).empty());
  EXPECT_TRUE(certified_targets("", acceptor).empty());
  EXPECT_NE(keep_certificate(path, acceptor).find("may use"), std::string::npos);
  EXPECT_TRUE(certified_targets(path, acceptor).contains(acceptor.target()));
  const auto file = json::read(path);
  for (const char* key : {"processor", "sources"}) {
    json::Value other = *file;
    other.set(key, "another");
    ASSERT_FALSE(write_file(path, json::dump(other)));
    EXPECT_TRUE(certified_targets(path, acceptor).empty()) << key;
  }
  ASSERT_FALSE(write_file(path, std::string_view("no JSON")));
  EXPECT_TRUE(certified_targets(path, acceptor).empty());
}

TEST(Check, GithubIsToldOfEachFailure) {
  Dump dump;
  dump.add("good", kLine);
  dump.add("bad", kLine);
  dump.of("bad/row.scale_inv")[0] ^= std::byte{1};
  const std::string path = dump.write("a.safetensors");
  EXPECT_EQ(check({path}).out.find("::"), std::string::npos);
  const Ran r = check({path}, true);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("::error title=pack failed at row.scale_inv"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("--case 'bad'"), std::string::npos) << r.out;
  EXPECT_TRUE(
      r.out.ends_with("::notice title=assay::1 passed, 1 failed, 0 skipped\n1 passed, 1 failed, 0 skipped\n"))
      << r.out;
}

TEST(Check, CompactPaddingIsIgnoredAndAPlaneMayComeWithoutIt) {
  Dump d;
  d.add("a", kLine);
  d.of("a/row.scale_inv")[3] = std::byte{0x99};  // column 3 of 4 is padding
  EXPECT_EQ(check({d.write("padded.safetensors")}).status, 0);
  auto& [tensor, bytes] = d.at("a/row.scale_inv");
  std::vector<std::byte> bare;
  for (int64_t r = 0; r < 40; ++r)
    for (int64_t c = 0; c < 3; ++c) bare.push_back(bytes[static_cast<size_t>(r * 4 + c)]);
  tensor.shape = {40, 3};
  bytes = bare;
  const Ran r = check({d.write("bare.safetensors")});
  EXPECT_EQ(r.status, 0) << r.out;
  bytes[10] ^= std::byte{1};
  EXPECT_EQ(check({d.write("wrong.safetensors")}).status, 1);
}

TEST(Check, GemmPaddingMustBeZero) {
  Dump d;
  d.add("a", kLine + " scales=gemm");
  EXPECT_EQ(check({d.write("right.safetensors")}).status, 0);
  d.of("a/row.scale_gemm")[3] = std::byte{0x99};  // row 0, scale column 3
  const Ran r = check({d.write("wrong.safetensors")});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("GEMM-layout padding must be 0"), std::string::npos) << r.out;
}

TEST(Check, WhatAPackSaysIsNoCommand) {
  Dump d;
  const std::string id = "m\n::error::injected\x1b[31m\xC2\x9B##[warning]\xE2\x80\xAE";
  d.add(id, kLine);
  d.metadata.back().second += " \x1b[31m=\n::error::injected";
  d.add("b" + id, kLine);
  d.of("b" + id + "/row.scale_inv")[0] ^= std::byte{1};
  for (const bool github : {false, true}) {
    const Ran r = check({d.write("d.safetensors")}, github);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.out.find("m\\n::error::injected\\x1b[31m\\xc2\\x9b\\x23#[warning]\\xe2\\x80\\xae"),
              std::string::npos)
        << r.out;
    for (const char* raw : {"\x1b", "\n::error::injected", "\xC2\x9B", "##[", "\xE2\x80\xAE"})
      EXPECT_EQ(r.out.find(raw), std::string::npos) << r.out;
  }
}

TEST(Check, WhatIsMissingIsNamedAndNothingIsAnError) {
  Dump d;
  d.add("a", kLine);
  d.remove("a/row.scale_inv");
  const Ran some = check({d.write("some.safetensors")});
  EXPECT_EQ(some.status, 0) << some.out;
  EXPECT_NE(some.out.find("not judged, absent from the pack: row.scale_inv"), std::string::npos) << some.out;
  d.at("a/row.data").first.name = "a/row.date";
  const Ran none = check({d.write("none.safetensors")});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.out.find("there is nothing to judge"), std::string::npos) << none.out;
  EXPECT_NE(none.out.find(
                "plane 'row.date' is not a plane of this line, and is not judged (did you mean 'row.data'?)"),
            std::string::npos)
      << none.out;
}

// A plane under another name would pass unseen, and a plane that begins alike is what was meant.
TEST(Check, AMisspeltPlaneFailsItsCase) {
  Dump d;
  d.add("a", kLine);
  d.at("a/row.scale_inv").first.name = "a/row.scales";
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.out.find("plane 'row.scales' is not a plane of this line, and is not judged (did you mean "
                       "'row.scale_inv'?)"),
            std::string::npos)
      << r.out;
}

// A dump may hold more than its line says: the columns too, a tensor of the user's own.
TEST(Check, ATensorThatStandsForNoMissingPlaneIsNoted) {
  Dump d;
  d.add("a", kLine);
  for (const char* name : {"a/row.date", "a/notes"}) {
    auto more = d.at("a/row.data");
    more.first.name = name;
    d.tensors.push_back(std::move(more));
  }
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 0) << r.out;
  for (const char* name : {"row.date", "notes"})
    EXPECT_NE(r.out.find(std::string("plane '") + name + "' is not a plane of this line"), std::string::npos)
        << r.out;
}

TEST(Check, AShapeThatIsExchangedIsNoted) {
  for (const bool exchanged : {false, true}) {
    Dump d;
    d.add("a", kLine);
    if (exchanged) d.at("a/x").first.shape = {96, 40};
    const Ran r = check({d.write("d.safetensors")});
    EXPECT_EQ(r.status, 0) << r.out;
    EXPECT_EQ(
        r.out.find("x is stored as [96, 40], where this line has [40, 96]: it was read as rows of 96") !=
            std::string::npos,
        exchanged)
        << r.out;
  }
}

TEST(Check, ScalesThatAreTooFewAreToldBothCounts) {
  Dump d;
  d.add("a", kLine);
  d.at("a/row.scale_inv").first.shape = {40, 2};
  d.of("a/row.scale_inv").resize(80);
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.out.find("expected 512 elements of e8m0, or 120 without the padding, for plane"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("shape [128, 4], or [40, 3]"), std::string::npos) << r.out;
}

TEST(Check, ADamagedFileOfAFolderIsSaidAndTheOthersAreJudged) {
  Dump right, wrong;
  right.add("a", kLine);
  wrong.add("b", kLine);
  wrong.of("b/row.data")[7] ^= std::byte{1};
  const std::string path = right.write("a.safetensors");
  std::ofstream(folder_of(path) + "/empty.safetensors").flush();
  const Ran one = check({folder_of(path)});
  EXPECT_EQ(one.status, 2) << one.out << one.err;
  EXPECT_NE(one.out.find("1 passed, 0 failed, 0 skipped"), std::string::npos) << one.out;
  EXPECT_NE(one.err.find("assay: not read: "), std::string::npos) << one.err;
  EXPECT_NE(one.err.find("empty.safetensors: expected 8 bytes"), std::string::npos) << one.err;
  wrong.write("b.safetensors");
  const Ran two = check({folder_of(path)});
  EXPECT_EQ(two.status, 2) << two.out << two.err;
  EXPECT_NE(two.out.find("1 passed, 1 failed, 0 skipped"), std::string::npos) << two.out;
  EXPECT_EQ(check({folder_of(path) + "/empty.safetensors"}).status, 2);
  std::filesystem::remove(folder_of(path) + "/empty.safetensors");
}

TEST(Check, WithoutXTheLineMustNameItsFill) {
  Dump d;
  d.add("a", kLine, false);
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("names no fill="), std::string::npos) << r.out;
  Dump filled;
  filled.add("a", kLine + " fill=ties seed=3", false);
  EXPECT_EQ(check({filled.write("f.safetensors")}).status, 0);
}

TEST(Check, AssaysOwnPacksAreChecked) {
  const Problem p = line("quantize mxfp8 64x96 bf16 fill=ties");
  auto reference = make_reference_subject();
  const Execution run = execute(*reference, p, *make_inputs(p, *reference), Environment{});
  const std::string path = testing::TempDir() + "assay_own.safetensors";
  std::vector<RecordedPlane> planes;  // digests only, as of large cases
  for (const PlaneData& d : run.planes) planes.push_back({d.plane, digest(d.bytes), {}});
  for (const bool right : {true, false}) {
    if (!right) planes[1].digest[0] ^= 1;
    PackWriter writer(path, "reference", Environment{}, "here", "none");
    ASSERT_FALSE(writer.add(p, planes));
    ASSERT_FALSE(writer.finish());
    const Ran r = check({path});
    EXPECT_EQ(r.status, right ? 0 : 1) << r.out << r.err;
    EXPECT_NE(r.out.find(right ? "judged row.scale_inv row.data col.scale_inv col.data"
                               : "row.data: the digest differs"),
              std::string::npos)
        << r.out;
  }
}

TEST(Check, AFolderIsJudgedInOrder) {
  Dump right, wrong;
  right.add("weight.row", kLine);
  wrong.add("input.col", "quantize mxfp8 40x96 bf16 dir=col");
  wrong.add("input.row", kLine);
  wrong.of("input.row/row.data")[7] ^= std::byte{1};
  wrong.of("input.col/col.data")[7] ^= std::byte{1};
  const std::string path = wrong.write("step10.layer2.safetensors");
  right.write("step9.layer11.safetensors");
  wrong.write("step9.layer12.safetensors");
  const Ran r = check({folder_of(path)});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("step9.layer12.safetensors:input.row, plane row.data"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("1 passed, 4 failed, 0 skipped"), std::string::npos) << r.out;
}

TEST(Check, OrderOfNames) {
  const std::vector<std::string> sorted = {
      "step1/decoder.0.qkv/input/row",       "step1/decoder.0.qkv/input/col",
      "step1/decoder.0.qkv/weight/row",      "step1/decoder.0.qkv/output",
      "step1/decoder.0.qkv/grad_output/row", "step1/decoder.0.qkv/grad_input",
      "step1/decoder.0.qkv/grad_weight",     "step1/decoder.2.qkv/input/row",
      "step1/decoder.10.qkv/input/row",      "iter_2/decoder.0.qkv/input/row",
      "iteration 12/decoder.0.qkv/input/row"};
  std::vector<std::string> shuffled(sorted.rbegin(), sorted.rend());
  std::stable_sort(shuffled.begin(), shuffled.end(), dump_order);
  EXPECT_EQ(shuffled, sorted);
}

TEST(Check, HostilePacksAreStatusTwo) {
  const std::string folder = testing::TempDir() + "assay_hostile";
  std::filesystem::create_directories(folder);
  const std::vector<std::string> files = {
      "", "short", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8),
      std::string("\x02\0\0\0\0\0\0\0[]", 10),
      "\x40\0\0\0\0\0\0\0{\"a/x\":{\"dtype\":\"F32\",\"shape\":[99999999999,99999999999],\"data_o"s};
  for (const std::string& text : files) {
    const std::string path = folder + "/p.safetensors";
    std::ofstream(path, std::ios::binary) << text;
    const Ran r = check({path}), d = diff(path, path);
    EXPECT_EQ(r.status, 2);
    EXPECT_EQ(d.status, 2);
    EXPECT_TRUE(r.err.starts_with("assay: ")) << r.err;
  }
  EXPECT_EQ(check({folder + "/absent.safetensors"}).status, 2);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_EQ(check({folder}).status, 2);  // nothing to check
}

TEST(Check, BadLinesAndBadTensorsFailTheirCase) {
  Dump d;
  d.add("a", kLine);
  d.add("b", kLine);
  d.add("c", kLine);
  d.metadata[0].second = "quantize mxfp9 40x96 bf16";
  d.at("b/row.data").first.shape = {20, 192};  // another shape of as many elements is legal
  d.at("c/row.data").first.shape = {40, 95};
  d.of("c/row.data").resize(40 * 95);
  const Ran r = check({d.write("d.safetensors")});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("mxfp8"), std::string::npos);
  EXPECT_NE(r.out.find("1 passed, 2 failed"), std::string::npos) << r.out;
}

TEST(Diff, EqualAndDifferentDumps) {
  Dump a, b;
  a.add("one", kLine);
  b.add("one", kLine);
  a.add("two", "quantize fp8_current 8x8 f32 dir=row");
  b.add("three", "quantize fp8_current 8x8 f32 dir=row");  // the same line under another id
  const std::string first = a.write("a.safetensors");
  Ran r = diff(first, b.write("b.safetensors"));
  EXPECT_EQ(r.status, 0) << r.out;
  EXPECT_NE(r.out.find("2 passed, 0 failed, 0 skipped"), std::string::npos) << r.out;
  b.of("one/row.scale_inv")[0] ^= std::byte{1};
  b.of("one/row.data")[0] ^= std::byte{1};
  r = diff(first, b.write("c.safetensors"));
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("cause    row.scale_inv"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("first divergence: one, plane row.scale_inv"), std::string::npos) << r.out;
  b.of("one/x")[1] ^= std::byte{1};  // then the inputs differ, and that comes first
  r = diff(first, b.write("d.safetensors"));
  EXPECT_NE(r.out.find("cause    x (bf16)"), std::string::npos) << r.out;
}

TEST(Diff, WithoutLinesAndWithNothingInCommon) {
  Dump a, b;
  a.add("one", kLine);
  b.add("one", kLine);
  a.metadata.clear();
  b.metadata.clear();
  const std::string first = a.write("a.safetensors");
  EXPECT_EQ(diff(first, b.write("b.safetensors")).status, 0);
  b.of("one/row.data")[9] ^= std::byte{1};
  const Ran r = diff(first, b.write("c.safetensors"));
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("row.data"), std::string::npos) << r.out;
  Dump other;
  other.add("else", "cast e4m3 1x8 f32");
  EXPECT_EQ(diff(first, other.write("other.safetensors")).status, 3);
}

// NVFP4 as it travels: U8 of half as many elements, scales bare of their padding; or a code in each byte.
TEST(Check, PackedCodesOfSomebodyElse) {
  const std::string text = "quantize nvfp4 40x96 bf16 dir=row";
  const Problem p = line(text);
  auto reference = make_reference_subject();
  const auto inputs = make_inputs(p, *reference);
  const Execution run = execute(*reference, p, *inputs, Environment{});
  for (const bool bytes_each : {false, true})
    for (const bool wrong : {false, true}) {
      Dump dump;
      dump.put("a/x", *find_plane(*inputs, "x"));
      const PlaneData& data = *find_plane(run.planes, "row.data");
      std::vector<std::byte> codes = data.bytes;
      if (bytes_each) {
        codes.clear();
        for (int64_t i = 0; i < 40 * 96; ++i)
          codes.push_back(static_cast<std::byte>(code_at(data.plane, data.bytes, i)));
      }
      if (wrong) codes[100] ^= std::byte{1};
      dump.tensors.push_back({{"a/row.data", st::Dtype::U8, {40, bytes_each ? 96 : 48}, {}}, codes});
      dump.metadata.emplace_back("assay.line.a", text);
      const std::string path = testing::TempDir() + "assay_check_nvfp4.safetensors";
      const auto encoded = [&] {
        std::vector<st::Tensor> tensors;
        for (auto& [t, b] : dump.tensors) tensors.push_back({t.name, t.dtype, t.shape, b});
        return st::write(path, tensors, dump.metadata);
      }();
      ASSERT_FALSE(encoded);
      const Ran r = check({path});
      EXPECT_EQ(r.status, wrong ? 1 : 0) << r.out << r.err;
      if (wrong) {
        EXPECT_NE(r.out.find("row.data (e2m1)   1 of 3840 differ"), std::string::npos) << r.out;
      }
    }
}

// Written by the program of that version. Whoever keeps recordings must be able to read them.
TEST(Check, RecordingsOfVersion01AreRead) {
  const Ran r = check({source_path("fixtures/packs/version_0.1/recording.safetensors")});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  for (const char* text :
       {"quantize mxfp8 4x64 bf16", "quantize nvfp4 16x32 bf16 dir=both", "dequantize mxfp8 4x64 bf16",
        "gemm a=mxfp8 b=mxfp8 16x16x32", "4 passed, 0 failed, 0 skipped"})
    EXPECT_NE(r.out.find(text), std::string::npos) << text << "\n" << r.out;
}

}  // namespace
}  // namespace assay

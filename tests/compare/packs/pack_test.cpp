#include "compare/packs/pack.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "compare/commands/record.h"
#include "compare/commands/run.h"
#include "compare/judge/cases.h"
#include "compare/packs/replay.h"
#include "compare/subjects/pack_subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

class PackTest : public testing::Test {
 protected:
  PackTest() : dir_(fs::temp_directory_path() / ("assay_pack_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~PackTest() override { fs::remove_all(dir_); }
  std::string path(const std::string& name) { return dir_ / name; }

  int record(const Subjects& subjects, const std::vector<std::string>& lines, const std::string& name,
             bool all = false) {
    RecordOptions o;
    for (const std::string& line : lines) o.entries.push_back(entry_of(fakes::problem(line)));
    o.subject = "fake";
    o.output = path(name);
    o.all_bytes = all;
    o.fingerprint = "here";
    o.jobs = 1;
    std::FILE* quiet = std::fopen("/dev/null", "w");
    const int status = run_record(o, subjects, quiet, quiet);
    std::fclose(quiet);
    return status;
  }
  fs::path dir_;
};

const std::string kSmall = "quantize mxfp8 8x64 bf16 dir=both",
                  kLarge = "quantize mxfp8 256x512 bf16 dir=both";

TEST_F(PackTest, RecordsAndReplays) {
  const Subjects subjects = fakes::with("fake", nullptr);
  ASSERT_EQ(record(subjects, {kSmall, kLarge}, "a.safetensors"), 0);
  const auto pack = read_pack(path("a.safetensors"));
  ASSERT_TRUE(pack) << pack.error().text();
  ASSERT_EQ(pack->cases.size(), 2u);
  EXPECT_EQ(pack->subject, "fake");
  EXPECT_TRUE(pack->cases[0].find("row.data")->tensor);
  EXPECT_FALSE(pack->cases[1].find("row.data")->tensor);  // a digest is enough for a large case that is right
  for (const PackCase& c : pack->cases) {
    const Verdict v = judge_replay(*pack, c, subjects, "", {});
    EXPECT_EQ(v.outcome, Outcome::passed) << v.reason;
  }
}

TEST_F(PackTest, AWrongRecordingFails) {
  const Subjects subjects = fakes::with(
      "fake", [](auto&, auto out, auto&) { fakes::output(out, "col.data")->bytes[70] ^= std::byte{1}; });
  ASSERT_EQ(record(subjects, {kSmall, kLarge}, "b.safetensors"), 0);
  const auto pack = read_pack(path("b.safetensors"));
  ASSERT_TRUE(pack);
  for (const PackCase& c : pack->cases) {
    ASSERT_TRUE(c.find("col.data")->tensor);  // failures keep their bytes
    const Verdict v = judge_replay(*pack, c, subjects, "", {});
    ASSERT_EQ(v.outcome, Outcome::failed);
    EXPECT_EQ(v.breaches[0].claim, "replay");
    EXPECT_EQ(v.breaches[0].plane, "col.data");
  }
}

TEST_F(PackTest, DigestsAloneFindADifference) {
  const Subjects good = fakes::with("fake", nullptr);
  ASSERT_EQ(record(good, {kLarge}, "c.safetensors"), 0);
  auto pack = read_pack(path("c.safetensors"));
  ASSERT_TRUE(pack);
  PackCase changed = pack->cases[0];
  for (PackPlane& p : changed.planes)
    if (p.name == "row.data") p.digest[3] = p.digest[3] == '0' ? '1' : '0';
  const Verdict v = judge_replay(*pack, changed, good, "", {});
  ASSERT_EQ(v.outcome, Outcome::failed);
  EXPECT_EQ(v.breaches[0].plane, "row.data");
}

TEST_F(PackTest, Stale) {
  const Subjects subjects = fakes::with("fake", nullptr);
  ASSERT_EQ(record(subjects, {kSmall}, "d.safetensors"), 0);
  auto pack = read_pack(path("d.safetensors"));
  ASSERT_TRUE(pack);
  pack->kernels = "1111";
  EXPECT_EQ(judge_replay(*pack, pack->cases[0], subjects, "2222", {}).outcome, Outcome::stale);
  EXPECT_EQ(judge_replay(*pack, pack->cases[0], subjects, "1111", {}).outcome, Outcome::passed);
  PackCase old = pack->cases[0];
  old.line = kSmall;  // not the canonical form: a key has been added since
  EXPECT_EQ(judge_replay(*pack, old, subjects, "", {}).outcome, Outcome::stale);
  pack->line_version = 99;
  EXPECT_EQ(judge_replay(*pack, pack->cases[0], subjects, "", {}).outcome, Outcome::stale);
}

TEST_F(PackTest, SplitsIntoNumberedFiles) {
  PackWriter writer(path("e.safetensors"), "fake", {}, "", "");
  const Problem p = fakes::problem("cast e4m3 1024x2048 bf16");
  for (int i = 0; i < 7; ++i) {
    std::vector<std::byte> bytes(size_t{2} << 20, static_cast<std::byte>(i));
    const std::string hash = digest(bytes);
    const RecordedPlane plane{output_planes(p)[0], hash, std::move(bytes)};
    ASSERT_FALSE(writer.add(p, {&plane, 1}));
  }
  ASSERT_FALSE(writer.finish());
  EXPECT_LE(fs::file_size(path("e.safetensors")), kMaxPackBytes);
  EXPECT_TRUE(fs::exists(path("e.1.safetensors")));
  EXPECT_FALSE(fs::exists(path("e.2.safetensors")));
  const auto pack = read_pack(path("e.safetensors"));
  ASSERT_TRUE(pack);
  ASSERT_EQ(pack->cases.size(), 7u);
  EXPECT_EQ(digest(pack->cases[6].find("y")->tensor->bytes), pack->cases[6].find("y")->digest);
}

TEST_F(PackTest, APackIsASubject) {
  const Subjects good = fakes::with("fake", nullptr);
  ASSERT_EQ(record(good, {kSmall, kLarge}, "f.safetensors"), 0);
  auto pack = read_pack(path("f.safetensors"));
  ASSERT_TRUE(pack);
  Subjects subjects;
  subjects.owned.push_back(std::make_unique<fakes::Spoiled>("reference", nullptr));
  subjects.owned.push_back(make_pack_subject(std::make_shared<const Pack>(std::move(*pack)), "pack"));
  EXPECT_EQ(judge_case(entry_of(fakes::problem(kSmall)), subjects, {"pack"}, {})[0].outcome, Outcome::passed);
  EXPECT_EQ(judge_case(entry_of(fakes::problem(kLarge)), subjects, {"pack"}, {})[0].outcome,
            Outcome::unsupported);
  EXPECT_EQ(judge_case(entry_of(fakes::problem(kSmall + " seed=3")), subjects, {"pack"}, {})[0].outcome,
            Outcome::unsupported);
}

TEST_F(PackTest, ForeignForms) {
  const Problem p = fakes::problem("cast e2m1 1x6 bf16");
  const Plane y = output_planes(p)[0];
  auto bytes = [](std::initializer_list<int> v) {
    std::vector<std::byte> out;
    for (int i : v) out.push_back(static_cast<std::byte>(i));
    return out;
  };
  const auto packed = bytes({0x21, 0x43, 0x65}), plain = bytes({1, 2, 3, 4, 5, 6});
  using safetensors::Dtype;
  EXPECT_EQ(*plane_bytes({"c/y", Dtype::U8, {6}, plain}, y), plain);
  EXPECT_EQ(*plane_bytes({"c/y", Dtype::U8, {1, 3}, packed}, y), plain);
  EXPECT_EQ(*plane_bytes({"c/y", Dtype::F4, {1, 6}, packed}, y), plain);
  EXPECT_FALSE(plane_bytes({"c/y", Dtype::U8, {5}, std::span(plain).first(5)}, y));
  const Plane x = input_planes(p)[0];
  const std::vector<std::byte> halves(12);
  EXPECT_TRUE(plane_bytes({"c/x", Dtype::BF16, {6}, halves}, x));
  EXPECT_FALSE(plane_bytes({"c/x", Dtype::F16, {6}, halves}, x));

  const safetensors::Tensor tensor{"layer.3/y", Dtype::U8, {6}, plain};
  ASSERT_FALSE(safetensors::write(path("g.safetensors"), {&tensor, 1}, {{"layer.3", "cast e2m1 1x6 bf16"}}));
  const auto pack = read_pack(path("g.safetensors"));
  ASSERT_TRUE(pack);
  EXPECT_EQ(pack->cases.at(0).line, "cast e2m1 1x6 bf16");
  ASSERT_FALSE(safetensors::write(path("h.safetensors"), {&tensor, 1}, {{"assay.pack", "99"}}));
  EXPECT_FALSE(read_pack(path("h.safetensors")));
  EXPECT_FALSE(read_pack(path("none.safetensors")));
}

// Packed codes and members; a recording under one poison is judged under another.
TEST_F(PackTest, PackedCodesAndMembers) {
  const Subjects subjects = fakes::with("fake", nullptr);
  const std::string packed = "quantize nvfp4 8x33 bf16 dir=both",
                    split = "split mxfp4 40x33 bf16 groups=8,32 capacity=2000";
  ASSERT_EQ(record(subjects, {packed, split}, "n.safetensors"), 0);
  auto pack = std::make_shared<Pack>(*read_pack(path("n.safetensors")));
  ASSERT_EQ(pack->cases.size(), 2u);
  EXPECT_EQ(pack->cases[0].find("row.data")->tensor->shape, (std::vector<int64_t>{8, 17}));
  for (const PackCase& c : pack->cases)
    for (const char* env : {"", "poison=3c"})
      EXPECT_EQ(judge_replay(*pack, c, subjects, "", *parse_environment(env)).outcome, Outcome::passed)
          << c.line << env;
  Subjects with_pack = fakes::with("fake", nullptr);
  with_pack.owned.push_back(make_pack_subject(pack, "pack"));
  for (const std::string& line : {packed, split}) {
    const Verdict v = judge_case(entry_of(fakes::problem(line)), with_pack, {"pack"}, {}).at(0);
    EXPECT_EQ(v.outcome, Outcome::passed) << line << (v.breaches.empty() ? "" : ": " + v.breaches[0].claim);
  }
}

// A note that bits are not pinned waives nothing of a line that N16.13 does not name.
TEST_F(PackTest, AWaiverOfPinnedBitsIsAnError) {
  const auto pack_of = [&](const std::string& line, const std::string& output) {
    const std::vector<std::byte> zeros(size_t{4} * 16);
    const std::string name = "mine/" + output;
    const safetensors::Tensor tensor{name, safetensors::Dtype::U32, {4, 4}, zeros};
    EXPECT_FALSE(safetensors::write(path("w.safetensors"), {&tensor, 1},
                                    {{"assay.line.mine", line}, {"assay.unpinned.mine", "because"}}));
    return read_pack(path("w.safetensors"));
  };
  const std::string pinned[] = {"gemm a=identity b=identity 4x4x16 bf16 out=f32",
                                "gemm a=identity b=identity 4x4x16 bf16 out=f32 alpha=0.3 beta=0.7",
                                "gemm a=fp8_current b=fp8_current 4x4x16 sum=hopper_fp8_split out=f32",
                                "gemm a=identity b=identity 4x4x16 bf16 sum=hopper_f16 out=f32 bias=f32"};
  for (const std::string& line : pinned) {
    const auto pack = pack_of(line, "d");
    ASSERT_FALSE(pack) << line;
    for (const char* said : {"w.safetensors", "assay.unpinned.mine", "because", "N16.13", "bit for bit"})
      EXPECT_NE(pack.error().text().find(said), std::string::npos) << pack.error().text();
    PackCase c{"mine", line, "because", {}};
    EXPECT_FALSE(unpinned_of(c, fakes::problem(line))) << line;
  }
  EXPECT_FALSE(pack_of("cast e4m3 4x4 bf16", "y"));
  const auto open =
      pack_of("gemm a=fp8_current b=fp8_current 4x4x16 sum=hopper_fp8_split out=f32 row_scaled=1", "d");
  ASSERT_TRUE(open) << open.error().text();
  EXPECT_EQ(unpinned_of(open->cases.at(0), fakes::problem(open->cases.at(0).line)), "because");
}

}  // namespace
}  // namespace assay

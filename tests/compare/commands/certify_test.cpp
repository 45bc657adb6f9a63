// The certificate: one wrong element among a million is found and named, what was claimed is written down
// alike for any number of workers, and what could not be compared is said.
#include "compare/commands/certify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include <unistd.h>

#include "compare/arithmetic/codes.h"
#include "compare/commands/certify/certificate.h"
#include "compare/commands/certify/task.h"
#include "compare/program.h"
#include "compare/report/build.h"
#include "fixtures/headers/subject_headers.h"
#include "fixtures/json.h"
#include "fixtures/sha256.h"
#include "tests/compare/faulty_subject.h"
#include "tests/fixtures/scratch.h"
#include "tests/source_path.h"

namespace assay {
namespace {

struct Ran {
  int status = 0;
  std::string out, err;
  bool says(const std::string& text) const { return out.find(text) != std::string::npos; }
};

Ran certify(const CertifyOptions& options, const Subjects& subjects) {
  Ran r;
  char *out_text = nullptr, *err_text = nullptr;
  size_t out_size = 0, err_size = 0;
  std::FILE *out = open_memstream(&out_text, &out_size), *err = open_memstream(&err_text, &err_size);
  r.status = run_certify(options, subjects, out, err);
  std::fclose(out);
  std::fclose(err);
  r.out.assign(out_text, out_size);
  r.err.assign(err_text, err_size);
  std::free(out_text);
  std::free(err_text);
  return r;
}

json::Value certificate(const std::string& path) {
  Result<json::Value> v = json::read(path);
  if (!v) throw std::runtime_error(v.error().text());
  return *v;
}

// A cast from f32 over the `count` patterns from `first` on.
CertifyPart window(uint32_t first, int64_t count, const std::string& text = "cast e4m3 1x1 f32",
                   const std::string& subject = "faulty") {
  CertifyPart part;
  part.name = text;
  part.clauses = "N2.1";
  part.problem = line(text);
  part.domain = {"a window", count, [first](int64_t at, int64_t n, std::vector<PlaneData>& inputs) {
                   for (int64_t i = 0; i < n; ++i) {
                     const uint32_t bits = first + static_cast<uint32_t>(at + i);
                     std::memcpy(inputs[0].bytes.data() + 4 * i, &bits, 4);
                   }
                 }};
  part.sides = {{subject, {}}};
  return part;
}

// Flips the lowest bit of the code of one pattern, in Problems of `least` elements and more.
Fault wrong_at(uint32_t pattern, int64_t least = 1) {
  return [pattern, least](const Problem& p, std::span<const ConstBuffer> inputs,
                          std::span<const Buffer> outputs) {
    if (p.x.shape.count() < least) return;
    for (int64_t i = 0; i < p.x.shape.count(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, inputs[0].bytes.data() + 4 * i, 4);
      if (bits == pattern) outputs[0].bytes[static_cast<size_t>(i)] ^= std::byte{1};
    }
  };
}

TEST(Certify, OneWrongElementInAMillionIsFoundAndNamed) {
  const Scratch scratch;
  CertifyOptions options;
  options.output = scratch.path("c.json");
  options.parts = {window(0x41200000, (1 << 20) + 37), window(0x3F800000, 1000, "cast e5m2 1x1 f32")};
  const Ran r = certify(options, with_fault(wrong_at(0x41234567)));
  EXPECT_EQ(r.status, 1) << r.out << r.err;
  for (const char* text :
       {"FAILED  certify cast e4m3 1x1 f32", "cast e4m3 1x1 f32 fill=literal:41234567",
        "claim    faulty == reference", "faulty     0.1010.011   53   11", "reference  0.1010.010   52   10",
        "--subject faulty", "in all   1 of the outputs of 1048613 inputs differ",
        "1 passed, 1 failed, 0 skipped"})
    EXPECT_TRUE(r.says(text)) << text << "\n" << r.out;

  const json::Value c = certificate(options.output);
  EXPECT_EQ(c.text("schema"), "assay.certificate");
  EXPECT_EQ(*c.find("complete")->to_bool(), true);
  const json::Array& parts = *c.find("parts")->array();
  ASSERT_EQ(parts.size(), 2u);
  const json::Value& claim = (*parts[0].find("claims")->array())[0];
  EXPECT_EQ(claim.text("outcome"), "failed");
  EXPECT_EQ(claim.find("differ")->to_int(), 1);
  EXPECT_EQ((*claim.find("failures")->array())[0].text("line"), "cast e4m3 1x1 f32 fill=literal:41234567");
  EXPECT_EQ((*parts[1].find("claims")->array())[0].text("outcome"), "passed");
}

TEST(Certify, AFaultThatNeedsNeighboursKeepsThem) {
  CertifyOptions options;
  options.parts = {window(0x41234000, 4096)};
  Ran r = certify(options, with_fault(wrong_at(0x41234567, 8)));
  EXPECT_TRUE(
      r.says("cast e4m3 1x8 f32 fill=literal:41234560412345614123456241234563412345644123456541234566412345"))
      << r.out;
  r = certify(options, with_fault(wrong_at(0x41234567, 65)));
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("no line of up to 64 of these elements fails by itself")) << r.out;
  EXPECT_TRUE(r.says("1 of 4096 differ     first at")) << r.out;
}

CertifyPart quick_part(const std::string& name) {
  for (CertifyPart& part : certify_parts(CertifyExtent::quick))
    if (part.name == name) {
      part.sides = {{"faulty", {}}};
      return part;
    }
  throw std::runtime_error("no part " + name);
}

TEST(Certify, PairsAndRandomBytesComeBackInALine) {
  CertifyOptions options;
  options.parts = {quick_part("scale_chain nvfp4 f32")};
  // Tensor amax 6 with block amax 0.1875: a row of two words.
  auto wrong_pair = [](const Problem& p, std::span<const ConstBuffer> inputs,
                       std::span<const Buffer> outputs) {
    for (int64_t i = 0; i < p.x.shape.rows; ++i)
      if (code_at(Encoding::f32, inputs[0].bytes, 2 * i) == 0x40C00000 &&
          code_at(Encoding::f32, inputs[0].bytes, 2 * i + 1) == 0x3E400000)
        find(outputs, "scale_inv")->bytes[static_cast<size_t>(i)] ^= std::byte{1};
  };
  Ran r = certify(options, with_fault(wrong_pair));
  EXPECT_TRUE(r.says("scale_chain nvfp4 1x2 f32 fill=literal:40c000003e400000")) << r.out;

  options.parts = {quick_part("cast e2m1 f32 round=sr")};
  auto wrong_byte = [](const Problem& p, std::span<const ConstBuffer> inputs,
                       std::span<const Buffer> outputs) {
    for (int64_t i = 0; i < p.x.shape.count(); ++i)
      if (code_at(Encoding::f32, inputs[0].bytes, i) == 0x3FA00000 &&
          inputs[1].bytes[static_cast<size_t>(i)] == std::byte{0x9C})
        outputs[0].bytes[static_cast<size_t>(i)] ^= std::byte{1};
  };
  r = certify(options, with_fault(wrong_byte));
  EXPECT_TRUE(r.says("cast e2m1 1x1 f32 round=sr fill=literal:3fa00000 seed="))
      << r.out;  // a seed that draws 9C
  EXPECT_TRUE(r.says("1 of the outputs of 1048576 inputs differ")) << r.out;
}

// 1.25 is half way from 1 to 1.5: 128 bytes of 256 take it up.
TEST(Certify, RandomBytesAreCounted) {
  const CertifyPart part = quick_part("cast e2m1 f32 round=sr");
  const Problem p = part.sized(256);
  std::vector<PlaneData> inputs, outputs;
  for (Plane& plane : input_planes(p)) inputs.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (Plane& plane : output_planes(p)) outputs.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (int i = 0; i < 256; ++i) {
    const uint32_t y = 0xBFA00000;
    std::memcpy(inputs[0].bytes.data() + 4 * i, &y, 4);
    outputs[0].bytes[static_cast<size_t>(i)] = std::byte{static_cast<unsigned char>(i % 2 ? 11 : 10)};
  }
  EXPECT_EQ(part.law(inputs, outputs), "");
  for (const int wrong : {11, 2, 12}) {  // one more up, the sign lost, two codes up
    outputs[0].bytes[4] = std::byte{static_cast<unsigned char>(wrong)};
    EXPECT_NE(part.law(inputs, outputs), "") << wrong;
  }
}

TEST(Certify, ALawOfTheReferenceIsJudged) {
  CertifyOptions options;
  options.parts = {window(0x3F800000, 4096)};
  options.parts[0].law_words = "outputs are even";
  options.parts[0].law = [](const std::vector<PlaneData>&, const std::vector<PlaneData>& outputs) {
    for (std::byte b : outputs[0].bytes)
      if ((b & std::byte{1}) != std::byte{0}) return std::string("an odd code");
    return std::string();
  };
  EXPECT_EQ(certify(options, with_fault(no_fault)).status, 0);  // 1.0 to 1.0005 is one even code
  options.parts[0].domain = window(0x3F900000, 4096).domain;
  const Ran r = certify(options, with_fault(no_fault));
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("an odd code")) << r.out;
}

TEST(Certify, ACrashOrAnExceptionFailsItsPartAlone) {
  CertifyOptions options;
  options.parts = {window(0x41234000, 4096), window(0x3F800000, 4096, "cast e5m2 1x1 f32")};
  auto crash = [](const Problem& p, std::span<const ConstBuffer>, std::span<const Buffer>) {
    if (p.as<Cast>()->to == Encoding::e4m3) std::raise(SIGKILL);
  };
  Ran r = certify(options, with_fault(crash));
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("crashed: signal 9")) << r.out;
  EXPECT_TRUE(r.says("in elements 0 to 4095 of: a window")) << r.out;
  EXPECT_TRUE(r.says("1 passed, 1 failed, 0 skipped")) << r.out;
  auto throws = [](const Problem& p, std::span<const ConstBuffer>, std::span<const Buffer>) {
    if (p.as<Cast>()->to == Encoding::e4m3) throw std::runtime_error("no such luck");
  };
  r = certify(options, with_fault(throws));
  EXPECT_TRUE(r.says("no such luck")) << r.out;
  EXPECT_TRUE(r.says("1 passed, 1 failed, 0 skipped")) << r.out;
}

// Ends its process when it is asked which lines it runs.
class AskedInVain final : public ForwardingSubject {
 public:
  AskedInVain() : ForwardingSubject(make_reference_subject(), "faulty") {}
  Support supports(const Problem&) const override {
    std::raise(SIGKILL);
    return {};
  }
};

TEST(Certify, ACrashWhenAskedForLinesFails) {
  Subjects subjects = with_fault(no_fault);
  subjects.owned.back() = std::make_unique<AskedInVain>();
  CertifyOptions options;
  options.parts = {window(0x41234000, 4096)};
  const Ran r = certify(options, subjects);
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("got      faulty\n  reason   when it is asked which lines it runs, ")) << r.out;
  EXPECT_TRUE(r.says("0 passed, 1 failed, 0 skipped")) << r.out;
}

// The reference, but from the second piece on element 7 stays as it was.
class LazySubject final : public Subject {
 public:
  std::string_view name() const override { return "lazy"; }
  Support supports(const Problem& p) const override { return right_->supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    const std::byte before = outputs[0].bytes[7];
    const Served served = right_->run(p, inputs, outputs, env);
    if (code_at(Encoding::f32, inputs[0].bytes, 0) != 0x3F800000) outputs[0].bytes[7] = before;
    return served;
  }

 private:
  std::unique_ptr<Subject> right_ = make_reference_subject();
};

TEST(Certify, AnOutputThatIsNotWrittenDiffers) {
  Subjects subjects = with_fault(no_fault);
  subjects.owned.push_back(std::make_unique<LazySubject>());
  CertifyOptions options;
  options.parts = {window(0x3F800000, 3 << 18, "cast e4m3 1x1 f32", "lazy")};
  const Ran r = certify(options, subjects);
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("2 of the outputs of 786432 inputs differ"))
      << r.out;  // what the first piece left there would have been right
}

TEST(Certify, SaysWhatItCannotDo) {
  const Subjects subjects = with_fault(no_fault);
  CertifyOptions options;
  options.parts = {window(0x3F800000, 100)};
  options.output = "/no/such/folder/certificate.json";
  Ran r = certify(options, subjects);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("/no/such/folder/certificate.json"), std::string::npos) << r.err;
  EXPECT_TRUE(r.out.empty()) << r.out;  // before anything ran
  options.output.clear();
  options.only = "no such part";
  r = certify(options, subjects);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("no part of the certificate contains 'no such part'"), std::string::npos) << r.err;
  options.only.clear();
  options.subjects = {"reference"};
  EXPECT_EQ(certify(options, subjects).status, 2);
  options.subjects = {"nobody"};  // absent: skipped, and then nothing was compared
  r = certify(options, subjects);
  EXPECT_EQ(r.status, 3);
  EXPECT_TRUE(r.says("0 passed, 0 failed, 1 skipped")) << r.out;
}

// Without what may differ between two runs.
std::string lasting(const std::string& path) {
  json::Value c = certificate(path);
  c.set("run", json::Value());
  return json::dump(c, 1);
}

TEST(Certify, QuickIsTheSameForAnyNumberOfWorkers) {
  const Scratch scratch;
  Subjects subjects = with_fault(no_fault);
  subjects.owned.push_back(make_headers_subject());
  CertifyOptions options;
  options.extent = CertifyExtent::quick;
  options.only = "cast e4m3 f32";
  for (int jobs : {1, 2}) {
    options.jobs = jobs;
    options.output = scratch.path(std::to_string(jobs) + ".json");
    const Ran r = certify(options, subjects);
    EXPECT_EQ(r.status, 0) << r.out << r.err;
  }
  EXPECT_EQ(lasting(scratch.path("1.json")), lasting(scratch.path("2.json")));
  EXPECT_NE(lasting(scratch.path("1.json")).find("\"fingerprint\": \""), std::string::npos);
}

TEST(Certify, FingerprintsTellResultsApart) {
  const Scratch scratch;
  std::set<std::string> seen;
  CertifyOptions options;
  options.output = scratch.path("c.json");
  // One element more, other elements.
  for (const CertifyPart& part :
       {window(0x3F800000, 300000), window(0x3F800000, 300001), window(0x3FE00000, 300000)}) {
    options.parts = {part};
    ASSERT_EQ(certify(options, with_fault(no_fault)).status, 0);
    seen.insert(std::string((*certificate(options.output).find("parts")->array())[0].text("fingerprint")));
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(Certify, ResumesWhatTheSameBuildMade) {
  const Scratch scratch;
  CertifyOptions options;
  options.output = scratch.path("c.json");
  options.parts = {window(0x3F800000, 1000)};
  ASSERT_EQ(certify(options, with_fault(no_fault)).status, 0);
  options.resume = true;
  options.parts.push_back(window(0x3F800000, 1000, "cast e5m2 1x1 f32"));
  const Ran r = certify(options, with_fault(no_fault));
  if (const std::string commit = build::kCommit; commit.ends_with("-dirty") || commit == "no git") {
    EXPECT_EQ(r.status, 2);  // its sources may be any
    EXPECT_NE(r.err.find("cannot resume"), std::string::npos) << r.err;
  } else {
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(r.says("faulty (taken over)")) << r.out;
    EXPECT_EQ(certificate(options.output).find("parts")->array()->size(), 2u);
  }
  options.extent = CertifyExtent::quick;
  EXPECT_EQ(certify(options, with_fault(no_fault)).status, 2);  // another mode
}

// Parts that no certificate has are not taken over, and do not crash the command.
TEST(Certify, OfAForgedCertificateNoPartStands) {
  const auto parts = [](const std::string& claims) {
    const auto passed = passed_parts(*json::parse(
        R"({"schema": "assay.certificate", "parts": [{"name": "a", "claims": )" + claims + "}]}"));
    return passed ? static_cast<int64_t>(passed->size()) : -1;
  };
  EXPECT_EQ(parts(R"([{"outcome": "passed", "inputs": 7}])"), 1);
  EXPECT_EQ(parts(R"([{"outcome": "failed", "inputs": 7}])"), 0);
  EXPECT_EQ(parts(R"([{"outcome": "passed"}])"), 0);
  EXPECT_EQ(parts(R"([{"outcome": "passed", "inputs": -7}])"), 0);
  EXPECT_EQ(parts(R"([{"outcome": "passed", "inputs": "7"}])"), 0);
  EXPECT_EQ(parts("[7]"), 0);
  EXPECT_EQ(parts("{}"), 0);
  EXPECT_FALSE(passed_parts(*json::parse(R"({"schema": "assay.bench", "parts": []})")));
  EXPECT_FALSE(passed_parts(*json::parse(R"({"schema": "assay.certificate", "parts": {}})")));
}

TEST(Certify, ResultsOfAnInterruptedRunAreTakenOver) {
  const Scratch scratch;
  CertifyOptions options;
  options.jobs = 1;
  options.output = scratch.path("c.json");
  options.parts = {window(0x3F800000, 1000), window(0x3F800000, 1000, "cast e5m2 1x1 f32")};
  ASSERT_EQ(certify(options, with_fault(no_fault)).status, 0);
  const json::Value want = *certificate(options.output).find("parts");
  options.kept = {scratch.path("kept"), "a digest"};
  const Ran first = certify(options, with_fault([](const Problem& p, auto, auto) {
                              if (p.as<Cast>()->to == Encoding::e5m2) ::kill(::getppid(), SIGINT);
                            }));
  EXPECT_EQ(first.status, 130) << first.out;
  const Ran second = certify(options, with_fault(no_fault));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.err.find("assay: --resume takes over "), std::string::npos) << second.err;
  EXPECT_EQ(*certificate(options.output).find("parts"), want);
  EXPECT_FALSE(std::filesystem::exists(options.kept.folder));  // all is in the certificate
}

// An estimate samples, so a part of 2^27 inputs costs some thousand times what one of 2^17 does.
TEST(Certify, EstimatesWhatEachPartCostsAndJudgesNothing) {
  const Scratch scratch;
  CertifyOptions options;
  options.estimate = true;
  options.jobs = 2;
  options.output = scratch.path("c.json");
  options.parts = {window(0x3F800000, int64_t{1} << 17),
                   window(0x30000000, int64_t{1} << 27, "cast e5m2 1x1 f32")};
  const Ran r = certify(options, with_fault(wrong_at(0x3F800000)));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_FALSE(std::filesystem::exists(options.output));
  std::istringstream lines(r.out);
  std::vector<double> hours;
  for (std::string text; std::getline(lines, text);)
    if (const size_t end = text.find(" core-hours"); end != text.npos)
      hours.push_back(std::stod(text.substr(text.find_last_of(' ', end - 1) + 1)));
  ASSERT_EQ(hours.size(), 3u) << r.out;
  EXPECT_LT(hours[0], 1e-4) << r.out;
  EXPECT_GT(hours[1], 1e-4) << r.out;
  EXPECT_NEAR(hours[2], hours[0] + hours[1], 0.01) << r.out;
  EXPECT_TRUE(r.says(" with 2 workers")) << r.out;
}

// Planes of n elements, or rows, of a part.
std::vector<PlaneData> planes_of(const std::vector<Plane>& planes) {
  std::vector<PlaneData> out;
  for (const Plane& plane : planes) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  return out;
}

// Inputs [first, first + n) of a part, with bytes behind each plane that the domain must leave alone.
std::vector<PlaneData> filled(const CertifyPart& part, int64_t first, int64_t n) {
  Problem zeros = part.sized(n);
  zeros.x.fill.kind = FillKind::zeros;
  std::vector<PlaneData> inputs = *make_inputs(zeros, *make_reference_subject());
  constexpr size_t kGuard = 64;
  for (PlaneData& p : inputs) p.bytes.resize(p.bytes.size() + kGuard, std::byte{0x5A});
  part.domain.fill(first, n, inputs);
  for (PlaneData& p : inputs) {
    for (size_t i = p.bytes.size() - kGuard; i < p.bytes.size(); ++i)
      EXPECT_EQ(p.bytes[i], std::byte{0x5A}) << part.name << " " << first;
    p.bytes.resize(p.bytes.size() - kGuard);
  }
  return inputs;
}

// The bytes of the last of n elements, rows or columns of a plane.
std::vector<std::byte> last_of(const PlaneData& p, int64_t n) {
  const auto width = static_cast<size_t>(info(p.plane.encoding).bytes());
  const bool columns = p.plane.padded.rows > 1 && p.plane.padded.cols == n;
  const size_t length = columns ? width : p.bytes.size() / static_cast<size_t>(n),
               step = columns ? static_cast<size_t>(n) * width : p.bytes.size();
  std::vector<std::byte> out;
  for (size_t end = step; end <= p.bytes.size(); end += step)
    out.insert(out.end(), p.bytes.begin() + static_cast<std::ptrdiff_t>(end - length),
               p.bytes.begin() + static_cast<std::ptrdiff_t>(end));
  return out;
}

TEST(Certify, EveryPartIsALineWithInputs) {
  for (const CertifyExtent extent : {CertifyExtent::quick, CertifyExtent::floats, CertifyExtent::full}) {
    std::set<std::string> names;
    for (const CertifyPart& part : certify_parts(extent)) {
      EXPECT_TRUE(names.insert(part.name).second) << part.name;
      EXPECT_FALSE(part.clauses.empty()) << part.name;
      EXPECT_FALSE(part.sides.empty()) << part.name;
      EXPECT_GT(part.domain.count, 0) << part.name;
      EXPECT_FALSE(validate(part.sized(1 << 10))) << part.name;
      EXPECT_EQ(part.sha256, extent == CertifyExtent::full) << part.name;
      const Cast* cast = part.name.starts_with("cast") && part.problem.x.source == Encoding::f32
                             ? part.problem.as<Cast>()
                             : nullptr;
      if (cast && cast->round != Round::sr) {
        EXPECT_EQ(part.domain.count == int64_t{1} << 32, extent != CertifyExtent::quick) << part.name;
      }
      // The ends and a middle, alike however they are cut.
      for (const int64_t first : {int64_t{0}, part.domain.count / 3, part.domain.count - 7}) {
        const int64_t from = std::max<int64_t>(first, 0), n = std::min<int64_t>(7, part.domain.count - from);
        const std::vector<PlaneData> whole = filled(part, from, n), last = filled(part, from + n - 1, 1);
        for (size_t i = 0; i < whole.size(); ++i) {
          if (whole[i].plane.name == "row.scale_inv") continue;  // has rows of padding; a test below reads it
          const bool one = whole[i].bytes.size() == last[i].bytes.size();  // the amax of a tensor
          EXPECT_EQ(one ? whole[i].bytes : last_of(whole[i], n), last[i].bytes) << part.name << " " << from;
        }
      }
    }
  }
}

const CertifyPart& full_part(const std::string& name) {
  static const std::vector<CertifyPart> parts = certify_parts(CertifyExtent::full);
  for (const CertifyPart& part : parts)
    if (part.name == name) return part;
  throw std::runtime_error("no part " + name);
}

// Everything that the default has, of the same inputs or more, and what it has not.
TEST(Certify, FullHoldsTheDefaultAndMore) {
  std::set<std::string> names;
  for (const CertifyPart& part : certify_parts(CertifyExtent::floats)) {
    const CertifyPart& full = full_part(part.name);
    EXPECT_GE(full.domain.count, part.domain.count) << part.name;
    ASSERT_GE(full.sides.size(), part.sides.size()) << part.name;
    for (size_t i = 0; i < part.sides.size(); ++i) {
      EXPECT_EQ(full.sides[i].subject, part.sides[i].subject) << part.name;
      EXPECT_EQ(full.sides[i].environment, part.sides[i].environment) << part.name;
    }
    names.insert(part.name);
  }
  EXPECT_GT(certify_parts(CertifyExtent::full).size(), names.size() + 50);
  std::set<std::string> subjects;
  for (const CertifySide& side : full_part("cast e4m3 f32").sides) subjects.insert(side.subject);
  EXPECT_EQ(subjects, (std::set<std::string>{"headers", "host", "lanes", "lanes_twin", "mpfr", "simd"}));
  struct Row {
    const char* name;
    int64_t least, most;
  };
  for (const Row& row :
       {Row{"scale_chain fp8_current f32", int64_t{1} << 31, int64_t{1} << 31},
        // Pairs of bf16, 1,260 block amaxes for each of 2^19 tensor amaxes, and what the default has.
        Row{"scale_chain nvfp4 f32", (int64_t{1} << 30) + (int64_t{1260} << 19) + 10373500,
            (int64_t{1} << 30) + (int64_t{1260} << 19) + 10373500},
        Row{"cast e2m1 f32 round=sr", (2 << 24) + (1 << 20), (2 << 24) + (1 << 20)},
        // All 2^15 patterns, in rows of 31 and of 127 beside the amax; 126 points with 7 patterns each.
        Row{"under scales: quantize mxfp4 bf16 dir=row", 1058 << 15, 1058 << 15},
        Row{"under scales: quantize fp8_block bf16 dir=row", 259 << 15, 259 << 15},
        Row{"under scales: quantize mxfp6 f16 dir=row", 1058 << 15, 1058 << 15},
        Row{"under scales: quantize mxfp8 f32 dir=row", 29 << 19, 29 << 19}}) {
    EXPECT_GE(full_part(row.name).domain.count, row.least) << row.name;
    EXPECT_LE(full_part(row.name).domain.count, row.most) << row.name;
  }
}

// Every code of an element meets every code of a scale; of NVFP4 once under each amax, which are of bf16.
TEST(Certify, CodedBlocksHoldEveryPairOfCodes) {
  struct Row {
    const char* name;
    size_t pairs, amaxes;
  };
  for (const Row& row :
       {Row{"dequantize mxfp8 f32", 1 << 16, 1}, Row{"dequantize mxfp8 f32 out=f16 element=e5m2", 1 << 16, 1},
        Row{"dequantize mxfp6 f32 element=e3m2", 1 << 14, 1}, Row{"dequantize mxfp4 f32", 1 << 12, 1},
        Row{"dequantize nvfp4 f32 out=bf16", 1 << 12, 1 << 16}}) {
    const CertifyPart& part = full_part(row.name);
    ASSERT_EQ(part.domain.count, part.piece * static_cast<int64_t>(row.amaxes)) << row.name;
    for (const int64_t piece : {int64_t{0}, static_cast<int64_t>(row.amaxes) - 1}) {
      const std::vector<PlaneData> inputs = filled(part, piece * part.piece, part.piece);
      const PlaneData &data = *find_plane(inputs, "row.data"), &scales = *find_plane(inputs, "row.scale_inv");
      std::set<std::pair<uint32_t, uint32_t>> pairs;
      const int64_t length = part.problem.x.shape.cols;
      for (int64_t i = 0; i < part.piece; ++i)
        for (int64_t j = 0; j < length; ++j)
          pairs.emplace(code_at(data.plane, data.bytes, i * length + j),
                        code_at(scales.plane, scales.bytes, i * scales.plane.padded.cols));
      EXPECT_EQ(pairs.size(), row.pairs) << row.name;
    }
  }
}

// Of bf16 amaxes 0, an infinity and a NaN are there, and several mantissas; and as many amaxes whose product
// with a scale is rounded.
TEST(Certify, CodedBlocksHaveAmaxesOfEveryKind) {
  for (const CertifyExtent extent : {CertifyExtent::quick, CertifyExtent::floats, CertifyExtent::full}) {
    const std::vector<CertifyPart> parts = certify_parts(extent);
    const auto part = std::find_if(parts.begin(), parts.end(),
                                   [](const CertifyPart& p) { return p.name == "dequantize nvfp4 f32"; });
    ASSERT_NE(part, parts.end());
    std::set<uint32_t> amaxes, mantissas;
    size_t whole = 0;
    for (int64_t at = 0; at < part->domain.count; at += part->piece) {
      std::vector<PlaneData> one = filled(*part, at, 1);
      const PlaneData& amax = *find_plane(one, "row.amax");
      const uint32_t bits = code_at(amax.plane, amax.bytes, 0);
      amaxes.insert(bits);
      mantissas.insert(bits >> 16 & 0x7F);
      whole += (bits & 0xFFFF) == 0;
    }
    EXPECT_EQ(amaxes.size(), static_cast<size_t>(part->domain.count / part->piece)) << name(extent);
    EXPECT_EQ(2 * whole, amaxes.size()) << name(extent);
    EXPECT_GE(mantissas.size(), 60u) << name(extent);
    for (const uint32_t amax : {0u, 0x7F800000u, 0x7FFF0000u})
      EXPECT_TRUE(amaxes.contains(amax)) << name(extent);
  }
}

// A dequantize draws its codes by a seed, so no line holds those that failed: they are written out.
TEST(Certify, AWrongDequantizeSaysOfWhichCodes) {
  CertifyOptions options;
  options.parts = {full_part("dequantize mxfp4 f32")};
  options.parts[0].sides = {{"faulty", {}}};
  const auto wrong = [](const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> outputs) {
    outputs[0].bytes[4 * 32 * 0x81] ^= std::byte{1};
  };
  const Ran r = certify(options, with_fault(wrong));
  EXPECT_EQ(r.status, 1) << r.out;
  for (const char* text :
       {"FAILED  certify dequantize mxfp4 f32",
        "where    rows 0 to 255 of: every code of e2m1 under every code of e8m0", "row.scale_inv 81\n",
        "row.data  00 01 02 03", "note     no line holds these codes", "1 of the outputs"})
    EXPECT_TRUE(r.says(text)) << text << "\n" << r.out;
}

// What the reference makes of the rows of an amax, as pairs of a magnitude's pattern and a code without its
// sign.
std::map<uint32_t, uint32_t> codes_under(const CertifyPart& part, int64_t first_row, int64_t rows) {
  const std::vector<PlaneData> inputs = filled(part, first_row, rows);
  std::vector<PlaneData> outputs = planes_of(output_planes(part.sized(rows)));
  std::vector<Buffer> to;
  for (PlaneData& p : outputs) to.push_back({&p.plane, p.bytes});
  make_reference_subject()->run(part.sized(rows), views(inputs), to, {});
  const PlaneData& data = *find_plane(outputs, "row.data");
  const Encoding source = part.problem.x.source;
  std::map<uint32_t, uint32_t> out;
  for (int64_t i = 0; i < rows * part.problem.x.shape.cols; ++i) {
    const uint32_t code = code_at(data.plane, data.bytes, i),
                   sign = 1u << (info(data.plane.encoding).bits - 1);
    out[code_at(source, inputs[0].bytes, i) & ((1u << (info(source).bits - 1)) - 1)] = code & (sign - 1);
  }
  return out;
}

// Of f32 the rows of an amax hold each point where the code changes, between two neighbouring patterns; of 16
// bits every pattern.
TEST(Certify, ElementsUnderAScaleHoldEveryChangeOfTheirCode) {
  int parts = 0;
  for (const CertifyPart& part : certify_parts(CertifyExtent::full)) {
    if (!part.name.starts_with("under scales: ")) continue;
    ++parts;
    const bool is_f32 = part.problem.x.source == Encoding::f32;
    const int64_t amaxes = is_f32 ? 1 << 19 : 1 << 15, rows = part.domain.count / amaxes;
    // 1, 1.75, 448, 6 and some others of middling size, finite and normal in every source.
    const bool is_f16 = part.problem.x.source == Encoding::f16;
    for (const float amax : {1.0f, 1.75f, 448.0f, 6.0f, 3.140625f, 0.0859375f, 1000.0f}) {
      const uint32_t f32 = std::bit_cast<uint32_t>(amax);
      const int64_t a = is_f16 ? (int64_t{f32} >> 13) - (112 << 10) : f32 >> (is_f32 ? 12 : 16);
      const std::map<uint32_t, uint32_t> codes = codes_under(part, a * rows, rows);
      std::pair<uint32_t, uint32_t> below = *codes.begin();
      EXPECT_EQ(below.second, 0u) << part.name << " " << amax;
      for (const auto& [pattern, code] : codes) {
        if (code == below.second) continue;
        if (is_f32)
          EXPECT_EQ(code, below.second + 1) << part.name << " " << amax << std::hex << " " << pattern;
        else EXPECT_GE(code, below.second) << part.name << " " << amax << std::hex << " " << pattern;
        EXPECT_EQ(pattern, std::prev(codes.find(pattern))->first + 1)
            << part.name << " " << amax << std::hex << " code " << code;
        below = {pattern, code};
      }
      EXPECT_GT(below.second, info(part.problem.row->element).max_finite / 2) << part.name << " " << amax;
    }
  }
  EXPECT_EQ(parts, 63);
}

TEST(Certify, AWrongElementUnderOneScaleIsFound) {
  CertifyOptions options;
  options.parts = {full_part("under scales: quantize mxfp4 bf16 dir=row")};
  CertifyPart& part = options.parts[0];
  part.sides = {{"faulty", {}}};
  constexpr int64_t kRows = 1058, kAmax = 0x3FC0;  // 1.5, and what lies under it
  part.domain = {"rows of two amaxes", 2 * kRows,
                 [fill = part.domain.fill](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
                   fill(kAmax * kRows + first, n, inputs);
                 }};
  auto wrong = [](const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
    for (int64_t i = 0; i < p.x.shape.count(); ++i)
      if ((code_at(Encoding::bf16, inputs[0].bytes, i) & 0x7FFF) == 0x3F55)
        find(outputs, "row.data")->bytes[static_cast<size_t>(i / 2)] ^= std::byte{1};
  };
  const Ran r = certify(options, with_fault(wrong));
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_TRUE(r.says("FAILED  certify under scales: quantize mxfp4 bf16 dir=row")) << r.out;
  EXPECT_TRUE(r.says("quantize mxfp4 1x32 bf16 dir=row fill=literal:")) << r.out;
  EXPECT_TRUE(r.says("2 of the outputs of 2116 inputs differ")) << r.out;
}

// Whoever has the outputs can compute it: SHA-256 of each piece's bytes, and of those as text.
TEST(Certify, Sha256IsThatOfTheOutputs) {
  const Scratch scratch;
  CertifyOptions options;
  options.output = scratch.path("c.json");
  options.parts = {window(0x3F800000, 1000)};
  options.parts[0].piece = 600;
  options.parts[0].sha256 = true;
  ASSERT_EQ(certify(options, with_fault(no_fault)).status, 0);
  std::string pieces;
  for (const auto& [first, n] : {std::pair<int64_t, int64_t>{0, 600}, {600, 400}}) {
    const Problem p = options.parts[0].sized(n);
    const std::vector<PlaneData> inputs = filled(options.parts[0], first, n);
    std::vector<PlaneData> outputs = planes_of(output_planes(p));
    const Buffer to{&outputs[0].plane, outputs[0].bytes};
    make_reference_subject()->run(p, views(inputs), {&to, 1}, {});
    pieces += sha256(outputs[0].bytes);
  }
  const json::Value part = (*certificate(options.output).find("parts")->array())[0];
  EXPECT_EQ(part.text("sha256"), sha256(std::as_bytes(std::span(pieces))));
  EXPECT_EQ(part.find("piece")->to_int(), 600);
}

// What `--quick` says of its floats: between two of them nothing changes.
TEST(Certify, QuickHoldsEveryPointWhereACastChanges) {
  const auto reference = make_reference_subject();
  size_t casts = 0;
  for (const CertifyPart& part : certify_parts(CertifyExtent::quick)) {
    if (!part.name.starts_with("cast") || part.problem.x.source != Encoding::f32 ||
        part.problem.as<Cast>()->round == Round::sr)
      continue;
    ++casts;
    // Of a block of 2^12 patterns, the set holds the first two and the last; what lies between must have one
    // code.
    std::vector<uint32_t> x;
    for (uint32_t block = 0; block < 1u << 20; block += 1 + block % 7)
      for (uint32_t low : {0x001u, 0x002u, 0x7FFu + block % 5, 0xFFEu, 0xFFFu})
        x.push_back(block << 12 | low);
    const Problem p = part.sized(static_cast<int64_t>(x.size()));
    const std::vector<Plane> in = input_planes(p), out = output_planes(p);
    std::vector<std::byte> y(out[0].bytes());
    const ConstBuffer from{&in[0], std::as_bytes(std::span(x))};
    const Buffer to{&out[0], y};
    reference->run(p, {&from, 1}, {&to, 1}, {});
    const size_t width = y.size() / x.size();
    for (size_t i = 0; i < x.size(); i += 5)
      for (size_t k = 1; k < 5; ++k)
        ASSERT_EQ(std::memcmp(&y[i * width], &y[(i + k) * width], width), 0)
            << part.name << std::hex << " " << x[i] << " " << x[i + k];
  }
  EXPECT_EQ(casts, 22u);
}

// Another version made it: its parts are read, and none of them is taken over.
TEST(Certify, ACertificateOfVersion01IsRead) {
  const Scratch scratch;
  CertifyOptions options;
  options.output = scratch.path("c.json");
  std::filesystem::copy_file(source_path("fixtures/packs/version_0.1/certificate.json"), options.output);
  EXPECT_EQ(certificate(options.output).find("build")->text("version"), "0.1.0");
  options.resume = true;
  options.parts = {window(0x3F800000, 1000)};
  const Ran r = certify(options, with_fault(no_fault));
  EXPECT_EQ(r.status, 2) << r.out << r.err;
  EXPECT_NE(r.err.find("was made by another build or in another mode"), std::string::npos) << r.err;
  EXPECT_EQ(certificate(options.output).find("build")->text("version"), "0.1.0");
}

// Kernels on the host executor have few inputs, each of which costs a hundred times what a cast does.
TEST(Certify, SmallPartsAreSeveralTasksAndLargeOnesHaveWholePieces) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  EXPECT_EQ(certify_task(1), kPiece);
  EXPECT_EQ(certify_task(6 * kPiece), kPiece);
  EXPECT_EQ(certify_task(200 * kPiece + 1), 3 * kPiece);
  EXPECT_EQ(certify_task(int64_t{1} << 32), 16 * kPiece);
  EXPECT_EQ(certify_task(int64_t{1} << 32, 2048), 16 * 2048);  // of rows of 128 elements
}

// `assay check` uses the widest instructions of a processor that `assay certify --simd` has judged: what
// judges nothing certifies nothing.
TEST(Certify, AListAndAnEstimateKeepNoCertificate) {
  const std::string cache = testing::TempDir() + "assay_certify_cache";
  std::filesystem::remove_all(cache);
  for (const char* looks : {"--list", "--estimate"}) {
    std::string words[] = {"assay", "certify", "--simd", looks};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    const char* before = std::getenv("XDG_CACHE_HOME");
    const std::string kept = before ? before : "";
    ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    testing::internal::CaptureStdout();
    const int status = program_main(4, argv);
    const std::string said = testing::internal::GetCapturedStdout();
    if (before) ::setenv("XDG_CACHE_HOME", kept.c_str(), 1);
    else ::unsetenv("XDG_CACHE_HOME");
    EXPECT_TRUE(status == 0 || status == 3) << status;  // 3: a processor without such instructions
    EXPECT_EQ(said.empty(), status == 3);
    EXPECT_FALSE(std::filesystem::exists(cache)) << looks;
  }
}

}  // namespace
}  // namespace assay

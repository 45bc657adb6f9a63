// Model: four figures of somebody's kernel, with and without the programs of the CUDA toolkit.
#include "compare/commands/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "compare/process/guarded_run.h"
#include "compare/subjects/ptx_kernel.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "reference/subject.h"
#include "tests/source_path.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr char kLarge[] = "quantize mxfp8 16384x16384 bf16 dir=row",
               kSmall[] = "quantize mxfp8 256x512 bf16 dir=row";

struct ModelRun {
  int status;
  std::string out, err;
  json::Value value() const {
    const auto v = json::parse(out);
    if (!v) throw std::runtime_error(v.error().text() + "\n" + out + err);
    return *v;
  }
};

ModelCommand without_toolkit() {
  ModelCommand command;
  command.ptxas = command.nvdisasm = "/nonexistent/program";
  return command;
}

ModelRun model_run(ModelCommand command, const std::vector<std::string>& lines,
                   const std::string& kernel = "nvcc_mxfp8_rows.json") {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  auto subject = make_ptx_kernel_subject(source_path("fixtures/triton/" + kernel));
  if (!subject) throw std::runtime_error(subject.error().text());
  command.subject = (*subject)->name();
  subjects.owned.push_back(std::move(*subject));
  for (const std::string& line : lines) command.problems.push_back(*parse_line(line));
  std::ostringstream out, err;
  const int status = run_model(command, subjects, out, err);
  return {status, out.str(), err.str()};
}

double number_at(const json::Value& v, std::initializer_list<const char*> path) {
  const json::Value* at = &v;
  for (const char* key : path) at = at->find(key);
  return *at->to_double();
}

TEST(ModelCommand, WithoutPtxasGivesAddressesAndInstructionsOfThePtx) {
  ModelCommand command = without_toolkit();
  command.json = true;
  const ModelRun r = model_run(command, {kLarge});
  EXPECT_EQ(r.status, 0) << r.err;
  const json::Value v = r.value();
  EXPECT_EQ(v.text("schema"), "assay.model/1");
  EXPECT_EQ(v.text("instructions_of"), "ptx");
  EXPECT_TRUE(v.find("registers")->is_null());
  EXPECT_TRUE(v.find("blocks_per_sm")->is_null());
  EXPECT_FALSE(v.find("missing")->array()->empty());
  EXPECT_TRUE(*v.find("proven")->to_bool());
  // x once, a byte for each element, a scale for each 32.
  EXPECT_EQ(number_at(v, {"least_bytes"}), 268435456.0 * (2 + 1 + 1. / 32));
  EXPECT_NEAR(number_at(v, {"bytes"}), number_at(v, {"least_bytes"}), 1e4);
  const json::Value& launch = v.find("launches")->array()->front();
  EXPECT_EQ(launch.text("entry"), "mxfp8_rows");
  EXPECT_NEAR(number_at(launch, {"blocks"}), 128 * 16384, 5);
  EXPECT_GT(number_at(v, {"share"}), 0.1);
  EXPECT_LT(number_at(v, {"share"}), 1.0);
}

// What is scaled from smaller tensors is what a count of the whole tensor gives.
TEST(ModelCommand, ScaledCountsAreThoseOfTheWholeTensor) {
  ModelCommand command = without_toolkit();
  command.json = true;
  // The first is just small enough to be counted whole, the second is not, and each element costs the same.
  const json::Value whole = model_run(command, {"quantize mxfp8 8192x2048 bf16 dir=row"}).value(),
                    scaled = model_run(command, {"quantize mxfp8 32768x2048 bf16 dir=row"}).value();
  EXPECT_EQ(whole.find("counted_on")->array()->size(), 1u);
  EXPECT_EQ(scaled.find("counted_on")->array()->size(), 3u);
  EXPECT_NEAR(number_at(scaled, {"instructions_per_element"}), number_at(whole, {"instructions_per_element"}),
              1e-3 * number_at(whole, {"instructions_per_element"}));
  EXPECT_NEAR(number_at(scaled, {"bytes"}), 4 * number_at(whole, {"bytes"}),
              1e-4 * number_at(whole, {"bytes"}));
}

// Programs that answer as ptxas and nvdisasm do.
class FakeToolkit {
 public:
  FakeToolkit() : folder_(testing::TempDir() + "assay_model_tools") {
    fs::create_directories(folder_);
    // It is an old one, that takes no newer text.
    script("ptxas",
           "for file; do :; done\n"
           "grep -q '^.version 1.2$' \"$file\" || { echo \"line 1; fatal : Unsupported .version 9.0; current "
           "version is '1.2'\"; exit 255; }\n"
           "echo 'ptxas info    : Used 190 registers, 64 bytes smem'\n"
           "echo '    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'");
    // One machine instruction for the PTX line that every warp carries out: the last, `ret`.
    script("nvdisasm", "echo '//## File \"kernel.ptx\", line " + std::to_string(line_of_ret()) +
                           "'\n"
                           "echo '        /*0000*/                   LOP3.LUT R1, R2, R3, R4, 0xc0, !PT ;'");
  }
  std::string path(const char* name) const { return folder_ + "/" + name; }

 private:
  void script(const char* name, const std::string& body) {
    const std::string text =
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'release 13.0, V13.0.88'; exit; fi\n";
    if (write_file(path(name), text + body + "\n")) throw std::runtime_error("no script");
    fs::permissions(path(name), fs::perms::owner_all);
  }
  static size_t line_of_ret() {
    const auto file = MappedFile::open(source_path("fixtures/triton/nvcc_mxfp8_rows.ptx"));
    const std::string text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
    const size_t at = text.rfind("ret;");
    return 1 + static_cast<size_t>(
                   std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
  std::string folder_;
};

TEST(ModelCommand, WithPtxasAndNvdisasmGivesRegistersBlocksAndMachineInstructions) {
  const FakeToolkit tools;
  ModelCommand command;
  command.ptxas = tools.path("ptxas"), command.nvdisasm = tools.path("nvdisasm");
  command.json = true;
  const json::Value v = model_run(command, {kSmall}).value();
  EXPECT_EQ(number_at(v, {"registers"}), 190);
  EXPECT_EQ(number_at(v, {"blocks_per_sm"}), 2);  // of 128 threads each
  EXPECT_EQ(v.text("ptxas"), "13.0.88");
  EXPECT_EQ(v.text("instructions_of"), "machine");
  // An instruction of each warp, which has an element for each lane.
  EXPECT_NEAR(number_at(v, {"instructions_per_element"}), 1, 1e-4);
  command.nvdisasm = "/nonexistent/nvdisasm";
  const json::Value half = model_run(command, {kSmall}).value();
  EXPECT_EQ(number_at(half, {"registers"}), 190);
  EXPECT_EQ(half.text("instructions_of"), "ptx");
}

TEST(ModelCommand, SaysThatItIsAModel) {
  const ModelRun one = model_run(without_toolkit(), {kSmall});
  EXPECT_NE(one.out.find("This is a model: nothing was measured"), std::string::npos) << one.out;
  EXPECT_EQ(one.out.find("verdict"), one.out.find('\n') + 3) << one.out;
  const ModelRun two = model_run(without_toolkit(), {kSmall, "quantize mxfp8 64x256 bf16 dir=row"});
  EXPECT_TRUE(two.out.starts_with("A model of H200 SXM: nothing was measured.\n")) << two.out;
}

TEST(ModelCommand, ThePageIsOneFileWithoutAScript) {
  ModelCommand command = without_toolkit();
  command.html = testing::TempDir() + "assay_model.html";
  ASSERT_EQ(model_run(command, {kSmall}).status, 0);
  const auto file = MappedFile::open(command.html);
  ASSERT_TRUE(file);
  const std::string page(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  for (const char* text : {"<svg", "Nothing here was measured", "mxfp8_rows", "<circle", "kLoadClocks"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  for (const char* text : {"<script", "http:", "https:", "src="})
    EXPECT_EQ(page.find(text), std::string::npos) << text;
}

TEST(ModelCommand, RefusesWhatItCannotModel) {
  ModelCommand command = without_toolkit();
  command.gpu = "z80";
  const ModelRun gpu = model_run(command, {kSmall});
  EXPECT_EQ(gpu.status, 2);
  EXPECT_NE(gpu.err.find("expected --arch h100, h200, b200"), std::string::npos) << gpu.err;
  const ModelRun line = model_run(without_toolkit(), {"quantize mxfp8 64x256 bf16 dir=col"});
  EXPECT_EQ(line.status, 3);
  EXPECT_NE(line.err.find("does not support"), std::string::npos) << line.err;
}

}  // namespace
}  // namespace assay

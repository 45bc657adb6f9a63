// Reproducers: what they write compiles alone, shows the difference that was recorded, runs a kernel or a
// plugin and sees what it does wrong.
#include "compare/debug/reproducer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compare/arithmetic/codes.h"
#include "compare/commands/check.h"
#include "compare/commands/shrink.h"
#include "compare/debug/shrink.h"
#include "compare/process/run_in_child.h"
#include "compare/subjects/plugin.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "reference/subject.h"

namespace assay {
namespace {

std::string plugin_path(const std::string& name) {
  return std::string(ASSAY_PLUGIN_DIR "/lib") + name + ".so";
}

struct Said {
  int status = -1;
  std::string text;
};
Said shell(const std::string& command) {
  Said said;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return said;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) said.text.append(chunk, n);
  const int status = pclose(pipe);
  said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256;
  return said;
}
Said compile(const std::string& folder) {
  return shell("cd " + folder +
               " && " ASSAY_CXX " -std=c++17 -Wall -Wextra -Werror -O1 reproduce.cpp -o reproduce -ldl");
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Sides {
  Problem problem;
  std::vector<PlaneData> inputs, want;
};
Sides sides_of(const std::string& line) {
  Sides s{*parse_line(line), {}, {}};
  const auto reference = make_reference_subject();
  s.inputs = *make_inputs(s.problem, *reference);
  s.want = execute(*reference, s.problem, s.inputs, Environment{}).planes;
  return s;
}

std::string fresh(const std::string& name) {
  const std::string folder = testing::TempDir() + "/assay_" + name + "_" + std::to_string(getpid());
  EXPECT_EQ(shell("rm -rf " + folder).status, 0);
  return folder;
}

Subjects with_plugin(const std::string& library) {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(std::move(*make_plugin_subject(library)));
  return subjects;
}

// Shrinks a line on which the plugin fails, and returns what was printed.
std::string shrunk(const std::string& line, const Subjects& subjects, const std::string& folder) {
  ShrinkCommandOptions options;
  options.problem = *parse_line(line);
  options.subject = subjects.owned.back()->name();
  options.reproducer = folder;
  std::ostringstream out, err;
  EXPECT_EQ(run_shrink(options, subjects, out, err), 0) << err.str();
  return out.str();
}

TEST(Reproducer, OfAShrunkPluginRunsThePlugin) {
  const Subjects subjects = with_plugin(plugin_path("faulty_plugin_rounding"));
  const std::string folder = fresh("shrunk"),
                    out = shrunk("quantize mxfp8 64x256 bf16 dir=row fill=ties seed=3", subjects, folder);
  EXPECT_NE(out.find("wrote    " + folder), std::string::npos) << out;

  const Said compiled = compile(folder);
  ASSERT_EQ(compiled.status, 0) << compiled.text;
  const std::string run = folder + "/reproduce";
  for (const Said& said : {shell(run), shell(run + " recorded")}) {
    EXPECT_EQ(said.status, 1) << said.text;
    EXPECT_NE(said.text.find("row.data (e4m3)   1 of 1 differ\n  (0, 0)   got 76 224   want 77 240\n"),
              std::string::npos)
        << said.text;
    EXPECT_NE(said.text.find("row.scale_inv (e8m0)   0 of 512 differ"), std::string::npos) << said.text;
  }
  const Said right = shell(run + " " + plugin_path("example_plugin"));
  EXPECT_EQ(right.status, 0) << right.text;
  const Said outside = shell(run + " " + plugin_path("faulty_plugin_out_of_bounds"));
  EXPECT_EQ(outside.status, 1);
  EXPECT_NE(outside.text.find("row.data: byte 1 of it was written, which is outside"), std::string::npos)
      << outside.text;
  EXPECT_EQ(shell(run + " /nonexistent.so").status, 2);
  EXPECT_NE(read(folder + "/README").find("assay run 'quantize mxfp8 1x1 bf16 dir=row fill=literal:"),
            std::string::npos);

  std::ostringstream checked;
  EXPECT_EQ(run_check({{folder + "/case.safetensors"}}, subjects, checked, checked), 1);
  EXPECT_NE(checked.str().find("1 passed, 1 failed, 0 skipped"), std::string::npos) << checked.str();
}

// A path that a shell would read as two words: the program loads it, and the commands quote it.
TEST(Reproducer, PathOfThePluginMayHoldASpace) {
  const std::string folder = fresh("spaced") + " it's", library = folder + "/lib one.so";
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink(plugin_path("faulty_plugin_rounding"), library);
  const std::string to = fresh("spaced"), out = shrunk("quantize mxfp8 1x32 bf16 dir=row fill=ties seed=3",
                                                       with_plugin(library), to);
  const std::string quoted = shell_quoted(std::filesystem::path(library).lexically_normal().string());
  EXPECT_NE(out.find("assay run --plugin " + quoted), std::string::npos) << out;
  const std::string readme = read(to + "/README");
  EXPECT_NE(readme.find("--plugin " + quoted + "\n"), std::string::npos) << readme;
  ASSERT_EQ(compile(to).status, 0);
  const Said said = shell(to + "/reproduce");
  EXPECT_EQ(said.status, 1) << said.text;
  EXPECT_NE(said.text.find("1 of 1 differ"), std::string::npos) << said.text;
  std::filesystem::remove_all(folder);
  std::filesystem::remove_all(to);
}

// The place for one's own kernel: one that copies what the reference wrote is right; one that also writes an
// input is not.
TEST(Reproducer, OwnKernelIsJudged) {
  const Sides s = sides_of("quantize nvfp4 8x33 bf16 dir=row fill=wide");
  std::vector<PlaneData> got = s.want;
  PlaneData& codes = got.back();
  set_code(codes.plane, codes.bytes, 5, code_at(codes.plane, codes.bytes, 5) ^ 1u);
  const std::string folder = fresh("own");
  const auto error = write_reproducer(folder, s.problem, "", s.inputs, got, s.want);
  ASSERT_FALSE(error) << error->text();
  Said said = compile(folder);
  ASSERT_EQ(said.status, 0) << said.text;
  said = shell(folder + "/reproduce");
  EXPECT_EQ(said.status, 1);
  EXPECT_NE(said.text.find("row.data (e2m1)   1 of 272 differ"), std::string::npos) << said.text;

  const std::string text = read(folder + "/reproduce.cpp"), empty = "  return false;\n";
  for (const bool spoil : {false, true}) {
    std::string kernel =
        "  for (size_t i = 0; i < output_count; ++i) std::memcpy(outputs[i].data, ::outputs[i].want, "
        "outputs[i].bytes);\n";
    if (spoil) kernel += "  static_cast<unsigned char*>(inputs[0].data)[3] ^= 1;\n";
    std::string other = text;
    const size_t at = other.find(empty);
    ASSERT_NE(at, std::string::npos);
    std::ofstream(folder + "/reproduce.cpp") << other.replace(at, empty.size(), kernel + "  return true;\n");
    said = compile(folder);
    ASSERT_EQ(said.status, 0) << said.text;
    said = shell(folder + "/reproduce");
    EXPECT_EQ(said.status, spoil ? 1 : 0) << said.text;
    EXPECT_EQ(said.text.find("x: byte 3 of it was written, an input") != std::string::npos, spoil)
        << said.text;
  }
}

// Values are printed as the rest of Assay has them, in every encoding; what stands beyond members is not
// compared.
TEST(Reproducer, ValuesAndSpareRoom) {
  const Sides s = sides_of("split mxfp4 40x33 bf16 groups=8,32 dir=col capacity=4000");
  std::vector<PlaneData> got = s.want;
  got.back().bytes.back() ^= std::byte{1};  // beyond the members
  got.back().bytes.front() ^= std::byte{0x10};
  const std::string folder = fresh("split");
  ASSERT_FALSE(write_reproducer(folder, s.problem, "", s.inputs, got, s.want));
  Said said = compile(folder);
  ASSERT_EQ(said.status, 0) << said.text;
  said = shell(folder + "/reproduce");
  EXPECT_NE(said.text.find("col.data (e2m1)   1 of "), std::string::npos) << said.text;

  for (const Encoding e : {Encoding::e4m3, Encoding::e5m2, Encoding::e2m3, Encoding::e3m2, Encoding::e2m1,
                           Encoding::e8m0, Encoding::bf16, Encoding::f32}) {
    Sides one{*parse_line("cast e4m3 1x6 f32"), {}, {}};
    Plane plane = output_planes(one.problem).front();
    plane.encoding = e;
    const uint32_t sign = info(e).has_sign() ? 1u << (info(e).bits - 1) : 0;
    const uint32_t codes[] = {
        0,        1,           info(e).max_finite,
        sign | 1, info(e).nan, info(e).infinity == kNoCode ? 2 : sign | info(e).infinity};
    PlaneData zero{plane, std::vector<std::byte>(plane.bytes())}, other = zero;
    for (int64_t i = 0; i < 6; ++i) set_code(plane, other.bytes, i, codes[i]);
    for (int64_t i = 0; i < 6; ++i) set_code(plane, zero.bytes, i, codes[5 - i]);
    const std::string place = fresh("values");
    ASSERT_FALSE(write_reproducer(place, one.problem, "", {}, {other}, {zero}));
    said = compile(place);
    ASSERT_EQ(said.status, 0) << said.text;
    said = shell(place + "/reproduce");
    for (int64_t i = 0; i < 4; ++i) {
      if (codes[i] == codes[5 - i]) continue;
      char value[64];
      std::snprintf(value, sizeof value, "got %s %.9g ", code_hex(e, codes[i]).c_str(),
                    value_of(e, codes[i]));
      EXPECT_NE(said.text.find(value), std::string::npos) << info(e).name << ": no '" << value << "' in\n"
                                                          << said.text;
    }
  }
}

TEST(Reproducer, TooLargeIsAnError) {
  Sides s = sides_of("quantize mxfp8 1024x512 bf16 dir=row");
  const auto error = write_reproducer(fresh("large"), s.problem, "", s.inputs, s.want, s.want);
  ASSERT_TRUE(error);
  EXPECT_NE(error->hint.find("assay shrink"), std::string::npos);
}

}  // namespace
}  // namespace assay

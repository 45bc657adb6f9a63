// Every format, in every op that takes it, with every value of every key that applies there, as a gemm's
// operands too: the reference and the kernels give the same bytes. The lines are made from the table of keys
// and the rows of formats.def, so that a new row or key is tried without being named here.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/words.h"
#include "fast/subject_host.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"

namespace assay {
namespace {

using std::string;

// What stands for a value that is no word.
const std::map<string, std::vector<string>, std::less<>> kSamples = {
    {"float", {"0.5", "-3"}},
    {"16 bits", {"0x1234"}},
    {"<name>", {}},  // flavours, below
    {"<size>,... or <rows>x<cols>,...", {"16,32", "16x40,32x40"}},
    {"<row>,<col>", {"3,5"}},
    {"<seed>,<offset>,<member>", {"5,7,0"}},
    {"literal:<hex>", {}},  // given data are fixtures'
    {"pack:<file>#<tensor>@<sha256>", {}},
    {"0..2^31", {"5000"}},
    {"1..2^31-1", {"3"}},
    {"1..16", {"7"}},
    {"-126..126", {"-3"}},
    {"0..2^64-1", {"9"}},
    {"1..2^31", {"2"}},
    {"auto", {}},  // the default
    {"full", {}},
    {"any", {}},
    {"<tokens>,...", {"64,64", "5"}},
    {"<before>,<after>", {"3,1"}},
};

std::vector<string> values_of(const KeyInfo& key) {
  std::vector<string> out;
  const bool listed = kSamples.contains(key.values);
  for (std::string_view word : listed ? Words{key.values} : words_of(key.values, '|')) {
    const auto sample = kSamples.find(word);
    if (sample != kSamples.end()) out.insert(out.end(), sample->second.begin(), sample->second.end());
    else out.emplace_back(word);
    EXPECT_TRUE(sample != kSamples.end() || word.find_first_of("<.^ ") == string::npos)
        << "key " << key.name << ": no sample of '" << word << "'";
  }
  if (key.name == "flavour")
    for (const FlavourInfo& f : flavours()) out.emplace_back(f.name);
  return out;
}

// The lines of a format that keys are added to: one for each op that takes it.
std::vector<string> lines_of(const FormatInfo& f) {
  const string name(f.name), scale(f.scale ? info(*f.scale).name : "f32");
  return {"quantize " + name + " 48x40 bf16",
          "split " + name + " 48x40 bf16",
          "dequantize " + name + " 33x40 bf16",
          "swizzle " + name + " 33x200 " + scale,
          "scale_chain " + name + " 16x2 f32 fill=wide",
          "scale_chain " + name + " 16x2 " + scale,
          "update " + name + " 4x6 f32",
          "hadamard " + name + " 32x24 bf16",
          "gemm a=" + name + " b=identity 17x9x48",
          "gemm a=identity b=" + name + " 9x17x48",
          "attention " + name + " 128x64 bf16 heads=2 backward=1"};
}

std::vector<std::vector<std::byte>> outputs_of(Subject& subject, const Problem& p,
                                               const std::vector<PlaneData>& inputs) {
  const std::vector<Plane> planes = output_planes(p);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Buffer> buffers;
  for (const Plane& plane : planes) bytes.emplace_back(plane.bytes(), std::byte{0x7F});
  for (size_t i = 0; i < planes.size(); ++i) buffers.push_back({&planes[i], bytes[i]});
  subject.run(p, views(inputs), buffers, {});
  return bytes;
}

class EveryKey : public ::testing::TestWithParam<FormatInfo> {
 protected:
  // Runs a line on both sides. False where it is no line, or where a key does not apply.
  bool hold(const string& line) {
    const Result<Problem> p = parse_line(line);
    if (!p || !tried_.insert(to_line(*p)).second) return static_cast<bool>(p);
    const auto inputs = make_inputs(*p, *reference_);
    if (!inputs) {
      ADD_FAILURE() << line << ": " << inputs.error().text();
      return true;
    }
    for (Subject* side : {general_.get(), host_.get()}) {
      // What a side leaves open is held to its bound by the suites; it counts as a line that was not held.
      if (!side->supports(*p).yes || side->unpinned(*p)) continue;
      ++held_;
      const std::vector<Plane> planes = output_planes(*p);
      const auto got = outputs_of(*side, *p, *inputs), want = outputs_of(*reference_, *p, *inputs);
      for (size_t i = 0; i < planes.size(); ++i)
        EXPECT_EQ(got[i], want[i]) << line << ": " << side->name() << " differs in " << planes[i].name;
    }
    return true;
  }

  // The line with each value of each key, and with a second key where only the first makes that apply.
  void sweep(const string& line, int depth, const std::set<string>& known) {
    std::set<string> applied = known;
    std::vector<string> longer;
    for (const KeyInfo& key : line_keys())
      for (const string& prefix : prefixes_of(key, line)) {
        const string word = prefix + string(key.name);
        if (known.contains(word)) continue;
        for (const string& value : values_of(key)) {
          const string with = line + " " + word + "=" + value;
          if (!hold(with)) continue;
          applied.insert(word);
          applied_.insert(string(key.name));
          longer.push_back(with);
        }
      }
    if (depth > 1)
      for (const string& with : longer) sweep(with, depth - 1, applied);
  }

  static std::vector<string> prefixes_of(const KeyInfo& key, const string& line) {
    if (line.starts_with("gemm")) return {"a.", "b.", ""};
    if (key.directional && line.starts_with("quantize")) return {"", "row.", "col."};
    return {""};
  }

  std::unique_ptr<Subject> reference_ = make_reference_subject(), host_ = make_host_subject(),
                           general_ = make_general_host_subject();
  std::set<string> tried_, applied_;
  int held_ = 0;
};

TEST_P(EveryKey, BothSidesAgree) {
  const FormatInfo& f = GetParam();
  for (const string& line : lines_of(f)) {
    if (!hold(line)) continue;
    sweep(line, 2, {});
  }
  EXPECT_GT(held_, 100) << f.name;
  // What the row leaves open is a key, and each of its words was tried.
  EXPECT_EQ(applied_.contains("element"), has_several(f.elements)) << f.name;
  EXPECT_EQ(applied_.contains("block"), has_several(f.blocks)) << f.name;
  EXPECT_EQ(applied_.contains("packing"), has_several(f.packings)) << f.name;
  EXPECT_EQ(applied_.contains("scales"), f.has_blocks()) << f.name;
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryKey, ::testing::ValuesIn(kFormats),
                         [](const auto& format) { return string(format.param.name); });

// A key that no line of any format takes would be in no sweep.
TEST(EveryKeyOfTheTable, IsTakenBySomeLine) {
  std::set<string> taken;
  const std::vector<string> lines = {"quantize nvfp4 64x128 bf16 col.rht=1",
                                     "quantize nvfp4 64x128 bf16 round=sr",
                                     "quantize nvfp4 64x128 bf16 four_over_six=mae",
                                     "quantize mxfp8 64x128 bf16 flavour=te",
                                     "cast e2m1 8x8 f32 round=sr",
                                     "cast e4m3 8x8 f32",
                                     "philox u32 8x4 u32",
                                     "adam f32 8x16 f32",
                                     "scale_state f16 8x16 f32",
                                     "attention fp8_current 6x8 bf16",
                                     "attention fp8_current 5x8 bf16 lengths=5",
                                     "attention identity 6x8 bf16"};
  for (const KeyInfo& key : line_keys()) {
    std::vector<string> tries = lines;
    for (const FormatInfo& f : kFormats)
      for (const string& line : lines_of(f)) tries.push_back(line);
    for (const string& line : tries)
      for (const string& value : values_of(key))
        for (const char* prefix : {"", "a.", "col."})
          if (parse_line(line + " " + prefix + string(key.name) + "=" + value))
            taken.insert(string(key.name));
    EXPECT_TRUE(taken.contains(string(key.name))) << key.name;
  }
}

}  // namespace
}  // namespace assay

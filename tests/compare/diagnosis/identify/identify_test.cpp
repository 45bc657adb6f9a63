// assay identify against bytes of real libraries: the column `flavour` of fixtures/packs/libraries/README.md
// is among the choices that it finds to make all bytes of a module, and of a module without one it names
// none.
#include "compare/commands/identify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/packs/pack.h"
#include "fixtures/json.h"
#include "reference/subject.h"
#include "tests/compare/diagnosis/planes.h"
#include "tests/compare/interrupting.h"
#include "tests/source_path.h"

namespace assay {
namespace {

const std::string kFolder = source_path("fixtures/packs/libraries");

std::vector<std::string> fields(const std::string& row) {
  std::vector<std::string> out;
  for (size_t at = row.find('|'); at != std::string::npos && at + 1 < row.size();) {
    const size_t end = row.find('|', at + 1);
    if (end == std::string::npos) break;
    const std::string field = row.substr(at + 1, end - at - 1);
    const size_t first = field.find_first_not_of(" `"), last = field.find_last_not_of(" `");
    out.push_back(first == std::string::npos ? "" : field.substr(first, last - first + 1));
    at = end;
  }
  return out;
}

// "torchao_cpu/mxfp8.floor" to "ocp".
std::map<std::string, std::string> said() {
  std::ifstream file(kFolder + "/README.md");
  std::map<std::string, std::string> out;
  std::vector<std::string> head;
  for (std::string row; std::getline(file, row);) {
    if (!row.starts_with("| ")) continue;
    const std::vector<std::string> f = fields(row);
    if (head.empty()) head = f;
    else if (!f[0].starts_with("---"))
      out[f[0] + "/" + f[1]] =
          f.at(static_cast<size_t>(std::find(head.begin(), head.end(), "flavour") - head.begin()));
  }
  return out;
}

struct Told {
  int status = 0;
  std::string text;
  json::Value json;
};
Told identify(const std::vector<std::string>& paths, const std::string& filter,
              std::unique_ptr<Subject> reference, int64_t large = int64_t{1} << 22) {
  Subjects subjects;
  subjects.owned.push_back(std::move(reference));
  const std::string path = testing::TempDir() + "assay_identify.json";
  std::FILE* out = std::tmpfile();
  Told told;
  told.status = run_identify({paths, filter, path, 5, 0, 60, false, false, large}, subjects, out, out);
  std::rewind(out);
  for (int c; (c = std::fgetc(out)) != EOF;) told.text += static_cast<char>(c);
  std::fclose(out);
  if (told.status < 2 || told.status == 130) told.json = *json::read(path);
  std::remove(path.c_str());
  return told;
}

Told identify(const std::vector<std::string>& paths, const std::string& filter = "") {
  return identify(paths, filter, make_reference_subject());
}

// Of all packs at once, which takes a while.
const Told& all() {
  static const Told told = identify({kFolder});
  return told;
}

// The choices that make all bytes, by "pack/module".
std::map<std::string, std::set<std::string>> exact(const json::Value& told) {
  std::map<std::string, std::set<std::string>> out;
  for (const json::Value& group : *told.find("groups")->array()) {
    const std::string pack(group.text("pack"));
    auto& names = out[pack.substr(0, pack.find(".safetensors")) + "/" + std::string(group.text("module"))];
    for (const json::Value& c : *group.find("ranking")->array())
      if (*c.find("exact")->to_bool())
        for (const json::Value& choice : *c.find("choices")->array()) names.emplace(choice.text("name"));
  }
  return out;
}

TEST(Identify, LibrariesAreNamed) {
  const std::map<std::string, std::string> want = said();
  ASSERT_GT(want.size(), 70u);
  const Told& told = all();
  EXPECT_EQ(told.status, 0) << "identify leaves a module of a library without a name";
  const auto found = exact(told.json);
  std::set<std::string> alone;  // libraries that are told from every other choice
  for (const auto& [module, names] : found) {
    ASSERT_TRUE(want.contains(module)) << module << " has no row in the README";
    const std::string& flavour = want.at(module);
    if (flavour == "-") EXPECT_TRUE(names.empty()) << module << " is made by " << *names.begin();
    else EXPECT_TRUE(names.contains(flavour)) << module << " is not found to be " << flavour;
    if (names.size() == 1) alone.insert(*names.begin());
  }
  EXPECT_EQ(found.size(), want.size());
  for (const char* name : {"ocp",
                           "ocp.away",
                           "torchao.ceil",
                           "torchao.even",
                           "torchao.nvfp4",
                           "torchao.nvfp4_one_level",
                           "torchao.blockwise",
                           "torchao.float8",
                           "compressed_tensors.mx",
                           "compressed_tensors.mxfp4",
                           "compressed_tensors.nvfp4",
                           "compressed_tensors.nvfp4_in_source",
                           "modelopt.mxfp4",
                           "modelopt.nvfp4",
                           "triton.down",
                           "triton.mxfp4",
                           "quark.old",
                           "deepgemm",
                           "deepgemm.fp4",
                           "onnx.nearest",
                           "vllm.dynamic",
                           "gguf.mxfp4",
                           "pytorch.eager",
                           "torchao.float8_tensor_x86",
                           "compressed_tensors.fp8_clamped",
                           "compressed_tensors.fp8_clamped_in_source",
                           "jax.scaled_x86",
                           "jax.nvfp4",
                           "gguf.nvfp4",
                           "vllm.nvfp4",
                           "compressed_tensors.fp8_epsilon",
                           "compressed_tensors.fp8_epsilon_in_source",
                           "triton.group"})
    EXPECT_TRUE(alone.contains(name)) << name;
}

// What stands first in a class of exact choices, in the words of the pack's library.
TEST(Identify, ALibrarysPacksAreNamedInItsOwnWords) {
  const std::map<std::string, std::set<std::string>> words = {
      {"compressed_tensors_cpu", {"compressed_tensors"}},
      {"compressed_tensors_fp8", {"compressed_tensors"}},
      {"compressed_tensors_0_11", {"compressed_tensors"}},
      {"compressed_tensors_zeros", {"compressed_tensors"}},
      {"gfloat_mx", {"gfloat"}},
      {"gguf_mxfp4", {"gguf"}},
      {"gguf_nvfp4", {"gguf"}},
      {"jax_scaled", {"jax"}},
      {"ml_dtypes_mx", {"ml_dtypes"}},
      {"modelopt_cpu", {"modelopt"}},
      {"onnx_reference", {"onnx"}},
      {"pytorch_2_15", {"pytorch"}},
      {"pytorch_2_8", {"pytorch"}},
      {"torchao_cpu", {"torchao"}},
      {"torchao_float8", {"torchao"}},
      {"torchao_weights", {"torchao"}},
      {"transformers_fp8", {"transformers"}},
      {"triton_interpreted", {"vllm", "triton"}},
      {"vllm_cpu", {"vllm", "triton"}},
      {"vllm_kv_cache", {"vllm"}}};
  const Told& told = all();
  size_t named = 0;
  for (const json::Value& group : *told.json.find("groups")->array()) {
    const json::Array& ranking = *group.find("ranking")->array();
    ASSERT_FALSE(ranking.empty());
    EXPECT_TRUE(*ranking.front().find("exact")->to_bool())
        << group.text("pack") << " " << group.text("module");
    const json::Value& first = ranking.front().find("choices")->array()->front();
    const std::string name(first.text("called").empty() ? first.text("name") : first.text("called"));
    const std::string pack(group.text("pack").substr(0, group.text("pack").find('.')));
    ASSERT_TRUE(words.contains(pack)) << pack << ": what does its library call its choices?";
    EXPECT_TRUE(words.at(pack).contains(name.substr(0, name.find('.'))))
        << pack << " " << group.text("module") << " is named " << name;
    ++named;
  }
  EXPECT_GT(named, 100u);
}

TEST(Identify, EquivalentChoicesAndWhatPartsThem) {
  const Told told = identify({kFolder + "/torchao_cpu.safetensors"}, "mxfp8.rceil");
  EXPECT_EQ(told.status, 0);
  EXPECT_NE(told.text.find("this input does not tell them apart; fill=nonfinite does: torchao.rceil | "
                           "pytorch.eager | defaults, te, flashinfer.bf16, triton.sm89"),
            std::string::npos)
      << told.text;
  EXPECT_NE(told.text.find("1 named, 0 not named"), std::string::npos);
}

TEST(Identify, KernelsWithApproximateReciprocalsAreSaid) {
  const Told told = identify({kFolder + "/vllm_cpu.safetensors"}, "nvfp4.vllm/");
  EXPECT_EQ(told.status, 0);
  EXPECT_NE(told.text.find("~ consistent with vllm.kernel, flashinfer.fast, torchao.cutedsl (approximate "
                           "reciprocals, N17.13)"),
            std::string::npos)
      << told.text;
}

// A pack of one case: the planes of `made` under the line of `said`, whose planes of the same place in order
// give the names.
std::string pack_of(planes::Case& said, const std::vector<PlaneData>& made, const std::string& name) {
  const std::string path = testing::TempDir() + name + ".safetensors";
  PackWriter writer(path, "test", Environment{}, "", "");
  std::vector<RecordedPlane> recorded;
  for (const PlaneData& x : said.inputs) recorded.push_back({x.plane, digest(x.bytes), x.bytes});
  for (size_t i = 0; i < made.size(); ++i)
    recorded.push_back({said.want[i].plane, digest(made[i].bytes), made[i].bytes});
  EXPECT_FALSE(writer.add(said.problem, recorded));
  EXPECT_FALSE(writer.finish());
  return path;
}

TEST(Identify, ScalesInAnotherLayout) {
  planes::Case said("quantize mxfp8 128x256 bf16 dir=row fill=wide"),
      made("quantize mxfp8 128x256 bf16 dir=row fill=wide flavour=ocp scales=gemm");
  const Told told = identify({pack_of(said, made.want, "assay_identify_layout")});
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_NE(told.text.find("= ocp, with row.scale_inv in another layout: the tensor-core tile order of N6.3"),
            std::string::npos)
      << told.text;
}

TEST(Identify, OneMoreKeyThanANamedSet) {
  planes::Case said("quantize mxfp8 64x256 bf16 dir=row fill=negative_zeros"),
      made("quantize mxfp8 64x256 bf16 dir=row fill=negative_zeros flavour=ocp neg_zero=drop");
  const Told told = identify({pack_of(said, made.want, "assay_identify_key")});
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_NE(told.text.find("neg_zero=drop"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("no named set makes these bytes"), std::string::npos) << told.text;
}

TEST(Identify, NobodysBytesAreNotNamed) {
  planes::Case c("quantize nvfp4 64x256 bf16 dir=row");
  c.spoil("row.data", [](int64_t r, int64_t, uint32_t code) { return r == 3 ? code ^ 1 : code; });
  const Told told = identify({pack_of(c, c.got, "assay_identify_nobody")});
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.text.find("0 named, 1 not named"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("`assay explain"), std::string::npos) << told.text;
}

TEST(Identify, AnAmaxThatNobodyMakesIsNotNamed) {
  planes::Case c("quantize nvfp4 64x256 bf16 dir=row");
  c.spoil("row.amax", [](int64_t, int64_t, uint32_t code) {
    return code + 0x00800000u;
  });  // twice the tensor's, where codes and scales are right
  const Told told = identify({pack_of(c, c.got, "assay_identify_amax")});
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.text.find("0 named, 1 not named"), std::string::npos) << told.text;
  planes::Case empty("quantize nvfp4 0x64 bf16 dir=row");
  EXPECT_EQ(identify({pack_of(empty, empty.got, "assay_identify_empty")}).status, 0);
  empty.spoil("row.amax", [](int64_t, int64_t, uint32_t) { return 0x3F800000u; });
  EXPECT_EQ(identify({pack_of(empty, empty.got, "assay_identify_empty_amax")}).status, 1);
}

// Ctrl-C in its n-th run of the reference.
Told interrupted_in(int n, const std::string& path) {
  return identify({path}, "", std::make_unique<fakes::Interrupting>("reference", n));
}

TEST(Identify, AnInterruptIsNoVerdict) {
  planes::Case c("quantize mxfp8 64x256 bf16 dir=row fill=wide flavour=triton.down");
  const std::string path = pack_of(c, c.got, "assay_identify_interrupted");
  const size_t sets = [&] {
    const Told whole = identify({path});
    size_t n = 0;
    for (const json::Value& one : *whole.json.find("groups")->array()->front().find("ranking")->array())
      n += one.find("choices")->array()->size();
    return n;
  }();
  const Told early = interrupted_in(2, path);
  EXPECT_EQ(early.status, 130) << early.text;
  EXPECT_NE(early.text.find(fmt::format("interrupted: 1 of {} known sets were tried; none of these", sets)),
            std::string::npos)
      << early.text;
  EXPECT_NE(early.text.find("0 named, 0 not named, 1 not decided"), std::string::npos) << early.text;
  EXPECT_EQ(early.text.find("no known set makes these bytes"), std::string::npos) << early.text;
  EXPECT_EQ(early.text.find("assay explain"), std::string::npos) << early.text;
  const json::Value& group = early.json.find("groups")->array()->front();
  EXPECT_TRUE(group.find("cut_short"));
  EXPECT_EQ(group.find("tried")->to_int().value_or(0), 1);
}

// After the right set, and in the search for one or two more keys.
TEST(Identify, AnInterruptKeepsWhatWasFound) {
  planes::Case ocp("quantize mxfp8 64x256 bf16 dir=row fill=wide flavour=ocp");
  const std::string path = pack_of(ocp, ocp.got, "assay_identify_interrupted_late");
  const Told late = interrupted_in(6, path);
  EXPECT_EQ(late.status, 130) << late.text;
  EXPECT_NE(late.text.find("1 named, 0 not named\n"), std::string::npos) << late.text;
  EXPECT_NE(late.text.find("those marked = above make these bytes"), std::string::npos) << late.text;

  planes::Case nobody("quantize nvfp4 64x256 bf16 dir=row");
  nobody.spoil("row.data", [](int64_t r, int64_t, uint32_t code) { return r == 3 ? code ^ 1 : code; });
  const Told keys = interrupted_in(40, pack_of(nobody, nobody.got, "assay_identify_interrupted_keys"));
  EXPECT_EQ(keys.status, 130) << keys.text;
  EXPECT_NE(keys.text.find("none makes these bytes; one or two keys more were not all tried"),
            std::string::npos)
      << keys.text;
}

// A large case: a sample of whole blocks tells the sets apart, and the whole is run for what is left.
TEST(Identify, OfALargeCaseASampleTellsSetsApartFirst) {
  planes::Case c("quantize mxfp8 1024x1024 bf16 dir=both fill=wide flavour=torchao.even");
  const std::string path = pack_of(c, c.got, "assay_identify_large");
  const Told whole = identify({path});
  auto reference = std::make_unique<fakes::Interrupting>("reference", 0);
  auto& runs = *reference;
  runs.counted = [](const Problem& p) { return p.x.shape == Shape{1024, 1024}; };
  Subjects subjects;
  subjects.owned.push_back(std::move(reference));
  std::FILE* out = std::tmpfile();
  const std::string json = testing::TempDir() + "assay_identify_sample.json";
  const IdentifyOptions options{{path}, "", json, 5, 0, 60, false, false, 1};
  EXPECT_EQ(run_identify(options, subjects, out, out), 0);
  std::fclose(out);
  EXPECT_LE(runs.runs(), 4) << "of more than twenty sets";
  const json::Value sampled = *json::read(json);
  EXPECT_EQ(exact(sampled), exact(whole.json));
  const json::Array& ranking = *sampled.find("groups")->array()->front().find("ranking")->array();
  ASSERT_GT(ranking.size(), 2u);
  EXPECT_FALSE(ranking[0].find("sampled"));
  EXPECT_TRUE(ranking[1].find("sampled"));
}

TEST(Identify, WhatTheSampleLeavesOutIsJudged) {
  planes::Case c("quantize mxfp8 1024x1024 bf16 dir=row fill=wide");
  c.spoil("row.data", [](int64_t r, int64_t, uint32_t code) { return r == 200 ? code ^ 1 : code; });
  const Told told = identify({pack_of(c, c.got, "assay_identify_beside")}, "", make_reference_subject(), 1);
  EXPECT_EQ(told.status, 1) << told.text;
  EXPECT_NE(told.text.find("no known set makes these bytes"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("   scales all     codes 99.90 %"), std::string::npos) << told.text;
}

// Where the scale comes from the whole tensor's amax, a few extreme elements of the whole tell it: whatever a
// set makes of NaN and infinities, and of a NaN where there is no infinity.
TEST(Identify, OfATensorScaleASampleTellsSetsApartToo) {
  for (const char* text :
       {"quantize nvfp4 512x512 bf16 dir=row flavour=vllm.nvfp4", "quantize nvfp4 512x512 bf16 dir=both",
        "quantize nvfp4 512x512 bf16 dir=col rht=1", "quantize fp8_current 512x512 f32 dir=row",
        "quantize nvfp4 512x512 bf16 dir=row fill=nonfinite nan_amax=propagate nan_tensor_amax=unit",
        "quantize nvfp4 512x512 bf16 dir=row fill=literal:7fc0@0.0+4300@20.7",
        "quantize fp8_current 512x512 bf16 dir=row fill=nonfinite"}) {
    planes::Case c(text);
    const std::string path = pack_of(c, c.got, "assay_identify_amax");
    const Told whole = identify({path}), sampled = identify({path}, "", make_reference_subject(), 1);
    EXPECT_EQ(exact(sampled.json), exact(whole.json)) << text << "\n" << sampled.text << whole.text;
    EXPECT_EQ(sampled.status, whole.status) << text;
    EXPECT_NE(sampled.text.find("sample of 196608 elements"), std::string::npos) << text << sampled.text;
  }
}

// The amax of a rotated tensor has to be recorded for that.
TEST(Identify, WhatNeedsTheWholeTensorIsNotSampled) {
  planes::Case c("quantize nvfp4 256x512 bf16 dir=col rht=1");
  for (auto* planes : {&c.got, &c.want})
    std::erase_if(*planes, [](const PlaneData& p) { return p.plane.name == "col.amax"; });
  const Told told = identify({pack_of(c, c.got, "assay_identify_whole")}, "", make_reference_subject(), 1);
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_EQ(told.text.find("sample"), std::string::npos) << told.text;
}

// Once the budget is spent no further set is run on the whole, and that is said of those that make the
// sample.
TEST(Identify, TheBudgetEndsTheRunsOnTheWhole) {
  planes::Case c("quantize mxfp8 1024x1024 bf16 dir=row");
  auto reference = std::make_unique<fakes::Interrupting>("reference", 0);
  auto& runs = *reference;
  runs.counted = [](const Problem& p) { return p.x.shape == Shape{1024, 1024}; };
  Subjects subjects;
  subjects.owned.push_back(std::move(reference));
  const std::string json = testing::TempDir() + "assay_identify_budget.json";
  IdentifyOptions options{{pack_of(c, c.got, "assay_identify_budget")}, "", json, 5, 0, 60, false, false, 1};
  options.budget = 0;
  std::FILE* out = std::tmpfile();
  EXPECT_EQ(run_identify(options, subjects, out, out), 0);
  EXPECT_EQ(runs.runs(), 1);
  std::rewind(out);
  std::string text;
  for (int ch; (ch = std::fgetc(out)) != EOF;) text += static_cast<char>(ch);
  std::fclose(out);
  EXPECT_NE(text.find("the search ended at its budget (--budget)"), std::string::npos) << text;
  const json::Value told = *json::read(json);
  const json::Value& group = told.find("groups")->array()->front();
  EXPECT_TRUE(*group.find("out_of_time")->to_bool());
  const json::Array& ranking = *group.find("ranking")->array();
  EXPECT_TRUE(*ranking[0].find("exact")->to_bool());
  EXPECT_FALSE(*ranking[1].find("exact")->to_bool());
  EXPECT_TRUE(*ranking[1].find("sampled")->to_bool());
}

TEST(Identify, NoCaseAndNoPack) {
  EXPECT_EQ(identify({kFolder}, "no such case").status, 3);
  const Told absent = identify({kFolder + "/absent.safetensors"});
  EXPECT_EQ(absent.status, 2);
  EXPECT_NE(absent.text.find("does not exist"), std::string::npos);
}

}  // namespace
}  // namespace assay

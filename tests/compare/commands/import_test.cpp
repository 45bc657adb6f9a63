// `assay import`: checkpoints as Hugging Face and llama.cpp keep them, beside the weights that they were made
// from.
#include "compare/commands/import.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "compare/packs/checkpoint_layers.h"
#include "fixtures/files.h"
#include "fixtures/safetensors.h"
#include "reference/subject.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using safetensors::Dtype;
using std::string;
namespace fs = std::filesystem;

// A checkpoint of a test: tensors that are written as files of safetensors.
struct Stored {
  string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

void write(const fs::path& path, const std::vector<Stored>& tensors) {
  std::vector<safetensors::Tensor> views;
  for (const Stored& t : tensors) views.push_back({t.name, t.dtype, t.shape, t.bytes});
  const auto error = safetensors::write(path.string(), views);
  ASSERT_FALSE(error) << error->text();
}

template <class T> std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

float f32_of(const PlaneData& p) {
  float out = 0;
  std::memcpy(&out, p.bytes.data(), sizeof out);
  return out;
}

// The logical part of a plane, without its padding.
std::vector<std::byte> logical(const PlaneData& p) {
  const size_t row = p.plane.bytes_of(p.plane.logical.cols), pitch = p.plane.bytes_of(p.plane.padded.cols);
  std::vector<std::byte> out;
  for (int64_t r = 0; r < p.plane.logical.rows; ++r) {
    const auto* from = p.bytes.data() + static_cast<size_t>(r) * pitch;
    out.insert(out.end(), from, from + row);
  }
  return out;
}

class Import : public testing::Test {
 protected:
  Import() : folder_(fs::path(testing::TempDir()) / "assay_import") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "quantized");
    fs::create_directories(folder_ / "original");
  }
  ~Import() override { fs::remove_all(folder_); }

  void text(const string& name, const string& content) {
    ASSERT_FALSE(write_file((folder_ / name).string(), content));
  }
  // Runs the command; its screen is `said_`.
  int import(const string& quantized = "quantized", const string& original = "original",
             const string& flavour = "", const string& out = "") {
    Subjects subjects;
    subjects.owned.push_back(make_reference_subject());
    ImportOptions options;
    options.quantized = (folder_ / quantized).string();
    options.originals = (folder_ / original).string();
    options.flavour = flavour;
    options.folder = out.empty() ? "" : (folder_ / out).string();
    options.jobs = 1;
    options.cause = cause_;
    std::ostringstream screen;
    const int status = run_import(options, subjects, screen, screen);
    said_ = screen.str();
    return status;
  }
  bool said(const string& words) const { return said_.find(words) != string::npos; }

  fs::path folder_;
  string said_;
  bool cause_ = true;
};

Stored original(const string& name, const planes::Case& c) {
  return {name, Dtype::BF16, {c.problem.x.shape.rows, c.problem.x.shape.cols}, c.inputs.front().bytes};
}

// The weights of one layer in ModelOpt's NVFP4: packed codes, block scales, and amax / 2688.
std::vector<Stored> modelopt(const string& layer, const planes::Case& c) {
  const int64_t rows = c.problem.x.shape.rows, cols = c.problem.x.shape.cols;
  return {
      {layer + ".weight", Dtype::U8, {rows, cols / 2}, logical(c.wanted("row.data"))},
      {layer + ".weight_scale", Dtype::F8_E4M3, {rows, cols / 16}, logical(c.wanted("row.scale_inv"))},
      {layer + ".weight_scale_2", Dtype::F32, {}, bytes_of<float>({f32_of(c.wanted("row.amax")) / 2688})}};
}

TEST_F(Import, ShardsByTheirIndexAndAVerdictForEachLayer) {
  const planes::Case first("quantize nvfp4 128x256 bf16 dir=row flavour=modelopt.nvfp4 fill=wide"),
      second("quantize nvfp4 128x256 bf16 dir=row flavour=modelopt.nvfp4 fill=wide seed=5");
  std::vector<Stored> spoilt = modelopt("model.layers.10.down", second);
  spoilt[0].bytes[7] ^= std::byte{1};
  write(folder_ / "quantized/a.safetensors", modelopt("model.layers.2.down", first));
  write(folder_ / "quantized/b.safetensors", spoilt);
  string map;
  for (const auto& [layer, file] :
       {std::pair("model.layers.2.down", "a"), std::pair("model.layers.10.down", "b")})
    for (const char* part : {".weight", ".weight_scale", ".weight_scale_2"})
      map += (map.empty() ? "" : ", ") + string("\"") + layer + part + "\": \"" + file + ".safetensors\"";
  text("quantized/model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": {" + map + "}}");
  text("quantized/config.json", R"({"quantization_config": {"quant_method": "modelopt"}})");
  write(folder_ / "original/model.safetensors",
        {original("model.layers.2.down.weight", first), original("model.layers.10.down.weight", second)});
  EXPECT_EQ(import("quantized", "original", "", "kept"), 1) << said_;
  EXPECT_TRUE(said(
      "nvfp4: judged as modelopt.nvfp4, which makes every byte of the first rows of model.layers.2.down"))
      << said_;
  EXPECT_LT(said_.find("passed   model.layers.2.down"), said_.find("FAILED  model.layers.10.down")) << said_;
  EXPECT_TRUE(said("row.data (e2m1)   1 of 32768 differ")) << said_;
  EXPECT_TRUE(said("1 passed, 1 failed, 0 skipped")) << said_;
  EXPECT_TRUE(fs::exists(folder_ / "kept/model.layers.10.down.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "kept/model.layers.2.down.safetensors"));
  EXPECT_TRUE(said("\ncause: ")) << said_;
  cause_ = false;
  EXPECT_EQ(import(), 1) << said_;
  EXPECT_FALSE(said("\ncause: ")) << said_;
  // A shard that is not there, and one that lacks what the index says of it.
  fs::rename(folder_ / "quantized/b.safetensors", folder_ / "quantized/c.safetensors");
  EXPECT_EQ(import(), 2) << said_;
  write(folder_ / "quantized/b.safetensors", modelopt("model.layers.9.down", second));
  EXPECT_EQ(import(), 2) << said_;
  EXPECT_TRUE(said("expected the tensor model.layers.10.down.weight, which the index has here, found none"))
      << said_;
}

TEST_F(Import, AScaleOfTheTensorThatIsNotTheWeights) {
  const planes::Case c("quantize nvfp4 128x256 bf16 dir=row flavour=modelopt.nvfp4 amax=16");
  std::vector<Stored> tensors =
      modelopt("q_proj", planes::Case("quantize nvfp4 128x256 bf16 dir=row flavour=modelopt.nvfp4"));
  tensors[0].bytes = logical(c.wanted("row.data"));
  tensors[1].bytes = logical(c.wanted("row.scale_inv"));
  tensors[2].bytes = bytes_of<float>({16.0f / 2688});
  write(folder_ / "quantized/model.safetensors", tensors);
  write(folder_ / "original/model.safetensors", {original("q_proj.weight", c)});
  EXPECT_EQ(import("quantized", "original", "modelopt.nvfp4"), 0) << said_;
  EXPECT_TRUE(said("q_proj.weight_scale_2 is that of an amax of 16, and the weight's is")) << said_;
}

// DeepSeek's and Hugging Face's FP8: tiles of 128x128 with scales in binary32; compressed-tensors' rows with
// scales in bf16.
TEST_F(Import, Fp8InTilesAndRows) {
  const planes::Case tiles("quantize fp8_block 256x256 bf16 dir=row block=128x128 flavour=transformers.fp8"),
      rows("quantize fp8_current 64x256 bf16 dir=row row_scaled=1 flavour=modelopt.fp8_in_source");
  std::vector<uint16_t> halves;
  for (const std::byte *at = rows.wanted("row.scale_inv").bytes.data(), *end = at + 64 * 4; at < end;
       at += 4) {
    uint32_t bits = 0;
    std::memcpy(&bits, at, 4);
    ASSERT_EQ(bits & 0xFFFFu, 0u);
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  write(folder_ / "quantized/model.safetensors",
        {{"gate.weight", Dtype::F8_E4M3, {256, 256}, tiles.wanted("row.data").bytes},
         {"gate.weight_scale_inv", Dtype::F32, {2, 2}, logical(tiles.wanted("row.scale_inv"))},
         {"up.weight", Dtype::F8_E4M3, {64, 256}, rows.wanted("row.data").bytes},
         {"up.weight_scale", Dtype::BF16, {64, 1}, bytes_of(halves)},
         {"norm.weight", Dtype::BF16, {256}, std::vector<std::byte>(512)},
         {"odd.weight", Dtype::F8_E4M3, {64, 256}, rows.wanted("row.data").bytes},
         {"odd.weight_scale", Dtype::F32, {3, 1}, bytes_of<float>({1, 1, 1})}});
  write(folder_ / "original/model.safetensors",
        {original("gate.weight", tiles), original("up.weight", rows), original("odd.weight", rows)});
  EXPECT_EQ(import(), 0) << said_;
  EXPECT_TRUE(said("2 passed, 0 failed, 1 skipped")) << said_;
  EXPECT_TRUE(said("skipped  odd  3x1 scales for 64x256 codes")) << said_;
  EXPECT_FALSE(said("norm")) << said_;
}

template <class T> void put(std::vector<std::byte>& out, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), from, from + sizeof value);
}
void put_text(std::vector<std::byte>& out, const string& words) {
  put<uint64_t>(out, words.size());
  for (const char c : words) out.push_back(static_cast<std::byte>(c));
}

// A GGUF file of one tensor.
std::vector<std::byte> gguf(const string& name, Shape shape, uint32_t type,
                            const std::vector<std::byte>& bytes) {
  std::vector<std::byte> out;
  put<uint32_t>(out, 0x46554747);
  put<uint32_t>(out, 3);
  put<uint64_t>(out, 1);
  put<uint64_t>(out, 2);
  put_text(out, "general.architecture");
  put<uint32_t>(out, 8);
  put_text(out, "llama");
  put_text(out, "general.alignment");
  put<uint32_t>(out, 4);
  put<uint32_t>(out, 64);
  put_text(out, name);
  put<uint32_t>(out, 2);
  put<uint64_t>(out, static_cast<uint64_t>(shape.cols));
  put<uint64_t>(out, static_cast<uint64_t>(shape.rows));
  put<uint32_t>(out, type);
  put<uint64_t>(out, 0);
  out.resize((out.size() + 63) / 64 * 64);
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

TEST_F(Import, GgufBesideGgufAndBesideSafetensors) {
  const planes::Case c("quantize mxfp4 96x256 bf16 dir=row flavour=gguf.mxfp4 fill=wide");
  const std::vector<std::byte> scales = logical(c.wanted("row.scale_inv")),
                               codes = logical(c.wanted("row.data"));
  std::vector<std::byte> blocks;
  const auto code = [&](size_t at) { return at % 2 ? codes[at / 2] >> 4 : codes[at / 2] & std::byte{15}; };
  for (size_t b = 0; b < scales.size(); ++b) {
    blocks.push_back(scales[b]);
    for (size_t i = 0; i < 16; ++i) blocks.push_back(code(32 * b + i) | code(32 * b + 16 + i) << 4);
  }
  const auto store = [&](const string& name, const std::vector<std::byte>& bytes) {
    ASSERT_FALSE(write_file((folder_ / name).string(), bytes));
  };
  store("q.gguf", gguf("blk.3.ffn_down.weight", {96, 256}, 39, blocks));
  store("o.gguf", gguf("blk.3.ffn_down.weight", {96, 256}, 30, c.inputs.front().bytes));
  write(folder_ / "original/model.safetensors", {original("model.layers.3.mlp.down_proj.weight", c)});
  for (const char* from : {"o.gguf", "original"}) {
    EXPECT_EQ(import("q.gguf", from), 0) << said_;
    EXPECT_TRUE(said("mxfp4: judged as gguf.mxfp4, which makes every byte")) << said_;
    EXPECT_TRUE(said("1 passed, 0 failed, 0 skipped")) << said_;
  }
  std::vector<std::byte> cut = gguf("blk.3.ffn_down.weight", {96, 256}, 39, blocks);
  cut.pop_back();
  store("cut.gguf", cut);
  EXPECT_EQ(import("cut.gguf", "o.gguf"), 2);
  EXPECT_TRUE(said("expected its bytes inside the file")) << said_;
  for (size_t size = 0; size < 200; size += 7) {  // no part of a header is read beyond its end
    store("cut.gguf", {cut.begin(), cut.begin() + static_cast<long>(size)});
    EXPECT_EQ(import("cut.gguf", "o.gguf"), 2) << size;
  }
}

TEST_F(Import, GgufOfNvfp4) {
  const planes::Case c("quantize nvfp4 96x256 bf16 dir=row flavour=gguf.nvfp4 fill=wide");
  const std::vector<std::byte> scales = logical(c.wanted("row.scale_inv")),
                               codes = logical(c.wanted("row.data"));
  const auto code = [&](size_t at) { return at % 2 ? codes[at / 2] >> 4 : codes[at / 2] & std::byte{15}; };
  std::vector<std::byte> blocks;
  for (size_t b = 0; b < scales.size(); b += 4) {
    blocks.insert(blocks.end(), scales.begin() + static_cast<long>(b),
                  scales.begin() + static_cast<long>(b + 4));
    for (size_t part = b; part < b + 4; ++part)
      for (size_t i = 0; i < 8; ++i) blocks.push_back(code(16 * part + i) | code(16 * part + 8 + i) << 4);
  }
  const auto store = [&](const string& name, const std::vector<std::byte>& bytes) {
    ASSERT_FALSE(write_file((folder_ / name).string(), bytes));
  };
  store("q.gguf", gguf("blk.3.ffn_down.weight", {96, 256}, 40, blocks));
  write(folder_ / "original/model.safetensors", {original("model.layers.3.mlp.down_proj.weight", c)});
  EXPECT_EQ(import("q.gguf", "original"), 0) << said_;
  EXPECT_TRUE(said("nvfp4: judged as gguf.nvfp4, which makes every byte")) << said_;
  blocks[36 * 200 + 4] ^= std::byte{1};
  store("q.gguf", gguf("blk.3.ffn_down.weight", {96, 256}, 40, blocks));
  EXPECT_EQ(import("q.gguf", "original"), 1) << said_;
  EXPECT_TRUE(said("row.data (e2m1)   1 of 24576 differ")) << said_;
}

// A safetensors file of tensors that repeat a part of them `times` times.
void write_repeated(const fs::path& path, const std::vector<Stored>& tensors, int times) {
  string header;
  size_t at = 0;
  for (const Stored& t : tensors) {
    const size_t end = at + t.bytes.size() * static_cast<size_t>(times);
    header += (header.empty() ? "{" : ",") + string("\"") + t.name + "\":{\"dtype\":\"" +
              string(safetensors::name(t.dtype)) + "\",\"shape\":[" + std::to_string(t.shape[0] * times) +
              "," + std::to_string(t.shape[1]) + "],\"data_offsets\":[" + std::to_string(at) + "," +
              std::to_string(end) + "]}";
    at = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream out(path, std::ios::binary);
  const uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), sizeof size) << header;
  for (const Stored& t : tensors)
    for (int i = 0; i < times; ++i)
      out.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
}

// A layer of 96 MiB is judged in parts, and what was read of it does not stay in memory.
TEST_F(Import, ALargeLayerIsStreamed) {
  {
    const planes::Case c("quantize mxfp8 1024x1024 bf16 dir=row fill=wide");
    write_repeated(folder_ / "quantized/model.safetensors",
                   {{"up.weight", Dtype::F8_E4M3, {1024, 1024}, c.wanted("row.data").bytes},
                    {"up.weight_scale", Dtype::U8, {1024, 32}, logical(c.wanted("row.scale_inv"))}},
                   32);
    write_repeated(folder_ / "original/model.safetensors",
                   {{"up.weight", Dtype::BF16, {1024, 1024}, c.inputs.front().bytes}}, 32);
  }
  const pid_t child = ::fork();
  if (child == 0) ::_exit(import("quantized", "original", "assay"));
  long before = 0, pages = 0;
  {
    std::ifstream of_child("/proc/" + std::to_string(child) + "/statm");
    of_child >> pages >> before;
  }
  int status = -1;
  rusage usage{};
  ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const long begun = before * ::sysconf(_SC_PAGESIZE) / 1024;
  EXPECT_LT(usage.ru_maxrss, begun + 64 * 1024) << "KiB; at the beginning " << begun;
}

TEST_F(Import, WhatIsRefused) {
  text("quantized/pytorch_model.bin", "not looked at");
  EXPECT_EQ(import(), 2);
  EXPECT_TRUE(said("found a pickle file, which runs code when it is read")) << said_;
  EXPECT_EQ(import("quantized/pytorch_model.bin"), 2);
  text("quantized/model.safetensors.index.json", R"({"weight_map": {"a.weight": "../../etc/passwd"}})");
  EXPECT_EQ(import(), 2);
  EXPECT_TRUE(said("expected the name of a file beside the index")) << said_;
  fs::remove(folder_ / "quantized/model.safetensors.index.json");
  write(folder_ / "quantized/model.safetensors",
        {{"a.weight", Dtype::BF16, {2, 2}, std::vector<std::byte>(8)}});
  write(folder_ / "original/model.safetensors",
        {{"a.weight", Dtype::BF16, {2, 2}, std::vector<std::byte>(8)}});
  EXPECT_EQ(import(), 3);
  EXPECT_TRUE(said("no quantized layer")) << said_;
  EXPECT_EQ(import("quantized", "original", "torchao.flor"), 2);
  EXPECT_TRUE(said("--flavour: expected a name of `assay flavours`, found torchao.flor")) << said_;
}

}  // namespace
}  // namespace assay

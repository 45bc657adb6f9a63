// `assay vectors`: every third-party tensor of a known family is equal on both sides; and the command notices
// what it must: a wrong byte, a tensor it has no row for, a file that is not the one the index describes, an
// index that is none.
#include "compare/commands/vectors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "compare/witness/vectors/checks.h"
#include "compare/witness/vectors/table.h"
#include "fast/subject_host.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/sha256.h"
#include "reference/subject.h"
#include "tests/compare/interrupting.h"
#include "tests/source_path.h"

namespace assay {
namespace {

namespace st = safetensors;
const std::string kVectors = source_path("fixtures/vectors");

const Subjects& subjects() {
  static const Subjects all = [] {
    Subjects s;
    s.owned.push_back(make_reference_subject());
    s.owned.push_back(make_host_subject());
    return s;
  }();
  return all;
}

struct Ran {
  int status;
  std::string out, err;
};

Ran run(const std::string& directory, const std::string& filter = "",
        std::vector<std::string> names = {"reference", "host"}) {
  VectorOptions options;
  options.directory = directory;
  options.filter = filter;
  options.subjects = std::move(names);
  std::ostringstream out, err;
  const int status = run_vectors(options, subjects(), out, err);
  return {status, out.str(), err.str()};
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n'), begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

// A folder made from one file of the committed vectors, changed before it is written.
class Folder {
 public:
  explicit Folder(const std::string& file)
      : path_(testing::TempDir() + "assay_vectors_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        file_(file) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    const auto index = json::read(kVectors + "/index.json");
    EXPECT_TRUE(index);
    for (const json::Value& f : *index->find("files")->array())
      if (f.text("file") == file) entry = f;
    EXPECT_FALSE(entry.is_null()) << file;
    const auto source = st::read(kVectors + "/" + file);
    EXPECT_TRUE(source);
    source_ = *source;
    for (const st::Tensor& t : source_.tensors()) {
      bytes.emplace_back(t.bytes.begin(), t.bytes.end());
      tensors.push_back(t);
    }
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::vector<std::byte>& of(const std::string& tensor) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].name == tensor) return bytes[i];
    throw std::runtime_error("no tensor " + tensor);
  }
  json::Value& listed(const std::string& tensor) {
    for (auto& [key, value] : *entry.object())
      if (key == "tensors")
        for (json::Value& t : *value.array())
          if (t.text("name") == tensor) return t;
    throw std::runtime_error("not listed: " + tensor);
  }

  // Writes file and index; the index has the digest of what was written.
  const std::string& write() {
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = bytes[i];
    const auto encoded = st::encode(tensors);
    EXPECT_TRUE(encoded);
    EXPECT_FALSE(write_file(path_ + "/" + file_, std::span<const std::byte>(*encoded)));
    entry.set("sha256", sha256(*encoded));
    write_index(json::dump(json::object({{"set", "test"}, {"files", json::array({entry})}})));
    return path_;
  }
  void write_index(const std::string& text) {
    EXPECT_FALSE(write_file(path_ + "/index.json", std::string_view(text)));
  }

  json::Value entry;
  std::vector<st::Tensor> tensors;
  std::vector<std::vector<std::byte>> bytes;

 private:
  std::string path_, file_;
  st::File source_;
};

TEST(Vectors, EveryTensorOfEveryKnownFamilyIsEqualOnBothSides) {
  const Ran r = run(kVectors);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_EQ(r.out.find("FAILED"), std::string::npos) << r.out;
  // Every expected tensor of a known family counts, once per side; nothing of them may be among the skipped.
  const auto index = json::read(kVectors + "/index.json");
  ASSERT_TRUE(index);
  size_t judged = 0, skipped = 0, disputed = 0,
         cores = 0;  // cores: the kernels have no tensor core, the reference alone answers
  for (const json::Value& f : *index->find("files")->array())
    for (const json::Value& t : *f.find("tensors")->array())
      if (t.text("role") == "expected")
        ++(f.text("family") == "tensor_core"             ? cores
           : !known_family(f.text("family"))             ? skipped
           : f.text("consensus").starts_with("DISAGREE") ? disputed
                                                         : judged);
  EXPECT_GE(judged, 500u);
  EXPECT_EQ(last_line(r.out), std::to_string(2 * judged + cores) + " passed, 0 failed, " +
                                  std::to_string(skipped + cores) + " skipped");
  EXPECT_EQ(cores, 5u);
  EXPECT_NE(r.out.find(std::to_string(2 * disputed) + " results on tensors whose sources disagree"),
            std::string::npos);
  EXPECT_NE(r.out.find("host c1 inf: agrees with kernel_helper, te_host; not with te_python"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("host c1 scale_underflow: agrees with te_python; not with te_host (2 of 4 tensors "
                       "equal); decided by N10.8"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("reference: agrees with te_python; not with te_host"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("host c0 tiny_amax scale_limit=source_max: agrees with kernel_helper, te_python"),
            std::string::npos)
      << r.out;
  EXPECT_EQ(skipped, 0u) << r.out;
}

TEST(Vectors, OneWrongByteFailsItsTensorOnEverySide) {
  struct Wrong {
    const char *file, *tensor;
    size_t at;
  };
  for (const Wrong& w :
       {Wrong{"mxfp8_a01.safetensors", "data_colwise", 77},
        {"mxfp8_a01.safetensors", "scale_rowwise", 5},
        {"mxfp8_a01.safetensors", "scale_colwise_swizzled", 3},
        {"mxfp8_a01.safetensors", "scale_rowwise_swizzled", 511},  // padding of the GEMM layout
        {"tab_f32_modes.safetensors", "e3m2.rz", 1000},
        {"tab_decode.safetensors", "e8m0.te_exp2f_rcp.f32", 1016},
        {"cs_a01.safetensors", "c2.scale_inv", 1},
        {"delayed_a01.safetensors", "c0.data_t", 40},
        {"multi_cast_transpose_a01.safetensors", "amax", 9},
        {"swizzle_a02.safetensors", "c1.unswizzled", 600},
        {"deq_mxfp8_a02.safetensors", "colwise.f16", 2},
        {"deq_tensor_a01.safetensors", "e5m2.c2.bf16", 10},
        {"nvfp4_a04.safetensors", "data_t", 7},
        {"nvfp4_a04.safetensors", "scale_t_swizzled", 511},
        {"nvfp4_a05.safetensors", "dequant", 12},
        {"nvfp4_2d_a01.safetensors", "scale_t", 17},
        {"nvfp4_4over6_2d_a01.safetensors", "e256.mse.exact.data_t", 100},
        {"nvfp4_rowscaled_a02.safetensors", "col_amax", 4},
        {"nvfp4_rowscaled_4over6_a01.safetensors", "e448.mae.exact.scale", 9},
        {"nvfp4_rht_a01.safetensors", "input_t_rht", 14},
        {"nvfp4_rht_a02.safetensors", "data_t", 31},
        {"nvfp4_fastmath_a01.safetensors", "c0.data", 2},
        {"rht_matrices.safetensors", "hadamard16_scaled", 3},
        {"rht_matrices.safetensors", "sign_mask", 1},
        {"nvfp4_scale_chain_a01.safetensors", "element_multiplier", 1024},
        {"deq_nvfp4_a01.safetensors", "e448.rowscaled.bf16", 6},
        {"mxfp4_a01.safetensors", "scale_e8m0", 5},
        {"fp8blk1d_a01.safetensors", "c1.scale_inv_t", 3},
        {"fp8blk2d_a02.safetensors", "c0.data", 300},
        {"philox_kat.safetensors", "output", 90},
        {"philox_seq_a01.safetensors", "c5.output", 40},
        {"philox_seq_a01.safetensors", "raw.output7_first64", 1},
        {"sr_e2m1_a01.safetensors", "code", 60000}}) {
    Folder folder(w.file);
    folder.of(w.tensor)[w.at] ^= std::byte{1};
    const Ran r = run(folder.write());
    EXPECT_EQ(r.status, 1) << w.tensor << "\n" << r.out << r.err;
    // cs data and scales are also inputs of a dequantize, so more than the tensor itself may fail; the tensor
    // itself must, twice.
    size_t named = 0;
    for (size_t at = 0; (at = r.out.find(std::string("  tensor   ") + w.tensor, at)) != std::string::npos;
         ++at)
      ++named;
    EXPECT_GE(named, 2u) << w.tensor << "\n" << r.out;
    EXPECT_NE(r.out.find("  repro    assay vectors "), std::string::npos);
  }
}

// A c that is not zero comes from a step of its own; FP8 has none here, and can have one.
TEST(Vectors, RecordingsOfTensorCores) {
  const auto put = [](std::vector<std::byte>& to, size_t word, float value) {
    std::memcpy(to.data() + 4 * word, &value, 4);
  };
  const auto judged = [](Folder& folder) { return run(folder.write(), "", {"reference"}); };
  for (const char* file : {"tensor_core_bf16_hand.safetensors", "tensor_core_e4m3_hand.safetensors"}) {
    Folder folder(file);
    folder.of("d")[4] ^= std::byte{1};
    const Ran r = judged(folder);
    EXPECT_EQ(r.status, 1) << file;
    EXPECT_NE(r.out.find("1 of "), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("tensor   d[0.."), std::string::npos) << r.out;
  }
  Folder fp8("tensor_core_e4m3_hand.safetensors");
  put(fp8.of("c"), 0, 1);
  EXPECT_EQ(judged(fp8).status, 1);  // 448 + 1
  put(fp8.of("d"), 0, 449);
  EXPECT_EQ(judged(fp8).status, 0);
  put(fp8.of("c"), 0, 1 + 0x1p-14f);  // no result of a step
  EXPECT_NE(judged(fp8).out.find("c[0] is not a sum of products of e4m3"), std::string::npos);
  Folder mixed("tensor_core_bf16_hand.safetensors");
  for (st::Tensor& t : mixed.tensors)
    if (t.name == "b") t.dtype = st::Dtype::F16;
  EXPECT_NE(judged(mixed).out.find("hopper_f16"), std::string::npos);
}

// What no line says: the training layer answers, and what its inputs lack is said.
TEST(Vectors, GradientsOfBiasesAndPaddedRows) {
  struct Wrong {
    const char *file, *tensor, *cause;
    size_t at;
  };
  for (const Wrong& w :
       {Wrong{"mxfp8_dbias_a01.safetensors", "dbias", "row 0, column 9: ", 38},
        {"delayed_dbias_a01.safetensors", "dbias", "row 0, column 9: ", 18},
        {"multi_padding_a01.safetensors", "t2.padded", "row 31, column 2: 0000, expected 0001", 190},
        {"multi_padding_a01.safetensors", "t1.padded", "row 0, column 1: ", 2}}) {
    Folder folder(w.file);
    folder.of(w.tensor)[w.at] ^= std::byte{1};
    const Ran r = run(folder.write());
    EXPECT_EQ(r.status, 1) << w.tensor;
    EXPECT_NE(r.out.find(std::string("  tensor   ") + w.tensor + "\n  cause    " + w.cause),
              std::string::npos)
        << r.out;
    EXPECT_TRUE(last_line(r.out).ends_with(" 2 failed, 0 skipped")) << r.out;
  }
  Folder shape("multi_padding_a01.safetensors");
  shape.entry.set("params", json::object({{"align", 8}}));
  EXPECT_NE(run(shape.write()).out.find("cause    shape: [8, 1], expected [16, 1]"), std::string::npos);
  Folder align("multi_padding_a01.safetensors");
  align.entry.set("params", json::object());
  EXPECT_NE(run(align.write()).out.find("no answer: params lack 'align'"), std::string::npos);
  Folder format("mxfp8_dbias_a01.safetensors");
  format.entry.set("params", json::object({{"format", "e3m4"}}));
  EXPECT_NE(run(format.write(), "#dbias").out.find("params.format is 'e3m4', expected e4m3 or e5m2"),
            std::string::npos);
}

// The sum takes any size; the quantizer beside it wants multiples of 32.
TEST(Vectors, AGradientOfABiasOfAnySize) {
  Folder folder("mxfp8_dbias_a01.safetensors");
  constexpr size_t kRows = 33, kCols = 96;
  for (size_t i = 0; i < folder.tensors.size(); ++i)
    if (folder.tensors[i].name == "grad") {
      folder.tensors[i].shape = {kRows, kCols};
      folder.bytes[i].resize(4 * kRows * kCols);
    }
  std::vector<float> grad(kRows * kCols), sums(kCols, 0.0f);
  std::memcpy(grad.data(), folder.of("grad").data(), 4 * grad.size());
  for (size_t i = 0; i < grad.size(); ++i) sums[i % kCols] += grad[i];
  std::memcpy(folder.of("dbias").data(), sums.data(), 4 * kCols);
  const Ran r = run(folder.write(), "#dbias");
  EXPECT_EQ(last_line(r.out), "2 passed, 0 failed, 0 skipped") << r.out;
}

// A member without elements has nothing to compare, and says nothing of the others.
TEST(Vectors, AnEmptyMember) {
  Folder folder("multi_cast_transpose_a01.safetensors");
  for (size_t i = 0; i < folder.tensors.size(); ++i)
    if (folder.tensors[i].name.starts_with("t0.")) {
      folder.tensors[i].shape =
          folder.tensors[i].name == "t0.data_t" ? std::vector<int64_t>{0, 3} : std::vector<int64_t>{3, 0};
      folder.bytes[i].clear();
    }
  std::fill_n(folder.of("amax").begin(), 4, std::byte{0});
  const Ran right = run(folder.write());
  EXPECT_EQ(right.status, 0) << right.out;
  folder.of("t1.data")[0] ^= std::byte{1};
  const Ran wrong = run(folder.write());
  EXPECT_TRUE(last_line(wrong.out).ends_with(" 2 failed, 0 skipped")) << wrong.out;
}

// Ctrl-C in the n-th run: what was judged counts, and the rest is no failure.
TEST(Vectors, AnInterruptIsNoFailure) {
  for (const int n : {1, 9}) {
    Subjects subjects;
    subjects.owned.push_back(make_reference_subject());
    subjects.owned.push_back(std::make_unique<fakes::Interrupting>("interrupting", n));
    VectorOptions options;
    options.directory = kVectors;
    options.filter = "mxfp8_a0";
    options.subjects = {"interrupting"};
    std::ostringstream out, err;
    const int status = run_vectors(options, subjects, out, err);
    EXPECT_EQ(status, 130) << out.str() << err.str();
    EXPECT_EQ(out.str().find("FAILED"), std::string::npos) << out.str();
    EXPECT_EQ(out.str().find("crashed"), std::string::npos) << out.str();
    EXPECT_NE(out.str().find("interrupted: "), std::string::npos) << out.str();
    EXPECT_NE(last_line(out.str()).find(" 0 failed, 0 skipped"), std::string::npos) << out.str();
    EXPECT_EQ(last_line(out.str()).starts_with("0 passed"), n == 1) << out.str();
  }
}

TEST(Vectors, ATensorWithoutARowIsAFailure) {
  Folder folder("mxfp8_a01.safetensors");
  for (st::Tensor& t : folder.tensors)
    if (t.name == "scale_rowwise") t.name = "scale_diagonal";
  folder.listed("scale_rowwise").set("name", "scale_diagonal");
  const Ran r = run(folder.write());
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("family mxfp8_1d has no row for a tensor called 'scale_diagonal'"), std::string::npos)
      << r.out;
}

TEST(Vectors, AWrongSizeIsAFailure) {
  Folder folder("mxfp8_a01.safetensors");
  for (size_t i = 0; i < folder.tensors.size(); ++i)
    if (folder.tensors[i].name == "data_rowwise") {
      folder.tensors[i].shape = {32, 63};
      folder.bytes[i].resize(32 * 63);
    }
  const Ran r = run(folder.write());
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("does not fit plane row.data"), std::string::npos) << r.out;
}

TEST(Vectors, AMissingParameterIsAFailure) {
  Folder folder("mxfp8_a01.safetensors");
  folder.entry.set("params", json::object());
  const Ran r = run(folder.write());
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("params lack 'format'"), std::string::npos) << r.out;
}

TEST(Vectors, UnknownFamiliesAreCountedAndNothingElseIsStatusThree) {
  Folder folder("mxfp8_a01.safetensors");
  folder.entry.set("family", "posit8");
  const Ran r = run(folder.write());
  EXPECT_EQ(r.status, 3);
  EXPECT_NE(r.out.find("posit8"), std::string::npos);
  EXPECT_EQ(last_line(r.out), "0 passed, 0 failed, 6 skipped");
}

TEST(Vectors, FilterPicksTensors) {
  const Ran r = run(kVectors, "mxfp8_a01.safetensors#data_", {"host"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(last_line(r.out), "2 passed, 0 failed, 0 skipped") << r.out;
  EXPECT_EQ(run(kVectors, "no such tensor").status, 3);
}

TEST(Vectors, FilesThatTheIndexDoesNotDescribeAreRefused) {
  Folder folder("mxfp8_a01.safetensors");
  const std::string path = folder.write();
  folder.entry.set("sha256", std::string(64, '0'));
  folder.write_index(json::dump(json::object({{"files", json::array({folder.entry})}})));
  Ran r = run(path);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("the index says 000000"), std::string::npos) << r.err;

  Folder unlisted("mxfp8_a02.safetensors");
  unlisted.tensors.push_back(unlisted.tensors[0]);
  unlisted.tensors.back().name = "surprise";
  unlisted.bytes.push_back(unlisted.bytes[0]);
  r = run(unlisted.write());
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("surprise"), std::string::npos) << r.err;
}

TEST(Vectors, MalformedIndexesAreStatusTwo) {
  Folder folder("mxfp8_a01.safetensors");
  const std::string path = folder.write();
  const std::string good = json::dump(json::object({{"files", json::array({folder.entry})}}));
  auto with = [&](const std::function<void(json::Value&)>& change) {
    json::Value entry = folder.entry;
    change(entry);
    return json::dump(json::object({{"files", json::array({entry})}}));
  };
  const std::vector<std::string> bad = {
      "",
      "[]",
      "{",
      "{\"files\": 3}",
      "{\"files\": []}",
      "{\"files\": [1]}",
      "{\"files\": [{}]}",
      with([](json::Value& e) { e.set("file", "../mxfp8_a01.safetensors"); }),
      with([](json::Value& e) { e.set("file", "/etc/passwd"); }),
      with([](json::Value& e) { e.set("file", "absent.safetensors"); }),
      with([](json::Value& e) { e.set("tensors", 1); }),
      with([](json::Value& e) {
        e.set("tensors", json::array({json::object({{"name", "input"}, {"role", "guess"}})}));
      }),
      with([](json::Value& e) { e.set("params", "none"); }),
      std::string(100000, '['),
      json::dump(json::object({{"files", json::array({folder.entry, folder.entry})}}))};
  for (const std::string& text : bad) {
    folder.write_index(text);
    const Ran r = run(path);
    EXPECT_EQ(r.status, 2) << text.substr(0, 200) << "\n" << r.out;
    EXPECT_TRUE(r.err.starts_with("assay: ")) << text.substr(0, 200);
  }
  folder.write_index(good);
  EXPECT_EQ(run(path).status, 0);
  EXPECT_EQ(run("/nonexistent").status, 2);
  EXPECT_EQ(run(path, "", {"nobody"}).status, 2);
}

TEST(Vectors, ATruncatedFileIsStatusTwo) {
  Folder folder("mxfp8_a01.safetensors");
  const std::string path = folder.write();
  std::filesystem::resize_file(path + "/mxfp8_a01.safetensors", 2000);
  folder.entry.set("sha256", "");
  folder.write_index(json::dump(json::object({{"files", json::array({folder.entry})}})));
  const Ran r = run(path);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("mxfp8_a01.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace assay

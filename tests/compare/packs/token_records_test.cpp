#include "compare/packs/token_records.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compare/judge/cases.h"
#include "compare/process/plain_run.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

using Bytes = std::vector<std::byte>;
using safetensors::Dtype;

const std::string kLine = "quantize fp8_block 5x512 bf16 dir=row flavour=vllm.kv_cache_mla";
constexpr size_t kTokens = 5, kBytes = 656;

// The planes of the line on a drawn x, and the 656 bytes of each token: codes, scales, rotary values.
struct Record {
  explicit Record(const std::string& text = kLine)
      : line(fakes::problem(text)), reference(make_reference_subject()) {
    inputs = *make_inputs(line, *reference);
    planes = *plain_run(*reference, line, inputs);
    for (size_t i = 0; i < kTokens * 128; ++i) rotary.push_back(static_cast<std::byte>(7 * i % 256));
    const Bytes &codes = find_plane(planes, "row.data")->bytes,
                &scales = find_plane(planes, "row.scale_inv")->bytes;
    for (size_t t = 0; t < kTokens; ++t) {
      put(codes, 512 * t, 512);
      for (size_t tile = 0; tile < 4; ++tile)  // the plane has the tokens of a tile side by side (N6.1)
        put(scales, 4 * (tile * scales.size() / 16 + t), 4);
      put(rotary, 128 * t, 128);
    }
  }
  void put(const Bytes& from, size_t at, size_t count) {
    bytes.insert(bytes.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
                 from.begin() + static_cast<std::ptrdiff_t>(at + count));
  }
  // The case as a dump has it.
  PackCase dumped(Dtype dtype = Dtype::U8) const {
    PackCase c;
    c.id = "layers.0", c.line = kLine;
    c.planes = {{"rotary", safetensors::Tensor{"rotary", Dtype::BF16, {5, 64}, rotary}, {}},
                {"row.record", safetensors::Tensor{"row.record", dtype, {5, 656}, bytes}, {}},
                {"x", safetensors::Tensor{"x", Dtype::BF16, {5, 512}, inputs[0].bytes}, {}}};
    return c;
  }

  Problem line;
  std::unique_ptr<Subject> reference;
  std::vector<PlaneData> inputs, planes;
  Bytes rotary, bytes;
};

Bytes of(const PackCase& c, const std::string& plane, const Problem& line) {
  for (const Plane& p : output_planes(line))
    if (p.name == plane) return *plane_bytes(*c.find(plane)->tensor, p);
  return {};
}

TEST(TokenRecords, BecomeThePlanesOfTheirLines) {
  const Record record;
  ASSERT_EQ(record.bytes.size(), kTokens * kBytes);
  PackCase c = record.dumped();
  std::vector<PackCase> more;
  std::deque<Bytes> bytes;
  ASSERT_FALSE(unpack_records(c, more, bytes));
  EXPECT_EQ(c.planes.size(), 3u);
  for (const char* name : {"row.data", "row.scale_inv"})
    EXPECT_EQ(of(c, name, record.line), find_plane(record.planes, name)->bytes) << name;
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].id, "layers.0_rotary");
  EXPECT_EQ(of(more[0], "row.data", fakes::problem(more[0].line)), record.rotary);
}

TEST(TokenRecords, AByteOfARecordIsAByteOfItsPlane) {
  struct Flip {
    size_t token, at;
    const char* plane;
  };
  for (const Flip& flip : {Flip{1, 7, "row.data"}, {3, 516, "row.scale_inv"}, {2, 600, "rotary"}}) {
    Record record;
    record.bytes[flip.token * kBytes + flip.at] ^= std::byte{1};
    PackCase c = record.dumped();
    std::vector<PackCase> more;
    std::deque<Bytes> bytes;
    ASSERT_FALSE(unpack_records(c, more, bytes));
    for (const char* name : {"row.data", "row.scale_inv"})
      EXPECT_EQ(of(c, name, record.line) == find_plane(record.planes, name)->bytes,
                flip.plane != std::string(name))
          << name << " with a flip in " << flip.plane;
    EXPECT_EQ(of(more.at(0), "row.data", fakes::problem(more[0].line)) == record.rotary,
              flip.plane != std::string("rotary"));
  }
}

TEST(TokenRecords, WithoutWhatTheRotaryValuesWereMadeFromTheyAreNotJudged) {
  const Record record;
  PackCase c = record.dumped();
  c.planes.erase(c.planes.begin());
  std::vector<PackCase> more;
  std::deque<Bytes> bytes;
  ASSERT_FALSE(unpack_records(c, more, bytes));
  EXPECT_TRUE(more.empty());
  EXPECT_TRUE(c.find("row.data"));
}

TEST(TokenRecords, OtherBytesAndOtherLinesAreRefused) {
  const Record record;
  std::vector<PackCase> more;
  std::deque<Bytes> bytes;
  const auto error = [&](PackCase c) {
    const auto e = unpack_records(c, more, bytes);
    return e ? e->text() : "none";
  };
  PackCase whole = record.dumped(), words = record.dumped(Dtype::U16), other = record.dumped();
  EXPECT_EQ(error(whole), "none");
  EXPECT_NE(error(words).find("expected 5 records of 512 codes, 4 scales"), std::string::npos)
      << error(words);
  for (const size_t size : {size_t{100}, kTokens * 527, kTokens * 529, kTokens * kBytes - 1}) {
    PackCase cut = record.dumped();
    cut.planes[1].tensor->bytes = std::span(record.bytes).first(size);
    EXPECT_NE(error(cut).find("records of 512 codes"), std::string::npos) << size << ": " << error(cut);
  }
  for (const char* line :
       {"quantize mxfp8 5x512 bf16 dir=row", "quantize fp8_block 5x512 bf16 dir=both",
        "quantize fp8_block 5x512 bf16 dir=row block=128x128", "quantize fp8_block 5x500 bf16 dir=row"}) {
    other.line = line;
    EXPECT_NE(error(other).find("expected a line 'quantize fp8_block"), std::string::npos) << line;
  }
  EXPECT_TRUE(more.size() == 1);  // of the whole one
}

}  // namespace
}  // namespace assay

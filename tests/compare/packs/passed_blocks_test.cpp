// The subject that says what an acceptor lets through: what the vectorised method tells of every block with a
// wrong bit, and what acceptors that err leave in the planes.
#include "compare/packs/passed_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "compare/process/guarded_run.h"
#include "fast/subject_simd.h"
#include "tests/compare/faulty_subject.h"

namespace assay {
namespace {

// The vectorised method's answers, with a change.
class ErringAcceptor final : public Acceptor {
 public:
  using Change = std::function<void(std::vector<DoubtfulBlock>&)>;
  ErringAcceptor(Acceptor& behind, Change change) : behind_(behind), change_(std::move(change)) {}
  std::string_view target() const override { return behind_.target(); }
  std::string_view sources() const override { return behind_.sources(); }
  std::vector<std::string_view> uncertified() const override { return behind_.uncertified(); }
  void use_certified(const std::set<std::string, std::less<>>& names) override {
    behind_.use_certified(names);
  }
  Support accepts(const Problem& p) const override { return behind_.accepts(p); }
  std::vector<DoubtfulBlock> unknown(const Problem& p, Direction d, StridedBytes x, StridedBytes data,
                                     StridedBytes scales) override {
    std::vector<DoubtfulBlock> out = behind_.unknown(p, d, x, data, scales);
    change_(out);
    return out;
  }

 private:
  Acceptor& behind_;
  Change change_;
};

const char* const kLines[] = {"quantize mxfp8 7x96 bf16 dir=both element=e5m2 fill=normal",
                              "quantize mxfp8 96x70 f32 dir=col fill=normal",
                              "quantize mxfp4 64x96 f16 dir=both fill=normal",
                              "quantize nvfp4 32x80 bf16 dir=both amax=3 fill=normal",
                              "quantize fp8_block 130x256 f32 dir=both fill=normal",
                              "quantize fp8_current 40x100 bf16 dir=both amax=8 fill=normal"};

class PassedBlocks : public testing::Test {
 protected:
  void SetUp() override {
    if (!simd_->present().yes) GTEST_SKIP() << simd_->present().why;
  }
  // The bytes of its planes that differ from the reference's.
  int64_t differing(const std::string& text, const ErringAcceptor::Change& change) {
    const Problem p = line(text);
    ErringAcceptor acceptor(dynamic_cast<Acceptor&>(*simd_), change);
    const auto subject = make_passed_blocks_subject(*simd_, acceptor);
    EXPECT_TRUE(subject->supports(p).yes) << subject->supports(p).why;
    const std::vector<PlaneData> inputs = *make_inputs(p, *reference_);
    const auto want = execute(*reference_, p, inputs, Environment{}).planes;
    const Execution got = execute(*subject, p, inputs, Environment{});
    EXPECT_FALSE(got.error) << *got.error;
    int64_t out = 0;
    for (size_t i = 0; i < want.size(); ++i)
      for (size_t b = 0; b < want[i].bytes.size(); ++b) out += want[i].bytes[b] != got.planes[i].bytes[b];
    return out;
  }

  std::unique_ptr<Subject> reference_ = make_reference_subject(), simd_ = make_simd_subject();
};

TEST_F(PassedBlocks, NothingIsLetThrough) {
  for (const char* text : kLines) EXPECT_EQ(differing(text, [](auto&) {}), 0) << text;
}

TEST_F(PassedBlocks, ABlockOfWhichNothingIsToldStaysWrong) {
  for (const char* text : kLines)
    EXPECT_GT(differing(text,
                        [](std::vector<DoubtfulBlock>& told) {
                          if (told.size() > 2) told.erase(told.begin() + 2);
                        }),
              0)
        << text;
}

TEST_F(PassedBlocks, ABlockOfWhichSomethingElseIsToldStaysWrong) {
  for (const char* text : kLines)
    EXPECT_GT(differing(text,
                        [](std::vector<DoubtfulBlock>& told) {
                          for (DoubtfulBlock& b : told) b.differ += b.special ? 0 : 1;
                        }),
              0)
        << text;
}

TEST_F(PassedBlocks, ARightBlockThatIsDoubtedGetsAWrongBit) {
  for (const char* text : kLines)
    EXPECT_GT(differing(text,
                        [](std::vector<DoubtfulBlock>& told) {
                          for (uint32_t col = 0; col < 2; ++col) {
                            const auto is_it = [col](const DoubtfulBlock& b) {
                              return b.row == 0 && b.col == col;
                            };
                            if (std::none_of(told.begin(), told.end(), is_it))
                              told.push_back({{0, col}, false, true, 0, 0});
                          }
                        }),
              0)
        << text;
}

TEST_F(PassedBlocks, TakesNoLineThatTheAcceptorDoesNotTake) {
  Acceptor& acceptor = dynamic_cast<Acceptor&>(*simd_);
  const auto subject = make_passed_blocks_subject(*simd_, acceptor);
  for (const char* text : {"cast e4m3 1x4 f32", "quantize fp8_current 4x4 bf16", "quantize mxfp6 4x32 bf16"})
    EXPECT_FALSE(subject->supports(line(text)).yes) << text;
}

}  // namespace
}  // namespace assay

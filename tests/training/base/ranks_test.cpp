#include "training/base/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <unistd.h>

#include "fixtures/sha256.h"
#include "training/base/errors.h"
#include "training/base/rank_engine.h"
#include "training/formats/formats.h"
#include "training/formats/wire.h"

namespace assay::training {
namespace {

using std::string;
using testing::HasSubstr;

ArrayPtr bytes_from(int64_t n, int first, DType dtype = DType::uint8) {
  const ArrayPtr out = zeros({n}, dtype);
  for (std::byte& b : out->bytes()) b = static_cast<std::byte>(first++);
  return out;
}

// The words with which the run ends; empty where it ends well.
string words_of(const std::function<void(int rank, const GroupPtr&)>& work) {
  try {
    run_ranks(3, "dp", work);
  } catch (const RankError& e) {
    return e.what();
  }
  return {};
}

TEST(Ranks, GatherInTheirOrderAndReduceToTheLargest) {
  std::vector<ArrayPtr> seen(3);
  std::vector<F32Bits> most(3);
  run_ranks(
      3, "dp",
      [&](int rank, const GroupPtr& group) {
        const auto at = static_cast<size_t>(rank);
        seen[at] = concatenate(group->all_gather(bytes_from(2, 10 * rank)));
        most[at] = static_cast<F32Bits>(7 - rank);
        group->all_reduce_max(std::span(&most[at], 1));
      },
      shared(seen, most));
  const uint8_t want[] = {0, 1, 10, 11, 20, 21};
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(equal_bytes(*seen[rank], *from_bytes({6}, DType::uint8, std::as_bytes(std::span(want)))));
    EXPECT_EQ(most[rank], 7u);
  }
}

TEST(Ranks, AGatheredTensorIsNobodysOwn) {
  std::vector<ArrayPtr> own(2), got(2);
  run_ranks(2, "dp", [&](int rank, const GroupPtr& group) {
    const auto at = static_cast<size_t>(rank);
    own[at] = bytes_from(4, rank);
    got[at] = group->all_gather(own[at])[0];
  });
  EXPECT_FALSE(share_memory(*own[0], *got[0]));
  EXPECT_FALSE(share_memory(*got[0], *got[1]));
}

TEST(Ranks, DisagreementsAreSeenBeforeAValueIsRead) {
  const auto with = [](const std::function<void(ProcessGroup&)>& odd) {
    return words_of([&](int rank, const GroupPtr& group) {
      group->all_gather(bytes_from(1, 0));
      if (rank == 1) odd(*group);
      else group->all_gather(bytes_from(4, 0));
    });
  };
  F32Bits amax = 1;
  EXPECT_THAT(
      with([&](ProcessGroup& g) { g.all_reduce_max(std::span(&amax, 1)); }),
      HasSubstr("rank 0 has all_gather uint8 4 of dp, meeting 2; rank 1 has all_reduce_max float32 1 of dp"));
  EXPECT_THAT(with([](ProcessGroup& g) { g.all_gather(bytes_from(2, 0, DType::int16)); }),
              HasSubstr("rank 1 has all_gather int16 2 of dp"));
  EXPECT_THAT(with([](ProcessGroup& g) { g.all_gather(bytes_from(5, 0)); }),
              HasSubstr("rank 1 has all_gather uint8 5 of dp"));
  EXPECT_THAT(with([](ProcessGroup&) {}), HasSubstr("rank 1 has the end of its work of dp"));
  EXPECT_EQ(with([](ProcessGroup& g) { g.all_gather(bytes_from(4, 9)); }), "");
}

TEST(Ranks, OneThatDoesNotComeIsNamed) {
  rank_engine().deadline = std::chrono::milliseconds(150);
  const string words = words_of([](int rank, const GroupPtr& group) {
    group->all_gather(bytes_from(1, 0));
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(800));
    group->all_gather(bytes_from(4, 0));
  });
  rank_engine().deadline = std::chrono::seconds(120);
  EXPECT_THAT(words, HasSubstr("rank 0 of 3 waited "));
  EXPECT_THAT(words, HasSubstr("for rank 2 in meeting 2 (all_gather uint8 4 of dp)"));
  EXPECT_THAT(words, HasSubstr("rank 2 had met last for all_gather uint8 1 of dp"));
}

TEST(Ranks, OneThatGivesUpSaysWhoItIs) {
  string words;
  rank_engine().run(2, [&](Mailbox& mailbox, int rank) {
    if (rank == 1) return mailbox.give_up("no disk");
    while (!mailbox.ended()) mailbox.pause();
    words = *mailbox.ended();
  });
  EXPECT_EQ(words, "rank 1 gave up: no disk");
}

// Whoever looks for the cause reads what the program had written before it ended at once.
TEST(Ranks, AnAbortSaysWhyAndLosesNothingThatWasWritten) {
  const string path = (std::filesystem::temp_directory_path() / "written_before_an_abort").string();
  EXPECT_EXIT(
      {
        std::FILE* file = std::fopen(path.c_str(), "w");
        std::fputs("half a report", file);
        rank_engine().abort(3, "rank 1 of 2 was lost");
      },
      testing::ExitedWithCode(3), "rank 1 of 2 was lost");
  std::ifstream file(path);
  EXPECT_EQ(string(std::istreambuf_iterator<char>(file), {}), "half a report");
  std::filesystem::remove(path);
}

TEST(Ranks, TheLowestRankThatFailsIsTheErrorOfTheRun) {
  RankTranscript transcript;
  try {
    run_ranks(3, "tp", [](int rank, const GroupPtr& group) {
      if (rank > 0) throw SemanticError(ErrorClass::type_error, "rank " + std::to_string(rank));
      group->all_gather(bytes_from(1, 0));
    });
    FAIL();
  } catch (const SemanticError& e) {
    EXPECT_EQ(e.error_class, ErrorClass::type_error);
    EXPECT_STREQ(e.what(), "rank 1");
  }
  ASSERT_EQ(transcript.runs.size(), 1u);
  EXPECT_EQ(transcript.runs[0].error, "rank 1: TypeError: rank 1");
  EXPECT_EQ(transcript.most(), 3);
}

TEST(Ranks, TheTranscriptHasCollectivesAndDigests) {
  RankTranscript transcript;
  std::vector<ArrayPtr> parts(2);
  run_ranks(
      2, "dp",
      [&](int rank, const GroupPtr& group) {
        group->all_gather(bytes_from(4, rank));
        parts[static_cast<size_t>(rank)] = bytes_from(4, 0);
      },
      shared(parts));
  ASSERT_EQ(transcript.runs.size(), 1u);
  const std::vector<RankRecord>& ranks = transcript.runs[0].ranks;
  ASSERT_EQ(ranks.size(), 2u);
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  for (int rank = 0; rank < 2; ++rank) {
    const RankRecord& r = ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(r.rank, rank);
    EXPECT_EQ(r.process, string(host) + ":" + std::to_string(::getpid()));
    ASSERT_EQ(r.collectives.size(), 1u);
    EXPECT_THAT(r.collectives[0], testing::StartsWith("all_gather uint8 4 of dp "));
    EXPECT_EQ(r.left.size(), 1u);
  }
  EXPECT_NE(ranks[0].collectives, ranks[1].collectives);  // they sent other bytes
  EXPECT_EQ(ranks[0].left, ranks[1].left);                // and left the same ones
}

// What is read after it was written.
template <class T> T travelled(T value) {
  Wire out;
  out(value);
  const std::vector<std::byte> bytes = out.bytes();
  Wire in(bytes);
  T read{};
  in(read);
  return read;
}

TEST(Wire, SharedMemoryAndObjectsStayShared) {
  const ArrayPtr whole = bytes_from(8, 0), part = slice(whole, 0, 2, 4);
  const auto read = travelled(std::vector<ArrayPtr>{whole, part, whole, nullptr});
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[0], read[2]);
  EXPECT_EQ(read[3], nullptr);
  EXPECT_TRUE(share_memory(*read[0], *read[1]));
  EXPECT_TRUE(equal_bytes(*contiguous(read[1]), *contiguous(part)));
}

TEST(Wire, AMessageThatEndsEarlyIsAnError) {
  Wire out;
  string text = "all of it";
  out(text);
  for (size_t n = 0; n < out.bytes().size(); ++n) {
    Wire in(std::span(out.bytes()).first(n));
    EXPECT_THROW(in(text), std::runtime_error) << n;
  }
}

// A tensor of somebody's own class would arrive as another one.
TEST(Wire, OnlyBuiltInTensorsTravel) {
  struct Own final : IdentityStorage {
    ClassNames names() const override { return {"OwnTensor", "OwnTensorStorage"}; }
  };
  StoragePtr own = std::make_shared<Own>();
  Wire out;
  try {
    out(own);
    ADD_FAILURE() << "it travelled";
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("found a OwnTensor"));
  }
}

TEST(Wire, QuantizersKeepTheirSettings) {
  auto fp4 = std::make_shared<NVFP4Quantizer>();
  fp4->with_rht = fp4->stochastic_rounding = true;
  fp4->reduction.enabled = true;
  fp4->reduction.group = std::make_shared<ProcessGroup>();
  fp4->reduction.group->name = "tp";
  const auto block = std::make_shared<Float8BlockQuantizer>(Encoding::e5m2, 2);
  const auto mxfp6 = std::make_shared<MXFP6Quantizer>(Encoding::e3m2);
  mxfp6->settings.packing = Packing::packed;
  const QuantizerPtr all[] = {
      fp4,
      std::make_shared<Float8Quantizer>(bytes_from(1, 1, DType::float32), bytes_from(1, 2, DType::float32),
                                        Encoding::e5m2),
      std::make_shared<Float8CurrentScalingQuantizer>(Encoding::e5m2),
      std::make_shared<MXFP8Quantizer>(Encoding::e5m2),
      std::make_shared<IdentityQuantizer>(DType::bfloat16),
      mxfp6,
      std::make_shared<MXFP4Quantizer>(),
      std::make_shared<HybridQuantizer>(std::make_shared<MXFP8Quantizer>(), block, "rowwise_dequantized"),
  };
  for (const QuantizerPtr& q : all) {
    q->internal = true;
    EXPECT_EQ(travelled(q)->describe(), q->describe()) << q->class_name();
  }
  EXPECT_EQ(travelled(QuantizerPtr()), nullptr);
}

// `assay run ranks --transcript` writes digests of what a rank left behind, and runs of two builds are
// compared by them: an order of members that writing and reading share changes them all the same.
TEST(Wire, AQuantizerHasTheBytesOfEarlierBuilds) {
  QuantizerPtr q = std::make_shared<MXFP8Quantizer>();
  q->rowwise_usage = true;
  q->columnwise_usage = false;
  Wire out;
  out(q);
  EXPECT_EQ(sha256(out.bytes()).substr(0, 16), "c9127a22817d5008");
}

}  // namespace
}  // namespace assay::training

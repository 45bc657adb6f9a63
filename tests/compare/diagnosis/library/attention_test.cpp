// Causes of an attention: its softmax scale, its masks, the heads and lengths that it reads. What came is
// made by a line that says the same in numbers, or by inputs that a loop of this file has changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/process/plain_run.h"
#include "tests/compare/diagnosis/named.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using named::called, named::diagnosed, named::expect_named, named::Planes;
using std::string;

// Heads of 24 elements, two of them.
struct Scale {
  const char *id, *number;
};
constexpr Scale kScales[] = {
    {"scale_of_all_heads", "0.14433756"},  // 1 / sqrt(48)
    {"scale_unrooted", "0.041666668"},     // 1 / 24
    {"scale_inverted", "4.8989797"},       // sqrt(24)
    {"scale_by_log2e", "0.29448771"},      // log2(e) / sqrt(24)
    {"scale_by_ln2", "0.14148824"},        // ln(2) / sqrt(24)
    {"scale_padded=32", "0.17677669"},     // 1 / sqrt(32)
    {"scale_padded=128", "0.088388346"},   // 1 / sqrt(128)
};

TEST(AttentionCauses, SoftmaxScalesAreNamed) {
  const string line = "attention fp8_current 12x48 bf16 heads=2";
  const planes::Case c(line);
  for (const Scale& scale : kScales)
    expect_named(string("attention.") + scale.id, c,
                 planes::Case(line + " softmax_scale=" + scale.number).want);
}

TEST(AttentionCauses, TheDefaultSoftmaxScaleIsNamed) {
  const planes::Case c("attention fp8_current 12x48 bf16 heads=2 softmax_scale=3");
  expect_named("attention.scale_default", c, planes::Case("attention fp8_current 12x48 bf16 heads=2").want);
}

TEST(AttentionCauses, SidesOfAWindowAreNamed) {
  const string line = "attention fp8_current 24x32 bf16 heads=2 window=";
  const planes::Case c(line + "3,5");
  for (const auto& [id, sides] : {std::pair("window_left_more", "4,5"), std::pair("window_left_less", "2,5"),
                                  std::pair("window_turned", "5,3")})
    expect_named(string("attention.") + id, c, planes::Case(line + sides).want);
}

TEST(AttentionCauses, TheCornerOfPaddedSequencesIsNamed) {
  const string line =
      "attention fp8_current 32x64 bf16 heads=2 batch=2 kv=24 lengths=10,16 kv_lengths=24,17 ";
  expect_named("attention.corner_padded", planes::Case(line + "mask=causal_bottom_right"),
               planes::Case(line + "window=-1,8").want);
}

TEST(AttentionCauses, AMaskOfDropoutThatMovedIsNamed) {
  const planes::Case c("attention fp8_current 32x64 bf16 heads=2 dropout=0.25 backward=1");
  const std::pair<const char*, size_t> causes[] = {
      {"dropout_missing", 0}, {"dropout_moved=1", 1}, {"dropout_moved=4", 4}, {"dropout_moved=16", 16}};
  for (const auto& [id, moved] : causes) {
    Planes other = c.inputs;
    std::vector<std::byte>& keep = called(other, "keep").bytes;
    const std::vector<std::byte> before = keep;
    for (size_t i = 0; i < keep.size(); ++i)
      keep[i] = moved ? before[(i + moved) % keep.size()] : std::byte{1};
    const auto backward = plain_run(*make_reference_subject(), c.problem, other);
    ASSERT_TRUE(backward);
    Planes got = c.want;
    bool gradients = false;  // they come behind `out`
    for (PlaneData& plane : got) {
      if (gradients) plane.bytes = find_plane(*backward, plane.plane.name)->bytes;
      gradients |= plane.plane.name == "out";
    }
    expect_named(string("attention.") + id, c, got);
  }
}

// ---- heads that read others ------------------------------------------------------------------------------

// Twelve heads in four groups of three, of 8 elements each.
struct Heads {
  const char* id;
  int reads[12];
};
constexpr Heads kHeads[] = {
    {"heads_wrap", {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}},
    {"heads_by_tiles=2", {0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3}},
    {"heads_by_tiles=4", {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}},
    {"heads_by_tiles=8", {0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2}},
    {"heads_first", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {"heads_reversed", {3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0}},
    {"heads_next", {1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0}},
    {"heads_ungrouped", {0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
};

// Every head has a head of K and V for itself, which is a copy of the one that it reads.
Planes with_heads(const planes::Case& c, const int (&reads)[12]) {
  const size_t tokens = 12, heads = 12, head = 2 * 8;
  const auto apart = parse_line("attention identity 12x96 bf16 heads=12");
  Planes in = *make_inputs(*apart, *make_reference_subject());
  for (PlaneData& plane : in) {
    const std::vector<std::byte>& own = find_plane(c.inputs, plane.plane.name)->bytes;
    if (plane.plane.name == "q") plane.bytes = own;
    else
      for (size_t token = 0; token < tokens; ++token)
        for (size_t h = 0; h < heads; ++h)
          std::copy_n(own.data() + (token * 4 + static_cast<size_t>(reads[h])) * head, head,
                      plane.bytes.data() + (token * heads + h) * head);
  }
  const auto made = plain_run(*make_reference_subject(), *apart, in);
  if (!made) throw std::runtime_error(made.error().text());
  Planes got = c.want;
  for (PlaneData& plane : got) plane.bytes = find_plane(*made, plane.plane.name)->bytes;
  return got;
}

TEST(AttentionCauses, HeadsThatReadOthersAreNamed) {
  const planes::Case c("attention identity 12x96 bf16 heads=12 kv_heads=4");
  ASSERT_EQ(with_heads(c, {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}).back().bytes, c.want.back().bytes);
  for (const Heads& heads : kHeads)
    expect_named(string("attention.") + heads.id, c, with_heads(c, heads.reads));
}

// ---- lengths, and queries that see no key ----------------------------------------------------------------

TEST(AttentionCauses, LengthsOfOtherSequencesAreNamed) {
  const string line = "attention identity 36x32 bf16 heads=2 batch=3 lengths=5,12,8 kv_lengths=";
  const planes::Case c(line + "9,3,6");
  for (const auto& [id, lengths] :
       {std::pair("lengths_of_queries", "5,12,8"), std::pair("lengths_full", "12,12,12"),
        std::pair("lengths_of_next", "3,6,9")}) {
    const auto got = plain_run(*make_reference_subject(), *parse_line(line + lengths), c.inputs);
    ASSERT_TRUE(got) << id;
    expect_named(string("attention.") + id, c, *got);
  }
}

// The first `rows` queries of 12 see no key: their probabilities s and their results are `code`. The logits p
// are made before anything is masked.
void spoil_unseeing(planes::Case& c, int64_t rows, uint32_t code) {
  for (const char* name : {"s", "o", "out"}) {
    const bool of_heads = *name == 's';  // whose rows are those of one head after the other's
    c.spoil(name, [&](int64_t r, int64_t, uint32_t right) {
      return (of_heads ? r % 12 : r) < rows ? code : right;
    });
  }
}

TEST(AttentionCauses, QueriesThatSeeNoKeyAreNamed) {
  for (const auto& [id, code] :
       {std::pair("attention.unseeing_nan", 0x7FFFu), std::pair("attention.unseeing_zero", 0u)})
    for (const char* masked :
         {"kv=8 mask=causal_bottom_right", "kv=8 window=-1,0 mask=causal_bottom_right"}) {
      planes::Case c(string("attention identity 12x32 bf16 heads=2 ") + masked);
      spoil_unseeing(c, 4, code);
      expect_named(id, c, c.got);
    }
}

// The sum of no exponentials is 0, and so is what is divided by it.
TEST(AttentionCauses, QueriesWithoutAnyKeyAreNamed) {
  planes::Case c("attention identity 12x32 bf16 heads=2 kv=0");
  spoil_unseeing(c, 12, 0x7FFF);
  expect_named("attention.unseeing_nan", c, c.got);
}

}  // namespace
}  // namespace assay

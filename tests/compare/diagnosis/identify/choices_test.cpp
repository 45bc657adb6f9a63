// assay flavours: every row is listed, lines are made by choices, and the matrix says which choices differ in
// scales, in codes, or in neither.
#include "compare/diagnosis/identify/choices.h"
#include "compare/commands/flavours.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "compare/diagnosis/identify/flavour_matrix.h"
#include "contract/flavours.h"
#include "contract/line.h"
#include "reference/subject.h"

namespace assay {
namespace {

struct Told {
  int status = 0;
  std::string text;
};
Told told(const FlavoursOptions& options) {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  std::FILE* out = std::tmpfile();
  Told t;
  t.status = run_flavours(options, subjects, out, out);
  std::rewind(out);
  for (int c; (c = std::fgetc(out)) != EOF;) t.text += static_cast<char>(c);
  std::fclose(out);
  return t;
}

const Apart& apart(const FlavourMatrix& m, size_t fill, const std::string& a, const std::string& b) {
  auto at = [&](const std::string& name) {
    for (size_t i = 0; i < m.choices.size(); ++i)
      if (m.choices[i].name == name) return i;
    ADD_FAILURE() << name;
    return size_t{0};
  };
  return m.fills[fill].apart[at(a)][at(b)];
}

TEST(Choices, ThatScalesAreNoPowersOfTwoStaysWhenTheFlavourGoes) {
  const auto pow2 = [](const std::string& keys, const std::string& line) {
    const auto p = with_choice(*parse_line("quantize fp8_block 64x512 bf16 dir=row " + keys), line);
    return p && p->row->pow2;
  };
  EXPECT_TRUE(pow2("", ""));
  for (const char* keys :
       {"pow2=0", "flavour=deepgemm", "flavour=deepgemm pow2=0", "flavour=deepgemm.ue8m0 pow2=0"}) {
    EXPECT_FALSE(pow2(keys, "")) << keys;
    EXPECT_FALSE(pow2(keys, "flavour=te")) << keys;
    EXPECT_TRUE(pow2(keys, "pow2=1")) << keys;
    EXPECT_TRUE(pow2(keys, "flavour=deepgemm.ue8m0")) << keys;
  }
}

TEST(FlavoursMatrix, EveryRowIsListed) {
  const Told all = told({});
  EXPECT_EQ(all.status, 0);
  for (const FlavourInfo& f : flavours()) {
    EXPECT_NE(all.text.find(f.name), std::string::npos) << f.name;
    EXPECT_NE(all.text.find(f.keys), std::string::npos) << f.name;
  }
  const Told one = told({.format = "mxfp4", .json = {}});
  EXPECT_NE(one.text.find("modelopt.mxfp4"), std::string::npos);
  EXPECT_EQ(one.text.find("modelopt.nvfp4"), std::string::npos);
}

TEST(FlavoursMatrix, AnUnknownFormatHasItsNearestWord) {
  const Told t = told({.format = "mxpf8", .json = {}});
  EXPECT_EQ(t.status, 2);
  EXPECT_NE(t.text.find("did you mean 'mxfp8'?"), std::string::npos) << t.text;
}

TEST(FlavoursMatrix, AChoiceTakesOffWhatItSets) {
  const auto base = parse_line(
      "quantize mxfp8/nvfp4 64x256 bf16 flavour=te row.mx_scale=floor col.neg_zero=drop col.round=sr "
      "rng=7,0,0 seed=3");
  ASSERT_TRUE(base) << base.error().text();
  const auto plain = with_choice(*base, "");
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(to_line(*plain),
            to_line(*parse_line("quantize mxfp8/nvfp4 64x256 bf16 col.round=sr rng=7,0,0 seed=3")));
  const auto column = with_choice(*base, "flavour=vllm.nvfp4", Direction::col);
  ASSERT_TRUE(column) << column.error().text();
  EXPECT_EQ(column->row, base->row);
  EXPECT_EQ(column->col->numerics.nvfp4_scale, Nvfp4Scale::product_first);
  EXPECT_EQ(column->col->round, Round::sr);
  const auto block = parse_line("quantize fp8_block 64x256 bf16 dir=row eps=1 pow2=0");
  const auto eps = with_choice(*block, "flavour=deepgemm_ue8m0");
  EXPECT_FALSE(eps) << "no such flavour";
  const auto power = with_choice(*block, "flavour=deepgemm.ue8m0");
  ASSERT_TRUE(power) << power.error().text();
  EXPECT_TRUE(power->row->pow2);  // the flavour's, not the line's
  EXPECT_NE(power->row->eps, 0x3F800000u);
}

TEST(FlavoursMatrix, WhatDiffersAndWhatDoesNot) {
  const auto reference = make_reference_subject();
  const auto m = measure_flavours(FormatId::mxfp4, *reference, 1),
             again = measure_flavours(FormatId::mxfp4, *reference, 2);
  ASSERT_TRUE(m) << m.error().text();
  ASSERT_EQ(m->fills.size(), 2u);
  for (size_t fill : {size_t{0}, size_t{1}}) {
    const Apart& ties = apart(*m, fill, "ocp", "ocp.away");  // ties alone: scales equal
    EXPECT_EQ(ties.scales, 0);
    EXPECT_GT(ties.codes, ties.codes_of / 1000);
    EXPECT_LT(ties.codes, ties.codes_of / 100);
    const Apart& down = apart(*m, fill, "defaults", "triton.down");  // all but powers of two
    EXPECT_GT(down.scales, down.scales_of * 98 / 100);
    EXPECT_LT(down.scales, down.scales_of);
    const Apart& same = apart(*m, fill, "defaults", "torchao.rceil");
    EXPECT_EQ(same.scales + same.codes, 0);
    EXPECT_EQ(same.scales_of, 1024 * 32);
    EXPECT_EQ(same.codes_of, 1024 * 1024);
    EXPECT_EQ(apart(*m, fill, "triton.down", "defaults").codes, down.codes);
    for (size_t a = 0; a < m->choices.size(); ++a)
      for (size_t b = 0; b < m->choices.size(); ++b) {
        EXPECT_EQ(m->fills[fill].apart[a][b].scales, again->fills[fill].apart[a][b].scales);
        EXPECT_EQ(m->fills[fill].apart[a][b].codes, again->fills[fill].apart[a][b].codes);
      }
  }
}

}  // namespace
}  // namespace assay

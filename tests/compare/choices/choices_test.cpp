// What lines choose, the lines that are drawn, and the search for every valid pair.
#include "compare/choices/choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare/choices/data.h"
#include "compare/choices/draft.h"
#include "compare/choices/draw.h"
#include "compare/choices/pairs.h"
#include "compare/choices/space.h"
#include "compare/choices/tensors.h"
#include "compare/choices/values.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "contract/words.h"
#include "fixtures/fill.h"

namespace assay::choices {
namespace {

using std::string;

Problem line(const string& text) {
  const Result<Problem> p = parse_line(text);
  EXPECT_TRUE(p) << text;
  return p ? *p : Problem{};
}

std::vector<string> choices_in(const string& text, const string& group) {
  for (const GroupChoices& own : choices_of(line(text)))
    if (own.group == group) return own.choices;
  return {};
}

bool has(const std::vector<string>& list, const string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

TEST(Choices, AreThoseOfTheFormatAndWhatTakesNoPrefix) {
  const string pair = "quantize mxfp8/nvfp4 96x33 bf16 row.mx_scale=floor col.round=sr fill=ties";
  const auto rows = choices_in(pair, "quantize mxfp8"), cols = choices_in(pair, "quantize nvfp4");
  for (const char* both : {"fill=ties", "rows=32n", "cols=tail", "source=bf16", "row format=mxfp8",
                           "col format=nvfp4", "dir=both"}) {
    EXPECT_TRUE(has(rows, both)) << both;
    EXPECT_TRUE(has(cols, both)) << both;
  }
  EXPECT_TRUE(has(rows, "row.mx_scale=floor"));
  EXPECT_FALSE(has(cols, "row.mx_scale=floor"));
  EXPECT_TRUE(has(cols, "col.round=sr"));
  EXPECT_FALSE(has(rows, "col.round=sr"));
  const auto gemm = choices_in("gemm a=mxfp8 b=mxfp8 128x1x0 b.fill=zeros", "gemm mxfp8");
  for (const char* own : {"m=128n", "n=1", "k=0", "a.fill=normal", "b.fill=zeros"})
    EXPECT_TRUE(has(gemm, own)) << own;
}

TEST(Choices, NumbersAreClasses) {
  const auto chosen = [&](const string& eps) {
    const auto all = choices_in("quantize fp8_current 4x4 bf16 dir=row eps=" + eps, "quantize fp8_current");
    for (const string& choice : all)
      if (choice.starts_with("row.eps=")) return choice.substr(8);
    return string();
  };
  const std::map<string, string> table = {{"0", "0"},         {"1", "1"},
                                          {"4", "2^n"},       {"0.3", "number"},
                                          {"-2", "negative"}, {"1e-40", "subnormal"},
                                          {"inf", "inf"},     {"0x7FC00001", "nan"},
                                          {"0x80000000", "0"}};
  for (const auto& [eps, name] : table) EXPECT_EQ(chosen(eps), name) << eps;
}

// The pairs that a line exercises, each both ways.
std::set<string> pairs(const string& text) {
  Names names;
  std::set<string> out;
  for (const GroupChoices& own : choices_of(line(text))) {
    const Numbered numbers = names.numbers(own);
    numbers.each_pair([&](int a, int b) {
      out.insert(names.name(a) + " " + names.name(b));
      out.insert(names.name(b) + " " + names.name(a));
    });
    for (int a : numbers.numbers)
      for (int b : numbers.numbers)
        EXPECT_EQ(numbers.exercises(a, b), a != b && out.contains(names.name(a) + " " + names.name(b)))
            << text;
  }
  return out;
}

TEST(Choices, OfALineThatComputesNothingOnlyThePairsThatSaySoCount) {
  for (const auto& [text, idle] : {std::pair("cast e4m3 0x32 bf16 fill=ties", std::set<string>{"rows=0"}),
                                   {"cast e4m3 32x0 bf16 fill=ties", {"cols=0"}},
                                   {"quantize mxfp8 32x32 bf16 fill=ties noop=1", {"noop=1"}},
                                   {"gemm a=mxfp8 b=mxfp8 0x32x32 a.fill=ties", {"m=0"}},
                                   {"attention fp8_current 0x32 bf16 heads=1 lengths=0 kv_lengths=0",
                                    {"rows=0", "kv=0", "lengths=all empty", "kv_lengths=all empty"}}}) {
    std::set<string> said;
    for (const GroupChoices& own : choices_of(line(text)))
      for (const string& choice : own.choices)
        if (is_idle(choice)) said.insert(choice);
    EXPECT_EQ(said, idle) << text;
    const std::set<string> of_line = pairs(text);
    EXPECT_FALSE(of_line.empty()) << text;
    for (const string& pair : of_line)
      EXPECT_TRUE(std::any_of(said.begin(), said.end(),
                              [&](const string& choice) {
                                return pair.starts_with(choice + " ") || pair.ends_with(" " + choice);
                              }))
          << text << ": " << pair;
  }
  EXPECT_TRUE(pairs("cast e4m3 0x32 bf16 fill=ties").contains("rows=0 fill=ties"));
  const std::set<string> both = pairs("quantize mxfp8 0x32 bf16 fill=ties noop=1");
  for (const char* pair : {"rows=0 noop=1", "rows=0 fill=ties", "noop=1 fill=ties", "noop=1 cols=32n"})
    EXPECT_TRUE(both.contains(pair)) << pair;
  EXPECT_FALSE(both.contains("rows=0 rows=0"));
  EXPECT_FALSE(both.contains("cols=32n fill=ties"));
  EXPECT_TRUE(pairs("cast e4m3 1x32 bf16 fill=ties").contains("source=bf16 fill=ties"));
  const std::set<string> members = pairs("split fp8_current 0x32 bf16 groups=0,0 fill=ties");
  EXPECT_TRUE(members.contains("groups=all empty fill=ties"));
  EXPECT_FALSE(members.contains("source=bf16 fill=ties"));
}

// A sum of no products is an element all the same, but its operands have none.
TEST(Choices, AGemmWithoutProductsHasNoOperands) {
  const std::set<string> none = pairs("gemm a=mxfp8 b=mxfp8 32x32x0 a.fill=ties"),
                         one = pairs("gemm a=mxfp8 b=mxfp8 32x32x32 a.fill=ties");
  EXPECT_TRUE(none.contains("m=32n n=32n"));
  EXPECT_TRUE(none.contains("m=32n k=0"));
  EXPECT_TRUE(none.contains("k=0 a.fill=ties"));
  EXPECT_TRUE(none.contains("k=0 b format=mxfp8"));
  for (const char* pair : {"m=32n a.fill=ties", "a.fill=ties b.fill=normal", "a.fill=ties b format=mxfp8",
                           "m=32n op=TN", "m=32n sum=f32_sequential"}) {
    EXPECT_FALSE(none.contains(pair)) << pair;
    EXPECT_TRUE(one.contains(pair)) << pair;
  }
}

TEST(Choices, AnAttentionHasLogitsOnlyWithQueriesAndKeys) {
  const std::set<string>
      all = pairs("attention fp8_current 16x32 bf16 heads=1 kv=32 backward=1"),
      keys = pairs("attention fp8_current 0x32 bf16 heads=1 kv=32 backward=1"),
      queries = pairs("attention fp8_current 16x32 bf16 heads=1 kv=0 backward=1"),
      padding = pairs("attention fp8_current 16x32 bf16 heads=1 kv=32 lengths=0 kv_lengths=0"),
      apart = pairs("attention fp8_current 16x32 bf16 batch=2 heads=1 kv=8 lengths=5,0 kv_lengths=0,7"),
      codes_alone = pairs("attention fp8_current 0x32 bf16 heads=1 kv=32");
  const string codes = "source=bf16 qkv.element=e4m3", gradients = "qkv.element=e4m3 dqkv.element=e4m3",
               output = "o.element=e4m3 do.element=e4m3", logits = "mask=none s.element=e4m3",
               format = "inner format=fp8_current exp=exact", products = "s.element=e4m3 dp.element=e4m3";
  for (const string& pair : {codes, gradients, output, logits, format, products})
    EXPECT_TRUE(all.contains(pair)) << pair;
  for (const string& pair : {codes, gradients}) {  // those of keys and values, or those of queries
    EXPECT_TRUE(keys.contains(pair)) << pair;
    EXPECT_TRUE(queries.contains(pair)) << pair;
  }
  EXPECT_TRUE(queries.contains(output));
  EXPECT_FALSE(keys.contains(output));
  for (const string& pair : {logits, format, products}) {
    EXPECT_FALSE(keys.contains(pair)) << pair;
    EXPECT_FALSE(queries.contains(pair)) << pair;
  }
  EXPECT_TRUE(codes_alone.contains(codes));  // those of keys and values
  EXPECT_FALSE(codes_alone.contains(logits));
  EXPECT_FALSE(padding.contains(codes));
  EXPECT_TRUE(padding.contains("lengths=all empty mask=none"));
  EXPECT_TRUE(apart.contains("source=bf16 o.element=e4m3"));
  EXPECT_FALSE(apart.contains(logits)) << "no sequence has queries and keys";
  EXPECT_TRUE(keys.contains("rows=0 s.element=e4m3"));
  EXPECT_TRUE(queries.contains("kv=0 mask=none"));
}

// Every word of every key that is a list is drawn: a new key or value needs no row here.
TEST(Choices, EveryWordOfAKeyIsAClass) {
  for (const KeyInfo& key : line_keys()) {
    if (key.values.find_first_of("<.") != string::npos || key.values.find('|') == string::npos) continue;
    std::set<string> names;
    for (const ValueClass& c : classes_of(key)) {
      EXPECT_FALSE(c.values.empty());
      names.insert(c.name);
    }
    for (std::string_view word : words_of(key.values, '|')) {
      if (word == "float") continue;  // a number: classes of its own
      EXPECT_TRUE(names.contains(string(word))) << key.name << "=" << word;
    }
  }
}

TEST(Draft, ReadsBackWhatALinePrints) {
  for (const char* text :
       {"quantize mxfp8/nvfp4 96x160 bf16 fill=ties seed=7", "gemm a=mxfp8 b=identity 3x4x5 f16 b.seed=9",
        "attention fp8_current 6x8 bf16 heads=2 backward=1", "split mxfp8 96x64 f32 groups=0,96 seed=3",
        "cast e4m3 1x7 f32 overflow=nosat"}) {
    const Result<Problem> again = parse_line(draft_of(line(text)).text());
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(*again, line(text)) << text << "\n" << draft_of(line(text)).text();
  }
  const Draft d = draft_of(line("quantize mxfp8 96x160 bf16 fill=ties seed=7"));
  EXPECT_EQ(d.key_at(d.text().find("seed") + 1), "seed");
  EXPECT_EQ(d.key_at(d.text().find("ties") + 1), "fill");
  EXPECT_EQ(d.key_at(1), "");
}

TEST(Drawer, IsDeterministicAndBounded) {
  const auto all = [](const Problem&) { return true; };
  for (const char* group :
       {"quantize nvfp4", "split mxfp6", "gemm fp8_block", "attention fp8_delayed", "philox u32"}) {
    Drawer one(group, 500, all, 7), two(group, 500, all, 7), other(group, 500, all, 8);
    bool differs = false;
    for (int i = 0; i < 40; ++i) {
      const auto a = one.line(), b = two.line(), c = other.line();
      ASSERT_EQ(a.has_value(), b.has_value());
      if (!a) continue;
      EXPECT_EQ(a->draft.text(), b->draft.text());
      differs |= !c || c->draft.text() != a->draft.text();
      EXPECT_LE(string(group).starts_with("attention") ? 0 : a->problem.x.shape.count(), 500)
          << a->draft.text();
      EXPECT_EQ(*parse_line(to_line(a->problem)), a->problem);
    }
    EXPECT_TRUE(differs) << group;
  }
}

// A warp of threads adds 32 sizes at once, so that some lines have more; no tensor of any line is too large.
TEST(Drawer, LargerSplitsHaveManyMembersToo) {
  constexpr int64_t kMost = 4096;
  for (const char* group : {"split mxfp8", "split fp8_current"}) {
    Drawer drawer(
        group, kMost, [](const Problem&) { return true; }, 11, Aim::failures);
    int drawn = 0, many = 0, more_than_two_warps = 0;
    for (int i = 0; i < 200; ++i) {
      const auto plain = drawer.line();
      if (!plain) continue;
      EXPECT_LE(plain->problem.as<Split>()->members.size(), 4u) << plain->draft.text();
      EXPECT_LE(largest_tensor(plain->problem), kMost) << plain->draft.text();
      const auto larger = drawer.larger(plain->draft);
      if (!larger) continue;
      const size_t members = larger->problem.as<Split>()->members.size();
      ++drawn, many += members > 32, more_than_two_warps += members > 64;
      EXPECT_GT(larger->problem.x.shape.count(), kMost) << larger->draft.text();
      EXPECT_LE(largest_tensor(larger->problem), kLarger * kMost) << larger->draft.text();
      EXPECT_EQ(*parse_line(larger->draft.text()), larger->problem);
    }
    EXPECT_GT(drawn, 50) << group;
    EXPECT_GT(many, drawn / 10) << group;
    EXPECT_LT(many, drawn) << group;
    EXPECT_GT(more_than_two_warps, 0) << group;
  }
}

TEST(Drawer, GrantsItsWishesOrNothing) {
  Drawer drawer(
      "quantize nvfp4", 16384, [](const Problem&) { return true; }, 3);
  const std::vector<Wish> wishes = {{"col.rht", "1"}, {"rows", "16n"}};
  int granted = 0;
  for (int i = 0; i < 20; ++i) {
    const auto drawn = drawer.with(drawer.plain(), wishes);
    if (!drawn) continue;
    ++granted;
    EXPECT_TRUE(has(choices_in(drawn->draft.text(), "quantize nvfp4"), "col.rht=1")) << drawn->draft.text();
    EXPECT_TRUE(has(choices_in(drawn->draft.text(), "quantize nvfp4"), "rows=16n")) << drawn->draft.text();
  }
  EXPECT_GT(granted, 0);
  for (int i = 0; i < 20; ++i)  // N11.2: rows are never rotated
    EXPECT_FALSE(drawer.with(drawer.plain(), {{"col.rht", "1"}, {"source", "f32"}}));
}

// Every change leaves a line that the parser reads, whose literal holds what changed and fits.
TEST(Data, AFewElementsChangeAndTheRestStays) {
  Dice dice(5);
  const auto bytes_of = [](const Problem& p) {
    const Tensor t = p.as<Gemm>() ? operand_problem(p, Side::a).x : p.x;
    std::vector<std::byte> out(static_cast<size_t>(t.shape.count() * info(t.source).bytes()));
    EXPECT_FALSE(fill_tensor(t.fill, t.source, t.shape, out)) << to_line(p);
    return out;
  };
  for (const char* text : {"cast e4m3 3x7 f32 fill=ties", "quantize mxfp8 2x32 bf16 dir=row at=3,5",
                           "update fp8_delayed 4x3 f32", "quantize fp8_current 1x9 f16 fill=literal:3c00bc00",
                           "philox u32 4x4 u32", "cast f32 2x9 e2m1",
                           "gemm a=mxfp8 b=mxfp8 2x2x32 b.fill=zeros", "cast e4m3 16x16 bf16 fill=zeros"}) {
    const Problem from = line(text);
    const size_t width = static_cast<size_t>(info(from.x.source).bytes());
    for (int i = 0; i < 60; ++i) {
      const auto to = with_other_data(from, dice);
      ASSERT_TRUE(to) << text;
      EXPECT_EQ(*parse_line(to_line(*to)), *to);
      EXPECT_TRUE(data_fit(*to)) << to_line(*to);
      if (from.as<Gemm>()) continue;
      const auto before = bytes_of(from), after = bytes_of(*to);
      size_t changed = 0;
      for (size_t at = 0; at < before.size(); at += width)
        changed += !std::equal(&before[at], &before[at] + width, &after[at]);
      EXPECT_LE(changed, 4u) << to_line(*to);
    }
  }
  EXPECT_FALSE(with_other_data(line("cast e4m3 0x7 f32"), dice));
  EXPECT_FALSE(with_other_data(line("cast e4m3 1x257 f32"), dice));
}

TEST(Data, SpecialValuesAndNeighboursAreAmongTheChanges) {
  Dice dice(1);
  const Problem from = line("cast e4m3 1x1 f32 fill=literal:3f800000");
  std::set<string> payloads;
  for (int i = 0; i < 2000; ++i)
    if (const auto to = with_other_data(from, dice)) payloads.insert(to->x.fill.payload);
  for (const char* code :
       {"3f800001", "3f7fffff", "bf800000", "7f800000", "ff800000", "7fffffff", "00000000", "80000000",
        "7f7fffff", "00800000", "00000001", "007fffff", "3f880000", "3f87ffff"})
    EXPECT_TRUE(payloads.contains(code)) << code;
}

TEST(Data, ALiteralThatDoesNotFitIsLeftOut) {
  EXPECT_FALSE(data_fit(line("cast e4m3 1x1 f32 fill=literal:3f8000003f800000")));
  EXPECT_FALSE(data_fit(line("cast e4m3 1x1 bf16 fill=literal:3f800000@0.0")));
  EXPECT_FALSE(data_fit(line("gemm a=mxfp8 b=mxfp8 1x1x32 a.fill=literal:3f80@1.0")));
  Drawer drawer(
      "cast e4m3", 4096, [](const Problem&) { return true; }, 3, Aim::failures);
  const Draft from = draft_of(line("cast e4m3 4x4 f32 fill=literal:3f800000@3.3"));
  size_t kept = 0, left_out = 0;
  for (int i = 0; i < 200; ++i)
    if (const auto drawn = drawer.changed(from)) {
      EXPECT_TRUE(data_fit(drawn->problem)) << drawn->draft.text();
      (drawn->problem.x.fill.kind == FillKind::literal ? kept : left_out)++;
    }
  EXPECT_GT(kept, 20u);
  EXPECT_GT(left_out, 20u);
}

// The search against trying everything: all pairs of an op whose lines are few.
TEST(Space, HasEveryPairThatTryingEverythingFinds) {
  SpaceOptions options;
  options.only = "cast e8m0";
  options.jobs = 1;
  Space space = find_space(options);
  ASSERT_EQ(space.size(), 1u);
  const size_t found = space.begin()->second.valid.size();
  std::vector<Problem> all;
  for (const char* source : {"f32", "bf16", "f16", "e4m3", "e5m2", "e2m1"})
    for (const char* sizes :
         {"0x0",   "0x128", "1x1",    "7x16",  "16x32", "32x7",   "128x1",  "1x128",   "16x0",
          "0x1",   "7x0",   "32x0",   "0x7",   "0x16",  "0x32",   "1x7",    "1x16",    "1x32",
          "7x1",   "7x7",   "7x32",   "7x128", "16x1",  "16x7",   "16x16",  "16x128",  "32x1",
          "32x16", "32x32", "32x128", "128x0", "128x7", "128x16", "128x32", "128x128", "1x0"})
      for (const char* round : {"rne", "rz", "rp", "sr"})
        for (const char* fill : {"normal", "edges", "ties", "every_code", "outliers", "wide", "exact_sums",
                                 "zeros", "denormal", "nonfinite", "amax_edges", "negative_zeros"})
          for (const char* at : {"0,0", "3,5"})
            for (const char* overflow : {"sat", "nosat"})
              if (auto p = parse_line("cast e8m0 " + string(sizes) + " " + source + " round=" + round +
                                      " fill=" + fill + " at=" + at + " overflow=" + overflow))
                all.push_back(*p);
  ASSERT_GT(all.size(), 1000u);
  const Exercised exercised = exercise(space, all);
  EXPECT_EQ(space.begin()->second.valid.size(), found) << "the search missed a pair that a line has";
  EXPECT_EQ(exercised.begin()->second.size(), found)
      << "the search found a pair that trying everything does not have";
}

TEST(Space, TheLinesForWhatIsLeftOutCoverItAndAreFew) {
  SpaceOptions options;
  options.only = "swizzle nvfp4";
  options.jobs = 1;
  Space space = find_space(options);
  const std::vector<string> lines = lines_for(space, {}, options);
  std::vector<Problem> problems;
  for (const string& text : lines) problems.push_back(line(text));
  const GroupSpace& group = space.begin()->second;
  const size_t valid = group.valid.size();
  EXPECT_EQ(exercise(space, problems).begin()->second.size(), valid);
  EXPECT_LT(lines.size(), group.lines.size() / 2);  // those that the search met
  EXPECT_TRUE(lines_for(space, exercise(space, problems), options).empty());
  problems.erase(problems.begin());
  Space fresh = find_space(options);
  EXPECT_LT(exercise(fresh, problems).begin()->second.size(), valid) << "a line was not needed";
  EXPECT_EQ(find_space(options).begin()->second.lines, find_space(options).begin()->second.lines);
}

}  // namespace
}  // namespace assay::choices

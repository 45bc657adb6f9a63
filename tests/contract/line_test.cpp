// The line: parse and print are inverse, defaults are resolved in context, errors say where and what instead.
#include "contract/line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "contract/f32_text.h"
#include "contract/flavours.h"
#include "contract/recipes.h"

namespace assay {
namespace {

Problem parsed(std::string_view line) {
  auto p = parse_line(line);
  if (!p) ADD_FAILURE() << line << ": " << p.error().text();
  return p ? *p : Problem{};
}

std::string error_of(std::string_view line) {
  auto p = parse_line(line);
  return p ? "(no error)" : p.error().text();
}

// Recordings name the version of their line, and one that is not this number is refused.
TEST(Line, VersionIsThatOfTheRecordings) { EXPECT_EQ(kLineVersion, 1); }

TEST(Line, ShortLinePrintsWhatDiffersFromTheDefaults) {
  for (const char* line : {
           "quantize mxfp8 64x256 bf16",
           "quantize mxfp8 64x256 bf16 fill=ties seed=7",
           "quantize mxfp8 96x160 f32 dir=col element=e5m2 block=32x32 scales=gemm",
           "quantize mxfp8 96x160 f16 row.element=e5m2",
           "quantize mxfp8 96x160 f16 flavour=te arch=sm120",
           "quantize mxfp8 96x160 f16 flavour=te row.neg_zero=keep",
           "quantize fp8_current 0x256 f16 pow2=1 eps=1e-06",
           "quantize fp8_current/mxfp8 33x65 f16 col.block=32x32 row.pow2=1",
           "quantize fp8_delayed 1x1 f32 noop=1 scale=-0.5 prior_amax=inf",
           "cast e4m3 1x65536 bf16 overflow=nosat fill=every_code",
           "cast e8m0 1x65536 bf16 round=rz",
           "cast f32 1x256 e8m0",
           "dequantize mxfp8 32x64 bf16 dir=col out=f32 input=codes",
           "update fp8_delayed 16x6 f32 algo=most_recent rule=api margin=-2 reduction=1 element=e5m2",
           "swizzle mxfp8 200x160 e8m0 dir=col inverse=1",
           "scale_chain mxfp8 1x256 e8m0",
           "scale_chain fp8_current 1x256 f32 pow2=1",
           "quantize identity 3x5 f32 fill=literal:3f800000@0.1+80000000@2.4",
           "quantize mxfp8 32x32 bf16 seed=18446744073709551615 at=64,128",
           "gemm a=fp8_current b=fp8_current 256x512x384 sum=hopper_fp8_split",
           ("gemm a=mxfp8 b=nvfp4 33x0x16 op=NT sum=exact out=e4m3 alpha=-2 bias=f32 a.element=e5m2 b.rht=1 "
            "a.fill=wide b.fill=ties c.fill=edges seed=7"),
           ("gemm a=identity b=identity 16x8x24 f32 sum=hopper_tf32 out=f32 beta=1 a.seed=1 b.seed=2 "
            "c.seed=3 c.at=4,5"),
           "gemm a=identity b=fp8_block 16x8x24 op=NN a.source=f32 b.block=128x128",
           "gemm a=nvfp4 b=nvfp4 16x32x64 op=NN row_scaled=1 fill=wide",
           "quantize fp8_current 16x32 bf16 row_scaled=1",
           "gemm a=fp8_current b=mxfp8 16x32x64 a.row_scaled=1",
       })
    EXPECT_EQ(to_line(parsed(line)), line);
}

// Problems are built by hand too, where a member that nobody sets has its initial value.
TEST(Line, DefaultsAreThoseOfTheStructs) {
  const Result<Problem> quantize = parse_line("quantize fp8_delayed 4x4 bf16 dir=row");
  EXPECT_EQ(quantize->row->prior_amax, Quantizer{}.prior_amax);
  EXPECT_EQ(parse_line("quantize nvfp4 4x16 bf16 dir=row round=sr")->rng, Rng{});
  EXPECT_EQ(*parse_line("philox u32 1x4 u32")->as<Philox>(), Philox{});
  EXPECT_EQ(*parse_line("adam f32 1x1 f32")->as<Adam>(), Adam{});
  const Result<Problem> line = parse_line("attention fp8_current 4x4 bf16");
  const Attention &a = *line->as<Attention>(), none;
  EXPECT_EQ(a.window_left, none.window_left);
  EXPECT_EQ(a.window_right, none.window_right);
  EXPECT_EQ(a.dropout, none.dropout);
  EXPECT_EQ(a.softmax_scale, none.softmax_scale);
}

TEST(Line, OrderAndSpacingOfKeysDoNotMatter) {
  EXPECT_EQ(parsed("quantize  mxfp8 64x256 bf16\tseed=7   fill=ties dir=both"),
            parsed("quantize mxfp8 64x256 bf16 fill=ties seed=7"));
  EXPECT_EQ(parsed("quantize mxfp8 64x256 bf16 element=e5m2"),
            parsed("quantize mxfp8 64x256 bf16 row.element=e5m2 col.element=e5m2"));
  EXPECT_EQ(parsed("quantize mxfp8 64x256 bf16 element=e5m2 col.element=e4m3"),
            parsed("quantize mxfp8 64x256 bf16 row.element=e5m2"));
}

// The words of "mxfp8 mxfp4".
std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

TEST(Line, FlavoursAreSetsOfKeys) {
  for (const FlavourInfo& f : flavours()) {
    const std::string flavour = " flavour=" + std::string(f.name), keys = " " + std::string(f.keys);
    ASSERT_FALSE(words(f.formats).empty()) << f.name;
    for (const std::string& format : words(f.formats)) {
      for (const std::string& shape :
           {format + " 64x128 bf16", format + " 64x128 bf16 dir=row", format + " 64x128 bf16 dir=col"}) {
        const std::string line = "quantize " + shape + flavour;
        const Problem p = parsed(line);
        Problem written = parsed("quantize " + shape + keys);
        EXPECT_NE(written, p) << line;  // the flavour itself is said
        written.flavour = p.flavour;
        EXPECT_EQ(written, p) << line;
        EXPECT_EQ(parsed(to_canonical_line(p)), p) << line;
        EXPECT_EQ(to_line(p), line);  // nothing else is printed
      }
      Problem split = parsed("split " + format + " 64x128 bf16 groups=16,48" + flavour),
              split_written = parsed("split " + format + " 64x128 bf16 groups=16,48" + keys);
      split_written.flavour = split.flavour;
      EXPECT_EQ(split_written, split) << f.name;
    }
    for (const FormatInfo& format : kFormats) {
      const std::string line = "quantize " + std::string(format.name) + " 64x128 bf16" + flavour;
      if (f.is_of(format.id)) continue;
      EXPECT_EQ(error_of(line), "flavour=" + std::string(f.name) + " is of " + std::string(f.formats) +
                                    " (`assay flavours` lists those of each format)")
          << line;
    }
  }
}

TEST(Line, FlavoursOfPairsAndOfWrittenKeys) {
  const Problem pair = parsed("quantize mxfp8/fp8_block 64x128 bf16 flavour=ocp");  // of one of the two
  EXPECT_EQ(pair.row->numerics.mx_scale, MxScale::floor);
  EXPECT_EQ(pair.col->numerics, Numerics{});
  EXPECT_EQ(to_line(pair), "quantize mxfp8/fp8_block 64x128 bf16 flavour=ocp");
  const Problem both =
      parsed("quantize mxfp8/mxfp4 64x128 bf16 flavour=ocp col.mx_scale=even");  // a key that is written wins
  EXPECT_EQ(both.row->numerics.mx_scale, MxScale::floor);
  EXPECT_EQ(both.col->numerics.mx_scale, MxScale::even);
  EXPECT_EQ(both.col->numerics.mx_inf, MxInf::nan);
  EXPECT_EQ(to_line(both), "quantize mxfp8/mxfp4 64x128 bf16 flavour=ocp col.mx_scale=even");
  EXPECT_EQ(to_line(parsed("quantize mxfp8 64x128 bf16 flavour=ocp mx_scale=up")),
            "quantize mxfp8 64x128 bf16 flavour=ocp mx_scale=up");
  EXPECT_EQ(parsed("scale_chain mxfp8 8x8 f32 flavour=ocp").row->numerics.mx_scale, MxScale::floor);
  EXPECT_EQ(parsed("quantize fp8_block 64x128 bf16 flavour=deepgemm").row->eps,
            parsed("quantize fp8_block 64x128 bf16 eps=1e-4").row->eps);
  EXPECT_FALSE(parsed("quantize fp8_block 64x128 bf16 flavour=deepgemm").row->pow2);
}

TEST(Line, FlavourSetsTheNumericsThatTheLineLeavesOpen) {
  const Problem te = parsed("quantize mxfp8 64x256 bf16 flavour=te arch=sm120");
  EXPECT_EQ(te.row->numerics.neg_zero, NegZero::plus);
  EXPECT_EQ(te.row->numerics.nan_amax, NanAmax::ignore);
  EXPECT_EQ(te.col->numerics.nan_amax, NanAmax::propagate);
  EXPECT_EQ(parsed("quantize mxfp8 64x256 bf16 flavour=te noop=0").row->numerics.neg_zero, NegZero::keep);
  EXPECT_EQ(parsed("quantize mxfp8 64x256 bf16 flavour=te neg_zero=keep").row->numerics.neg_zero,
            NegZero::keep);
  EXPECT_EQ(to_canonical_line(te),
            "quantize mxfp8 64x256 bf16 dir=both flavour=te arch=sm120 dispatch=auto col_source=original "
            "noop=none element=e4m3 block=1x32 scales=compact scale_from=x neg_zero=plus "
            "row.nan_amax=ignore col.nan_amax=propagate element_ties=even element_overflow=saturate "
            "pre_round=none mx_scale=up mx_inf=max zero_amax=guarded nan_code=positive fill=normal seed=0 "
            "at=0,0");
}

// Keys of operands: bare for both, prefixed for one; what the quantizer of one side does not have does not
// apply to it.
TEST(Line, KeysOfAGemmsOperands) {
  EXPECT_EQ(parsed("gemm a=fp8_current b=fp8_current 256x512x384 op=TN sum=hopper_fp8_split out=bf16"),
            parsed("gemm a=fp8_current b=fp8_current 256x512x384 bf16 sum=hopper_fp8_split"));
  const Problem p =
      parsed("gemm a=mxfp8 b=fp8_block 3x5x7 f16 op=NN element=e5m2 b.eps=1 b.seed=9 seed=8 out=f32");
  const Gemm& g = *p.as<Gemm>();
  EXPECT_EQ(p.x.shape, (Shape{5, 3}));
  EXPECT_EQ(p.x.source, Encoding::f32);
  EXPECT_EQ(g.k, 7);
  EXPECT_EQ(g.a.quantizer.element, Encoding::e5m2);
  EXPECT_EQ(g.b.quantizer.element, Encoding::e5m2);
  EXPECT_EQ(g.b.quantizer.eps, 0x3F800000u);
  EXPECT_EQ(g.a.fill.seed, 8u);
  EXPECT_EQ(g.b.fill.seed, 9u);
  EXPECT_EQ(g.b.source, Encoding::f16);
  EXPECT_EQ(to_canonical_line(parsed("gemm a=mxfp8 b=identity 3x5x7")),
            "gemm a=mxfp8 b=identity 3x5x7 bf16 op=TN sum=f32_sequential out=bf16 alpha=1 beta=0 bias=none "
            "a.element=e4m3 a.block=1x32 a.neg_zero=keep a.nan_amax=ignore "
            "a.element_ties=even a.element_overflow=saturate a.pre_round=none a.mx_scale=up a.mx_inf=max "
            "a.zero_amax=guarded a.nan_code=positive fill=normal seed=0 at=0,0");
  EXPECT_EQ(error_of("gemm mxfp8 64x256 bf16"),
            "column 6: expected the format of an operand, a=<format>, found 'mxfp8' (a line is gemm "
            "a=<format> b=<format> <M>x<N>x<K> [<source>] key=value ...)");
  EXPECT_EQ(error_of("gemm a=mxfp8 b=mxfp9 4x4x4"),
            "column 14: unknown format 'mxfp9' (did you mean 'mxfp8'?)");
  EXPECT_EQ(error_of("gemm a=mxfp8 b=mxfp8 64x256 bf16"),
            "column 22: expected sizes <M>x<N>x<K>, found '64x256' (for example 256x512x384)");
  EXPECT_EQ(error_of("gemm a=mxfp8 b=mxfp8 4x4x4 b16"),
            "column 28: source: unknown value 'b16' (did you mean 'bf16'?)");
  EXPECT_EQ(error_of("gemm a=mxfp8 b=mxfp8 4x4x4 mxfp8 a.source=f32 b.source=f16"),
            "column 28: source: unknown value 'mxfp8' (one of f32, bf16, f16)");
  EXPECT_EQ(error_of("gemm a=mxfp8 b=mxfp8 4x4x4 a.sum=exact"),
            "column 28: 'sum' is not a key of one operand (write it without a. or b. or c.)");
  EXPECT_NE(error_of("gemm a=mxfp8 b=fp8_current 4x4x4 a.pow2=1")
                .find("column 34: key 'a.pow2' does not apply here (pow2 is: floor the scale to a power of "
                      "two; keys of this gemm: op, sum,"),
            std::string::npos);
  EXPECT_NE(error_of("gemm a=mxfp8 b=mxfp8 4x4x4 c.seed=1").find("key 'c.seed' does not apply here"),
            std::string::npos);
  EXPECT_EQ(error_of("gemm a=mxfp8 b=nvfp4 4x4x4 a.element=e4m3 b.block=1x32"),
            "column 51: block: unknown block '1x32' (did you mean '1x16'?)");
  EXPECT_EQ(error_of("gemm a=mxfp8 b=nvfp4 8x8x8 op=NT b.rht=1"),
            "b: rht=1 needs a multiple of 16 rows, found 8");
}

// role= and recipe= are read as the defaults of keys, never printed: what is written wins, and a direction
// takes what its own format's recipe says.
TEST(Line, RolesAndRecipesStandForKeys) {
  struct Row {
    const char *line, *means;
  };
  for (const Row& r : {
           Row{"quantize nvfp4 64x256 bf16 role=linear/grad_output recipe=nvfp4 rng=7,0,0 fill=wide",
               "quantize nvfp4 64x256 bf16 round=sr col.rht=1 fill=wide rng=7,0,0"},
           Row{"quantize nvfp4 64x256 bf16 role=linear/input/decoder.fc1",
               "quantize nvfp4 64x256 bf16 col.rht=1"},
           Row{"quantize nvfp4 64x256 bf16 dir=row role=linear/input recipe=nvfp4",
               "quantize nvfp4 64x256 bf16 dir=row"},
           // rows alone of a tensor that is rotated come from the rotating kernel where it fits
           Row{"quantize nvfp4 64x256 bf16 dir=row role=linear/grad_output recipe=nvfp4 flavour=te",
               "quantize nvfp4 64x256 bf16 dir=row flavour=te dispatch=rhtrc round=sr"},
           Row{"quantize nvfp4 64x192 bf16 dir=row role=linear/input recipe=nvfp4 flavour=te",
               "quantize nvfp4 64x192 bf16 dir=row flavour=te"},
           Row{"quantize nvfp4 64x256 bf16 dir=row role=linear/weight recipe=nvfp4 flavour=te",
               "quantize nvfp4 64x256 bf16 dir=row flavour=te block=16x16"},
           Row{"quantize nvfp4 64x256 bf16 dir=col role=linear/input recipe=nvfp4",
               "quantize nvfp4 64x256 bf16 dir=col rht=1"},
           Row{"quantize nvfp4 64x256 bf16 recipe=nvfp4 role=grouped_linear/weight",
               "quantize nvfp4 64x256 bf16 block=16x16"},
           Row{"quantize nvfp4 64x256 bf16 role=linear/weight block=1x16", "quantize nvfp4 64x256 bf16"},
           Row{"quantize nvfp4 64x256 bf16 role=linear/weight col.block=1x16",
               "quantize nvfp4 64x256 bf16 row.block=16x16"},
           Row{"quantize nvfp4 64x256 bf16 role=linear/grad_output col.rht=0 col.round=rne",
               "quantize nvfp4 64x256 bf16 row.round=sr"},
           Row{"quantize mxfp8/nvfp4 64x256 bf16 col_source=row_dequantized role=linear/weight",
               "quantize mxfp8/nvfp4 64x256 bf16 col_source=row_dequantized col.block=16x16"},
           Row{"quantize identity/fp8_current 64x256 bf16 role=linear/grad_output",
               "quantize identity/fp8_current 64x256 bf16 col.element=e5m2"},
           Row{"quantize fp8_current 64x256 f32 role=dpa/do recipe=current",
               "quantize fp8_current 64x256 f32 element=e5m2"},
           Row{"quantize fp8_delayed 64x256 bf16 role=dpa/s recipe=delayed scale=2",
               "quantize fp8_delayed 64x256 bf16 scale=2"},
           Row{"quantize fp8_block 64x256 bf16 role=linear/weight recipe=block eps=1",
               "quantize fp8_block 64x256 bf16 block=128x128 eps=1"},
           Row{"split mxfp8 64x64 bf16 role=grouped_linear/grad_output recipe=mxfp8 groups=16,48",
               "split mxfp8 64x64 bf16 groups=16,48"},
           Row{"split nvfp4 64x64 bf16 role=grouped_linear/input groups=16,48",
               "split nvfp4 64x64 bf16 groups=16,48 col.rht=1"},
       }) {
    EXPECT_EQ(to_line(parsed(r.line)), r.means);
    EXPECT_EQ(parsed(r.line), parsed(r.means));
    EXPECT_EQ(to_canonical_line(parsed(r.line)), to_canonical_line(parsed(r.means)));
  }
}

TEST(Line, RolesAndRecipesThatSayNothingAreErrors) {
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 role=liner/input"),
            "column 30: role: unknown module 'liner' (did you mean 'linear'?)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 role=linear/wieght"),
            "column 30: role: unknown tensor of linear 'wieght' (did you mean 'weight'?)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 role=linear/qkv"),
            "column 30: role: unknown tensor of linear 'qkv' (one of input, weight, grad_output)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 role=linear"),
            "column 30: role: expected a role <module>/<tensor>[/<name>], found 'linear' "
            "(role=linear/grad_output)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 recipe=mxfp8"),
            "column 25: recipe= needs the role of the tensor (role=linear/input)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 role=linear/input recipe=mxfp9"),
            "column 50: recipe: unknown recipe 'mxfp9' (did you mean 'mxfp8'?)");
  EXPECT_EQ(
      error_of("quantize mxfp8/nvfp4 8x8 bf16 role=linear/input recipe=mxfp8"),
      "column 56: recipe=mxfp8 is of mxfp8, the line's format is nvfp4 (write mxfp8, or leave recipe= out)");
  EXPECT_EQ(error_of("quantize nvfp4 8x8 bf16 role=dpa/qkv recipe=nvfp4"),
            "column 30: no recipe quantizes dpa/qkv by nvfp4 (leave role= out, or name another format)");
  EXPECT_EQ(
      error_of("quantize identity 8x8 bf16 role=linear/input"),
      "column 33: no recipe quantizes linear/input by identity (leave role= out, or name another format)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 role=linear/input role=linear/weight"),
            "column 43: key 'role' is given twice");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 row.role=linear/input"),
            "column 25: key 'row.role' does not apply here (it is for quantize and split, without a prefix)");
  EXPECT_EQ(error_of("dequantize mxfp8 8x8 bf16 role=linear/input"),
            "column 27: key 'role' does not apply here (it is for quantize and split, without a prefix)");
  EXPECT_EQ(error_of("quantize mxfp8 8x8 bf16 roel=linear/input"),
            "column 25: unknown key 'roel' (did you mean 'role'?)");
  EXPECT_EQ(error_of("quantize auto 8x8 bf16"),
            "column 10: 'auto' is the format of a line with factory= (quantize auto 64x256 bf16 "
            "role=linear/input factory=mxfp8_factory)");
  EXPECT_NE(error_of("quantize mxfp8 8x8 bf16 role=linear/input factory=mxfp8_factory")
                .find("column 43: a line with factory= cannot be read here"),
            std::string::npos);
  EXPECT_EQ(error_of("quantize nvfp4 8x16 bf16 role=linear/input"),
            "rht=1 needs a multiple of 16 rows, found 8");
}

// key_table.cpp does not compile with two keys of one name; the keys of roles are another table.
TEST(Line, NoOpHasTwoKeysOfOneName) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const std::span<const KeyInfo> table : {line_keys(), role_keys()})
    for (const KeyInfo& k : table)
      for (std::string_view op : k.ops) EXPECT_TRUE(seen.emplace(op, k.name).second) << op << " " << k.name;
}

TEST(Line, ErrorsNameTheColumnAndTheNearestWord) {
  // A value that every place replaces by its own is still a value.
  for (const char* places : {"row.element=e5m2 dir=row", "row.element=e5m2 col.element=e4m3"})
    EXPECT_EQ(error_of(std::string("quantize mxfp8 64x64 bf16 element=zzz ") + places).substr(0, 42),
              "column 35: element: unknown value 'zzz' (o");
  EXPECT_EQ(error_of("quantize mxfp8 64x64 bf16 element=e2m1 row.element=e5m2 col.element=e4m3"),
            "column 35: element: unknown value 'e2m1' (did you mean 'e4m3'?)");
  // It need not be one of every place.
  EXPECT_EQ(error_of("quantize mxfp6/mxfp8 64x64 bf16 element=e5m2 row.element=e2m3 col.element=e4m3"),
            "(no error)");
  EXPECT_EQ(error_of("quantise mxfp8 64x256 bf16"),
            "column 1: unknown op 'quantise' (did you mean 'quantize'?)");
  EXPECT_EQ(error_of("quantize mxfp9 64x256 bf16"),
            "column 10: unknown format 'mxfp9' (did you mean 'mxfp8'?)");
  EXPECT_EQ(error_of("quantize mxfp8 64*256 bf16"),
            "column 16: expected a shape <rows>x<cols>, found '64*256' (for example 64x256)");
  EXPECT_EQ(error_of("quantize mxfp8 64x256 bf16 filll=ties"),
            "column 28: unknown key 'filll' (did you mean 'fill'?)");
  EXPECT_EQ(error_of("quantize mxfp8 64x256 bf16 fill=tie"),
            "column 33: fill: unknown fill 'tie' (did you mean 'ties'?)");
  EXPECT_EQ(error_of("quantize mxfp8 64x256 bf16 seed=7 seed=8"), "column 35: key 'seed' is given twice");
  EXPECT_EQ(error_of("quantize mxfp8 64x256 bf16 row.seed=7"),
            "column 28: 'seed' is not a key of one direction (write it without row. or col.)");
  EXPECT_NE(error_of("quantize mxfp8 64x256 bf16 pow2=1")
                .find("column 28: key 'pow2' does not apply here (pow2 is: floor the scale to a power of "
                      "two; keys of this quantize: dir,"),
            std::string::npos);
  // What the key is for says what is missing, and it is not among the keys that apply.
  const std::string rng = error_of("split mxfp8 192x256 bf16 groups=0,31,33,128 rng=7,3,0");
  EXPECT_NE(rng.find("key 'rng' does not apply here (rng is: source of the random bytes of round=sr"),
            std::string::npos)
      << rng;
  EXPECT_EQ(rng.find(", rng"), std::string::npos) << rng;
  EXPECT_NE(error_of("quantize mxfp8 64x256 bf16 dir=row col.element=e5m2")
                .find("key 'col.element' does not apply here"),
            std::string::npos);
  EXPECT_EQ(error_of("quantize mxfp8").substr(0, 60),
            "column 15: expected a shape <rows>x<cols>, found the end of ");
  EXPECT_EQ(error_of(""),
            "column 1: expected an op, found the end of the line (a line is <op> <format> <rows>x<cols> "
            "<source> key=value ...)");
}

// Random lines from the key table itself: a key that prints wrongly or depends on a later one is found here.
TEST(Line, ParseOfPrintIsTheSameProblem) {
  std::mt19937_64 rng(1);
  auto pick = [&](auto&& list) { return list[rng() % std::size(list)]; };
  constexpr std::string_view kHeads[] = {"quantize {f} {s} {t}",
                                         "quantize {f}/{f} {s} {t}",
                                         "dequantize {f} {s} {t}",
                                         "update fp8_delayed {s} f32",
                                         "swizzle mxfp8 {s} e8m0",
                                         "scale_chain mxfp8 {s} e8m0",
                                         "scale_chain fp8_current {s} f32",
                                         "cast e4m3 {s} {t}",
                                         "cast e8m0 {s} {t}",
                                         "cast e2m1 {s} f32",
                                         "split {f} {s} {t}",
                                         "split {f}/{f} 64x64 {t} groups=16,0,48",
                                         "split {f} 1x240 {t} vary=both groups=4x8,13x16",
                                         "split {f} 16x64 {t} vary=last groups=32,32",
                                         "quantize nvfp4 {s} bf16",
                                         "quantize nvfp4/{f} {s} bf16",
                                         "dequantize nvfp4 {s} {t}",
                                         "swizzle nvfp4 {s} e4m3",
                                         "swizzle fp8_block {s} f32",
                                         "scale_chain nvfp4 7x2 f32",
                                         "scale_chain fp8_block {s} f32",
                                         "hadamard nvfp4 {s} bf16",
                                         "philox u32 7x4 u32",
                                         "gemm a={f} b={f} 33x65x32 {t}",
                                         "gemm a={f} b={f} 1x0x16 op=NN",
                                         "gemm a=nvfp4 b={f} 16x16x48 op=NT",
                                         "gemm a=fp8_current b=fp8_delayed 8x8x8 sum=hopper_fp8_split",
                                         "gemm a=identity b=identity 4x4x8 {t} bias=f32 beta=1"};
  constexpr std::string_view kShapes[] = {"1x1", "64x64", "33x65", "128x16", "7x0"},
                             kSources[] = {"f32", "bf16", "f16"};
  int valid = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string line(pick(kHeads));
    for (size_t at; (at = line.find('{')) != std::string::npos;) {
      const char what = line[at + 1];
      line.replace(at, 3,
                   std::string(what == 'f'   ? kFormats[rng() % kFormats.size()].name
                               : what == 's' ? pick(kShapes)
                                             : pick(kSources)));
    }
    for (int k = static_cast<int>(rng() % 5); k > 0; --k) {
      const KeyInfo& key = line_keys()[rng() % line_keys().size()];
      std::string value;
      if (key.values.find('|') != std::string_view::npos) {
        std::vector<std::string> words;
        for (size_t at = 0; at <= key.values.size();) {
          const size_t end = std::min(key.values.find('|', at), key.values.size());
          words.emplace_back(key.values.substr(at, end - at));
          at = end + 1;
        }
        value = pick(words);
      }
      if (value.empty() || value == "float")
        value = pick(std::array<const char*, 4>{"1", "0.1", "inf", "0x00000001"});
      if (value.starts_with("literal")) value = "literal:3f80";
      if (key.name == "at") value = "3,4";
      if (key.name == "rng") value = "7,18446744073709551615,0";
      if (key.name == "sign_mask") value = "0x0F01";
      if (key.name == "round" && line.find("nvfp4") != std::string::npos) value = "sr";
      if (rng() % 8 == 0)
        line += pick(std::array<const char*, 3>{" role=linear/grad_output", " role=linear/weight/fc1",
                                                " role=dpa/do"});
      const char* prefix = line.starts_with("gemm") ? pick(std::array<const char*, 4>{"", "a.", "b.", "c."})
                           : key.directional        ? pick(std::array<const char*, 3>{"", "row.", "col."})
                                                    : "";
      line += std::string(" ") + prefix + std::string(key.name) + "=" + value;
    }
    const auto p = parse_line(line);
    if (!p) continue;
    ++valid;
    for (const std::string& printed : {to_line(*p), to_canonical_line(*p)}) {
      const auto again = parse_line(printed);
      ASSERT_TRUE(again) << line << "\n" << printed << "\n" << again.error().text();
      ASSERT_TRUE(*again == *p) << line << "\n" << printed;
      ASSERT_EQ(to_line(*again), to_line(*p));
    }
  }
  EXPECT_GT(valid, 3000);  // otherwise the generator has stopped making valid lines
}

TEST(Line, SweepsExpandLeftmostSlowest) {
  const auto lines = expand_sweep("cast {e4m3,e5m2} 1x{1..3}");
  ASSERT_TRUE(lines);
  EXPECT_EQ(*lines, (std::vector<std::string>{"cast e4m3 1x1", "cast e4m3 1x2", "cast e4m3 1x3",
                                              "cast e5m2 1x1", "cast e5m2 1x2", "cast e5m2 1x3"}));
  EXPECT_EQ(expand_sweep("a")->size(), 1u);
  EXPECT_EQ(*count_sweep("cast {e4m3,e5m2} 1x{1..3}{,}"), 12u);
  EXPECT_EQ(*expand_sweep("{a,}{-1..0} b{c}"),
            (std::vector<std::string>{"a-1 bc", "a0 bc", "-1 bc", "0 bc"}));
  EXPECT_EQ(*expand_sweep(""), (std::vector<std::string>{""}));
  for (const char* bad :
       {"a{", "a}", "{a{b}}", "{3..1}", "{0..9999999999}", "{0..999}{0..999}{0..999}", "{a..b}"})
    EXPECT_FALSE(expand_sweep(bad) || count_sweep(bad)) << bad;
  // 32 MiB are reached by lines that are long, or whose end is.
  for (const std::string& bad : {std::string(500, 'a') + "{0..99999}", "{0..99999}" + std::string(500, 'a'),
                                 "{0..99}{0..999}" + std::string(500, 'a')})
    EXPECT_FALSE(expand_sweep(bad)) << bad;
}

TEST(F32Text, ReadsAndPrintsBits) {
  EXPECT_EQ(*parse_f32("1"), 0x3F800000u);
  EXPECT_EQ(*parse_f32("-0"), 0x80000000u);
  EXPECT_EQ(*parse_f32("nan"), 0x7FFFFFFFu);
  EXPECT_EQ(*parse_f32("0xFFC00001"), 0xFFC00001u);
  for (const char* bad : {"", "1.0.0", "0x1", "0x123456789", "abc", "1e99", "1 "})
    EXPECT_FALSE(parse_f32(bad)) << bad;
  std::mt19937 rng(2);
  for (int i = 0; i < 100000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(rng());
    ASSERT_EQ(*parse_f32(f32_text(bits)), bits);
  }
}

// N20.9. Formats with blocks leave S and dP as they are.
TEST(Line, FormatsOfAnAttentionsSlots) {
  using F = FormatId;
  const auto formats = [](const char* line) {
    std::vector<F> out;
    const auto p = parse_line(line);
    if (p)
      for (AttentionSlot slot : kAttentionSlots) out.push_back(p->as<Attention>()->slot(slot).format);
    return out;
  };
  EXPECT_EQ(formats("attention fp8_current/fp8_delayed 8x32 bf16"),
            (std::vector{F::fp8_current, F::fp8_delayed, F::fp8_current, F::fp8_current, F::fp8_delayed,
                         F::fp8_current}));
  EXPECT_EQ(formats("attention mxfp8 128x64 bf16"),
            (std::vector{F::mxfp8, F::identity, F::mxfp8, F::mxfp8, F::identity, F::mxfp8}));
}

TEST(Line, AutoWithoutAFactoryIsNamedWhereItStands) {
  const auto p = parse_line("quantize auto 4x4 bf16");
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().column, 10u);
}

TEST(Line, AKeyNamesItsOps) {
  const auto ops = [](std::string_view name) {
    for (const KeyInfo& key : line_keys())
      if (key.name == name) return key.ops;
    return KeyInfo{}.ops;
  };
  EXPECT_EQ(ops("groups"), (std::vector<std::string_view>{"split"}));
  EXPECT_EQ(ops("seed").size(), std::size(kOps));
  for (const KeyInfo& key : line_keys()) EXPECT_FALSE(key.ops.empty()) << key.name;
}

TEST(Line, KeysOfRolesTakeNoDirection) {
  ASSERT_EQ(role_keys().size(), 3u);
  for (const KeyInfo& key : role_keys()) {
    EXPECT_FALSE(key.directional) << key.name;
    EXPECT_NE(key.values.find_first_of("<|"), std::string_view::npos) << key.name << ": " << key.values;
    EXPECT_EQ(key.ops, (std::vector<std::string_view>{"quantize", "split"})) << key.name;
  }
}

TEST(Line, HelpGivesTheBoundsOfAnInteger) {
  const auto values = [](std::string_view name) {
    for (const KeyInfo& key : line_keys())
      if (key.name == name) return key.values;
    return std::string_view{};
  };
  EXPECT_EQ(values("rounds"), "1..16");
  EXPECT_EQ(values("margin"), "-126..126");
  EXPECT_EQ(values("capacity"), "0..2^31");
  EXPECT_EQ(values("step"), "1..2^31-1");
  EXPECT_EQ(values("seed"), "0..2^64-1");
}

TEST(Line, EveryNameOfAFlavourIsRead) {
  size_t read = 0;
  for (const FlavourName& name : flavour_names())
    for (const FormatInfo& format : kFormats)
      if (name.is_of(static_cast<FormatId>(&format - std::begin(kFormats)))) {
        const auto p = parse_line("quantize " + std::string(format.name) +
                                  " 32x32 f32 dir=row flavour=" + std::string(name.name));
        ASSERT_TRUE(p) << name.name << ": " << p.error().text();
        EXPECT_EQ(p->flavour, name.flavour) << name.name;
        ++read;
      }
  EXPECT_GE(read, flavour_names().size());
}

// Two lines of half the limit each; one byte more is too much.
TEST(Line, ASweepHasALimitOfBytes) {
  const std::string line(kMaxSweepBytes / 2 - 1, 'x');
  const auto most = expand_sweep(line + "{a,b}");
  ASSERT_TRUE(most) << most.error().text();
  EXPECT_EQ(most->size(), 2u);
  EXPECT_FALSE(expand_sweep(line + "{a,bc}"));
}

}  // namespace
}  // namespace assay

// Every kernel of fixtures/triton has a verdict: equal to the reference or to a named flavour, or parted from
// it in a way that is stated here and in docs/triton.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/compare/subjects/ptx_fixtures.h"

namespace assay {
namespace {

using namespace ptx_fixtures;

TEST(TritonKernels, AreTheReferenceOrANamedFlavour) {
  for (const EqualKernel& k : kEqual) {
    const auto subject = load(fixture(std::string(k.name) + ".json"));
    for (const std::string& fill : words_of(k.fills)) {
      const std::string line = std::string(k.line) + " fill=" + fill;
      EXPECT_EQ(difference(*subject, line), "") << k.name << ": " << line;
      // Another order finds races and values that nobody wrote.
      Environment env;
      env.order = 3;
      env.poison = 0x5A;
      EXPECT_EQ(difference(*subject, line, env), "") << k.name << ": " << line;
    }
  }
}

// What a kernel with bulk copies forgets is named, whatever bytes it gives.
TEST(TritonKernels, ABulkCopyWithoutItsFenceOrItsWaitIsNamed) {
  const struct {
    const char *name, *from, *to;
    std::vector<const char*> words;
  } kBroken[] = {
      {"nvcc_mxfp8_tma",
       "fence.proxy.async.shared::cta;\n\t// end inline asm\n\t.loc",
       "// end inline asm\n\t.loc",
       {"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group reads a byte that thread",
        "no fence.proxy.async stands between the two"}},
      {"nvcc_mxfp8_tma", "cp.async.bulk.wait_group.read 1;", "", {"nobody has waited for that copy"}},
      {"nvcc_mxfp8_tma",
       "selp.u32 %r56, 1, 0, p;",
       "selp.u32 %r56, 1, 1, p;",
       {"reads a byte that thread 0 writes", "nobody has waited for that copy"}},
      {"nvcc_mxfp8_ring",
       "selp.u32 %r97, 1, 0, p;",
       "selp.u32 %r97, 1, 1, p;",
       {"mbarrier.arrive.expect_tx.shared.b64 arrives 1 times at", "where 1 of 1 arrivals have come"}},
      {"nvcc_mxfp8_ring",
       "mbarrier.arrive.shared.b64 _, [%r64];",
       "",
       {"deadlock", "at the mbarrier at shared offset", "where 0 of 128 arrivals have come"}},
      {"nvcc_mxfp8_ring",
       "_, [%r104], %r103;",
       "_, [%r104], 1024;",
       {"deadlock", "bytes of copies are missing"}},
  };
  for (const auto& b : kBroken) {
    Copy copy(b.name);
    copy.change_text(b.from, b.to);
    const auto subject = make_ptx_kernel_subject(copy.write());
    ASSERT_TRUE(subject) << b.from << ": " << subject.error().text();
    Environment env;
    env.order = 3;
    const std::string line = std::string(b.name).ends_with("ring") ? "3x1440" : "45x224";
    const std::string error = difference(**subject, "quantize mxfp8 " + line + " bf16 dir=row", env);
    for (const char* w : b.words)
      EXPECT_NE(error.find(w), std::string::npos) << b.from << ": " << w << " is not in: " << error;
  }
}

TEST(TritonKernels, TensorMapsAreCheckedAndMayHaveOtherSizes) {
  const std::string line = "quantize mxfp8 45x224 bf16 dir=row";
  const auto with = [&](const std::string& map) {
    Copy copy("nvcc_mxfp8_tma");
    copy.change(copy.json, "tensormap:x,box=32x64", map);
    const auto subject = make_ptx_kernel_subject(copy.write());
    return subject ? difference(**subject, line) : subject.error().text();
  };
  EXPECT_EQ(with("tensormap:x, box=32x(cols-160), dims=(rows)x224"), "");
  // A tensor of fewer columns ends in zeros: some codes and scales are 0.
  EXPECT_NE(with("tensormap:x,box=32x64,dims=(rows)x192").find("bytes"), std::string::npos);
  const std::pair<const char*, const char*> kWrong[] = {
      {"tensormap:x", "needs its box: tensormap:PLANE,box=ROWSxCOLUMNS"},
      {"tensormap:x,box=32", "names 2 coordinates, and its tensor map has 1"},
      {"tensormap:x,box=1x32x64", "its box has 3 sizes, and the tensor 2"},
      {"tensormap:x,box=32x512", "there may be 1 to 256"},
      {"tensormap:x,box=32x3", "rows are multiples of 16 bytes, not 6"},
      {"tensormap:x,box=32x64,swizzle=64", "that swizzles by 64 bytes has a box with rows of 128 bytes"},
      {"tensormap:x,box=32x64,fill=nan", "'fill=nan' is none of box=, dims=, swizzle=, atom=, bytes="},
      {"tensormap:y,box=32x64", "the line has no plane y"},
      {"u64:4", "is a struct of 128 bytes, which \"bytes:\" or \"zeros\" can give, or \"tensormap:\""},
      {"tensormap:x,box=32x64,swizzle=128", "row.scale_inv"},  // the kernel does not undo it
      {"tensormap:x,box=16x64", "deadlock"},
      {"tensormap:x,box=32x64,atom=32", "not by 0 bytes atoms of 32"},
      {"tensormap:scratch.t,box=32x64", "needs the size of its memory"},
      {"tensormap:scratch.t:rows*cols*2,box=32x64,bytes=2", "needs dims= and bytes="},
      {"tensormap:scratch.t:rows*cols*2,box=32x64,dims=(rows)x(cols),bytes=2",
       "row.scale_inv"},  // it holds zeros
      {"tensormap:scratch.t:rows*cols,box=32x64,dims=(rows)x(cols),bytes=2", "'scratch.t'"},
      {"bytes:00", "takes 128 bytes, not 1"}};
  for (const auto& [map, words] : kWrong)
    EXPECT_NE(with(map).find(words), std::string::npos) << map << ": " << with(map);
  // Behind a pointer in global memory the map is the same, and a zeroed struct is none.
  EXPECT_NE(with("zeros").find("is given an address of no tensor map"), std::string::npos) << with("zeros");
}

TEST(TritonKernels, EveryFileHasAVerdict) {
  // Those of ptx_kernel_test.cpp, and those that are never equal.
  std::set<std::string> judged = {"mxfp8_rows_sm90", "mxfp8_rows_sm100", "mxfp8_rows_wide", "fp8_blocks",
                                  "fp8_tokens",      "fp8_blocks_exact", "wgmma_fp8_split"};
  for (const EqualKernel& k : kEqual) judged.insert(k.name);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("")))
    if (entry.path().extension() == ".json") {
      ++files;
      EXPECT_TRUE(judged.contains(entry.path().stem().string())) << entry.path().filename();
    }
  EXPECT_EQ(files, judged.size());
  EXPECT_GE(files, 40u);
}

Served served_on(const std::string& name, const std::string& line) {
  Served served;
  difference(*load(fixture(name + ".json")), line, {}, &served);
  return served;
}

// floor(log2(amax)) is the exponent of the amax except just below a power of two, where the logarithm rounds
// up to the whole number: near 1 logarithms lie close enough, near -32 they do not. bf16 has no such amax.
TEST(TritonKernels, ALogarithmLosesTheBinadeJustBelowAPowerOfTwo) {
  const auto subject = load(fixture("mxfp8_log2_f32.json"));
  const std::string line = "quantize mxfp8 1x32 f32 dir=row flavour=ocp fill=literal:";
  EXPECT_EQ(difference(*subject, line + "40000000@0.3"), "");
  EXPECT_EQ(difference(*subject, line + "3fffffff@0.3"), "");
  EXPECT_EQ(difference(*subject, line + "2f7ffff0@0.3"), "row.scale_inv: 1 of 512 bytes");
}

// Triton adds partial sums of FP8 before it waits for the products, and ptxas puts a wait there. As if it
// stood there the sums are right; what the text says is named.
TEST(TritonKernels, PartialSumsThatAreAddedBeforeTheWaitAreNamed) {
  const auto subject = load(fixture("wgmma_fp8_split.json"));
  for (const std::string fill : {"wide", "normal"}) {
    const std::string line =
        "gemm a=fp8_current b=fp8_current 70x80x272 bf16 sum=hopper_fp8_split out=f32 fill=" + fill;
    EXPECT_EQ(difference(*subject, line), "");
    Environment env;
    env.order = 3;
    const std::string error = difference(*subject, line, env);
    EXPECT_NE(error.find("add.f32 reads a register of the product at PTX line"), std::string::npos) << error;
    EXPECT_NE(error.find("for which no wgmma.wait_group has waited"), std::string::npos) << error;
    Copy late("wgmma_fp8_split");
    late.change(late.json, "\"at_once\"", "\"late\"");
    EXPECT_NE(difference(*load(late.write()), line).find("d: "), std::string::npos);
  }
  Copy wrong("wgmma_fp8_split");
  wrong.change(wrong.json, "\"at_once\"", "\"soon\"");
  EXPECT_NE(wrong.error().find("\"products\" must be \"late\" or \"at_once\", found soon"), std::string::npos)
      << wrong.error();
}

TEST(TritonKernels, WithoutALeastAmaxAZeroBlockIsNotANumber) {
  const auto subject = load(fixture("act_quant.json"));
  const std::string line = "quantize fp8_block 3x256 bf16 dir=row flavour=deepseek.v3 fill=";
  EXPECT_EQ(difference(*subject, line + "wide"), "");
  const Problem p = parsed(line + "zeros");
  const auto reference = make_reference_subject();
  const auto inputs = make_inputs(p, *reference);
  ASSERT_TRUE(inputs);
  const Planes got = run(*subject, p, *inputs);
  for (const std::byte code : got[1]) EXPECT_EQ(code, std::byte{0x7F});  // 0 / 0
  for (size_t n = 0; n < 2 * 4; ++n) EXPECT_EQ(got[0][n], std::byte{0}) << n;
}

// Adding all ones of the fraction rounds a subnormal step up to 2^-126; the reference has 2^-127 and takes
// every least block to the code 00.
TEST(TritonKernels, AnIntegerRoundingOfTheStepHasNoLeastScale) {
  const auto subject = load(fixture("mxfp4_bits.json"));
  const std::string line = "quantize mxfp4 3x96 bf16 dir=row flavour=triton.mxfp4 fill=";
  EXPECT_EQ(difference(*subject, line + "literal:0080@0.0"), "row.scale_inv: 1 of 512 bytes");
  EXPECT_EQ(difference(*subject, line + "literal:0200@0.0"), "");
}

TEST(TritonKernels, WhatIsNotPinnedIsNamed) {
  EXPECT_NE(served_on("act_quant", "quantize fp8_block 3x256 bf16 dir=row flavour=vllm.group")
                .by.find("div.full.f32"),
            std::string::npos);
  EXPECT_NE(served_on("rmsnorm_fp8", "quantize fp8_current 3x256 bf16 dir=row row_scaled=1")
                .by.find("rsqrt.approx"),
            std::string::npos);
  EXPECT_EQ(served_on("nvfp4_rows", "quantize nvfp4 16x64 bf16 dir=row").by.find("not pinned"),
            std::string::npos);
}

// A fused kernel's codes are judged by the tensor that it makes, whose own bits nobody vouches for.
TEST(TritonKernels, AFusedKernelIsJudgedByTheTensorThatItMakes) {
  const auto subject = load(fixture("rmsnorm_fp8.json"));
  const Problem p = parsed("quantize fp8_current 5x256 bf16 dir=row row_scaled=1");
  const auto plain = make_reference_subject(), behind = reference_behind(make_reference_subject(), *subject);
  const auto raw = make_inputs(p, *plain), made = make_inputs(p, *behind);
  ASSERT_TRUE(raw && made);
  EXPECT_NE((*raw)[0].bytes, (*made)[0].bytes);
  EXPECT_EQ(run(*subject, p, *made), run(*behind, p, *made));
  // Given another x than it makes, it says so.
  try {
    run(*subject, p, *raw);
    FAIL() << "ran";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("the x that the kernel made of its raw input differs"),
              std::string::npos)
        << e.what();
  }
}

TEST(TritonKernels, ARawInputNeedsAnXThatIsMadeOfIt) {
  Copy copy("rmsnorm_fp8");
  copy.change(copy.json, "\"x\"", "\"poison:rows*cols*2\"");
  EXPECT_NE(copy.error().find("a launch takes \"raw\", so one must be given \"x\""), std::string::npos)
      << copy.error();
  Copy unnamed("rmsnorm_fp8");
  unnamed.change(unnamed.json, "drawn.gamma:", "drawn:");
  EXPECT_NE(unnamed.error().find("has an unknown kind"), std::string::npos) << unnamed.error();
}

TEST(TritonKernels, ALaunchThatNamesNoTextIsRefused) {
  Copy copy("fp8_split_k");
  copy.change(copy.json, "\"ptx\": \"fp8_split_k.tensor_scale.ptx\"", "\"ptx\": \"\"");
  EXPECT_NE(copy.error().find("\"ptx\" must name the file of PTX text"), std::string::npos) << copy.error();
}

}  // namespace
}  // namespace assay

// The second set of planted bugs and those after it: explain names them on lines that show them (README.md),
// but for racing_amax, whose bytes differ from run to run.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "compare/commands/explain.h"
#include "compare/commands/hunt/cause.h"
#include "compare/subjects/plugin.h"
#include "compare/subjects/ptx_kernel.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/compare/ended.h"
#include "tests/fixtures/scratch.h"
#include "tests/source_path.h"

namespace assay {
namespace {

struct Slip {
  const char *name, *line, *cause;
  bool ptx = false;
};
void PrintTo(const Slip& slip, std::ostream* out) { *out << slip.name; }

const Slip kSlips[] = {
    {"subnormal_scale", "quantize mxfp8 4x48 bf16 dir=col fill=edges", "scale.at_least_one_code"},
    {"stale_tail", "quantize mxfp8 64x80 bf16 dir=row", "amax.stale_tail"},
    {"tiles_floored", "quantize mxfp8 129x130 bf16 dir=row scales=gemm",
     "layout.scale_gemm:tiles_128x4_floored"},
    {"tiles_floored", "quantize mxfp8 160x300 bf16 dir=col scales=gemm",
     "layout.scale_gemm:tiles_128x4_floored_across"},
    {"unsaturated", "quantize mxfp8 64x256 bf16 dir=row flavour=ocp", "line.element_overflow=nan"},
    {"padding_left", "quantize mxfp8 64x96 bf16 dir=col", "padding.not_cleared"},
    {"nan_wins", "quantize fp8_current 64x256 bf16 fill=nonfinite", "tensor_amax.nan"},
    {"exponent_field", "dequantize mxfp8 64x256 bf16 input=codes", "dequantize.scale.exponent_field"},
    {"first_4096", "quantize fp8_current 8x5000 bf16 dir=row row_scaled=1", "amax.first_elements=4096"},
    {"exponent_field", "dequantize mxfp8 1x33 f32 out=bf16 element=e5m2 fill=denormal seed=583",
     "dequantize.scale.exponent_field"},
    {"scales_by_rows", "quantize fp8_block 300x200 bf16 dir=col", "layout.scale_inv:column_major"},
    {"infinite_quotient", "quantize fp8_block 64x256 bf16 dir=row fill=denormal", "quotient.infinite"},
    {"through_f16", "quantize fp8_block 64x256 f32 dir=row", "line.pre_round=f16"},
    {"one_tie", "quantize nvfp4 64x256 bf16 dir=row fill=ties", "code.tie_turned=2.5"},
    {"sign_of_zero", "quantize nvfp4 64x256 bf16 dir=row fill=negative_zeros", "line.neg_zero=plus"},
    {"signed_draw", "quantize nvfp4 64x256 bf16 dir=row round=sr", "draw.of_signed"},
    {"unrotated_amax", "quantize nvfp4 64x256 bf16 dir=col rht=1", "tensor_amax.unrotated"},
    {"tail_of_ones", "quantize mxfp8 33x100 bf16 dir=row fill=edges", "amax.tail_of_ones", true},
    {"nibbles_swapped", "quantize mxfp4 33x100 bf16 dir=row", "layout.data:nibbles_swapped", true},
    {"max_240", "quantize fp8_block 33x256 bf16 dir=row pow2=0", "quotient.max_240", true},
    {"unpadded_scales", "dequantize fp8_block 300x300 bf16 dir=row block=128x128",
     "dequantize.scale.unpadded", true},
    {"block_scale_rounded_after", "quantize fp8_block 65x97 f32 block=1x128 pow2=1 fill=outliers",
     "scaled.unrounded"},
    {"tile_scales_untransposed", "quantize fp8_block 130x260 bf16 block=128x128 pow2=0",
     "plane.scales_of_other_in_order"},
    // Of columns alone: what the rows would be is made for them, also where amaxes are given.
    {"tile_scales_untransposed", "quantize fp8_block 130x260 bf16 dir=col block=128x128 pow2=0",
     "plane.scales_of_other_in_order"},
    {"tile_scales_untransposed", "quantize fp8_block 200x130 f16 dir=col block=128x128 scale_from=amax",
     "plane.scales_of_other"},
    {"mxfp6_subnormals_halved", "quantize mxfp6 65x97 f32 element=e2m3 dir=row fill=outliers",
     "code.subnormals_halved_late"},
    {"mxfp4_bytes_transposed", "quantize mxfp4 64x128 bf16", "layout.data:"},
    {"hybrid_one_scale", "quantize fp8_current 33x65 bf16 row.element=e4m3 col.element=e5m2 pow2=0",
     "tensor_scale.max_of_e4m3"},
    {"delayed_amax_overwritten", "quantize fp8_delayed 33x65 bf16 scale=1 prior_amax=1000",
     "tensor_amax.prior_ignored"},
    {"sr_draws_shared", "quantize nvfp4 48x72 bf16 dir=col round=sr", "draw.other_direction"},
    {"split_tiles_floored", "split mxfp8 192x48 bf16 groups=0,31,33,128 dir=row",
     "split.scale_offsets=tiles_floored"},
    {"split_amax_of_group", "split nvfp4 192x48 bf16 groups=0,31,33,128 dir=row", "tensor_amax.of_group"},
    {"gemm_split_k_scales", "gemm a=nvfp4 b=mxfp8 33x29x48 op=TN fill=wide", "gemm.a.scales_next_half"},
    {"gemm_bias_after_cast", "gemm a=fp8_block b=fp8_delayed 33x29x130 alpha=-2 bias=bf16 out=f16",
     "gemm.bias_after_cast"},
    {"gemm_transposed_pairs", "gemm a=fp8_current b=fp8_current 33x29x64 op=NT",
     "gemm.both.pairs_transposed"},
    {"attention_padded_head", "attention fp8_delayed 24x64 bf16 heads=4 backward=1 mask=causal",
     "attention.scale_padded=32"},
    {"attention_first_descale", "attention identity 24x64 bf16 batch=2 heads=4 kv_heads=2 kv=17 codes=e4m3",
     "attention.v_descale_one"},
    {"dequantize_shifted_scale", "dequantize mxfp8 65x97 bf16 dir=col input=codes out=f32",
     "dequantize.scale.exponent_field"},
    {"dequantize_derived_block", "dequantize fp8_block 130x260 bf16 block=128x128 fill=wide",
     "dequantize.scale.block_derived"},
    {"swizzle_tiles_down_first", "swizzle mxfp8 129x160 e8m0 dir=row", "layout.scale_gemm:tiles_128x4_down,"},
    {"swizzle_tiles_down_first", "swizzle nvfp4 260x200 e4m3 dir=row inverse=1",
     "swizzle.read_as:tiles_128x4_down"},
    {"update_local_scale", "update fp8_delayed 16x5 f32 reduction=1 seed=4", "update.scale_of_own"},
    {"adam_states_narrowed", "adam bf16 33x29 bf16 moments=f32 fill=wide", "adam.moments_in_bf16"},
    {"hadamard_signs_after", "hadamard nvfp4 64x48 bf16 fill=wide", "rht.signs_after"},
    {"attention_window_left", "attention fp8_current 64x64 bf16 heads=2 mask=causal window=8,0",
     "attention.window_left_more"},
    {"attention_padded_corner",
     "attention fp8_current 32x64 bf16 heads=2 batch=2 kv=24 mask=causal_bottom_right lengths=10,16 "
     "kv_lengths=24,17",
     "attention.corner_padded"},
    {"attention_tiled_heads", "attention fp8_delayed 32x128 bf16 heads=4 kv_heads=2", "attention.heads_wrap"},
    {"attention_dropout_redrawn", "attention fp8_current 32x64 bf16 heads=2 dropout=0.25 backward=1",
     "attention.dropout_moved=4"},
    {"gemm_alpha_lost", "gemm a=fp8_current b=fp8_current 48x32x64 alpha=0.5 bias=bf16",
     "gemm.alpha_left_out"},
    {"gemm_bf16_partials", "gemm a=mxfp8 b=mxfp8 48x32x150 bf16", "gemm.split_k.bf16=2x32"},
    {"gemm_f16_accumulator", "gemm a=identity b=identity 33x29x48 bf16 out=f32", "gemm.accumulator.f16=16"},
    {"gemm_bias_by_row", "gemm a=fp8_current b=fp8_current 48x32x64 bias=bf16", "gemm.bias_by_row"},
    {"mxfp8_square_scale_once", "quantize mxfp8 64x96 bf16 block=32x32", "scale.first_copy_only.stored"},
    {"mxfp6_packed_in_parts", "quantize mxfp6 64x96 bf16 dir=row packing=packed", "packing.torchao"},
    {"fp8_token_scale_shared", "quantize fp8_current 33x64 bf16 row_scaled=1", "amax.last_of_rows=8.codes"},
    {"split_value_of_first", "split fp8_delayed 64x64 bf16 dir=row groups=16,0,32,16 scale=4",
     "split.given_of=first"},
    {"split_tail_reads_on", "split mxfp8 96x64 bf16 groups=17,30,0,49", "split.tail_reads_on"},
    {"split_column_slices", "split fp8_current 32x96 bf16 dir=row vary=last groups=32,16,48",
     "split.column_slices"},
    {"cast_high_byte", "cast e5m2 64x64 bf16", "line.round=rz"},
    {"dequantize_split_nibbles", "dequantize mxfp4 64x64 bf16 dir=row", "dequantize.code.halves"},
    {"dequantize_scales_in_bf16", "dequantize fp8_current 64x64 bf16 dir=row", "dequantize.scale.in_bf16"},
    {"scale_chain_inverse_from_amax", "scale_chain fp8_current 16x64 f32", "scale_chain.inverse_divided"},
    {"update_idle_slots_roll", "update fp8_delayed 16x64 f32", "line.rule=api"},
    {"adam_eps_in_root", "adam f32 32x64 f32 eps=0.001", "adam.eps_in_root"},
    {"nvfp4_largest_element", "quantize nvfp4 64x96 bf16 fill=outliers", "tensor_amax.without_abs"},
    {"fp8_block_lanes_past_edge", "quantize fp8_block 68x256 bf16 dir=row", "scale.overrun=32,one.stored"},
    {"mxfp6_exact_powers_doubled", "quantize mxfp6 32x64 bf16 dir=row fill=amax_edges", "scale.up_at_powers"},
    {"mxfp4_row_groups_close", "quantize mxfp4 160x64 bf16 dir=row scales=gemm",
     "layout.scale_gemm:tiles_128x4_groups_close"},
    {"sr_low_word_of_offset", "quantize nvfp4 32x64 bf16 dir=row round=sr rng=1,4294967297,0",
     "draw.offset_low"},
    {"split_offsets_of_32",
     "split mxfp8 148x32 bf16 dir=row vary=none "
     "groups=4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4",
     "split.offsets=carry_lost=32"},
    {"split_scale_of_empty", "split fp8_delayed 64x33 bf16 groups=16,0,32,16 scale=3",
     "split.given_of=empty,elements"},
    {"gemm_tail_after_even_stages", "gemm a=fp8_current b=fp8_current 33x29x80 bf16", "gemm.k_cut=32"},
    {"gemm_split_without_bias", "gemm a=fp8_current b=fp8_current 33x29x160 bf16 bias=bf16",
     "line.bias=none"},
    {"gemm_aligned_as_tf32", "gemm a=identity b=identity 32x32x64 f32 out=f32", "gemm.both.tf32_cut"},
    {"gemm_square_as_it_is", "gemm a=identity b=identity 48x29x48 bf16 op=NN", "line.op=TN"},
    {"attention_tiles_cross_groups", "attention identity 12x96 bf16 heads=12 kv_heads=2",
     "attention.heads_by_tiles=4"},
    {"attention_hidden_rows_nan", "attention identity 12x32 bf16 heads=2 kv=8 mask=causal_bottom_right",
     "attention.unseeing_nan"},
    {"attention_lengths_of_queries",
     "attention identity 24x32 bf16 heads=2 batch=2 lengths=5,12 kv_lengths=9,3",
     "attention.lengths_of_queries"},
    {"dequantize_scales_with_leading_one", "dequantize nvfp4 16x256 bf16 dir=row fill=amax_edges",
     "dequantize.scale.leading_one,"},
    {"swizzle_tiles_of_8", "swizzle mxfp8 60x200 e8m0 dir=row", "layout.scale_gemm:tiles_8x4"},
    {"hadamard_amax_before_bf16", "hadamard nvfp4 64x32 bf16", "rht.amax_of_sums"},
    {"cast_nan_rounded_on", "cast bf16 8x64 f32 fill=nonfinite", "cast.nan_rounded"},
    {"scale_chain_exponents_from_one", "scale_chain mxfp8 1x300 f32 fill=nonfinite",
     "scale_chain.codes_from_01_to_FE"},
    {"adam_decay_decoupled", "adam f32 32x64 f32 decoupling=l2 decay=0.1", "line.decoupling=adamw"},
};

Subjects with(const Slip& slip) {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  const std::string name = slip.name;
  auto kernel = slip.ptx ? make_ptx_kernel_subject(source_path("tests/self/hunt/ptx/" + name + ".json"))
                         : make_plugin_subject(ASSAY_PLUGIN_DIR "/libplanted_" + name + ".so");
  if (!kernel) throw std::runtime_error(kernel.error().text());
  subjects.owned.push_back(std::move(*kernel));
  return subjects;
}

class UnseenSlip : public testing::TestWithParam<Slip> {};

TEST_P(UnseenSlip, IsNamed) {
  const Slip& slip = GetParam();
  const Subjects subjects = with(slip);
  ExplainOptions options;
  options.what = slip.line;
  options.subject = std::string(subjects.owned.back()->name());
  options.budget = 30;
  const Ended r =
      of_files([&](std::FILE* out, std::FILE* err) { return run_explain(options, subjects, out, err); });
  EXPECT_EQ(r.status, 1) << r.err;
  const size_t cause = r.out.find("\n  cause"), end = r.out.find('\n', cause + 1);
  ASSERT_NE(cause, std::string::npos) << r.out;
  EXPECT_NE(r.out.substr(cause, end - cause).find(std::string("[") + slip.cause), std::string::npos) << r.out;
  EXPECT_NE(("\n" + r.out).find("\nEXPLAINED "), std::string::npos) << r.out;
}

// Several causes make the bytes of this line; on another they part, and the hunt names the one that is left.
TEST(Unseen, TheHuntExplainsALineThatTellsCausesApart) {
  const Subjects subjects = with({"tail_of_ones", "", "", true});
  const Scratch scratch;
  hunting::CauseOptions options;
  options.subject = std::string(subjects.owned.back()->name());
  options.folder = scratch.path("finding");
  const hunting::Finding found =
      hunting::find_cause(*parse_line("quantize mxfp8 33x40 bf16 dir=row"), Breach{}, subjects, options);
  EXPECT_TRUE(found.explained);
  EXPECT_EQ(found.cause, "quantize amax.tail_of_ones");
  EXPECT_TRUE(std::filesystem::exists(options.folder + "/case.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(options.folder + ".other"));
  // Not when the time is over: each of those lines may take as long as the first.
  options.over = [] { return true; };
  const hunting::Finding first =
      hunting::find_cause(*parse_line("quantize mxfp8 33x40 bf16 dir=row"), Breach{}, subjects, options);
  EXPECT_TRUE(first.explained);
  EXPECT_GT(first.others.size(), 0U);
}

// swizzle_floor of the first set: two blocks write one place, which only another order of blocks shows. It
// counts tiles as cols // 128, as flashinfer did: of 3, 5 and 8 scales along a line 0, 1 and 1.
TEST(Planted, ARaceIsToldWithTheCauseOfTheFirstRun) {
  const Subjects subjects = with({"swizzle_floor", "", "", true});
  for (const auto& [shape, cause] :
       {std::pair("256x96", "floored_to_0,"), std::pair("300x160", "floored_across,"),
        std::pair("300x240", "one_less_across,")}) {
    ExplainOptions options;
    options.what = "quantize mxfp8 " + std::string(shape) + " bf16 dir=row scales=gemm";
    options.subject = std::string(subjects.owned.back()->name());
    options.budget = 30;
    const Ended r =
        of_files([&](std::FILE* out, std::FILE* err) { return run_explain(options, subjects, out, err); });
    EXPECT_EQ(r.status, 1) << r.err;
    const std::string named = std::string("[layout.scale_gemm:tiles_128x4_") + cause;
    for (const std::string& said :
         {std::string("\nRANDOM "), std::string("writes a byte that block"),
          std::string("and blocks of one grid are not ordered"), std::string("planted_kernels.py:48"), named})
      EXPECT_NE(r.out.find(said), std::string::npos) << said << '\n' << r.out;
  }
}

INSTANTIATE_TEST_SUITE_P(All, UnseenSlip, testing::ValuesIn(kSlips), [](const auto& info) {
  return info.param.name + ("_" + std::to_string(info.index));
});

}  // namespace
}  // namespace assay

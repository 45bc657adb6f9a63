#include "compare/witness/vectors/families.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/witness/vectors/tensor_core.h"
#include "compare/witness/vectors/training.h"
#include "contract/f32_text.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

const VectorRow kRows[] = {
    // casts, every code of a 16-bit source or a choice of binary32 values
    {"table_from16", "{to:e4m3|e5m2}.{overflow:satfinite|nosat}", "cast {to} {shape:input} {source:input} overflow={overflow}", "x=input", "y"},
    {"table_from16", "{to:e2m1|e2m3|e3m2}.{round:rn|rz}", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y"},
    {"table_from16", "{to:e2m1}.{round:rn|rz}.packed", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y", "packed"},
    {"table_from16", "e8m0.{round:rz|rp}.{overflow:satfinite|nosat}", "cast e8m0 {shape:input} {source:input} round={round} overflow={overflow}", "x=input", "y"},
    {"table_from_f32", "{to:e4m3|e5m2}.{overflow:satfinite|nosat}", "cast {to} {shape:input} {source:input} overflow={overflow}", "x=input", "y"},
    {"table_from_f32", "{to:e2m1|e2m3|e3m2}.{round:rn|rz}", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y"},
    {"table_from_f32", "{to:e2m1}.{round:rn|rz}.packed", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y", "packed"},
    {"table_from_f32", "e8m0.{round:rz|rp}.{overflow:satfinite|nosat}", "cast e8m0 {shape:input} {source:input} round={round} overflow={overflow}", "x=input", "y"},
    {"table_from_f32", "te_float_to_e8m0", "cast e8m0 {shape:input} {source:input} round=rp overflow=sat", "x=input", "y"},
    {"table_from_f32", "{to:bf16|f16}.rn", "cast {to} {shape:input} {source:input}", "x=input", "y"},

    // decoding, entry i is code i
    {"table_decode", "{from:e4m3|e5m2|e2m1|e2m3|e3m2|e8m0}.{to:f16|bf16|f32}", "cast {to} {count:{from}.{to}} {from} fill=every_code", "x=@codes", "y"},
    {"table_decode", "e8m0.te_exp2f_rcp.f32", "scale_chain mxfp8 {count:e8m0.te_exp2f_rcp.f32} e8m0 fill=every_code", "x=@codes", "multiplier"},
    {"table_decode", "e8m0.te_kernel_exp2f.f32", "scale_chain mxfp8 {count:e8m0.te_kernel_exp2f.f32} e8m0 fill=every_code", "x=@codes", "decoded"},

    // MXFP8: both directions in one launch, and each alone
    {"mxfp8_1d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format}", "x=input", "{dir}.data"},
    {"mxfp8_1d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format}", "x=input", "{dir}.data"},
    {"mxfp8_1d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format}", "x=input", "{dir}.scale_inv"},
    {"mxfp8_1d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format}", "x=input", "{dir}.scale_inv"},
    {"mxfp8_1d", "scale_{dir:rowwise|colwise}_swizzled", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} scales=gemm", "x=input", "{dir}.scale_gemm"},
    {"mxfp8_2d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} block=32x32", "x=input", "{dir}.data"},
    {"mxfp8_2d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format} block=32x32", "x=input", "{dir}.data"},
    {"mxfp8_2d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} block=32x32", "x=input", "{dir}.scale_inv"},
    {"mxfp8_2d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format} block=32x32", "x=input", "{dir}.scale_inv"},
    {"mxfp8_2d", "scale_{dir:rowwise|colwise}_swizzled", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} block=32x32 scales=gemm", "x=input", "{dir}.scale_gemm"},
    {"mxfp8_dequantize", "{dir:rowwise|colwise}.{out}", "dequantize mxfp8 {shape:data} f32 dir={dir} element={format} out={out} input=codes", "{dir}.scale_inv=scale_{dir} {dir}.data=data", "y", "arithmetic"},

    // per-tensor FP8
    {"fp8_current_scaling", "{c}.{what:amax|scale|scale_inv|data}", "quantize fp8_current {shape:input} {source:input} dir=row element={format} eps={f32:amax_epsilon} pow2={force_pow_2_scales}", "x=input", "row.{what}"},
    {"fp8_current_scaling", "{c}.{what:amax|scale|scale_inv|data}", "quantize fp8_current {shape:input} {source:input} dir=both element={format} eps={f32:amax_epsilon} pow2={force_pow_2_scales}", "x=input", "row.{what}"},
    {"fp8_current_scaling", "{c}.data_t", "quantize fp8_current {shape:input} {source:input} dir=both element={format} eps={f32:amax_epsilon} pow2={force_pow_2_scales}", "x=input", "col.data"},
    {"fp8_current_scaling", "{c}.dequant_{out}", "dequantize fp8_current {shape:input} {source:input} dir=row element={format} out={out} input=codes", "row.scale_inv={c}.scale_inv row.data={c}.data", "y", "arithmetic"},
    {"fp8_current_scaling_disputed", "{c}.{source_name:te_host|te_python|kernel_helper}.{what:amax|scale|scale_inv|data}", "quantize fp8_current {shape:{c}.input} {source:{c}.input} dir=row element={format}", "x={c}.input", "row.{what}"},
    {"fp8_delayed_scaling", "{c}.{what:amax|scale_inv|data}", "quantize fp8_delayed {shape:input} {source:input} dir=row element={format} scale={bits:{c}.scale}", "x=input", "row.{what}"},
    {"fp8_delayed_scaling", "{c}.{what:amax|scale_inv|data}", "quantize fp8_delayed {shape:input} {source:input} dir=both element={format} scale={bits:{c}.scale}", "x=input", "row.{what}"},
    {"fp8_delayed_scaling", "{c}.data_t", "quantize fp8_delayed {shape:input} {source:input} dir=both element={format} scale={bits:{c}.scale}", "x=input", "col.data"},
    {"fp8_tensor_dequantize", "{element:e4m3|e5m2}.{c}.{out}", "dequantize fp8_delayed {count:{element}.codes} f32 dir=row element={element} out={out} input=codes", "row.scale_inv={c}.scale_inv row.data={element}.codes", "y", "arithmetic"},
    {"multi_cast_transpose", "amax[{i}]", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "row.amax"},
    {"multi_cast_transpose", "scale_inv[{i}]", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "row.scale_inv"},
    {"multi_cast_transpose", "t{i}.data", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "row.data"},
    {"multi_cast_transpose", "t{i}.data_t", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "col.data"},

    {"multi_cast_transpose", "amax[{i}]", "split fp8_delayed 1x{total:t#.input} {source:t0.input} vary=both groups={sizes:t#.input} element={format}", "x=@join:t#.input row.given.scale=scale col.given.scale=scale", "row.amax[{i}]"},
    {"multi_cast_transpose", "scale_inv[{i}]", "split fp8_delayed 1x{total:t#.input} {source:t0.input} vary=both groups={sizes:t#.input} element={format}", "x=@join:t#.input row.given.scale=scale col.given.scale=scale", "row.scale_inv[{i}]"},
    {"multi_cast_transpose", "t{i}.data", "split fp8_delayed 1x{total:t#.input} {source:t0.input} vary=both groups={sizes:t#.input} element={format}", "x=@join:t#.input row.given.scale=scale col.given.scale=scale", "row.data[{i}]"},
    {"multi_cast_transpose", "t{i}.data_t", "split fp8_delayed 1x{total:t#.input} {source:t0.input} vary=both groups={sizes:t#.input} element={format}", "x=@join:t#.input row.given.scale=scale col.given.scale=scale", "col.data[{i}]"},

    // what the training layer's entries with a gradient of a bias leave beside it (compare/witness/vectors/training.h)
    {"mxfp8_dbias", "data_{dir}", "quantize mxfp8 {shape:grad} {source:grad} dir=both element={format}", "x=grad", "{dir}.data"},
    {"mxfp8_dbias", "data_{dir}", "quantize mxfp8 {shape:grad} {source:grad} dir={dir} element={format}", "x=grad", "{dir}.data"},
    {"mxfp8_dbias", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:grad} {source:grad} dir=both element={format}", "x=grad", "{dir}.scale_inv"},
    {"mxfp8_dbias", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:grad} {source:grad} dir={dir} element={format}", "x=grad", "{dir}.scale_inv"},
    {"fp8_delayed_dbias", "{what:amax|data}", "quantize fp8_delayed {shape:grad} {source:grad} dir=row element={format} scale={bits:scale}", "x=grad", "row.{what}"},
    {"fp8_delayed_dbias", "{what:amax|data}", "quantize fp8_delayed {shape:grad} {source:grad} dir=both element={format} scale={bits:scale}", "x=grad", "row.{what}"},

    // random bits
    {"philox_kat", "output[{i}]", "philox u32 1x4 u32 rounds={word:rounds[{i}]}", "x=counter[{i}] key=key[{i}]", "y"},
    {"philox_sequence", "~output", "philox u32 {shape:~output} u32", "x=@counters:~seed_subsequence_offset_lo_hi key=@seeds:~seed_subsequence_offset_lo_hi", "y"},
    {"philox_sequence", "raw.output{rounds:#}", "philox u32 {shape:raw.output{rounds}} u32 rounds={rounds}", "x=@head:raw.counter key=@head:raw.key", "y"},
    {"philox_sequence", "raw.output{rounds:#}_first{n:#}", "philox u32 {shape:raw.output{rounds}_first{n}} u32 rounds={rounds}", "x=@head:raw.counter key=@head:raw.key", "y"},
    {"stochastic_round_e2m1", "code", "cast e2m1 {count:input} f32 round=sr sr_rule=fma", "x=input bits=rbits8", "y"},

    // layout
    {"scale_swizzle", "{c}.swizzled", "swizzle mxfp8 {blocks:32,direction} e8m0 dir={direction}", "{direction}.scale_inv={c}.scale", "{direction}.scale_gemm"},
    {"scale_swizzle", "{c}.unswizzled", "swizzle mxfp8 {blocks:32,direction} e8m0 dir={direction} inverse=1", "{direction}.scale_gemm={c}.unswizzle_input", "{direction}.scale_inv"},
};

struct Held {
  string tensor, plane;
};

// The rows of kRows, and those that several tensors, directions or families share.
std::vector<VectorRow> make_rows() {
  std::vector<VectorRow> rows(std::begin(kRows), std::end(kRows));
  // Tensors that a quantize leaves, of a launch of their direction and of a launch of both.
  auto quantize = [&](const string& family, const string& line, const std::vector<Held>& held) {
    for (const Held& h : held)
      for (const string& dir : {h.plane.substr(0, 3), string("both")}) rows.push_back({family, h.tensor, line + " dir=" + dir, "x=~input", h.plane});
  };
  auto both = [&](const string& family, const string& line, const std::vector<Held>& held) {
    for (const Held& h : held) rows.push_back({family, h.tensor, line + " dir=both", "x=~input", h.plane});
  };
  auto dequantize = [&](const string& family, const string& keys, const string& inputs) {
    const string line = "dequantize " + keys + " dir=row input=codes out=";
    rows.push_back({family, "~dequant_{out}", line + "{out}", inputs, "y", "arithmetic"});
    rows.push_back({family, "~dequant", line + "{source:~dequant}", inputs, "y", "arithmetic"});
  };
  const string shape = " {shape:~input} {source:~input}";

  const string scaled = " pow2={force_pow_2_scales} eps={f32:amax_epsilon}";
  for (const auto& [family, block] : {std::pair("fp8_block_1d", " block=1x128"), {"fp8_block_2d", " block=128x128"}}) {
    quantize(family, "quantize fp8_block" + shape + " element={format}" + scaled + block,
             {{"~data", "row.data"}, {"~scale_inv", "row.scale_inv"}, {"~data_t", "col.data"}, {"~scale_inv_t", "col.scale_inv"}});
    dequantize(family, "fp8_block" + shape + " element={format}" + block, "row.scale_inv=~scale_inv row.data=~data");
  }
  const string disputed = "quantize fp8_block" + shape + " dir=row element={format}" + scaled;
  for (const string variant : {"", "scale_limit=source_max"}) {           // N3.5: what TransformerEngine's kernels pass (N8.5)
    rows.push_back({"fp8_block_disputed", "~{what:data|scale_inv}", disputed + " " + variant, "x=~input", "row.{what}", "", "", variant});
    rows.push_back({"fp8_block_disputed", "~scale_given_nan_ignoring_amax", disputed + " " + variant, "x=~input", "row.scale_inv", "reciprocal", "", variant});
  }

  quantize("mxfp4", "quantize mxfp4" + shape, {{"~data", "row.data"}, {"~scale_e8m0", "row.scale_inv"}, {"~data_t", "col.data"}, {"~scale_e8m0_t", "col.scale_inv"}});
  both("mxfp4", "quantize mxfp4" + shape + " scales=gemm", {{"~scale_e8m0_swizzled", "row.scale_gemm"}, {"~scale_e8m0_t_swizzled", "col.scale_gemm"}});
  dequantize("mxfp4", "mxfp4" + shape, "row.scale_inv=~scale_e8m0 row.data=~data");

  // NVFP4: the amax is given; where it is the tensor's own it is computed as well.
  const std::vector<Held> codes = {{"~data", "row.data"}, {"~scale", "row.scale_inv"}, {"~data_t", "col.data"}, {"~scale_t", "col.scale_inv"}};
  const string given = " amax={bits:~global_amax}", computed = " amax={amax:~global_amax,~input}", nvfp4 = "quantize nvfp4" + shape;
  for (const auto& [family, keys] : {std::pair("nvfp4_1d", ""), {"nvfp4_2d", " block=16x16"}, {"nvfp4_1d_fastmath", " multiplier=bf16_quotient"}}) {
    quantize(family, nvfp4 + keys + given, codes);
    both(family, nvfp4 + keys + computed, codes);
    both(family, nvfp4 + keys + given + " scales=gemm", {{"~scale_swizzled", "row.scale_gemm"}, {"~scale_t_swizzled", "col.scale_gemm"}});
    dequantize(family, "nvfp4" + shape, "row.amax=~global_amax row.scale_inv=~scale row.data=~data");   // copies of a square block's scale are alike
  }
  for (const auto& [what, plane] : {std::pair("data", "row.data"), {"scale", "row.scale_inv"}})
    rows.push_back({"nvfp4_disputed", string("~{block:1d|2d}.") + what, nvfp4 + " dir=row block={block}" + given, "x=~input", plane});
  const string choice = " four_over_six={mode} e4m3_max={m} four_over_six_error={error}";
  std::vector<Held> chosen = codes;
  for (Held& h : chosen) h.tensor = "e{m:448|256}.{mode:mae|mse}.{error:exact|fast}." + h.tensor.substr(1);
  quantize("nvfp4_4over6", nvfp4 + " block={block}" + choice + given, chosen);
  both("nvfp4_4over6", nvfp4 + " block={block}" + choice + computed, chosen);
  const std::vector<Held> amaxes = {{"~row_amax", "row.amax"}, {"~col_amax", "col.amax"}};
  quantize("nvfp4_row_scaled", nvfp4 + " row_scaled=1", codes);
  quantize("nvfp4_row_scaled", nvfp4 + " row_scaled=1", amaxes);
  dequantize("nvfp4_row_scaled", "nvfp4" + shape + " row_scaled=1", "row.amax=~row_amax row.scale_inv=~scale row.data=~data");
  quantize("nvfp4_row_scaled_4over6", nvfp4 + " row_scaled=1" + choice, chosen);
  quantize("nvfp4_row_scaled_4over6", nvfp4 + " row_scaled=1", amaxes);
  for (const string sum : {"butterfly", "exact"}) {
    const string mask = "sign_mask={signs:random_sign_mask}", columns = nvfp4 + " col.rht=1 col." + mask + " col.rht_sum=" + sum;
    quantize("nvfp4_rht", columns, {{"~data_t", "col.data"}, {"~scale_t", "col.scale_inv"}, {"~amax_col", "col.amax"}});
    both("nvfp4_rht", columns, {{"~data", "row.data"}, {"~scale", "row.scale_inv"}, {"~amax_row", "row.amax"}});
    for (const auto& [tensor, plane] : {std::pair("~input_t_rht", "y"), {"~amax_col", "amax"}})
      rows.push_back({"nvfp4_rht", tensor, "hadamard nvfp4" + shape + " " + mask + " rht_sum=" + sum, "x=~input", plane});
  }
  // The matrix is what the rotation makes of unit vectors.
  string impulses = " fill=literal:3f80@0.0";
  for (int i = 1; i < 16; ++i) impulses += fmt::format("+3f80@{}.{}", i, i);
  const string with_signs = "hadamard nvfp4 16x16 bf16 sign_mask={signs:sign_mask_hex}" + impulses, without = "hadamard nvfp4 16x16 bf16 sign_mask=0x0000" + impulses;
  rows.push_back({"rht", "rht_matrix_signed", with_signs, "", "y"});
  rows.push_back({"rht", "rht_matrix_unsigned", without, "", "y"});
  rows.push_back({"rht", "hadamard16_scaled", without, "", "y", "narrowed"});
  rows.push_back({"rht", "sign_{what:vector|mask}", with_signs, "", "y", "rotation"});

  const string chain = "scale_chain nvfp4 {rows:global_amax}x2 f32", pairs = "x=@pairs:global_amax,block_amax";
  rows.push_back({"nvfp4_scale_chain", "S_enc", chain, pairs, "encode_scale"});
  rows.push_back({"nvfp4_scale_chain", "S_enc_e4m3max256", chain + " e4m3_max=256", pairs, "encode_scale"});
  rows.push_back({"nvfp4_scale_chain", "block_scale_e4m3", chain, pairs, "scale_inv"});
  rows.push_back({"nvfp4_scale_chain", "element_multiplier", chain, pairs, "multiplier"});
  // Only four over six has a largest scale of 256; which error chose does not matter to a dequantize.
  for (const auto& [most, keys] : {std::pair("e448.", ""), {"e256.", " four_over_six=mae e4m3_max=256"}}) {
    const string line = string("dequantize nvfp4 {unpacked:data} f32 dir=row input=codes out={out}") + keys, planes = " row.scale_inv=scale row.data=data";
    rows.push_back({"nvfp4_dequantize", string(most) + "rowscaled.{out}", line + " row_scaled=1", "row.amax=row_amax" + planes, "y", "arithmetic"});
    rows.push_back({"nvfp4_dequantize", string(most) + "{c}.{out}", line, "row.amax={c}.global_amax" + planes, "y", "arithmetic", "c!=rowscaled"});
  }
  // Scales of NVFP4 and MXFP4, of either direction, move like the row scales of MXFP8 (N6.6).
  for (const auto& [format, source] : {std::pair("nvfp4 {blocks:16,", "e4m3"), {"mxfp4 {blocks:32,", "e8m0"}})
    for (const string dir : {"row", "col"}) {
      const string line = string("swizzle ") + format + dir + "} " + source + " dir=" + dir;
      rows.push_back({"scale_swizzle", "{c}.swizzled", line, dir + ".scale_inv={c}.scale", dir + ".scale_gemm", "", "direction=rowwise"});
      rows.push_back({"scale_swizzle", "{c}.unswizzled", line + " inverse=1", dir + ".scale_gemm={c}.unswizzle_input", dir + ".scale_inv", "", "direction=rowwise"});
    }
  return rows;
}

const std::vector<VectorRow>& all_rows() {
  static const std::vector<VectorRow> rows = make_rows();
  return rows;
}

// The labels of disputed cases, and what decides them.
struct Dispute {
  string_view family, label, clauses;
};
constexpr Dispute kDisputes[] = {
    {"nvfp4_disputed", "neg_zero", "N2.5, N5.6"},
    {"nvfp4_disputed", "scale_underflow", "N10.8"},
    {"nvfp4_disputed", "nan_inf_amax_inf", "N10.2, N10.4"},
    {"nvfp4_disputed", "nan_amax_given_finite", "N10.4"},
    {"nvfp4_disputed", "all_zero_with_neg_zero", "N2.5, N10.6"},
    {"nvfp4_disputed", "amax_zero_nonzero_data", "N10.2"},
    {"nvfp4_disputed", "", "N10.2 to N10.9"},
    {"nvfp4_2d", "", "N10.5, N10.8"},
    {"", "tiny_amax", "N3.5"},
    {"", "inf", "N3.4"},
    {"", "nan", "N3.1, N5.1"},
    {"", "all_neg_zero", "N2.5, N3.4"},
    {"fp8_block_disputed", "", "N9.2"},
    {"fp8_current_scaling_disputed", "", "N3.2 to N3.6"},
};

using Captures = std::map<string, string, std::less<>>;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// Matches text against a pattern, longest captures first.
bool match(string_view pattern, string_view text, Captures& captures) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '{') return !text.empty() && pattern[0] == text[0] && match(pattern.substr(1), text.substr(1), captures);
  const size_t close = pattern.find('}');
  const string_view inside = pattern.substr(1, close - 1), rest = pattern.substr(close + 1);
  const size_t colon = inside.find(':');
  const string name(inside.substr(0, colon));
  string_view choices = colon == string_view::npos ? string_view{} : inside.substr(colon + 1);
  auto take = [&](string_view word) {
    if (word.empty() || !text.starts_with(word) || !match(rest, text.substr(word.size()), captures)) return false;
    captures[name] = string(word);
    return true;
  };
  if (choices == "#") {
    const size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    return take(text.substr(0, n));
  }
  if (!choices.empty()) {
    for (; !choices.empty(); choices.remove_prefix(std::min(choices.find('|') + 1, choices.size()))) {
      if (take(choices.substr(0, choices.find('|')))) return true;
      if (choices.find('|') == string_view::npos) return false;
    }
    return false;
  }
  size_t n = 0;
  while (n < text.size() && is_word(text[n])) ++n;
  for (; n > 0; --n)
    if (take(text.substr(0, n))) return true;
  return false;
}

constexpr string_view kSources[] = {"te_host", "te_python", "kernel_helper"};

// A pattern with `~` in front: with and without a case, with and without a source.
bool match_cases(string_view pattern, string_view text, Captures& captures) {
  if (!pattern.starts_with('~')) return match(pattern, text, captures);
  pattern.remove_prefix(1);
  if (match(pattern, text, captures)) return true;
  const string_view first = text.substr(0, text.find('.'));
  if (first.size() == text.size()) return false;
  text.remove_prefix(first.size() + 1);
  for (string_view source : kSources)
    if (first == source) return captures["source_name"] = string(source), match(pattern, text, captures);
  if (captures.contains("c")) return false;
  captures["c"] = string(first);
  return match_cases("~" + string(pattern), text, captures);
}

string line_word(string_view word) {
  static constexpr std::pair<string_view, string_view> kWords[] = {
      {"rn", "rne"}, {"satfinite", "sat"}, {"rowwise", "row"}, {"colwise", "col"}, {"columnwise", "col"}, {"true", "1"}, {"false", "0"}, {"1d", "1x16"}, {"2d", "16x16"},
  };
  for (const auto& [from, to] : kWords)
    if (word == from) return string(to);
  return string(word);
}

Error wrong(string message) { return {std::move(message), 0, ""}; }

// What an element of a tensor is as an element of a plane.
std::optional<Encoding> encoding_of(safetensors::Dtype dtype) {
  using enum safetensors::Dtype;
  switch (dtype) {
    case F32: return Encoding::f32;
    case BF16: return Encoding::bf16;
    case F16: return Encoding::f16;
    case F8_E4M3: return Encoding::e4m3;
    case F8_E5M2: return Encoding::e5m2;
    case F8_E8M0: return Encoding::e8m0;
    case U32: return Encoding::u32;
    default: return std::nullopt;
  }
}

std::optional<safetensors::Tensor> row_of(const safetensors::Tensor& t, int64_t row) {
  if (t.shape.empty() || row < 0 || row >= t.shape[0]) return {};
  safetensors::Tensor out = t;
  const size_t size = t.bytes.size() / static_cast<size_t>(t.shape[0]);
  out.bytes = t.bytes.subspan(static_cast<size_t>(row) * size, size);
  out.shape[0] = 1;
  return out;
}

// Ranks other than 2 are flattened: leading dimensions are rows, a vector is one row.
Shape shape_of(const safetensors::Tensor& t) {
  const int64_t cols = t.shape.empty() ? 1 : t.shape.back();
  return {t.shape.size() < 2 ? 1 : cols ? t.count() / cols : t.shape.front(), cols};
}

class Expander {
 public:
  Expander(const safetensors::File& file, const json::Value& params, const Captures& captures) : file_(file), params_(params), captures_(captures) {
    const auto c = captures.find("c");
    for (const char* list : {"cases", "configs"})
      if (const json::Value* cases = params.find(list); cases && cases->array() && c != captures.end())
        for (const json::Value& one : *cases->array())
          if (one.text("prefix") == c->second + ".") case_ = &one;
  }

  // Replaces every {...}; `as_line`: words become the line's words.
  Result<string> expand(string_view text, bool as_line) const {
    string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '{') {
        out += text[at++];
        continue;
      }
      size_t end = at, depth = 0;
      do {
        depth += text[end] == '{';
        depth -= text[end] == '}';
        ++end;
      } while (depth > 0);
      auto value = replace(text.substr(at + 1, end - at - 2));
      if (!value) return value.error();
      out += as_line ? line_word(*value) : *value;
      at = end;
    }
    return out;
  }

  // A tensor, or a row of it: `t[i]`.
  Result<safetensors::Tensor> tensor(string_view name) const {
    const size_t open = name.find('[');
    const string plain = own(name.substr(0, open));
    const safetensors::Tensor* t = file_.find(plain);
    if (!t) return wrong(fmt::format("no tensor '{}' in the file", plain));
    if (open == string_view::npos) return *t;
    auto row = row_of(*t, std::atoll(string(name.substr(open + 1)).c_str()));
    if (!row) return wrong(fmt::format("tensor '{}' has no row {}", plain, name.substr(open)));
    return *row;
  }
  // "<c>.input" of "~input" where the file has one.
  string own(string_view name) const {
    if (!name.starts_with('~')) return string(name);
    const auto c = captures_.find("c");
    const string mine = c == captures_.end() ? "" : c->second + "." + string(name.substr(1));
    return file_.find(mine) ? mine : string(name.substr(1));
  }
  // t0, t1, ... of "t#".
  std::vector<safetensors::Tensor> series(string_view name) const {
    std::vector<safetensors::Tensor> out;
    const size_t mark = name.find('#');
    for (int i = 0;; ++i) {
      const safetensors::Tensor* t = file_.find(fmt::format("{}{}{}", name.substr(0, mark), i, name.substr(mark + 1)));
      if (!t) return out;
      out.push_back(*t);
    }
  }
  // "direction=rowwise", "c!=rowscaled": whether a field or a capture is, or is not, that word.
  bool holds(string_view condition) const {
    if (condition.empty()) return true;
    const size_t equals = condition.find('=');
    const bool negated = condition[equals - 1] == '!';
    const auto value = expand("{" + string(condition.substr(0, equals - negated)) + "}", false);
    return (value && *value == condition.substr(equals + 1)) != negated;
  }

 private:
  const json::Value* field(string_view name) const {
    const json::Value* v = case_ ? case_->find(name) : nullptr;
    return v ? v : params_.find(name);
  }

  Result<string> replace(string_view inside) const {
    const size_t colon = inside.find(':');
    if (colon == string_view::npos) {
      if (const auto c = captures_.find(inside); c != captures_.end()) return c->second;
      const json::Value* v = field(inside);
      if (!v) return wrong(fmt::format("params lack '{}'", inside));
      if (v->string()) return *v->string();
      if (const auto i = v->to_int()) return std::to_string(*i);
      if (const auto b = v->to_bool()) return string(*b ? "1" : "0");
      return wrong(fmt::format("params.{} is {}, expected a word or an integer", inside, v->describe()));
    }
    const string_view what = inside.substr(0, colon);
    const auto argument = expand(inside.substr(colon + 1), false);
    if (!argument) return argument.error();
    if (what == "f32") {
      const json::Value* v = field(*argument);
      const auto number = v ? v->to_double() : std::nullopt;
      if (!number) return wrong(fmt::format("params lack the number '{}'", *argument));
      const float narrow = static_cast<float>(*number);   // a file's parameter, not a normative step
      uint32_t bits;
      std::memcpy(&bits, &narrow, 4);
      return fmt::format("0x{:08X}", bits);
    }
    if (what == "blocks") return scaled_shape(std::atoll(argument->c_str()), argument->substr(argument->find(',') + 1));
    if (what == "signs") return signs(*argument);
    if (what == "total" || what == "sizes") return members(what, *argument);
    const size_t comma = argument->find(',');
    const string name = argument->substr(0, comma);
    const auto found = tensor(name);
    if (!found) return found.error();
    const safetensors::Tensor& t = *found;
    const Shape shape = shape_of(t);
    if (what == "shape") return fmt::format("{}x{}", shape.rows, shape.cols);
    if (what == "unpacked") return fmt::format("{}x{}", shape.rows, shape.cols * 2);
    if (what == "rows") return std::to_string(t.shape.empty() ? 1 : t.shape[0]);
    if (what == "count") return fmt::format("1x{}", t.count());
    if (what == "source") {
      const auto e = encoding_of(t.dtype);
      if (!e) return wrong(fmt::format("tensor '{}' is {}, which is no source encoding", name, safetensors::name(t.dtype)));
      return string(info(*e).name);
    }
    const auto dtype = what == "word" ? safetensors::Dtype::U32 : safetensors::Dtype::F32;
    if (t.dtype != dtype || t.count() < 1)
      return wrong(fmt::format("tensor '{}' has no {} element: it is {} with {} elements", name, safetensors::name(dtype), safetensors::name(t.dtype), t.count()));
    const uint32_t bits = code_at(Encoding::f32, t.bytes, 0);
    if (what == "word") return std::to_string(bits);
    if (what == "amax" && value_of(Encoding::f32, bits) == largest(argument->substr(comma + 1))) return string("computed");
    return fmt::format("0x{:08X}", bits);
  }

  // The largest magnitude of a tensor; NaN where it has none.
  double largest(const string& name) const {
    const auto t = tensor(name);
    const auto e = t ? encoding_of(t->dtype) : std::nullopt;
    double most = e ? 0 : std::numeric_limits<double>::quiet_NaN();
    for (int64_t i = 0; e && i < t->count(); ++i)
      if (const double v = std::fabs(value_of(*e, code_at(*e, t->bytes, i))); v > most) most = v;
    return most;
  }

  // A mask in hexadecimal, or whether TransformerEngine's is used.
  Result<string> signs(string_view name) const {
    const json::Value* v = field(name);
    if (v && v->string()) return *v->string();
    if (v && v->to_bool()) return fmt::format("0x{:04X}", *v->to_bool() ? kRhtSignMask : 0);
    return wrong(fmt::format("params lack '{}': a mask, or true or false", name));
  }

  Result<string> members(string_view what, const string& name) const {
    int64_t total = 0;
    string sizes;
    for (const safetensors::Tensor& t : series(name)) {
      total += t.count();
      sizes += fmt::format("{}{}x{}", sizes.empty() ? "" : ",", shape_of(t).rows, shape_of(t).cols);
    }
    if (sizes.empty()) return wrong(fmt::format("no tensor '{}' in the file", name));
    return what == "total" ? std::to_string(total) : sizes;
  }

  // The shape of x from the logical sizes of its scales; `direction`: a word, or the field that has it. Column scales of MXFP8 (colwise) lie as
  // x does, of the others as its transpose.
  Result<string> scaled_shape(int64_t block, string_view direction) const {
    const json::Value *dims = field("logical_dims"), *named = field(direction);
    if (named && named->string()) direction = *named->string();
    const auto* sizes = dims ? dims->array() : nullptr;
    if (!sizes || sizes->size() != 2 || !(*sizes)[0].to_int() || !(*sizes)[1].to_int()) return wrong("the case lacks logical_dims of two integers");
    const int64_t a = *(*sizes)[0].to_int(), b = *(*sizes)[1].to_int();
    if (a < 0 || b < 0 || a > kMaxElements / block || b > kMaxElements / block) return wrong("logical_dims are out of range");
    if (direction == "rowwise" || direction == "row") return fmt::format("{}x{}", a, b * block);
    return direction == "col" ? fmt::format("{}x{}", b * block, a) : fmt::format("{}x{}", a * block, b);
  }

  const safetensors::File& file_;
  const json::Value& params_;
  const Captures& captures_;
  const json::Value* case_ = nullptr;
};

// Rows of `from` columns into rows of `to` columns, zeros elsewhere.
std::vector<std::byte> pad(std::span<const std::byte> bytes, Shape from, Shape to, size_t element) {
  std::vector<std::byte> out(static_cast<size_t>(to.count()) * element);
  const size_t row = static_cast<size_t>(from.cols) * element;
  if (row == 0) return out;
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(out.data() + static_cast<size_t>(r * to.cols) * element, bytes.data() + static_cast<size_t>(r) * row, row);
  return out;
}

Error misfit(string_view tensor, const safetensors::Tensor& t, const Plane& plane) {
  return wrong(fmt::format("tensor '{}' ({}, {} elements) does not fit plane {} ({}, {}x{}, padded {}x{})", tensor, safetensors::name(t.dtype), t.count(), plane.name,
                           info(plane.encoding).name, plane.logical.rows, plane.logical.cols, plane.padded.rows, plane.padded.cols));
}

// 0: does not fit; 1: the meaningful elements, row by row; 2: all padded ones in the stored order, which is what a GEMM layout always is.
int fit(Shape shape, int64_t count, const Plane& plane) {
  if (plane.packed) return shape == Shape{plane.padded.rows, plane.padded.cols / 2} || count * 2 == plane.padded.count() ? 2 : 0;
  auto same = [&](Shape s) { return shape == s || (count == s.count() && (shape.rows == 1 || s.rows == 1 || shape.cols == 1)); };
  if (plane.layout == ScaleLayout::gemm) return same(plane.padded) ? 2 : 0;
  return same(plane.logical) ? 1 : same(plane.padded) ? 2 : 0;
}

bool fits_encoding(const safetensors::Tensor& t, const Plane& plane) {
  const auto e = encoding_of(t.dtype);
  return e ? *e == plane.encoding : t.dtype == safetensors::Dtype::U8 && info(plane.encoding).bytes() == 1;   // codes are often kept as raw bytes
}

const Plane* plane_named(const std::vector<Plane>& planes, string_view name) {
  for (const Plane& p : planes)
    if (p.name == name) return &p;
  return nullptr;
}

// The output plane called so; "row.data[2]" is that of the third member.
std::optional<Plane> output_plane(const Problem& p, string_view name) {
  const auto member = member_of(name);
  const std::vector<Plane> out = output_planes(p);
  const Plane* plane = plane_named(out, name.substr(0, name.find('[')));
  if (!plane || member.has_value() == plane->members.empty()) return {};
  if (!member) return *plane;
  if (*member >= plane->members.size()) return {};
  return member_plane(*plane, *member);
}

// The bytes of `@how:tensors`.
Result<PlaneData> made_plane(string_view text, const Expander& from, const Plane& plane) {
  const size_t colon = std::min(text.find(':'), text.size());
  const string_view how = text.substr(0, colon), names = text.substr(std::min(colon + 1, text.size()));
  PlaneData out{plane, std::vector<std::byte>(plane.bytes())};
  if (how == "@codes") {
    for (size_t i = 0; i < out.bytes.size(); ++i) out.bytes[i] = static_cast<std::byte>(i);
    return out;
  }
  if (how == "@join") {
    out.bytes.clear();
    for (const safetensors::Tensor& t : from.series(names)) out.bytes.insert(out.bytes.end(), t.bytes.begin(), t.bytes.end());
    if (out.bytes.size() != plane.bytes()) return wrong(fmt::format("tensors '{}' have {} bytes, plane {} has {}", names, out.bytes.size(), plane.name, plane.bytes()));
    return out;
  }
  const auto t = from.tensor(names.substr(0, names.find(',')));
  if (!t) return t.error();
  if (how == "@head") {
    if (t->bytes.size() < out.bytes.size() || !fits_encoding(*t, plane)) return misfit(names, *t, plane);
    std::copy_n(t->bytes.begin(), out.bytes.size(), out.bytes.begin());
    return out;
  }
  const auto set = [&](int64_t i, uint32_t word) { set_code(plane, out.bytes, i, word); };
  const auto word = [](const safetensors::Tensor& of, int64_t i) { return code_at(Encoding::u32, of.bytes, i); };
  if (how == "@pairs") {
    const auto second = from.tensor(names.substr(names.find(',') + 1));
    if (!second) return second.error();
    if (!fits_encoding(*t, plane) || !fits_encoding(*second, plane) || 2 * t->count() != plane.logical.count() || t->count() != second->count()) return misfit(names, *t, plane);
    for (int64_t i = 0; i < t->count(); ++i) {
      set(2 * i, word(*t, i));
      set(2 * i + 1, word(*second, i));
    }
    return out;
  }
  if (t->dtype != safetensors::Dtype::U32 || t->count() != 6) return wrong(fmt::format("tensor '{}' is not U32 [6]", names));
  for (int64_t i = 0; i < plane.logical.rows; ++i) {
    if (how == "@seeds") {
      set(2 * i, word(*t, 0));
      set(2 * i + 1, word(*t, 1));
      continue;
    }
    const uint64_t offset = word(*t, 4) | uint64_t{word(*t, 5)} << 32, low = offset + static_cast<uint64_t>(i);
    const uint64_t high = (word(*t, 2) | uint64_t{word(*t, 3)} << 32) + (low < offset);   // the carry goes on
    for (int64_t w = 0; w < 4; ++w) set(4 * i + w, static_cast<uint32_t>((w < 2 ? low : high) >> (w % 2 * 32)));
  }
  return out;
}

// What an expected tensor of another form says the plane's meaningful elements are.
Result<std::vector<std::byte>> converted(string_view as, const safetensors::Tensor& t, const Plane& plane) {
  const int64_t n = plane.logical.count();
  Plane dense = plane;
  dense.padded = plane.logical;
  std::vector<std::byte> out(dense.bytes());
  const bool f32 = t.dtype == safetensors::Dtype::F32;
  if (as == "packed") {
    if (static_cast<int64_t>(t.bytes.size()) != (n + 1) / 2) return misfit(t.name, t, plane);
    for (int64_t i = 0; i < n; ++i) set_code(dense, out, i, std::to_integer<uint32_t>(t.bytes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & std::byte{15}));
  } else if (as == "reciprocal") {
    if (!f32 || t.count() != n) return misfit(t.name, t, plane);
    for (int64_t i = 0; i < n; ++i) {
      const double v = value_of(Encoding::f32, code_at(Encoding::f32, t.bytes, i));
      set_code(dense, out, i, std::isnan(v) ? info(Encoding::f32).nan : std::bit_cast<uint32_t>(static_cast<float>(1 / v)));
    }
  } else if (as == "arithmetic") {
    if (t.count() != n || encoding_of(t.dtype) != plane.encoding) return misfit(t.name, t, plane);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t code = code_at(plane.encoding, t.bytes, i);
      set_code(dense, out, i, is_nan(plane.encoding, code) ? info(plane.encoding).nan : code);
    }
  } else if (as == "narrowed") {
    if (!f32 || t.count() != n || info(plane.encoding).bits != 16) return misfit(t.name, t, plane);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = code_at(Encoding::f32, t.bytes, i);
      if (plane.encoding != Encoding::bf16 || bits & 0xFFFF) return wrong(fmt::format("tensor '{}' has values that {} lacks", t.name, info(plane.encoding).name));
      set_code(dense, out, i, bits >> 16);
    }
  } else {                                                                // rotation (N11.1): signs of row i times H[i][j] / 4
    if (plane.logical != Shape{16, 16} || (f32 ? t.count() != 16 : t.dtype != safetensors::Dtype::U32 || t.count() != 1)) return misfit(t.name, t, plane);
    for (unsigned i = 0; i < 16; ++i)
      for (unsigned j = 0; j < 16; ++j) {
        const bool negative = f32 ? code_at(Encoding::f32, t.bytes, i) >> 31 != 0 : (code_at(Encoding::u32, t.bytes, 0) >> i & 1) != 0;
        const bool minus = negative != ((std::popcount(i & j) & 1) != 0);
        set_code(dense, out, i * 16 + j, 0x3E80u | (minus ? 0x8000u : 0u));
      }
  }
  return out;
}

Result<VectorCheck> check_of(const VectorRow& row, const safetensors::File& file, const json::Value& params, const safetensors::Tensor& expected,
                             const Captures& captures, const string& path, const string& sha256) {
  const Expander expander(file, params, captures);
  VectorCheck check;
  check.tensor = expected.name;
  check.variant = row.variant;
  if (const auto s = captures.find("source_name"); s != captures.end()) check.source = s->second;
  if (const auto c = captures.find("c"); c != captures.end()) check.in_case = c->second;

  const auto line = expander.expand(row.line, true);
  if (!line) return line.error();
  auto problem = parse_line(*line);
  if (!problem) return wrong(fmt::format("'{}': {}", *line, problem.error().text()));
  check.problem = *problem;

  const std::vector<Plane> in = input_planes(check.problem);
  for (string_view rest = row.inputs; !rest.empty();) {
    const string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const auto name = expander.expand(item.substr(0, item.find('=')), true);
    if (!name) return name.error();
    const Plane* plane = plane_named(in, *name);
    if (!plane) return wrong(fmt::format("'{}' has no input plane {}", *line, *name));
    const auto from = expander.expand(item.substr(item.find('=') + 1), false);
    if (!from) return from.error();
    if (from->starts_with('@')) {
      auto made = made_plane(*from, expander, *plane);
      if (!made) return made.error();
      check.inputs.push_back(std::move(*made));
      continue;
    }
    const auto t = expander.tensor(*from);
    if (!t) return t.error();
    const bool flat = !plane->members.empty() && t->count() == plane->logical.cols;   // one value for each member
    const int how = flat ? 2 : fit(shape_of(*t), t->count(), *plane);
    if (!how || !fits_encoding(*t, *plane)) return misfit(*from, *t, *plane);
    check.inputs.push_back({*plane, how == 2 ? std::vector<std::byte>(t->bytes.begin(), t->bytes.end())
                                             : pad(t->bytes, plane->logical, plane->padded, static_cast<size_t>(info(plane->encoding).bytes()))});
    if (*name == "x" && from->find('[') == string::npos) {
      check.problem.x.fill.kind = FillKind::pack;
      check.problem.x.fill.payload = path + "#" + expander.own(*from) + "@" + sha256;
    }
  }

  const auto name = expander.expand(row.plane, true);
  if (!name) return name.error();
  check.plane = *name;
  const auto plane = output_plane(check.problem, check.plane);
  if (!plane) return wrong(fmt::format("'{}' has no output plane {}", *line, check.plane));
  if (!row.as.empty()) {
    auto made = converted(row.as, expected, *plane);
    if (!made) return made.error();
    check.want = std::move(*made);
    return check;
  }
  const int how = fit(shape_of(expected), expected.count(), *plane);
  if (!how || !fits_encoding(expected, *plane)) return misfit(expected.name, expected, *plane);
  check.padded = how == 2;
  check.want.assign(expected.bytes.begin(), expected.bytes.end());
  return check;
}

}  // namespace

std::span<const VectorRow> vector_rows() { return all_rows(); }

bool known_family(string_view family) {
  return family == kTensorCoreFamily || is_training_family(family) || std::any_of(all_rows().begin(), all_rows().end(), [&](const VectorRow& r) { return r.family == family; });
}

string_view deciding_clauses(string_view family, string_view label) {
  for (const string_view l : {label, string_view{}})
    for (const Dispute& d : kDisputes)
      if ((d.family.empty() || d.family == family) && d.label == l) return d.clauses;
  return {};
}

Result<std::vector<VectorCheck>> checks_of(string_view family, const safetensors::File& file, const json::Value& params, string_view tensor, const string& path,
                                           const string& sha256) {
  const safetensors::Tensor* expected = file.find(tensor);
  if (!expected) return wrong(fmt::format("no tensor '{}' in the file", tensor));
  if (family == kTensorCoreFamily && tensor == "d") return tensor_core_checks(file);
  std::vector<VectorCheck> out;
  bool fits = false;
  for (const VectorRow& row : all_rows()) {
    if (row.family != family) continue;
    const bool each = row.tensor.ends_with("[{i}]");
    Captures captures;
    if (!match_cases(each ? string_view(row.tensor).substr(0, row.tensor.size() - 5) : row.tensor, tensor, captures)) continue;
    if (!Expander(file, params, captures).holds(row.when)) continue;
    fits = true;
    for (int64_t i = 0, n = !each ? 1 : expected->shape.empty() ? 0 : expected->shape[0]; i < n; ++i) {
      if (each) captures["i"] = std::to_string(i);
      auto check = check_of(row, file, params, each ? *row_of(*expected, i) : *expected, captures, path, sha256);
      if (!check) return check.error();
      if (each) check->tensor += fmt::format("[{}]", i);
      out.push_back(std::move(*check));
    }
  }
  if (!fits) return wrong(fmt::format("family {} has no row for a tensor called '{}'", family, tensor));
  return out;
}

}  // namespace assay

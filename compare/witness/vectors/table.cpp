#include "compare/witness/vectors/table.h"

#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace assay {

namespace {

using std::string;
using std::string_view;

// clang-format off
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

    // what a library's compiled kernel made of a line (fixtures/vectors/kernels): the line says all of it
    {"kernel", "{c}.{dir:row|col}.{what}", "{line}", "", "{dir}.{what}"},

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
// clang-format on

// Tensors that a launch leaves, and the planes that hold them.
struct Held {
  string tensor, plane;
};
using HeldList = std::vector<Held>;

// The rows of kRows, and those that several tensors, directions or families share.
struct Rows {
  std::vector<VectorRow> all{std::begin(kRows), std::end(kRows)};

  void add(VectorRow row) { all.push_back(std::move(row)); }
  // Tensors that a quantize leaves, of a launch of their direction and of a launch of both.
  void quantize(const string& family, const string& line, const HeldList& held) {
    for (const Held& h : held)
      for (const string& dir : {h.plane.substr(0, 3), string("both")})
        add({family, h.tensor, line + " dir=" + dir, "x=~input", h.plane});
  }
  // Those of a launch of both alone.
  void both(const string& family, const string& line, const HeldList& held) {
    for (const Held& h : held) add({family, h.tensor, line + " dir=both", "x=~input", h.plane});
  }
  void dequantize(const string& family, const string& keys, const string& inputs) {
    const string line = "dequantize " + keys + " dir=row input=codes out=";
    add({family, "~dequant_{out}", line + "{out}", inputs, "y", "arithmetic"});
    add({family, "~dequant", line + "{source:~dequant}", inputs, "y", "arithmetic"});
  }
};

const string kShape = " {shape:~input} {source:~input}";

void add_fp8_block(Rows& rows) {
  const string scaled = " pow2={force_pow_2_scales} eps={f32:amax_epsilon}";
  for (const auto& [family, block] :
       {std::pair("fp8_block_1d", " block=1x128"), {"fp8_block_2d", " block=128x128"}}) {
    const string keys = "fp8_block" + kShape + " element={format}";
    rows.quantize(family, "quantize " + keys + scaled + block,
                  {{"~data", "row.data"},
                   {"~scale_inv", "row.scale_inv"},
                   {"~data_t", "col.data"},
                   {"~scale_inv_t", "col.scale_inv"}});
    rows.dequantize(family, keys + block, "row.scale_inv=~scale_inv row.data=~data");
  }
  const string disputed = "quantize fp8_block" + kShape + " dir=row element={format}" + scaled;
  for (const string variant :
       {"", "scale_limit=source_max"}) {  // N3.5: what TransformerEngine's kernels pass (N8.5)
    const string family = "fp8_block_disputed", line = disputed + " " + variant;
    rows.add({family, "~{what:data|scale_inv}", line, "x=~input", "row.{what}", "", "", variant});
    rows.add({family, "~scale_given_nan_ignoring_amax", line, "x=~input", "row.scale_inv", "reciprocal", "",
              variant});
  }
}

void add_mxfp4(Rows& rows) {
  const string line = "quantize mxfp4" + kShape;
  rows.quantize("mxfp4", line,
                {{"~data", "row.data"},
                 {"~scale_e8m0", "row.scale_inv"},
                 {"~data_t", "col.data"},
                 {"~scale_e8m0_t", "col.scale_inv"}});
  rows.both("mxfp4", line + " scales=gemm",
            {{"~scale_e8m0_swizzled", "row.scale_gemm"}, {"~scale_e8m0_t_swizzled", "col.scale_gemm"}});
  rows.dequantize("mxfp4", "mxfp4" + kShape, "row.scale_inv=~scale_e8m0 row.data=~data");
}

void add_mxfp6(Rows& rows) {
  const string keys = "mxfp6" + kShape + " element={format}", packed = keys + " packing=packed";
  rows.quantize("mxfp6", "quantize " + keys,
                {{"~data", "row.data"},
                 {"~scale_e8m0", "row.scale_inv"},
                 {"~data_t", "col.data"},
                 {"~scale_e8m0_t", "col.scale_inv"}});
  rows.quantize("mxfp6", "quantize " + packed,
                {{"~data_packed", "row.data"}, {"~data_packed_t", "col.data"}});
}

// NVFP4: the amax is given; where it is the tensor's own it is computed as well.
const string kGiven = " amax={bits:~global_amax}", kComputed = " amax={amax:~global_amax,~input}",
             kNvfp4 = "quantize nvfp4" + kShape;
const HeldList kCodes = {{"~data", "row.data"},
                         {"~scale", "row.scale_inv"},
                         {"~data_t", "col.data"},
                         {"~scale_t", "col.scale_inv"}};

void add_nvfp4(Rows& rows) {
  for (const auto& [family, keys] : {std::pair("nvfp4_1d", ""),
                                     {"nvfp4_2d", " block=16x16"},
                                     {"nvfp4_1d_fastmath", " multiplier=bf16_quotient"}}) {
    rows.quantize(family, kNvfp4 + keys + kGiven, kCodes);
    rows.both(family, kNvfp4 + keys + kComputed, kCodes);
    rows.both(family, kNvfp4 + keys + kGiven + " scales=gemm",
              {{"~scale_swizzled", "row.scale_gemm"}, {"~scale_t_swizzled", "col.scale_gemm"}});
    rows.dequantize(family, "nvfp4" + kShape,
                    "row.amax=~global_amax row.scale_inv=~scale row.data=~data");  // copies of a square
                                                                                   // block's scale are alike
  }
  for (const auto& [what, plane] : {std::pair("data", "row.data"), {"scale", "row.scale_inv"}})
    rows.add({"nvfp4_disputed", string("~{block:1d|2d}.") + what, kNvfp4 + " dir=row block={block}" + kGiven,
              "x=~input", plane});
}

// NVFP4 with four over six, with an amax per row, and with both.
void add_nvfp4_choices(Rows& rows) {
  const string choice = " four_over_six={mode} e4m3_max={m} four_over_six_error={error}";
  HeldList chosen = kCodes;
  for (Held& h : chosen) h.tensor = "e{m:448|256}.{mode:mae|mse}.{error:exact|fast}." + h.tensor.substr(1);
  rows.quantize("nvfp4_4over6", kNvfp4 + " block={block}" + choice + kGiven, chosen);
  rows.both("nvfp4_4over6", kNvfp4 + " block={block}" + choice + kComputed, chosen);
  const HeldList amaxes = {{"~row_amax", "row.amax"}, {"~col_amax", "col.amax"}};
  rows.quantize("nvfp4_row_scaled", kNvfp4 + " row_scaled=1", kCodes);
  rows.quantize("nvfp4_row_scaled", kNvfp4 + " row_scaled=1", amaxes);
  rows.dequantize("nvfp4_row_scaled", "nvfp4" + kShape + " row_scaled=1",
                  "row.amax=~row_amax row.scale_inv=~scale row.data=~data");
  rows.quantize("nvfp4_row_scaled_4over6", kNvfp4 + " row_scaled=1" + choice, chosen);
  rows.quantize("nvfp4_row_scaled_4over6", kNvfp4 + " row_scaled=1", amaxes);
}

void add_rotation(Rows& rows) {
  for (const string sum : {"butterfly", "exact"}) {
    const string mask = "sign_mask={signs:random_sign_mask}";
    const string columns = kNvfp4 + " col.rht=1 col." + mask + " col.rht_sum=" + sum;
    rows.quantize("nvfp4_rht", columns,
                  {{"~data_t", "col.data"}, {"~scale_t", "col.scale_inv"}, {"~amax_col", "col.amax"}});
    rows.both("nvfp4_rht", columns,
              {{"~data", "row.data"}, {"~scale", "row.scale_inv"}, {"~amax_row", "row.amax"}});
    for (const auto& [tensor, plane] : {std::pair("~input_t_rht", "y"), {"~amax_col", "amax"}})
      rows.add({"nvfp4_rht", tensor, "hadamard nvfp4" + kShape + " " + mask + " rht_sum=" + sum, "x=~input",
                plane});
  }
  // The matrix is what the rotation makes of unit vectors.
  string impulses = " fill=literal:3f80@0.0";
  for (int i = 1; i < 16; ++i) impulses += fmt::format("+3f80@{}.{}", i, i);
  const string with_signs = "hadamard nvfp4 16x16 bf16 sign_mask={signs:sign_mask_hex}" + impulses;
  const string without = "hadamard nvfp4 16x16 bf16 sign_mask=0x0000" + impulses;
  rows.add({"rht", "rht_matrix_signed", with_signs, "", "y"});
  rows.add({"rht", "rht_matrix_unsigned", without, "", "y"});
  rows.add({"rht", "hadamard16_scaled", without, "", "y", "narrowed"});
  rows.add({"rht", "sign_{what:vector|mask}", with_signs, "", "y", "rotation"});
}

void add_nvfp4_scales(Rows& rows) {
  const string chain = "scale_chain nvfp4 {rows:global_amax}x2 f32",
               pairs = "x=@pairs:global_amax,block_amax";
  rows.add({"nvfp4_scale_chain", "S_enc", chain, pairs, "encode_scale"});
  rows.add({"nvfp4_scale_chain", "S_enc_e4m3max256", chain + " e4m3_max=256", pairs, "encode_scale"});
  rows.add({"nvfp4_scale_chain", "block_scale_e4m3", chain, pairs, "scale_inv"});
  rows.add({"nvfp4_scale_chain", "element_multiplier", chain, pairs, "multiplier"});
  // Only four over six has a largest scale of 256; which error chose does not matter to a dequantize.
  const string family = "nvfp4_dequantize", planes = " row.scale_inv=scale row.data=data";
  for (const auto& [most, keys] : {std::pair("e448.", ""), {"e256.", " four_over_six=mae e4m3_max=256"}}) {
    const string line = string("dequantize nvfp4 {unpacked:data} f32 dir=row input=codes out={out}") + keys;
    rows.add({family, string(most) + "rowscaled.{out}", line + " row_scaled=1", "row.amax=row_amax" + planes,
              "y", "arithmetic"});
    rows.add({family, string(most) + "{c}.{out}", line, "row.amax={c}.global_amax" + planes, "y",
              "arithmetic", "c!=rowscaled"});
  }
}

// Scales of NVFP4 and MXFP4, of either direction, move like the row scales of MXFP8 (N6.6).
void add_swizzles(Rows& rows) {
  const string family = "scale_swizzle", rowwise = "direction=rowwise";
  for (const auto& [format, source] : {std::pair("nvfp4 {blocks:16,", "e4m3"), {"mxfp4 {blocks:32,", "e8m0"}})
    for (const string dir : {"row", "col"}) {
      const string line = string("swizzle ") + format + dir + "} " + source + " dir=" + dir;
      const string inv = dir + ".scale_inv", gemm = dir + ".scale_gemm";
      rows.add({family, "{c}.swizzled", line, inv + "={c}.scale", gemm, "", rowwise});
      rows.add(
          {family, "{c}.unswizzled", line + " inverse=1", gemm + "={c}.unswizzle_input", inv, "", rowwise});
    }
}

std::vector<VectorRow> make_rows() {
  Rows rows;
  add_fp8_block(rows);
  add_mxfp6(rows);
  add_mxfp4(rows);
  add_nvfp4(rows);
  add_nvfp4_choices(rows);
  add_rotation(rows);
  add_nvfp4_scales(rows);
  add_swizzles(rows);
  return std::move(rows.all);
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

}  // namespace

std::span<const VectorRow> vector_rows() {
  static const std::vector<VectorRow> kAll = make_rows();
  return kAll;
}

string_view deciding_clauses(string_view family, string_view label) {
  for (const string_view l : {label, string_view{}})
    for (const Dispute& d : kDisputes)
      if ((d.family.empty() || d.family == family) && d.label == l) return d.clauses;
  return {};
}

}  // namespace assay

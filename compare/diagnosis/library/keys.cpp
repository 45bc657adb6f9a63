// Keys of the line: what a value of a key means where another is asked for, and lines with other keys.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "compare/diagnosis/library/rows.h"
#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/numerics.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;
using enum Stage;

// `block_scale` of a per-tensor format is its tensor's.
struct KeyRow {
  std::string_view key, value;
  Stage stage;
  std::string_view title;
};
constexpr KeyRow kKeyRows[] = {
    {"mx_scale", "floor", block_scale, "E8M0 scale from the floored exponent of the amax (OCP)"},
    {"mx_scale", "up", block_scale, "E8M0 scale from amax / MAX rounded up"},
    {"mx_scale", "down", block_scale, "E8M0 scale from amax / MAX rounded down"},
    {"mx_scale", "nearest", block_scale, "E8M0 scale from amax / MAX rounded to the nearest power of two"},
    {"mx_scale", "ceil", block_scale, "E8M0 scale from the raised exponent of the amax"},
    {"mx_scale", "even", block_scale,
     "E8M0 scale from the exponent of the amax rounded at the element's precision"},
    {"mx_scale", "even_e2m1", block_scale,
     "E8M0 scale from the exponent of the amax rounded at E2M1's precision"},
    {"mx_inf", "nan", block_scale, "an infinite amax gives a NaN scale"},
    {"mx_inf", "max", block_scale, "an infinite amax gives the largest scale"},
    {"nvfp4_scale", "folded", block_scale, "block scale from amax * (S * 1/6)"},
    {"nvfp4_scale", "quotient_first", block_scale, "block scale from (amax / 6) * S"},
    {"nvfp4_scale", "product_first", block_scale, "block scale from S * (amax * 1/6)"},
    {"nvfp4_scale", "decode", block_scale, "block scale from (amax / 6) / P"},
    {"nvfp4_scale", "decode_product", block_scale, "block scale from amax / (6 * P)"},
    {"nvfp4_scale", "given_product", block_scale,
     "block scale from amax / (6 * P), where P is the tensor amax as it is given"},
    {"nvfp4_scale", "decode_first", block_scale, "block scale from (amax / P) / 6"},
    {"nvfp4_scale", "unit", block_scale, "no tensor scale"},
    {"nvfp4_floor", "least_normal", block_scale, "block scales are at least 2^-6"},
    {"nvfp4_floor", "one", block_scale, "a block scale of 0 becomes 1"},
    {"nvfp4_floor", "eighth", block_scale, "a block scale of 0 becomes 0.125"},
    {"nvfp4_floor", "none", block_scale, "block scales underflow to 0"},
    {"scale_round", "rp", block_scale, "block scales are rounded up to E4M3"},
    {"scale_round", "away_240", block_scale,
     "block scales are rounded to the nearest E4M3 up to 240, ties away, and to 448 beyond (GGUF)"},
    {"scale_round", "rne", block_scale, "block scales are rounded to the nearest E4M3"},
    {"scale_order", "decode_first", block_scale,
     "the decode scale amax / MAX comes first, and elements are multiplied by its reciprocal"},
    {"scale_order", "decode_divide", block_scale,
     "the decode scale amax / MAX comes first, and elements are divided by it"},
    {"scale_order", "encode_first", block_scale, "the encode scale MAX / amax comes first"},
    {"pow2", "0", block_scale, "the scale is not made a power of two"},
    {"pow2", "1", block_scale, "the scale is made a power of two"},
    {"scale_division", "divide", block_scale, "scales are made by divisions, one rounding each"},
    {"scale_division", "reciprocal", block_scale,
     "scales are made by products with reciprocals, not by divisions"},
    {"scale_division", "in_source", block_scale, "every step to a scale is rounded to x's encoding too"},
    {"scale_limit", "source_max", block_scale, "an infinite scale becomes the source's largest value"},
    {"scale_limit", "f32_max", block_scale, "an infinite scale becomes FLT_MAX"},
    {"four_over_six", "off", block_scale, "every block is scaled for 6"},
    {"four_over_six", "mae", block_scale, "blocks are scaled for 4 or 6 by the mean absolute error"},
    {"four_over_six", "mse", block_scale, "blocks are scaled for 4 or 6 by the mean squared error"},
    {"four_over_six_error", "fast", block_scale, "errors of 4 and 6 are compared in the scaled domain"},
    {"four_over_six_error", "exact", block_scale, "errors of 4 and 6 are compared in the domain of x"},
    {"e4m3_max", "256", tensor_scale, "the tensor scale aims at block scales of 256"},
    {"e4m3_max", "448", tensor_scale, "the tensor scale aims at block scales of 448"},
    {"inf_amax", "zero", tensor_scale, "an infinite amax gives the scale 0"},
    {"inf_amax", "unit", tensor_scale, "an infinite amax gives the scale 1"},
    {"zero_amax", "divided", tensor_scale, "an amax of 0 is divided: zeros become 0 / 0, NaN"},
    {"zero_amax", "epsilon", tensor_scale, "an amax of 0 gives a decode scale of the source's epsilon"},
    {"zero_amax", "guarded", tensor_scale, "an amax of 0 gives the scale 1, or the code 00"},
    {"nan_tensor_amax", "unit", tensor_scale, "a NaN tensor amax gives the scale 1"},
    {"nan_tensor_amax", "clamp", tensor_scale, "a NaN tensor amax gives the scale FLT_MAX"},
    {"nan_clamp", "propagate", tensor_scale, "the minimum with FLT_MAX keeps a NaN"},
    {"nan_clamp", "drop", tensor_scale, "the minimum with FLT_MAX drops a NaN"},
    {"nan_amax", "propagate", amax, "a NaN makes its block's amax NaN"},
    {"nan_amax", "ignore", amax, "the amax of a block ignores NaN"},
    {"multiplier", "reciprocal", scaled_value, "elements are multiplied by 1 / (scale * 1/S)"},
    {"multiplier", "bf16_quotient", scaled_value,
     "elements are multiplied by S / scale rounded to bf16 (fast math)"},
    {"multiplier", "quotient", scaled_value, "elements are multiplied by S / scale"},
    {"multiplier", "decode_reciprocal", scaled_value, "elements are multiplied by (1/P) / scale"},
    {"multiplier", "product_reciprocal", scaled_value, "elements are multiplied by 1 / (scale * P)"},
    {"multiplier", "divide_product", scaled_value, "elements are divided by scale * P"},
    {"multiplier", "divide_quotient", scaled_value, "elements are divided by scale / S"},
    {"multiplier", "divide_twice", scaled_value, "elements are divided by P, and then by the scale"},
    {"zero_multiplier", "zero", scaled_value, "elements under a scale of 0 become 0"},
    {"zero_multiplier", "tiny", scaled_value, "elements under a scale of 0 are multiplied by 1e-8"},
    {"zero_multiplier", "limit", scaled_value, "elements under a scale of 0 become the largest"},
    {"pre_round", "bf16", scaled_value, "scaled elements are rounded to bf16 before they are cast"},
    {"pre_round", "f16", scaled_value, "scaled elements are rounded to f16 before they are cast"},
    {"pre_round", "f16_rz", scaled_value, "scaled elements are cut to f16 before they are cast"},
    {"pre_round", "none", scaled_value, "scaled elements are rounded once"},
    {"element_ties", "zero", code, "ties go toward zero"},
    {"element_ties", "away", code, "ties go away from zero"},
    {"element_ties", "even", code, "ties go to the even code"},
    {"element_overflow", "nan", code, "elements beyond the largest become NaN or infinity"},
    {"element_overflow", "saturate", code, "elements beyond the largest saturate"},
    {"nan_code", "negative", code, "a scaled element that is NaN has the code FF"},
    {"nan_code", "minus_zero", code, "a scaled element that is NaN has the code of -0"},
    {"nan_code", "positive", code, "a scaled element that is NaN has the code 7F, in E2M1 7"},
    {"neg_zero", "plus", code, "an exact -0 becomes +0"},
    {"neg_zero", "drop", code, "no element is coded as -0"},
    {"neg_zero", "minus", code, "an exact zero is coded as -0"},
    {"neg_zero", "keep", code, "zeros keep their sign"},
    {"round", "rne", code, "codes are rounded to the nearest, not stochastically"},
    {"round", "sr", code, "codes are rounded stochastically"},
    {"sr_rule", "fma", code, "stochastic rounding by a fused multiply-add"},
    {"sr_rule", "integer", code, "stochastic rounding by the carry of an integer sum"},
    {"sr_bytes", "interleaved", code, "the bytes of a random word serve elements 0 2 1 3"},
    {"sr_bytes", "ascending", code, "the bytes of a random word serve elements 0 1 2 3"},
    {"draw", "logical", code, "draws by the logical mapping"},
    {"draw", "te_t1d", code, "draws as TransformerEngine's 1-D kernel"},
    {"draw", "te_q2d", code, "draws as TransformerEngine's 2-D kernel"},
    {"draw", "te_fb", code, "draws as TransformerEngine's fallback kernel"},
    {"draw", "te_rhtrc", code, "draws as TransformerEngine's rotating kernel"},
    {"rht", "0", rht, "the rotation is missing"},
    {"rht", "1", rht, "the tensor is rotated"},
    {"rht_sum", "butterfly", rht, "the rotation sums by butterflies"},
    {"rht_sum", "tc16", rht, "the rotation sums as a tensor core does"},
    {"rht_sum", "exact", rht, "the rotation sums exactly"},
    {"element", "e4m3", code, "elements are coded as E4M3"},
    {"element", "e5m2", code, "elements are coded as E5M2"},
    {"block", "16x16", amax, "blocks are 16x16"},
    {"block", "1x16", amax, "blocks are 1x16"},
    {"block", "32x32", amax, "blocks are 32x32"},
    {"block", "1x32", amax, "blocks are 1x32"},
    {"block", "1x128", amax, "blocks are 1x128"},
    {"block", "128x128", amax, "blocks are 128x128"},
};

constexpr const char* kEps[] = {"0",    "1e-12", "1e-10", "1e-8",        "1e-7",          "1e-6",
                                "1e-5", "1e-4",  "1e-3",  "0.001953125", "1.17549435e-38"};

string clause_of(std::string_view key) {
  const auto numeric =
      std::find_if(kNumerics.begin(), kNumerics.end(), [&](const NumericInfo& n) { return n.name == key; });
  return numeric == kNumerics.end() ? "" : string(numeric->clause);
}

// The words of a line with one key set anew, in one direction or in all.
void set_key(std::vector<string>& line, const string& word, const KeyInfo& key,
             std::optional<Direction> only) {
  const auto remove = [&](const string& name) {
    std::erase_if(line, [&](const string& w) { return w.starts_with(name + "="); });  // "adam" is an op too
  };
  const bool everywhere = !only || !key.directional;
  const string name(key.name);
  for (const Direction d : kDirections)
    if (everywhere || *only == d) remove(string(name_of(d)) + "." + name);
  if (everywhere) remove(name);
  line.push_back(everywhere ? word : string(name_of(*only)) + "." + word);
}

}  // namespace

void add_key_rows(Rows& rows) {
  const auto add = [&](const string& keys, string title, Stage stage, string clause) -> Hypothesis& {
    Hypothesis& h = rows.add("line." + keys, std::move(title), stage, std::move(clause));
    h.keys = keys;
    return h;
  };
  for (const KeyRow& r : kKeyRows) {
    if (r.key == "mx_scale" && r.value == "even_e2m1" && rows.q.element == Encoding::e2m1)
      continue;  // N17.6: even, there
    const string keys = string(r.key) + "=" + string(r.value);
    const Stage stage = r.stage == block_scale ? rows.scale_stage() : r.stage;
    add(keys, string(r.title), stage, clause_of(r.key)).wide =
        keys == "round=sr";  // draws count from the first element
  }
  if (rows.q.format == FormatId::fp8_current || rows.q.format == FormatId::fp8_block)
    for (const char* eps : kEps)
      add(fmt::format("eps={}", eps), fmt::format("the amax is at least {}", eps), amax, "N3.2");
}

void add_flavour_rows(Rows& rows) {
  for (const FlavourInfo& f : flavours())
    if (f.is_of(rows.q.format)) {
      Hypothesis& h = rows.add("flavour." + string(f.name), fmt::format("as {} does ({})", f.name, f.keys),
                               rows.scale_stage(), "N17");
      h.keys = f.keys;
      h.named_set = true;
    }
}

std::vector<Hypothesis> line_hypotheses(const Problem& problem) {
  constexpr std::string_view kNotTried[] = {"fill", "dir", "flavour", "scale_from", "codes", "sums"};
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::vector<Hypothesis> out;
  for (const KeyInfo& key : line_keys()) {
    if (std::find(key.ops.begin(), key.ops.end(), op_name(problem)) == key.ops.end()) continue;
    if (std::find(std::begin(kNotTried), std::end(kNotTried), key.name) != std::end(kNotTried)) continue;
    for (const std::string_view value : words_of(key.values, '|')) {
      if (value.empty() || value.find_first_not_of(kLetters) != string::npos) continue;  // a form, not a word
      Hypothesis h;
      h.keys = string(key.name) + "=" + string(value);
      const auto changed = with_keys(problem, h.keys);
      if (!changed || *changed == problem) continue;
      h.id = "line." + h.keys;
      h.title = fmt::format("{} is {} ({})", key.name, value, key.summary);
      h.stage = code;
      out.push_back(std::move(h));
    }
  }
  for (auto* rows : {optimizer_hypotheses, update_hypotheses, scale_state_hypotheses, dequantize_hypotheses,
                     attention_hypotheses, gemm_sum_hypotheses, gemm_hypotheses, scale_chain_hypotheses,
                     cast_hypotheses, swizzle_hypotheses, hadamard_hypotheses})
    for (Hypothesis& h : rows(problem)) out.push_back(std::move(h));
  return out;
}

std::optional<Problem> with_keys(const Problem& problem, const string& keys, std::optional<Direction> only) {
  Problem bare = problem;
  bare.x.fill = {};
  if (keys.find("round=rne") != string::npos) bare.rng = {};  // its key does not apply any more
  const string before = to_line(bare);
  const Words words = words_of(before, ' ');
  std::vector<string> line(words.begin(), words.end());
  for (const std::string_view word : words_of(keys, ' ')) {
    const auto known = std::find_if(line_keys().begin(), line_keys().end(), [&](const KeyInfo& k) {
      return k.name == word.substr(0, word.find('='));
    });
    if (known == line_keys().end()) return {};
    set_key(line, string(word), *known, only);
  }
  auto changed = parse_line(fmt::format("{}", fmt::join(line, " ")));
  if (!changed) return {};
  if (!draws(problem) && draws(*changed) &&
      keys.find("rng=") == string::npos)  // the other direction's, or the default of the line with its fill
    changed->rng = problem.rng == Rng{} ? Rng{problem.x.fill.seed, 0, 0} : problem.rng;
  changed->x.fill = problem.x.fill;
  return std::move(*changed);
}

}  // namespace assay

// Where the stages of the library put their rows. For the files of this folder alone.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "contract/format.h"
#include "contract/problem.h"

namespace assay {

// The rows of one direction of a line, as far as they are collected, and what the stages ask about that line.
struct Rows {
  Rows(const Problem& lane, Direction d);

  const Problem& lane;
  const Quantizer& q;
  Direction d;
  const FormatInfo& format;
  bool of_rows;    // N3.12: a per-tensor format under row scales, where a row is a block of its own
  int64_t length;  // of a block; under row scales of a row
  bool square;     // blocks are squares
  std::vector<Hypothesis> list;

  // The new row. What it does is for the caller to fill in.
  Hypothesis& add(std::string id, std::string title, Stage stage, std::string clause);

  // Where a row about a scale belongs: a per-tensor format has no scales of blocks.
  Stage scale_stage() const { return format.has_blocks() ? Stage::block_scale : Stage::tensor_scale; }
  bool computes_tensor_amax() const;
  double own_eps() const;
  double largest_element() const;
};

// The amaxes that a kernel may add by mistake or take for the least, as they are written and as binary32.
inline constexpr const char* kEpsilons[] = {"1e-12", "1e-10", "1e-8", "1e-6", "1e-5", "1e-4", "1e-3"};
double epsilon(const char* text);

// One function for each stage, in files of the same names. Each adds the rows that apply.
void add_key_rows(Rows&);  // keys.cpp
void add_flavour_rows(Rows&);
void add_input_rows(Rows&);       // input.cpp
void add_rotation_rows(Rows&);    // rotation.cpp
void add_block_amax_rows(Rows&);  // block_amax.cpp
void add_own_line_rows(Rows&);
void add_tensor_amax_rows(Rows&);   // tensor_amax.cpp
void add_tensor_scale_rows(Rows&);  // tensor_scale.cpp
void add_block_scale_rows(Rows&);   // block_scale.cpp
void add_mx_rule_rows(Rows&);       // scale_rules.cpp
void add_f32_rule_rows(Rows&);
void add_nvfp4_rule_rows(Rows&);
void add_fp8_block_rule_rows(Rows&);
void add_quotient_rows(Rows&);      // quotients.cpp
void add_nan_bit_rows(Rows&);       // tensor_scale.cpp
void add_scaled_value_rows(Rows&);  // scaled_values.cpp
void add_code_rows(Rows&);          // codes.cpp
void add_draw_rows(Rows&);          // draws.cpp
void add_plane_rows(Rows&);         // planes.cpp

// Rows of a step of Adam, which change numbers of its line; none for other ops (optimizer.cpp).
std::vector<Hypothesis> optimizer_hypotheses(const Problem& problem);
// Rows of an update of delayed scaling, and of a scaled state of an optimizer; none for other ops
// (delayed_update.cpp, scaled_states.cpp).
std::vector<Hypothesis> update_hypotheses(const Problem& problem);
std::vector<Hypothesis> scale_state_hypotheses(const Problem& problem);
// Rows of a dequantize; none for other ops (dequantized.cpp).
std::vector<Hypothesis> dequantize_hypotheses(const Problem& problem);
// Steps of an attention done otherwise; none for other ops (attention.cpp).
std::vector<Hypothesis> attention_hypotheses(const Problem& problem);
// Operands of a gemm read otherwise, and its epilogue in another order; none for other ops (gemm.cpp).
std::vector<Hypothesis> gemm_hypotheses(const Problem& problem);
// Its products summed otherwise, and what its epilogue adds from other places (gemm_sums.cpp).
std::vector<Hypothesis> gemm_sum_hypotheses(const Problem& problem);
// Elements of a cast that are rounded before it; none for other ops (casts.cpp).
std::vector<Hypothesis> cast_hypotheses(const Problem& problem);
// What a scale_chain stores by a rule of its own; none for other ops (scale_chains.cpp).
std::vector<Hypothesis> scale_chain_hypotheses(const Problem& problem);
// Orders in which a swizzle back may read its scales; none for other ops (swizzled.cpp).
std::vector<Hypothesis> swizzle_hypotheses(const Problem& problem);
// Rows of the op hadamard; none for other ops (rotation.cpp).
std::vector<Hypothesis> hadamard_hypotheses(const Problem& problem);

// Rows about the scale of a block, one for each bit of `uses` (block_scale.cpp).
using ScaleOf = std::function<uint32_t(const ScaleGrid&, int64_t line, int64_t block)>;
enum ScaleUses : unsigned {
  kBoth = 1,          // for the codes and as it is stored
  kStored = 4,        // the stored scale only
  kUsedApart = 6,     // one row for the elements only, one for the stored scale only
  kUsedOrStored = 7,  // all three
};
void add_scale(Rows&, const std::string& id, const std::string& title, const ScaleOf& f, ScaleUses uses,
               bool wide = false);

// The row of an id that search makes by fitting (fitted.cpp). Nothing where the id is not of such a form or
// does not apply; `known` says which.
struct Fitted {
  bool known = false;
  std::optional<Hypothesis> row;
};
Fitted fitted_row(const std::string& id, const Problem& lane, Direction d);
// "input.rotated:0x1234[,unrounded][,own_amax]" (rotation.cpp): this direction is rotated with these signs,
// though it should not be. own_amax: the amax is still that of x.
std::optional<Hypothesis> also_rotated(const std::string& id, const Problem& lane, Direction d);

}  // namespace assay

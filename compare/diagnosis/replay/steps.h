// The steps of one replay, in the order in which a quantize takes them. Each does what hypotheses say about
// it and leaves the rest to the reference. For replay.cpp alone.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/library/matrix.h"
#include "compare/diagnosis/replay/whole_tensor.h"
#include "compare/diagnosis/replay/window.h"

namespace assay {

// One replay under way.
struct Run {
  // `p` is the lane's problem of the chosen part, with the hypotheses' keys.
  Run(const WholeTensor& whole, const Selection& chosen, Hypotheses hypotheses, Problem p);
  Run(const Run&) = delete;

  const WholeTensor& whole;
  const Hypotheses hypotheses;
  const bool everything;              // not a part of the tensor
  const std::deque<Matrix> matrices;  // x, then as each hypothesis reads it
  const bool edited;                  // x is read otherwise
  const Selection selection;
  Window window;
  const FormatInfo& format;
  const bool of_rows;    // N3.12: a per-tensor format under row scales
  const bool of_amaxes;  // scales are edited through the amaxes that they are made of

  std::optional<Matrix> turned;             // what is quantized, where it is not x (rotate)
  bool amax_given;                          // by the line
  std::optional<double> tensor_amax;        // where it is not left to the reference
  std::optional<double> shown_amax;         // what the amax plane holds then
  const AmaxOfBlock* block_amax = nullptr;  // of the hypothesis about the amax of blocks
  const ScaleGrid* of_whole = nullptr;      // all blocks' scales, where a hypothesis looks beyond the part
  std::vector<PlaneData> planes;            // as they are made so far

  const Quantizer& q() const { return window.q(); }
  const Matrix& x() const { return matrices.back(); }
  // The amax of the tensor; 0 of formats that have none.
  double whole_amax() const;
  bool has_tensor_amax() const;
  // The first hypothesis for which `f` holds, or null.
  template <class F> const Hypothesis* first(F f) const {
    for (const Hypothesis* h : hypotheses)
      if (f(*h)) return h;
    return nullptr;
  }
};

// Each of these returns false where the hypotheses do not apply, or not together.

// Has window.quantized be the rotated x where the line rotates. Only hypotheses about amaxes look at it.
bool rotate(Run& run);
// N3.1, N10.1: the amax of the tensor. `observed`: as it came.
bool set_tensor_amax(Run& run, std::optional<double> observed);
// N12.4: draws that count the other direction too.
bool couple_draws(Run& run);
// x as it is read, and what is given beside it.
void give_inputs(Run& run);
// Which amaxes and scales of blocks are edited, and whether that can be done.
bool choose_block_edits(Run& run);
// The planes as the reference makes them from the amaxes of blocks.
bool make_planes(Run& run);
// Scales before codes.
bool change_scales(Run& run);
// The codes of another line.
bool take_codes_of_line(Run& run);
// Codes one by one (code_step.cpp).
bool change_codes(Run& run);
// Codes that stand in each other's place.
bool move_codes(Run& run);
// Packed codes in another order of their bits.
bool repack_codes(Run&);
// Scales as they are stored.
bool change_stored_scales(Run& run);
// The planes of `own`, the lane's own line, the amax among them where the run had it given.
bool keep_own_planes(Run& run, const Problem& own);
// Planes written with what the other direction has.
bool take_from_other(Run& run);
// What is stored of the tensor's scale.
void change_scalars(Run& run);
// Bits that are flipped where they are stored, over the whole tensor.
bool flip_bits(Run& run);

}  // namespace assay

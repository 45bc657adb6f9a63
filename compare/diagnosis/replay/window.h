// The part of a tensor that a replay looks at: its blocks, its scales as a grid, and the planes that hold
// them.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/library/matrix.h"
#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

class WholeTensor;

// Lines and places (compare/diagnosis/library/matrix.h) in ascending order, whole blocks each.
struct Selection {
  bool everything = true;
  std::vector<int64_t> lines, places;
};
// Every line and place of x, written out.
Selection all_of(const Matrix& x);

using Hypotheses = std::span<const Hypothesis* const>;
using AmaxOfBlock = std::function<double(const BlockView&)>;

struct Window {
  const WholeTensor& whole;
  const Selection& selection;  // with its lines and places
  Problem p;                   // of the selection, with the hypotheses' keys
  Direction d;
  std::vector<PlaneData> inputs;  // as far as they are made
  const Matrix* x;                // all of it, as it is read
  const Matrix* quantized;        // the same, rotated where the line rotates

  const Quantizer& q() const { return *p.quantizer(d); }
  Quantizer& q() { return *p.quantizer(d); }
  int64_t lines() const { return static_cast<int64_t>(selection.lines.size()); }
  int64_t places() const { return static_cast<int64_t>(selection.places.size()); }
  int64_t line(int64_t i) const { return selection.lines[static_cast<size_t>(i)]; }  // in the whole tensor
  int64_t place(int64_t j) const { return selection.places[static_cast<size_t>(j)]; }
  int64_t block_length() const { return length_of(q().block); }
  int64_t block_height() const { return is_square(q().block) ? block_length() : 1; }
  int64_t blocks() const { return ceil_div(places(), block_length()); }
  std::string name(std::string_view stem) const { return plane_name(d, stem); }

  // Whether planes of the data and of scales store line i and place j as row i and column j.
  bool stored_as_seen() const;
  // The scale of selected line i and place j in a scale plane; of fp8_block's GEMM layout the first of its
  // four copies.
  int64_t scale_index_of(const Plane& scales, int64_t i, int64_t j) const;

  // The block of selected line i.
  BlockView block(const Matrix& unrotated, int64_t i, int64_t b) const;
  // Its amax as it should be, but for NaN.
  double plain_amax(int64_t i, int64_t b) const;

  // The amaxes of the blocks, by `edit` where there is one.
  ScaleGrid grid_of_amaxes(const AmaxOfBlock* edit, const Matrix& unrotated) const;
  ScaleGrid grid_of(const PlaneData& scales) const;
  // The scales as a hypothesis has them. One that looks at other blocks sees them all where `of_whole` holds
  // them.
  void edit(ScaleGrid& grid, const Hypothesis& h, const ScaleGrid* of_whole) const;
  void write(const ScaleGrid& g, const Plane& plane, std::vector<std::byte>& bytes) const;
  // Has the scales made of `g`, which are amaxes or scales.
  void give(const ScaleGrid& g, ScaleFrom from);

  PlaneData* data_in(std::vector<PlaneData>& planes) const;
  PlaneData* scales_in(std::vector<PlaneData>& planes) const;
};

}  // namespace assay

// Rows about single values that no rule makes: a bit that is flipped in a code, a scale or an element of x,
// and one scale for everything.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/library/fitted_forms.h"

namespace assay::fitted {

namespace {

using std::string;
using enum Stage;

// One place of "...=10:19-20,136-137", which is written as a region so that every id with a place is read
// alike.
struct OnePlace {
  uint32_t mask = 0;
  int64_t row = 0, col = 0;
};
std::optional<OnePlace> place_of_flip(const string& id) {
  const size_t equals = id.find('=');
  OnePlace p;
  long row1 = 0, col1 = 0;
  if (equals == string::npos ||
      std::sscanf(id.c_str() + equals, "=%x:%ld-%ld,%ld-%ld", &p.mask, &p.row, &row1, &p.col, &col1) != 5)
    return {};
  return row1 == p.row + 1 && col1 == p.col + 1 && std::has_single_bit(p.mask) ? std::optional(p)
                                                                               : std::nullopt;
}

Stage stage_of(std::string_view stem, const Plane& plane) {
  if (stem == "data") return code;
  if (stem == "amax") return amax;
  return plane.padded == Shape{1, 1} ? tensor_scale : block_scale;
}

// "flipped.data=10:19-20,136-137": this bit of this code of the plane, as it is stored.
std::optional<Hypothesis> flipped_code(const string& id, const Problem& lane, Direction d) {
  const auto p = place_of_flip(id);
  if (!p) return {};
  const size_t begin = string("flipped.").size();
  const string stem = id.substr(begin, id.find('=') - begin);
  for (const Plane& plane : output_planes(lane)) {
    if (plane.name != plane_name(d, stem)) continue;
    if (p->row >= plane.logical.rows || p->col >= plane.logical.cols) return {};
    Hypothesis h = row_of(id, stage_of(stem, plane), "",
                          fmt::format("one flipped bit: bit {} of {}, {}", std::countr_zero(p->mask),
                                      plane.name, place_text(&lane, plane, {false, p->row, p->col})));
    h.wide = true;  // one place of the whole tensor: no sample has it
    h.flip = Hypothesis::Flip{stem, p->row, p->col, p->mask};
    return h;
  }
  return {};
}

// "input.flipped=0040:19-20,136-137": this bit of this element of x, before it is read.
std::optional<Hypothesis> flipped_input(const string& id, const Problem& lane, Direction d) {
  const auto p = place_of_flip(id);
  if (!p || p->row >= lane.x.shape.rows || p->col >= lane.x.shape.cols) return {};
  Hypothesis h =
      row_of(id, input, "",
             fmt::format("one flipped bit: bit {} of x, row {}, column {}, in what was quantized or "
                         "in what was dumped",
                         std::countr_zero(p->mask), p->row, p->col));
  h.element = [p = *p, d](const Matrix& x, int64_t i, int64_t j) {
    const bool here = d == Direction::row ? i == p.row && j == p.col : j == p.row && i == p.col;
    return x.code(i, j) ^ (here ? p.mask : 0);
  };
  return h;
}

// "scale.constant:h78", "scale.constant.stored:h78": every block has this scale.
std::optional<Hypothesis> constant_scale(const string& id, const Problem& lane, Direction d) {
  const FormatInfo& format = info(lane.quantizer(d)->format);
  const size_t at = id.find(":h");
  if (at == string::npos || !format.has_blocks()) return {};
  const auto constant = static_cast<uint32_t>(std::strtoul(id.c_str() + at + 2, nullptr, 16));
  const bool stored = id.starts_with("scale.constant.stored");
  Hypothesis h =
      row_of(id, block_scale, "N5.3",
             fmt::format("every scale is {} ({}), a constant{}", code_hex(*format.scale, constant),
                         value_text(*format.scale, constant), stored ? " (the stored scale only)" : ""));
  h.use = stored ? Hypothesis::Use::stored : Hypothesis::Use::both;
  h.scale = [constant](const ScaleGrid&, int64_t, int64_t) { return constant; };
  return h;
}

}  // namespace

const std::vector<Form>& flip_forms() {
  static const std::vector<Form> kForms = {
      {"flipped.", flipped_code},
      {"input.flipped=", flipped_input},
      {"scale.constant", constant_scale},
  };
  return kForms;
}

}  // namespace assay::fitted

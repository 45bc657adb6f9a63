#include "compare/diagnosis/library/hypotheses.h"

#include <cstdlib>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

// ---- the rows as they are collected ----

Rows::Rows(const Problem& lane, Direction d)
    : lane(lane),
      q(*lane.quantizer(d)),
      d(d),
      format(info(q.format)),
      of_rows(q.row_scaled && !format.has_blocks() && q.format != FormatId::fp8_delayed),  // those are given
      square(is_square(q.block)) {
  const int64_t row = d == Direction::row ? lane.x.shape.cols : lane.x.shape.rows;
  length = of_rows ? row : length_of(q.block);
}

Hypothesis& Rows::add(std::string id, std::string title, Stage stage, std::string clause) {
  Hypothesis h;
  h.id = std::move(id);
  h.title = std::move(title);
  h.stage = stage;
  h.clause = std::move(clause);
  list.push_back(std::move(h));
  return list.back();
}

bool Rows::computes_tensor_amax() const {
  const bool has_one =
      q.format == FormatId::fp8_current || q.format == FormatId::fp8_delayed || q.format == FormatId::nvfp4;
  return has_one && !q.amax && !q.row_scaled;
}
double Rows::own_eps() const { return value_of(Encoding::f32, q.eps); }
double Rows::largest_element() const { return value_of(q.element, info(q.element).max_finite); }

double epsilon(const char* text) { return static_cast<double>(std::strtof(text, nullptr)); }

// ---- the library ----

std::vector<Hypothesis> hypotheses(const Problem& lane, Direction d) {
  Rows rows(lane, d);
  add_key_rows(rows);
  add_rotation_rows(rows);
  if (rows.format.has_blocks() || rows.of_rows)
    add_block_amax_rows(rows);  // N3.12: a row is a block of its own
  add_tensor_amax_rows(rows);
  add_tensor_scale_rows(rows);
  if (rows.format.has_blocks()) add_block_scale_rows(rows);
  add_quotient_rows(rows);
  add_nan_bit_rows(rows);
  if (rows.square) add_own_line_rows(rows);
  add_plane_rows(rows);
  add_input_rows(rows);
  if (rows.q.format != FormatId::identity) add_code_rows(rows);
  if (rows.q.round == Round::sr) add_draw_rows(rows);
  add_flavour_rows(rows);
  return std::move(rows.list);
}

std::optional<Hypothesis> hypothesis_named(const std::string& id, const Problem& lane, Direction d) {
  if (Fitted fitted = fitted_row(id, lane, d); fitted.known) return std::move(fitted.row);
  for (Hypothesis& h : hypotheses(lane, d))
    if (h.id == id) return std::move(h);
  return {};
}

}  // namespace assay

#include "compare/judge/parity.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"

namespace assay {

namespace {

std::string line_of(const PlaneDifference& d, bool explain) {
  std::string out =
      fmt::format("{} ({})   {} of {} differ", d.plane.name, info(d.plane.encoding).name, d.differ, d.of);
  if (!explain) return out;
  if (d.explained == d.differ) return out + ", all inside the blocks that the cause affects";
  return out + fmt::format(", {} inside the blocks that the cause affects", d.explained);
}

}  // namespace

Breach difference_breach(std::string claim, const Problem& problem, const PlaneDifference& d,
                         std::string_view got, std::string_view want) {
  Breach b = complaint(std::move(claim), got, "", want);
  b.at(&problem, d.plane, d.place);
  b.differ = d.differ;
  b.of = d.of;
  b.got_code = d.got;
  b.want_code = d.want;
  b.apart = d.apart;
  return b;
}

std::optional<Breach> parity_breach(const Problem& problem, const Judgement& j, std::string_view got,
                                    std::string_view want) {
  if (j.equal()) return {};
  if (!j.cause) return complaint("parity", got, j.error, want);
  Breach b = difference_breach("parity", problem, *j.cause, got, want);
  b.message = j.error;
  // The results of an attention depend on whole rows and columns of earlier planes, not on blocks of x.
  const bool by_blocks = !problem.as<Attention>();
  for (const PlaneDifference& d : j.after) b.after.push_back(line_of(d, by_blocks));
  for (const PlaneDifference& d : j.beside)
    b.after.push_back(line_of(d, false) + ", in another member or direction");
  b.hint = j.hint;
  return b;
}

void look_for_ties(const Problem& problem, const std::vector<PlaneData>& inputs,
                   const std::vector<PlaneData>& got, const std::vector<PlaneData>& want, Breach& b) {
  if (!problem.as<Quantize>() || b.plane.find(".data") == std::string::npos || b.apart != 1) return;
  const Direction d = b.plane.starts_with("row") ? Direction::row : Direction::col;
  const PlaneData *data = find_plane(want, b.plane), *mine = find_plane(got, b.plane);
  if (!data || !mine || !info(problem.quantizer(d)->format).scale) return;
  const ScaledValues scaled(problem, d, inputs, want);
  const Encoding e = data->plane.encoding;
  int64_t ties = 0, differing = 0;
  for (int64_t i = 0; i < data->plane.padded.count() && differing < 100000; ++i) {
    const uint32_t w = code_at(data->plane, data->bytes, i), g = code_at(mine->plane, mine->bytes, i);
    if (w == g) continue;
    ++differing;
    const Place at = place_of(data->plane, i);
    const auto v = at.padding ? std::nullopt : scaled.at(at.row, at.col);
    ties += v && std::fabs(std::fabs(value_of(e, w) - v->value) - step_at(e, v->value) / 2) <= v->slack;
  }
  if (ties == differing)
    b.hint = "one code apart, and only where the scaled value is a tie: rounding rule, not layout";
}

}  // namespace assay

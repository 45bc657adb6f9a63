// Elements that are scaled in another way, and cast anew.
#include <cmath>
#include <string>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

void add_scaled(Rows& rows, const string& id, const char* title,
                std::function<double(const CodeView&)> scaled) {
  rows.add("scaled." + id, title, Stage::scaled_value, "N5.4").scaled = std::move(scaled);
}

// `most`: the largest element.
struct ScaledRow {
  const char* id;
  const char* title;
  double (*scaled)(const CodeView& c, double most);
};
template <size_t n> void add_table(Rows& rows, const ScaledRow (&table)[n]) {
  for (const ScaledRow& row : table)
    add_scaled(rows, row.id, row.title,
               [f = row.scaled, most = rows.largest_element()](const CodeView& c) { return f(c, most); });
}

double via_f16(const CodeView& c, double) {
  const double v = c.scaled();
  return std::isfinite(v) ? value_of(Encoding::f16, nearest_code(Encoding::f16, v)) : v;
}

constexpr ScaledRow kScaledRows[] = {
    {"once", "elements are not scaled", [](const CodeView& c, double) { return c.x; }},
    {"by_decode_scale", "elements are multiplied by the decode scale",
     [](const CodeView& c, double) { return c.divides ? c.x * c.factor : c.x / c.factor; }},
    {"twice", "elements are scaled twice",
     [](const CodeView& c, double) {
       return c.divides ? c.x / c.factor / c.factor : c.x * f32_of(c.factor * c.factor);
     }},
    {"twice_in_turn", "elements are scaled twice, one after the other",
     [](const CodeView& c, double) {
       return c.divides ? f32_of(c.x / c.factor) / c.factor : f32_of(c.x * c.factor) * c.factor;
     }},
    {"doubled", "elements are scaled by twice the right scale",
     [](const CodeView& c, double) { return c.divides ? c.x / c.factor * 2 : c.x * c.factor * 2; }},
    {"halved", "elements are scaled by half of the right scale",
     [](const CodeView& c, double) { return c.divides ? c.x / c.factor / 2 : c.x * c.factor / 2; }},
    {"via_f16", "scaled elements are rounded to f16 before they are cast", via_f16},
    {"by_stored_scale", "elements are divided by the stored scale",
     [](const CodeView& c, double) { return c.x / c.scale; }},
    {"by_its_reciprocal", "elements are multiplied by the reciprocal of the stored scale",
     [](const CodeView& c, double) { return c.x * f32_of(1 / c.scale); }},
    {"by_stored_product", "elements are multiplied by the stored scale",
     [](const CodeView& c, double) { return c.x * c.scale; }},
};

// By MAX / amax, before the scale was rounded. An amax of 0 gives 0.
constexpr ScaledRow kUnroundedRows[] = {
    {"unrounded", "elements are scaled by MAX / amax, before the scale was rounded",
     [](const CodeView& c, double most) { return c.x * f32_of(most / c.block_amax()); }},
    {"unrounded_product", "elements are multiplied by 1 / (amax * (1 / MAX)), before the scale was rounded",
     [](const CodeView& c, double most) {
       return c.x * f32_of(1 / f32_of(c.block_amax() * f32_of(1 / most)));
     }},
    {"unrounded_reciprocal", "elements are multiplied by 1 / (amax / MAX), before the scale was rounded",
     [](const CodeView& c, double most) { return c.x * f32_of(1 / f32_of(c.block_amax() / most)); }},
    {"unrounded_divided", "elements are divided by amax / MAX, before the scale was rounded",
     [](const CodeView& c, double most) { return c.x / f32_of(c.block_amax() / most); }},
};

// NVFP4: by p, the scale before it was rounded, and e, which is S. Each row comes twice, as p is made in two
// orders.
struct Nvfp4Row {
  const char* id;
  const char* title;
  double (*multiplier)(double p, double e);
};
constexpr Nvfp4Row kNvfp4Rows[] = {
    {"scale_unrounded", "elements are multiplied by 1 / (p * (1/S)), p the scale before it was rounded",
     [](double p, double e) { return 1 / f32_of(p * f32_of(1 / e)); }},
    {"scale_unrounded_quotient", "elements are multiplied by S / p, p the scale before it was rounded",
     [](double p, double e) { return e / p; }},
    {"scale_unrounded_product", "elements are multiplied by S * (1/p), p the scale before it was rounded",
     [](double p, double e) { return e * f32_of(1 / p); }},
};

double unrounded_nvfp4_scale(const CodeView& c, bool folded) {
  const double a = c.block_amax(), e = c.encode_scale;
  return folded ? f32_of(a * f32_of(e * f32_of(1.0 / 6))) : f32_of(f32_of(a / 6) * e);
}

void add_nvfp4(Rows& rows, const Nvfp4Row& row) {
  for (const bool folded : {false, true})
    add_scaled(rows, string(row.id) + (folded ? ".folded" : ""), row.title,
               [folded, multiplier = row.multiplier](const CodeView& c) {
                 const double p = unrounded_nvfp4_scale(c, folded);
                 return p == 0 ? 0 : c.x * f32_of(multiplier(p, c.encode_scale));
               });
}

}  // namespace

void add_scaled_value_rows(Rows& rows) {
  add_table(rows, kScaledRows);
  if (rows.format.has_blocks())
    for (const ScaledRow& row : kUnroundedRows)
      add_scaled(rows, row.id, row.title, [f = row.scaled, most = rows.largest_element()](const CodeView& c) {
        return c.block_amax() == 0 ? 0 : f(c, most);
      });
  if (rows.q.format == FormatId::nvfp4)
    add_scaled(rows, "by_zero",
               "elements under a scale of 0 are divided by it: infinite, and NaN where they are 0",
               [](const CodeView& c) { return c.scale == 0 ? c.x / 0.0 : c.scaled(); });
  if (rows.q.format == FormatId::nvfp4 && !rows.q.row_scaled && rows.q.four_over_six == FourOverSix::off)
    for (const Nvfp4Row& row : kNvfp4Rows) add_nvfp4(rows, row);
}

}  // namespace assay

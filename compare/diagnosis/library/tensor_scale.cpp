// What is stored of a tensor's amax and scale, and other steps from the amax to the scale.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;
using enum Stage;

// Another rule for what is stored; the codes do not follow it.
struct StoredRow {
  const char* id;
  const char* title;
  void (*change)(TensorScalars& s);
};
constexpr StoredRow kStoredRows[] = {
    {"stored_scale", "scale_inv holds the scale, not its reciprocal",
     [](TensorScalars& s) { s.scale_inv = s.scale; }},
    {"stored_inverse", "scale holds the reciprocal", [](TensorScalars& s) { s.scale = s.scale_inv; }},
    {"swapped", "scale and scale_inv are swapped", [](TensorScalars& s) { std::swap(s.scale, s.scale_inv); }},
    {"scale_inv_one", "scale_inv is 1", [](TensorScalars& s) { s.scale_inv = 1; }},
    {"scale_inv_zero", "scale_inv is 0", [](TensorScalars& s) { s.scale_inv = 0; }},
    {"scale_inv_doubled", "scale_inv is doubled", [](TensorScalars& s) { s.scale_inv *= 2; }},
    {"scale_inv_halved", "scale_inv is halved", [](TensorScalars& s) { s.scale_inv /= 2; }},
    {"scale_inv_above", "scale_inv is one code too large",
     [](TensorScalars& s) {
       s.scale_inv = std::nextafter(s.scale_inv, std::numeric_limits<float>::infinity());
     }},
    {"scale_inv_below", "scale_inv is one code too small",
     [](TensorScalars& s) { s.scale_inv = std::nextafter(s.scale_inv, 0.0f); }},
    {"amax_of_scale", "the amax plane holds the scale", [](TensorScalars& s) { s.amax = s.scale; }},
    {"scale_inv_via_bf16", "scale_inv goes through bf16",
     [](TensorScalars& s) { s.scale_inv = static_cast<float>(bf16_of(static_cast<double>(s.scale_inv))); }},
    {"scale_inv_of_amax", "scale_inv is amax / MAX, not the reciprocal of the scale",
     [](TensorScalars& s) { s.scale_inv = s.amax / 448; }},
    {"scale_inv_of_amax_e5m2", "scale_inv is amax / 57344",
     [](TensorScalars& s) { s.scale_inv = s.amax / 57344; }},
    {"scale_inv_of_amax_product", "scale_inv is amax * (1 / MAX)",
     [](TensorScalars& s) { s.scale_inv = s.amax * (1.0f / 448); }},
    {"amax_zero", "the amax plane is not written (0)", [](TensorScalars& s) { s.amax = 0; }},
};

// Another step from an ordinary amax to the scale; the codes follow it. `most`: the largest element.
struct RuleRow {
  const char* id;
  const char* title;
  float (*scale)(float amax, float most);
};
constexpr RuleRow kRuleRows[] = {
    {"product", "the scale is MAX * (1 / amax), not MAX / amax",
     [](float a, float most) { return most * (1 / a); }},
    {"via_bf16", "the scale goes through bf16",
     [](float a, float most) { return static_cast<float>(bf16_of(static_cast<double>(most / a))); }},
    {"of_240", "MAX is 240, in a separate division", [](float a, float) { return 240 / a; }},
    {"of_256", "MAX is 256, in a separate division", [](float a, float) { return 256 / a; }},
    {"one_place_less", "the scale is one place too small",
     [](float a, float most) { return std::nextafter(most / a, 0.0f); }},
    {"power_above", "the scale is raised to a power of two",
     [](float a, float most) { return std::exp2(std::ceil(std::log2(most / a))); }},
};

void add_rule(Rows& rows, const RuleRow& row) {
  Hypothesis& h = rows.add(string("tensor_scale.") + row.id, row.title, tensor_scale, "N3.3");
  const auto ordinary = [](float a) { return a > 0 && std::isfinite(a); };
  const auto scale = [f = row.scale, most = static_cast<float>(rows.largest_element())](float a) {
    return f(a, most);
  };
  h.scalars = [=](TensorScalars& s) {
    if (!ordinary(s.amax)) return;
    s.scale = scale(s.amax);
    s.scale_inv = 1 / s.scale;
  };
  h.code = [=](const CodeView& c) {
    const float a = static_cast<float>(c.tensor_amax);
    return ordinary(a) ? element_code(c.encoding, static_cast<double>(static_cast<float>(c.x) * scale(a)))
                       : c.code;
  };
}

void add_stored_least(Rows& rows, const string& id, const string& title, double least) {
  rows.add("tensor_amax.stored_" + id, title, amax, "N3.1").scalars =
      [least = static_cast<float>(least)](TensorScalars& s) { s.amax = std::max(s.amax, least); };
}

// A scale is given, or an amax, and the tensor's own is taken: for the elements, for what is stored, for
// both.
void add_of_own_amax(Rows& rows) {
  const bool delayed = rows.q.format == FormatId::fp8_delayed;
  if (delayed && (rows.q.row_scaled || rows.q.numerics.scale_order != ScaleOrder::encode_first))
    return;  // the scales of rows, and decode scales, are no tensor's
  if (!delayed && (!rows.q.amax || rows.of_rows)) return;
  const auto own = [most = static_cast<float>(rows.largest_element())](double amax) -> std::optional<float> {
    const float a = static_cast<float>(amax);
    return a > 0 && std::isfinite(a) ? std::optional(most / a) : std::nullopt;
  };
  const auto stored = [own, delayed](TensorScalars& s) {
    const auto scale = own(static_cast<double>(s.own_amax));
    if (!scale) return;
    if (!delayed) s.scale = *scale;
    s.scale_inv = 1 / *scale;
  };
  const auto scaled = [own](const CodeView& c) {
    const auto scale = own(c.own_amax());
    return scale ? c.x * static_cast<double>(*scale) : c.scaled();
  };
  const char* given = delayed ? "scale" : "amax";
  rows.add("tensor_scale.own_stored",
           fmt::format(
               "scale_inv is of the tensor's own amax, as the next step's is; elements take the given {}",
               given),
           tensor_scale, "N3.11")
      .scalars = stored;
  rows.add("tensor_scale.own_used",
           fmt::format(
               "elements are scaled for the tensor's own amax (local, not reduced, or this step's); what "
               "is stored is of the given {}",
               given),
           scaled_value, "N3.11")
      .scaled = scaled;
  if (!delayed) return;
  Hypothesis& both =
      rows.add("tensor_scale.own", "the given scale is not used, but that of the tensor's own amax",
               tensor_scale, "N3.11");
  both.scalars = stored;
  both.scaled = scaled;
  rows.add("tensor_amax.prior_ignored", "the prior amax of the slot takes no part", amax, "N3.1").scalars =
      [](TensorScalars& s) { s.amax = s.own_amax; };
}

// Rows, such as the heads of a KV cache, that are scaled by what another row is given.
struct GivenRow {
  const char* id;
  const char* title;
  int64_t (*place)(int64_t row, int64_t rows);
};
constexpr GivenRow kGivenRows[] = {
    {"next", "rows are scaled by what the next row is given",
     [](int64_t i, int64_t n) { return (i + 1) % n; }},
    {"previous", "rows are scaled by what the row before is given",
     [](int64_t i, int64_t n) { return (i + n - 1) % n; }},
    {"first", "every row is scaled by what the first row is given",
     [](int64_t, int64_t) { return int64_t{0}; }},
    {"reversed", "rows are scaled by what the rows are given from the last one on",
     [](int64_t i, int64_t n) { return n - 1 - i; }},
};

void add_given_of_rows(Rows& rows) {
  if (rows.q.format != FormatId::fp8_delayed || !rows.q.row_scaled) return;
  for (const GivenRow& row : kGivenRows)
    rows.add(string("scaled.given_of_") + row.id + "_row", row.title, scaled_value, "N3.12").scaled =
        [order = rows.q.numerics.scale_order, place = row.place](const CodeView& c) {
          if (!c.row_scales) return c.scaled();
          const Plane& plane = c.row_scales->plane;
          const int64_t at = place(c.i, plane.logical.rows);
          const float given = std::bit_cast<float>(code_at(plane.encoding, c.row_scales->bytes, at));
          if (order == ScaleOrder::decode_divide) return c.x / static_cast<double>(given);
          return c.x * static_cast<double>(order == ScaleOrder::decode_first ? 1 / given : given);
        };
}

void add_stored(Rows& rows) {
  for (const StoredRow& row : kStoredRows)
    rows.add(string("tensor_scale.") + row.id, row.title, tensor_scale, "N3.7").scalars = row.change;
}

void add_per_tensor_fp8(Rows& rows) {
  rows.add("tensor_amax.stored_of_scaled", "the stored amax is that of scaled elements", amax, "N3.1")
      .scalars = [](TensorScalars& s) { s.amax *= s.scale; };
  if (rows.own_eps() > 0)
    add_stored_least(rows, "eps", "the stored amax is at least eps, which only the scale should use",
                     rows.own_eps());
  for (const char* eps : kEpsilons)
    add_stored_least(rows, fmt::format("least={}", eps),
                     fmt::format("the stored amax is at least {}, the scale's is not", eps), epsilon(eps));
  add_of_own_amax(rows);
  add_given_of_rows(rows);
  if (rows.q.format != FormatId::fp8_current || rows.q.amax) return;
  rows.add("tensor_scale.zero_amax_f32_max", "an amax of 0 gives the scale FLT_MAX", tensor_scale, "N3.3")
      .scalars = [](TensorScalars& s) {
    if (s.amax != 0) return;
    s.scale = std::numeric_limits<float>::max();
    s.scale_inv = 1 / s.scale;
  };
  for (const RuleRow& row : kRuleRows) add_rule(rows, row);
}

// A NaN that is stored with other bits than the canonical ones. It shows only under what makes the NaN.
struct NanRow {
  const char* id;
  const char* title;
  uint32_t bits;
};
constexpr NanRow kNanRows[] = {
    {"quiet", "7FC00000, the quiet NaN that compilers and PyTorch on a CPU write", 0x7FC00000},
    {"negative", "FFC00000, the NaN that an invalid operation gives on x86", 0xFFC00000},
};
struct ScalarPlane {
  const char* name;
  float TensorScalars::*value;
};

// NVFP4: other libraries store what they make of the tensor's amax, not the amax. `range`: 448 * 6, or 256
// * 6.
struct PlaneRow {
  const char* id;
  const char* title;
  float (*stored)(float amax, float range);
};
constexpr PlaneRow kPlaneRows[] = {
    {"encode_scale", "the amax plane holds the tensor's encode scale S, as vLLM keeps it",
     [](float a, float range) { return range / a; }},
    {"decode_scale",
     "the amax plane holds the tensor's decode scale, amax / (448 * 6), as torchao and ModelOpt keep it",
     [](float a, float range) { return a / range; }},
    {"decode_reciprocal", "the amax plane holds the tensor's decode scale, 1 / S",
     [](float a, float range) { return 1 / (range / a); }},
};

void add_nvfp4(Rows& rows) {
  const float range = rows.q.e4m3_max == E4m3Max::m256 ? 1536 : 2688;
  for (const PlaneRow& row : kPlaneRows)
    rows.add(string("tensor_amax.stored_") + row.id, row.title, amax, "N10.1").scalars =
        [range, f = row.stored](TensorScalars& s) { s.amax = f(s.amax, range); };
}

}  // namespace

void add_tensor_scale_rows(Rows& rows) {
  if (rows.format.per_tensor_fp8()) {
    add_per_tensor_fp8(rows);
    add_stored(rows);  // after what makes the scale (JudgedLane::in_order)
  }
  if (rows.q.format == FormatId::nvfp4 && !rows.q.row_scaled) add_nvfp4(rows);
}

// After the rows that make a NaN (JudgedLane::in_order).
void add_nan_bit_rows(Rows& rows) {
  if (!rows.format.per_tensor_fp8() && rows.q.format != FormatId::nvfp4) return;
  static constexpr ScalarPlane kPlanes[] = {{"amax", &TensorScalars::amax},
                                            {"scale", &TensorScalars::scale},
                                            {"scale_inv", &TensorScalars::scale_inv}};
  const auto add = [&](const NanRow& row, const char* id, const char* where,
                       std::vector<float TensorScalars::*> values) {
    rows.add(fmt::format("nan_bits.{}.{}", id, row.id),
             fmt::format("a NaN in {} is stored as {}", where, row.title), tensor_scale, "N1.3")
        .scalars = [values = std::move(values), bits = row.bits](TensorScalars& s) {
      for (float TensorScalars::*value : values)
        if (std::isnan(s.*value)) s.*value = std::bit_cast<float>(bits);
    };
  };
  for (const NanRow& row : kNanRows) {
    for (const ScalarPlane& plane : kPlanes)
      if (rows.format.per_tensor_fp8() || string(plane.name) == "amax")
        add(row, plane.name, plane.name, {plane.value});
    if (!rows.format.per_tensor_fp8()) continue;
    add(row, "scales", "scale and scale_inv", {&TensorScalars::scale, &TensorScalars::scale_inv});
    add(row, "all", "amax, scale and scale_inv",
        {&TensorScalars::amax, &TensorScalars::scale, &TensorScalars::scale_inv});
  }
}

}  // namespace assay

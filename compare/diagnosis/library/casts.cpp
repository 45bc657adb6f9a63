// A cast (N2): an element that is rounded to a narrower wide encoding before it is cast, and special values
// that it treats like others.
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

// One element: its source and its result.
struct Element {
  Encoding source, to;
  uint32_t bits;   // of the source
  uint32_t right;  // the code that it should have
  double value() const { return value_of(source, bits); }
  // Of a NaN too, whose value has none.
  uint32_t sign() const { return info(source).has_sign() && (bits & sign_bit(source)) ? sign_bit(to) : 0; }
};
struct Row {
  const char *id, *title, *clause;
  bool (*applies)(Encoding source, Encoding to);
  uint32_t (*code)(const Element&);
};
uint32_t nan_of(Encoding e) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return info(e).bits > 8 ? nearest_code(e, kNan) : element_code(e, kNan);
}
// A row applies where it can change a code of some input.
bool has_nan(Encoding e) { return is_nan(e, nan_of(e)); }
bool of_nan(Encoding source, Encoding to) { return has_nan(source) && info(to).has_sign(); }
bool f32_to_bf16(Encoding source, Encoding to) { return source == Encoding::f32 && to == Encoding::bf16; }
// N2.8: a NaN keeps its bits.
bool keeps_nan(Encoding source, Encoding to) { return source == Encoding::bf16 && to == Encoding::f32; }
bool loses_sign_of_nan(Encoding source, Encoding to) {
  return of_nan(source, to) && info(source).has_sign() && !keeps_nan(source, to);
}
// Where no code is a NaN, the reference gives the largest value already, and nan_signed says the rest.
bool nan_to_8_bits(Encoding source, Encoding to) {
  return of_nan(source, to) && has_nan(to) && info(to).bits == 8;
}
bool infinity_to_nan(Encoding source, Encoding to) {
  return info(source).infinity != kNoCode && info(to).has_sign() && has_nan(to);
}
bool has_subnormal_results(Encoding source, Encoding to) {
  const double least = value_of(source, value_of(source, 0) == 0 ? 1 : 0);
  return info(to).has_sign() && is_subnormal(to, least);
}
bool has_zeros_of_both_signs(Encoding source, Encoding to) {
  return info(source).has_sign() && info(to).has_sign();
}
uint32_t magnitude(const Element& e) { return e.right & ~sign_bit(e.to); }

constexpr Row kRows[] = {
    {"nan_rounded",
     "a NaN is rounded like a number: it keeps its upper bits, or becomes an infinity or a zero", "N2.4",
     f32_to_bf16,
     [](const Element& e) {
       return std::isnan(e.value()) ? (e.bits + 0x7FFF + (e.bits >> 16 & 1)) >> 16 : e.right;
     }},
    {"nan_cut", "a NaN is cut like a number: it keeps its upper bits, or becomes an infinity", "N2.4",
     f32_to_bf16, [](const Element& e) { return std::isnan(e.value()) ? e.bits >> 16 : e.right; }},
    {"nan_signed", "a NaN keeps its sign", "N2.4", loses_sign_of_nan,
     [](const Element& e) { return std::isnan(e.value()) ? magnitude(e) | e.sign() : e.right; }},
    {"nan_positive", "a NaN loses its sign", "N2.4", keeps_nan,
     [](const Element& e) { return std::isnan(e.value()) ? magnitude(e) : e.right; }},
    {"nan_as_largest", "a NaN becomes the largest value, with its sign", "N2.4", nan_to_8_bits,
     [](const Element& e) {
       return std::isnan(e.value()) ? element_code(e.to, std::numeric_limits<double>::max()) | e.sign()
                                    : e.right;
     }},
    {"nan_as_zero", "a NaN becomes +0", "N2.4", of_nan,
     [](const Element& e) { return std::isnan(e.value()) ? 0 : e.right; }},
    {"infinity_as_nan", "an infinity becomes a NaN", "N2.2", infinity_to_nan,
     [](const Element& e) { return std::isinf(e.value()) ? nan_of(e.to) : e.right; }},
    {"flushed", "subnormal results become zeros", "N2.1", has_subnormal_results,
     [](const Element& e) { return is_subnormal(e.to, value_of(e.to, e.right)) ? e.sign() : e.right; }},
    {"flushed_positive", "subnormal results become +0", "N2.1", has_subnormal_results,
     [](const Element& e) { return is_subnormal(e.to, value_of(e.to, e.right)) ? 0 : e.right; }},
    {"zero_positive", "zeros lose their sign", "N2.5", has_zeros_of_both_signs,
     [](const Element& e) { return value_of(e.to, e.right) == 0 ? 0 : e.right; }},
};

Hypothesis hypothesis_of(const Row& row) {
  Hypothesis h;
  h.id = std::string("cast.") + row.id;
  h.title = row.title;
  h.stage = Stage::code;
  h.clause = row.clause;
  h.remake = [row](const Problem&, const std::vector<PlaneData>& inputs, std::vector<PlaneData>& made) {
    const PlaneData* x = find_plane(inputs, "x");
    PlaneData& y = made.front();
    for (int64_t i = 0; i < y.plane.logical.count(); ++i)
      set_code(y.plane, y.bytes, i,
               row.code({x->plane.encoding, y.plane.encoding, code_at(x->plane, x->bytes, i),
                         code_at(y.plane, y.bytes, i)}));
  };
  return h;
}

}  // namespace

std::vector<Hypothesis> cast_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  if (!problem.as<Cast>()) return out;
  for (const Row& row : kRows)
    if (row.applies(problem.x.source, problem.as<Cast>()->to)) out.push_back(hypothesis_of(row));
  if (problem.x.source != Encoding::f32) return out;
  for (const Encoding first : {Encoding::bf16, Encoding::f16})
    for (const bool cut : {false, true}) {
      Hypothesis h;
      h.id = fmt::format("cast.{}through_{}", cut ? "cut_" : "", info(first).name);
      h.title = fmt::format("elements are rounded to {} first, and then {}", info(first).name,
                            cut ? "cut to the encoding" : "once more");
      h.stage = Stage::code;
      h.clause = "N2.1";
      if (cut) h.keys = "round=rz";
      h.read = [first](const Problem&, std::vector<PlaneData>& inputs) {
        PlaneData& x = inputs.front();
        const std::vector<std::byte> before = x.bytes;
        for (int64_t n = 0; n < x.plane.logical.count(); ++n) {
          const double v = value_of(Encoding::f32, code_at(x.plane, x.bytes, n));
          set_code(x.plane, x.bytes, n, nearest_code(Encoding::f32, value_of(first, nearest_code(first, v))));
        }
        return x.bytes != before;
      };
      out.push_back(std::move(h));
    }
  return out;
}

}  // namespace assay

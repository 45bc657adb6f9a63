// The random Hadamard transform (N11), made wrongly or where it should not be.
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/arithmetic/rotation.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

// ---- other signs ----

uint16_t reversed(uint16_t mask) {
  uint16_t out = 0;
  for (int i = 0; i < 16; ++i) out = static_cast<uint16_t>(out | (mask >> i & 1) << (15 - i));
  return out;
}

struct SignRow {
  const char* id;
  const char* title;
  uint16_t (*signs)(uint16_t mask);
};
constexpr SignRow kSignRows[] = {
    {"unsigned", "the rotation flips no signs", [](uint16_t) { return uint16_t{0}; }},
    {"signs_reversed", "the signs of the rotation are taken in the other order", reversed},
    {"signs_turned", "the signs of the rotation are turned",
     [](uint16_t m) { return static_cast<uint16_t>(~m); }},
    {"sign_bytes_swapped", "the bytes of the sign mask are swapped",
     [](uint16_t m) { return static_cast<uint16_t>(m << 8 | m >> 8); }},
    {"signs_rotated_up", "the sign mask is rotated by one bit upward",
     [](uint16_t m) { return static_cast<uint16_t>(m << 1 | m >> 15); }},
    {"signs_rotated_down", "the sign mask is rotated by one bit downward",
     [](uint16_t m) { return static_cast<uint16_t>(m >> 1 | m << 15); }},
    {"signs_default", "the rotation takes the default signs", [](uint16_t) { return kRhtSignMask; }},
};

// ---- other rotations ----

// Which 16 elements are rotated together: those of the group along the line, those across it, or every second
// one of 32.
enum class Group : uint8_t { along, across, of_32 };

// The group of element (i, j), with zeros beyond the tensor; returns the element's place in it.
int64_t gather(Group group, const Matrix& x, int64_t i, int64_t j, float (&v)[16]) {
  for (int64_t k = 0; k < 16; ++k) {
    const int64_t a = group == Group::across ? i / 16 * 16 + k : i;
    const int64_t b = group == Group::across  ? j
                      : group == Group::along ? j / 16 * 16 + k
                                              : j / 32 * 32 + j % 2 + 2 * k;
    v[k] = a < x.lines() && b < x.length() ? static_cast<float>(x.value(a, b)) : 0.0f;
  }
  return group == Group::across ? i % 16 : group == Group::along ? j % 16 : j % 32 / 2;
}

using Values = const float (&)[16];

double negated_by(uint16_t mask, int64_t k, double v) { return (mask >> k & 1) != 0 ? -v : v; }
double rotated_plainly(Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k); }
double rotated_twice(Values v, uint16_t mask, int64_t k) {
  float y[16];
  for (int64_t n = 0; n < 16; ++n) y[n] = static_cast<float>(bf16_of(rotated16(v, mask, n)));
  return rotated16(y, mask, k);
}
int64_t bits_reversed(int64_t k) { return (k & 1) << 3 | (k & 2) << 1 | (k & 4) >> 1 | (k & 8) >> 3; }

// What stands at place k of a group, and how it is rounded to x's encoding. `widened`: it is not, but kept in
// F32. Two rotations of 8 elements are not among the rows: their factor 1/sqrt(8) is not a power of two.
struct RotationRow {
  const char* id;
  const char* title;
  double (*y)(Values v, uint16_t mask, int64_t k);
  Group group = Group::along;
  uint32_t (*rounded)(Encoding e, double v) = nearest_code;
  bool widened = false;
};
constexpr RotationRow kRotationRows[] = {
    {"wrong_axis", "the rotation runs along the other axis", rotated_plainly, Group::across},
    {"signs_after", "the signs are flipped after the rotation, not before it",
     [](Values v, uint16_t mask, int64_t k) { return negated_by(mask, k, rotated16(v, 0, k)); }},
    {"unrounded", "the rotated elements are not rounded to bf16", rotated_plainly, Group::along, nearest_code,
     true},
    {"cut", "the rotated elements are cut to bf16, not rounded", rotated_plainly, Group::along,
     truncated_code},
    {"bit_reversed", "the rotated elements are in bit-reversed order",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, bits_reversed(k)); }},
    {"stage_missing=0", "stage 1 of the rotation's butterflies is missing",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k, 0b1110); }},
    {"stage_missing=1", "stage 2 of the rotation's butterflies is missing",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k, 0b1101); }},
    {"stage_missing=2", "stage 3 of the rotation's butterflies is missing",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k, 0b1011); }},
    {"stage_missing=3", "stage 4 of the rotation's butterflies is missing",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k, 0b0111); }},
    {"stages_rounded", "every stage of the rotation is rounded to bf16",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k, 15, true); }},
    {"signs_only", "the signs are flipped, but nothing is rotated",
     [](Values v, uint16_t mask, int64_t k) { return negated_by(mask, k, static_cast<double>(v[k])); }},
    {"twice", "the rotation is applied twice", rotated_twice},
    {"unnormalised", "the rotation is not scaled by 1/4",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k) * 4; }},
    {"normalised_twice", "the rotation is scaled by 1/16",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k) * 0.25; }},
    {"normalised_by_16", "the rotation is scaled by 1/16 instead of 1/4, squared",
     [](Values v, uint16_t mask, int64_t k) { return rotated16(v, mask, k) * 0.0625; }},
    {"groups_of_32", "the rotation pairs elements 16 apart", rotated_plainly, Group::of_32},
};

// An element of a direction that is rotated though it should not be.
double rotated_element(const Matrix& x, uint16_t mask, int64_t i, int64_t j) {
  float v[16];
  const int64_t k = gather(Group::along, x, i, j, v);
  return rotated16(v, mask, k);
}

}  // namespace

void add_rotation_rows(Rows& rows) {
  const uint16_t mask = rows.q.sign_mask;
  if (!rows.q.rht) {
    if (rows.q.format != FormatId::nvfp4) return;
    rows.add("input.rotated", "the tensor is rotated, though it should not be", Stage::rht, "N1.2").element =
        [](const Matrix& x, int64_t i, int64_t j) {
          return nearest_code(x.encoding(), bf16_of(rotated_element(x, kRhtSignMask, i, j)));
        };
    return;
  }
  for (const SignRow& row : kSignRows)
    if (const uint16_t other = row.signs(mask); other != mask)
      rows.add(string("rht.") + row.id, row.title, Stage::rht, "N11.1").keys =
          fmt::format("sign_mask=0x{:04X}", other);
  for (const RotationRow& row : kRotationRows) {
    Hypothesis& h = rows.add(string("rht.") + row.id, row.title, Stage::rht, "N11.1");
    h.keys = "rht=0";
    h.widened = row.widened;
    h.element = [row, mask](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      const int64_t k = gather(row.group, x, i, j, v);
      return row.rounded(row.widened ? Encoding::f32 : x.encoding(), row.y(v, mask, k));
    };
  }
}

// The amax of the op's y, taken of the sums in binary32.
void amax_of_sums(uint16_t mask, const std::vector<PlaneData>& inputs, std::vector<PlaneData>& made) {
  const Matrix x(*find_plane(inputs, "x"), Direction::col);
  double largest = 0;
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j) {
      float v[16];
      const int64_t k = gather(Group::along, x, i, j, v);
      const double y = std::fabs(rotated16(v, mask, k));
      if (y > largest) largest = y;  // a NaN is left out
    }
  PlaneData& amax = made.back();
  set_code(amax.plane, amax.bytes, 0, nearest_code(Encoding::f32, largest));
}

std::vector<Hypothesis> hadamard_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  if (!problem.as<Hadamard>()) return out;
  const uint16_t mask = problem.col->sign_mask;
  const auto add = [&](const char* id, const char* title) -> Hypothesis& {
    Hypothesis h;
    h.id = string("rht.") + id;
    h.title = title;
    h.stage = Stage::rht;
    h.clause = "N11.1";
    out.push_back(std::move(h));
    return out.back();
  };
  for (const SignRow& row : kSignRows)
    if (const uint16_t other = row.signs(mask); other != mask)
      add(row.id, row.title).keys = fmt::format("sign_mask=0x{:04X}", other);
  if (problem.col->numerics.rht_sum == RhtSum::butterfly)
    add("amax_of_sums", "the amax is that of the sums before they are rounded to bf16").remake =
        [mask](const Problem&, const std::vector<PlaneData>& inputs, std::vector<PlaneData>& made) {
          amax_of_sums(mask, inputs, made);
        };
  for (const RotationRow& row : kRotationRows) {
    if (row.widened) continue;
    add(row.id, row.title).remake = [row, mask](const Problem&, const std::vector<PlaneData>& inputs,
                                                std::vector<PlaneData>& made) {
      const Matrix x(*find_plane(inputs, "x"), Direction::col);
      PlaneData& y = made.front();  // a row of it is a column of x
      for (int64_t i = 0; i < x.lines(); ++i)
        for (int64_t j = 0; j < x.length(); ++j) {
          float v[16];
          const int64_t k = gather(row.group, x, i, j, v);
          set_code(y.plane, y.bytes, i * x.length() + j, row.rounded(x.encoding(), row.y(v, mask, k)));
        }
      PlaneData& amax = made.back();
      set_code(amax.plane, amax.bytes, 0, nearest_code(Encoding::f32, Matrix(y, Direction::row).amax()));
    };
  }
  return out;
}

std::optional<Hypothesis> also_rotated(const string& id, const Problem& lane, Direction d) {
  const string how = id.substr(id.find(':') + 1);
  const auto mask = static_cast<uint16_t>(std::strtoul(how.c_str(), nullptr, 16));
  if (lane.quantizer(d)->rht) return {};
  const bool unrounded = how.find(",unrounded") != string::npos,
             own_amax = how.find(",own_amax") != string::npos;
  Hypothesis h;
  h.id = id;
  h.title = fmt::format(
      "{} are rotated too, with the signs 0x{:04X}{}{}", d == Direction::row ? "rows" : "columns", mask,
      unrounded ? ", without rounding to bf16" : "", own_amax ? "; the amax is that before it" : "");
  h.stage = Stage::rht;
  h.clause = "N11.2";
  h.widened = unrounded;
  h.element = [=](const Matrix& x, int64_t i, int64_t j) {
    const double y = rotated_element(x, mask, i, j);
    return unrounded ? nearest_code(Encoding::f32, y) : nearest_code(x.encoding(), bf16_of(y));
  };
  if (own_amax) h.tensor_amax = [](const Matrix& x, const Matrix&) { return x.source().amax(); };
  return h;
}

}  // namespace assay

// Codes, values and coordinates as people read them: what a failure prints and what the judge's hints look at.
// Everything here is the judge's own arithmetic, in value space with doubles; neither side's code is used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/planes.h"
#include "fixtures/inputs.h"

namespace assay {

// The element at flat index `index` of a plane's bytes, in a packed plane one of a byte's two (N6.8).
uint32_t code_at(const Plane& plane, std::span<const std::byte> bytes, int64_t index);
void set_code(const Plane& plane, std::span<std::byte> bytes, int64_t index, uint32_t code);
// The same of unpacked elements. Codes of fewer than 8 bits take a byte each and come back as the whole byte.
uint32_t code_at(Encoding e, std::span<const std::byte> bytes, int64_t index);
void set_code(Encoding e, std::span<std::byte> bytes, int64_t index, uint32_t code);

// Exact value of a code (N2.8): NaN for NaN codes, +-inf where the encoding has them. E8M0: 2^(code-127), NaN for FF.
double value_of(Encoding e, uint32_t code);
bool is_nan(Encoding e, uint32_t code);
// A finite code of the largest magnitude, or an infinity.
bool is_saturated(Encoding e, uint32_t code);
// Spacing of the encoding's grid at magnitude |v|, down to the subnormal spacing. E8M0 has no such grid: 0.
double step_at(Encoding e, double v);

std::string code_bits(Encoding e, uint32_t code);    // "0.0101.010": sign, exponent, fraction; E8M0 "01111111"
std::string code_hex(Encoding e, uint32_t code);     // "2A", two, four or eight digits
std::string value_text(Encoding e, uint32_t code);   // shortest decimal that reads back; "0.3125", "nan", "-0"; E8M0 "2^-3"
std::string f32_hex_text(uint32_t bits);             // "0x1.4p-2"
std::string number_text(double v);                   // shortest decimal that reads back

// Place of a code on the encoding's line of finite codes and infinities: neighbours are 1 apart, -0 and +0 both 0. Nothing for NaN.
std::optional<int64_t> ordinal(Encoding e, uint32_t code);
// Steps from one code to another; nothing when one is NaN.
std::optional<int64_t> codes_apart(Encoding e, uint32_t a, uint32_t b);

// Where an element of a plane stands: logical coordinates of the plane, or in its padding.
struct Place {
  bool padding = false;
  int64_t row = 0, col = 0;   // of the padded array in padding; of the logical one otherwise
  bool operator==(const Place&) const = default;
};
// Place of the flat index `index`, in the row-major and in the tensor-core tile order (N6.3, read backwards). Of grouped planes: see members_of.
Place place_of(const Plane& plane, int64_t index);
// The flat index of logical (row, col) or, in padding, padded (row, col).
int64_t index_of(const Plane& plane, int64_t row, int64_t col);

// A grouped plane as its members' own planes (N14.2), named "row.data[2]"; any other as itself. What stands beyond the members is left out.
std::vector<PlaneData> members_of(const PlaneData& data);
// The planes of one member of a split as its own line has them, under their own names; what is not grouped (noop) as it is, offsets and sizes not.
std::vector<PlaneData> planes_of_member(const std::vector<PlaneData>& planes, size_t member);
// Zeros what stands beyond the members of a grouped plane: nobody's result, only what stood there before (N14.6).
void clear_spare(PlaneData& data);
// 2 of "row.data[2]", or nothing.
std::optional<size_t> member_of(std::string_view plane_name);

// The elements of x that one element of a plane belongs to, half open. A scale covers its block; an amax everything or its row.
struct Region {
  int64_t row0 = 0, row1 = 0, col0 = 0, col1 = 0;
  bool contains(int64_t r, int64_t c) const { return r >= row0 && r < row1 && c >= col0 && c < col1; }
  bool operator==(const Region&) const = default;
};
// `problem` may be null: then a plane is taken to have the shape of x. Of a split's member, `problem` is the member's.
Region region_of(const Problem* problem, const Plane& plane, Place place);

// "row 12, columns 32..63", "element (3, 7)", "padding (130, 2)".
std::string place_text(const Problem* problem, const Plane& plane, Place place);

}  // namespace assay

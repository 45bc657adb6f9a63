#include "compare/diagnosis/replay/planes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compare/arithmetic/codes.h"

namespace assay {

F32Bits bits_of(double v) {
  return std::isnan(v) ? info(Encoding::f32).nan : std::bit_cast<uint32_t>(static_cast<float>(v));
}

PlaneData scalar_plane(std::string name, Direction d, F32Bits bits) {
  PlaneData out;
  out.plane.name = std::move(name);
  out.plane.logical = out.plane.padded = {1, 1};
  out.plane.direction = d;
  out.bytes.resize(4);
  set_code(Encoding::f32, out.bytes, 0, bits);
  return out;
}

float scalar_of(const PlaneData& plane) {
  return std::bit_cast<float>(code_at(Encoding::f32, plane.bytes, 0));
}

bool take_codes(const PlaneData& from, PlaneData& to, bool turned) {
  const Shape a = from.plane.logical, b = to.plane.logical;
  if (a.count() != b.count() || from.plane.encoding != to.plane.encoding) return false;
  for (int64_t k = 0; k < a.count(); ++k) {
    const int64_t at =
        turned ? index_of(from.plane, k % a.rows, k / a.rows) : index_of(from.plane, k / a.cols, k % a.cols);
    set_code(to.plane, to.bytes, index_of(to.plane, k / b.cols, k % b.cols),
             code_at(from.plane, from.bytes, at));
  }
  return true;
}

}  // namespace assay

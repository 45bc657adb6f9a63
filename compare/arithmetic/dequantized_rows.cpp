#include "compare/arithmetic/dequantized_rows.h"

#include "contract/planes.h"

namespace assay {

namespace {

// The part of a quantizer that a dequantize of its result reads.
Quantizer what_is_read(const Quantizer& q) {
  Quantizer plain;
  plain.format = q.format;
  plain.element = q.element;
  plain.block = q.block;
  plain.packing = q.packing;
  plain.row_scaled = q.row_scaled;
  plain.four_over_six = q.four_over_six;
  plain.e4m3_max = q.e4m3_max;
  plain.scales = q.scales;
  plain.pow2 = q.pow2;
  return plain;
}

}  // namespace

Problem row_dequantize(const Problem& pair) {
  Problem back = pair;
  back.op = Dequantize{pair.x.source, CodesFrom::codes};
  back.col.reset();
  back.col_source = ColSource::original;
  back.flavour = Flavour::assay;
  back.x.fill = {FillKind::literal, 0, 0, 0, "00"};
  back.row = what_is_read(*pair.row);
  return back;
}

Result<std::vector<PlaneData>> row_dequantize_inputs(const Problem& back, const std::vector<PlaneData>& rows,
                                                     const std::vector<PlaneData>& given) {
  std::vector<PlaneData> out;
  for (const Plane& plane : input_planes(back)) {
    const PlaneData* data = find_plane(rows, plane.name);
    if (!data) data = find_plane(given, plane_name(Direction::row, "given.amax"));
    if (!data) return Error{"the rows hold no plane " + plane.name, 0, ""};
    out.push_back({plane, data->bytes});
  }
  return out;
}

}  // namespace assay

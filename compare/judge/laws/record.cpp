#include "compare/judge/laws/record.h"

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"

namespace assay {

uint32_t code(const PlaneData& p, int64_t row, int64_t col) {
  return code_at(p.plane, p.bytes, index_of(p.plane, row, col));
}

double value(const PlaneData& p, int64_t row, int64_t col) {
  return value_of(p.plane.encoding, code(p, row, col));
}

const PlaneData& scale_plane(Direction d, const Quantizer& q, const std::vector<PlaneData>& planes) {
  return *find_plane(planes, plane_name(d, scale_stem(q.scales)));
}

void LawRecord::begin(const std::string& claim) {
  claim_ = claim;
  open_ = false;
  add_kind(evaluated, claim);
}

void LawRecord::breach(const PlaneData& plane, int64_t row, int64_t col,
                       const std::function<std::string()>& message, bool in_padding) {
  if (open_) {
    ++breaches.back().differ;
    return;
  }
  open_ = true;
  Breach b = complaint(claim_, subject, message());
  b.at(&problem, plane.plane, {in_padding, row, col});
  const int64_t elements = plane.plane.logical.count();
  b.differ = 1;
  b.of = in_padding ? plane.plane.padded.count() - elements : elements;
  b.got_code = code(plane, row, col);
  breaches.push_back(std::move(b));
}

}  // namespace assay

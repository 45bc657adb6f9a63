// The steps that change planes as a whole: codes of another line, other places, the other direction's bytes,
// scalars.
#include <bit>
#include <cmath>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/replay/planes.h"
#include "compare/diagnosis/replay/steps.h"

namespace assay {

bool take_codes_of_line(Run& run) {
  const Window& w = run.window;
  for (const Hypothesis* h : run.hypotheses) {
    if (h->code_keys.empty()) continue;
    Problem other = w.p;
    other.quantizer(w.d)->scale_from = ScaleFrom::x;
    const auto changed = with_keys(other, h->code_keys);
    auto made = changed ? run.whole.execute(*changed, w.inputs) : std::nullopt;
    if (!made) return false;
    const PlaneData& from = *w.data_in(*made);
    PlaneData& to = *w.data_in(run.planes);
    if (from.bytes.size() != to.bytes.size() || from.plane.transposed != to.plane.transposed) return false;
    to.bytes = from.bytes;
  }
  return true;
}

bool move_codes(Run& run) {
  const Window& w = run.window;
  const bool as_seen = w.stored_as_seen();
  for (const Hypothesis* h : run.hypotheses) {
    if (!h->code_place) continue;
    if (!run.everything) return false;
    PlaneData& data = *w.data_in(run.planes);
    const PlaneData before = data;
    const auto index = [&](int64_t i, int64_t j) {
      return as_seen ? index_of(before.plane, i, j) : index_of(before.plane, j, i);
    };
    for (int64_t i = 0; i < w.lines(); ++i)
      for (int64_t j = 0; j < w.places(); ++j) {
        const auto [a, b] = h->code_place(i, j, w.lines(), w.places());
        set_code(data.plane, data.bytes, index(i, j), code_at(before.plane, before.bytes, index(a, b)));
      }
  }
  return true;
}

bool repack_codes(Run& run) {
  for (const Hypothesis* h : run.hypotheses) {
    if (!h->packed) continue;
    PlaneData& data = *run.window.data_in(run.planes);
    if (!run.everything || data.plane.bits() != 6) return false;
    for (size_t at = 0; at + 3 <= data.bytes.size(); at += 3) {
      uint32_t number = 0;
      for (size_t b = 3; b-- > 0;) number = number << 8 | std::to_integer<uint32_t>(data.bytes[at + b]);
      number = h->packed(number);
      for (size_t b = 0; b < 3; ++b, number >>= 8) data.bytes[at + b] = static_cast<std::byte>(number & 0xFF);
    }
  }
  return true;
}

bool keep_own_planes(Run& run, const Problem& own) {
  const Direction d = run.window.d;
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(own)) {
    const PlaneData* made = find_plane(run.planes, plane.name);
    if (plane.name == plane_name(d, "amax") && run.shown_amax) {
      double amax = *run.shown_amax;
      if (const PlaneData* prior = find_plane(run.whole.lane().inputs, plane_name(d, "prior.amax")))
        if (const double slot = static_cast<double>(scalar_of(*prior)); slot > amax || std::isnan(slot))
          amax = slot;
      out.push_back(scalar_plane(plane.name, d, bits_of(amax)));
    } else if (made && made->plane.bytes() == plane.bytes()) {
      out.push_back(*made);
    } else {
      return false;
    }
    out.back().plane = plane;
  }
  run.planes = std::move(out);
  return true;
}

// ---- the other direction ----

namespace {

// Planes as blocks along the other axis make them, in the places of this direction's.
bool take_blocks_across(const Hypothesis& h, const WholeTensor& whole, std::vector<PlaneData>& planes) {
  if (!whole.across()) return false;
  const Direction d = whole.direction(), other = other_than(d);
  const std::string_view scales = scale_stem(whole.quantizer().scales);
  const PlaneData *from = find_plane(*whole.across(), plane_name(other, "data")),
                  *from_scales = find_plane(*whole.across(), plane_name(other, scales));
  PlaneData *to = find_plane(planes, plane_name(d, "data")),
            *to_scales = find_plane(planes, plane_name(d, scales));
  if (!from || !to || !take_codes(*from, *to, from->plane.transposed != to->plane.transposed)) return false;
  if (h.of_other == "blocks:codes") return true;
  return from_scales && to_scales &&
         take_codes(*from_scales, *to_scales, h.of_other.ends_with(":transposed"));
}

// A plane written with what the other direction has for it. False where it has none of the kind.
bool take_plane(const Hypothesis& h, const WholeTensor& whole, std::vector<PlaneData>& planes) {
  const Direction d = whole.direction();
  const bool data = h.of_other == "data", alone = !whole.lane().other;
  // Where the line has no other direction, blocks along the other axis are a cause of their own, and data in
  // another order are a layout. Only squares have the same scales along both axes.
  if (alone && (data || !is_square(whole.quantizer().block))) return false;
  const auto& made = alone ? whole.across() : whole.of_other();
  if (!made) return false;
  const Quantizer& other = alone ? whole.quantizer() : *whole.lane().other;
  const bool turned = h.of_other.ends_with(":transposed");
  const PlaneData* from =
      find_plane(*made, plane_name(other_than(d), data ? "data" : scale_stem(other.scales)));
  PlaneData* to = find_plane(planes, plane_name(d, data ? "data" : scale_stem(whole.quantizer().scales)));
  if (!from || !to || from->plane.encoding != to->plane.encoding || from->plane.packed != to->plane.packed)
    return false;
  if (h.of_other.find(':') == std::string::npos) {
    if (from->bytes.size() != to->bytes.size()) return false;
    to->bytes = from->bytes;
    return true;
  }
  return (!turned || from->plane.logical.rows == to->plane.logical.cols) && take_codes(*from, *to, turned);
}

}  // namespace

bool take_from_other(Run& run) {
  for (const Hypothesis* h : run.hypotheses) {
    if (h->of_other.empty()) continue;
    if (!run.everything) return false;
    const bool across = h->of_other.starts_with("blocks:");
    if (!(across ? take_blocks_across : take_plane)(*h, run.whole, run.planes)) return false;
  }
  return true;
}

// ---- scalars ----

void change_scalars(Run& run) {
  const Direction d = run.window.d;
  const auto scalars_of = [&](const char* stem) -> PlaneData* {
    PlaneData* plane = find_plane(run.planes, plane_name(d, stem));
    const bool fits = plane && plane->plane.encoding == Encoding::f32 &&
                      (run.of_rows || plane->plane.padded == Shape{1, 1});
    return fits ? plane : nullptr;
  };
  const std::pair<PlaneData*, float TensorScalars::*> fields[] = {
      {scalars_of("amax"), &TensorScalars::amax},
      {scalars_of("scale"), &TensorScalars::scale},
      {scalars_of("scale_inv"), &TensorScalars::scale_inv}};
  const PlaneData* given = find_plane(run.whole.lane().inputs, plane_name(d, "given.scale"));
  for (const Hypothesis* h : run.hypotheses)
    for (int64_t row = 0; h->scalars && row < (run.of_rows ? run.window.lines() : 1); ++row) {
      TensorScalars t;
      for (const auto& [plane, field] : fields)
        if (plane) t.*field = std::bit_cast<float>(code_at(Encoding::f32, plane->bytes, row));
      if (given) t.scale = scalar_of(*given);
      t.own_amax = static_cast<float>(run.edited ? run.x().amax() : run.whole.amax());
      if (std::isnan(t.amax)) t.nan_bits = run.x().nan_bits();
      h->scalars(t);
      for (const auto& [plane, field] : fields)
        if (plane) set_code(Encoding::f32, plane->bytes, row, std::bit_cast<uint32_t>(t.*field));
    }
  PlaneData* inverse = run.of_rows && run.everything ? scalars_of("scale_inv") : nullptr;
  for (const Hypothesis* h : run.hypotheses) {
    if (!h->inverse_place || !inverse) continue;
    const std::vector<std::byte> before = inverse->bytes;
    for (int64_t row = 0; row < run.window.lines(); ++row)
      set_code(Encoding::f32, inverse->bytes, row, code_at(Encoding::f32, before, h->inverse_place(row)));
  }
}

bool flip_bits(Run& run) {
  for (const Hypothesis* h : run.hypotheses) {
    if (!h->flip) continue;
    const Hypothesis::Flip& f = *h->flip;
    PlaneData* plane = find_plane(run.planes, plane_name(run.window.d, f.stem));
    if (!run.everything || !plane || f.row >= plane->plane.logical.rows || f.col >= plane->plane.logical.cols)
      return false;
    const int64_t at = index_of(plane->plane, f.row, f.col);
    set_code(plane->plane, plane->bytes, at, code_at(plane->plane, plane->bytes, at) ^ f.mask);
  }
  return true;
}

}  // namespace assay

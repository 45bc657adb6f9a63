// A scale_chain: decode scales that are made by a rule of their own, and no inverses of the encode scales
// (N3.7), and codes of E8M0 that are clamped (N2.8).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"
#include "contract/planes.h"

namespace assay {

namespace {

// Codes of E8M0 that are kept between two others.
struct CodeRange {
  const char *id, *title;
  uint32_t least, most;
};
constexpr CodeRange kRanges[] = {
    {"codes_from_01_to_FE", "codes of E8M0 are clamped to 01..FE: 00 becomes 01, and the NaN becomes FE",
     0x01, 0xFE},
    {"codes_from_01", "the code 00 of E8M0 becomes 01", 0x01, 0xFF},
    {"codes_to_FE", "the NaN of E8M0 becomes FE, its largest scale", 0x00, 0xFE},
};

// With the factors that follow from the codes.
Hypothesis clamped(const CodeRange& range) {
  Hypothesis h;
  h.id = std::string("scale_chain.") + range.id;
  h.title = range.title;
  h.stage = Stage::block_scale;
  h.clause = "N2.8";
  h.remake = [range](const Problem&, const std::vector<PlaneData>&, std::vector<PlaneData>& made) {
    PlaneData* scales = find_plane(made, "scale_inv");
    for (int64_t i = 0; scales && i < scales->plane.padded.count(); ++i) {
      const uint32_t code = code_at(scales->plane, scales->bytes, i),
                     kept = std::clamp(code, range.least, range.most);
      if (kept == code) continue;
      set_code(scales->plane, scales->bytes, i, kept);
      const double scale = value_of(Encoding::e8m0, kept);
      for (const auto& [name, value] : {std::pair("multiplier", 1 / scale), {"decoded", scale}})
        if (PlaneData* plane = find_plane(made, name))
          set_code(plane->plane, plane->bytes, i, nearest_code(Encoding::f32, value));
    }
  };
  return h;
}

}  // namespace

std::vector<Hypothesis> scale_chain_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  if (!problem.as<ScaleChain>()) return out;
  const auto add = [&](const char* id, const char* title, const char* keys) {
    const auto other = with_keys(problem, keys);
    if (!other || *other == problem) return;
    Hypothesis h;
    h.id = std::string("scale_chain.") + id;
    h.title = title;
    h.stage = Stage::tensor_scale;
    h.clause = "N3.7";
    h.rerun = [other = *other](const Problem& p, const std::vector<PlaneData>& inputs,
                               const RunLine& run) -> std::optional<std::vector<PlaneData>> {
      auto made = run(p, inputs);
      const auto decoded = run(other, inputs);
      if (!made || !decoded) return {};
      for (PlaneData& plane : *made)
        if (const PlaneData* own = find_plane(*decoded, plane.plane.name);
            own && plane.plane.name.ends_with("scale_inv"))
          plane.bytes = own->bytes;
      return made;
    };
    out.push_back(std::move(h));
  };
  const auto planes = output_planes(problem);
  if (std::ranges::any_of(planes, [](const Plane& p) { return p.encoding == Encoding::e8m0; }))
    for (const CodeRange& range : kRanges) out.push_back(clamped(range));
  add("inverse_divided", "scale_inv is amax / MAX by a division of its own, not the inverse of the scale",
      "scale_order=decode_first");
  add("inverse_of_scale", "scale_inv is the inverse of MAX / amax, not amax / MAX",
      "scale_order=encode_first");
  return out;
}

}  // namespace assay

// A scale_chain (N3.7): decode scales that are made by a rule of their own, and no inverses of the encode
// scales.
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/library/rows.h"

namespace assay {

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
  add("inverse_divided", "scale_inv is amax / MAX by a division of its own, not the inverse of the scale",
      "scale_order=decode_first");
  add("inverse_of_scale", "scale_inv is the inverse of MAX / amax, not amax / MAX",
      "scale_order=encode_first");
  return out;
}

}  // namespace assay

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

// N17.12: where nothing explains the scales, what made the codes may still be told, from the scales that
// came.
void judge_codes_under_scales(SearchState& s) {
  constexpr const char* kCame = "scale.as_it_came";
  bool scales = false, data = false;
  for (JudgedLane* l : s.bad()) {
    const Quantizer& q = l->quantizer();
    const JudgedPlane* j = l->find(scale_stem(q.scales));
    if (!j || !l->find(".data") || !info(q.format).has_blocks() || q.format == FormatId::fp8_block)
      return;  // whose codes follow amaxes that nothing shows
    for (const JudgedPlane& other : l->judged)
      if (other.is_scalar() && other.differ > 0) return;  // and those of a tensor's wrong amax
    scales |= j->differ > 0;
    data |= l->find(".data")->differ > 0;
    Hypothesis& h = l->library.emplace_back();
    h.id = kCame;
    h.wide = true;
    const int64_t n = length_of(q.block);
    h.scale = [j, &q, as_seen = l->as_seen(), n, got = Codes(j->got)](const ScaleGrid&, int64_t i,
                                                                      int64_t b) {
      return got[as_seen ? scale_index(q, j->got.plane, i, b * n) : scale_index(q, j->got.plane, b * n, i)];
    };
    l->by_id[h.id] = &h;
  }
  if (!scales || !data) return;
  std::vector<Ids> list = {{kCame}};
  for (const Hypothesis& h : s.bad().front()->library)
    if (!h.wide && !h.named_set && h.stage >= Stage::scaled_value &&
        (h.code || h.scaled || !h.keys.empty()) && !h.element && !h.scale && !h.amax)
      list.push_back({kCame, h.id});
  std::vector<Candidate> fits = s.screening.screen(list);
  std::erase_if(fits, [](const Candidate& c) { return !c.sample.data_agrees; });
  if (!fits.empty() && fits[0].ids.size() == 1) fits.resize(1);  // right: what changes nothing is right too
  if (fits.size() > 8) fits.resize(8);
  s.screening.confirm(fits);
  std::erase_if(fits, [](const Candidate& c) { return !c.whole.applies || !c.whole.data_agrees; });
  for (size_t n = 0; n < std::min<size_t>(fits.size(), 3); ++n)
    s.under_scales.push_back(fits[n].ids.size() == 1
                                 ? "under the scales that came every code is right"
                                 : fmt::format("under the scales that came every code is explained: {}",
                                               s.bad().front()->by_id.at(fits[n].ids[1])->title));
  if (fits.empty()) s.under_scales.push_back("codes are also wrong under the scales that came");
}

}  // namespace assay::cause

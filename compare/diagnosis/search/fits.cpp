#include "compare/diagnosis/search/fits.h"

#include "compare/arithmetic/equal_bytes.h"
#include "compare/diagnosis/search/codes.h"

namespace assay::cause {

Fit& Fit::operator+=(const Fit& o) {
  of += o.of, agree += o.agree, differ += o.differ, repaired += o.repaired, changed += o.changed,
      loss += o.loss;
  scales_agree &= o.scales_agree;
  data_agrees &= o.data_agrees;
  applies |= o.applies;
  return *this;
}

namespace {

void add(Fit& fit, uint32_t made, uint32_t got, uint32_t want) {
  ++fit.of;
  fit.agree += made == got;
  fit.differ += want != got;
  fit.repaired += want != got && made == got;
  fit.changed += made != want;
}

void finish_plane(Fit& fit, bool data) {
  fit.loss = fit.of ? static_cast<double>(fit.of - fit.agree) / static_cast<double>(fit.of) : 0;
  (data ? fit.data_agrees : fit.scales_agree) = fit.agree == fit.of;
}

}  // namespace

Fit fit_sample(const Sample& sample, const Ids& ids) {
  Fit fit;
  const auto rows = sample.lane->rows(ids);
  const auto planes = rows ? sample.lane->replay->run(sample.selection, *rows) : std::nullopt;
  if (!planes) return fit;
  fit.applies = true;
  for (const Sample::Part& part : sample.parts) {
    Fit of_plane;
    const Codes made((*planes)[part.plane]);
    for (size_t k = 0; k < part.at.size(); ++k) add(of_plane, made[part.at[k]], part.got[k], part.want[k]);
    finish_plane(of_plane, part.data);
    fit += of_plane;
  }
  return fit;
}

Fit fit_whole(const JudgedLane& lane, const Ids& ids) {
  Fit fit;
  const auto rows = lane.rows(ids);
  auto planes = rows ? lane.replay->run({}, *rows) : std::nullopt;
  if (!planes) return fit;
  for (const Hypothesis* h : *rows)
    if (!h->layout.empty()) lay_out(*h, *planes);
  fit.applies = true;
  for (const JudgedPlane& j : lane.judged) {
    Fit of_plane;
    const PlaneData& data = (*planes)[j.index];
    if (equal_bytes(data.bytes, j.got.bytes)) {  // what is exact is so in most planes
      of_plane.of = of_plane.agree = j.of;
      of_plane.differ = of_plane.repaired = of_plane.changed = j.differ;
    } else {
      const Codes made(data), got(j.got), want(j.want);
      for_logical(j.want.plane, [&](int64_t i) { add(of_plane, made[i], got[i], want[i]); });
    }
    finish_plane(of_plane, j.is_data());
    fit += of_plane;
  }
  return fit;
}

}  // namespace assay::cause

#include "compare/commands/training_cases/rank_runs.h"

#include "fixtures/json.h"

namespace assay {

using std::string;

string to_text(const std::vector<training::RankRun>& runs) {
  if (runs.empty()) return {};
  json::Value out = json::array();
  for (const training::RankRun& run : runs) {
    json::Value ranks = json::array();
    for (const training::RankRecord& r : run.ranks)
      ranks.push(
          json::object({{"rank", r.rank},
                        {"process", r.process},
                        {"collectives", json::Value(json::Array(r.collectives.begin(), r.collectives.end()))},
                        {"shards", json::Value(json::Array(r.left.begin(), r.left.end()))}}));
    json::Value& told = out.push(json::object({{"group", run.group}, {"size", run.size}, {"ranks", ranks}}));
    if (!run.error.empty()) told.set("error", run.error);
  }
  return json::dump(out);
}

}  // namespace assay

#include "compare/commands/worker_verdict.h"

#include <utility>

#include "fixtures/json.h"

namespace assay {

Verdict crashed_verdict(std::string why) {
  Verdict v;
  v.outcome = Outcome::crashed;
  v.reason = std::move(why);
  return v;
}

Verdict verdict_of_worker(const std::string& text) {
  const Result<json::Value> value = json::parse(text);
  Result<Verdict> v = value ? verdict_from_json(*value) : Result<Verdict>(value.error());
  return v ? std::move(*v) : crashed_verdict(v.error().text());
}

}  // namespace assay

#include <utility>

#include "compare/report/json_lines.h"
#include "compare/report/report.h"
#include "contract/line.h"

namespace assay {

namespace {

class JsonlReport final : public Report {
 public:
  JsonlReport(std::unique_ptr<JsonLines> lines, const Environment& environment)
      : lines_(std::move(lines)), environment_(to_text(environment)) {}

  void write(const json::Value& v) { lines_->write(v); }
  std::optional<Error> trouble() const override { return lines_->trouble(); }

  void result(const SuiteEntry& e, const Verdict& v) override {
    json::Value record =
        json::object({{"record", "case"}, {"file", e.file}, {"line_number", e.line}, {"line", e.text}});
    if (!environment_.empty()) record.set("environment", environment_);
    const Breach* first = v.breaches.empty() ? nullptr : &v.breaches[0];
    if (first) {
      record.set("claim", first->claim);
      record.set("plane", first->plane);
    }
    const json::Value verdict = to_json(v);
    for (const auto& [key, value] : *verdict.object()) record.set(key, value);
    write(record);
    // Each further claim that does not hold, with the members that say which.
    for (size_t i = 1; i < v.breaches.size(); ++i) {
      const Breach& b = v.breaches[i];
      write(json::object({{"record", "breach"},
                          {"file", e.file},
                          {"line_number", e.line},
                          {"line", e.text},
                          {"subject", v.subject},
                          {"outcome", name_of(v.outcome)},
                          {"claim", b.claim},
                          {"plane", b.plane}}));
    }
  }

  void finish(const Totals& t) override {
    json::Value record = json::object({{"record", "totals"},
                                       {"passed", t.passed},
                                       {"failed", t.failed},
                                       {"skipped", t.skipped},
                                       {"launches", t.launches},
                                       {"seconds", t.seconds}});
    json::Value outcomes = json::object();
    for (const auto& [outcome, count] : t.by_outcome) outcomes.set(name_of(outcome), count);
    json::Value reasons = json::object();
    for (const auto& [reason, count] : t.skip_reasons) reasons.set(reason, count);
    record.set("outcomes", std::move(outcomes));
    record.set("skip_reasons", std::move(reasons));
    if (!t.unpinned_reasons.empty()) {
      json::Value unpinned = json::object();
      for (const auto& [reason, count] : t.unpinned_reasons) unpinned.set(reason, count);
      record.set("unpinned_reasons", std::move(unpinned));
    }
    write(record);
  }

 private:
  std::unique_ptr<JsonLines> lines_;
  std::string environment_;
};

}  // namespace

Result<std::unique_ptr<Report>> make_jsonl_report(const std::string& path, const json::Value& doctor,
                                                  const Environment& environment) {
  Result<std::unique_ptr<JsonLines>> lines = JsonLines::open(path);
  if (!lines) return lines.error();
  auto report = std::make_unique<JsonlReport>(std::move(*lines), environment);
  report->write(json::object({{"record", "head"},
                              {"schema", "assay-report"},
                              {"version", kReportVersion},
                              {"line_version", kLineVersion},
                              {"doctor", doctor}}));
  return std::unique_ptr<Report>(std::move(report));
}

}  // namespace assay

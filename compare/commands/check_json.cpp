#include "compare/commands/check_json.h"

#include <utility>

#include "fixtures/files.h"

namespace assay {

namespace {

json::Value names(const std::vector<std::string>& words) {
  json::Value out = json::array();
  for (const std::string& word : words) out.push(word);
  return out;
}

json::Value breach_json(const Breach& b) {
  json::Value out = json::object();
  if (!b.message.empty()) out.set("message", b.message);
  if (b.plane.empty()) return out;
  out.set("plane", b.plane);
  out.set("where", b.where);
  out.set("differ", b.differ);
  out.set("of", b.of);
  return out;
}

}  // namespace

CheckJson::CheckJson(std::string path, const Acceptor* acceptor)
    : path_(std::move(path)), acceptor_(acceptor) {}

void CheckJson::add(const DumpCase& c, const CheckedCase& checked) {
  const CaseReport& r = checked.report;
  ++(r.breach ? failed_ : passed_);
  json::Value entry = json::object({{"pack", c.pack->path},
                                    {"case", c.recorded->id},
                                    {"line", c.recorded->line},
                                    {"outcome", r.breach ? "failed" : "passed"},
                                    {"judged", names(r.judged)},
                                    {"missing", names(r.missing)},
                                    {"notes", names(r.notes)}});
  if (r.breach) entry.set("breach", breach_json(*r.breach));
  if (checked.blocks)
    entry.set("blocks", json::object({{"simd", checked.blocks->accepted},
                                      {"reference", checked.blocks->referred},
                                      {"counted", checked.blocks->counted},
                                      {"instructions", acceptor_->target()}}));
  cases_.push(std::move(entry));
}

std::optional<Error> CheckJson::write(size_t of) const {
  if (path_.empty()) return {};
  const int64_t skipped = static_cast<int64_t>(of) - passed_ - failed_;
  const json::Value totals = json::object({{"passed", passed_}, {"failed", failed_}, {"skipped", skipped}});
  const json::Value file =
      json::object({{"schema", "assay.check"}, {"version", 1}, {"cases", cases_}, {"totals", totals}});
  return write_file(path_, json::dump(file, 1) + "\n");
}

}  // namespace assay

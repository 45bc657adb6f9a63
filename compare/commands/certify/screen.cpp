#include "compare/commands/certify/screen.h"

#include <cmath>

#include <fmt/format.h>

#include "compare/judge/cases.h"
#include "compare/judge/verdict.h"
#include "compare/text/terminal.h"
#include "contract/line.h"

namespace assay {

namespace {

// The screen of one failure; empty where the worker's answer cannot be read.
std::string failure_text(const CertifyPart& part, const CertifySide& side, const json::Value& failure,
                         const Subjects& subjects) {
  if (!failure.find("line")) return fmt::format("FAILED  certify {}\n{}", part.name, failure.text("text"));
  const Result<Problem> p = parse_line(failure.text("line"));
  Result<Verdict> v = verdict_from_json(*failure.find("verdict"));
  if (!p || !v) return {};
  v->argument = subjects.find(side.subject)->argument();
  SuiteEntry e = entry_of(*p);
  e.file = "certify " + part.name;
  return failure_screen(e, *v, side.environment);
}

std::string claim_failures(const CertifyPart& part, const ClaimRecord& claim, const Subjects& subjects,
                           bool colour) {
  std::string out;
  for (const json::Value& f : claim.failures) {
    std::string screen = failure_text(part, claim.side, f, subjects);
    if (screen.empty()) continue;
    if (colour) screen = coloured(screen.substr(0, 6), Colour::red) + screen.substr(6);
    out += fmt::format("{}  in all   {} of the outputs of {} inputs differ from the reference's\n\n", screen,
                       claim.differ, claim.compared);
  }
  return out;
}

}  // namespace

std::string part_text(const CertifyPart& part, const PartRecord& record, const json::Value& entry,
                      const Subjects& subjects, bool colour, Totals& totals) {
  std::string agree;
  bool red = false;
  const json::Array& claims = *entry.find("claims")->array();
  for (const json::Value& c : claims) {
    Verdict v;
    v.subject = c.text("got");
    v.outcome = *outcome_named(c.text("outcome"));
    v.reason = c.text("reason");
    totals.add(v);
    red |= is_red(v.outcome);
    if (v.outcome == Outcome::passed)
      agree += (agree.empty() ? "" : ", ") + v.subject + (c.find("environment") ? " again" : "");
  }
  std::string out;
  if (!agree.empty() || (!red && !claims.empty()))
    out += fmt::format("{:<64} {:>10}  {}{}  {}\n", part.name, part.domain.count,
                       agree.empty() ? "skipped" : agree, record.taken.is_null() ? "" : " (taken over)",
                       entry.text("fingerprint"));
  const bool every_claim_failed = !record.trouble.empty() || !record.law.empty();
  if (every_claim_failed)
    out += fmt::format("FAILED  {}\n  reason   {}\n\n", part.name,
                       record.trouble.empty() ? record.law : record.trouble);
  for (const ClaimRecord& claim : record.claims) {
    if (claim.outcome == "failed" && !claim.reason.empty() && !every_claim_failed)
      out += fmt::format("FAILED  {}\n  got      {}\n  reason   {}\n\n", part.name, claim.side.subject,
                         claim.reason);
    out += claim_failures(part, claim, subjects, colour);
  }
  return out;
}

std::string duration_text(double s) {
  const long seconds = std::lround(s);
  return seconds < 60 ? fmt::format("{} s", seconds) : fmt::format("{} min {} s", seconds / 60, seconds % 60);
}

}  // namespace assay

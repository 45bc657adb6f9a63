#include "compare/commands/case_screen.h"

#include <ostream>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/judge/parity.h"
#include "compare/process/interrupt.h"
#include "compare/report/github.h"
#include "compare/report/screen.h"
#include "compare/text/printable.h"

namespace assay {

using std::string;

Breach message_breach(const string& message) {
  Breach b;
  b.message = printable(message);
  return b;
}

std::optional<Breach> breach_of(const Problem& problem, Judgement judgement, std::string_view got,
                                std::string_view want) {
  if (!judgement.error.empty()) return message_breach(judgement.error);
  std::erase_if(judgement.padding,
                [](const PlaneDifference& d) { return d.plane.layout == ScaleLayout::compact; });
  if (judgement.cause || judgement.padding.empty()) return parity_breach(problem, judgement, got, want);
  const PlaneDifference& d = judgement.padding.front();
  Breach b;
  b.claim = "padding";
  b.got = got;
  b.want = want;
  b.plane = d.plane.name;
  b.encoding = info(d.plane.encoding).name;
  b.where = place_text(&problem, d.plane, d.place);
  b.in_padding = true;
  b.differ = d.differ;
  b.of = d.of;
  b.got_code = d.got;
  b.want_code = d.want;
  b.message = "GEMM-layout padding must be 0 (N6.4)";
  return b;
}

string join(const std::vector<string>& words) {
  string out;
  for (const string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

string notes_text(const string& place, const CaseReport& r) {
  string out;
  const auto note = [&](const string& text) {
    out += fmt::format("note     {}  {}\n", printable(place), printable(text));
  };
  for (const string& n : r.notes) note(n);
  if (!r.missing.empty()) note("not judged, absent from the pack: " + join(r.missing));
  return out;
}

CasePrinter::CasePrinter(std::ostream& out, bool github) : out_(out) {
  if (github) github_ = make_github_report([this](const string& lines) { out_ << lines << std::flush; });
}

void CasePrinter::print(const string& place, const string& recorded, const string& claim,
                        const CaseReport& r) {
  const string where = printable(place), line = printable(recorded);
  std::optional<Breach> breach = r.breach;
  if (breach) {
    breach->plane = printable(breach->plane);  // of two packs without a line
    for (string& text : breach->after) text = printable(text);
  }
  if (github_)
    report_check(*github_, totals_, place, line, breach);  // which names the file, and has escapes of its own
  out_ << notes_text(place, r);
  if (!breach) {
    ++passed_;
    out_ << fmt::format("passed   {}  {}   judged {}\n", where, line, printable(join(r.judged)));
  } else {
    ++failed_;
    out_ << fmt::format("\nFAILED  {}\n  {}\n  claim    {}\n", where, line.empty() ? "(no line)" : line,
                        claim)
         << cause_text(*breach);
    if (first_.empty())
      first_ = fmt::format("{}{}{}", where, breach->plane.empty() ? "" : ", plane " + breach->plane,
                           breach->where.empty() ? "" : ", " + breach->where);
  }
  if (!r.judges.empty()) out_ << "  judged " << printable(r.judges) << "\n";
  if (breach) out_ << "\n";
  out_ << std::flush;
}

void CasePrinter::print_early(const string& place, const string& first) {
  out_ << fmt::format("differs  {}  at {}; the rest is judged for the counts\n", printable(place), first)
       << std::flush;
}

void CasePrinter::skip(const string& where, const string& why) {
  ++skipped_;
  out_ << fmt::format("skipped  {}  {}\n", printable(where), printable(why));
}

void CasePrinter::print_first() {
  if (!first_.empty()) out_ << "first divergence: " << first_ << "\n" << std::flush;
}

void CasePrinter::print_cause(const string& text) {
  out_ << "cause: " << (text.empty() ? "none was found" : text) << "\n" << std::flush;
}

void CasePrinter::print_next(const string& command) { out_ << "explain: " << command << "\n"; }

int CasePrinter::finish() {
  if (github_) github_->finish(totals_);
  out_ << fmt::format("{} passed, {} failed, {} skipped\n", passed_, failed_, skipped_) << std::flush;
  return failed_ ? 1 : passed_ ? 0 : 3;
}

int CasePrinter::finish_interrupted(size_t judged, size_t of) {
  skipped_ += of - (passed_ + failed_ + skipped_);
  out_ << fmt::format("interrupted: {} of {} cases were judged\n", judged, of);
  return finish() == 1 ? 1 : kInterrupted;
}

}  // namespace assay

#include <algorithm>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/judge/unpinned.h"
#include "compare/report/report.h"
#include "compare/report/screen.h"
#include "compare/text/printable.h"
#include "compare/text/terminal.h"
#include "contract/line.h"

namespace assay {

namespace {

std::string upper(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return out;
}

std::string place_of_entry(const SuiteEntry& e) {
  return printable(e.line ? fmt::format("{}:{}", e.file, e.line) : e.file);
}

// The subject that repeats a breach: its name without " again".
std::string subject_flag(const Verdict& v) {
  return v.argument.empty() || v.subject == "host" ? "" : " " + v.argument;
}  // host is the default

// Tensor coordinates of a breach for --at, or an empty string.
std::string trace_place(const Problem& p, const Breach& b) {
  if (b.row < 0 || b.in_padding || b.plane.empty()) return {};
  for (const std::vector<Plane>& planes : {output_planes(p), input_planes(p)})
    for (const Plane& plane : planes)
      if (plane.name == b.plane) {
        const Region g = region_of(&p, plane, {false, b.row, b.col});
        return fmt::format("{},{}", g.row0, g.col0);
      }
  return {};
}

std::string claim_text(const Breach& b) {
  if (b.claim == "parity" || b.claim == "replay" || b.claim == "device")
    return fmt::format("{} == {}", b.got, b.want);
  if (b.claim == "repeat") return fmt::format("{} == {} (repeat)", b.got, b.want);
  return fmt::format("{} of {}", b.claim, b.got);
}

std::string about_text(const Verdict& v) {
  std::string out;
  for (const std::string& line : v.about) out += "  " + line + "\n";
  return out;
}

std::string parenthesis(const Verdict& v) {
  const std::string unpinned = unpinned_text(v);
  return v.reason.empty() && unpinned.empty()
             ? ""
             : fmt::format("   ({}{}{})", v.reason, v.reason.empty() || unpinned.empty() ? "" : "; ",
                           unpinned);
}

// What a failure comes from, as far as it says so itself; empty where it does not.
std::string cause_key(const Verdict& v) {
  const Breach* b = v.breaches.empty() ? nullptr : &v.breaches[0];
  const std::string why = !b ? v.reason : !b->message.empty() ? b->message : b->hint;
  if (why.empty()) return {};
  return fmt::format("{}|{}|{}|{}|{}", v.subject, name_of(v.outcome), b ? b->claim : "", b ? b->plane : "",
                     why);
}

class TextReport final : public Report {
 public:
  TextReport(std::FILE* out, const TextOptions& options) : out_(out), options_(options) {}

  void result(const SuiteEntry& e, const Verdict& v) override {
    if (is_red(v.outcome)) {
      if (!options_.verbose && is_same_cause(v)) return;
      if (screens_++ < options_.full_screens) {
        std::string screen = failure_screen(e, v, options_.environment, options_.launched);
        if (options_.colour) {
          const size_t word = screen.find(' ');
          screen = coloured(screen.substr(0, word), Colour::red) + screen.substr(word);
        }
        fmt::print(out_, "{}\n", screen);
      } else {
        const Breach* b = v.breaches.empty() ? nullptr : &v.breaches[0];
        fmt::print(out_, "{}  {}  {}  {} {}  {}\n", upper(name_of(v.outcome)), place_of_entry(e),
                   printable(e.text), b ? claim_text(*b) : v.subject, b ? b->plane : "",
                   b ? b->where : v.reason);
      }
    } else if (options_.verbose) {
      fmt::print(out_, "{:<11} {}  {}  {}{}\n{}", name_of(v.outcome), v.subject, place_of_entry(e),
                 printable(e.text), parenthesis(v), about_text(v));
    }
    std::fflush(out_);
  }

  void finish(const Totals& t) override {
    print_same();
    if (screens_ > options_.full_screens)
      fmt::print(out_, "{} failures are shown in one line each; --filter or --first shows one\n",
                 screens_ - options_.full_screens);
    for (const auto& [reason, count] : t.skip_reasons) fmt::print(out_, "skipped {}: {}\n", count, reason);
    for (const auto& [reason, count] : t.unpinned_reasons)
      fmt::print(out_, "judged by the bound ({}) {}: {}\n", t.unpinned_clauses.at(reason), count, reason);
    for (Outcome o : {Outcome::mistrusted, Outcome::crashed, Outcome::stale})
      if (const auto n = t.by_outcome.find(o); n != t.by_outcome.end())
        fmt::print(out_, "{} of the failed {} {}\n", n->second, n->second == 1 ? "is" : "are", name_of(o));
    if (t.empty > 0)
      fmt::print(out_, "{} of the passed {} no element: nothing was compared there\n", t.empty,
                 t.empty == 1 ? "has" : "have");
    fmt::print(out_, "{} kernels launched\n", t.launches);
    fmt::print(out_, "{}\n", t.last_line());
    std::fflush(out_);
  }

 private:
  // A cause that is said once is counted from then on, for as long as nothing else fails.
  bool is_same_cause(const Verdict& v) {
    const std::string key = cause_key(v);
    if (!key.empty() && key == cause_) return ++same_ > 0;
    print_same();
    cause_ = key;
    return false;
  }
  void print_same() {
    if (same_ > 0)
      fmt::print(out_, "same cause as above: {} more line{} (-v shows {})\n\n", same_, same_ == 1 ? "" : "s",
                 same_ == 1 ? "it" : "them");
    same_ = 0;
  }

  std::FILE* out_;
  TextOptions options_;
  size_t screens_ = 0, same_ = 0;
  std::string cause_;  // of the latest failure that was printed
};

}  // namespace

void Totals::add(const Verdict& v) {
  ++by_outcome[v.outcome];
  launches += static_cast<size_t>(v.launches);
  seconds += v.seconds;
  if (!v.unpinned.empty()) {
    const string reason = v.subject + ": " + v.unpinned;
    ++unpinned_reasons[reason];
    unpinned_clauses[reason] = bound_clause(v);
  }
  if (v.outcome == Outcome::passed) {
    ++passed;
    empty += v.reason == kNoElement;
  } else if (is_red(v.outcome)) {
    ++failed;
  } else {
    ++skipped;
    const bool processes = !v.claims.empty() && v.claims.front() == "ranks";  // the subject is not to blame
    ++skip_reasons[processes
                       ? v.reason
                       : fmt::format("{} {}: {}", v.subject,
                                     v.outcome == Outcome::skipped ? "is absent" : "does not support it",
                                     v.reason)];
  }
}

std::string Totals::last_line() const {
  return fmt::format("{} passed, {} failed, {} skipped", passed, failed, skipped);
}
int Totals::exit_status() const { return failed > 0 ? 1 : passed > 0 ? 0 : 3; }

std::string shell_quoted(std::string_view text) {
  const bool plain = printable("'" + std::string(text)) == "'" + std::string(text);
  std::string out = plain ? "'" : "$'";  // what a terminal would act on is written in the shell's own escapes
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (plain) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    else if (c == '\'' || c == '\\') out += std::string("\\") + c;
    else if (byte < 0x20 || byte >= 0x7F || c == '#') out += fmt::format("\\x{:02x}", byte);
    else out += c;
  }
  return out + "'";
}

std::string failure_screen(const SuiteEntry& entry, const Verdict& v, const Environment& environment,
                           const std::string& launched) {
  std::string out =
      fmt::format("{}  {}\n  {}\n", upper(name_of(v.outcome)), place_of_entry(entry), printable(entry.text)) +
      about_text(v);
  if (v.breaches.empty()) {
    out += fmt::format("  reason   {}\n", v.reason);
  } else {
    const Breach& b = v.breaches[0];
    const bool bounded = !v.unpinned.empty() && (b.claim == "bound" || b.claim == "integer");
    out += fmt::format("  claim    {:<56} policy {}\n", claim_text(b),
                       bounded ? fmt::format("bound, any order ({})", bound_clause(v)) : "bitwise");
    out += cause_text(b);
    for (size_t i = 1; i < std::min<size_t>(v.breaches.size(), 4); ++i) {
      const Breach& also = v.breaches[i];
      out += fmt::format("  also     {}{}{}{}\n", claim_text(also),
                         also.plane.empty() ? "" : " at " + also.plane,
                         also.where.empty() ? "" : ", " + also.where,
                         also.message.empty() ? "" : ": " + also.message.substr(0, also.message.find('\n')));
    }
    if (v.breaches.size() > 4)
      out += fmt::format("  also     {} more claims do not hold\n", v.breaches.size() - 4);
  }
  if (!v.unpinned.empty()) out += "  bits     " + unpinned_text(v) + "\n";
  if (!v.witness.empty()) out += "  witness  " + v.witness + "\n";
  if (!v.served.empty()) out += "  served   " + v.served + "\n";
  std::string env = !v.breaches.empty() && !v.breaches[0].environment.empty() ? v.breaches[0].environment
                                                                              : to_text(environment);
  // A repeat always runs under a second environment of its own choice; the repro is the line alone.
  if (!v.breaches.empty() && v.breaches[0].claim == "repeat") {
    out += "  under    --env " + env + "\n";
    env = to_text(environment);
  }
  const std::string line = shell_quoted(entry.text), subject = subject_flag(v);
  out += fmt::format("  repro    {} run {}{}{}\n", launched.empty() ? "assay" : launched, line, subject,
                     env.empty() ? "" : " --env " + env);
  if (v.about.empty() &&
      (v.outcome == Outcome::failed || v.outcome == Outcome::crashed)) {  // shrink and trace take lines
    out += fmt::format("  smaller  assay shrink {}{}\n", line, subject);
    const std::string at = v.breaches.empty() ? "" : trace_place(entry.problem, v.breaches[0]);
    if (!at.empty()) out += fmt::format("  look     assay trace {}{} --at {}\n", line, subject, at);
    if (v.outcome == Outcome::failed)
      out +=
          fmt::format("  explain  assay explain {}{}{}\n", line, subject, env.empty() ? "" : " --env " + env);
  }
  return out;
}

std::unique_ptr<Report> make_text_report(std::FILE* out, const TextOptions& options) {
  return std::make_unique<TextReport>(out, options);
}

}  // namespace assay

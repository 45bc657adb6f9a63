#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/judge/unpinned.h"
#include "compare/report/report.h"
#include "compare/report/screen.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "compare/text/terminal.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

namespace {

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

// "scales" of row.scale_inv, col.scale_inv[2] and row.scale_gemm: one mistake shows in all of them.
std::string kind_of_plane(std::string_view plane) {
  plane = plane.substr(0, plane.find('['));
  for (const std::string_view side : {"row.", "col."})
    if (plane.starts_with(side)) plane.remove_prefix(side.size());
  return std::string(plane == "scale_inv" || plane == "scale_gemm" ? "scales" : plane);
}

// How far off the first element is, where no hint says more.
std::string distance_text(const Breach& b) {
  if (b.in_padding) return "padding";
  if (!b.apart) return b.got_code && b.want_code ? "NaN on one side" : "";
  if (*b.apart == 0) return "the same value in another code";
  return *b.apart == 1 ? "one code apart" : "several codes apart";
}

// A failure as a word of the sort that two failures of one cause share: without numbers, which are those of
// a line, and of roundings that are off by one code without the direction, which is that of the numbers.
std::string sort_of(const std::string& text) {
  if (text.starts_with("one code apart")) return "one code apart";
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto goes_on = [&](char c) {  // "1.7e+38", "0..31", "7F"
    return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == '.' || c == '+' || c == '-';
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!digit(text[i])) {
      out += text[i];
      continue;
    }
    out += '#';
    while (i + 1 < text.size() && goes_on(text[i + 1])) ++i;
  }
  return out;
}

// What a failure comes from as far as it says so itself, and the key that other failures of it have too.
struct FailureCause {
  std::string key, text;
};
FailureCause cause_of(const Verdict& v) {
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  if (v.breaches.empty())
    return {fmt::format("{}|{}|{}", v.subject, name_of(v.outcome), v.reason),
            fmt::format("{} {}: {}", v.subject, name_of(v.outcome), first_line(v.reason))};
  const Breach& b = v.breaches[0];
  const bool counted = !b.plane.empty() && b.of > 0;  // else the message is all there is
  const std::string distance = distance_text(b);
  const std::string why = counted && !b.hint.empty()     ? b.hint
                          : counted && b.message.empty() ? distance
                                                         : b.message;
  const std::string kind = kind_of_plane(b.plane);
  const std::string at = kind.empty() ? "" : " at " + kind;
  return {fmt::format("{}|{}|{}|{}|{}", v.subject, name_of(v.outcome), b.claim, kind,
                      b.plane.empty() ? why : sort_of(why)),
          fmt::format("{}{}{}", claim_text(b), at, why.empty() ? "" : ": " + first_line(why))};
}

class TextReport final : public Report {
 public:
  TextReport(std::FILE* out, const TextOptions& options) : out_(out), options_(options) {}

  void result(const SuiteEntry& e, const Verdict& v) override {
    if (is_red(v.outcome)) {
      if (is_told(e, v) && !options_.verbose) return;
      if (screens_++ < options_.full_screens) {
        std::string screen = failure_screen(e, v, options_.environment, options_.launched);
        if (options_.colour) {
          const size_t word = screen.find(' ');
          screen = coloured(screen.substr(0, word), Colour::red) + screen.substr(word);
        }
        fmt::print(out_, "{}\n", screen);
      } else {
        const Breach* b = v.breaches.empty() ? nullptr : &v.breaches[0];
        say("{}  {}  {}  {} {}  {}\n", upper(name_of(v.outcome)), place_of_entry(e), printable(e.text),
            b ? claim_text(*b) : v.subject, b ? b->plane : "", b ? b->where : v.reason);
      }
    } else if (options_.verbose) {
      say("{:<11} {}  {}  {}{}\n{}", name_of(v.outcome), v.subject, place_of_entry(e), printable(e.text),
          parenthesis(v), about_text(v));
      if (!v.served.empty()) say("            served {}\n", printable(v.served));
    }
    std::fflush(out_);
  }

  void finish(const Totals& t) override {
    print_same();
    print_causes();
    if (screens_ > options_.full_screens)
      fmt::print(out_, "{} failures are shown in one line each; --filter or --first shows one\n",
                 screens_ - options_.full_screens);
    for (const auto& [reason, count] : t.skip_reasons) say("skipped {}: {}\n", count, reason);
    for (const auto& [reason, count] : t.unpinned_reasons)
      say("judged by the bound ({}) {}: {}\n", t.unpinned_clauses.at(reason), count, reason);
    for (const auto& [what, count] : t.open_points) say("a GPU may give other bytes {}: {}\n", count, what);
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
  // Prints what may hold foreign text: messages of a plugin, its name, the last words of a crash.
  template <class... T> void say(fmt::format_string<T...> format, T&&... values) {
    fmt::print(out_, "{}", printable_lines(fmt::format(format, std::forward<T>(values)...)));
  }
  // Whether a failure of this cause has been shown. One that is shown once is counted from then on.
  bool is_told(const SuiteEntry& e, const Verdict& v) {
    FailureCause cause = cause_of(v);
    const auto [at, is_new] = numbers_.try_emplace(std::move(cause.key), causes_.size());
    if (is_new) at->second = cause_in_common({e, v});
    const bool fresh = at->second == causes_.size();
    if (fresh) causes_.push_back({std::move(cause.text), place_of_entry(e), 0, {{e, v}}, {}});
    ++causes_[at->second].failures;
    ++failures_;
    if (fresh) {
      print_same();
      latest_ = at->second;
      return false;
    }
    ++same_;
    one_cause_ &= at->second == latest_;
    return true;
  }
  // The earlier cause that a failure of a new pattern has too; the number of causes where there is none.
  size_t cause_in_common(const Failure& failure) {
    for (size_t i = 0; options_.common_cause && i < causes_.size(); ++i) {
      Cause& c = causes_[i];
      if (c.patterns.front().verdict.subject != failure.verdict.subject) continue;
      c.patterns.push_back(failure);
      if (auto name = options_.common_cause(c.patterns)) {
        c.name = std::move(*name);
        return i;
      }
      c.patterns.pop_back();
    }
    return causes_.size();
  }
  void print_same() {
    if (same_ > 0 && !options_.verbose)
      fmt::print(out_, "same cause{} as above: {} more line{} (-v shows {})\n\n", one_cause_ ? "" : "s",
                 same_, same_ == 1 ? "" : "s", same_ == 1 ? "it" : "them");
    same_ = 0;
    one_cause_ = true;
  }
  // The causes by the failures that they count, where one of them counts several.
  void print_causes() {
    if (failures_ == causes_.size()) return;
    std::vector<const Cause*> sorted;
    for (const Cause& c : causes_) sorted.push_back(&c);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Cause* a, const Cause* b) { return a->failures > b->failures; });
    fmt::print(out_, "causes of the {} failures, as far as they show\n", failures_);
    for (const Cause* c : sorted) {
      fmt::print(out_, "  {:>6}  {}   first {}\n", c->failures, printable(c->text), c->first);
      if (c->patterns.size() > 1)
        fmt::print(
            out_,
            "          and {} more pattern{}; one cause makes every byte of the first line of each: {}\n",
            c->patterns.size() - 1, c->patterns.size() == 2 ? "" : "s", printable(c->name));
    }
    fmt::print(out_, "\n");
  }

  // What failures have in common, as far as they say so themselves.
  struct Cause {
    std::string text, first;  // the suite's file and line of the first failure
    size_t failures = 0;
    std::vector<Failure> patterns;  // the first failure of each pattern that it shows
    std::string name;               // where these are several
  };
  std::FILE* out_;
  TextOptions options_;
  size_t screens_ = 0, failures_ = 0;
  std::vector<Cause> causes_;              // in the order in which they came
  std::map<std::string, size_t> numbers_;  // of the causes, by their keys
  size_t same_ = 0, latest_ = 0;  // failures since the cause that was shown last, which are not shown
  bool one_cause_ = true;         // ... and all of that one
};

}  // namespace

void Totals::add(const Verdict& v) {
  ++by_outcome[v.outcome];
  launches += static_cast<size_t>(v.launches);
  seconds += v.seconds;
  if (!v.unpinned.empty()) {
    const std::string reason = v.subject + ": " + v.unpinned;
    ++unpinned_reasons[reason];
    unpinned_clauses[reason] = bound_clause(v);
  }
  for (const std::string_view point : words_of(v.served, ';'))
    if (const size_t at = point.find_first_not_of(' ');
        at != point.npos && point.substr(at).starts_with("depends on "))
      ++open_points[fmt::format("{} {}", v.subject, point.substr(at))];
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

namespace {

// The screen with foreign text as it came.
std::string raw_screen(const SuiteEntry& entry, const Verdict& v, const Environment& environment,
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

}  // namespace

std::string failure_screen(const SuiteEntry& entry, const Verdict& v, const Environment& environment,
                           const std::string& launched) {
  return printable_lines(raw_screen(entry, v, environment, launched));
}

std::unique_ptr<Report> make_text_report(std::FILE* out, const TextOptions& options) {
  return std::make_unique<TextReport>(out, options);
}

}  // namespace assay

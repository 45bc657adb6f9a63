#include "compare/diagnosis/report/text.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"

namespace assay {

namespace {

using std::string;

// 98.7 %, and never 100 % of what is not all.
string percent(int64_t part, int64_t of) {
  if (of == 0) return "0 %";
  if (part == of) return "100 %";
  const double p = 100.0 * static_cast<double>(part) / static_cast<double>(of);
  return p >= 99.95 ? "99.9 %" : p > 0 && p < 0.05 ? "below 0.1 %" : fmt::format("{:.1f} %", p);
}

string all_of(int64_t differences) {
  return differences == 1 ? "the only difference" : fmt::format("all {} differences", differences);
}

string row(std::string_view label, const string& text) {
  return fmt::format("  {:<10} {}\n", label, printable(text));
}

// "the code follows": the stages of one direction in a line.
string stages_of(const Diagnosis& d, Direction direction) {
  string out;
  for (const StageVerdict& s : d.stages) {
    if (s.direction != direction) continue;
    const string counted = s.of ? fmt::format(" {}/{}", s.differ, s.of) : "";
    const string word = s.outcome == StageOutcome::equal     ? " ok"
                        : s.outcome == StageOutcome::unseen  ? ""
                        : s.outcome == StageOutcome::follows ? " follows" + counted
                                                             : " DIFFERS" + counted;
    if (!word.empty()) out += (out.empty() ? "" : ", ") + string(name_of(s.stage)) + word;
  }
  return out;
}

string headword(const Diagnosis& d) {
  switch (d.confidence) {
    case Confidence::equal: return d.unpinned.empty() ? "EQUAL" : "INSIDE THE BOUND";
    case Confidence::certain:
    case Confidence::equivalent: return "EXPLAINED";
    case Confidence::partial: return "PARTLY";
    case Confidence::unexplained: return "UNEXPLAINED";
    case Confidence::random: return d.unwritten.empty() ? "RANDOM" : "UNWRITTEN";
  }
  return {};
}

string named(const Explanation& e) {
  string ids;
  for (const string& id : e.ids) ids += (ids.empty() ? "" : " + ") + id;
  return fmt::format("{}   [{}{}]", e.title, ids, e.clause.empty() ? "" : ", " + e.clause);
}

string histogram(const std::vector<std::pair<string, int64_t>>& buckets, int64_t of) {
  auto sorted = buckets;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  string out;
  for (size_t i = 0; i < std::min<size_t>(sorted.size(), 3); ++i)
    if (sorted[i].second > 0)
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", sorted[i].first, percent(sorted[i].second, of));
  return out;
}

string cell(const std::optional<std::pair<Encoding, uint32_t>>& v) {
  return v ? fmt::format("{} ({})", code_hex(v->first, v->second), value_text(v->first, v->second)) : "-";
}

// ---- parts of the screen ----------------------------------------------------------------------------------

// Green where nothing differs, cyan where the cause is known, red else.
int colour_of(Confidence c) {
  if (c == Confidence::equal) return 32;
  return c == Confidence::certain || c == Confidence::equivalent ? 36 : 31;
}

string subject_row(const Diagnosis& d) {
  string runs;
  if (d.deterministic)
    runs = *d.deterministic       ? "   two runs agree"
           : !d.unwritten.empty() ? "   two runs differ where nothing was written"
           : !d.runs.empty()
               ? "   two runs differ"
               : "   two runs differ: look for a race, or memory that is read before it is written";
  return row("subject", d.subject + runs);
}

string equal_row(const Diagnosis& d) {
  if (d.elements == 0) return row("result", "the tensor has no elements, so nothing can differ");
  const char* what =
      d.unpinned.empty() ? "as they should be" : "inside the bound: there is nothing to explain";
  return row("result", fmt::format("all {} elements are {}", d.elements, what));
}

string stage_rows(const Diagnosis& d) {
  string out;
  if (d.first) {
    const char* side = !d.direction ? "" : *d.direction == Direction::row ? ", rows" : ", columns";
    out += row("first", fmt::format("{}{}", name_of(*d.first), side));
  }
  for (const Direction direction : kDirections)
    if (const string text = stages_of(d, direction); !text.empty())
      out += row(direction == Direction::row ? "rows" : "columns", text);
  return out;
}

string pattern_rows(const Diagnosis& d) {
  string out;
  size_t shown = 0;
  for (const PlaneSummary& p : d.planes) {
    if (p.differ == 0 || shown++ >= 4) continue;
    const string apart = histogram(p.code_distance, p.differ);
    out += row("differs", fmt::format("{} ({})  {} of {}{}", p.plane, p.encoding, p.differ, p.of,
                                      apart.empty() ? "" : "   codes apart " + apart));
  }
  for (size_t i = 0; i < std::min<size_t>(d.fingerprints.size(), 4); ++i)
    out += row(i ? "" : "pattern", d.fingerprints[i]);
  if (d.where.empty() && !d.planes.empty() && !d.of_padding()) out += row("where", "no coordinate tells");
  for (size_t i = 0; i < std::min<size_t>(d.where.size(), 3); ++i) {
    const Coordinate& c = d.where[i];
    out += row(i ? "" : "where", fmt::format("{}: {} of the differences in {} of the elements", c.what,
                                             percent(c.differ, c.differ_of), percent(c.inside, c.inside_of)));
  }
  return out;
}

// The first `exact` explanations, which are exact.
string exact_rows(const Diagnosis& d, size_t exact) {
  constexpr size_t kMost = 4;
  string out;
  for (size_t i = 0; i < std::min(exact, kMost); ++i) {
    const Explanation& e = d.explanations[i];
    out += row(i ? "or" : "cause", named(e));
    if (d.of_padding())
      out += row("", fmt::format("all {} elements are right; only the padding is wrong", e.of));
    else if (i == 0)
      out += row(
          "", fmt::format("makes {} and nothing else: {} of {} elements", all_of(e.differ), e.agree, e.of));
    if (!e.line.empty() && i < 2) out += row("", "as " + shell_quoted(e.line));
  }
  if (exact > kMost) out += row("", fmt::format("or {} more that make the same bytes", exact - kMost));
  for (const string& line : d.separating) out += row("tell apart", "on " + shell_quoted(line));
  return out;
}

// The best explanation that is not exact, and where the cause is known in part, the next.
string runner_up_rows(const Diagnosis& d, size_t exact) {
  if (exact >= d.explanations.size()) return "";
  const bool partial = d.confidence == Confidence::partial;
  const Explanation& e = d.explanations[exact];
  const int64_t wrong = e.made_anew();
  string out = row(partial ? "cause" : "next best",
                   fmt::format("{}: {} of the differences{}", named(e), percent(e.repaired, e.differ),
                               wrong > 0 ? fmt::format(", and {} new ones", wrong) : ""));
  if (partial && !e.line.empty()) out += row("", "as " + shell_quoted(e.line));
  if (partial && exact + 1 < d.explanations.size()) {
    const Explanation& next = d.explanations[exact + 1];
    out += row("next best",
               fmt::format("{}: {} of the differences", named(next), percent(next.repaired, next.differ)));
  }
  return out;
}

string element_row(const Diagnosis& d) {
  if (d.trace.steps.empty() && d.trace.outputs.empty()) return "";
  string parts;
  for (const auto* rows : {&d.trace.steps, &d.trace.outputs})
    for (const TraceRow& r : *rows)
      if (parts.empty() && r.differs())
        parts = fmt::format("{}{}: {}, should be {}", r.clause.empty() ? "" : r.clause + " ", r.what,
                            cell(r.right), cell(r.left));
  const char* side = d.trace.direction == Direction::row ? "rows" : "columns";
  return row("element", fmt::format("({}, {}) {}   {}", d.trace.row, d.trace.col, side, parts));
}

string reproducer_rows(const Diagnosis& d) {
  string out;
  if (!d.reproducer.empty()) {
    const string subject = d.argument.empty() ? "" : " " + d.argument;
    const char* limited = d.reproducer_limited ? "   (a limit ended the search for a smaller one)" : "";
    out += row("smaller", shell_quoted(d.reproducer) + subject + limited);
  }
  for (const string& file : d.reproducer_files) out += row("wrote", file);
  return out;
}

// A few of the faults that this input cannot show, from all over the list.
string invisible_row(const std::vector<string>& ids) {
  if (ids.empty()) return "";
  const size_t shown = std::min<size_t>(ids.size(), 4);
  string some;
  for (size_t i = 0; i < shown; ++i)
    some += (some.empty() ? "" : ", ") + ids[i * (ids.size() - 1) / std::max<size_t>(shown - 1, 1)];
  return row("invisible", fmt::format("{} faults change nothing on this input: {}{}", ids.size(), some,
                                      ids.size() > 4 ? ", ..." : ""));
}

}  // namespace

string cause_line(const Diagnosis& d) {
  if (d.confidence == Confidence::equal || d.explanations.empty()) return {};
  const Explanation& e = d.explanations.front();
  const string clause = e.clause.empty() ? "" : " (" + e.clause + ")";
  switch (d.confidence) {
    case Confidence::certain: return fmt::format("{}{}: {}", e.title, clause, all_of(e.differ));
    case Confidence::equivalent: {
      const auto exact = std::count_if(d.explanations.begin(), d.explanations.end(),
                                       [](const Explanation& x) { return x.exact(); });
      return fmt::format("{}{}, or {} other{} that make{} the same bytes here", e.title, clause, exact - 1,
                         exact == 2 ? "" : "s", exact == 2 ? "s" : "");
    }
    case Confidence::partial:
      return fmt::format("perhaps {}{}: {} of the differences", e.title, clause,
                         percent(e.repaired, e.differ));
    default: return {};
  }
}

string diagnosis_screen(const Diagnosis& d, bool colour) {
  string head = headword(d);
  if (colour) head = fmt::format("\033[{}m{}\033[0m", colour_of(d.confidence), head);
  string out = fmt::format("{}  {}\n", head, printable(d.line)) + subject_row(d);
  if (!d.unpinned.empty()) out += row("bits", d.unpinned);
  for (size_t i = 0; i < d.unwritten.size(); ++i) out += row(i ? "" : "unwritten", d.unwritten[i]);
  for (size_t i = 0; i < d.runs.size(); ++i) out += row(i ? "" : "runs", d.runs[i]);
  if (d.confidence == Confidence::equal) return out + equal_row(d);
  if (!d.part.empty())
    out +=
        row("searched", d.part + ", the part around the first difference; places below count from its first");
  const auto is_exact = [](const Explanation& e) { return e.exact(); };
  const auto exact =
      static_cast<size_t>(std::count_if(d.explanations.begin(), d.explanations.end(), is_exact));
  out += stage_rows(d) + pattern_rows(d) + exact_rows(d, exact);
  if (exact == 0 && d.confidence == Confidence::unexplained)
    out += row("cause", d.cut_short ? "none was found before the search was ended"
                                    : fmt::format("none of {} hypotheses makes these bytes", d.hypotheses));
  out += runner_up_rows(d, exact) + element_row(d) + reproducer_rows(d) + invisible_row(d.invisible);
  if (d.cut_short) out += row("ended", "by --budget or by Ctrl-C: other causes may make the same bytes");
  return out + row("tried", fmt::format("{} hypotheses, {} runs of the reference, {:.1f} s", d.hypotheses,
                                        d.evaluations, d.seconds));
}

}  // namespace assay

#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/report/html_sections.h"
#include "compare/text/html.h"
#include "compare/text/shell.h"

namespace assay::sections {

using std::string;

namespace {

string explanation_row(const Explanation& e) {
  return fmt::format(
      "<tr><td><p>{}</p><div class=\"ids quiet\">{}{}</div>{}</td><td data-label=\"stage\">{}</td>"
      "<td class=\"n\" data-label=\"repairs\" title=\"{} of {}\">{}</td><td class=\"n\" "
      "data-label=\"breaks\">{}</td>"
      "<td class=\"n\" data-label=\"all elements\" title=\"{} of {}\">{}</td></tr>\n",
      escaped(e.title), ids_text(e), e.clause.empty() ? "" : " · " + escaped(e.clause),
      e.line.empty() ? "" : command(e.line), escaped(name_of(e.stage)), grouped(e.repaired),
      grouped(e.differ), percent(e.repaired, e.differ), grouped(breaks(e)), grouped(e.agree), grouped(e.of),
      percent(e.agree, e.of));
}

// The explanations that are exact, or those that are not, under a heading.
string explanation_group(const Diagnosis& d, bool exact) {
  string rows;
  for (const Explanation& e : d.explanations)
    if (e.exact() == exact) rows += explanation_row(e);
  if (rows.empty()) return {};
  const char* heading = exact                   ? "Exact: makes every byte that came"
                        : exact_ones(d).empty() ? "Not exact, the best first"
                                                : "Runners-up";
  return fmt::format(
      "<tbody>\n<tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">{}</th></tr>\n{}</tbody>\n", heading,
      rows);
}

string explanation_table(const Diagnosis& d) {
  if (d.explanations.empty()) return "<p>None of them explains any of the differences.</p>\n";
  const string head =
      table_head({{"cause"}, {"stage"}, {"repairs", "n"}, {"breaks", "n"}, {"all elements", "n"}});
  return "<table class=\"causes\">" + head + "\n" + explanation_group(d, true) + explanation_group(d, false) +
         "</table>\n";
}

string separating_lines(const Diagnosis& d) {
  if (d.separating.empty()) return {};
  string out = "<h3>Lines that tell equivalents apart</h3>\n";
  // Of a pack there is no subject to run: the line says what to dump.
  const bool of_pack = d.subject.starts_with("pack ");
  const string subject = d.argument.empty() ? "" : " " + d.argument;
  for (const string& line : d.separating)
    out += command(of_pack ? line : "assay explain " + shell_quoted(line) + subject);
  return out;
}

string invisible_faults(const std::vector<string>& ids) {
  if (ids.empty()) return {};
  const bool one = ids.size() == 1;
  string out = fmt::format(
      "<h3>What this input could not have revealed</h3>\n"
      "<p>{} would change none of its bytes; another input may show {}.</p>\n<ul class=\"columns\">\n",
      one ? "One fault" : grouped(static_cast<int64_t>(ids.size())) + " faults", one ? "it" : "them");
  for (const string& id : ids) out += "<li>" + code(id) + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

string causes(const Diagnosis& d) {
  if (d.confidence == Confidence::equal || (d.confidence == Confidence::random && d.explanations.empty()))
    return {};
  const string tried = d.hypotheses == 1 ? "1 hypothesis was" : grouped(d.hypotheses) + " hypotheses were";
  return fmt::format("<section>\n<h2>Causes</h2>\n<p>{} tried in {} runs of the reference.</p>\n", tried,
                     grouped(d.evaluations)) +
         explanation_table(d) + separating_lines(d) + invisible_faults(d.invisible) + "</section>\n";
}

}  // namespace assay::sections

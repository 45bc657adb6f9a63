#include "compare/diagnosis/report/github.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/report/github.h"
#include "compare/text/html.h"

namespace assay {

using std::string;

namespace {

constexpr size_t kMostRows = 100;  // of the summary, which may have 1 MiB

}  // namespace

void annotate_diagnosis(const Diagnosis& d, std::FILE* out) {
  Annotation a;
  a.level = d.confidence == Confidence::equal ? "notice" : "error";
  const string place =
      d.first
          ? fmt::format(
                "{}{}: ", name_of(*d.first),
                d.direction ? fmt::format(", {}", *d.direction == Direction::row ? "rows" : "columns") : "")
          : "";
  a.title = place + headline(d);
  const Explanation* best =
      d.explanations.empty() || d.confidence == Confidence::unexplained ? nullptr : &d.explanations.front();
  const string explained =
      !d.runs.empty() ? d.runs.front()
      : best          ? fmt::format("explains {} of what differs", percent(best->repaired, best->differ))
                      : "";
  a.message =
      fmt::format("{}\nmade by {}; {}{}{}", d.line, d.subject, name_of(d.confidence),
                  explained.empty() ? "" : ", " + explained, d.command.empty() ? "" : "\n" + d.command);
  a.file = repository_path(d.subject.starts_with("pack ") ? d.subject.substr(5) : "");
  fmt::print(out, "{}", workflow_command(a));
  std::fflush(out);

  string summary =
      fmt::format("### assay explain: {}\n\n{}\n\nmade by {}\n\n- {}{}\n", markdown_text(a.title),
                  markdown_code(d.line), markdown_text(d.subject), name_of(d.confidence),
                  explained.empty() ? "" : ", " + markdown_text(explained));
  for (size_t i = 1; i < d.runs.size(); ++i) summary += fmt::format("- {}\n", markdown_text(d.runs[i]));
  if (!d.where.empty())
    summary += fmt::format("- where: {}, {} of what differs\n", markdown_text(d.where[0].what),
                           percent(d.where[0].differ, d.where[0].differ_of));
  if (!d.explanations.empty()) {
    summary += "\n| cause | stage | repairs | all elements |\n| --- | --- | ---: | ---: |\n";
    for (size_t i = 0; i < std::min(d.explanations.size(), kMostRows); ++i) {
      const Explanation& e = d.explanations[i];
      summary += fmt::format("| {} | {} | {} | {} |\n", markdown_text(e.title), name_of(e.stage),
                             percent(e.repaired, e.differ), percent(e.agree, e.of));
    }
  }
  if (!d.reproducer.empty())
    summary += fmt::format("\nThe smallest line that still differs: {}\n", markdown_code(d.reproducer));
  if (!d.command.empty()) summary += fmt::format("\n{}\n", markdown_code(d.command));
  append_step_summary(summary + "\n");
}

}  // namespace assay

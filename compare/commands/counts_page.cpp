#include "compare/commands/counts_page.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/text/html.h"

namespace assay {

namespace {

constexpr std::string_view kStyle =
    "table{border-collapse:collapse;font-size:13px}td,th{padding:1px 8px;text-align:right;white-space:nowrap}"
    "td.code,th.code{text-align:left;font-family:ui-monospace,monospace}"
    "td.source{text-align:left;opacity:.7}.wide{overflow-x:auto}";

// The share of the launch's instructions that a line has, as the depth of its shade.
std::string shade(uint64_t n, uint64_t most) {
  const double depth = most ? static_cast<double>(n) / static_cast<double>(most) : 0;
  return depth < 0.02 ? "" : fmt::format(" style=\"background:rgba(214,96,32,{:.2f})\"", 0.45 * depth);
}

std::string cell(uint64_t n) { return n ? "<td>" + grouped(static_cast<int64_t>(n)) + "</td>" : "<td></td>"; }

std::string totals(const LaunchCounts& l) {
  std::string out = "<table>";
  for (const auto& [name, n] : l.totals)
    if (n) out += "<tr><td class=\"code\">" + escaped(name) + "</td>" + cell(n) + "</tr>";
  return out + "</table>";
}

std::string listing(const LaunchCounts& l) {
  std::string out = "<div class=\"wide\"><table><tr><th>line</th><th class=\"code\">instruction</th>";
  for (const std::string& name : l.columns) out += "<th>" + escaped(name) + "</th>";
  out += "</tr>";
  uint64_t most = 0;
  for (const LaunchCounts::Line& line : l.lines) most = std::max(most, line.counts.front());
  std::string source;
  for (const LaunchCounts::Line& line : l.lines) {
    if (line.source != source)
      out += fmt::format("<tr><td></td><td class=\"source\" colspan=\"{}\">{}</td></tr>",
                         l.columns.size() + 1, escaped(line.source));
    source = line.source;
    out += "<tr" + shade(line.counts.front(), most) + ">" +
           fmt::format("<td>{}</td><td class=\"code\">{}</td>", line.line, escaped(line.instruction));
    for (const uint64_t n : line.counts) out += cell(n);
    out += "</tr>";
  }
  return out + "</table></div>";
}

}  // namespace

std::string counts_page(const std::string& line, const std::string& subject,
                        const std::vector<LaunchCounts>& launches) {
  std::string out = page_head("counts of " + line, kStyle);
  out += "<h1>" + escaped(line) + "</h1><p>Counted on " + escaped(subject) +
         ": exact, and equal from run to run. Nothing here is a time.</p>";
  for (const LaunchCounts& l : launches)
    out += "<h2>" + escaped(l.entry) + " grid " + escaped(l.grid) + " block " + escaped(l.block) + "</h2>" +
           totals(l) + listing(l);
  return out + page_end();
}

}  // namespace assay

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/report/html_sections.h"
#include "compare/text/html.h"

namespace assay::sections {

using std::string;

namespace {

string bar(double part, double whole) {
  const double width = part > 0 && whole > 0 ? std::min(100.0, 100.0 * part / whole) : 0;
  return fmt::format("<span class=\"bar{}\" style=\"width:{:.1f}%\"></span>", part > 0 ? "" : " none", width);
}

// One line of a histogram: a name, a bar as long as `part` of `whole`, and what it counts.
string bucket_row(const string& name, double part, double whole, const string& count) {
  return fmt::format(
      "<tr><th scope=\"row\" title=\"{0}\">{0}</th><td class=\"bars\">{1}</td><td "
      "class=\"n\">{2}</td></tr>\n",
      escaped(name), bar(part, whole), count);
}

string histogram_head(std::string_view caption, std::string_view names, std::string_view counts) {
  return fmt::format("<table class=\"histogram\"><caption>{}</caption>{}<tbody>\n", caption,
                     table_head({{names}, {"", "bars"}, {counts, "n"}}));
}

string histogram(std::string_view caption, std::string_view head,
                 const std::vector<std::pair<string, int64_t>>& buckets) {
  if (buckets.empty()) return {};
  int64_t most = 0;
  for (const auto& [name, count] : buckets) most = std::max(most, count);
  string out = histogram_head(caption, head, "differ");
  for (const auto& [name, count] : buckets)
    out += bucket_row(name, static_cast<double>(count), static_cast<double>(most), grouped(count));
  return out + "</tbody></table>\n";
}

string tie_histogram(const std::vector<PlaneSummary::Bucket>& buckets) {
  if (buckets.empty()) return {};
  const auto share = [](const PlaneSummary::Bucket& b) {
    return b.of > 0 ? static_cast<double>(b.differ) / static_cast<double>(b.of) : 0.0;
  };
  double most = 0;  // the longest bar is the largest share
  for (const PlaneSummary::Bucket& b : buckets) most = std::max(most, share(b));
  string out = histogram_head("How near to a tie", "steps", "differ of");
  for (const PlaneSummary::Bucket& b : buckets)
    out += bucket_row(b.name, share(b), most, grouped(b.differ) + " of " + grouped(b.of));
  return out + "</tbody></table>\n";
}

string plane_table(const std::vector<PlaneSummary>& planes) {
  if (planes.empty()) return {};
  string out = "<div class=\"scroll\"><table class=\"planes\">" +
               table_head({{"plane"}, {"encoding"}, {"differ", "n"}, {"of", "n"}, {"share", "n"}}) +
               "<tbody>\n";
  for (const PlaneSummary& p : planes)
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td></tr>\n",
        escaped(p.plane), escaped(p.encoding), grouped(p.differ), grouped(p.of), percent(p.differ, p.of));
  return out + "</tbody></table></div>\n";
}

string fingerprint_list(const std::vector<string>& fingerprints) {
  if (fingerprints.empty()) return {};
  string out = "<ul>\n";
  for (const string& f : fingerprints) out += "<li>" + escaped(f) + "</li>\n";
  return out + "</ul>\n";
}

string histograms(const PlaneSummary& p) {
  const string cards = histogram("How far", "codes apart", p.code_distance) +
                       histogram("How large", "wanted value", p.exponent) + tie_histogram(p.tie_distance);
  if (p.differ == 0 || cards.empty()) return {};
  return fmt::format("<h3>{}: the {} that differ</h3>\n<div class=\"hists\">\n{}</div>\n", escaped(p.plane),
                     grouped(p.differ), cards);
}

}  // namespace

string how(const Diagnosis& d) {
  string out = plane_table(d.planes) + fingerprint_list(d.fingerprints);
  for (const PlaneSummary& p : d.planes) out += histograms(p);
  if (out.empty()) return {};
  const bool differ =
      std::any_of(d.planes.begin(), d.planes.end(), [](const PlaneSummary& p) { return p.differ > 0; });
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", differ ? "How" : "Planes", out);
}

}  // namespace assay::sections

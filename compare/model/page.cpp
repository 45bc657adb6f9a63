#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "compare/model/report.h"
#include "compare/text/html.h"

namespace assay::model {

namespace {

using std::string;

constexpr std::string_view kStyle =
    "main{max-width:62rem}svg.roof{display:block;width:100%;height:auto;max-width:56rem}"
    "svg.roof text{font:12px system-ui,sans-serif;fill:var(--ink)}svg.roof .tick{fill:var(--quiet)}"
    "svg.roof .grid{stroke:var(--rule)}svg.roof .copy{stroke:var(--good);stroke-width:2}"
    "svg.roof .issue{stroke:var(--warn);stroke-width:2}svg.roof circle{fill:var(--bar);stroke:var(--ground)}";

// Logarithmic axes: instructions of lanes for each byte moved to the right, bytes per second up.
constexpr double kLeft = 64, kTop = 16, kWide = 720, kHigh = 380;
constexpr double kLeastX = 0.1, kMostX = 100, kLeastY = 1e11, kMostY = 2e13;

double at_x(double v) {
  return kLeft + kWide * std::log(std::clamp(v, kLeastX, kMostX) / kLeastX) / std::log(kMostX / kLeastX);
}
double at_y(double v) {
  return kTop + kHigh -
         kHigh * std::log(std::clamp(v, kLeastY, kMostY) / kLeastY) / std::log(kMostY / kLeastY);
}

string segment(const char* kind, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kind, x1,
                     y1, x2, y2);
}
string label(double x, double y, const char* kind, const char* anchor, const string& text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", kind, x, y,
                     anchor, escaped(text));
}

string axes() {
  string out;
  for (double v = kLeastX; v <= kMostX * 1.01; v *= 10)
    out += segment("grid", at_x(v), kTop, at_x(v), kTop + kHigh) +
           label(at_x(v), kTop + kHigh + 16, "tick", "middle", fmt::format("{:g}", v));
  for (double v = kLeastY; v <= kMostY; v *= 10)
    out += segment("grid", kLeft, at_y(v), kLeft + kWide, at_y(v)) +
           label(kLeft - 6, at_y(v) + 4, "tick", "end", fmt::format("{:g} TB/s", v / 1e12));
  return out + label(kLeft + kWide / 2, kTop + kHigh + 34, "tick", "middle",
                     "instructions for each byte that moves");
}

// What the copy's speed and the issue of instructions allow.
string roofs(const Gpu& gpu) {
  const double issued = gpu.sms * gpu.ghz * 1e9 * 128 * kIssueShare;  // instructions of lanes per second
  const double corner = issued / gpu.copy;
  return segment("copy", at_x(kLeastX), at_y(gpu.copy), at_x(corner), at_y(gpu.copy)) +
         segment("issue", at_x(corner), at_y(gpu.copy), at_x(kMostX), at_y(issued / kMostX)) +
         label(at_x(kLeastX) + 8, at_y(gpu.copy) - 6, "roofname", "start",
               fmt::format("copy, {:g} TB/s", gpu.copy / 1e12)) +
         label(at_x(corner) + 12, at_y(gpu.copy) - 6, "roofname", "start", "issue of instructions");
}

// A launch that takes next to none of its line's time says nothing.
bool shown(const Model& m, const LaunchModel& l) {
  constexpr double kLeastShare = 0.02;
  return l.time.seconds > kLeastShare * m.seconds;
}

double bytes_of(const LaunchModel& l) { return l.work.bytes_read + l.work.bytes_written; }

string point(const LaunchModel& l, int number) {
  const double bytes = std::max(bytes_of(l), 1.0);
  const double x = at_x(32 * l.work.warp_instructions / bytes), y = at_y(bytes / l.time.seconds);
  return fmt::format(
             "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\"><title>{}. {}: {:.3g} TB/s, {} "
             "binds</title></circle>",
             x, y, number, escaped(l.entry), bytes / l.time.seconds / 1e12, escaped(l.time.limit)) +
         label(x, number % 2 ? y - 10 : y + 20, "number", "middle", std::to_string(number));
}

string row(const Model& m, const LaunchModel& l, int number, bool first) {
  const auto known = [&](const auto& value) { return l.compiled ? fmt::format("{}", value) : string("–"); };
  string out = fmt::format("<tr><th scope=\"row\">{}</th><td><code>{}</code><br>{}</td>", number,
                           escaped(l.entry), first ? escaped(m.line) : "");
  out +=
      fmt::format("<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:.2f}</td>",
                  known(l.compiled ? l.compiled->registers : 0), known(l.occupancy ? l.occupancy->blocks : 0),
                  32 * l.work.warp_instructions / std::max(m.elements, 1.0));
  return out + fmt::format("<td class=\"n\">{:.4g}</td><td class=\"n\">{:.1f}</td><td>{}</td></tr>\n",
                           bytes_of(l) / 1e6, 1e6 * l.time.seconds, escaped(l.time.limit));
}

string verdicts(const std::vector<Model>& models) {
  string out = "<ul>\n";
  for (const Model& m : models) {
    out += fmt::format(
        "<li><code>{}</code>: <strong>{:.0f} %</strong> of a copy of the same bytes, {:.1f} us; {} binds{}.",
        escaped(m.line), 100 * m.share(), 1e6 * m.seconds, escaped(m.limit),
        m.proven() ? ""
                   : ". <span class=\"bad\">Not proven: " + escaped(m.departing) +
                         " departs from a straight line</span>");
    for (const string& why : missing(m)) out += " <span class=\"warn\">Missing: " + escaped(why) + ".</span>";
    out += "</li>\n";
  }
  return out + "</ul>\n";
}

string sources(const Gpu& gpu) {
  string out = fmt::format(
      "<h2>Constants</h2>\n<p>{}: {} SMs at {} GHz, {} TB/s in a copy. {}.</p>\n<div class=\"scroll\"><table>"
      "<thead><tr><th>constant</th><th class=\"n\">value</th><th>source</th></tr></thead><tbody>\n",
      escaped(gpu.title), gpu.sms, gpu.ghz, gpu.copy / 1e12, escaped(gpu.source));
  for (const Constant& c : kConstants)
    out +=
        fmt::format("<tr><th scope=\"row\"><code>{}</code></th><td class=\"n\">{:g}</td><td>{}</td></tr>\n",
                    c.name, c.value, escaped(c.source));
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string model_page(const std::vector<Model>& models) {
  const Gpu& gpu = *models.front().gpu;
  string points, rows;
  int number = 0;
  for (const Model& m : models) {
    bool first = true;
    for (const LaunchModel& l : m.launches)
      if (shown(m, l)) points += point(l, ++number), rows += row(m, l, number, first), first = false;
  }
  string out = page_head(fmt::format("model of {}", gpu.title), kStyle);
  out += fmt::format(
      "<h1>A model of {}</h1>\n<p>Nothing here was measured: the figures follow from counts of the "
      "compiled kernels and from the constants below.</p>\n",
      escaped(gpu.title));
  out += verdicts(models);
  out += fmt::format(
      "<h2>Roofline</h2>\n<svg class=\"roof\" role=\"img\" aria-label=\"Roofline of {}\" viewBox=\"0 0 {} "
      "{}\">\n"
      "{}{}{}</svg>\n",
      escaped(gpu.title), kLeft + kWide + 24, kTop + kHigh + 44, axes(), roofs(gpu), points);
  out +=
      "<h2>Launches</h2>\n<div class=\"scroll\"><table><thead><tr><th>point</th><th>launch</th><th "
      "class=\"n\">registers</th><th class=\"n\">blocks per SM</th><th class=\"n\">instructions per "
      "element</th><th class=\"n\">MB moved</th><th class=\"n\">us</th><th>limit</th></tr></thead><tbody>\n" +
      rows + "</tbody></table></div>\n";
  return out + sources(gpu) + page_end();
}

}  // namespace assay::model

#include "compare/report/parity_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/text/html.h"

namespace assay {

namespace {

using std::string;

void keep(std::vector<string>& list, const string& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

constexpr std::string_view kStyle = R"css(
.matrix th,.matrix td{border:1px solid var(--rule);padding:.25rem .55rem;white-space:nowrap}
.matrix tbody th{position:sticky;left:0;background:var(--ground)}
.matrix .good{background:var(--good-ground)}.matrix .exc{background:var(--warn-ground)}.matrix .bad{background:var(--bad-ground);font-weight:650}
.list td:first-child{min-width:16rem}
@media screen and (max-width:46rem){main{padding:1.5rem 1rem}.matrix tbody th{position:static;white-space:normal;overflow-wrap:anywhere;min-width:8rem}
.list,.list tbody,.list tr,.list td{display:block}.list thead{position:absolute;clip-path:inset(50%)}.list tr{border-bottom:1px solid var(--rule);padding:.4rem 0}.list td{border:0;padding:0}}
@media print{@page{size:A4 landscape;margin:10mm}html{font-size:7pt}.matrix th,.matrix td{padding:.12rem .3rem}.matrix tbody th{position:static}
.matrix thead th+th{writing-mode:vertical-rl;padding:.3rem .12rem;vertical-align:bottom}}
)css";

}  // namespace

void Matrix::add(const string& row, const string& column, const string& line, const Verdict& v) {
  keep(rows_, row);
  keep(columns_, column);
  Field& f = fields_[{row, column}];
  if (is_red(v.outcome)) ++f.failed;
  else if (v.outcome != Outcome::passed) ++f.other;
  else if (!v.excluded.empty()) ++f.excluded[v.excluded];
  else ++f.bitwise;
  f.entries.push_back({line, v});
}

string Matrix::text_of(const Field& f) {
  std::vector<string> parts;
  if (f.failed) parts.push_back(fmt::format("{} FAILED", f.failed));
  if (f.bitwise) parts.push_back(std::to_string(f.bitwise));
  for (const auto& [codes, n] : f.excluded) parts.push_back(fmt::format("{} {}", n, codes));
  if (f.other) parts.push_back(fmt::format("{} not run", f.other));
  return fmt::format("{}", fmt::join(parts, " + "));
}

string Matrix::text(size_t width) const {
  size_t first = 0;
  for (const string& r : rows_) first = std::max(first, r.size());
  string out;
  for (size_t begin = 0; begin < columns_.size();) {
    // As many columns as fit; a row that has nothing in any of them is left out.
    size_t end = begin, used = first;
    std::vector<size_t> widths;
    while (end < columns_.size()) {
      size_t w = columns_[end].size();
      for (const string& r : rows_)
        if (const auto f = fields_.find({r, columns_[end]}); f != fields_.end())
          w = std::max(w, text_of(f->second).size());
      if (end > begin && used + 2 + w > width) break;
      used += 2 + w;
      widths.push_back(w);
      ++end;
    }
    out += fmt::format("{:<{}}", "", first);
    for (size_t c = begin; c < end; ++c) out += fmt::format("  {:<{}}", columns_[c], widths[c - begin]);
    out += "\n";
    for (const string& r : rows_) {
      string line = fmt::format("{:<{}}", r, first);
      bool any = false;
      for (size_t c = begin; c < end; ++c) {
        const auto f = fields_.find({r, columns_[c]});
        any |= f != fields_.end();
        line += fmt::format("  {:<{}}", f == fields_.end() ? "-" : text_of(f->second), widths[c - begin]);
      }
      if (any) out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    out += "\n";
    begin = end;
  }
  return out +
         "A number counts cells that are equal bit for bit; \"3 E13\" those that differ by that cause alone "
         "(docs/parity.md).\n";
}

string Matrix::html() const {
  size_t bitwise = 0, excluded = 0, failed = 0, other = 0;
  for (const auto& [at, f] : fields_) {
    bitwise += f.bitwise;
    failed += f.failed;
    other += f.other;
    for (const auto& [codes, n] : f.excluded) excluded += n;
  }
  string out = page_head("Assay: parity matrix", kStyle) + "<h1>Hybrid against vanilla</h1>\n";
  out += fmt::format(
      "<p>{} cells bitwise, {} excluded by a cause whose removal makes them bitwise, {} failed, {} not "
      "run.</p>\n",
      bitwise, excluded, failed, other);
  out +=
      "<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th scope=\"col\">module, hybrid roles</th>";
  for (const string& c : columns_) out += fmt::format("<th scope=\"col\">{}</th>", escaped(c));
  out += "</tr></thead><tbody>\n";
  for (const string& r : rows_) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(r));
    for (const string& c : columns_) {
      const auto at = fields_.find({r, c});
      if (at == fields_.end()) {
        out += "<td></td>";
        continue;
      }
      const Field& f = at->second;
      const char* kind = f.failed ? "bad" : !f.excluded.empty() ? "exc" : f.bitwise ? "good" : "";
      out += fmt::format("<td class=\"{}\">{}</td>", kind, escaped(text_of(f)));
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  for (const bool red : {true, false}) {
    string rows;
    for (const string& r : rows_)
      for (const string& c : columns_) {
        const auto at = fields_.find({r, c});
        if (at == fields_.end()) continue;
        for (const Entry& e : at->second.entries) {
          if (is_red(e.verdict.outcome) != red || (!red && e.verdict.excluded.empty())) continue;
          string why = e.verdict.reason;
          if (why.empty() && !e.verdict.breaches.empty()) why = e.verdict.breaches[0].message;
          rows += fmt::format("<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>\n", escaped(e.line),
                              escaped(red ? string(name_of(e.verdict.outcome)) : e.verdict.excluded),
                              escaped(why));
        }
      }
    if (rows.empty()) continue;
    out += fmt::format(
        "<h2>{}</h2>\n<div class=\"scroll\"><table class=\"list\"><thead><tr><th scope=\"col\">cell</th><th "
        "scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead><tbody>\n{}</tbody></table></div>\n",
        red ? "Failed" : "Excluded", red ? "outcome" : "cause", red ? "where" : "what it is", rows);
  }
  return out + page_end();
}

}  // namespace assay

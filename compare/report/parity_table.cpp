#include "compare/report/parity_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/text/html.h"
#include "contract/words.h"

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
.matrix td{white-space:normal;min-width:2.5rem}.matrix td a{color:inherit}
.list td:first-child{min-width:16rem}tr:target{background:var(--warn-ground)}
@media screen and (min-width:46.01rem) and (max-width:100rem){.matrix{font-size:.85rem}.matrix th,.matrix td{padding:.2rem .35rem}.matrix tbody th{white-space:normal;overflow-wrap:anywhere;min-width:9rem}
.matrix thead th+th{writing-mode:vertical-rl;vertical-align:bottom}}
@media screen and (max-width:46rem){main{padding:1.5rem 1rem}.matrix tbody th{position:static;white-space:normal;overflow-wrap:anywhere;min-width:8rem}
.list,.list tbody,.list tr,.list td{display:block}.list thead{position:absolute;clip-path:inset(50%)}.list tr{border-bottom:1px solid var(--rule);padding:.4rem 0}.list td{border:0;padding:0}}
@media print{@page{size:A4 landscape;margin:10mm}html{font-size:7pt}.matrix th,.matrix td{padding:.12rem .3rem}.matrix tbody th{position:static}
.matrix thead th+th{writing-mode:vertical-rl;padding:.3rem .12rem;vertical-align:bottom}}
)css";

}  // namespace

void ParityTable::add(const string& row, const string& column, const string& line, const Verdict& v) {
  keep(rows_, row);
  keep(columns_, column);
  Field& f = fields_[{row, column}];
  if (is_red(v.outcome)) ++f.failed;
  else if (v.outcome != Outcome::passed) ++f.other;
  else if (!v.excluded.empty()) ++f.excluded[v.excluded];
  else ++f.bitwise;
  f.entries.push_back({line, v});
}

string ParityTable::text_of(const Field& f) {
  std::vector<string> parts;
  if (f.failed) parts.push_back(fmt::format("{} FAILED", f.failed));
  if (f.bitwise) parts.push_back(std::to_string(f.bitwise));
  for (const auto& [codes, n] : f.excluded) parts.push_back(fmt::format("{} {}", n, codes));
  if (f.other) parts.push_back(fmt::format("{} not run", f.other));
  return fmt::format("{}", fmt::join(parts, " + "));
}

string ParityTable::text(size_t width) const {
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

namespace {

// What each code of "excluded by E1 E8: one thing; another; differed at ..." stands for.
void learn_codes(const Verdict& v, std::map<string, string>& legend) {
  const size_t colon = v.reason.find(": ");
  if (colon == string::npos) return;
  string rest = v.reason.substr(colon + 2);
  for (const std::string_view code : words_of(v.excluded, ' ')) {
    const size_t end = rest.find("; ");
    if (end == string::npos) return;
    legend.emplace(code, rest.substr(0, end));
    rest = rest.substr(end + 2);
  }
}

// Where a cell that is excluded differed: what stands behind its causes.
string where_text(const Verdict& v) {
  const size_t at = v.reason.rfind("; ");
  return at == string::npos ? v.reason : v.reason.substr(at + 2);
}

string heading(size_t bitwise, size_t excluded, size_t failed, size_t other) {
  return page_head("Assay: parity matrix", kStyle) + "<h1>Hybrid against vanilla</h1>\n" +
         fmt::format(
             "<p>{} cells bitwise, {} excluded by a cause whose removal makes them bitwise, {} failed, {} "
             "not "
             "run. A number in the table leads to its lines.</p>\n",
             bitwise, excluded, failed, other);
}

string legend_table(const std::map<string, string>& legend, const std::map<string, size_t>& cells) {
  if (legend.empty()) return {};
  string out =
      "<h2>Causes of exclusions</h2>\n<div class=\"scroll\"><table class=\"legend\"><thead><tr><th "
      "scope=\"col\">cause</th><th scope=\"col\">what it is</th><th "
      "scope=\"col\">cells</th></tr></thead><tbody>\n";
  for (const auto& [code, what] : legend)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(code), escaped(what),
                       cells.contains(code) ? cells.at(code) : 0);
  return out + "</tbody></table></div>\n";
}

}  // namespace

string ParityTable::legend() const {
  std::map<string, string> legend;
  std::map<string, size_t> cells;
  for (const auto& [at, f] : fields_)
    for (const Entry& e : f.entries) {
      if (e.verdict.excluded.empty()) continue;
      learn_codes(e.verdict, legend);
      for (const std::string_view code : words_of(e.verdict.excluded, ' ')) ++cells[string(code)];
    }
  return legend_table(legend, cells);
}

string ParityTable::table() const {
  string out =
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
      out += fmt::format("<td class=\"{}\"><a href=\"#{}\">{}</a></td>", kind, anchor_of(r, c),
                         escaped(text_of(f)));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

string ParityTable::anchor_of(const string& row, const string& column) const {
  const auto r = std::ranges::find(rows_, row) - rows_.begin(),
             c = std::ranges::find(columns_, column) - columns_.begin();
  return fmt::format("cell-{}-{}", r, c);
}

string ParityTable::list(const char* title, const char* outcome, const char* why,
                         const std::function<bool(const Verdict&)>& of, std::set<string>& anchored) const {
  string rows;
  for (const string& r : rows_)
    for (const string& c : columns_) {
      const auto at = fields_.find({r, c});
      if (at == fields_.end()) continue;
      for (const Entry& e : at->second.entries) {
        const Verdict& v = e.verdict;
        if (!of(v)) continue;
        const bool excluded = !v.excluded.empty();
        string reason = excluded ? where_text(v) : v.reason;
        if (reason.empty() && !v.breaches.empty()) reason = v.breaches[0].message;
        const string anchor = anchor_of(r, c);
        const string id = anchored.insert(anchor).second ? " id=\"" + anchor + "\"" : "";
        rows +=
            fmt::format("<tr{}><td><code>{}</code></td><td>{}</td><td>{}</td></tr>\n", id, escaped(e.line),
                        escaped(excluded ? v.excluded : string(name_of(v.outcome))), escaped(reason));
      }
    }
  if (rows.empty()) return {};
  return fmt::format(
      "<h2>{}</h2>\n<div class=\"scroll\"><table class=\"list\"><thead><tr><th scope=\"col\">cell</th><th "
      "scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead><tbody>\n{}</tbody></table></div>\n",
      title, outcome, why, rows);
}

string ParityTable::html() const {
  size_t bitwise = 0, excluded = 0, failed = 0, other = 0;
  for (const auto& [at, f] : fields_) {
    bitwise += f.bitwise;
    failed += f.failed;
    other += f.other;
    for (const auto& [codes, n] : f.excluded) excluded += n;
  }
  std::set<string> anchored;  // a field leads to its first line: one that failed, else one that is excluded
  const auto is_excluded = [](const Verdict& v) { return !is_red(v.outcome) && !v.excluded.empty(); };
  const string red = list(
      "Failed", "outcome", "where", [](const Verdict& v) { return is_red(v.outcome); }, anchored);
  const string apart = list("Excluded", "cause", "where it differed", is_excluded, anchored);
  const string rest = list(
      "Bitwise, and not run", "outcome", "why",
      [&](const Verdict& v) { return !is_red(v.outcome) && !is_excluded(v); }, anchored);
  return heading(bitwise, excluded, failed, other) + table() + legend() + red + apart + rest + page_end();
}

}  // namespace assay

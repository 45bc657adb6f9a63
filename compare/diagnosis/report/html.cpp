#include "compare/diagnosis/report/html.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/diagnosis/report/html_sections.h"
#include "compare/text/html.h"
#include "fixtures/files.h"

namespace assay {

using std::string;

namespace sections {

std::vector<const Explanation*> exact_ones(const Diagnosis& d) {
  std::vector<const Explanation*> out;
  for (const Explanation& e : d.explanations)
    if (e.exact()) out.push_back(&e);
  return out;
}

int64_t breaks(const Explanation& e) {
  return std::max<int64_t>(0, e.of - e.agree - (e.differ - e.repaired));
}

string direction_text(Direction d) { return d == Direction::row ? "rows" : "columns"; }

string code(std::string_view text) { return "<code>" + escaped(text) + "</code>"; }

string command(const string& text) { return "<pre><code>" + escaped(text) + "</code></pre>\n"; }

string ids_text(const Explanation& e) {
  string out;
  for (const string& id : e.ids) out += (out.empty() ? "" : " + ") + code(id);
  return out;
}

string table_head(std::initializer_list<Column> columns) {
  string out = "<thead><tr>";
  for (const Column& c : columns) {
    out += c.text.empty() ? "<th" : "<th scope=\"col\"";
    if (!c.kind.empty()) out += fmt::format(" class=\"{}\"", c.kind);
    out += fmt::format(">{}</th>", c.text);
  }
  return out + "</tr></thead>";
}

}  // namespace sections

namespace {

constexpr std::string_view kStyle = R"css(
main{max-width:66rem}
.eyebrow{color:var(--quiet);font-size:.9rem}
.badge{display:inline-block;border:1px solid currentColor;border-radius:1rem;padding:.05rem .7rem;font-size:.9rem;font-weight:600}
.case{font-size:1.02rem;margin:.9rem 0}
.facts{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:1.2rem 2.5rem;margin:1.6rem 0 0;padding:1.1rem 0 0;border-top:1px solid var(--rule)}
.facts dt,.machine dt{color:var(--quiet);font-size:.88rem}
.facts dd{margin:.1rem 0 0}
.facts .large{font-size:1.3rem;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums}
.stages{list-style:none;margin:.5rem 0 1rem;padding:0;display:grid;grid-template-columns:repeat(9,minmax(0,1fr));gap:.4rem}
.stages li{background:var(--raised);border-top:3px solid var(--rule);padding:.45rem .5rem .55rem;font-size:.86rem;line-height:1.4;overflow-wrap:anywhere}
.stages span{display:block}
.stages .name{font-weight:600}
.stages .differs{border-top-color:var(--bad);background:var(--bad-ground)}
.stages .differs .state{color:var(--bad);font-weight:650}
.stages .follows{border-top:3px dashed var(--warn)}
.stages .follows .state{color:var(--warn)}
.stages .equal .state{color:var(--good)}
.stages .unseen{background:none;border-top:3px dotted var(--rule)}
.stages .unseen .state{color:var(--quiet)}
.pair{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:1rem 2.5rem;align-items:start}
.map{margin:0;display:inline-grid;grid-template-columns:auto minmax(0,auto);max-width:100%;gap:.2rem .5rem;font-size:.82rem;color:var(--quiet);font-variant-numeric:tabular-nums}
.map .ends{display:flex;justify-content:space-between;gap:.5rem}
.map .tall{flex-direction:column;text-align:right}
.map svg{display:block;max-width:100%;height:auto}
.map .corner{grid-column:1}
.h0{fill:#e9e9e4}.h1{fill:#f5d3b5}.h2{fill:#eba674}.h3{fill:#d76f40}.h4{fill:#ad391c}.h5{fill:#5f1207}
@media screen and (prefers-color-scheme:dark){.h0{fill:#2b2c2a}.h1{fill:#5a3320}.h2{fill:#944d28}.h3{fill:#cb6e38}.h4{fill:#f0a36b}.h5{fill:#ffe3c6}}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem .8rem;margin:.7rem 0 0;padding:0;font-size:.82rem;color:var(--quiet)}
.legend svg{width:.95rem;height:.95rem;vertical-align:-.12rem;margin-right:.35rem}
.hists{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:1rem 2.5rem;margin-top:1rem;align-items:start}
.hists table{width:100%}
.hists td,.hists th{border:0;padding:.1rem .6rem .1rem 0;white-space:nowrap}
.hists thead th{border-bottom:1px solid var(--rule);padding-bottom:.25rem}
.hists td:last-child,.hists th:last-child{padding-right:0}
.hists tbody th{max-width:9.5rem;overflow:hidden;text-overflow:ellipsis}
.hists .bars{width:99%;padding-right:.8rem}
.bar{display:block;height:.72rem;min-width:1px;background:var(--bar);margin-top:.32rem}
.none{min-width:0}
.causes{width:100%}
.causes th:last-child,.causes td:last-child,.planes th:last-child,.planes td:last-child{padding-right:0}
.causes td p{margin:0 0 .15rem}
.causes .group th{padding-top:1rem;color:var(--quiet);font-weight:500;border-bottom-color:var(--strong)}
.ids{font-size:.88rem}
.coordinates th[scope=row]{overflow-wrap:anywhere;min-width:8rem}
.columns{columns:15rem;column-gap:2rem;list-style:none;padding:0;margin:.6rem 0;font-size:.9rem}
.trace td,.trace th{white-space:nowrap}
.trace .parts th,.trace .parts td{background:var(--bad-ground);font-weight:650}
.trace td:first-child{color:var(--bad);font-weight:650;padding-left:.3rem}
.trace .code{display:inline-block;min-width:5.2em}
.machine{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.2rem 1.5rem;font-size:.9rem;margin:.6rem 0}
.machine dd{margin:0;overflow-wrap:anywhere}
footer{margin-top:3rem;padding-top:.8rem;border-top:1px solid var(--rule);color:var(--quiet);font-size:.88rem}
@media(max-width:68rem){.stages{grid-template-columns:repeat(auto-fill,minmax(7.4rem,1fr))}}
@media(max-width:46rem){.facts{grid-template-columns:repeat(auto-fit,minmax(11rem,1fr))}.pair{grid-template-columns:minmax(0,1fr)}main{padding:1.5rem 1rem 3rem}.machine{grid-template-columns:minmax(0,1fr)}.machine dd{margin-bottom:.5rem}
.causes,.causes tbody,.causes tr,.causes td,.causes th{display:block}.causes thead{position:absolute;clip-path:inset(50%)}.causes tr{border-bottom:1px solid var(--rule);padding:.5rem 0}
.causes td,.causes th{border:0;padding:.1rem 0;text-align:left}.causes td[data-label]::before{content:attr(data-label) ": ";color:var(--quiet)}.causes .group{border:0}}
@media print{.stages{grid-template-columns:repeat(9,minmax(0,1fr))}.stages li{font-size:7pt;padding:.3rem}.facts{grid-template-columns:repeat(3,minmax(0,1fr))}.pair{grid-template-columns:minmax(0,3fr) minmax(0,2fr);break-inside:avoid}.pair h3{margin-top:.4rem}.hists table{break-inside:avoid}.hists{grid-template-columns:1fr 1fr}}
)css";

}  // namespace

string diagnosis_page(const Diagnosis& d, const json::Value& doctor) {
  using namespace sections;
  string out = page_head("Assay: " + headline(d), kStyle);
  out += verdict(d) + stages(d) + where(d) + how(d) + causes(d) + trace(d) + again(d) + machine(doctor);
  out += fmt::format("<footer>{} elements, {:.1f} s</footer>\n", grouped(d.elements), d.seconds);
  return out + page_end();
}

std::optional<Error> write_diagnosis_page(const Diagnosis& d, const string& path, const json::Value& doctor) {
  return write_file(path, std::string_view(diagnosis_page(d, doctor)));
}

}  // namespace assay

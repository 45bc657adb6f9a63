#include "compare/diagnosis/report/html.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/text/html.h"
#include "compare/report/report.h"
#include "contract/line.h"
#include "fixtures/files.h"

namespace assay {

namespace {

using std::string;

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

// What a word or a number means, with its colour; never the colour alone.
struct Sureness {
  std::string_view kind, word, meaning;
};
Sureness sureness(const Diagnosis& d) {
  switch (d.confidence) {
    case Confidence::equal:
      if (!d.unpinned.empty()) return {"good", "inside the bound", "The bits of d are not pinned (N16.13): every element lies inside the bound for any order of roundings."};
      return {"good", "equal", "Every plane that was judged is equal, bit for bit."};
    case Confidence::certain: return {"bad", "certain", "One explanation makes every byte that came, and no other that was tried does."};
    case Confidence::equivalent: return {"bad", "certain, up to equivalents", "Several explanations make every byte that came; this input cannot tell them apart."};
    case Confidence::partial: return {"warn", "partial", "No explanation makes every byte that came; the best one repairs a part of the differences."};
    case Confidence::unexplained: return {"warn", "unexplained", "Nothing that was tried comes near these bytes. The stage below is where to look."};
    case Confidence::random: return {"bad", "not repeatable", "No cause of one run's bytes was looked for: a race, or a read of something that was never written, comes first."};
  }
  return {"warn", "unknown", ""};
}

std::vector<const Explanation*> exact_ones(const Diagnosis& d) {
  std::vector<const Explanation*> out;
  for (const Explanation& e : d.explanations)
    if (e.exact()) out.push_back(&e);
  return out;
}

// Elements that were right and would not be.
int64_t breaks(const Explanation& e) { return std::max<int64_t>(0, e.of - e.agree - (e.differ - e.repaired)); }

// The best explanation that is not exact.
const Explanation* runner_up(const Diagnosis& d) {
  const bool best_is_cause = d.confidence == Confidence::partial;
  size_t seen = 0;
  for (const Explanation& e : d.explanations)
    if (!e.exact() && seen++ == (best_is_cause ? 1u : 0u)) return &e;
  return nullptr;
}

const StageVerdict* first_stage(const Diagnosis& d) {
  for (const StageVerdict& s : d.stages)
    if (s.outcome == StageOutcome::differs && d.first && s.stage == *d.first && (!d.direction || s.direction == *d.direction)) return &s;
  return nullptr;
}

string direction_text(Direction d) { return d == Direction::row ? "rows" : "columns"; }

string code(std::string_view text) { return "<code>" + escaped(text) + "</code>"; }

string command(const string& text) { return "<pre><code>" + escaped(text) + "</code></pre>\n"; }

string about(const Diagnosis& d) {
  const Sureness sure = sureness(d);
  string out = fmt::format("<header>\n<div class=\"eyebrow\">Assay diagnosis</div>\n<h1>{}</h1>\n<p><span class=\"badge {}\">{}</span></p>\n<p>{}</p>\n<p class=\"case\">{}<br><span class=\"quiet\">made by {}</span></p>\n",
                           escaped(headline(d)), sure.kind, sure.word, sure.meaning, code(d.line), escaped(d.subject));
  string facts;
  auto fact = [&](std::string_view name, const string& large, const string& more) {
    facts += fmt::format("<div><dt>{}</dt>{}{}</div>\n", name, large.empty() ? "" : "<dd class=\"large\">" + large + "</dd>", more.empty() ? "" : "<dd>" + more + "</dd>");
  };
  if (d.first) {
    // A stage that no plane shows is inferred; then the first plane that differs says how much.
    const StageVerdict* s = first_stage(d);
    const auto plane = std::find_if(d.planes.begin(), d.planes.end(), [](const PlaneSummary& p) { return p.differ > 0; });
    fact("First difference", escaped(name_of(*d.first)) + (d.direction ? ", " + direction_text(*d.direction) : ""),
         s && s->of > 0              ? fmt::format("{} of {} differ {}", grouped(s->differ), grouped(s->of), escaped(s->note))
         : plane != d.planes.end() ? fmt::format("{} of {} of {} differ", grouped(plane->differ), grouped(plane->of), escaped(plane->plane))
                                   : "");
  }
  const Explanation* best = d.explanations.empty() ? nullptr : &d.explanations.front();
  const bool named = best && (d.confidence == Confidence::certain || d.confidence == Confidence::equivalent || d.confidence == Confidence::partial);
  if (named) {
    string ids;
    for (const string& id : best->ids) ids += (ids.empty() ? "" : " + ") + code(id);
    const size_t equivalents = exact_ones(d).size();
    if (d.confidence == Confidence::equivalent && equivalents > 1) ids += fmt::format("<br>or {} that this input cannot tell from it", equivalents == 2 ? "one other" : grouped(static_cast<int64_t>(equivalents) - 1) + " others");
    fact("Cause", "", ids + (best->clause.empty() ? "" : "<br>clause " + escaped(best->clause)));
    fact("Explained", percent(best->repaired, best->differ), fmt::format("of the {} that differ; {} of {} elements come out as they came", grouped(best->differ), grouped(best->agree), grouped(best->of)));
  }
  if (const Explanation* next = runner_up(d)) fact(d.confidence == Confidence::unexplained ? "Nearest" : "Runner-up", percent(next->repaired, next->differ), escaped(next->title) + (breaks(*next) ? fmt::format("; breaks {} others", grouped(breaks(*next))) : ""));
  if (!d.where.empty()) fact("Where", "", escaped(d.where.front().what) + fmt::format("<br>{} of what differs", percent(d.where.front().differ, d.where.front().differ_of)));
  else if (d.heat) fact("Where", "", "no coordinate tells them apart");
  if (d.deterministic) fact("Same bytes twice", *d.deterministic ? "yes" : "no", "");
  if (!facts.empty()) out += "<dl class=\"facts\">\n" + facts + "</dl>\n";
  return out + "</header>\n";
}

string stages(const Diagnosis& d) {
  static constexpr struct {
    std::string_view kind, mark, word;
  } kWords[] = {{"equal", "=", "equal"}, {"differs", "≠", "differs"}, {"unseen", "·", "not seen"}, {"follows", "↳", "follows"}};
  string out;
  for (const Direction direction : {Direction::row, Direction::col}) {
    string row;
    bool seen = false;
    for (const StageVerdict& s : d.stages) {
      if (s.direction != direction) continue;
      const auto& word = kWords[static_cast<size_t>(s.outcome)];
      seen |= s.outcome != StageOutcome::unseen;
      row += fmt::format("<li class=\"{}\"><span class=\"name\">{}</span> <span class=\"state\">{} {}</span>{}{}</li>\n", word.kind, escaped(name_of(s.stage)), word.mark, word.word,
                         s.outcome != StageOutcome::unseen && s.of > 0 ? fmt::format(" <span>{} of {}</span>", grouped(s.differ), grouped(s.of)) : "",
                         s.note.empty() ? "" : " <span class=\"quiet\">" + escaped(s.note) + "</span>");
    }
    if (seen) out += fmt::format("<h3>Made along {}</h3>\n<ol class=\"stages\">\n{}</ol>\n", direction_text(direction), row);
  }
  if (out.empty()) return out;
  return "<section>\n<h2>Stages</h2>\n<p class=\"quiet\">In the order in which a quantizer takes them. “Follows” is wrong only because an earlier stage is; “not seen” has no plane that shows it.</p>\n" + out + "</section>\n";
}

// 0: none differs; 5: all do; between them by share.
int heat_of(int64_t differ, int64_t of) {
  if (differ <= 0 || of <= 0) return 0;
  if (differ >= of) return 5;
  const double share = static_cast<double>(differ) / static_cast<double>(of);
  return share < 0.01 ? 1 : share < 0.1 ? 2 : share < 0.5 ? 3 : 4;
}

string range(int64_t tile, int64_t size, int64_t end) {
  const int64_t first = tile * size, last = std::max(first, std::min(first + size, end) - 1);
  return first == last ? grouped(first) : grouped(first) + "–" + grouped(last);
}

// The map with tiles joined in pairs as long as one of each pair holds nothing: a scale stands only where its block begins.
HeatMap joined(HeatMap h) {
  for (const bool columns : {true, false})
    for (int64_t& count = columns ? h.cols : h.rows; count > 1;) {
      auto at = [&](int64_t line, int64_t i) { return static_cast<size_t>(columns ? line * h.cols + i : i * h.cols + line); };
      const int64_t lines = columns ? h.rows : h.cols;
      bool hollow = true;
      for (int64_t line = 0; hollow && line < lines; ++line)
        for (int64_t i = 0; hollow && i + 1 < count; i += 2) hollow = h.of[at(line, i)] == 0 || h.of[at(line, i + 1)] == 0;
      if (!hollow) break;
      const int64_t half = (count + 1) / 2;
      HeatMap out = h;
      (columns ? out.cols : out.rows) = half;
      (columns ? out.tile_cols : out.tile_rows) *= 2;
      out.differ.assign(static_cast<size_t>(half * lines), 0);
      out.of = out.differ;
      for (int64_t line = 0; line < lines; ++line)
        for (int64_t i = 0; i < count; ++i) {
          const size_t to = static_cast<size_t>(columns ? line * half + i / 2 : i / 2 * h.cols + line);
          out.differ[to] += h.differ[at(line, i)];
          out.of[to] += h.of[at(line, i)];
        }
      h = std::move(out);
    }
  return h;
}

string heat(const Diagnosis& d) {
  if (!d.heat || d.heat->rows <= 0 || d.heat->cols <= 0) return {};
  if (const auto size = static_cast<size_t>(d.heat->rows * d.heat->cols); d.heat->differ.size() != size || d.heat->of.size() != size) return {};
  const HeatMap h = joined(*d.heat);
  const size_t tiles = h.differ.size();
  // The last tiles may reach beyond the tensor.
  Shape shape{h.rows * h.tile_rows, h.cols * h.tile_cols};
  if (const auto p = parse_line(d.line); p && p->x.shape.rows <= shape.rows && p->x.shape.cols <= shape.cols) shape = p->x.shape;
  const int64_t wide = std::clamp<int64_t>(600 / h.cols, 7, 30), high = std::clamp<int64_t>(480 / h.rows, 7, 30);   // of a tile, in pixels, with a gap of one
  int64_t hit = 0, full = 0, held = 0;
  std::vector<size_t> order;
  string rects;
  for (size_t i = 0; i < tiles; ++i) {
    const int64_t r = static_cast<int64_t>(i) / h.cols, c = static_cast<int64_t>(i) % h.cols;
    if (h.of[i] == 0) continue;
    ++held;
    hit += h.differ[i] > 0;
    full += h.differ[i] > 0 && h.differ[i] == h.of[i];
    if (h.differ[i] > 0) order.push_back(i);
    rects += fmt::format("<rect class=\"h{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>rows {}, columns {}: {} of {}</title></rect>\n", heat_of(h.differ[i], h.of[i]), c * wide, r * high, wide - 1, high - 1,
                         range(r, h.tile_rows, shape.rows), range(c, h.tile_cols, shape.cols), grouped(h.differ[i]), grouped(h.of[i]));
  }
  const string summary = fmt::format("{} of {} tiles hold differences{}", grouped(hit), grouped(held), full ? fmt::format("; in {} everything differs", full == hit && hit > 1 ? "all of these" : grouped(full)) : "");
  string out = fmt::format("<h3 id=\"heat\">{} by tile</h3>\n<p>Tiles of {} × {} elements. {}.</p>\n", escaped(h.plane), grouped(h.tile_rows), grouped(h.tile_cols), summary);
  out += fmt::format("<div class=\"map\"><span class=\"corner\"></span><span class=\"ends\"><span>column 0</span><span>{}</span></span><span class=\"ends tall\"><span>row 0</span><span>{}</span></span>\n"
                     "<svg class=\"heat\" role=\"img\" aria-label=\"Heat map of {}: {}\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\">\n{}</svg></div>\n",
                     grouped(shape.cols - 1), grouped(shape.rows - 1), escaped(h.plane), summary, h.cols * wide - 1, h.rows * high - 1, h.cols * wide - 1, h.rows * high - 1, rects);
  out += "<ul class=\"legend\" aria-label=\"Share of a tile that differs\">";
  static constexpr std::string_view kShares[] = {"none", "under 1 %", "under 10 %", "under 50 %", "50 % and more", "all"};
  for (size_t i = 0; i < std::size(kShares); ++i)
    out += fmt::format("<li><svg viewBox=\"0 0 9 9\" aria-hidden=\"true\"><rect class=\"h{}\" width=\"9\" height=\"9\"/></svg>{}</li>", i, kShares[i]);
  out += "</ul>\n";
  // What the colours say, in words, where the tiles are not all alike.
  auto share = [&](size_t i) { return static_cast<double>(h.differ[i]) / static_cast<double>(std::max<int64_t>(h.of[i], 1)); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return share(a) > share(b); });
  if (order.empty() || (order.size() > 5 && share(order[0]) == share(order[5]))) return out;   // five of many that are alike say nothing
  if (order.size() > 5) order.resize(5);
  out += "<table><caption>Tiles with the largest share</caption><thead><tr><th scope=\"col\">rows</th><th scope=\"col\">columns</th><th scope=\"col\" class=\"n\">differ</th></tr></thead><tbody>\n";
  for (const size_t i : order)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{} of {}</td></tr>\n", range(static_cast<int64_t>(i) / h.cols, h.tile_rows, shape.rows),
                       range(static_cast<int64_t>(i) % h.cols, h.tile_cols, shape.cols), grouped(h.differ[i]), grouped(h.of[i]));
  return out + "</tbody></table>\n";
}

string where(const Diagnosis& d) {
  const string map = heat(d);
  string list;
  if (!d.where.empty()) {
    list = "<h3>Coordinates that tell</h3>\n<div class=\"scroll\"><table class=\"coordinates\"><thead><tr><th scope=\"col\">where</th><th scope=\"col\" class=\"n\">of what differs</th><th scope=\"col\" class=\"n\">of everything</th></tr></thead><tbody>\n";
    for (const Coordinate& c : d.where)
      list += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"n\" title=\"{} of {}\">{}</td><td class=\"n\" title=\"{} of {}\">{}</td></tr>\n", escaped(c.what), grouped(c.differ), grouped(c.differ_of),
                          percent(c.differ, c.differ_of), grouped(c.inside), grouped(c.inside_of), percent(c.inside, c.inside_of));
    list += "</tbody></table></div>\n";
  } else if (d.heat) {
    const bool all = std::any_of(d.planes.begin(), d.planes.end(), [&](const PlaneSummary& p) { return p.plane == d.heat->plane && p.differ == p.of; });
    list = fmt::format("<h3>Coordinates</h3>\n<p>{}</p>\n", all ? "Every element of this plane differs." : "No row, column, block, tile, lane or tail tells where the differences lie.");
  }
  if (map.empty() && list.empty()) return {};
  return fmt::format("<section>\n<h2>Where</h2>\n<div class=\"pair\">\n<div>\n{}</div>\n<div>\n{}</div>\n</div>\n</section>\n", map, list);
}

string bar(double part, double whole) {
  const double width = part > 0 && whole > 0 ? std::min(100.0, 100.0 * part / whole) : 0;
  return fmt::format("<span class=\"bar{}\" style=\"width:{:.1f}%\"></span>", part > 0 ? "" : " none", width);
}

string histogram(std::string_view caption, std::string_view head, const std::vector<std::pair<string, int64_t>>& buckets) {
  if (buckets.empty()) return {};
  int64_t most = 0;
  for (const auto& [name, count] : buckets) most = std::max(most, count);
  string out = fmt::format("<table class=\"histogram\"><caption>{}</caption><thead><tr><th scope=\"col\">{}</th><th class=\"bars\"></th><th scope=\"col\" class=\"n\">differ</th></tr></thead><tbody>\n", caption, head);
  for (const auto& [name, count] : buckets) out += fmt::format("<tr><th scope=\"row\" title=\"{0}\">{0}</th><td class=\"bars\">{1}</td><td class=\"n\">{2}</td></tr>\n", escaped(name), bar(static_cast<double>(count), static_cast<double>(most)), grouped(count));
  return out + "</tbody></table>\n";
}

string how(const Diagnosis& d) {
  string out;
  if (!d.planes.empty()) {
    out += "<div class=\"scroll\"><table class=\"planes\"><thead><tr><th scope=\"col\">plane</th><th scope=\"col\">encoding</th><th scope=\"col\" class=\"n\">differ</th><th scope=\"col\" class=\"n\">of</th><th scope=\"col\" class=\"n\">share</th></tr></thead><tbody>\n";
    for (const PlaneSummary& p : d.planes)
      out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n", escaped(p.plane), escaped(p.encoding), grouped(p.differ), grouped(p.of),
                         percent(p.differ, p.of));
    out += "</tbody></table></div>\n";
  }
  if (!d.fingerprints.empty()) {
    out += "<ul>\n";
    for (const string& f : d.fingerprints) out += "<li>" + escaped(f) + "</li>\n";
    out += "</ul>\n";
  }
  for (const PlaneSummary& p : d.planes) {
    string cards = histogram("How far", "codes apart", p.code_distance) + histogram("How large", "wanted value", p.exponent);
    if (!p.tie_distance.empty()) {
      cards += "<table class=\"histogram\"><caption>How near to a tie</caption><thead><tr><th scope=\"col\">steps</th><th class=\"bars\"></th><th scope=\"col\" class=\"n\">differ of</th></tr></thead><tbody>\n";
      double most = 0;   // the longest bar is the largest share
      auto share = [](const PlaneSummary::Bucket& b) { return b.of > 0 ? static_cast<double>(b.differ) / static_cast<double>(b.of) : 0.0; };
      for (const PlaneSummary::Bucket& b : p.tie_distance) most = std::max(most, share(b));
      for (const PlaneSummary::Bucket& b : p.tie_distance)
        cards += fmt::format("<tr><th scope=\"row\" title=\"{0}\">{0}</th><td class=\"bars\">{1}</td><td class=\"n\">{2} of {3}</td></tr>\n", escaped(b.name), bar(share(b), most), grouped(b.differ), grouped(b.of));
      cards += "</tbody></table>\n";
    }
    if (p.differ > 0 && !cards.empty()) out += fmt::format("<h3>{}: the {} that differ</h3>\n<div class=\"hists\">\n{}</div>\n", escaped(p.plane), grouped(p.differ), cards);
  }
  const bool differ = std::any_of(d.planes.begin(), d.planes.end(), [](const PlaneSummary& p) { return p.differ > 0; });
  return out.empty() ? out : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", differ ? "How" : "Planes", out);
}

string causes(const Diagnosis& d) {
  if (d.confidence == Confidence::equal || d.confidence == Confidence::random) return {};
  string out = fmt::format("<section>\n<h2>Causes</h2>\n<p>{} tried in {} runs of the reference.</p>\n", d.hypotheses == 1 ? "1 hypothesis was" : grouped(d.hypotheses) + " hypotheses were", grouped(d.evaluations));
  if (d.explanations.empty()) {
    out += "<p>None of them explains any of the differences.</p>\n";
  } else {
    out += "<table class=\"causes\"><thead><tr><th scope=\"col\">cause</th><th scope=\"col\">stage</th><th scope=\"col\" class=\"n\">repairs</th><th scope=\"col\" class=\"n\">breaks</th><th scope=\"col\" class=\"n\">all elements</th></tr></thead>\n";
    for (const bool exact : {true, false}) {
      string rows;
      for (const Explanation& e : d.explanations) {
        if (e.exact() != exact) continue;
        string ids;
        for (const string& id : e.ids) ids += (ids.empty() ? "" : " + ") + code(id);
        rows += fmt::format("<tr><td><p>{}</p><div class=\"ids quiet\">{}{}</div>{}</td><td data-label=\"stage\">{}</td><td class=\"n\" data-label=\"repairs\" title=\"{} of {}\">{}</td><td class=\"n\" data-label=\"breaks\">{}</td><td class=\"n\" data-label=\"all elements\" title=\"{} of {}\">{}</td></tr>\n",
                            escaped(e.title), ids, e.clause.empty() ? "" : " · " + escaped(e.clause), e.line.empty() ? "" : command(e.line), escaped(name_of(e.stage)), grouped(e.repaired), grouped(e.differ),
                            percent(e.repaired, e.differ), grouped(breaks(e)), grouped(e.agree), grouped(e.of), percent(e.agree, e.of));
      }
      if (!rows.empty()) out += fmt::format("<tbody>\n<tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">{}</th></tr>\n{}</tbody>\n", exact ? "Exact: makes every byte that came" : exact_ones(d).empty() ? "Not exact, the best first" : "Runners-up", rows);
    }
    out += "</table>\n";
  }
  if (!d.separating.empty()) {
    out += "<h3>Lines that tell equivalents apart</h3>\n";
    // Of a pack there is no subject to run: the line says what to dump.
    for (const string& line : d.separating) out += command(d.subject.starts_with("pack ") ? line : "assay explain " + shell_quoted(line) + (d.argument.empty() ? "" : " " + d.argument));
  }
  if (!d.invisible.empty()) {
    out += fmt::format("<h3>What this input could not have revealed</h3>\n<p>{} would change none of its bytes; another input may show {}.</p>\n<ul class=\"columns\">\n",
                       d.invisible.size() == 1 ? "One fault" : grouped(static_cast<int64_t>(d.invisible.size())) + " faults", d.invisible.size() == 1 ? "it" : "them");
    for (const string& id : d.invisible) out += "<li>" + code(id) + "</li>\n";
    out += "</ul>\n";
  }
  return out + "</section>\n";
}

string cell(const std::optional<std::pair<Encoding, uint32_t>>& v) {
  return v ? fmt::format("<code><span class=\"code\">{}</span> {}</code>", code_hex(v->first, v->second), value_text(v->first, v->second)) : string("–");
}

string trace(const Diagnosis& d) {
  if (d.trace.steps.empty() && d.trace.outputs.empty()) return {};
  string out = fmt::format("<section>\n<h2>The first element that differs</h2>\n<p>Row {}, column {} of the tensor, along its {}: each step of the reference beside what came.</p>\n"
                           "<div class=\"scroll\"><table class=\"trace\"><thead><tr><th></th><th scope=\"col\">clause</th><th scope=\"col\">step</th><th scope=\"col\">reference</th><th scope=\"col\">{}</th></tr></thead>\n",
                           grouped(d.trace.row), grouped(d.trace.col), direction_text(d.trace.direction), escaped(d.subject));
  bool found = false;
  for (const auto* rows : {&d.trace.steps, &d.trace.outputs}) {
    if (rows->empty()) continue;
    out += "<tbody>\n";
    for (const TraceRow& r : *rows) {
      const bool first = r.differs() && !found;
      found |= first;
      out += fmt::format("<tr{}><td>{}</td><td>{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n", first ? " class=\"parts\"" : "", first ? "→ parts here" : r.differs() ? "differs" : "", escaped(r.clause), escaped(r.what),
                         cell(r.left), cell(r.right));
    }
    out += "</tbody>\n";
  }
  return out + "</table></div>\n</section>\n";
}

string again(const Diagnosis& d) {
  string out;
  if (!d.command.empty()) out += "<h3>This diagnosis</h3>\n" + command(d.command);
  if (!d.reproducer.empty()) {
    const string subject = d.argument.empty() ? "" : " " + d.argument;
    out += string("<h3>The smallest line that still differs") + (d.reproducer_limited ? "; a limit ended the search for a smaller one" : "") + "</h3>\n" + (d.argument.empty() ? command(d.reproducer) : "");
    if (!d.argument.empty()) out += command("assay run " + shell_quoted(d.reproducer) + subject) + command("assay trace " + shell_quoted(d.reproducer) + subject);
  }
  if (!d.reproducer_files.empty()) {
    out += "<h3>Files</h3>\n<ul>\n";
    for (const string& file : d.reproducer_files) out += "<li>" + code(file) + "</li>\n";
    out += "</ul>\n";
  }
  return out.empty() ? out : "<section>\n<h2>See it again</h2>\n" + out + "</section>\n";
}

string machine(const json::Value& doctor) {
  if (!doctor.object()) return {};
  string rows;
  auto row = [&](std::string_view name, const string& value) {
    if (!value.empty()) rows += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escaped(value));
  };
  auto text = [&](std::string_view key) { return string(doctor.text(key)); };
  row("assay", text("version") + (text("commit").empty() ? "" : " (" + text("commit") + ")"));
  row("compiler", text("compiler") + "  " + text("build_type") + "  " + text("flags") + (text("sanitizers").empty() ? "" : "  " + text("sanitizers")));
  row("system", text("os") + (text("distribution").empty() ? "" : ", " + text("distribution")));
  const json::Value* cores = doctor.find("cores");
  row("processor", text("cpu") + (cores && cores->to_int() ? fmt::format(", {} cores", *cores->to_int()) : ""));
  row("CUDA", text("cuda_toolkit").empty() ? "not compiled in" : "toolkit " + text("cuda_toolkit"));
  if (const json::Value* floats = doctor.find("float"); floats && floats->object()) {
    string broken;
    for (const auto& [name, value] : *floats->object())
      if (!value.to_bool()) broken += (broken.empty() ? "" : "; ") + name + (value.string() ? ": " + *value.string() : "");
    row("float", broken.empty() ? "as clause N1.1 asks" : "NOT as clause N1.1 asks: " + broken);
  }
  if (const json::Value* subjects = doctor.find("subjects"); subjects && subjects->array()) {
    string present;
    for (const json::Value& s : *subjects->array())
      if (const json::Value* here = s.find("present"); here && here->to_bool().value_or(false)) present += (present.empty() ? "" : ", ") + string(s.text("name"));
    row("subjects", present);
  }
  row("id", text("fingerprint"));
  return rows.empty() ? rows : "<section>\n<h2>The machine</h2>\n<dl class=\"machine\">\n" + rows + "</dl>\n</section>\n";
}

}  // namespace

string diagnosis_page(const Diagnosis& d, const json::Value& doctor) {
  string out = page_head("Assay: " + headline(d), kStyle);
  out += about(d) + stages(d) + where(d) + how(d) + causes(d) + trace(d) + again(d) + machine(doctor);
  out += fmt::format("<footer>{} elements, {:.1f} s</footer>\n", grouped(d.elements), d.seconds);
  return out + page_end();
}

std::optional<Error> write_diagnosis_page(const Diagnosis& d, const string& path, const json::Value& doctor) {
  if (write_file(path, std::string_view(diagnosis_page(d, doctor)))) return Error{"cannot write " + path, 0, "--html takes a file in a folder that exists"};
  return std::nullopt;
}

}  // namespace assay

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compare/diagnosis/report/html_sections.h"
#include "compare/text/html.h"

namespace assay::sections {

using std::string;

namespace {

// What a word or a number means, with its colour; never the colour alone.
struct Sureness {
  std::string_view kind, word, meaning;
};
Sureness sureness(const Diagnosis& d) {
  switch (d.confidence) {
    case Confidence::equal:
      if (!d.unpinned.empty())
        return {"good", "inside the bound",
                "The bits of d are not pinned (N16.13): every element lies inside the bound for any order of "
                "roundings."};
      return {"good", "equal", "Every plane that was judged is equal, bit for bit."};
    case Confidence::certain:
      return {"bad", "certain",
              "One explanation makes every byte that came, and no other that was tried does."};
    case Confidence::equivalent:
      return {"bad", "certain, up to equivalents",
              "Several explanations make every byte that came; this input cannot tell them apart."};
    case Confidence::partial:
      return {"warn", "partial",
              "No explanation makes every byte that came; the best one repairs a part of the differences."};
    case Confidence::unexplained:
      return {"warn", "unexplained",
              "Nothing that was tried comes near these bytes. The stage below is where to look."};
    case Confidence::random:
      if (!d.unwritten.empty())
        return {"bad", "not written", "Two runs under different poisons left these elements as they were."};
      return {"bad", "not repeatable",
              "Two runs on the same input differ. A race, or a read of something that was never written, "
              "comes first; a cause, where one is named, is that of the first run's bytes."};
  }
  return {"warn", "unknown", ""};
}

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
    if (s.outcome == StageOutcome::differs && d.first && s.stage == *d.first &&
        (!d.direction || s.direction == *d.direction))
      return &s;
  return nullptr;
}

string fact(std::string_view name, const string& large, const string& more) {
  return fmt::format("<div><dt>{}</dt>{}{}</div>\n", name,
                     large.empty() ? "" : "<dd class=\"large\">" + large + "</dd>",
                     more.empty() ? "" : "<dd>" + more + "</dd>");
}

string first_difference(const Diagnosis& d) {
  if (!d.first) return "";
  const string name = escaped(name_of(*d.first)) + (d.direction ? ", " + direction_text(*d.direction) : "");
  // A stage that no plane shows is inferred; then the first plane that differs says how much.
  const StageVerdict* s = first_stage(d);
  const auto plane =
      std::find_if(d.planes.begin(), d.planes.end(), [](const PlaneSummary& p) { return p.differ > 0; });
  string how_much;
  if (s && s->of > 0)
    how_much = fmt::format("{} of {} differ {}", grouped(s->differ), grouped(s->of), escaped(s->note));
  else if (plane != d.planes.end())
    how_much = fmt::format("{} of {} of {} differ", grouped(plane->differ), grouped(plane->of),
                           escaped(plane->plane));
  return fact("First difference", name, how_much);
}

string cause(const Diagnosis& d) {
  if (d.explanations.empty()) return "";
  const Explanation& best = d.explanations.front();
  if (!best.exact() && d.confidence != Confidence::partial) return "";
  string text = ids_text(best);
  const size_t equivalents = exact_ones(d).size();
  if (equivalents > 1) {
    const string others =
        equivalents == 2 ? "one other" : grouped(static_cast<int64_t>(equivalents) - 1) + " others";
    text += fmt::format("<br>or {} that this input cannot tell from it", others);
  }
  if (!best.clause.empty()) text += "<br>clause " + escaped(best.clause);
  const string explained = fmt::format("of the {} that differ; {} of {} elements come out as they came",
                                       grouped(best.differ), grouped(best.agree), grouped(best.of));
  return fact("Cause", "", text) + fact("Explained", percent(best.repaired, best.differ), explained);
}

string next_best(const Diagnosis& d) {
  const Explanation* next = runner_up(d);
  if (!next) return "";
  const string worse = breaks(*next) ? fmt::format("; breaks {} others", grouped(breaks(*next))) : "";
  return fact(d.confidence == Confidence::unexplained ? "Nearest" : "Runner-up",
              percent(next->repaired, next->differ), escaped(next->title) + worse);
}

string place(const Diagnosis& d) {
  if (d.where.empty()) return d.heat ? fact("Where", "", "no coordinate tells them apart") : "";
  const Coordinate& best = d.where.front();
  return fact(
      "Where", "",
      escaped(best.what) + fmt::format("<br>{} of what differs", percent(best.differ, best.differ_of)));
}

}  // namespace

string verdict(const Diagnosis& d) {
  const Sureness sure = sureness(d);
  string out = fmt::format(
      "<header>\n<div class=\"eyebrow\">Assay diagnosis</div>\n<h1>{}</h1>\n"
      "<p><span class=\"badge {}\">{}</span></p>\n<p>{}</p>\n"
      "<p class=\"case\">{}<br><span class=\"quiet\">made by {}</span></p>\n",
      escaped(headline(d)), sure.kind, sure.word, sure.meaning, code(d.line), escaped(d.subject));
  string facts = first_difference(d) + cause(d) + next_best(d) + place(d);
  if (d.deterministic) facts += fact("Same bytes twice", *d.deterministic ? "yes" : "no", "");
  for (const string& text : d.unwritten) facts += fact("Never written", "", escaped(text));
  for (const string& text : d.runs) facts += fact("Runs", "", escaped(text));
  if (!d.part.empty())
    facts += fact("Searched", "", escaped(d.part) + ", the part around the first difference");
  if (d.cut_short)
    facts += fact("Search", "", "ended by its budget or by the user: other causes may also match");
  if (!facts.empty()) out += "<dl class=\"facts\">\n" + facts + "</dl>\n";
  return out + "</header>\n";
}

// ---- stages -----------------------------------------------------------------------------------------------

string stages(const Diagnosis& d) {
  static constexpr struct {
    std::string_view kind, mark, word;
  } kWords[] = {{"equal", "=", "equal"},
                {"differs", "≠", "differs"},
                {"unseen", "·", "not seen"},
                {"follows", "↳", "follows"}};
  string out;
  for (const Direction direction : {Direction::row, Direction::col}) {
    string row;
    bool seen = false;
    for (const StageVerdict& s : d.stages) {
      if (s.direction != direction) continue;
      const auto& word = kWords[static_cast<size_t>(s.outcome)];
      seen |= s.outcome != StageOutcome::unseen;
      row += fmt::format(
          "<li class=\"{}\"><span class=\"name\">{}</span> <span class=\"state\">{} {}</span>{}{}</li>\n",
          word.kind, escaped(name_of(s.stage)), word.mark, word.word,
          s.outcome != StageOutcome::unseen && s.of > 0
              ? fmt::format(" <span>{} of {}</span>", grouped(s.differ), grouped(s.of))
              : "",
          s.note.empty() ? "" : " <span class=\"quiet\">" + escaped(s.note) + "</span>");
    }
    if (seen)
      out += fmt::format("<h3>Made along {}</h3>\n<ol class=\"stages\">\n{}</ol>\n",
                         direction_text(direction), row);
  }
  if (out.empty()) return out;
  return "<section>\n<h2>Stages</h2>\n<p class=\"quiet\">In the order in which a quantizer takes them. "
         "“Follows” means wrong only because an earlier stage is wrong; “not seen” means that no plane shows "
         "the stage.</p>\n" +
         out + "</section>\n";
}

}  // namespace assay::sections

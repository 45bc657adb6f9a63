#include "compare/commands/coverage_cases.h"

#include <algorithm>
#include <iostream>
#include <set>

#include <fmt/format.h>

#include "compare/process/interrupt.h"
#include "compare/rounding/cases.h"
#include "compare/rounding/reached.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using rounding::Case;
using rounding::Unit;

// One unit: its cases by what became of them.
struct UnitReport {
  const Unit* unit = nullptr;
  struct Found {
    const Case* of;
    int64_t line;
  };
  std::vector<Found> reached;
  std::vector<const Case*> left_out;
  std::vector<std::pair<const Case*, std::string_view>> unreachable;  // and why
  std::vector<Found> contradictions;                                  // reached, and called unreachable
  std::set<std::string_view> clauses, clauses_reached;
  size_t cases() const { return reached.size() + left_out.size(); }
};

UnitReport report_of(const Unit& unit, const rounding::Reached& reached) {
  UnitReport out;
  out.unit = &unit;
  const auto own = reached.find(unit.name);
  const auto cases = rounding::cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    if (!applies(c, unit)) continue;
    const int64_t line = own == reached.end() ? -1 : own->second[i];
    const rounding::Unreachable* why = why_unreachable(c, unit);
    if (why && line < 0) {
      out.unreachable.emplace_back(&c, why->why);
      continue;
    }
    out.clauses.insert(c.clause);
    if (why) out.contradictions.push_back({&c, line});
    if (line < 0) {
      out.left_out.push_back(&c);
    } else {
      out.reached.push_back({&c, line});
      out.clauses_reached.insert(c.clause);
    }
  }
  return out;
}

void print(const CoverageOptions& options, const std::vector<UnitReport>& units,
           const rounding::ReachedByLines& by, std::ostream& out) {
  size_t reached = 0, cases = 0, unreachable = 0;
  out << fmt::format("{:<24} {:>14} {:>14}\n", "unit", "clauses", "cases");
  for (const UnitReport& u : units) {
    reached += u.reached.size(), cases += u.cases(), unreachable += u.unreachable.size();
    out << fmt::format("{:<24} {:>6} of {:>4} {:>6} of {:>4}\n", u.unit->name, u.clauses_reached.size(),
                       u.clauses.size(), u.reached.size(), u.cases());
    for (size_t i = 0; i < std::min(options.list, u.left_out.size()); ++i)
      out << fmt::format("  not reached   {}   {}\n", id(*u.left_out[i]), u.left_out[i]->words);
    if (u.left_out.size() > options.list && options.list)
      out << fmt::format("  and {} more\n", u.left_out.size() - options.list);
    for (const auto& f : u.contradictions)
      out << fmt::format("  reached, but unreachable.def says that no line can: {} by '{}'\n", id(*f.of),
                         to_line(options.lines[static_cast<size_t>(f.line)]));
  }
  for (const auto& [line, why] : by.errors)
    out << fmt::format("not looked at: '{}': {}\n", to_line(options.lines[line]), why);
  out << fmt::format("{} of {} rounding cases by {} lines, every element; {} more that no line can reach\n",
                     reached, cases, by.looked_at, unreachable);
}

json::Value as_json(const Case& c) {
  return json::object({{"clause", std::string(c.clause)},
                       {"step", std::string(c.step)},
                       {"case", std::string(c.name)},
                       {"keys", std::string(c.keys)},
                       {"words", std::string(c.words)}});
}

json::Value document(const CoverageOptions& options, const std::vector<UnitReport>& units,
                     const rounding::ReachedByLines& by) {
  json::Value list = json::array(), suites = json::array(), errors = json::array();
  for (const std::string& suite : options.suites) suites.push(suite);
  for (const UnitReport& u : units) {
    json::Value reached = json::array(), left_out = json::array(), unreachable = json::array();
    for (const auto& f : u.reached) {
      json::Value v = as_json(*f.of);
      v.set("line", to_line(options.lines[static_cast<size_t>(f.line)]));
      reached.push(std::move(v));
    }
    for (const Case* c : u.left_out) left_out.push(as_json(*c));
    for (const auto& [c, why] : u.unreachable) {
      json::Value v = as_json(*c);
      v.set("why", std::string(why));
      unreachable.push(std::move(v));
    }
    list.push(json::object({{"unit", u.unit->name},
                            {"clauses", u.clauses.size()},
                            {"clauses_reached", u.clauses_reached.size()},
                            {"reached", std::move(reached)},
                            {"not_reached", std::move(left_out)},
                            {"unreachable", std::move(unreachable)}}));
  }
  for (const auto& [line, why] : by.errors)
    errors.push(json::object({{"line", to_line(options.lines[line])}, {"why", why}}));
  json::Value out = json::object({{"schema", "assay.rounding_cases/1"},
                                  {"suites", std::move(suites)},
                                  {"subject", options.subject},
                                  {"lines", by.looked_at},
                                  {"units", std::move(list)},
                                  {"errors", std::move(errors)}});
  if (by.looked_at < options.lines.size()) out.set("cut_short", true);
  return out;
}

}  // namespace

int run_coverage_cases(const CoverageOptions& options, Subject& reference, std::ostream& out,
                       std::ostream& err) {
  const auto refuse = [&](const std::optional<Error>& error) {
    if (error) err << "assay: " << error->text() << "\n";
    return error.has_value();
  };
  if (refuse(options.json.empty() ? std::nullopt : cannot_write(options.json, "--json"))) return 2;
  std::vector<const Unit*> wanted;
  for (const Unit& unit : rounding::all_units())
    if (unit.name.find(options.space.only) != std::string::npos) wanted.push_back(&unit);
  if (wanted.empty()) {
    err << "assay: --only: no unit contains '" << options.space.only
        << "'; `assay coverage --cases` lists them\n";
    return 2;
  }
  const InterruptScope scope;
  const rounding::ReachedByLines by = rounding::reach(
      options.lines, reference, {options.space.jobs, options.space.only, options.space.on_progress});
  std::vector<UnitReport> units;
  for (const Unit* unit : wanted) units.push_back(report_of(*unit, by.reached));
  print(options, units, by, out);
  if (by.looked_at < options.lines.size())
    out << fmt::format("interrupted: {} of {} lines were looked at\n", by.looked_at, options.lines.size());
  if (!options.json.empty() &&
      refuse(write_file(options.json, json::dump(document(options, units, by), 1) + "\n")))
    return 2;
  const bool wrong = !by.errors.empty() || std::any_of(units.begin(), units.end(), [](const UnitReport& u) {
    return !u.contradictions.empty();
  });
  const bool whole =
      std::all_of(units.begin(), units.end(), [](const UnitReport& u) { return u.left_out.empty(); });
  return wrong || (options.whole && !whole) ? 1 : interrupted() ? kInterrupted : 0;
}

}  // namespace assay

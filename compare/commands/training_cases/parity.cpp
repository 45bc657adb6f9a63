#include "compare/commands/training_cases/parity.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "compare/commands/training_cases/counting_subject.h"
#include "compare/commands/training_cases/rank_runs.h"
#include "training/base/rank_engine.h"
#include "training/parity/judge.h"

namespace assay {

namespace {

Verdict judge_parity(const training::Cell& cell, Subject& judged, const Environment& environment) {
  CountingSubject subject(judged);
  Verdict v;
  v.claims = {"roles"};
  const auto start = std::chrono::steady_clock::now();
  training::CellResult r;
  const training::RankTranscript ranks;
  try {
    r = training::judge_cell(cell, subject, environment);
  } catch (const training::RankError& e) {
    if (training::rank_engine().lost) throw;  // ranks that lost one another end more than the cell
    r.first = "the ranks";
    r.expected = "the same collectives on every rank";
    r.found = e.what();
  } catch (const std::exception& e) {
    r.first = "vanilla's step";
    r.expected = "a step";
    r.found = e.what();
  }
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  v.ranks = to_text(ranks.runs);
  v.witness = fmt::format("{} bytes compared", r.compared);
  subject.report(v);
  using enum training::CellResult::Outcome;
  if (r.outcome == excluded) {
    v.excluded = r.exclusions;
    v.reason = fmt::format("excluded by {}: {}; differed at {}", r.exclusions, r.reason, r.first);
  } else if (r.outcome == failed) {
    v.outcome = Outcome::failed;
    v.breaches.push_back(complaint("roles", subject.name(),
                                   fmt::format("{}\nexpected {} (vanilla)\nfound    {} (hybrid)\n{}", r.first,
                                               r.expected, r.found, r.reason)));
  }
  return v;
}

std::string core_of(const training::Cell& cell) {
  return cell.core.empty() ? "" : fmt::format(" core={}", cell.core);
}

// Where the cell of a built-in recipe stands in the matrix.
void place(const training::Cell& cell, TrainingCase& out) {
  out.row = fmt::format("{} {}{}", cell.module, cell.roles, core_of(cell));
  out.column = training::to_text(cell.formats);
  if (!cell.backward_override.empty()) out.column += fmt::format(" {}", cell.backward_override);
}

// The same for a cell of a factory, whose formats are said as well.
void place_factory(const training::Cell& cell, TrainingCase& out) {
  out.row = fmt::format("{} factory={}{}", cell.module, cell.factory, core_of(cell));
  out.column = training::circumstances(cell);
  if (out.column.empty()) out.column = training::name_of(cell.phase);
  if (!cell.formats.fprop.empty())
    out.about.push_back(fmt::format("{} is {} here (fprop|dgrad|wgrad; equal formats are written once)",
                                    cell.factory, training::to_text(cell.formats)));
}

}  // namespace

TrainingCase case_of(const training::Cell& cell) {
  TrainingCase out;
  out.entry.file = "roles";
  out.entry.text = training::to_text(cell);
  out.about = {"hybrid against vanilla, bit for bit"};
  out.ranks = std::max(1, cell.ranks);
  if (cell.factory.empty()) place(cell, out);
  else place_factory(cell, out);
  out.judge = [cell](Subject& subject, Subject&, const Environment& environment) {
    return judge_parity(cell, subject, environment);
  };
  return out;
}

TrainingCase case_of(const training::FactoryCell& f) {
  TrainingCase out = case_of(f.cell);
  if (f.refused.empty()) return out;
  out.judge = [reason = f.refused](Subject&, Subject&, const Environment&) {
    Verdict v;
    v.claims = {"roles"};
    v.outcome = Outcome::unsupported;
    v.reason = reason;
    return v;
  };
  return out;
}

}  // namespace assay

#include "compare/commands/trace.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/commands/checked_case.h"
#include "compare/commands/options.h"
#include "compare/commands/recorded_case.h"
#include "compare/debug/slice_rows.h"
#include "compare/judge/cases.h"
#include "compare/process/interrupt.h"
#include "compare/process/memory.h"
#include "compare/process/run_in_child.h"
#include "compare/report/screen.h"
#include "compare/subjects/forwarding.h"
#include "compare/text/printable.h"
#include "contract/line.h"

namespace assay {

namespace {

std::string cell(const std::optional<std::pair<Encoding, uint32_t>>& v) {
  if (!v) return "-";
  return fmt::format("{:<8}  {}", code_hex(v->first, v->second), value_text(v->first, v->second));
}

// The table, with the first differing row marked.
class TraceTable {
 public:
  TraceTable(const TraceOptions& options, const Trace& trace, std::ostream& out)
      : options_(options), trace_(trace), out_(out) {
    left_ = options.other.size();
    for (const auto* rows : {&trace.steps, &trace.outputs})
      for (const TraceRow& r : *rows) {
        what_ = std::max(what_, r.what.size());
        left_ = std::max(left_, cell(r.left).size());
      }
  }

  // Whether a row differs, and not only inside the bound.
  bool print() {
    out_ << fmt::format("   {:<6} {:<{}}  {:<{}}  {}\n", "clause", "step", what_, options_.other, left_,
                        options_.subject);
    for (const TraceRow& r : trace_.steps) print(r);
    if (trace_.steps.empty()) out_ << "   neither side reports its steps for this op\n";
    if (!trace_.outputs.empty()) out_ << "   outputs\n";
    for (const TraceRow& r : trace_.outputs) print(r);
    return found_;
  }

 private:
  void print(const TraceRow& r) {
    const bool inside = r.differs() && trace_.inside, first = r.differs() && !inside && !found_;
    found_ |= first;
    out_ << fmt::format("{} {:<6} {:<{}}  {:<{}}  {}{}\n",
                        first                    ? "->"
                        : r.differs() && !inside ? " *"
                                                 : "  ",
                        r.clause, r.what, what_, cell(r.left), left_, cell(r.right),
                        first    ? "   <- parts here"
                        : inside ? "   <- inside the bound (N16.13)"
                                 : "");
  }

  const TraceOptions& options_;
  const Trace& trace_;
  std::ostream& out_;
  size_t what_ = 4, left_ = 0;  // widths of columns
  bool found_ = false;
};

// The slice, the oldest instruction first, with a heading wherever the kernel or its source line changes.
class SliceTable {
 public:
  SliceTable(const Slice& slice, const std::string& other, std::ostream& out)
      : slice_(slice), other_(other), out_(out) {
    for (const SliceRow& r : slice.rows)
      text_ = std::max(text_, std::min(r.step.instruction.size(), kMostText));
  }
  void print() {
    out_ << fmt::format("\nslice of {} {}: {} instructions, values alone (docs/ptx.md)\n", slice_.plane,
                        slice_.place, slice_.rows.size());
    out_ << fmt::format("   {:>6} {:>6}  {:<{}}  {:<26}  {}\n", "PTX", "thread", "instruction", text_,
                        "value", other_);
    const size_t first = slice_.rows.size() > kMostRows ? slice_.rows.size() - kMostRows : 0;
    if (first) out_ << fmt::format("   ... {} earlier instructions\n", first);
    for (size_t n = first; n < slice_.rows.size(); ++n) row(n);
    if (slice_.parting) out_ << "\n" << sentence() << "\n";
  }

 private:
  static constexpr size_t kMostText = 58, kMostRows = 400;

  void row(size_t n) {
    const SliceStep& s = slice_.rows[n].step;
    if (s.who != who_ || s.source != source_)
      out_ << "   " << s.who << (s.source.empty() ? "" : ", ") << s.source << "\n";
    who_ = s.who, source_ = s.source;
    const bool parts = slice_.parting && slice_.parting->row == n;
    std::string beside;
    if (const auto& same = slice_.rows[n].same) beside = same->clause + " " + same->what;
    if (parts) beside = step_text(slice_.parting->step) + "   <- parts here";
    if (!s.memory.empty() && beside.empty()) beside = fmt::format("{}, byte {}", s.memory, s.offset);
    std::string line = fmt::format(
        "{} {:>6} {:>6}  {:<{}}  {:<26}  {}", parts ? "->" : "  ", s.line, s.thread,
        s.instruction.size() > kMostText ? s.instruction.substr(0, kMostText - 3) + "..." : s.instruction,
        text_, slice_value_text(s), beside);
    line.erase(line.find_last_not_of(' ') + 1);
    out_ << line << "\n";
  }
  static std::string step_text(const TraceStep& s) {
    return fmt::format("{} {}: {}  {}", s.clause, s.what, code_hex(s.encoding, s.bits),
                       value_text(s.encoding, s.bits));
  }
  std::string sentence() const {
    const Parting& p = *slice_.parting;
    std::string out;
    if (p.agreed)
      out = fmt::format("equal up to PTX line {} ({} {}); ", slice_.rows[*p.agreed].step.line,
                        slice_.rows[*p.agreed].same->clause, slice_.rows[*p.agreed].same->what);
    return out + fmt::format("PTX line {} has {} where {} has {}", slice_.rows[p.row].step.line,
                             slice_value_text(slice_.rows[p.row].step), other_, step_text(p.step));
  }

  const Slice& slice_;
  const std::string& other_;
  std::ostream& out_;
  size_t text_ = 11;
  std::string who_, source_;
};

// "12,48" of --at.
std::pair<int64_t, int64_t> read_at(const std::string& text) {
  long long row = 0, col = 0;
  char tail = 0;
  if (std::sscanf(text.c_str(), "%lld,%lld%c", &row, &col, &tail) != 2)
    throw Refusal{fmt::format("--at '{}': expected <row>,<column>", text)};
  return {row, col};
}

int refuse_interrupted(std::ostream& err) {
  err << "assay: interrupted before both sides had run: nothing was traced\n";
  return kInterrupted;
}

int show_trace(const TraceOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto traced = trace(options, subjects);
  if (!traced && interrupted()) return refuse_interrupted(err);
  if (!traced) {
    err << "assay: " << traced.error().text() << "\n";
    return 2;
  }
  const bool product = options.problem.as<Gemm>() != nullptr;
  out << fmt::format("trace    {}\n  element  ({}, {}) {}\n\n", to_line(options.problem), traced->row,
                     traced->col, product ? "of d [n, m]" : name_of(traced->direction));
  const bool found = TraceTable(options, *traced, out).print();
  if (!traced->unpinned.empty()) out << "\nbits of d are not pinned (N16.13): " << traced->unpinned << "\n";
  if (!traced->no_slice.empty()) out << "\n" << traced->no_slice << "\n";
  if (traced->slice) SliceTable(*traced->slice, options.other, out).print();
  if (!found)
    out << (traced->unpinned.empty() || !traced->inside
                ? "\nno step and no output of this element differs\n"
                : "no step of this element differs, and its output lies inside the bound\n");
  return found ? 1 : interrupted() ? kInterrupted : 0;
}

}  // namespace

int run_trace(const TraceOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const InterruptScope scope;
  return show_trace(options, subjects, out, err);
}

namespace {

// The case that is traced, as `check` judges it.
struct TracedCase {
  const DumpCase* place;
  Problem problem;
  CheckedCase checked;
};

// The first whose bytes differ, else the first that is right. Prints what is to be known of each case before
// its verdict. Error: an interrupt, or none of them can be judged, and why. `missed`: those that cannot.
Result<TracedCase> traced_case(const std::vector<const DumpCase*>& cases, const Subjects& subjects,
                               double timeout, std::vector<std::string>& missed, std::ostream& out) {
  CaseSettings settings;
  settings.timeout = timeout;
  std::optional<TracedCase> right;
  for (const DumpCase* c : cases) {
    const auto problem = problem_of(*c->recorded);
    if (!problem) {
      missed.push_back(c->where() + ": " + problem.error().text());
      continue;
    }
    TracedCase now{c, *problem, check_case(*c, *problem, subjects, settings)};
    if (interrupted()) break;
    out << notes_text(c->where(), now.checked.report);
    const std::optional<Breach>& breach = now.checked.report.breach;
    if (breach && !breach->plane.empty()) return now;
    if (breach) missed.push_back(c->where() + ": " + breach->message);
    else if (!right) right = std::move(now);
  }
  if (right && !interrupted()) return std::move(*right);
  return Error{missed.empty() ? "" : missed.front(), 0, ""};
}

// The table of one case. Exit status: that of run_trace.
int trace_recorded(const TracedCase& traced, TraceOptions options, const Subjects& subjects,
                   std::ostream& out, std::ostream& err) {
  const DumpCase& c = *traced.place;
  const auto fail = [&](const std::string& message) {
    err << "assay: " << printable(message) << "\n";
    return 2;
  };
  if (const auto lacking = lacks_memory(traced.problem)) return fail(c.where() + ": " + *lacking);
  auto seen = observed(c, traced.problem, {}, subjects.reference());
  if (!seen) return fail(c.where() + ": " + seen.error().text());
  const auto drawn = drawn_from(c, traced.problem);
  if (!drawn) return fail(c.where() + ": its x cannot be read again");
  const IsolatedRun want =
      run_isolated(subjects.reference(), traced.problem, seen->inputs, Environment{}, options.timeout);
  if (interrupted()) return refuse_interrupted(err);
  if (!want.sound()) return fail("reference: " + want.trouble());
  const std::vector<PlaneData> inputs = seen->inputs;  // what was given came with the pack
  Subjects both;
  both.owned.push_back(std::make_unique<ForwardingSubject>(subjects.reference()));
  both.owned.push_back(
      make_recorded_subject(std::move(*seen), want.execution.planes, {}, subjects.reference()));
  options.problem = *drawn;
  options.subject = "pack";
  options.environment = {};
  options.inputs = &inputs;
  out << "case     " << c.where() << "\n";
  return show_trace(options, both, out, err);
}

}  // namespace

int run_trace_of_pack(const std::string& path, const std::string& id, const TraceOptions& options,
                      const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto fail = [&](const std::string& message, int status) {
    err << "assay: " << printable(message) << "\n";
    return status;
  };
  const auto dump = read_dump({path});
  if (!dump) return fail(dump.error().text(), 2);
  const auto cases = cases_named(*dump, path, id);
  if (!cases) return fail(cases.error().text(), 2);
  const InterruptScope scope;
  std::vector<std::string> missed;
  const auto traced = traced_case(*cases, subjects, options.timeout, missed, out);
  if (interrupted()) return refuse_interrupted(err);
  if (!traced) return fail(traced.error().text(), 1);  // as `assay check` counts such a case: as failed
  const int status = trace_recorded(*traced, options, subjects, out, err);
  for (const std::string& m : missed) err << "note: not compared: " << printable(m) << "\n";
  const std::optional<Breach>& breach = traced->checked.report.breach;
  if (status == 0 && breach) out << "the case differs elsewhere:\n" << cause_text(*breach);
  return status == 0 && !options.at && (breach || !missed.empty()) ? 1 : status;
}

void register_trace(Program& program) {
  struct Given {
    TraceOptions trace;
    std::string line, case_id, at, direction;
  };
  const auto given = std::make_shared<Given>();
  CommonOptions& common = program.common;
  Command c(program.app, "trace", "show both sides of one element, clause by clause");
  c.footer(
      "Examples:\n"
      "  assay trace 'quantize mxfp8 64x256 bf16 fill=ties' --at 12,48\n"
      "  assay trace dump.safetensors --case fc1 --at 12,48\n"
      "  assay trace 'quantize fp8_current 8x8 f32 dir=both' --direction col\n"
      "Exit status: 0 no step of the element differs; 1 one does; 2 bad input; 130 it was interrupted before "
      "a difference was found.");
  c.option("line", given->line, "a line in quotes, or a pack, whose bytes are then one side").required();
  c.option("--case", given->case_id, "a case of the pack (default: the first that differs)");
  c.option("--at", given->at,
           "row,column of the tensor, of a gemm n,m of d (default: the first that differs)");
  c.option("--plane", given->trace.plane,
           "the output whose instructions a compiled kernel shows (default: the first that differs)");
  c.option("--direction", given->direction, "row or col").one_of({"row", "col"});
  add_subjects(c, common, "host");
  add_environment(c, common);
  add_timeout(c, common);
  c.callback([&program, given] {
    TraceOptions& trace = given->trace;
    const Subjects subjects = program.make_subjects(program.common);
    split_case(given->line, given->case_id);
    const bool is_pack = names_pack(given->line);
    if (!is_pack) {
      trace.problem = problem_of_line(given->line);
      refuse_too_large({entry_of(trace.problem)});
    }
    take_subject(trace, program.common, subjects);
    trace.slice = true;
    if (!given->at.empty()) trace.at = read_at(given->at);
    if (!given->direction.empty())
      trace.direction = given->direction == "row" ? Direction::row : Direction::col;
    program.status =
        is_pack ? run_trace_of_pack(given->line, given->case_id, trace, subjects, std::cout, std::cerr)
                : run_trace(trace, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay

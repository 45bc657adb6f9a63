#include "compare/commands/check.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "compare/diagnosis/identify/coherence.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/report/text.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
#include "compare/report/screen.h"
#include "compare/text/printable.h"
#include "compare/report/report.h"
#include "compare/report/github.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;

// ---- check -----------------------------------------------------------------------------------------------------------

Breach message_breach(string message) {
  Breach b;
  b.message = printable(message);
  return b;
}

// The breach of a judgement; compact padding is nobody's business here.
std::optional<Breach> breach_of(const Problem& problem, Judgement judgement, std::string_view got, std::string_view want) {
  if (!judgement.error.empty()) return message_breach(judgement.error);
  std::erase_if(judgement.padding, [](const PlaneDifference& d) { return d.plane.layout == ScaleLayout::compact; });
  if (judgement.cause || judgement.padding.empty()) return parity_breach(problem, judgement, got, want);
  const PlaneDifference& d = judgement.padding.front();
  Breach b;
  b.claim = "padding";
  b.got = got;
  b.want = want;
  b.plane = d.plane.name;
  b.encoding = info(d.plane.encoding).name;
  b.where = place_text(&problem, d.plane, d.place);
  b.in_padding = true;
  b.differ = d.differ;
  b.of = d.of;
  b.got_code = d.got;
  b.want_code = d.want;
  b.message = "GEMM-layout padding must be 0 (N6.4)";
  return b;
}

string join(const std::vector<string>& words) {
  string out;
  for (const string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

// What became of one case.
struct CaseReport {
  std::vector<string> judged, missing;
  std::vector<string> notes;
  std::optional<Breach> breach;
  std::optional<Observation> seen;     // of a case whose bytes differ
};

constexpr double kCauseBudget = 5;     // seconds of looking for the cause of the first divergence

CaseReport check_case(const PackCase& c, const Problem& problem, const Subjects& subjects, double timeout) {
  CaseReport report;
  auto failed = [&](string message) {
    report.breach = message_breach(std::move(message));
    return report;
  };
  auto inputs = dump_inputs(c, problem, subjects.reference());
  if (!inputs) return failed(inputs.error().text());
  IsolatedRun want = run_isolated(subjects.reference(), problem, *inputs, Environment{}, timeout);
  if (!want.sound()) return failed("reference: " + want.trouble());

  std::set<string> known;
  for (const Plane& plane : input_planes(problem)) known.insert(plane.name);
  for (PlaneData& plane : want.execution.planes) clear_spare(plane);       // as recordings are
  std::vector<PlaneData> got, wanted;
  std::vector<string> digests;   // planes of which only a digest was recorded, and which differ
  for (const PlaneData& plane : want.execution.planes) {
    known.insert(plane.plane.name);
    const PackPlane* recorded = c.find(plane.plane.name);
    if (!recorded) {
      report.missing.push_back(plane.plane.name);
    } else if (recorded->tensor) {
      auto data = dump_plane(*recorded->tensor, plane.plane, &plane);
      if (!data) return failed(plane.plane.name + ": " + data.error().text());
      got.push_back(std::move(*data));
      wanted.push_back(plane);
      report.judged.push_back(plane.plane.name);
    } else {
      if (recorded->digest != digest(plane.bytes)) digests.push_back(plane.plane.name);
      report.judged.push_back(plane.plane.name);
    }
  }
  for (const PackPlane& plane : c.planes)
    if (!known.contains(plane.name)) {
      std::vector<std::string_view> names(known.begin(), known.end());
      const string near = nearest_word(plane.name, names);
      report.notes.push_back("plane '" + plane.name + "' is none of this line" + (near.empty() ? "" : " (did you mean '" + near + "'?)"));
    }
  if (report.judged.empty()) return failed("no plane of this line is in the pack: there is nothing to judge");
  if (const auto unpinned = unpinned_of(c, problem); unpinned && (!got.empty() || !digests.empty())) {   // N16.13
    if (got.empty()) return failed("d: bits that are not pinned are judged by the bound (N16.13), which needs bytes: a digest alone was recorded, and it is not the reference's");
    Verdict v;
    v.subject = "pack";
    const bool vacuous = judge_unpinned(problem, *inputs, got, wanted, *unpinned, v);
    report.notes.push_back(unpinned_text(v));
    if (vacuous) return failed(string(kNoBound));
    if (!v.breaches.empty()) report.breach = v.breaches.front();
    return report;
  }
  if (!got.empty()) report.breach = breach_of(problem, judge(&problem, got, wanted), "pack", "reference");
  if (report.breach && !report.breach->plane.empty() && !report.breach->in_padding) report.seen = Observation{problem, "pack", std::move(*inputs), std::move(got)};
  if (!report.breach && !digests.empty()) report.breach = message_breach(join(digests) + ": the digest differs from the reference's; the bytes were not recorded");
  return report;
}

// ---- diff ------------------------------------------------------------------------------------------------------------

// A plane made from a tensor alone, where no line says what it is.
Plane plane_of(const string& name, const safetensors::Tensor& t) {
  using enum safetensors::Dtype;
  Plane p;
  p.name = name;
  const int bits = safetensors::bits(t.dtype);
  p.encoding = t.dtype == F32       ? Encoding::f32
               : t.dtype == BF16    ? Encoding::bf16
               : t.dtype == F16     ? Encoding::f16
               : t.dtype == F8_E4M3 ? Encoding::e4m3
               : t.dtype == F8_E5M2 ? Encoding::e5m2
               : bits == 16         ? Encoding::bf16
               : bits == 32         ? Encoding::f32
                                    : Encoding::e8m0;   // bytes of unknown meaning
  const int64_t count = static_cast<int64_t>(t.bytes.size()) / info(p.encoding).bytes();
  const int64_t cols = t.shape.empty() || bits < 8 || bits > 32 ? count : t.shape.back();
  p.logical = p.padded = cols > 0 ? Shape{count / cols, cols} : Shape{0, 0};
  return p;
}

// Causal order of plane names where no line gives one.
int stage(const string& name) {
  static constexpr std::string_view kStages[] = {"x", "given", "prior", "noop", "amax", "scale", "scale_inv", "scale_gemm", "data", "y"};
  const string last = name.substr(name.rfind('.') + 1);
  for (size_t i = 0; i < std::size(kStages); ++i)
    if (last == kStages[i] || name.find(string(kStages[i]) + ".") != string::npos) return static_cast<int>(i);
  return static_cast<int>(std::size(kStages));
}

CaseReport diff_case(const PackCase& a, const PackCase& b) {
  CaseReport report;
  if (a.line != b.line && !a.line.empty() && !b.line.empty()) report.notes.push_back("the lines differ: " + b.line);
  if (!a.unpinned.empty() || !b.unpinned.empty())
    report.notes.push_back("bits of d are not pinned (N16.13): a difference may be one of order alone, and assay check judges each by the bound; " + (a.unpinned.empty() ? b : a).unpinned);
  const auto parsed = parse_line(a.line.empty() ? b.line : a.line);
  std::vector<Plane> order;
  if (parsed) {
    order = input_planes(*parsed);
    const std::vector<Plane> outputs = output_planes(*parsed);
    order.insert(order.end(), outputs.begin(), outputs.end());
  }
  std::vector<string> names;
  for (const Plane& p : order) names.push_back(p.name);
  std::vector<string> others;
  for (const PackCase* c : {&a, &b})
    for (const PackPlane& p : c->planes)
      if (std::find(names.begin(), names.end(), p.name) == names.end() && std::find(others.begin(), others.end(), p.name) == others.end()) others.push_back(p.name);
  std::stable_sort(others.begin(), others.end(), [](const string& l, const string& r) { return stage(l) < stage(r); });
  names.insert(names.end(), others.begin(), others.end());

  std::vector<PlaneData> left, right;
  string first_digest;
  for (const string& name : names) {
    const PackPlane *l = a.find(name), *r = b.find(name);
    if (!l && !r) continue;
    if (!l || !r) {
      report.missing.push_back(name);
      continue;
    }
    if (l->tensor && r->tensor) {
      const auto known = std::find_if(order.begin(), order.end(), [&](const Plane& p) { return p.name == name; });
      auto read = [&](const safetensors::Tensor& t) { return dump_plane(t, known != order.end() ? *known : plane_of(name, t)); };
      auto le = read(*l->tensor), re = read(*r->tensor);
      if (!le || !re) {
        report.breach = message_breach(name + ": " + (le ? re.error().text() : le.error().text()));
        return report;
      }
      left.push_back(std::move(*le));
      right.push_back(std::move(*re));
    } else {
      auto digest_of = [](const PackPlane& p) { return p.digest.empty() && p.tensor ? digest(p.tensor->bytes) : p.digest; };
      if (digest_of(*l) != digest_of(*r) && first_digest.empty()) first_digest = name;
    }
    report.judged.push_back(name);
  }
  if (report.judged.empty()) return report;
  if (!left.empty()) {
    const Problem none;
    report.breach = breach_of(parsed ? *parsed : none, judge(parsed ? &*parsed : nullptr, left, right), "first", "second");
  }
  if (!report.breach && !first_digest.empty()) report.breach = message_breach(first_digest + ": the digests differ; the bytes were not recorded on both sides");
  return report;
}

// Prints one case and remembers the first that failed.
class Printer {
 public:
  explicit Printer(std::ostream& out, bool github = false) : out_(out) {
    if (github) github_ = make_github_report([this](const string& lines) { out_ << lines << std::flush; });
  }

  void print(const string& place, const string& recorded, const string& claim, const CaseReport& r) {
    const string where = printable(place), line = printable(recorded);
    std::optional<Breach> breach = r.breach;
    if (breach) {
      breach->plane = printable(breach->plane);          // of two packs without a line
      for (string& text : breach->after) text = printable(text);
    }
    if (github_) report_check(*github_, totals_, place, line, breach);   // which names the file, and has escapes of its own
    if (!breach) {
      ++passed_;
      out_ << fmt::format("passed   {}  {}   judged {}\n", where, line, printable(join(r.judged)));
    } else {
      ++failed_;
      out_ << fmt::format("\nFAILED  {}\n  {}\n  claim    {}\n", where, line.empty() ? "(no line)" : line, claim) << cause_text(*breach);
      if (first_.empty()) first_ = fmt::format("{}{}{}", where, breach->plane.empty() ? "" : ", plane " + breach->plane, breach->where.empty() ? "" : ", " + breach->where);
    }
    if (!r.missing.empty()) out_ << "  not judged, absent from the pack: " << printable(join(r.missing)) << "\n";
    for (const string& n : r.notes) out_ << "  note     " << printable(n) << "\n";
    if (breach) out_ << "\n";
  }

  bool failed() const { return failed_ > 0; }
  // Of the first divergence.
  void cause(const string& text, const string& next) { cause_ = text, next_ = next; }

  void skip(const string& where, const string& why) {
    ++skipped_;
    out_ << fmt::format("skipped  {}  {}\n", printable(where), printable(why));
  }

  int finish() {
    if (!first_.empty()) out_ << "first divergence: " << first_ << "\n";
    if (!cause_.empty()) out_ << "cause: " << cause_ << "\n";
    if (!next_.empty()) out_ << "explain: " << next_ << "\n";
    if (github_) github_->finish(totals_);
    out_ << fmt::format("{} passed, {} failed, {} skipped\n", passed_, failed_, skipped_);
    return failed_ ? 1 : passed_ ? 0 : 3;
  }

 private:
  std::ostream& out_;
  string first_, cause_, next_;
  size_t passed_ = 0, failed_ = 0, skipped_ = 0;
  std::unique_ptr<Report> github_;
  Totals totals_;                      // for it
};

}  // namespace

int run_check(const CheckOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto dump = read_dump(options.paths);
  if (!dump) {
    err << "error: " << printable(dump.error().text()) << "\n";
    return 2;
  }
  if (options.coherence) return run_coherence(*dump, out);
  Printer printer(out, options.github);
  for (const DumpCase& c : dump->cases) {
    const auto problem = problem_of(*c.recorded);
    CaseReport report;
    if (problem) report = check_case(*c.recorded, *problem, subjects, options.timeout);
    else report.breach = message_breach(problem.error().text());
    if (report.seen && !printer.failed()) {
      DiagnoseOptions search;
      search.budget = kCauseBudget;
      const auto found = diagnose(*report.seen, subjects.reference(), search);
      printer.cause(found ? cause_line(*found) : "", fmt::format("assay explain {} --case {}", shell_quoted(c.pack->path), shell_quoted(c.recorded->id)));
    }
    printer.print(c.where(), c.recorded->line, "pack == reference", report);
  }
  return printer.finish();
}

int run_diff(const DiffOptions& options, std::ostream& out, std::ostream& err) {
  const auto a = read_pack(options.a), b = read_pack(options.b);
  for (const auto* pack : {&a, &b})
    if (!*pack) {
      err << "error: " << printable(pack->error().text()) << "\n";
      return 2;
    }
  std::vector<std::pair<const PackCase*, const PackCase*>> pairs;
  Printer printer(out);
  std::set<const PackCase*> used;
  std::vector<const PackCase*> ordered;
  for (const PackCase& c : a->cases) ordered.push_back(&c);
  std::stable_sort(ordered.begin(), ordered.end(), [](const PackCase* l, const PackCase* r) { return dump_order(l->id, r->id); });
  for (const PackCase* c : ordered) {
    const PackCase* partner = b->find(c->id);
    if (!partner || (!c->line.empty() && partner->line != c->line))   // ids number the lines of a suite: another suite gives the same line another id
      for (const PackCase& other : b->cases)
        if (!c->line.empty() && other.line == c->line) partner = &other;
    if (!partner || !used.insert(partner).second) {
      printer.skip(a->path + ":" + c->id, "only in " + a->path);
      continue;
    }
    const CaseReport report = diff_case(*c, *partner);
    if (report.judged.empty() && !report.breach) printer.skip(a->path + ":" + c->id, "no plane is in both packs");
    else printer.print(c->id, c->line, "first == second", report);
  }
  for (const PackCase& c : b->cases)
    if (!used.contains(&c)) printer.skip(b->path + ":" + c.id, "only in " + b->path);
  return printer.finish();
}

}  // namespace assay

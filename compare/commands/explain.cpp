#include "compare/commands/explain.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/diagnosis/report/github.h"
#include "compare/diagnosis/report/html.h"
#include "compare/diagnosis/report/text.h"
#include "compare/report/doctor.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
#include "compare/text/printable.h"
#include "compare/report/report.h"
#include "compare/report/github.h"
#include "compare/debug/reproducer.h"
#include "compare/process/pool.h"
#include "compare/debug/shrink.h"
#include "compare/debug/trace.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"
#include "training/recipes/line_factory.h"

namespace assay {

namespace {

using std::string;

// What a smaller line may cost: under a second where the subject is as fast as the reference, counted in elements so that every machine, however busy, gives the same line;
// the clock is for subjects that are slower.
constexpr size_t kShrinkRuns = 400;
constexpr int64_t kShrinkElements = 8 << 20;
constexpr double kShrinkSeconds = 10, kShrinkLeast = 0.25, kShrinkTimeout = 20;

// A Subject that somebody else owns, among others.
class Borrowed final : public Subject {
 public:
  explicit Borrowed(Subject& subject) : subject_(subject) {}
  std::string_view name() const override { return subject_.name(); }
  string argument() const override { return subject_.argument(); }
  Support present() const override { return subject_.present(); }
  Support supports(const Problem& p) const override { return subject_.supports(p); }
  std::optional<string> unpinned(const Problem& p) const override { return subject_.unpinned(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out, const Environment& env) override { return subject_.run(p, in, out, env); }
  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> in, Direction d, int64_t r, int64_t c) override { return subject_.trace(p, in, d, r, c); }

 private:
  Subject& subject_;
};

// The bytes of a pack as a Subject. Its steps are those of the line that explains it, where there is one.
class Recorded final : public Subject {
 public:
  Recorded(const Observation& seen, std::vector<PlaneData> want, std::optional<Problem> explained, Subject& reference)
      : seen_(seen), want_(std::move(want)), explained_(std::move(explained)), reference_(reference) {}
  std::string_view name() const override { return "pack"; }
  Support supports(const Problem&) const override { return {}; }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> out, const Environment&) override {
    for (size_t i = 0; i < out.size(); ++i) {
      const PlaneData* got = find_plane(seen_.got, out[i].plane->name);
      const std::vector<std::byte>& bytes = got ? got->bytes : want_[i].bytes;
      std::copy(bytes.begin(), bytes.end(), out[i].bytes.begin());
    }
    return {"a recording", 0};
  }
  std::vector<TraceStep> trace(const Problem&, std::span<const ConstBuffer> in, Direction d, int64_t r, int64_t c) override {
    return explained_ ? reference_.trace(*explained_, in, d, r, c) : std::vector<TraceStep>{};
  }

 private:
  const Observation& seen_;
  std::vector<PlaneData> want_;
  std::optional<Problem> explained_;
  Subject& reference_;
};

class Explainer {
 public:
  Explainer(const ExplainOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) : options_(options), subjects_(subjects), out_(out), err_(err) {}

  int run() { return std::filesystem::exists(options_.what) || options_.what.ends_with(".safetensors") ? pack() : line(); }

 private:
  int fail(const string& message, int status) {
    clear();
    fmt::print(err_, "error: {}\n", printable(message));
    return status;
  }
  void progress(const string& text) {
    if (!options_.progress) return;
    fmt::print(err_, "\r\x1b[K{}", text);
    std::fflush(err_);
  }
  void clear() { progress(""); }

  DiagnoseOptions search_options() {
    DiagnoseOptions o;
    o.jobs = options_.jobs;
    o.pairs = options_.pairs;
    o.budget = options_.budget;
    if (options_.progress) o.on_progress = [this](const string& text) { progress(text); };
    return o;
  }

  // ---- a line ----

  int line() {
    const auto problem = training::read_line(options_.what);
    if (!problem) return fail(options_.what + " is neither a file nor a line: " + problem.error().text(), 2);
    Subject* subject = subjects_.find(options_.subject);
    if (!subject) return fail("no subject '" + options_.subject + "'", 3);
    if (const Support here = present_in_child(*subject); !here.yes) return fail("subject " + options_.subject + " is absent: " + here.why, 3);
    if (const Support s = subject->supports(*problem); !s.yes) return fail(options_.subject + " does not run this line: " + s.why, 3);
    const auto inputs = make_inputs(*problem, subjects_.reference());
    if (!inputs) return fail(inputs.error().text(), 2);

    // Determinism first: what two runs make differently has no cause in the numbers.
    progress("running " + options_.subject);
    Environment other = options_.environment;
    other.order = other.order == 17 ? 23 : 17;
    other.poison = static_cast<uint8_t>(~other.poison);
    other.threads = 2;
    IsolatedRun first = run_isolated(*subject, *problem, *inputs, options_.environment, options_.timeout);
    if (first.status == IsolatedRun::Status::unsupported) return fail(options_.subject + ": " + first.trouble(), 3);
    if (!first.sound()) {
      fail(options_.subject + " " + first.trouble(), 1);
      fmt::print(err_, "       assay shrink {} finds the smallest line that does this\n", shell_quoted(to_line(*problem)));
      return 1;
    }
    const IsolatedRun second = run_isolated(*subject, *problem, *inputs, other, options_.timeout);
    Observation seen{*problem, options_.subject, *inputs, std::move(first.execution.planes)};
    const bool repeats = second.sound() && !judge(problem->x.shape.count() ? &*problem : nullptr, second.execution.planes, seen.got).cause;
    Diagnosis d;
    if (!repeats) {
      d = differing_runs(seen, second);
    } else {
      auto found = diagnosed(seen, subject->unpinned(*problem));
      if (!found) return fail(found.error().text(), 2);
      d = std::move(*found);
    }
    d.deterministic = repeats;
    d.argument = options_.subject == "host" ? "" : subject->argument();
    d.command = "assay explain " + shell_quoted(to_line(*problem)) + (d.argument.empty() ? "" : " " + d.argument);
    if (repeats && d.confidence != Confidence::equal && !d.of_padding()) {   // of padding there is no element to trace, and no line that is smaller says more
      TraceOptions t{*problem, options_.subject, "reference", {}, {}, options_.environment, options_.timeout};
      if (auto traced = trace(t, subjects_)) d.trace = std::move(*traced);
      if (const int status = reduce(d, *problem, options_.subject, subjects_, subject->argument())) return status;
    }
    return report(d);
  }

  // The cause of what differs; differences of bits that are not pinned have none where all lie inside the bound (N16.13).
  Result<Diagnosis> diagnosed(const Observation& seen, const std::optional<string>& unpinned) {
    if (!unpinned || seen.got.empty()) return diagnose(seen, subjects_.reference(), search_options());
    const IsolatedRun want = run_isolated(subjects_.reference(), seen.problem, seen.inputs, Environment{}, options_.timeout);
    if (!want.sound()) return Error{"the reference: " + want.trouble(), 0, ""};
    Verdict v;
    v.subject = seen.subject;
    const bool vacuous = judge_unpinned(seen.problem, seen.inputs, seen.got, want.execution.planes, *unpinned, v);
    const string text = unpinned_text(v) + (vacuous ? fmt::format(": {}", kNoBound) : "");
    if (v.breaches.empty() && !vacuous) {
      Diagnosis d;
      d.line = to_line(seen.problem);
      d.subject = seen.subject;
      d.unpinned = text;
      d.elements = seen.got.front().plane.logical.count();
      return d;
    }
    auto found = diagnose(seen, subjects_.reference(), search_options());
    if (found) found->unpinned = text;
    return found;
  }

  // Two runs of the subject against each other.
  Diagnosis differing_runs(const Observation& seen, const IsolatedRun& second) {
    Diagnosis d;
    d.line = to_line(seen.problem);
    d.subject = seen.subject;
    d.confidence = Confidence::random;
    if (!second.sound()) return d;
    for (size_t i = 0; i < seen.got.size(); ++i) {
      const PlaneData &a = seen.got[i], &b = second.execution.planes[i];
      PlaneSummary s{a.plane.name, string(info(a.plane.encoding).name), 0, a.plane.logical.count(), {}, {}, {}};
      for (int64_t k = 0; k < a.plane.padded.count(); ++k)
        if (!a.plane.members.empty() || !place_of(a.plane, k).padding) s.differ += code_at(a.plane, a.bytes, k) != code_at(a.plane, b.bytes, k);
      d.elements += s.of;
      d.planes.push_back(std::move(s));
    }
    return d;
  }

  // ---- a pack ----

  int pack() {
    const auto dump = read_dump({options_.what});
    if (!dump) return fail(dump.error().text(), 2);
    std::optional<Diagnosis> chosen;                                        // the first that differs, or the last that holds an element
    std::vector<string> missed;                                             // cases that cannot be compared, and why
    for (const DumpCase& c : dump->cases) {
      if (!options_.case_id.empty() && c.recorded->id != options_.case_id) continue;
      auto seen = observed(c);
      auto found = seen ? diagnosed(*seen, unpinned_of(*c.recorded, seen->problem)) : Result<Diagnosis>(seen.error());
      if (!found) {
        missed.push_back(c.where() + ": " + found.error().text());
        continue;
      }
      found->command = fmt::format("assay explain {} --case {}", shell_quoted(c.pack->path), shell_quoted(c.recorded->id));
      const bool differs = found->confidence != Confidence::equal;
      if (!chosen || differs || found->elements > 0) chosen = std::move(*found);
      if (!differs) continue;
      if (!chosen->of_padding())
        if (const int status = look_closer(*chosen, *seen, c)) return status;
      break;
    }
    if (!chosen && missed.empty()) {
      string ids;
      for (size_t i = 0; i < std::min<size_t>(dump->cases.size(), 8); ++i) ids += (ids.empty() ? "" : ", ") + dump->cases[i].recorded->id;
      return fail(options_.case_id.empty() ? options_.what + " holds no case" : fmt::format("{} holds no case '{}' (it has {})", options_.what, options_.case_id, ids), 2);
    }
    if (!chosen) return fail(missed.front() + (missed.size() > 1 ? fmt::format(" (nor can {} more cases be compared)", missed.size() - 1) : ""), 2);
    clear();
    for (const string& m : missed) fmt::print(err_, "note: not compared: {}\n", printable(m));
    return report(*chosen);
  }

  Result<Observation> observed(const DumpCase& c) {
    const auto problem = problem_of(*c.recorded);
    if (!problem) return problem.error();
    auto inputs = dump_inputs(*c.recorded, *problem, subjects_.reference());
    if (!inputs) return inputs.error();
    Observation seen{*problem, "pack " + c.where(), std::move(*inputs), {}};
    for (const Plane& plane : output_planes(*problem))
      if (const PackPlane* recorded = c.recorded->find(plane.name); recorded && recorded->tensor) {
        auto data = dump_plane(*recorded->tensor, plane);
        if (!data) return Error{plane.name + ": " + data.error().text(), 0, ""};
        seen.got.push_back(std::move(*data));
      }
    return seen;
  }

  // The trace and the reproducer of a recorded case: its bytes stand for the subject, and where they are explained, the explanation does.
  int look_closer(Diagnosis& d, const Observation& seen, const DumpCase& c) {
    Problem drawn = seen.problem;
    if (const PackPlane* x = c.recorded->find("x"); x && x->tensor && !drawn.as<Split>()) {
      if (const auto fill = fill_of(*c.pack, c.recorded->id + "/x")) drawn.x.fill = *fill;
      else return 0;
    }
    Subjects subjects;
    subjects.owned.push_back(std::make_unique<Borrowed>(subjects_.reference()));
    std::optional<Problem> explained;
    const bool exact = !d.explanations.empty() && d.explanations.front().exact();
    if (exact && !d.explanations.front().line.empty())
      if (auto p = parse_line(d.explanations.front().line)) explained = std::move(*p);
    const IsolatedRun want = run_isolated(subjects_.reference(), seen.problem, seen.inputs, Environment{}, options_.timeout);
    if (!want.sound()) return 0;
    subjects.owned.push_back(std::make_unique<Recorded>(seen, want.execution.planes, explained, subjects_.reference()));
    TraceOptions t{drawn, "pack", "reference", {}, {}, Environment{}, options_.timeout};
    if (auto traced = trace(t, subjects)) d.trace = std::move(*traced);
    if (!exact) return 0;
    subjects.owned.push_back(make_explained_subject(d.explanations.front(), "explained", subjects_.reference()));
    return reduce(d, drawn, "explained", subjects, "");
  }

  // The tensor of a pack as a fill.
  static std::optional<Fill> fill_of(const Pack& pack, const string& tensor) {
    for (size_t n = 0; n < pack.files.size(); ++n)
      if (pack.files[n].find(tensor)) {
        const std::filesystem::path first = pack.path;                       // then <stem>.1.safetensors, ...
        const string path = n == 0 ? pack.path : (first.parent_path() / fmt::format("{}.{}.safetensors", first.stem().string(), n)).string();
        const auto bytes = MappedFile::open(path);
        if (!bytes) return {};
        Fill f;
        f.kind = FillKind::pack;
        f.payload = path + "#" + tensor + "@" + sha256(bytes->bytes());
        return f;
      }
    return {};
  }

  // ---- the end ----

  int reduce(Diagnosis& d, const Problem& problem, const string& subject, const Subjects& subjects, const string& argument) {
    if (problem.as<Split>() && problem.x.fill.kind == FillKind::pack) return 0;
    ShrinkOptions o;
    o.problem = problem;
    o.subject = subject;
    o.environment = options_.environment;
    o.timeout = std::min(options_.timeout, kShrinkTimeout);
    o.max_runs = kShrinkRuns;
    o.max_elements = kShrinkElements;
    o.max_seconds = std::clamp(options_.budget - elapsed(), kShrinkLeast, kShrinkSeconds);
    o.known = true;
    const std::function<void(const string&)> tell = [this](const string& text) { progress("shrinking, " + text); };
    const auto shrunk = shrink(o, subjects, tell);
    if (!shrunk) return 0;                                                 // the case itself is the smallest that is known
    d.reproducer = to_line(shrunk->bad);
    d.reproducer_limited = shrunk->exhausted;
    d.evaluations += static_cast<int>(shrunk->runs);
    if (options_.reproducer.empty()) return 0;
    const auto inputs = make_inputs(shrunk->bad, subjects.reference());
    if (!inputs) return fail(inputs.error().text(), 2);
    const IsolatedRun got = run_isolated(*subjects.find(subject), shrunk->bad, *inputs, options_.environment, options_.timeout);
    const IsolatedRun want = run_isolated(subjects.reference(), shrunk->bad, *inputs, Environment{}, options_.timeout);
    if (const auto error = write_reproducer(options_.reproducer, shrunk->bad, argument, *inputs, got.execution.planes, want.execution.planes)) return fail(error->text(), 2);
    for (const char* name : {"reproduce.cpp", "case.safetensors", "README"}) d.reproducer_files.push_back((std::filesystem::path(options_.reproducer) / name).string());
    return 0;
  }

  int report(Diagnosis& d) {
    clear();
    d.seconds = elapsed();
    fmt::print(out_, "{}", diagnosis_screen(d, options_.colour));
    if (!options_.json.empty())
      if (const auto error = write_file(options_.json, json::dump(to_json(d), 1) + "\n")) return fail(error->text(), 2);
    if (!options_.html.empty())
      if (const auto error = write_diagnosis_page(d, options_.html, doctor_facts_in_child(subjects_))) return fail(error->text(), 2);
    if (options_.github) annotate_diagnosis(d, out_);
    std::fflush(out_);
    return d.confidence == Confidence::equal ? 0 : 1;
  }

  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const ExplainOptions& options_;
  const Subjects& subjects_;
  std::FILE *out_, *err_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

int run_explain(const ExplainOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) { return Explainer(options, subjects, out, err).run(); }

}  // namespace assay

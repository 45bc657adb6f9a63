#include "compare/commands/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "compare/commands/bench_results.h"
#include "compare/commands/count.h"
#include "compare/commands/options.h"
#include "compare/judge/cases.h"
#include "compare/judge/claims.h"
#include "compare/process/answer.h"
#include "compare/process/interrupt.h"
#include "compare/process/memory.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "compare/report/doctor.h"
#include "compare/subjects/plugin.h"
#include "compare/text/terminal.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using std::string;
constexpr std::string_view kHostExecutor = "host executor: no performance figure";

// ---- timing, in a child process
// --------------------------------------------------------------------------------------

// Collects the seconds per iteration of each repetition; prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& r : runs)
      if (r.run_type == Run::RT_Iteration && r.iterations > 0)
        seconds.push_back(r.real_accumulated_time / static_cast<double>(r.iterations));
  }
  std::vector<double> seconds;
};

// Seconds of one call, one for each repetition.
std::vector<double> host_times(const std::function<void()>& work, const BenchOptions& options) {
  benchmark::RegisterBenchmark("work",
                               [&](benchmark::State& state) {
                                 for (auto _ : state) {
                                   work();
                                   benchmark::ClobberMemory();
                                 }
                               })
      ->Repetitions(options.repetitions)
      ->MinTime(options.min_time)
      ->UseRealTime()
      ->ReportAggregatesOnly(false);
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();
  return collector.seconds;
}

struct Samples {
  string temperature;                 // "warm", "cold"
  std::vector<double> seconds, copy;  // per run; of a copy of as many bytes
};

// Buffers of one run, aligned as a device's allocator would.
struct Buffers {
  std::vector<Plane> planes;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory;
  std::vector<Buffer> views;

  explicit Buffers(const Problem& p) : planes(output_planes(p)) {
    for (const Plane& plane : planes) {
      const size_t bytes = std::max<size_t>(plane.bytes(), 1);
      memory.emplace_back(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)),
                          &std::free);
      views.push_back({&plane, {memory.back().get(), plane.bytes()}});
    }
  }
};

size_t bytes_moved(const Problem& p) {
  size_t n = 0;
  for (const Plane& plane : input_planes(p)) n += plane.bytes();
  for (const Plane& plane : output_planes(p)) n += plane.bytes();
  return n;
}

// A quantize to identity that reads and writes `bytes` in all.
Problem device_copy(size_t bytes) {
  Problem p;
  p.x.source = Encoding::f32;
  p.x.shape = {1, std::max<int64_t>(1, static_cast<int64_t>(bytes / 8))};
  p.x.fill.kind = FillKind::zeros;
  p.row.emplace();
  p.row->element = Encoding::f32;
  p.op = Quantize{};
  return p;
}

std::vector<double> seconds_of(const std::vector<std::chrono::nanoseconds>& times) {
  std::vector<double> out;
  for (const std::chrono::nanoseconds t : times) out.push_back(std::chrono::duration<double>(t).count());
  return out;
}

// A copy of `bytes` read and written in all.
std::vector<double> host_copy(size_t bytes, const BenchOptions& options) {
  const size_t half = std::max<size_t>(bytes / 2, 1);
  std::vector<char> from(half, 1), to(half, 2);
  return host_times([&] { std::memcpy(to.data(), from.data(), half); }, options);
}

// The same where `subject` works; empty where nothing there copies. A plugin need not run identity: the GPU's
// own kernels copy for it.
std::vector<double> copy_beside(Subject& subject, const Subjects& subjects, size_t bytes, bool cold,
                                const BenchOptions& options) {
  Subject* copier = &subject;
  if (subject.name().starts_with("plugin:")) {
    if (!takes_device_pointers(subject)) return host_copy(bytes, options);
    copier = subjects.find("gpu");
    if (!copier || !copier->present().yes) return {};
  }
  const Problem copy = device_copy(bytes);
  const auto x = make_inputs(copy, subjects.reference());
  return x ? seconds_of(copier->time(copy, views(*x), options.repetitions, cold)) : std::vector<double>{};
}

std::vector<Samples> time_here(Subject& subject, const Problem& p, const Subjects& subjects,
                               const BenchOptions& options) {
  const auto inputs = make_inputs(p, subjects.reference());
  if (!inputs) throw std::runtime_error(inputs.error().text());
  const std::vector<ConstBuffer> in = views(*inputs);
  std::vector<Samples> out;
  for (const bool cold : {false, true}) {
    Samples s{cold ? "cold" : "warm", seconds_of(subject.time(p, in, options.repetitions, cold)), {}};
    if (s.seconds.empty()) break;
    s.copy = copy_beside(subject, subjects, bytes_moved(p), cold, options);
    out.push_back(std::move(s));
  }
  if (!out.empty()) return out;
  const Buffers buffers(p);
  out.push_back({"warm", host_times([&] { subject.run(p, in, buffers.views, options.environment); }, options),
                 host_copy(bytes_moved(p), options)});
  return out;
}

// ---- one case on one subject
// -----------------------------------------------------------------------------------------

// Why a case is not timed on a subject; nothing where it is passed.
struct NotTimed {
  bool skipped = false;  // the subject does not run it; otherwise it failed, or it was interrupted
  string text;
};

std::optional<NotTimed> not_timed(const Verdict& v) {
  if (v.outcome == Outcome::passed) return std::nullopt;
  if (v.outcome == Outcome::unsupported || v.outcome == Outcome::skipped)
    return NotTimed{true, fmt::format("{}: {}", name_of(v.outcome), v.reason)};
  const string why = v.breaches.empty() ? v.reason : "claim " + v.breaches.front().claim;
  return NotTimed{false, fmt::format("not timed: {} ({})", name_of(v.outcome), why)};
}

json::Value numbers(const std::vector<double>& values) {
  json::Value out = json::array();
  for (const double v : values) out.push(v);
  return out;
}

// The samples of a case, taken in a child process and sent as JSON.
Result<std::vector<Samples>> time_in_child(Subject& subject, const Problem& problem, const Subjects& subjects,
                                           const BenchOptions& options,
                                           const std::function<void()>& waiting) {
  const auto text = in_child(
      [&] {
        json::Value list = json::array();
        for (const Samples& s : time_here(subject, problem, subjects, options))
          list.push(json::object(
              {{"temperature", s.temperature}, {"seconds", numbers(s.seconds)}, {"copy", numbers(s.copy)}}));
        return json::dump(list);
      },
      options.timeout, waiting);
  const auto list = text ? json::parse(*text) : Result<json::Value>(text.error());
  if (!list) return list.error();
  if (!list->array()) return Error{"no samples", 0, ""};
  std::vector<Samples> out;
  for (const json::Value& one : *list->array()) {
    Answer said(one);
    out.push_back({said.text("temperature"), said.numbers("seconds"), said.numbers("copy")});
    if (!said.whole() || out.back().seconds.empty())
      return Error{"the child's samples cannot be read", 0, ""};
  }
  return out;
}

BenchRow row_of(const Problem& problem, const string& line, const string& name, const Samples& s) {
  BenchRow row;
  row.line = line;
  row.subject = name;
  row.temperature = s.temperature;
  if (name == "host") row.note = kHostExecutor;
  row.median = median(s.seconds);
  row.least = *std::min_element(s.seconds.begin(), s.seconds.end());
  row.most = *std::max_element(s.seconds.begin(), s.seconds.end());
  row.copy = median(s.copy);
  row.samples = static_cast<int>(s.seconds.size());
  row.bytes = bytes_moved(problem);
  row.elements = problem.x.shape.count();
  return row;
}

// ---- all of them
// -----------------------------------------------------------------------------------------------------

class BenchRun {
 public:
  BenchRun(const BenchOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err)
      : options_(options), subjects_(subjects), out_(out), err_(err), progress_(err, options.progress) {}

  int run() {
    if (!begin()) return 2;
    const InterruptScope scope;
    std::span<const SuiteEntry> left = options_.entries;
    for (const size_t group = judged_at_once(); !left.empty() && !interrupted() && !cut_short_;
         left = left.subspan(std::min(group, left.size()))) {
      const auto entries = left.first(std::min(group, left.size()));
      judge(entries);
      if (!time(entries)) return 2;
    }
    return finish();
  }

 private:
  bool fail(const string& message) {
    err_ << "assay: " << message << "\n";
    return false;
  }

  // Shows what runs from now on, and for how long it has.
  std::function<void()> shower(const string& what, const string& line) {
    return [this, what, line, start = std::chrono::steady_clock::now()] {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      constexpr double kLong = 2;
      if (seconds >= kLong) progress_.show(fmt::format("{}, {:.0f} s: {}", what, seconds, line));
    };
  }

  bool begin() {
    if (!options_.against.empty()) {
      auto read = read_earlier(options_.against);
      if (!read) return fail(read.error().text());
      earlier_ = std::move(*read);
    }
    facts_ = doctor_facts_in_child(subjects_);
    if (facts_.is_null())
      return fail("the subjects could not be asked who they are: the process that did ended early");
    for (const string& name : options_.subjects)
      if (!subjects_.find(name)) return fail("no subject '" + name + "'");
    out_ << facts_.text("fingerprint") << "\n";
    return true;
  }

  // As many as the machine has cores, and memory for the largest of them.
  size_t judged_at_once() const {
    const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    const std::optional<int64_t> free = bytes_available();
    if (!free) return static_cast<size_t>(cores);
    int64_t greatest = 1;
    for (const SuiteEntry& entry : options_.entries)
      greatest = std::max(greatest, bytes_as_a_whole(entry.problem));
    return static_cast<size_t>(std::clamp<int64_t>(*free / greatest, 1, cores));
  }
  // Cases of one group, before any of them is timed: what is timed has the machine for itself. A run that is
  // interrupted has the times of the groups before.
  void judge(std::span<const SuiteEntry> entries) {
    for (const string& name : options_.subjects) {
      if (subjects_.find(name)->interprets()) continue;
      RunSettings settings;
      settings.subjects = {name};
      settings.claims.environment = options_.environment;
      settings.jobs = static_cast<int>(entries.size());
      settings.timeout = options_.timeout;
      settings.on_wait = shower(
          "judging " + name,
          fmt::format("lines {} to {} of {}", done_ + 1, done_ + entries.size(), options_.entries.size()));
      run_cases(entries, subjects_, settings, [&](const CaseResult& r) {
        verdicts_[{to_line(entries[r.index].problem), name}] = not_timed(r.verdicts.front());
      });
      progress_.wipe();
    }
  }
  // False where a row cannot be compared with the earlier one.
  bool time(std::span<const SuiteEntry> entries) {
    for (const SuiteEntry& entry : entries) {
      if (interrupted()) break;
      const string line = to_line(entry.problem);
      out_ << line << "\n";
      for (const string& name : options_.subjects) {
        if (interrupted()) cut_short_ = true;
        if (!cut_short_ && !time_case(entry.problem, line, name)) return false;
      }
      if (cut_short_) break;
      ++done_;
    }
    return true;
  }

  // False where a row cannot be compared with the earlier one. What an interrupt ends is neither timed nor
  // failed.
  bool time_case(const Problem& problem, const string& line, const string& name) {
    Subject& subject = *subjects_.find(name);
    if (subject.interprets()) {
      ++skipped_;
      out_ << fmt::format(
          "  {:<10} not timed: it carries out the kernel's instructions on a CPU, and the time that "
          "takes says nothing of the kernel; what it does is counted by {}\n",
          name, count_command(line, subject));
      return true;
    }
    const auto verdict = verdicts_.find({line, name});
    if (verdict == verdicts_.end()) return cut_short_ = true;  // an interrupt came first
    if (const auto& why = verdict->second) {
      ++(why->skipped ? skipped_ : refused_);
      out_ << fmt::format("  {:<10} {}\n", name, why->text);
      return true;
    }
    const auto samples = time_in_child(subject, problem, subjects_, options_, shower("timing " + name, line));
    progress_.wipe();
    if (!samples && interrupted()) return cut_short_ = true;
    if (!samples) {
      ++refused_;
      out_ << fmt::format("  {:<10} not timed: {}\n", name, samples.error().text());
      return true;
    }
    for (const Samples& one : *samples) {
      const BenchRow row = row_of(problem, line, name, one);
      ++timed_;
      rows_.push(to_json(row));
      out_ << row_text(row);
      if (!compare_row(row, subject)) return false;
    }
    return true;
  }

  // Ends the line of a row with how much slower it is than the earlier one. False where another machine made
  // that one.
  bool compare_row(const BenchRow& row, const Subject& subject) {
    const auto before = earlier_.find(row.key());
    if (before == earlier_.end() || !row.note.empty()) {
      out_ << "\n";
      return true;
    }
    if (const string here = machine_of(facts_, subject); before->second.machine != here) {
      out_ << "\n";
      return fail(fmt::format("{} holds times of {} from '{}', this is '{}'", options_.against, row.subject,
                              before->second.machine, here));
    }
    ++compared_;
    const double was = before->second.median;
    const bool regressed =
        row.median > was * (1 + options_.noise) && row.median > was + kNoiseSeconds && row.least > was;
    slower_ += regressed;
    const string noise = regressed ? fmt::format(" (noise {:.0f} %)", options_.noise * 100) : "";
    out_ << fmt::format("  {} {}: {:+.1f} %{}\n", regressed ? "SLOWER than" : "was", seconds_text(was),
                        (row.median / was - 1) * 100, noise);
    return true;
  }

  int finish() {
    if (!options_.output.empty()) {
      json::Value machines = json::object();
      for (const string& name : options_.subjects)
        machines.set(name, machine_of(facts_, *subjects_.find(name)));
      const json::Value file = results_file(facts_, std::move(machines), std::move(rows_));
      if (const auto error = write_file(options_.output, json::dump(file, 1) + "\n"))
        return fail(error->text()), 2;
    }
    if (!options_.against.empty())
      out_ << fmt::format("{} compared with {}, {} slower\n", compared_, options_.against, slower_);
    const bool cut_short = done_ < options_.entries.size();
    if (cut_short)
      out_ << fmt::format("interrupted: {} of {} lines were judged and timed\n", done_,
                          options_.entries.size());
    out_ << fmt::format("{} timed, {} failed, {} skipped\n", timed_, refused_, skipped_);
    if (refused_ || slower_) return 1;
    if (cut_short) return kInterrupted;
    return timed_ ? 0 : 3;
  }

  const BenchOptions& options_;
  const Subjects& subjects_;
  std::ostream &out_, &err_;
  ProgressLine progress_;
  json::Value facts_, rows_ = json::array();
  std::map<string, EarlierRow> earlier_;
  std::map<std::pair<string, string>, std::optional<NotTimed>> verdicts_;  // by line and subject
  bool cut_short_ = false;                                                 // an interrupt ended a line
  size_t done_ = 0, timed_ = 0, refused_ = 0, skipped_ = 0, slower_ = 0, compared_ = 0;
};

}  // namespace

int run_bench(const BenchOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  if (const auto error = options.output.empty() ? std::nullopt : cannot_write(options.output, "--output"))
    return err << "assay: " << error->text() << "\n", 2;
  return BenchRun(options, subjects, out, err).run();
}

void register_bench(Program& program) {
  const auto bench = std::make_shared<BenchOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "bench", "judge each case, then time it; a case without a verdict gets no time");
  c.footer(
      "Examples:\n"
      "  assay bench 'quantize mxfp8 {1024,4096}x4096 bf16'\n"
      "  assay bench smoke --output results.json\n"
      "  assay bench smoke --against results.json\n"
      "  assay bench 'quantize mxfp8 4096x4096 bf16 dir=row' --plugin ./libmine.so\n"
      "Exit status: 0 every case was timed; 1 a case failed, or is slower than --against; 2 bad input; 3 "
      "nothing was timed; 130 it was interrupted before anything failed.");
  add_what(c, common);
  add_subjects(c, common, "reference,host");
  add_environment(c, common);
  c.option("--timeout", bench->timeout, "time limit of a case on one subject, in seconds")
      .seconds()
      .show_default();
  c.option("--repetitions", bench->repetitions, "samples").range(1, 1000).show_default();
  c.option("--min-time", bench->min_time, "minimum duration of a sample, in seconds")
      .positive()
      .show_default();
  c.option("--output,-o", bench->output, "write the results as JSON");
  c.option("--against", bench->against, "results of an earlier run; fail if a case is slower");
  c.option("--noise", bench->noise, "relative slowdown that counts as slower").positive().show_default();
  c.callback([&program, bench] {
    program.common.timeout = bench->timeout;  // a subject that another process serves waits no longer for it
    const Subjects subjects = program.make_subjects(program.common);
    bench->subjects = chosen_subjects(program.common, subjects, "reference,host");
    bench->environment = environment_of(program.common);
    bench->progress = program.progress;
    bench->entries = entries_of(program.common);
    refuse_too_large(bench->entries);
    program.status = run_bench(*bench, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay

#include "compare/commands/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "compare/judge/claims.h"
#include "compare/report/doctor.h"
#include "compare/process/run_in_child.h"
#include "compare/subjects/plugin.h"
#include "compare/judge/cases.h"
#include "compare/process/pool.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using std::string;
constexpr std::string_view kSchema = "assay.bench/1";
constexpr std::string_view kHostExecutor = "host executor: no performance figure";

// ---- timing, in a child process --------------------------------------------------------------------------------------

// Collects the seconds per iteration of each repetition; prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& r : runs)
      if (r.run_type == Run::RT_Iteration && r.iterations > 0) seconds.push_back(r.real_accumulated_time / static_cast<double>(r.iterations));
  }
  std::vector<double> seconds;
};

// Seconds of one call, one for each repetition.
std::vector<double> host_times(const std::function<void()>& work, const BenchOptions& options) {
  benchmark::RegisterBenchmark("work", [&](benchmark::State& state) {
    for (auto _ : state) {
      work();
      benchmark::ClobberMemory();
    }
  })->Repetitions(options.repetitions)->MinTime(options.min_time)->UseRealTime()->ReportAggregatesOnly(false);
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
      memory.emplace_back(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)), &std::free);
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

// The same where `subject` works; empty where nothing there copies. A plugin need not run identity: the GPU's own kernels copy for it.
std::vector<double> copy_beside(Subject& subject, const Subjects& subjects, size_t bytes, bool cold, const BenchOptions& options) {
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

std::vector<Samples> time_here(Subject& subject, const Problem& p, const Subjects& subjects, const BenchOptions& options) {
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
  out.push_back({"warm", host_times([&] { subject.run(p, in, buffers.views, options.environment); }, options), host_copy(bytes_moved(p), options)});
  return out;
}

// ---- results ---------------------------------------------------------------------------------------------------------

struct Row {
  string line, subject, temperature, note;
  double median = 0, least = 0, most = 0, copy = 0;   // seconds; no copy: 0
  int samples = 0;
  size_t bytes = 0;
  int64_t elements = 0;
};

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

json::Value to_json(const Row& r) {
  json::Value out = json::object({{"line", r.line}, {"subject", r.subject}, {"temperature", r.temperature}, {"note", r.note}, {"samples", r.samples},
                       {"seconds", json::object({{"median", r.median}, {"min", r.least}, {"max", r.most}})},
                       {"bytes", r.bytes}, {"elements", r.elements},
                       {"bytes_per_second", static_cast<double>(r.bytes) / r.median}, {"elements_per_second", static_cast<double>(r.elements) / r.median}});
  if (r.copy > 0) {
    out.set("copy_seconds", r.copy);
    out.set("ratio_to_copy", r.median / r.copy);
  }
  return out;
}

string seconds_text(double s) {
  return s < 1e-3 ? fmt::format("{:.2f} us", s * 1e6) : s < 1 ? fmt::format("{:.3f} ms", s * 1e3) : fmt::format("{:.3f} s", s);
}

// What timings of a subject depend on: the GPU for gpu and plugins of device pointers, the processor for everything else.
string machine_of(const json::Value& facts, const Subject& subject) {
  if (subject.name() == "gpu" || takes_device_pointers(subject))
    for (const json::Value& s : *facts.find("subjects")->array())
      if (s.text("name") == "gpu") return string(s.text("detail"));
  return fmt::format("{}, {} cores", facts.text("cpu"), facts.find("cores")->to_int().value_or(0));
}

struct Earlier {
  double median = 0;
  string machine;
};

// The rows of an earlier result file by "subject temperature line".
Result<std::vector<std::pair<string, Earlier>>> read_earlier(const string& path) {
  const auto file = json::read(path);
  if (!file) return file.error();
  if (file->text("schema") != kSchema) return Error{fmt::format("{}: expected schema \"{}\", found \"{}\"", path, kSchema, file->text("schema")), 0, ""};
  const json::Value *rows = file->find("results"), *machines = file->find("machines");
  if (!rows || !rows->array() || !machines || !machines->object()) return Error{path + ": expected 'results' and 'machines'", 0, ""};
  std::vector<std::pair<string, Earlier>> out;
  for (const json::Value& r : *rows->array()) {
    const json::Value* seconds = r.find("seconds");
    const auto m = seconds && seconds->find("median") ? seconds->find("median")->to_double() : std::nullopt;
    if (!m || !(*m > 0)) return Error{path + ": a result without a median time: " + json::dump(r), 0, ""};
    out.emplace_back(fmt::format("{} {} {}", r.text("subject"), r.text("temperature"), r.text("line")), Earlier{*m, string(machines->text(r.text("subject")))});
  }
  return out;
}

}  // namespace

int run_bench(const BenchOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  std::vector<std::pair<string, Earlier>> earlier;
  if (!options.against.empty()) {
    auto read = read_earlier(options.against);
    if (!read) {
      err << "error: " << read.error().text() << "\n";
      return 2;
    }
    earlier = std::move(*read);
  }
  std::vector<Subject*> all;
  for (const auto& s : subjects.owned) all.push_back(s.get());
  const json::Value facts = doctor_facts(all);
  for (const string& name : options.subjects)
    if (!subjects.find(name)) {
      err << "error: no subject '" << name << "'\n";
      return 2;
    }
  out << facts.text("fingerprint") << "\n";

  size_t timed = 0, refused = 0, skipped = 0, slower = 0, compared = 0;
  json::Value results = json::array();
  for (const SuiteEntry& entry : options.entries) {
    const string line = to_line(entry.problem);
    out << line << "\n";
    for (const string& name : options.subjects) {
      Subject& subject = *subjects.find(name);
      RunSettings settings;
      settings.subjects = {name};
      settings.claims.environment = options.environment;
      settings.jobs = 1;
      settings.timeout = options.timeout;
      const std::vector<Verdict> verdicts = run_one(entry.problem, subjects, settings);
      const Outcome outcome = verdicts.empty() ? Outcome::crashed : verdicts.front().outcome;
      if (outcome == Outcome::unsupported || outcome == Outcome::skipped) {
        ++skipped;
        out << fmt::format("  {:<10} {}: {}\n", name, name_of(outcome), verdicts.front().reason);
        continue;
      }
      if (outcome != Outcome::passed) {
        ++refused;
        const string why = verdicts.empty() ? "no verdict" : !verdicts.front().breaches.empty() ? "claim " + verdicts.front().breaches.front().claim : verdicts.front().reason;
        out << fmt::format("  {:<10} not timed: {} ({})\n", name, name_of(outcome), why);
        continue;
      }
      const auto text = in_child(
          [&] {
            json::Value list = json::array();
            for (const Samples& s : time_here(subject, entry.problem, subjects, options)) {
              json::Value seconds = json::array(), copy = json::array();
              for (double v : s.seconds) seconds.push(v);
              for (double v : s.copy) copy.push(v);
              list.push(json::object({{"temperature", s.temperature}, {"seconds", std::move(seconds)}, {"copy", std::move(copy)}}));
            }
            return json::dump(list);
          },
          options.timeout);
      const auto list = text ? json::parse(*text) : Result<json::Value>(text.error());
      if (!list || !list->array()) {
        ++refused;
        out << fmt::format("  {:<10} not timed: {}\n", name, list ? "no samples" : list.error().text());
        continue;
      }
      for (const json::Value& one : *list->array()) {
        auto numbers = [&](const char* key) {
          std::vector<double> v;
          for (const json::Value& n : *one.find(key)->array()) v.push_back(n.to_double().value_or(0));
          return v;
        };
        const std::vector<double> seconds = numbers("seconds");
        Row row{line, name, string(one.text("temperature")), name == "host" ? string(kHostExecutor) : "", median(seconds), *std::min_element(seconds.begin(), seconds.end()),
                *std::max_element(seconds.begin(), seconds.end()), median(numbers("copy")), static_cast<int>(seconds.size()), bytes_moved(entry.problem), entry.problem.x.shape.count()};
        ++timed;
        results.push(to_json(row));
        out << fmt::format("  {:<10} {}  median {:<10} min {:<10} {} samples  {:8.2f} Melem/s  {:8.3f} GB/s", name, row.temperature, seconds_text(row.median), seconds_text(row.least),
                           row.samples, static_cast<double>(row.elements) / row.median / 1e6, static_cast<double>(row.bytes) / row.median / 1e9);
        if (row.copy > 0) out << fmt::format("  {:7.2f} x copy", row.median / row.copy);
        if (!row.note.empty()) out << "  " << row.note;
        const string key = fmt::format("{} {} {}", name, row.temperature, line);
        const auto before = std::find_if(earlier.begin(), earlier.end(), [&](const auto& e) { return e.first == key; });
        if (before != earlier.end() && row.note.empty()) {
          if (before->second.machine != machine_of(facts, *subjects.find(name))) {
            out << "\n";
            err << fmt::format("error: {} holds times of {} from '{}', this is '{}'\n", options.against, name, before->second.machine, machine_of(facts, *subjects.find(name)));
            return 2;
          }
          ++compared;
          const double was = before->second.median;
          const bool regressed = row.median > was * (1 + options.noise) && row.median > was + kNoiseSeconds && row.least > was;
          slower += regressed;
          out << fmt::format("  {} {}: {:+.1f} %{}", regressed ? "SLOWER than" : "was", seconds_text(was), (row.median / was - 1) * 100, regressed ? fmt::format(" (noise {:.0f} %)", options.noise * 100) : "");
        }
        out << "\n";
      }
    }
  }
  if (!options.output.empty()) {
    json::Value machines = json::object();
    for (const string& name : options.subjects) machines.set(name, machine_of(facts, *subjects.find(name)));
    json::Value file = json::object({{"schema", kSchema}, {"fingerprint", facts.text("fingerprint")}, {"machines", std::move(machines)}, {"doctor", facts}, {"results", std::move(results)}});
    if (const auto error = write_file(options.output, json::dump(file, 1) + "\n")) {
      err << "error: " << error->text() << "\n";
      return 2;
    }
  }
  if (!options.against.empty()) out << fmt::format("{} compared with {}, {} slower\n", compared, options.against, slower);
  out << fmt::format("{} timed, {} failed, {} skipped\n", timed, refused, skipped);
  if (refused || slower) return 1;
  return timed ? 0 : 3;
}

}  // namespace assay

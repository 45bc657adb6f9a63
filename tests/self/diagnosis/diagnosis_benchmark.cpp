// diagnosis_benchmark: how well faults are named. Runs every case of cases.inc through `diagnose` and prints
// a row for each, then the statistics.
//
//   diagnosis_benchmark [--only <text>] [--kind single|double|outside|later|later_double] [--misses] [--json
//   <path>] [--jobs n] diagnosis_benchmark --large      time and peak memory of single faults on 1024x1024,
//   each in a process of
//                                    its own
//   diagnosis_benchmark --shrink     what `assay shrink` leaves of single faults
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "compare/debug/shrink.h"
#include "compare/diagnosis/search/diagnose.h"
#include "contract/format.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/self/diagnosis/benchmark.h"

namespace {

using namespace assay;

struct Options {
  std::string only, kind, json;
  bool misses = false, large = false, shrink = false;
  int jobs = 1;
};

constexpr std::string_view kKinds[] = {"single", "double", "outside", "later", "later_double"};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Case> chosen(const Options& o) {
  std::vector<Case> out;
  for (CaseKind k : {CaseKind::single, CaseKind::doubled, CaseKind::outside, CaseKind::later_single,
                     CaseKind::later_doubled}) {
    if (!o.kind.empty() && o.kind != kKinds[static_cast<size_t>(k)]) continue;
    for (const Case& c : cases(k))
      if (o.only.empty() || (std::string(c.switches) + " " + text_of(c)).find(o.only) != std::string::npos)
        out.push_back(c);
  }
  return out;
}

// "nvfp4 rht", "fp8_block 128x128": the rows of the statistics.
std::string group_of(const Named& r) {
  const std::string line = text_of(r.asked);
  const auto p = parse_line(line);
  const Quantizer& q = p->row ? *p->row : *p->col;
  std::string g(info(q.format).name);
  if (p->col && p->col->rht) g += " rht";
  if (draws(*p)) g += " sr";
  if (q.block == Block::b16x16 || q.block == Block::b32x32 || q.block == Block::b128x128) g += " square";
  return g;
}
std::string stages_of(const Named& r) {
  const auto on = parse_switches(r.asked.switches);
  std::string s;
  for (size_t i = 0; i < std::size(kSwitches); ++i)
    if ((*on)[i]) s += (s.empty() ? "" : "+") + std::string(kSwitches[i].stage);
  return s;
}

void print(const std::string& title, const Tally& t) {
  std::printf("%-26s %4d  %5d %8d %4d %11d %15d %7d %11d %6d  %4d %%  %4d %%  %6.2f s\n", title.c_str(),
              t.counted, t.named, t.in_class, t.told, t.wrong_class, t.wrongly_certain, t.partial,
              t.unexplained, t.failed, t.counted ? 100 * t.explained() / t.counted : 0,
              t.counted ? 100 * t.right_stage / t.counted : 0, t.seconds);
}

int run_table(const Options& o) {
  const auto reference = make_reference_subject();
  std::vector<Named> results;
  std::map<std::string, Tally> by_kind, by_group, by_stage, pairs_by_format;
  const std::vector<Case> list = chosen(o);
  for (const Case& c : list) {
    if (isatty(2)) std::fprintf(stderr, "\r%zu of %zu ", results.size() + 1, list.size());
    results.push_back(judge_case(c, *reference, o.jobs));
    const Named& r = results.back();
    const std::string kind(kKinds[static_cast<size_t>(c.kind)]);
    by_kind[kind].add(r);
    if (c.kind == CaseKind::single || c.kind == CaseKind::later_single)
      by_group[group_of(r)].add(r), by_stage[stages_of(r)].add(r);
    else if (c.kind != CaseKind::outside) pairs_by_format[group_of(r)].add(r);
    const bool good = c.kind == CaseKind::outside
                          ? r.right_stage && (r.found == Found::partial || r.found == Found::unexplained)
                          : r.found == Found::named || r.found == Found::in_class || r.found == Found::told;
    if (o.misses && good) continue;
    std::printf("%-7s %-34s %-15s %-5s %-12s %5.1f %%  %2zu  %5.2f s  %s\n        %s\n        %s\n",
                kind.c_str(), std::string(c.switches).c_str(), std::string(name_of(r.found)).c_str(),
                r.right_stage ? "stage" : "", r.first ? std::string(name_of(*r.first)).c_str() : "-",
                100 * r.repaired, r.exact, r.seconds, r.says.c_str(), r.line.c_str(), r.shows.c_str());
    std::fflush(stdout);
  }
  if (isatty(2)) std::fputs("\r\033[K", stderr);
  std::printf("\n%-26s %4s  %5s %8s %4s %11s %15s %7s %11s %6s  %6s  %6s  %8s\n", "", "of", "named",
              "in class", "told", "wrong class", "wrongly certain", "partial", "unexplained", "failed",
              "named", "stage", "CPU");
  for (const auto& [name, t] : by_kind) print(name, t);
  std::printf("\nsingle faults by format\n");
  for (const auto& [name, t] : by_group) print(name, t);
  std::printf("\nsingle faults by stage\n");
  for (const auto& [name, t] : by_stage) print(name, t);
  std::printf("\npairs of faults by format\n");
  for (const auto& [name, t] : pairs_by_format) print(name, t);
  const auto elsewhere =
      std::count_if(results.begin(), results.end(), [](const Named& r) { return r.elsewhere; });
  const auto right = std::count_if(results.begin(), results.end(), [](const Named& r) {
    return r.found == Found::named || r.found == Found::in_class;
  });
  std::printf("\n%td of %td right names hold under another kind of fill as well\n", elsewhere, right);

  if (!o.json.empty()) {
    json::Value rows = json::array();
    for (const Named& r : results)
      rows.push(json::object({{"kind", kKinds[static_cast<size_t>(r.asked.kind)]},
                              {"fault", r.asked.switches},
                              {"line", r.line},
                              {"found", name_of(r.found)},
                              {"right_stage", r.right_stage},
                              {"first", r.first ? json::Value(name_of(*r.first)) : json::Value()},
                              {"exact", r.exact},
                              {"repaired", r.repaired},
                              {"says", r.says},
                              {"shows", r.shows},
                              {"elsewhere", r.elsewhere},
                              {"evaluations", int64_t{r.evaluations}},
                              {"seconds", r.seconds}}));
    std::FILE* f = std::fopen(o.json.c_str(), "w");
    if (!f) return std::fprintf(stderr, "cannot write %s: %s\n", o.json.c_str(), std::strerror(errno)), 2;
    std::fputs(json::dump(rows).c_str(), f);
    std::fclose(f);
  }
  return 0;
}

// What one process measures.
struct Measured {
  double seconds = 0, cpu = 0;
  long peak_kib = 0;
  int confidence = -1, evaluations = 0;
};
Measured in_child(const std::function<Measured()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    Measured m = work();
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    m.peak_kib = u.ru_maxrss;
    _exit(write(ends[1], &m, sizeof m) == sizeof m ? 0 : 1);
  }
  close(ends[1]);
  Measured m;
  if (child < 0 || read(ends[0], &m, sizeof m) != sizeof m) m = {};
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return m;
}

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

int run_large(const Options& o) {
  std::vector<double> seconds, cpu;
  long peak = 0;
  for (const Case& c : cases(CaseKind::single)) {
    if (!o.only.empty() && (std::string(c.switches) + " " + text_of(c)).find(o.only) == std::string::npos)
      continue;
    const Measured m = in_child([&] {
      const auto reference = make_reference_subject();
      const auto r = reveal(c, {.tries = 3, .shape = Shape{1024, 1024}}, *reference);
      Measured out;
      if (!r) return out;
      rusage before{}, after{};
      getrusage(RUSAGE_SELF, &before);
      const double begin = now();
      DiagnoseOptions options;
      options.jobs = o.jobs;
      const auto d = diagnose({r->problem, "faulty", r->inputs, r->wrong}, *reference, options);
      out.seconds = now() - begin;
      getrusage(RUSAGE_SELF, &after);
      const auto of = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
      };
      out.cpu = of(after.ru_utime) - of(before.ru_utime) + of(after.ru_stime) - of(before.ru_stime);
      out.confidence = d ? static_cast<int>(d->confidence) : -1;
      out.evaluations = d ? d->evaluations : 0;
      return out;
    });
    if (m.confidence < 0) continue;  // not revealed at that size
    seconds.push_back(m.seconds), cpu.push_back(m.cpu);
    peak = std::max(peak, m.peak_kib);
    std::printf("%-26s %-12s %6.2f s  %6.2f s CPU  %5ld MiB  %4d runs  %s\n", std::string(c.switches).c_str(),
                std::string(name_of(static_cast<Confidence>(m.confidence))).c_str(), m.seconds, m.cpu,
                m.peak_kib / 1024, m.evaluations, text_of(c).c_str());
    std::fflush(stdout);
  }
  if (seconds.empty()) return std::puts("no case"), 0;
  std::printf(
      "\n%zu single faults on 1024x1024, %d jobs: median %.2f s, largest %.2f s; CPU median %.2f s, largest "
      "%.2f s; peak memory %ld MiB\n",
      seconds.size(), o.jobs, median(seconds), *std::max_element(seconds.begin(), seconds.end()), median(cpu),
      *std::max_element(cpu.begin(), cpu.end()), peak / 1024);
  return 0;
}

int run_shrinks(const Options& o) {
  std::vector<double> left, seconds;
  for (const Case& c : cases(CaseKind::single)) {
    if (!o.only.empty() && (std::string(c.switches) + " " + text_of(c)).find(o.only) == std::string::npos)
      continue;
    Subjects subjects;
    subjects.owned.push_back(make_reference_subject());
    subjects.owned.push_back(make_faulty_quantizer(*parse_switches(c.switches)));
    const auto r = reveal(c, {}, subjects.reference());
    if (!r) continue;
    ShrinkOptions options;
    options.problem = r->problem;
    options.subject = "faulty";
    const double begin = now();
    const auto small = shrink(options, subjects);
    const double took = now() - begin;
    if (!small) {
      std::printf("%-26s %s: %s\n", std::string(c.switches).c_str(), to_line(r->problem).c_str(),
                  small.error().text().c_str());
      continue;
    }
    int64_t n = 0;
    const auto inputs = make_inputs(small->bad, subjects.reference());
    const PlaneData* x = inputs ? find_plane(*inputs, "x") : nullptr;
    for (size_t i = 0, width = x ? static_cast<size_t>(info(x->plane.encoding).bytes()) : 1;
         x && i + width <= x->bytes.size(); i += width) {
      bool zero = (x->bytes[i + width - 1] & std::byte{0x7F}) == std::byte{0};
      for (size_t b = 0; b + 1 < width; ++b) zero &= x->bytes[i + b] == std::byte{0};
      n += !zero;
    }
    left.push_back(static_cast<double>(n)), seconds.push_back(took);
    std::printf("%-26s %5ld non-zero  %6.2f s  %5zu runs  %s\n", std::string(c.switches).c_str(),
                static_cast<long>(n), took, small->runs, to_line(small->bad).c_str());
    std::fflush(stdout);
  }
  if (left.empty()) return std::puts("no case"), 0;
  const auto at_most_two = std::count_if(left.begin(), left.end(), [](double n) { return n <= 2; });
  std::printf(
      "\n%zu single faults: median %.1f non-zero elements, %td of them at most 2; time median %.2f s, "
      "largest %.2f s\n",
      left.size(), median(left), at_most_two, median(seconds),
      *std::max_element(seconds.begin(), seconds.end()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 < argc) return argv[++i];
      std::fprintf(stderr, "%s needs a value\n", argv[i]);
      std::exit(2);
    };
    if (a == "--only") o.only = value();
    else if (a == "--kind") o.kind = value();
    else if (a == "--json") o.json = value();
    else if (a == "--jobs") o.jobs = std::max(1, std::atoi(value().c_str()));
    else if (a == "--misses") o.misses = true;
    else if (a == "--large") o.large = true;
    else if (a == "--shrink") o.shrink = true;
    else
      return std::fprintf(stderr,
                          "diagnosis_benchmark: unknown argument %s; known are --only --kind --misses --json "
                          "--jobs --large --shrink\n",
                          argv[i]),
             2;
  }
  if (!o.kind.empty() && std::find(std::begin(kKinds), std::end(kKinds), o.kind) == std::end(kKinds))
    return std::fprintf(stderr, "--kind is single, double, outside, later or later_double\n"), 2;
  try {
    return o.large ? run_large(o) : o.shrink ? run_shrinks(o) : run_table(o);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "diagnosis_benchmark: %s\n", e.what()), 2;
  }
}

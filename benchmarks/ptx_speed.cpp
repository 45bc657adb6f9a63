// How many instructions of lanes the interpreter of PTX carries out in a second of one core (docs/ptx.md).
//
//   ptx_speed [LINE] [launch file]
//
// The kernels are those of the subject `ptx`, or of a launch file. Runs without and with counters take turns,
// so that what else the machine does falls on both; the best of each counts. A time is processor time of the
// whole run: buffers, copies, and behind the counters their sums by line too.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "compare/subjects/ptx_kernel.h"
#include "contract/line.h"
#include "fast/subject_ptx.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"

namespace {

using namespace assay;

constexpr int kRepeats = 30;

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
template <class F> double seconds(F&& f) {
  const double start = processor_seconds();
  f();
  return processor_seconds() - start;
}

int give_up(const std::string& why) {
  std::fprintf(stderr, "ptx_speed: %s\n", why.c_str());
  return 1;
}

int measure(Subject& subject, const Problem& problem, const std::string& line) {
  const auto reference = make_reference_subject();
  const auto inputs = make_inputs(problem, *reference);
  if (!inputs) return give_up(inputs.error().text());
  const std::vector<Plane> planes = output_planes(problem);
  const Environment environment;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Buffer> outputs;
  for (const Plane& plane : planes) bytes.emplace_back(plane.bytes());
  for (size_t n = 0; n < planes.size(); ++n) outputs.push_back({&planes[n], bytes[n]});

  uint64_t lanes = 0;
  double plain = 1e9, counted = 1e9;
  for (int n = 0; n < kRepeats; ++n) {
    plain = std::min(plain, seconds([&] { subject.run(problem, views(*inputs), outputs, environment); }));
    std::vector<LaunchCounts> launches;
    counted =
        std::min(counted, seconds([&] { launches = subject.count(problem, views(*inputs), environment); }));
    lanes = 0;
    for (const LaunchCounts& launch : launches)
      for (const auto& [name, count] : launch.totals)
        if (name == "lane instructions") lanes += count;
  }
  const double giga = 1e-9 * static_cast<double>(lanes);
  std::printf("%s on %s: %.1f million instructions of lanes\n", line.c_str(),
              std::string(subject.name()).c_str(), 1e3 * giga);
  std::printf("  without counters  %7.4f s  %5.2f G/s\n", plain, giga / plain);
  std::printf("  with counters     %7.4f s  %5.2f G/s\n", counted, giga / counted);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string line = argc > 1 ? argv[1] : "quantize mxfp8 1024x1024 bf16";
  const auto problem = parse_line(line);
  if (!problem) return give_up(problem.error().text());
  std::unique_ptr<Subject> subject;
  if (argc > 2) {
    auto made = make_ptx_kernel_subject(argv[2]);
    if (!made) return give_up(made.error().text());
    subject = std::move(*made);
  } else {
    subject = make_ptx_subject();
    if (const Support here = subject->present(); !here.yes) return give_up(here.why);
  }
  if (const Support can = subject->supports(*problem); !can.yes) return give_up(can.why);
  return measure(*subject, *problem, line);
}

// `assay bench <suite|line>...`: every case is judged, on all cores (fewer where memory is short), and then
// each is timed. There is no number without a verdict: a case that is not passed is named, with no time.
//
// Host subjects run under Google Benchmark, with repetitions; a subject that times itself (a GPU: CUDA
// events, without transfers) gives warm and cold samples. Beside each time stand bytes and elements per
// second and the ratio to a copy that reads and writes as many bytes in the same process: memcpy on the host,
// a quantize to identity on a device. A plugin is timed by its own assay_plugin_time where it has one, else
// by device events or a clock; its copy is memcpy, or that of the kernels here on the same GPU, and without
// those there is no ratio. Rows of the host executor are labelled: they say nothing about any GPU. A subject
// that interprets a compiled kernel gets no time; `assay count` says what the kernel does.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"
#include "fixtures/suite.h"

namespace assay {

struct Program;

struct BenchOptions {
  std::vector<SuiteEntry> entries;
  std::vector<std::string> subjects = {"reference", "host"};
  int repetitions = 9;     // samples; fewer make medians unsteady
  double min_time = 0.02;  // minimum duration of a sample, in seconds, by repeating the run
  double timeout = 600;    // time limit of a case on one subject, in seconds
  std::string output;      // JSON of the results; empty: none
  std::string against;     // JSON of an earlier run; empty: none
  double noise = 0.10;     // a median must be slower by this share, and by kNoiseSeconds, to be a regression
  Environment environment;
  bool progress = false;  // a line on standard error says what runs, and for how long it has
};
inline constexpr double kNoiseSeconds = 2e-6;

// Exit status: 0; 1 a case is not passed, or a row is slower than `against` beyond the noise: its median by
// `noise` and kNoiseSeconds, and its minimum above the earlier median; 2 an unreadable file, or results of
// another machine; 3 nothing was timed.
int run_bench(const BenchOptions&, const Subjects&, std::ostream& out, std::ostream& err);

void register_bench(Program&);

}  // namespace assay

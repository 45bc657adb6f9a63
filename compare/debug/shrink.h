// The smallest line that still fails in the same way, and the nearest one that passes.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "compare/judge/claims.h"
#include "compare/process/guarded_run.h"
#include "contract/problem.h"
#include "contract/result.h"

namespace assay {

struct ShrinkOptions {
  // How a line fails, or nothing where it does not; never throws. Where it is given, it is asked in place of
  // the subject and the reference.
  using Failure = std::function<std::optional<Breach>(const Problem&)>;

  Problem problem;
  std::string subject = "host";
  Environment environment;
  double timeout = 60;       // seconds a run may take
  size_t max_runs = 2000;    // of the subject, in all
  double max_seconds = 0;    // by the clock, 0: none; what was found by then is the answer
  int64_t max_elements = 0;  // of x in all runs together, 0: no limit; unlike a clock it ends the search at
                             // the same place on every machine
  bool known = false;  // the subject repeats itself, as the caller has seen, and `good` is not asked for
  Failure failure = {};
};

struct Shrunk {
  Problem bad;  // fails like the line that was given: the same claim, and the same plane first
  std::optional<Problem> good;  // passes, and is as near to `bad` as any that was tried
  std::string good_differs;     // how: "element (0, 5): 3F81 instead of 3F80"
  Breach breach;                // of `bad`
  size_t runs = 0;
  bool exhausted = false;  // a limit ended it
};

// Of a large tensor a window around the first difference comes first, because what is small is cheap. Drops a
// direction, crops rows and columns by halves, quarters and eighths (aligned to blocks, then freely), zeroes
// elements in halving chunks, clears signs and mantissa bits; each step is kept where the failure stays the
// same. Per-tensor amaxes are pinned (`amax=`) where a crop would otherwise lose it. Up to 64 elements that
// are left become fill=literal; with more, the smallest window (`at=`) is the answer. A gemm loses bias, beta
// and alpha, is cropped in M, N and K, and each operand's tensor shrinks like x does (`a.fill=literal:`,
// `a.at=`, `a.amax=`). Errors: the line passes, is unsupported, or two runs of it differ (not deterministic:
// shrinking would follow noise). An interrupt ends it with the smallest line that was seen to fail until
// then, or with an Error where none was.
Result<Shrunk> shrink(const ShrinkOptions&, const Subjects&,
                      const std::function<void(const std::string&)>& on_progress = {});

// The sizes as the line has them: "64x96", of a gemm <M>x<N>x<K>.
std::string sizes_text(const Problem& problem);

}  // namespace assay

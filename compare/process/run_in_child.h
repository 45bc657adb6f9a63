// One Subject on one Problem in a child process: what judges planes that no suite line made (vectors, packs,
// shrink, trace) runs subjects this way, so that a crash or a hang is an answer and not the end.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/process/guarded_run.h"

namespace assay {

struct IsolatedRun {
  enum class Status : uint8_t { ran, unsupported, crashed, interrupted };
  Status status = Status::ran;
  std::string why;      // unsupported: the subject's reason; crashed: how the child ended
  Execution execution;  // ran: planes of output_planes(problem); its error and trespass may be set
  bool sound() const { return status == Status::ran && !execution.error && !execution.trespass; }
  // Why it is not sound; empty where it is. Of an interrupted run nothing is known: it is no failure.
  std::string trouble() const;
};
IsolatedRun run_isolated(Subject& subject, const Problem& problem, const std::vector<PlaneData>& inputs,
                         const Environment& environment, double timeout);

// The inputs of `problem` with those of `given` in place of their namesakes. A fill that `given` replaces is
// not drawn.
Result<std::vector<PlaneData>> inputs_with(const Problem& problem, const std::vector<PlaneData>& given,
                                           Subject& reference);

}  // namespace assay

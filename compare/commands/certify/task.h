// One task of the certificate: some millions of a part's elements through the reference and its subjects, in
// a worker process.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/commands/certify/part.h"
#include "fixtures/json.h"

namespace assay {

// Inputs of one of a part's tasks, which one worker is given: a 64th of the part in whole pieces, so that
// kernels on the host executor, whose parts are small and slow, are shared as well; 16 pieces at most, a
// fraction of a second.
int64_t certify_task(int64_t inputs_of_part, int64_t piece = kCertifyPiece);

// One claim over a task's elements.
struct SideResult {
  int64_t differ = 0;   // elements of output planes
  json::Value failure;  // the first: {"line", "verdict"} or {"text"}; null: none
};

struct TaskResult {
  std::string digests;  // of the reference's pieces, 32 hex digits each
  std::string hashes;   // the same as SHA-256, 64 hex digits each, where the part has it
  std::vector<SideResult> sides;
  std::string law;      // what breaks the part's law; empty: nothing
  std::string trouble;  // the reference, or the worker, failed: nothing was compared
  double seconds = 0;
};

// Elements [first, end) of the part, on the reference and on each side.
TaskResult run_task(const CertifyPart&, const std::vector<CertifySide>& sides, int64_t first, int64_t end,
                    const Subjects&);

// A result as a worker sends it, and back. `sides`: how many the task was judged on. Text that cannot be read
// is trouble.
std::string to_text(const TaskResult&);
TaskResult task_from(const std::string& text, size_t sides);

}  // namespace assay

// One task of the certificate: some millions of a part's elements through the reference and its subjects, in
// a worker process.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/commands/certify/part.h"
#include "fixtures/json.h"

namespace assay {

// The elements or rows that a worker is given at once: a fraction of a second.
inline constexpr int64_t kCertifyTask = int64_t{1} << 22;

// One claim over a task's elements.
struct SideResult {
  int64_t differ = 0;   // elements of output planes
  json::Value failure;  // the first: {"line", "verdict"} or {"text"}; null: none
};

struct TaskResult {
  std::string digests;  // of the reference's pieces, 32 hex digits each
  std::vector<SideResult> sides;
  std::string law;      // what breaks the part's law; empty: nothing
  std::string trouble;  // the reference, or the worker, failed: nothing was compared
  double seconds = 0;
};

// Elements [first, end) of the part, on the reference and on each side.
TaskResult run_task(const CertifyPart&, const std::vector<CertifySide>& sides, int64_t first, int64_t end,
                    const Subjects&);

// A result as a worker sends it, and back.
std::string to_text(const TaskResult&);
TaskResult task_from(const std::string& text);

}  // namespace assay

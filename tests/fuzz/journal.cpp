// The results that an earlier run of a command kept (--resume): cut short, or of somebody else. Anybody can
// write the checksum of a result, so each is also read by the commands whose result it may be; what a worker
// or another process sends comes to the same functions.
#include "compare/process/journal.h"

#include <span>
#include <stdexcept>

#include "compare/commands/certify/task.h"
#include "compare/commands/record.h"
#include "compare/commands/shared_check.h"
#include "compare/commands/worker_verdict.h"
#include "contract/line.h"
#include "tests/fuzz/readers.h"

namespace {

using assay::Problem;
using std::string;

const Problem& recorded_problem() {
  static const Problem p = *assay::parse_line("quantize mxfp8 2x32 bf16 dir=row");
  return p;
}

void is_read_back(const string& told, const string& again, const char* what) {
  if (told != again) throw std::logic_error(string(what) + " is not read back");
}

// As every command reads it.
void read_result(const string& text) {
  using namespace assay;
  constexpr size_t kSides = 1;
  const string task = to_text(task_from(text, kSides));
  is_read_back(task, to_text(task_from(task, kSides)), "a task of a certificate");
  // What is told of one member of a breach may hang on another, so the second telling is compared.
  const string checked = to_text(checked_from(to_text(checked_from(text))));
  is_read_back(checked, to_text(checked_from(checked)), "a checked case");
  const Recorded recorded = recorded_from(text, recorded_problem());
  if (!recorded.failed && !recorded.unsupported && recorded.planes.empty())
    throw std::logic_error("a recording without planes");
  verdict_of_worker(text);
}

}  // namespace

void assay::fuzz::journal(std::string_view bytes) {
  const auto whole = [](std::string_view text) {
    return read_journal(std::as_bytes(std::span(text)), "fuzz");
  };
  read_result(string(bytes));  // no fuzzer finds a checksum
  const auto journal = whole(bytes);
  if (!journal) {
    journal.error().text();
    return;
  }
  if (journal->whole > bytes.size()) throw std::logic_error("more of a journal is whole than there is");
  for (const auto& [number, result] : journal->results) read_result(result);
  // What is cut off behind the whole results changes none of them.
  const auto again = whole(bytes.substr(0, journal->whole));
  if (!again || again->whole != journal->whole || again->results != journal->results)
    throw std::logic_error("a journal is not read back");
}

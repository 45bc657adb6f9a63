// How `assay check` and `assay diff` print the cases of a pack: one line or one screen each, and the first
// divergence at the end.
#pragma once
#include <cstddef>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/judge/judge.h"
#include "compare/judge/verdict.h"
#include "compare/report/report.h"

namespace assay {

// What became of one case.
struct CaseReport {
  std::vector<std::string> judged, missing;  // planes
  std::vector<std::string> notes;
  std::string judges;  // who judged how much, where it was not the reference alone
  std::optional<Breach> breach;
};

// A breach that is a sentence, of text that may come from a file.
Breach message_breach(const std::string& message);

// The breach of a judgement. Padding of compact planes is not judged.
std::optional<Breach> breach_of(const Problem&, Judgement, std::string_view got, std::string_view want);

std::string join(const std::vector<std::string>& words);

// The lines of what is to be known before the verdict: the notes, and the planes that are not judged because
// the pack lacks them. Empty where there is nothing to note.
std::string notes_text(const std::string& place, const CaseReport&);

// Prints one case after the other and remembers the first that failed.
class CasePrinter {
 public:
  explicit CasePrinter(std::ostream& out, bool github = false);

  void print(const std::string& place, const std::string& recorded_line, const std::string& claim,
             const CaseReport&);
  // Of a large case that is still being judged: that it has failed, and where it differs.
  void print_early(const std::string& place, const std::string& first);
  void skip(const std::string& where, const std::string& why);

  // Of the first divergence, each at once: where it is, what it comes from, and the command that says more.
  // An empty cause is that none was found.
  void print_first();
  void print_cause(const std::string& text);
  void print_next(const std::string& command);

  // Prints the totals. Exit status: 0; 1 a case failed; 3 nothing was judged.
  int finish();
  // The same where the user ended it after so many cases. Exit status: 1 a case failed; else 130.
  int finish_interrupted(size_t judged, size_t of);

 private:
  std::ostream& out_;
  std::string first_;
  size_t passed_ = 0, failed_ = 0, skipped_ = 0;
  std::unique_ptr<Report> github_;
  Totals totals_;  // for it
};

}  // namespace assay

#include "compare/witness/judge.h"

#include <map>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "compare/process/interrupt.h"
#include "compare/report/screen.h"
#include "compare/witness/agreement.h"
#include "compare/witness/case.h"
#include "compare/witness/records/records.h"
#include "compare/witness/vectors/checks.h"
#include "compare/witness/vectors/training.h"
#include "contract/line.h"
#include "fixtures/sha256.h"

namespace assay {

using std::string;

namespace {

// The expected tensors of a file: those of cases, those of the training layer, and those that cannot be
// judged.
struct FileTensors {
  std::vector<VectorCase> cases;
  std::vector<string> tensors, trained, broken;
  size_t count() const { return tensors.size() + trained.size() + broken.size(); }
};

// What came of them, on every subject so far.
struct FileResult {
  VectorCounts counts;
  std::vector<string> screens, notes;
};

FileTensors expected_tensors(const IndexFile& entry, const safetensors::File& file, const string& path,
                             const VectorOptions& options) {
  FileTensors out;
  for (const IndexTensor& t : entry.tensors) {
    if (t.role != "expected" || !options.wants(entry, t.name)) continue;
    if (is_training_tensor(entry.family, t.name)) {
      out.trained.push_back(t.name);
      continue;
    }
    auto checks = checks_of(entry.family, file, entry.params, t.name, path, entry.sha256);
    if (!checks) {
      out.broken.push_back(t.name + ": " + checks.error().text());
      continue;
    }
    out.tensors.push_back(t.name);
    for (VectorCheck& check : *checks) add_check(out.cases, std::move(check));
  }
  return out;
}

// The tensor of a check, without the part of it that the check is about.
string base(const string& tensor) { return tensor.substr(0, tensor.find('[')); }

string repro(const IndexFile& entry, const string& tensor, const Subject& subject,
             const VectorOptions& options) {
  return fmt::format("  repro    assay vectors {} --subject {} --filter '{}#{}'\n\n", options.directory,
                     subject.name(), entry.file, tensor);
}

string screen(const IndexFile& entry, const VectorCase& c, const Subject& subject, const VectorAnswer& answer,
              const VectorOptions& options) {
  string out = fmt::format("\nFAILED  {}\n  {}\n  claim    {} == vectors\n", entry.file, to_line(c.problem),
                           subject.name());
  string first;
  for (size_t i = 0; i < c.checks.size(); ++i)
    if (answer.equal.empty() || !answer.equal[i]) {
      out += fmt::format("  tensor   {} ({})\n", c.checks[i].tensor, c.checks[i].plane);
      if (first.empty()) first = base(c.checks[i].tensor);
    }
  if (answer.breach) out += cause_text(*answer.breach);
  return out + repro(entry, first, subject, options);
}

// The cases of a file on one subject.
class SubjectRun {
 public:
  SubjectRun(const IndexFile& entry, Subject& subject, const Subjects& subjects, const VectorOptions& options,
             FileResult& result)
      : entry_(entry), subject_(subject), subjects_(subjects), options_(options), result_(result) {}

  void judge(const FileTensors& tensors) {
    for (const VectorCase& c : tensors.cases)
      if (!judge_case(c))
        for (const VectorCheck& check : c.checks) open_.insert(base(check.tensor));
    for (const string& tensor : tensors.tensors) count(tensor);
    result_.counts.cut_short |= !open_.empty();
    const string agreed = open_.empty() ? agreement_text(agreement_, entry_, subject_.name()) : "";
    if (!agreed.empty()) result_.notes.push_back(agreed);
  }

 private:
  // False where an interrupt came before it was judged.
  bool judge_case(const VectorCase& c) {
    if (interrupted()) return false;
    const VectorAnswer answer = judge_vectors(c, subject_, subjects_, options_.environment, options_.timeout);
    if (answer.interrupted) return false;
    if (answer.unsupported) {
      for (const VectorCheck& check : c.checks) unsupported_[base(check.tensor)] = *answer.unsupported;
      return true;
    }
    bool all = true;
    for (size_t i = 0; i < c.checks.size(); ++i) {
      const bool ok = !answer.equal.empty() && answer.equal[i];
      const VectorCheck& check = c.checks[i];
      const auto [at, fresh] = equal_.try_emplace(base(check.tensor), ok);
      if (!fresh) at->second &= ok;
      all &= ok;
      if (!entry_.disputed()) continue;
      auto& n =
          agreement_[{check.in_case, check.variant}][check.source.empty() ? "the vectors" : check.source];
      n.first += ok;
      ++n.second;
    }
    if (!all && !entry_.disputed()) result_.screens.push_back(screen(entry_, c, subject_, answer, options_));
    return true;
  }

  void count(const string& tensor) {
    const auto judged = equal_.find(tensor);
    const bool wrong = judged != equal_.end() && !judged->second;
    if (open_.contains(tensor) && !wrong) return;
    if (judged == equal_.end()) {
      ++result_.counts.skipped;
      result_.notes.push_back(
          fmt::format("          {} does not run {}: {}\n", subject_.name(), tensor, unsupported_[tensor]));
    } else if (entry_.disputed()) {
      ++result_.counts.disputed;
    } else {
      ++(judged->second ? result_.counts.passed : result_.counts.failed);
    }
  }

  const IndexFile& entry_;
  Subject& subject_;
  const Subjects& subjects_;
  const VectorOptions& options_;
  FileResult& result_;
  std::map<string, bool> equal_;  // by tensor; absent: not judged
  std::set<string> open_;         // tensors of cases that an interrupt came before
  std::map<string, string> unsupported_;
  Agreement agreement_;
};

void judge_training_tensor(const IndexFile& entry, const safetensors::File& file, const string& tensor,
                           Subject& subject, const VectorOptions& options, FileResult& result) {
  const auto difference = training_difference(entry.family, file, entry.params, tensor, subject);
  if (difference && difference->empty()) {
    ++result.counts.passed;
    return;
  }
  ++result.counts.failed;
  const string cause = difference ? *difference : "no answer: " + difference.error().text();
  result.screens.push_back(fmt::format(
      "\nFAILED  {}\n  the training layer\n  claim    {} == vectors\n  tensor   {}\n  cause    {}\n{}",
      entry.file, subject.name(), tensor, cause, repro(entry, tensor, subject, options)));
}

}  // namespace

VectorCounts& VectorCounts::operator+=(const VectorCounts& other) {
  passed += other.passed;
  failed += other.failed;
  skipped += other.skipped;
  disputed += other.disputed;
  cut_short |= other.cut_short;
  return *this;
}

VectorCounts judge_vector_file(const IndexFile& entry, const safetensors::File& file, const string& path,
                               const VectorOptions& options, const Subjects& subjects, std::ostream& out) {
  const FileTensors tensors = expected_tensors(entry, file, path, options);
  FileResult result;
  if (tensors.count() == 0) return result.counts;
  result.counts.failed = tensors.broken.size();
  for (const string& name : options.subjects) {
    Subject& subject = *subjects.find(name);
    SubjectRun(entry, subject, subjects, options, result).judge(tensors);
    for (const string& tensor : tensors.trained) {
      if (interrupted()) result.counts.cut_short = true;
      if (!result.counts.cut_short) judge_training_tensor(entry, file, tensor, subject, options, result);
    }
  }
  const VectorCounts& counts = result.counts;
  const bool nothing = counts.passed + counts.failed + counts.disputed == 0;
  const char* outcome = counts.failed      ? "FAILED  "
                        : counts.cut_short ? "partly  "
                        : nothing          ? "skipped "
                        : entry.disputed() ? "disputed"
                                           : "passed  ";
  out << fmt::format(
      "{}  {:<38} {:<28} {} tensors, {}\n", outcome, entry.file, entry.family, tensors.count(),
      options.subjects.empty() ? "none" : fmt::format("{}", fmt::join(options.subjects, ", ")));
  for (const string& b : tensors.broken) out << "  " << b << "\n";
  for (const string& n : result.notes) out << n;
  for (const string& s : result.screens) out << s;
  out.flush();  // what is judged is seen, whatever happens to the next file
  return counts;
}

std::optional<Error> judge_record_file(const IndexFile& entry, const string& path,
                                       const VectorOptions& options, const Subjects& subjects,
                                       std::ostream& out, VectorCounts& counts) {
  if (const auto mapped = MappedFile::open(path); mapped && !entry.sha256.empty())
    if (const string found = sha256(mapped->bytes()); found != entry.sha256)
      return Error{fmt::format("{}: sha256 is {}, the index says {}", path, found, entry.sha256), 0, ""};
  for (const string& name : options.subjects) {
    if (interrupted()) {
      counts.cut_short = true;
      return std::nullopt;
    }
    const auto n = judge_witness(path, entry.family, options.filter, *subjects.find(name), out);
    if (!n) return n.error();
    out.flush();
    counts.passed += n->passed;
    counts.failed += n->failed;
  }
  return std::nullopt;
}

}  // namespace assay

#include "compare/commands/vectors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "compare/judge/claims.h"
#include "compare/process/run_in_child.h"
#include "compare/report/screen.h"
#include "compare/text/printable.h"
#include "compare/process/pool.h"
#include "compare/witness/vectors/training.h"
#include "compare/witness/vectors/checks.h"
#include "compare/witness/vectors/table.h"
#include "compare/witness/records/records.h"
#include "contract/line.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

using std::string;

struct IndexTensor {
  string name, role;
};
struct IndexFile {
  string file, family, sha256, consensus;
  json::Value params;
  std::vector<IndexTensor> tensors;
  bool disputed() const { return consensus.starts_with("DISAGREE"); }
};

Error bad(string message) { return {std::move(message), 0, ""}; }

Result<std::vector<IndexFile>> read_index(const string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) return bad(directory + " is no folder");
  const string path = directory + "/index.json";
  auto index = json::read(path);
  if (!index) return index.error();
  const json::Value* files = index->find("files");
  if (!files || !files->array()) return bad(path + ": expected an object with an array 'files', found " + index->describe());
  if (files->array()->empty()) return bad(path + ": 'files' is empty");
  std::vector<IndexFile> out;
  std::set<string> seen;
  for (size_t i = 0; i < files->array()->size(); ++i) {
    const json::Value& entry = (*files->array())[i];
    IndexFile f{string(entry.text("file")), string(entry.text("family")), string(entry.text("sha256")), string(entry.text("consensus")), {}, {}};
    const string where = fmt::format("{}: files[{}]{}", path, i, f.file.empty() ? "" : " (" + f.file + ")");
    if (f.file.empty() || f.family.empty()) return bad(where + ": expected the strings 'file' and 'family'");
    if (f.file.find('/') != string::npos || f.file.starts_with(".")) return bad(where + ": 'file' must name a file of the folder itself");
    if (!seen.insert(f.file).second) return bad(where + ": listed twice");
    if (is_witness_family(f.family)) {   // records, not tensors
      out.push_back(std::move(f));
      continue;
    }
    if (const json::Value* params = entry.find("params")) {
      if (!params->object()) return bad(where + ": 'params' is " + params->describe() + ", expected an object");
      f.params = *params;
    }
    const json::Value* tensors = entry.find("tensors");
    if (!tensors || !tensors->array()) return bad(where + ": expected an array 'tensors'");
    for (const json::Value& t : *tensors->array()) {
      static const std::set<string, std::less<>> kRoles = {"input", "param", "expected", "info"};
      if (t.text("name").empty() || !kRoles.contains(t.text("role")))
        return bad(where + ": a tensor needs a 'name' and a 'role' of input, param, expected or info, found " + json::dump(t));
      f.tensors.push_back({string(t.text("name")), string(t.text("role"))});
    }
    out.push_back(std::move(f));
  }
  return out;
}

// Opens the file that the index describes; anything else is an error. Fills in the digest where the index gives none.
Result<safetensors::File> open_file(const string& path, IndexFile& entry) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  const string found = sha256(mapped->bytes());
  if (!entry.sha256.empty() && found != entry.sha256) return bad(fmt::format("{}: sha256 is {}, the index says {}", path, found, entry.sha256));
  entry.sha256 = found;
  auto file = safetensors::read(path);
  if (!file) return file.error();
  std::set<string> listed;
  for (const IndexTensor& t : entry.tensors) {
    if (!file->find(t.name)) return bad(fmt::format("{}: the index lists a tensor '{}' that the file lacks", path, t.name));
    if (!listed.insert(t.name).second) return bad(fmt::format("{}: the index lists tensor '{}' twice", path, t.name));
  }
  for (const safetensors::Tensor& t : file->tensors())
    if (!listed.contains(t.name)) return bad(fmt::format("{}: tensor '{}' is not in the index: it has no role", path, t.name));
  return file;
}

// Checks that one run of a subject answers.
struct Case {
  Problem problem;
  std::vector<PlaneData> given;
  std::vector<VectorCheck> checks;
};

bool same_given(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const PlaneData& x, const PlaneData& y) { return x.plane.name == y.plane.name && x.bytes == y.bytes; });
}

void add_check(std::vector<Case>& cases, VectorCheck check) {
  for (Case& c : cases)
    if (c.problem == check.problem && same_given(c.given, check.inputs)) {
      c.checks.push_back(std::move(check));
      return;
    }
  Case c{check.problem, check.inputs, {}};
  c.checks.push_back(std::move(check));
  cases.push_back(std::move(c));
}

// What the vectors say the plane is: padding that they leave out is taken as it came.
PlaneData wanted(const VectorCheck& check, const PlaneData& got) {
  PlaneData want = got;
  if (check.padded) {
    want.bytes = check.want;
    return want;
  }
  for (size_t i = 0; i < check.at.size(); ++i) set_code(want.plane, want.bytes, check.at[i], code_at(want.plane.encoding, check.want, static_cast<int64_t>(i)));
  if (!check.at.empty()) return want;
  const int64_t rows = want.plane.logical.rows, cols = want.plane.logical.cols;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      set_code(want.plane, want.bytes, index_of(want.plane, r, c), code_at(want.plane.encoding, check.want, r * cols + c));
  return want;
}

// One case on one subject.
struct Answer {
  std::optional<string> unsupported;
  std::vector<bool> equal;             // per check; empty where the subject failed before there was anything to compare
  std::optional<Breach> breach;
};

Answer judge_vectors(const Case& c, Subject& subject, const Subjects& subjects, const VectorOptions& options) {
  Answer answer;
  auto failed = [&](string message) {
    answer.equal.clear();
    answer.breach.emplace();
    answer.breach->message = std::move(message);
    return answer;
  };
  const auto inputs = inputs_with(c.problem, c.given, subjects.reference());
  if (!inputs) return failed(inputs.error().text());
  const IsolatedRun run = run_isolated(subject, c.problem, *inputs, options.environment, options.timeout);
  if (run.status == IsolatedRun::Status::unsupported) return answer.unsupported = run.why, answer;
  if (!run.sound()) return failed(run.trouble());

  std::vector<PlaneData> made;        // of a split's members each alone, as the checks name them
  for (const PlaneData& plane : run.execution.planes)
    for (PlaneData& one : members_of(plane)) made.push_back(std::move(one));
  std::vector<PlaneData> got, want;   // of the first source, in causal order: what one screen is about
  for (const PlaneData& plane : made)
    for (const VectorCheck& check : c.checks)
      if (check.plane == plane.plane.name && check.source == c.checks.front().source && !find_plane(got, check.plane)) {
        got.push_back(plane);
        want.push_back(wanted(check, plane));
      }
  for (const VectorCheck& check : c.checks) {
    const PlaneData& plane = *find_plane(made, check.plane);
    if (plane.plane.logical.count() == 0 && check.want.empty()) {   // of a member without elements there is nothing to compare
      answer.equal.push_back(true);
      continue;
    }
    const Judgement one = judge(&c.problem, {plane}, {wanted(check, plane)});
    if (!one.error.empty()) return failed(one.error);
    answer.equal.push_back(one.equal() && one.padding.empty());
  }
  if (std::find(answer.equal.begin(), answer.equal.end(), false) != answer.equal.end())
    answer.breach = parity_breach(c.problem, judge(&c.problem, got, want), subject.name(), "vectors");
  return answer;
}

struct Counts {
  size_t passed = 0, failed = 0, skipped = 0, disputed = 0;
};

// Which sources a subject agrees with, per case and variant of a disputed file: {"c1", ""}: {"te_host": {3, 4}}.
using Agreement = std::map<std::pair<string, string>, std::map<string, std::pair<int, int>>>;

string join(const std::vector<string>& words) {
  string out;
  for (const string& w : words) out += (out.empty() ? "" : ", ") + w;
  return out.empty() ? "none" : out;
}

// What the file calls case "c1": the label of the case of that prefix, or the second word of a list of them.
string label_of(const IndexFile& entry, const string& in_case) {
  const json::Value* cases = entry.params.find("cases");
  if (!cases || !cases->array()) return {};
  for (const json::Value& one : *cases->array())
    if (one.text("prefix") == in_case + ".") return string(one.text("label"));
  for (size_t i = 0; i < cases->array()->size(); ++i)
    if (in_case == fmt::format("c{}", i) && (*cases->array())[i].string()) return *(*cases->array())[i].string();
  return {};
}

void print_agreement(const Agreement& agreement, const IndexFile& entry, std::string_view subject, std::ostream& out) {
  for (const auto& [which, sources] : agreement) {
    std::vector<string> with, against;
    for (const auto& [source, n] : sources) (n.first == n.second ? with : against).push_back(n.first == n.second ? source : fmt::format("{} ({} of {} tensors equal)", source, n.first, n.second));
    const auto& [in_case, variant] = which;
    if (const auto plain = agreement.find({in_case, ""}); !variant.empty() && plain != agreement.end() && plain->second == sources) continue;   // the keys change nothing here
    const string label = label_of(entry, in_case);
    string what(subject);
    for (const string& word : {in_case, label, variant})
      if (!word.empty()) what += " " + word;
    const std::string_view clauses = deciding_clauses(entry.family, label);
    out << fmt::format("          {}: agrees with {}{}{}\n", what, join(with), against.empty() ? "" : "; not with " + join(against),
                       clauses.empty() ? "" : fmt::format("; decided by {}", clauses));
  }
}

class Judge {
 public:
  Judge(const VectorOptions& options, const Subjects& subjects, std::ostream& out) : options_(options), subjects_(subjects), out_(out) {}

  // Judges every expected tensor of one file of a known family.
  void file(const IndexFile& entry, const safetensors::File& file, const string& path) {
    std::vector<Case> cases;
    std::vector<string> broken, tensors, trained;
    for (const IndexTensor& t : entry.tensors) {
      if (t.role != "expected" || !wanted_by_filter(entry, t.name)) continue;
      if (is_training_tensor(entry.family, t.name)) {
        trained.push_back(t.name);
        continue;
      }
      auto checks = checks_of(entry.family, file, entry.params, t.name, path, entry.sha256);
      if (!checks) {
        broken.push_back(t.name + ": " + checks.error().text());
        continue;
      }
      tensors.push_back(t.name);
      for (VectorCheck& check : *checks) add_check(cases, std::move(check));
    }
    if (tensors.empty() && broken.empty() && trained.empty()) return;
    Counts here;
    here.failed = broken.size();
    std::vector<string> screens, notes;
    for (const string& name : options_.subjects) {
      subject(entry, cases, tensors, *subjects_.find(name), here, screens, notes);
      for (const string& tensor : trained) training_tensor(entry, file, tensor, *subjects_.find(name), here, screens);
    }
    const bool nothing = here.passed + here.failed + here.disputed == 0;
    out_ << fmt::format("{}  {:<38} {:<28} {} tensors, {}\n", here.failed ? "FAILED  " : nothing ? "skipped " : entry.disputed() ? "disputed" : "passed  ", entry.file, entry.family,
                        tensors.size() + broken.size() + trained.size(), join(options_.subjects));
    for (const string& b : broken) out_ << "  " << b << "\n";
    for (const string& n : notes) out_ << n;
    for (const string& s : screens) out_ << s;
    out_.flush();   // what is judged is seen, whatever happens to the next file
    counts_.passed += here.passed;
    counts_.failed += here.failed;
    counts_.skipped += here.skipped;
    counts_.disputed += here.disputed;
  }

  // Judges every record of one file; false where it cannot be read.
  bool records(const IndexFile& entry, const string& path, std::ostream& err) {
    if (const auto mapped = MappedFile::open(path); mapped && !entry.sha256.empty() && sha256(mapped->bytes()) != entry.sha256) {
      err << "error: " << path << ": sha256 is " << sha256(mapped->bytes()) << ", the index says " << entry.sha256 << "\n";
      return false;
    }
    for (const string& name : options_.subjects) {
      const auto n = judge_witness(path, entry.family, options_.filter, *subjects_.find(name), out_);
      if (!n) {
        err << "error: " << printable(n.error().text()) << "\n";
        return false;
      }
      out_.flush();
      counts_.passed += n->passed;
      counts_.failed += n->failed;
    }
    return true;
  }

  bool wanted_by_filter(const IndexFile& entry, const string& tensor) const { return (entry.file + "#" + tensor).find(options_.filter) != string::npos; }
  Counts& counts() { return counts_; }

 private:
  void subject(const IndexFile& entry, const std::vector<Case>& cases, const std::vector<string>& tensors, Subject& subject, Counts& here, std::vector<string>& screens,
               std::vector<string>& notes) {
    std::map<string, bool> equal;          // by tensor; absent: not judged
    std::map<string, string> unsupported;
    Agreement agreement;
    for (const Case& c : cases) {
      const Answer answer = judge_vectors(c, subject, subjects_, options_);
      if (answer.unsupported) {
        for (const VectorCheck& check : c.checks) unsupported[base(check.tensor)] = *answer.unsupported;
        continue;
      }
      bool all = true;
      for (size_t i = 0; i < c.checks.size(); ++i) {
        const bool ok = !answer.equal.empty() && answer.equal[i];
        const VectorCheck& check = c.checks[i];
        const auto [at, fresh] = equal.try_emplace(base(check.tensor), ok);
        if (!fresh) at->second &= ok;
        all &= ok;
        if (entry.disputed()) {
          auto& n = agreement[{check.in_case, check.variant}][check.source.empty() ? "the vectors" : check.source];
          n.first += ok;
          ++n.second;
        }
      }
      if (all || entry.disputed()) continue;
      screens.push_back(screen(entry, c, subject, answer));
    }
    for (const string& tensor : tensors) {
      const auto judged = equal.find(tensor);
      if (judged == equal.end()) {
        ++here.skipped;
        notes.push_back(fmt::format("          {} does not run {}: {}\n", subject.name(), tensor, unsupported[tensor]));
      } else if (entry.disputed()) {
        ++here.disputed;
      } else {
        ++(judged->second ? here.passed : here.failed);
      }
    }
    std::ostringstream agreed;
    print_agreement(agreement, entry, subject.name(), agreed);
    if (!agreed.str().empty()) notes.push_back(agreed.str());
  }

  void training_tensor(const IndexFile& entry, const safetensors::File& file, const string& tensor, Subject& subject, Counts& here, std::vector<string>& screens) const {
    const auto difference = training_difference(entry.family, file, entry.params, tensor, subject);
    if (difference && difference->empty()) {
      ++here.passed;
      return;
    }
    ++here.failed;
    screens.push_back(fmt::format("\nFAILED  {}\n  the training layer\n  claim    {} == vectors\n  tensor   {}\n  cause    {}\n{}", entry.file, subject.name(), tensor,
                                  difference ? *difference : "no answer: " + difference.error().text(), repro(entry, tensor, subject)));
  }

  string repro(const IndexFile& entry, const string& tensor, Subject& subject) const {
    return fmt::format("  repro    assay vectors {} --subject {} --filter '{}#{}'\n\n", options_.directory, subject.name(), entry.file, tensor);
  }

  static string base(const string& tensor) { return tensor.substr(0, tensor.find('[')); }

  string screen(const IndexFile& entry, const Case& c, Subject& subject, const Answer& answer) const {
    string out = fmt::format("\nFAILED  {}\n  {}\n  claim    {} == vectors\n", entry.file, to_line(c.problem), subject.name());
    string first;
    for (size_t i = 0; i < c.checks.size(); ++i)
      if (answer.equal.empty() || !answer.equal[i]) {
        out += fmt::format("  tensor   {} ({})\n", c.checks[i].tensor, c.checks[i].plane);
        if (first.empty()) first = base(c.checks[i].tensor);
      }
    if (answer.breach) out += cause_text(*answer.breach);
    return out + repro(entry, first, subject);
  }

  const VectorOptions& options_;
  const Subjects& subjects_;
  std::ostream& out_;
  Counts counts_;
};

}  // namespace

int run_vectors(const VectorOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  for (const string& name : options.subjects) {
    Subject* s = subjects.find(name);
    if (!s) {
      err << "error: no subject '" << name << "'\n";
      return 2;
    }
    if (const Support here = present_in_child(*s); !here.yes) {
      err << "error: subject " << name << " is absent: " << here.why << "\n";
      return 3;
    }
  }
  auto index = read_index(options.directory);
  if (!index) {
    err << "error: " << printable(index.error().text()) << "\n";
    return 2;
  }
  Judge judge(options, subjects, out);
  std::map<string, std::pair<size_t, size_t>> unknown;   // family: files, tensors
  bool unreadable = false;
  for (IndexFile& entry : *index) {
    if (is_witness_family(entry.family)) {
      if (!judge.records(entry, options.directory + "/" + entry.file, err)) unreadable = true;
      continue;
    }
    if (!known_family(entry.family)) {
      auto& [files, tensors] = unknown[entry.family];
      size_t here = 0;
      for (const IndexTensor& t : entry.tensors) here += t.role == "expected" && judge.wanted_by_filter(entry, t.name);
      files += here > 0;
      tensors += here;
      continue;
    }
    const string path = options.directory + "/" + entry.file;
    const auto file = open_file(path, entry);
    if (!file) {
      err << "error: " << printable(file.error().text()) << "\n";
      unreadable = true;
      continue;
    }
    judge.file(entry, *file, path);
  }
  Counts& counts = judge.counts();
  for (const auto& [family, n] : unknown) {
    if (n.second == 0) continue;
    out << fmt::format("skipped   {:<38} {} tensors in {} files: Assay has no such family\n", family, n.second, n.first);
    counts.skipped += n.second;
  }
  if (counts.disputed) out << fmt::format("{} results on tensors whose sources disagree: reported, not counted\n", counts.disputed);
  out << fmt::format("{} passed, {} failed, {} skipped\n", counts.passed, counts.failed, counts.skipped);
  if (unreadable) return 2;
  if (counts.failed) return 1;
  return counts.passed ? 0 : 3;
}

}  // namespace assay

#include "compare/commands/vectors.h"

#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/text/printable.h"
#include "compare/witness/records/records.h"
#include "compare/witness/vectors/checks.h"
#include "compare/witness/vectors/table.h"
#include "compare/witness/vectors/training.h"

namespace assay {

using std::string;

namespace {

// The exit status for a subject that is unknown or absent; 0: all are present.
int check_present(const VectorOptions& options, const Subjects& subjects, std::ostream& err) {
  for (const string& name : options.subjects) {
    Subject* s = subjects.find(name);
    if (!s) {
      err << "assay: no subject '" << name << "'\n";
      return 2;
    }
    if (const Support here = present_in_child(*s); !here.yes) {
      err << "assay: subject " << name << " is absent: " << here.why << "\n";
      return 3;
    }
  }
  return 0;
}

// One file of records, or of vectors of a known family. Error: it cannot be read.
std::optional<Error> judge_file(IndexFile& entry, const VectorOptions& options, const Subjects& subjects,
                                std::ostream& out, VectorCounts& counts) {
  const string path = options.directory + "/" + entry.file;
  if (is_witness_family(entry.family)) return judge_record_file(entry, path, options, subjects, out, counts);
  const auto file = open_file(path, entry);
  if (!file) return file.error();
  counts += judge_vector_file(entry, *file, path, options, subjects, out);
  return std::nullopt;
}

// Expected tensors of a family that Assay does not know, and the files that hold them.
struct Unknown {
  size_t files = 0, tensors = 0;

  void add(const IndexFile& entry, const VectorOptions& options) {
    size_t here = 0;
    for (const IndexTensor& t : entry.tensors) here += t.role == "expected" && options.wants(entry, t.name);
    files += here > 0;
    tensors += here;
  }
};

}  // namespace

int run_vectors(const VectorOptions& options, const Subjects& subjects, std::ostream& out,
                std::ostream& err) {
  if (const int status = check_present(options, subjects, err)) return status;
  auto index = read_index(options.directory);
  if (!index) {
    err << "assay: " << printable(index.error().text()) << "\n";
    return 2;
  }
  VectorCounts counts;
  std::map<string, Unknown> unknown;  // by family
  bool unreadable = false;
  size_t files = 0;
  const InterruptScope scope;
  for (IndexFile& entry : *index) {
    if (interrupted() || counts.cut_short) break;
    if (!is_witness_family(entry.family) && !known_family(entry.family)) {
      unknown[entry.family].add(entry, options);
      ++files;
      continue;
    }
    if (const auto error = judge_file(entry, options, subjects, out, counts)) {
      err << "assay: " << printable(error->text()) << "\n";
      unreadable = true;
    }
    files += !counts.cut_short;
  }
  for (const auto& [family, n] : unknown) {
    if (n.tensors == 0) continue;
    out << fmt::format("skipped   {:<38} {} tensors in {} files: Assay has no such family\n", family,
                       n.tensors, n.files);
    counts.skipped += n.tensors;
  }
  if (counts.disputed)
    out << fmt::format("{} results on tensors whose sources disagree: reported, not counted\n",
                       counts.disputed);
  const bool cut_short = files < index->size();
  if (cut_short)
    out << fmt::format("interrupted: {} of {} files were judged to the end\n", files, index->size());
  out << fmt::format("{} passed, {} failed, {} skipped\n", counts.passed, counts.failed, counts.skipped);
  if (unreadable) return 2;
  if (counts.failed) return 1;
  if (cut_short) return kInterrupted;
  return counts.passed ? 0 : 3;
}

void register_vectors(Program& program) {
  const auto vectors = std::make_shared<VectorOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "vectors", "judge the subjects by third-party vectors");
  c.footer(
      "Examples:\n"
      "  assay vectors fixtures/vectors\n"
      "  assay vectors fixtures/vectors --filter mxfp8 --subject reference\n"
      "Exit status: 0 every tensor that was judged is equal; 1 one is not; 2 bad input; 3 nothing was "
      "judged; 130 "
      "it was interrupted before anything failed.");
  c.option("directory", vectors->directory, "safetensors files with an index.json").required();
  c.option("--filter", vectors->filter, "only tensors whose <file>#<tensor> contains this");
  add_subjects(c, common, "reference,host");
  add_environment(c, common);
  add_timeout(c, common);
  c.callback([&program, vectors] {
    const Subjects subjects = program.make_subjects(program.common);
    vectors->subjects = chosen_subjects(program.common, subjects, "reference,host");
    vectors->environment = environment_of(program.common);
    vectors->timeout = program.common.timeout;
    program.status = run_vectors(*vectors, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay

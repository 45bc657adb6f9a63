#include "compare/commands/record.h"

#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/judge/judge.h"
#include "compare/judge/runs.h"
#include "compare/process/answer.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/report/build.h"
#include "compare/report/doctor.h"
#include "fixtures/json.h"

namespace assay {

namespace {

// What a worker sends: a JSON head {"digests": [...], "bytes": true, "unpinned": why} or
// {"unsupported"|"failed": why}, a line end, and the planes' bytes.
std::string record_one(const SuiteEntry& entry, Subject& subject, Subject& reference,
                       const RecordOptions& options) {
  auto only = [](const char* key, const std::string& why) {
    return json::dump(json::object({{key, why}})) + "\n";
  };
  const Problem& p = entry.problem;
  if (writes_nothing(p)) return only("unsupported", "nothing is written under this noop flag");
  for (Subject* s : {&subject, &reference})
    if (const Support support = s->supports(p); !support.yes) return only("unsupported", support.why);
  const Result<std::vector<PlaneData>> inputs = make_inputs(p, reference);
  if (!inputs) return only("failed", inputs.error().text());
  Execution run = execute(subject, p, *inputs, options.environment);
  for (PlaneData& plane : run.planes) clear_spare(plane);  // else a recording would be of its poison
  if (run.error) return only("failed", *run.error);
  if (run.trespass) return only("failed", *run.trespass);
  size_t total = 0;
  for (const PlaneData& plane : run.planes) total += plane.bytes.size();
  bool whole = total <= kSmallCaseBytes || options.all_bytes;
  if (!whole && &subject != &reference) {
    const Execution want = execute(reference, p, *inputs, options.environment);
    const Judgement j = judge(&p, run.planes, want.planes);
    whole = want.error || !j.equal() || !j.padding.empty();
  }
  whole = whole && total <= kMostCaseBytes;
  json::Value digests = json::array();
  for (const PlaneData& plane : run.planes) digests.push(digest(plane.bytes));
  json::Value head = json::object({{"digests", digests}, {"bytes", whole}});
  if (const auto unpinned = subject.unpinned(p)) head.set("unpinned", *unpinned);
  std::string out = json::dump(head) + "\n";
  if (whole)
    for (const PlaneData& plane : run.planes)
      out.append(reinterpret_cast<const char*>(plane.bytes.data()), plane.bytes.size());
  return out;
}

Recorded not_recorded(std::string why) {
  Recorded out;
  out.failed = std::move(why);
  return out;
}

}  // namespace

Recorded recorded_from(const std::string& text, const Problem& problem) {
  const Recorded unreadable = not_recorded("the worker's answer cannot be read");
  const size_t end = text.find('\n');
  const Result<json::Value> head = json::parse(std::string_view(text).substr(0, end));
  if (!head || end == std::string::npos) return unreadable;
  Answer said(*head);
  if (head->find("failed")) {
    const std::string why = said.text("failed");
    return said.whole() ? not_recorded(why) : unreadable;
  }
  Recorded out;
  out.unsupported = head->find("unsupported");
  if (out.unsupported) return out;
  const std::vector<std::string> digests = said.texts("digests");
  const bool bytes_follow = said.truth("bytes");
  if (head->find("unpinned")) out.unpinned = said.text("unpinned");
  std::vector<Plane> planes = output_planes(problem);
  if (!said.whole() || digests.size() != planes.size()) return unreadable;
  std::string_view left = std::string_view(text).substr(end + 1);
  for (size_t i = 0; i < planes.size(); ++i) {
    RecordedPlane recorded{std::move(planes[i]), digests[i], {}};
    if (bytes_follow) {
      const size_t bytes = recorded.plane.bytes();
      if (left.size() < bytes) return unreadable;
      recorded.bytes.emplace(bytes);
      if (bytes) std::memcpy(recorded.bytes->data(), left.data(), bytes);
      left.remove_prefix(bytes);
    }
    out.planes.push_back(std::move(recorded));
  }
  return left.empty() ? out : unreadable;
}

int run_record(const RecordOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  if (const auto error = cannot_write(options.output, "--output")) {
    fmt::print(err, "assay: {}\n", error->text());
    return 2;
  }
  Subject& reference = subjects.reference();
  Subject& subject = *subjects.find(options.subject);
  PackWriter writer(options.output, options.subject, options.environment, options.fingerprint,
                    options.kernels);
  size_t failed = 0, skipped = 0;
  std::optional<Error> trouble;
  TaskHooks hooks;
  hooks.task = [&](size_t i) { return record_one(options.entries[i], subject, reference, options); };
  hooks.crashed = [](const std::string& why) { return json::dump(json::object({{"failed", why}})) + "\n"; };
  hooks.result = [&](size_t i, const std::string& text) {
    const SuiteEntry& entry = options.entries[i];
    const Recorded recorded = recorded_from(text, entry.problem);
    if (recorded.failed) {
      ++failed;
      fmt::print(err, "not recorded  {}  {}\n", entry.text, *recorded.failed);
    } else if (recorded.unsupported) {
      ++skipped;
    } else {
      trouble = writer.add(entry.problem, recorded.planes, recorded.unpinned);
    }
    return !trouble;
  };
  const InterruptScope scope;
  const size_t done = run_tasks(options.entries.size(), options.jobs, options.timeout, std::move(hooks));
  const bool cut_short = interrupted() && done < options.entries.size();
  // A recording of nothing must not take the place of an earlier one.
  if (!trouble && !(cut_short && writer.cases() == 0)) trouble = writer.finish();
  if (trouble) {
    fmt::print(err, "assay: {}\n", trouble->text());
    return 2;
  }
  if (cut_short)
    fmt::print(out, "interrupted: {} of {} cases were reached; {}\n", done, options.entries.size(),
               writer.cases() ? options.output + " holds those that were recorded" : "nothing was written");
  fmt::print(out, "{} passed, {} failed, {} skipped\n", writer.cases(), failed, skipped);
  return failed ? 1 : cut_short ? kInterrupted : writer.cases() ? 0 : 3;
}

void register_record(Program& program) {
  const auto record = std::make_shared<RecordOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "record", "write a subject's outputs, to be judged elsewhere");
  c.footer(
      "Examples:\n"
      "  assay record ci --subject gpu -o gpu.safetensors\n"
      "  assay record smoke --subject reference --all-bytes -o smoke.safetensors\n"
      "Exit status: 0; 1 a case could not be recorded; 2 bad usage, or the pack cannot be written; 3 nothing "
      "was "
      "recorded; 130 it was interrupted before anything failed, and the pack holds what was recorded until "
      "then.");
  add_what(c, common);
  add_subjects(c, common, "host");
  c.option("--output,-o", record->output, "the pack; more than 12 MiB go to <name>.1.safetensors, ...")
      .required();
  c.flag("--all-bytes", record->all_bytes,
         "bytes of every case up to 8 MiB, not only of small and failing ones");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  c.callback([&program, record] {
    const CommonOptions& common = program.common;
    const Subjects subjects = program.make_subjects(common);
    take_subject(*record, common, subjects);
    record->jobs = common.jobs;
    const std::vector<Subject*> all = pointers(subjects);
    const Result<std::string> print = in_child([&] { return fingerprint(all); }, 60);
    record->fingerprint = print ? *print : "unknown";
    record->kernels = build::kKernels;
    record->entries = entries_of(common);
    refuse_too_large(record->entries);
    program.status = run_record(*record, subjects, stdout, stderr);
  });
}

}  // namespace assay

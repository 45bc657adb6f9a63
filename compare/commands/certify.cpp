#include "compare/commands/certify.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include <unistd.h>

#include <fmt/format.h>

#include "compare/commands/certify/certificate.h"
#include "compare/commands/certify/plan.h"
#include "compare/commands/certify/screen.h"
#include "compare/commands/certify/task.h"
#include "compare/commands/options.h"
#include "compare/commands/sharing.h"
#include "compare/commands/simd_certificate.h"
#include "compare/process/crew.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/text/terminal.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

constexpr size_t kKeptFailures = 3;  // of one claim

std::vector<CertifyPart> chosen_parts(const CertifyOptions& options) {
  std::vector<CertifyPart> parts = options.parts.empty() ? certify_parts(options.extent) : options.parts;
  std::erase_if(parts, [&](const CertifyPart& p) { return p.name.find(options.only) == std::string::npos; });
  return parts;
}

class CertifyRun {
 public:
  CertifyRun(const CertifyOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err)
      : options_(options),
        subjects_(subjects),
        out_(out),
        err_(err),
        certificate_(options.output, options.extent, options.only),
        progress_(err, options.progress) {}

  int run(std::vector<CertifyPart> parts) {
    std::map<std::string, json::Value> earlier;
    if (options_.resume) {
      if (options_.output.empty()) return refuse({"--resume continues the certificate that -o names", 0, ""});
      Result<std::map<std::string, json::Value>> found = certificate_.earlier();
      if (!found) return refuse(found.error());
      earlier = std::move(*found);
    }
    plan_ = make_plan(std::move(parts), options_.subjects, subjects_, earlier);
    const KeptResults kept{options_.kept.folder, digest()};
    if (crew()) crew()->agree_on(kept.digest);
    Result<std::unique_ptr<Journal>> journal = journal_of(kept, err_);
    if (!journal) return refuse(journal.error());
    journal_ = std::move(*journal);
    weight_ = plan_.weight();
    for (size_t i = 0; i < plan_.parts.size(); ++i)
      if (plan_.records[i].tasks == 0) close(i);  // nothing runs, or it is taken over
    // Before an hour is spent on what cannot be kept, and not before all that was taken over is in it.
    save();
    if (!unwritten_) run_plan();
    progress_.wipe();
    if (!unwritten_) unwritten_ = certificate_.write(!interrupted(), totals_, jobs(), seconds());
    if (!unwritten_ && interrupted() && journal_) unwritten_ = journal_->trouble();
    if (unwritten_) return refuse(*unwritten_);
    if (journal_ && !interrupted()) journal_->remove();  // all is in the certificate now
    return finish();
  }

  // What each part costs, by samples from all of it, in processor time.
  int estimate(std::vector<CertifyPart> parts) {
    plan_ = make_plan(std::move(parts), options_.subjects, subjects_, {});
    double all = 0;
    for (size_t i = 0; i < plan_.parts.size() && !interrupted(); ++i) {
      const CertifyPart& part = plan_.parts[i];
      if (plan_.records[i].runs.empty()) continue;
      const auto text = in_child([&] { return sampled_seconds(part, plan_.running(i)); }, options_.timeout);
      if (!text) return refuse({part.name + ": " + text.error().text(), 0, ""});
      const double hours = std::strtod(text->c_str(), nullptr) / 3600;
      all += hours;
      fmt::print(out_, "{:<72} {:>10}  {:10.5f} core-hours\n", part.name, part.domain.count, hours);
      std::fflush(out_);
    }
    fmt::print(out_, "{:.2f} core-hours in all, {} with {} workers\n", all,
               duration_text(3600 * all / jobs()), jobs());
    return interrupted() ? kInterrupted : 0;
  }

  // Runs the tasks that the first process hands out.
  int serve(std::vector<CertifyPart> parts) {
    plan_ = make_plan(std::move(parts), options_.subjects, subjects_, {});
    crew()->serve([&](size_t i) { return task_text(i); }, jobs(), options_.timeout, digest());
    return 0;
  }

 private:
  std::string digest() const {
    const std::string all = options_.kept.digest + plan_.text();
    return sha256(std::as_bytes(std::span(all)));
  }
  std::string task_text(size_t i) const {
    const CertifyTask& t = plan_.tasks[i];
    return to_text(run_task(plan_.parts[t.part], plan_.running(t.part), t.first, t.end, subjects_));
  }
  std::string sampled_seconds(const CertifyPart& part, const std::vector<CertifySide>& sides) const {
    // Eight samples, evenly spaced: between two powers of two an element costs more than among NaNs.
    constexpr int64_t kSamples = 8, kWarm = 256;
    const int64_t apart = std::max<int64_t>(part.domain.count / kSamples, 1),
                  n = std::min(part.piece / 2 / kSamples, apart);
    run_task(part, sides, 0, std::min(kWarm, n), subjects_);  // what happens once
    const std::clock_t start = std::clock();
    int64_t sampled = 0;
    for (int64_t first = (apart - n) / 2; first + n <= part.domain.count && sampled < kSamples * n;
         first += apart) {
      run_task(part, sides, first, first + n, subjects_);
      sampled += n;
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    return std::to_string(seconds * static_cast<double>(part.domain.count) / static_cast<double>(sampled));
  }

  int jobs() const {
    return options_.jobs > 0 ? options_.jobs : std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  int refuse(const Error& e) {
    progress_.wipe();
    fmt::print(err_, "assay: {}\n", e.text());
    return 2;
  }

  void run_plan() {
    TaskHooks hooks;
    const auto taken = [&](size_t i) { return !plan_.records[plan_.tasks[i].part].taken.is_null(); };
    hooks.numbered = NumberedTasks{0, journal_.get(), taken};
    hooks.task = [&](size_t i) { return task_text(i); };
    hooks.crashed = [](const std::string& why) {
      TaskResult r;
      r.trouble = "crashed: " + why;
      return to_text(r);
    };
    hooks.result = [&](size_t i, const std::string& text) {
      if (!taken(i)) take(plan_.tasks[i], task_from(text, plan_.records[plan_.tasks[i].part].runs.size()));
      return !unwritten_;
    };
    run_tasks(plan_.tasks.size(), jobs(), options_.timeout, std::move(hooks));
  }

  void take(const CertifyTask& task, const TaskResult& r) {
    PartRecord& record = plan_.records[task.part];
    const CertifyPart& part = plan_.parts[task.part];
    record.digests += r.digests;
    record.hashes += r.hashes;
    record.seconds += r.seconds;
    if (record.law.empty()) record.law = r.law;
    if (!r.trouble.empty() && record.trouble.empty())
      record.trouble = fmt::format("{}; in elements {} to {} of: {}", r.trouble, task.first, task.end - 1,
                                   part.domain.words);
    for (size_t i = 0; i < r.sides.size(); ++i) {
      ClaimRecord& claim = record.claims[record.runs[i]];
      claim.compared += task.end - task.first;
      claim.differ += r.sides[i].differ;
      if (!r.sides[i].failure.is_null() && claim.failures.size() < kKeptFailures)
        claim.failures.push_back(r.sides[i].failure);
    }
    done_ += plan_.weight(task);
    if (++record.done == record.tasks) {
      close(task.part);
      save();
    } else {
      progress(part.name);
    }
  }

  void save() {
    if (!unwritten_) unwritten_ = certificate_.write(false, totals_, jobs(), seconds());
  }

  // The part has ended: judges and prints it, and puts it into the certificate.
  void close(size_t index) {
    const CertifyPart& part = plan_.parts[index];
    PartRecord& record = plan_.records[index];
    progress_.wipe();
    json::Value entry = record.taken.is_null() ? part_entry(part, record) : record.taken;
    fmt::print(out_, "{}", part_text(part, record, entry, subjects_, options_.colour, totals_));
    std::fflush(out_);
    record.digests.clear();
    record.hashes.clear();
    certificate_.add(std::move(entry), record.seconds);
  }

  int finish() {
    for (const auto& [reason, count] : totals_.skip_reasons)
      fmt::print(out_, "skipped {}: {}\n", count, reason);
    if (!options_.output.empty()) fmt::print(out_, "certificate: {}\n", options_.output);
    const size_t parts = plan_.parts.size();
    fmt::print(out_, "{} in {}\n", parts == 1 ? "1 part" : fmt::format("{} parts", parts),
               duration_text(seconds()));
    if (interrupted())
      fmt::print(out_, "interrupted: {:.0f} % was compared; --resume continues\n",
                 100 * done_ / std::max(weight_, 1e-9));
    fmt::print(out_, "{}\n", totals_.last_line());
    const int status = totals_.exit_status();
    return interrupted() && status != 1 ? kInterrupted : status;
  }

  void progress(const std::string& name) {
    const double share = done_ / weight_, left = share > 0 ? seconds() * (1 - share) / share : 0;
    progress_.show(
        fmt::format("{:3.0f} %  {}  {} left", 100 * share, name.substr(0, 70), duration_text(left)));
  }

  const CertifyOptions& options_;
  const Subjects& subjects_;
  std::FILE *out_, *err_;
  std::unique_ptr<Journal> journal_;
  Certificate certificate_;
  ProgressLine progress_;
  CertifyPlan plan_;
  Totals totals_;
  double weight_ = 0, done_ = 0;
  std::optional<Error> unwritten_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

int run_certify(const CertifyOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  if (std::find(options.subjects.begin(), options.subjects.end(), "reference") != options.subjects.end()) {
    fmt::print(err, "assay: every subject is compared with the reference; name another --subject\n");
    return 2;
  }
  std::vector<CertifyPart> parts = chosen_parts(options);
  if (parts.empty()) {
    const Error none{fmt::format("no part of the certificate contains '{}'", options.only), 0,
                     "assay certify --list names them"};
    fmt::print(err, "assay: {}\n", none.text());
    return 2;
  }
  if (options.list) {
    for (const CertifyPart& p : parts)
      fmt::print(out, "{:<64} {:>10}  {}\n", p.name, p.domain.count, p.domain.words);
    return 0;
  }
  if (options.estimate) {
    const InterruptScope scope;
    return serves() ? 0 : CertifyRun(options, subjects, out, err).estimate(std::move(parts));
  }
  if (serves()) {
    CertifyOptions silent = options;
    silent.output.clear();
    return CertifyRun(silent, subjects, out, err).serve(std::move(parts));
  }
  if (const auto error = options.output.empty() ? std::nullopt : cannot_write(options.output, "--output")) {
    fmt::print(err, "assay: {}\n", error->text());
    return 2;
  }
  if (options.extent == CertifyExtent::full && options.only.empty() && options.parts.empty())
    fmt::print(
        err,
        "assay: the full certificate takes four to ten core-hours; assay certify --full --estimate says "
        "what each part costs here\n");
  const InterruptScope scope;
  return CertifyRun(options, subjects, out, err).run(std::move(parts));
}

namespace {

// `assay certify --simd`: the vectorised method alone, with the best instructions of this machine; that it
// passed whole is kept for `assay check`.
int run_simd(CertifyOptions options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  Acceptor* const acceptor = acceptor_of(subjects);
  if (!acceptor) {
    const Subject* simd = subjects.find("simd");
    fmt::print(err, "assay: there is nothing to certify: {}\n",
               simd ? simd->present().why : "this program has no subject simd");
    return 3;
  }
  std::set<std::string, std::less<>> all;
  for (const std::string_view target : acceptor->uncertified()) all.emplace(target);
  acceptor->use_certified(all);
  options.subjects = {"simd", "simd_accepts"};
  const int status = run_certify(options, subjects, out, err);
  if (status != 0 || serves() || options.list || options.estimate) return status;  // these judged nothing
  const bool whole = options.extent != CertifyExtent::quick && options.only.empty();
  if (whole)
    fmt::print(err, "{}: {}\n", acceptor->target(), keep_certificate(simd_certificate_path(), *acceptor));
  else
    fmt::print(err,
               "{}: not kept for `assay check`, which takes the whole certificate: assay certify --simd\n",
               acceptor->target());
  return 0;
}

// One option of two that exclude each other.
void ask(CertifyExtent& extent, CertifyExtent wanted) {
  if (extent != CertifyExtent::floats && extent != wanted) throw Refusal{"give one of --quick and --full"};
  extent = wanted;
}

}  // namespace

void register_certify(Program& program) {
  const auto certify = std::make_shared<CertifyOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "certify",
            "the exhaustive certificate: every float, every code, every amax (docs/certify.md)");
  c.footer(
      "Examples:\n"
      "  assay certify --quick\n"
      "  assay certify -o certificate.json\n"
      "  assay certify --only 'cast e4m3 f32' -o e4m3.json --resume\n"
      "  assay certify --list\n"
      "  assay certify --estimate --jobs 8\n"
      "  mpirun -n 64 build/mpi/bin/assay certify --mpi -o certificate.json --resume\n"
      "  assay certify --quick --subject gpu\n"
      "  assay certify --full --estimate\n"
      "  mpirun -n 64 build/mpi/bin/assay certify --full --mpi -o full.json --resume\n"
      "  assay certify --simd      what `assay check` may use on this processor\n"
      "Exit status: 0 every claim holds; 1 a claim does not hold; 2 bad usage, or a certificate that cannot "
      "be written; 3 nothing was compared; 130 it was interrupted, and what was compared until then holds.");
  c.flag(
      "--quick", [&extent = certify->extent] { ask(extent, CertifyExtent::quick); },
      "rounding boundaries instead of every float: for continuous integration");
  c.flag(
      "--full", [&extent = certify->extent] { ask(extent, CertifyExtent::full); },
      "whatever can be counted: also every 16-bit amax with the elements under its scale, every amax of "
      "binary32, every pair of 16-bit amaxes, by MPFR and every other method; four to ten core-hours: see "
      "--estimate first");
  c.flag(
      "--simd", certify->simd,
      "the vectorised method alone, with the widest instructions of this processor; that it passed is kept, "
      "and `assay check` may use them from then on");
  c.option("--output,-o", certify->output, "write the certificate here as JSON, again after every part");
  c.option("--only", certify->only, "only parts whose name contains this");
  c.flag("--list", certify->list, "print the parts and their inputs");
  c.flag("--resume", certify->resume,
         "keep the parts that the certificate at -o already holds, if the same build made them, and every "
         "result of the others beside it until it is whole");
  c.flag("--estimate", certify->estimate,
         "print what each part would cost here, by samples, and run nothing else");
  add_mpi(c, certify->mpi);
  add_subjects(c, common, "those that each part names");
  c.option("--timeout", certify->timeout, "time limit for 2^22 elements, in seconds")
      .seconds()
      .show_default();
  add_jobs(c, common);
  c.callback([&program, certify] {
    if (certify->simd && certify->extent == CertifyExtent::full)
      throw Refusal{"--full holds what --simd asks; give one of them"};
    settle(certify->mpi, program);
    const Subjects subjects = program.make_subjects(program.common);
    certify->subjects = chosen_subjects(program.common, subjects, "");
    certify->jobs = program.common.jobs;
    certify->progress = program.progress;
    certify->colour = program.colour;
    if (certify->resume && !certify->output.empty()) certify->kept.folder = certify->output + ".results";
    certify->kept.digest = digest_of(certify->kept, program.common, "certify");
    program.status = certify->simd ? run_simd(*certify, subjects, stdout, stderr)
                                   : run_certify(*certify, subjects, stdout, stderr);
  });
}

}  // namespace assay

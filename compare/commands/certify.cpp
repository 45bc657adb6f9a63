#include "compare/commands/certify.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <unistd.h>

#include <fmt/format.h>

#include "compare/report/build.h"
#include "compare/arithmetic/codes.h"
#include "compare/report/doctor.h"
#include "compare/judge/judge.h"
#include "compare/report/report.h"
#include "compare/judge/cases.h"
#include "compare/process/pool.h"
#include "compare/report/screen.h"
#include "contract/line.h"
#include "contract/words.h"
#include "fixtures/files.h"
#include "fixtures/fill.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

// What is run at once stays in a core's cache; what a worker is given at once takes a fraction of a second. Fingerprints are made of pieces.
constexpr int64_t kPiece = int64_t{1} << 18, kTask = int64_t{1} << 22;
constexpr size_t kKeptFailures = 3;   // of one claim
constexpr uint8_t kReferencePoison = 0x80;   // not that of any side: a byte that nobody writes differs

// ---- one piece ---------------------------------------------------------------------------------------------------------

// To tell results apart, not to protect them: eight streams of 64-bit words, each multiplied and mixed. Two results that differ in one
// word have other digests.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    size_t at = 0;
    for (; at + sizeof state_ <= bytes.size(); at += sizeof state_) mix(bytes.data() + at);
    std::array<std::byte, sizeof state_> rest{};
    std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), rest.begin());
    rest.back() ^= static_cast<std::byte>(bytes.size() - at);
    mix(rest.data());
  }
  // 32 hex digits.
  std::string text() const { return sha256(std::as_bytes(std::span(state_))).substr(0, 32); }

 private:
  void mix(const std::byte* block) {
    for (size_t lane = 0; lane < state_.size(); ++lane) {
      uint64_t word;
      std::memcpy(&word, block + 8 * lane, 8);
      const uint64_t h = (state_[lane] ^ word) * 0x9E3779B97F4A7C15;
      state_[lane] = h ^ h >> 29;
    }
  }
  std::array<uint64_t, 8> state_{1, 2, 3, 4, 5, 6, 7, 8};
};

// A run of one subject on planes that stay where they are: thousands of runs share one allocation.
class Bench {
 public:
  Bench(const Problem& problem, const std::vector<PlaneData>& inputs) : problem_(problem), inputs_(inputs) {
    for (Plane& plane : output_planes(problem)) {
      const size_t bytes = plane.bytes();
      outputs_.push_back({std::move(plane), std::vector<std::byte>(bytes)});
    }
  }
  const std::vector<PlaneData>& outputs() const { return outputs_; }

  // What the subject threw, or an empty string.
  std::string run(Subject& subject, const Environment& environment) {
    std::vector<Buffer> to;
    for (PlaneData& p : outputs_) {
      std::fill(p.bytes.begin(), p.bytes.end(), std::byte{environment.poison});
      to.push_back({&p.plane, p.bytes});
    }
    try {
      subject.run(problem_, views(inputs_), to, environment);
    } catch (const std::exception& e) {
      return fmt::format("threw: {}", e.what());
    } catch (...) {
      return "threw an exception that is no std::exception";
    }
    return {};
  }

 private:
  const Problem& problem_;
  const std::vector<PlaneData>& inputs_;
  std::vector<PlaneData> outputs_;
};

bool same(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].bytes.empty() && std::memcmp(a[i].bytes.data(), b[i].bytes.data(), a[i].bytes.size()) != 0) return false;
  return true;
}

// One claim over a task's elements.
struct SideResult {
  int64_t differ = 0;                // elements of output planes
  json::Value failure;               // of the first: {"line", "verdict"} or {"text"}; null: none
};

json::Value failure_text(std::string text) { return json::object({{"text", std::move(text)}}); }

// Everything that a worker needs to judge a part.
struct Judged {
  const CertifyPart& part;
  std::vector<CertifySide> sides;    // those that run here
};

// The element or row of x that the first difference belongs to.
int64_t first_unit(const CertifyPart& part, const Problem& problem, const PlaneDifference& d) {
  const Region g = region_of(&problem, d.plane, d.place);
  return part.by_rows ? g.row0 : g.col0;
}

// A line of a few elements that fails as the piece of n does, by itself: its inputs are those of the piece around `unit`. Windows grow, as kernels
// treat whole vectors differently.
std::optional<json::Value> narrowed_failure(const CertifyPart& part, const CertifySide& side, const std::vector<PlaneData>& inputs, int64_t n,
                                            int64_t unit, const Subjects& subjects) {
  const int64_t width = part.by_rows ? part.problem.x.shape.cols : 1;
  const PlaneData* x = find_plane(inputs, "x");
  if (!x) return {};
  for (const int64_t window : {1, 8, 64}) {
    const int64_t first = unit / window * window, count = std::min(window, n - first);
    if (count * width > 64) break;
    Problem p = part.sized(count);
    p.x.fill = {FillKind::literal, 0, 0, 0, {}};
    for (int64_t i = first * width; i < (first + count) * width; ++i) {
      const Encoding e = x->plane.encoding;
      p.x.fill.payload += fmt::format("{:0{}x}", code_at(e, x->bytes, i), 2 * info(e).bytes());
    }
    // Planes that the fill draws by its seed: a seed that draws what stood here.
    std::vector<PlaneData> wanted;
    for (const Plane& plane : input_planes(p)) {
      const PlaneData* whole = find_plane(inputs, plane.name);
      PlaneData w{plane, whole->bytes};
      if (whole->bytes.size() != plane.bytes()) {
        const size_t per_unit = plane.bytes() / static_cast<size_t>(count);
        const auto from = whole->bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * per_unit);
        w.bytes.assign(from, from + static_cast<std::ptrdiff_t>(plane.bytes()));
      }
      wanted.push_back(std::move(w));
    }
    const uint64_t seeds = wanted.size() > 1 && count == 1 ? 4096 : 1;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      p.x.fill.seed = seed;
      const Result<std::vector<PlaneData>> made = make_inputs(p, subjects.reference());
      if (!made || !same(*made, wanted)) continue;
      ClaimOptions options;
      options.environment = side.environment;
      options.laws = false;
      const std::vector<Verdict> verdicts = judge_case(entry_of(p), subjects, {side.subject}, options);
      if (verdicts[0].outcome == Outcome::failed || verdicts[0].outcome == Outcome::crashed)
        return json::object({{"line", to_line(p)}, {"verdict", to_json(verdicts[0])}});
      break;
    }
  }
  return {};
}

std::string claim_of(const CertifySide& side) {
  const std::string environment = to_text(side.environment);
  return side.subject + " == reference" + (environment.empty() ? "" : " under --env " + environment);
}

// ---- one task ----------------------------------------------------------------------------------------------------------

struct TaskResult {
  std::string digests;               // of the reference's pieces, 32 hex digits each
  std::vector<SideResult> sides;
  std::string law;                   // what breaks the part's law; empty: nothing
  std::string trouble;               // the reference, or the worker, failed: nothing was compared
  double seconds = 0;
};

std::string to_text(const TaskResult& r) {
  json::Value sides = json::array();
  for (const SideResult& s : r.sides) sides.push(json::object({{"differ", s.differ}, {"failure", s.failure}}));
  return json::dump(json::object({{"digests", r.digests}, {"sides", std::move(sides)}, {"law", r.law}, {"trouble", r.trouble}, {"seconds", r.seconds}}));
}

TaskResult task_from(const std::string& text) {
  TaskResult r;
  const Result<json::Value> v = json::parse(text);
  if (!v || !v->find("sides") || !v->find("sides")->array()) {
    r.trouble = "the worker's answer cannot be read";
    return r;
  }
  r.digests = v->text("digests");
  r.law = v->text("law");
  r.trouble = v->text("trouble");
  r.seconds = v->find("seconds")->to_double().value_or(0);
  for (const json::Value& s : *v->find("sides")->array()) r.sides.push_back({s.find("differ")->to_int().value_or(0), *s.find("failure")});
  return r;
}

TaskResult run_task(const Judged& judged, int64_t first, int64_t end, const Subjects& subjects) {
  const auto start = std::chrono::steady_clock::now();
  const CertifyPart& part = judged.part;
  TaskResult out;
  out.sides.resize(judged.sides.size());
  std::optional<Problem> problem;
  std::vector<PlaneData> inputs;
  std::optional<Bench> reference, subject;
  int64_t size = 0;
  for (int64_t at = first; at < end; at += size) {
    const int64_t n = std::min(kPiece, end - at);
    if (n != size) {
      Problem zeros = part.sized(n);
      zeros.x.fill.kind = FillKind::zeros;
      Result<std::vector<PlaneData>> made = make_inputs(zeros, subjects.reference());
      if (!made) {
        out.trouble = made.error().text();
        break;
      }
      problem = part.sized(n);
      inputs = std::move(*made);
      reference.emplace(*problem, inputs);
      subject.emplace(*problem, inputs);
      size = n;
    }
    part.domain.fill(at, n, inputs);
    if (out.trouble = reference->run(subjects.reference(), {.poison = kReferencePoison}); !out.trouble.empty()) break;
    Digest digest;
    for (const PlaneData& p : reference->outputs()) digest.add(p.bytes);
    out.digests += digest.text();
    if (part.law && out.law.empty()) out.law = part.law(inputs, reference->outputs());
    for (size_t i = 0; i < judged.sides.size(); ++i) {
      const CertifySide& side = judged.sides[i];
      SideResult& result = out.sides[i];
      const std::string threw = subject->run(*subjects.find(side.subject), side.environment);
      if (threw.empty() && same(subject->outputs(), reference->outputs())) continue;
      std::optional<Breach> breach;
      int64_t unit = 0;
      if (threw.empty()) {
        const Judgement j = judge(&*problem, subject->outputs(), reference->outputs());
        for (const auto* list : {&j.after, &j.beside})
          for (const PlaneDifference& d : *list) result.differ += d.differ;
        if (j.cause) {
          result.differ += j.cause->differ;
          unit = first_unit(part, *problem, *j.cause);
        }
        breach = parity_breach(*problem, j, side.subject, "reference");
        if (!breach) ++result.differ;   // in padding alone
      } else {
        ++result.differ;
      }
      if (!result.failure.is_null()) continue;
      if (std::optional<json::Value> line = narrowed_failure(part, side, inputs, n, unit, subjects)) {
        result.failure = std::move(*line);
      } else {
        const std::string cause = breach ? cause_text(*breach) : fmt::format("  cause    {}\n", threw.empty() ? "padding differs" : threw);
        result.failure = failure_text(fmt::format("  claim    {}\n{}  where    elements {} to {} of: {}\n"
                                                  "  note     no line of up to 64 of these elements fails by itself\n",
                                                  claim_of(side), cause, at, at + n - 1, part.domain.words));
      }
    }
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

// ---- the certificate ---------------------------------------------------------------------------------------------------

struct ClaimRecord {
  CertifySide side;
  std::string outcome = "passed", reason;
  int64_t compared = 0, differ = 0;
  std::vector<json::Value> failures;
};

json::Value words(const std::string& text) {
  json::Value list = json::array();
  for (const std::string_view word : words_of(text, ' ')) list.push(word);
  return list;
}

json::Value claim_json(const ClaimRecord& c) {
  json::Value v = json::object({{"got", c.side.subject}, {"want", "reference"}});
  if (const std::string e = to_text(c.side.environment); !e.empty()) v.set("environment", e);
  v.set("outcome", c.outcome);
  if (!c.reason.empty()) v.set("reason", c.reason);
  v.set("inputs", c.compared);
  if (c.differ) v.set("differ", c.differ);
  if (!c.failures.empty()) {
    json::Value list = json::array();
    for (const json::Value& f : c.failures) list.push(f.find("line") ? json::object({{"line", f.text("line")}, {"verdict", *f.find("verdict")}}) : f);
    v.set("failures", std::move(list));
  }
  return v;
}

json::Value part_head(const CertifyPart& part) {
  return json::object({{"name", part.name}, {"clauses", words(part.clauses)}, {"inputs", part.domain.words}, {"count", part.domain.count}});
}

// What must be equal for a part of an earlier certificate to stand in this one.
json::Value build_json() {
  const json::Value facts = doctor_facts({});
  json::Value v = json::object();
  for (const char* key : {"version", "commit", "kernels", "line_version", "compiler", "flags", "build_type", "sanitizers"}) v.set(key, *facts.find(key));
  return v;
}

class Certificate {
 public:
  Certificate(const CertifyOptions& options, json::Value build)
      : path_(options.output), build_(std::move(build)), mode_(options.quick ? "quick" : "full"), only_(options.only) {}

  std::optional<Error> write(bool complete, const Totals& totals, int jobs, double seconds) const {
    if (path_.empty()) return {};
    json::Value doc = json::object({{"schema", "assay.certificate"}, {"version", kCertificateVersion}, {"complete", complete}, {"mode", mode_}});
    doc.set("only", only_.empty() ? json::Value() : json::Value(only_));
    doc.set("build", build_);
    doc.set("parts", parts_);
    doc.set("totals", json::object({{"passed", totals.passed}, {"failed", totals.failed}, {"skipped", totals.skipped}, {"comparisons", compared_}}));
    json::Value run = json::object({{"jobs", jobs}, {"seconds", seconds}, {"part_seconds", seconds_}});
    doc.set("run", std::move(run));   // what may differ between two runs stands here and nowhere else
    return write_file(path_, json::dump(doc, 1) + "\n");
  }
  void add(json::Value part, double seconds) {
    seconds_.set(part.text("name"), seconds);
    for (const json::Value& c : *part.find("claims")->array()) compared_ += c.find("inputs")->to_int().value_or(0);
    parts_.push(std::move(part));
  }

  // Parts of the certificate at the path that passed, made by this very build; an Error where the file is there and cannot be used.
  Result<std::map<std::string, json::Value>> earlier() const {
    std::map<std::string, json::Value> out;
    if (::access(path_.c_str(), F_OK) != 0) return out;
    const Result<json::Value> doc = json::read(path_);
    if (!doc) return doc.error();
    if (doc->text("schema") != "assay.certificate" || !doc->find("parts") || !doc->find("parts")->array())
      return Error{path_ + " is no certificate", 0, "give another -o"};
    if (!doc->find("build") || *doc->find("build") != build_ || doc->text("mode") != mode_)
      return Error{path_ + " was made by another build or in another mode", 0, "without --resume it is replaced"};
    if (build_.text("commit").ends_with("-dirty") || build_.text("commit") == "no git")
      return Error{"a build whose sources are no commit cannot resume", 0, "without --resume it is replaced"};
    for (const json::Value& part : *doc->find("parts")->array()) {
      const json::Value* claims = part.find("claims");
      bool passed = claims && claims->array();
      for (size_t i = 0; passed && i < claims->array()->size(); ++i) passed = (*claims->array())[i].text("outcome") == "passed";
      if (passed) out.emplace(part.text("name"), part);
    }
    return out;
  }

 private:
  std::string path_;
  json::Value build_;
  std::string mode_, only_;
  json::Value parts_ = json::array(), seconds_ = json::object();
  int64_t compared_ = 0;
};

std::string duration_text(double s) {
  const int seconds = static_cast<int>(s + 0.5);
  return seconds < 60 ? fmt::format("{} s", seconds) : fmt::format("{} min {} s", seconds / 60, seconds % 60);
}

// ---- the run -----------------------------------------------------------------------------------------------------------

class Run {
 public:
  Run(const CertifyOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err)
      : options_(options), subjects_(subjects), out_(out), err_(err), certificate_(options, build_json()), start_(std::chrono::steady_clock::now()) {}

  int run() {
    std::vector<CertifyPart> all = options_.parts.empty() ? certify_parts(options_.quick) : options_.parts;
    for (CertifyPart& p : all)
      if (options_.only.empty() || p.name.find(options_.only) != std::string::npos) parts_.push_back(std::move(p));
    if (parts_.empty()) return refuse({fmt::format("no part of the certificate contains '{}'", options_.only), 0, "assay certify --list names them"});
    if (options_.list) {
      for (const CertifyPart& p : parts_) fmt::print(out_, "{:<64} {:>10}  {}\n", p.name, p.domain.count, p.domain.words);
      return 0;
    }
    std::map<std::string, json::Value> earlier;
    if (options_.resume) {
      if (options_.output.empty()) return refuse({"--resume goes on with the certificate that -o names", 0, ""});
      Result<std::map<std::string, json::Value>> found = certificate_.earlier();
      if (!found) return refuse(found.error());
      earlier = std::move(*found);
    }
    if (auto error = certificate_.write(false, totals_, jobs(), 0)) return refuse(*error);   // before an hour is spent on what cannot be kept

    plan(earlier);
    for (size_t i = 0; i < parts_.size(); ++i)
      if (records_[i].tasks == 0) close(i);   // nothing runs, or it is taken over
    TaskHooks hooks;
    hooks.task = [&](size_t t) { return to_text(run_task({parts_[tasks_[t].part], running(tasks_[t].part)}, tasks_[t].first, tasks_[t].end, subjects_)); };
    hooks.crashed = [&](const std::string& why) {
      TaskResult r;
      r.trouble = "crashed: " + why;
      return to_text(r);
    };
    hooks.result = [&](size_t t, std::string text) {
      take(tasks_[t], task_from(text));
      return !unwritten_;
    };
    run_tasks(tasks_.size(), jobs(), options_.timeout, std::move(hooks));
    wipe();
    if (!unwritten_) unwritten_ = certificate_.write(true, totals_, jobs(), seconds());
    if (unwritten_) return refuse(*unwritten_);
    for (const auto& [reason, count] : totals_.skip_reasons) fmt::print(out_, "skipped {}: {}\n", count, reason);
    if (!options_.output.empty()) fmt::print(out_, "certificate: {}\n", options_.output);
    fmt::print(out_, "{} in {}\n", parts_.size() == 1 ? "1 part" : fmt::format("{} parts", parts_.size()), duration_text(seconds()));
    fmt::print(out_, "{}\n", totals_.last_line());
    return totals_.exit_status();
  }

 private:
  struct Task {
    size_t part;
    int64_t first, end;
  };
  struct Record {
    std::vector<ClaimRecord> claims;
    std::vector<size_t> runs;          // claims that run, in the order of a task's sides
    json::Value taken;                 // from an earlier certificate; null: none
    size_t tasks = 0, done = 0;
    std::string digests, law, trouble;
    double seconds = 0;
  };

  int jobs() const { return options_.jobs > 0 ? options_.jobs : std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  int refuse(const Error& e) {
    wipe();
    fmt::print(err_, "assay: {}\n", e.text());
    return 2;
  }

  // Which claims run, and the tasks of every part.
  void plan(const std::map<std::string, json::Value>& earlier) {
    std::map<std::string, Support> present;
    records_.resize(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      const CertifyPart& part = parts_[i];
      Record& record = records_[i];
      std::vector<CertifySide> sides = part.sides;
      if (!options_.subjects.empty()) {
        sides.clear();
        for (const std::string& name : options_.subjects) sides.push_back({name, {}});
      }
      for (const CertifySide& side : sides) {
        ClaimRecord claim{side, "passed", "", 0, 0, {}};
        Subject* s = subjects_.find(side.subject);
        if (!present.contains(side.subject)) present[side.subject] = s ? present_in_child(*s) : Support{false, "there is no subject of this name"};
        if (const Support& here = present[side.subject]; !here.yes) {
          claim.outcome = "skipped";
          claim.reason = here.why;
        } else if (!s->supports(part.problem).yes) {
          continue;   // never claimed
        } else {
          record.runs.push_back(record.claims.size());
        }
        record.claims.push_back(std::move(claim));
      }
      json::Value head = part_head(part);
      if (const auto it = earlier.find(part.name); it != earlier.end() && covers(it->second, head, record)) {
        record.taken = it->second;
        continue;
      }
      if (record.runs.empty()) continue;
      for (int64_t at = 0; at < part.domain.count; at += kTask) {
        tasks_.push_back({i, at, std::min(part.domain.count, at + kTask)});
        ++record.tasks;
        weight_ += weight(tasks_.back());
      }
    }
  }
  // Whether the earlier part makes the same claims about the same inputs.
  static bool covers(const json::Value& earlier, const json::Value& head, const Record& record) {
    for (const auto& [key, value] : *head.object())
      if (!earlier.find(key) || *earlier.find(key) != value) return false;
    const json::Array& claims = *earlier.find("claims")->array();
    if (claims.size() != record.claims.size()) return false;
    for (size_t i = 0; i < claims.size(); ++i)
      if (claims[i].text("got") != record.claims[i].side.subject || claims[i].text("environment") != to_text(record.claims[i].side.environment))
        return false;
    return true;
  }
  std::vector<CertifySide> running(size_t part) const {
    std::vector<CertifySide> out;
    for (size_t c : records_[part].runs) out.push_back(records_[part].claims[c].side);
    return out;
  }
  double weight(const Task& t) const { return static_cast<double>(t.end - t.first) * (2.0 + static_cast<double>(records_[t.part].runs.size())); }

  void take(const Task& task, TaskResult r) {
    Record& record = records_[task.part];
    const CertifyPart& part = parts_[task.part];
    record.digests += r.digests;
    record.seconds += r.seconds;
    if (record.law.empty()) record.law = r.law;
    if (!r.trouble.empty() && record.trouble.empty())
      record.trouble = fmt::format("{}; in elements {} to {} of: {}", r.trouble, task.first, task.end - 1, part.domain.words);
    for (size_t i = 0; i < r.sides.size(); ++i) {
      ClaimRecord& claim = record.claims[record.runs[i]];
      claim.compared += task.end - task.first;
      claim.differ += r.sides[i].differ;
      if (!r.sides[i].failure.is_null() && claim.failures.size() < kKeptFailures) claim.failures.push_back(r.sides[i].failure);
    }
    done_ += weight(task);
    if (++record.done == record.tasks) close(task.part);
    else progress(part.name);
  }

  // The part has ended: judge, print, and write the certificate.
  void close(size_t index) {
    const CertifyPart& part = parts_[index];
    Record& record = records_[index];
    wipe();
    json::Value entry = record.taken;
    if (entry.is_null()) {
      entry = part_head(part);
      json::Value claims = json::array();
      for (ClaimRecord& claim : record.claims) {
        if (claim.outcome != "skipped") {
          if (claim.differ || !claim.failures.empty()) claim.outcome = "failed";
          if (!record.trouble.empty()) claim.outcome = "failed", claim.reason = record.trouble;
          else if (!record.law.empty()) claim.outcome = "failed", claim.reason = "the reference breaks a law: " + record.law;
        }
        claims.push(claim_json(claim));
      }
      entry.set("claims", std::move(claims));
      const bool ran = record.tasks > 0, whole = ran && record.trouble.empty();
      if (part.law) entry.set("law", json::object({{"words", part.law_words}, {"outcome", !ran ? "skipped" : whole && record.law.empty() ? "passed" : "failed"}}));
      entry.set("fingerprint", whole ? json::Value(sha256(std::as_bytes(std::span(record.digests))).substr(0, 32)) : json::Value());
    }
    report(part, record, entry);
    record.digests.clear();
    certificate_.add(std::move(entry), record.seconds);
    if (!unwritten_) unwritten_ = certificate_.write(false, totals_, jobs(), seconds());
  }

  void report(const CertifyPart& part, const Record& record, const json::Value& entry) {
    std::string agree;
    bool red = false;
    for (const json::Value& c : *entry.find("claims")->array()) {
      Verdict v;
      v.subject = c.text("got");
      v.outcome = *outcome_named(c.text("outcome"));
      v.reason = c.text("reason");
      totals_.add(v);
      red |= is_red(v.outcome);
      if (v.outcome == Outcome::passed) agree += (agree.empty() ? "" : ", ") + v.subject + (c.find("environment") ? " again" : "");
    }
    if (!agree.empty() || (!red && !entry.find("claims")->array()->empty()))
      fmt::print(out_, "{:<64} {:>10}  {}{}  {}\n", part.name, part.domain.count, agree.empty() ? "skipped" : agree,
                 record.taken.is_null() ? "" : " (taken over)", entry.text("fingerprint"));
    if (!record.trouble.empty() || !record.law.empty())
      fmt::print(out_, "FAILED  {}\n  reason   {}\n\n", part.name, record.trouble.empty() ? record.law : record.trouble);
    for (const ClaimRecord& claim : record.claims) show(part, claim);
    std::fflush(out_);
  }
  void show(const CertifyPart& part, const ClaimRecord& claim) {
    for (const json::Value& f : claim.failures) {
      std::string screen;
      if (f.find("line")) {
        const Result<Problem> p = parse_line(f.text("line"));
        Result<Verdict> v = verdict_from_json(*f.find("verdict"));
        if (!p || !v) continue;
        v->argument = subjects_.find(claim.side.subject)->argument();
        SuiteEntry e = entry_of(*p);
        e.file = "certify " + part.name;
        screen = failure_screen(e, *v, claim.side.environment);
      } else {
        screen = fmt::format("FAILED  certify {}\n{}", part.name, f.text("text"));
      }
      if (options_.colour) screen = "\033[31m" + screen.substr(0, 6) + "\033[0m" + screen.substr(6);
      fmt::print(out_, "{}  in all   {} of the outputs of {} inputs differ from the reference's\n\n", screen, claim.differ, claim.compared);
    }
  }

  void progress(const std::string& name) {
    if (!options_.progress) return;
    const double share = done_ / weight_, left = share > 0 ? seconds() * (1 - share) / share : 0;
    fmt::print(err_, "\r\033[K{:3.0f} %  {}  {} left", 100 * share, name.substr(0, 70), duration_text(left));
    std::fflush(err_);
    shown_ = true;
  }
  void wipe() {
    if (shown_) fmt::print(err_, "\r\033[K");
    std::fflush(err_);
    shown_ = false;
  }

  const CertifyOptions& options_;
  const Subjects& subjects_;
  std::FILE *out_, *err_;
  Certificate certificate_;
  std::chrono::steady_clock::time_point start_;
  std::vector<CertifyPart> parts_;
  std::vector<Record> records_;
  std::vector<Task> tasks_;
  Totals totals_;
  double weight_ = 0, done_ = 0;
  bool shown_ = false;
  std::optional<Error> unwritten_;
};

}  // namespace

int run_certify(const CertifyOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  if (std::find(options.subjects.begin(), options.subjects.end(), "reference") != options.subjects.end()) {
    fmt::print(err, "assay: the reference is what the others are compared with; name another --subject\n");
    return 2;
  }
  return Run(options, subjects, out, err).run();
}

}  // namespace assay

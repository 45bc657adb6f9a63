#include "compare/commands/hunt.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "compare/choices/draw.h"
#include "compare/commands/hunt/cause.h"
#include "compare/commands/hunt/edges.h"
#include "compare/commands/hunt/folder.h"
#include "compare/commands/hunt/known_causes.h"
#include "compare/commands/hunt/lines.h"
#include "compare/commands/hunt/table.h"
#include "compare/commands/sharing.h"
#include "compare/process/crew.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/report/json_lines.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "compare/text/terminal.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

using hunting::Fate;
using hunting::Finding;
using hunting::Folder;
using hunting::Judged;
using hunting::Lines;
using Clock = std::chrono::steady_clock;

constexpr double kDefaultMinutes = 5;
constexpr size_t kBatch = 96;             // lines; small, because a kill costs one batch
constexpr uint64_t kBatchesPerRound = 8;  // of libFuzzer, with --edges
constexpr int64_t kRunsOfRound = 2000;
constexpr size_t kSameKind = 3;     // lines of one kind whose cause is looked for; later ones are counted
constexpr size_t kUntilNamed = 12;  // ... and of a kind of which no line has been explained
// A line with so many differing elements has enough of them to tell causes apart. It is a low number, because
// small tensors have few scales.
constexpr int64_t kEnoughDiffer = 8;
// How many lines of one batch are explained, so that a subject that is all wrong is still searched widely;
// and how many of the smallest lines after them.
constexpr size_t kCausesAtOnce = 4, kSmallOnes = 2;
constexpr size_t kAlike = 4;  // lines of one kind that tell apart what makes the bytes of another

// A line that failed.
struct Red {
  Problem line;
  Breach breach;
  bool looked = false;  // for its cause
};

// An entry of a drawn line. A line that could hardly have failed does not count as a finding.
SuiteEntry drawn_entry(const Problem& p) {
  SuiteEntry e = entry_of(p);
  e.file = "hunt";
  e.expect.trust = "drawn at random";
  return e;
}

// Tells whether an earlier run was given the same lines.
std::string digest_of_lines(const std::vector<Problem>& lines) {
  std::string text;
  for (const Problem& p : lines) text += to_line(p) + "\n";
  return sha256(std::as_bytes(std::span(text)));
}

hunting::Edges edges_of(const HuntOptions& o) {
  return hunting::Edges({o.edges, o.subject, o.plugin, o.folder, o.only, o.max_elements, o.seed});
}

// One run of the command.
class Hunt {
 public:
  // `records`: where the records of this run go as well; may be null.
  Hunt(const HuntOptions& options, const Subjects& subjects, Folder& folder, JsonLines* records,
       std::FILE* out, std::FILE* err)
      : options_(options),
        subjects_(subjects),
        folder_(folder),
        records_(records),
        out_(out),
        progress_(err, options.progress),
        lines_(options.seed, options.max_elements, options.only),
        edges_(edges_of(options)),
        causes_(folder.findings()) {
    settings_ = options.settings;
    settings_.subjects = {options.subject};
    if (Subject* reference = subjects.find("reference")) lines_.look_at_values(*reference);
    for (const Problem& p : folder.earlier().kept) lines_.know(p);
    const Judged& earlier = folder.earlier().judged;
    if (folder.earlier().begun) lines_.go_on(earlier.lines, earlier.unsupported);
    for (const Finding& f : folder.findings())
      for (const std::string& text : {f.drawn, f.line})
        if (const Result<Problem> p = parse_line(text)) lines_.near_trouble(*p);
    record(to_json(folder.head()));
  }

  // The lines of found.cases once more. Where a line passes on which a sanitizer found something, the
  // instrumented program is asked. A finding whose line passes now is mended. A cause that an earlier run had
  // no time for is looked for.
  void repeat(const std::vector<Problem>& found) {
    if (found.empty()) return;
    std::set<std::string> passing;
    std::vector<Red> unlooked;
    std::vector<Problem> to_ask;
    judge(found, [&](const Problem& p, const Verdict& v) {
      const bool red = is_red(v.outcome), passed = v.outcome == Outcome::passed;
      if (passed) passing.insert(to_line(p));
      if (passed && is_of_a_sanitizer(to_line(p))) {
        to_ask.push_back(p);
        return;
      }
      failing_ += red;
      if (red && has_unlooked(to_line(p))) unlooked.push_back(red_of(p, v));
      repeated(to_line(p), red ? "still fails" : passed ? "passes now" : "did not run");
    });
    const std::map<std::string, std::string> said = asked(to_ask);
    const auto is_mended = [&](const Finding& f) {
      if (f.claim != hunting::kOfASanitizer) return passing.contains(f.line);
      return said.contains(f.line) && is_other_end(f, said.at(f.line));
    };
    std::vector<Finding> left = folder_.findings();
    std::erase_if(left, is_mended);
    causes_ = hunting::KnownCauses(left);
    look_into(unlooked);
    look_into_ends();
    for (const auto& one : said) {
      const std::string &line = one.first, &words = one.second;
      const bool known =
          std::any_of(folder_.findings().begin(), folder_.findings().end(),
                      [&](const Finding& f) { return f.line == line && !is_other_end(f, words); });
      if (!words.empty() && !known && !trouble_) add_end(hunting::finding_of_end(*parse_line(line), words));
    }
  }

  // What comes before the batches: plain lines of everything once in a hunt, and the user's lines once.
  void begin(const std::vector<Problem>& given) {
    settings_.over = [this] { return over(); };
    if (!folder_.earlier().begun) {
      const std::vector<Problem> own = lines_.with_words(subjects_.find(options_.subject)->own_words());
      if (!own.empty()) batch(own);
      batch(lines_.first());
      if (given.empty()) widen();
      ended("first", 0);
    }
    const std::string digest = digest_of_lines(given);
    if (given.empty() || folder_.earlier().given.contains(digest) || over()) return;
    batch(given);
    widen();
    now_.given = digest;
    ended("given", 0);
  }

  // Batches until the time is up.
  void go() {
    settings_.over = [this] { return over(); };
    uint64_t n = folder_.earlier().judged.batch;
    if (!options_.edges.empty() && n == 0 && !over()) round(n);
    for (int64_t done = 0;
         lines_.groups() > 0 && !over() && (options_.batches == 0 || done < options_.batches); ++done, ++n) {
      batch(lines_.batch(n, kBatch));
      ended("batch", n);
      if (!options_.edges.empty() && (n + 1) % kBatchesPerRound == 0 && !over()) round(n + 1);
    }
  }

  int finish(std::FILE* err) {
    progress_.wipe();
    if (trouble_) {
      fmt::print(err, "assay: {}\n", trouble_->text());
      return 2;
    }
    fmt::print(out_, "{}\n", state_text());
    const size_t judged = total(&Judged::lines);
    if (judged == 0 && interrupted())
      return fmt::print(err, "assay: interrupted before the first line was judged\n"), kInterrupted;
    if (judged == 0) {
      const std::string why = lines_.groups() == 0
                                  ? "no line has an op with a format that contains '" + options_.only + "'"
                                  : options_.subject + " runs no line that was drawn";
      return fmt::print(err, "assay: nothing was judged: {}\n", why), 3;
    }
    if (!folder_.findings().empty()) fmt::print(out_, "{} repeats what was found\n", repeat_command());
    fmt::print(out_, "{}", hunting::table_of(lines_.covered(), folder_.findings()));
    const bool red = failing_ + new_findings_ + run_.failures + now_.failures > 0;
    return red ? 1 : interrupted() ? kInterrupted : 0;
  }

 private:
  // Asks for more kinds of lines where the subject has run no line so far.
  void widen() {
    if (lines_.covered().empty() && !over()) batch(lines_.near_plain());
  }
  double seconds_of_run() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double seconds() const { return folder_.earlier().judged.seconds + seconds_of_run(); }
  bool over() const { return trouble_ || interrupted() || seconds_of_run() >= 60 * minutes(); }
  double minutes() const {
    if (options_.minutes > 0) return options_.minutes;
    return options_.batches > 0 ? std::numeric_limits<double>::infinity() : kDefaultMinutes;
  }
  // Over all runs of this hunt.
  size_t total(size_t Judged::*count) const {
    return folder_.earlier().judged.*count + run_.*count + now_.*count;
  }

  std::string repeat_command() const {
    const std::string subject = subjects_.find(options_.subject)->argument();
    return fmt::format("assay run {}{}", shell_word(options_.folder + "/found.cases"),
                       subject.empty() || options_.subject == "host" ? "" : " " + subject);
  }

  std::string state_text() const {
    const std::string codes = lines_.codes() ? fmt::format(", {} codes", lines_.codes()->count()) : "";
    const std::string cases = lines_.cases() ? fmt::format(", {} of {} rounding cases",
                                                           lines_.cases()->reached(), lines_.cases()->of())
                                             : "";
    return fmt::format(
        "hunted {:.1f} min: {} lines judged, {} not supported, {} pairs of choices{}{}, {} failures of {} "
        "causes",
        seconds() / 60, total(&Judged::lines), total(&Judged::unsupported), lines_.pairs(), codes, cases,
        total(&Judged::failures), folder_.findings().size());
  }

  // Writes down what was judged since the last time.
  void ended(const std::string& kind, uint64_t n) {
    now_.kind = kind, now_.batch = n, now_.seconds = seconds(), now_.pairs = lines_.pairs();
    now_.codes = lines_.codes() ? lines_.codes()->count() : 0;
    now_.cases = lines_.cases() ? lines_.cases()->reached() : 0;
    now_.whole = !cut_short_;
    cut_short_ = false;
    if (!trouble_ && !interrupted()) trouble_ = folder_.ended(now_);
    record(to_json(now_));
    run_.lines += now_.lines, run_.failures += now_.failures, run_.unsupported += now_.unsupported;
    now_ = {};
  }

  void say(const std::string& line) {
    progress_.wipe();
    fmt::print(out_, "{}\n", printable(line));
    std::fflush(out_);
  }

  void record(const json::Value& value) {
    if (!records_ || trouble_) return;
    records_->write(value);
    trouble_ = records_->trouble();
  }

  // What became of a line that an earlier run has found.
  void repeated(const std::string& line, const std::string& outcome, const char* why = "") {
    say(fmt::format("{:<11}  {}{}", outcome, line, why));
    record(json::object({{"record", "repeated"}, {"line", line}, {"outcome", outcome}}));
  }

  void judge(const std::vector<Problem>& problems,
             const std::function<void(const Problem&, const Verdict&)>& take) {
    if (given_ > 0 && settings_.over && settings_.over()) {
      cut_short_ = true;
      return;
    }
    std::vector<SuiteEntry> entries;
    std::string lines = fmt::format("{}", given_);
    for (const Problem& p : problems) lines += "\n" + entries.emplace_back(drawn_entry(p)).text;
    if (crew()) {
      crew()->tell(lines);
      settings_.numbered = NumberedTasks{given_, nullptr};
    }
    given_ += problems.size();
    const size_t reported = run_cases(entries, subjects_, settings_, [&](const CaseResult& r) {
      take(entries[r.index].problem, r.verdicts.front());
      progress_.show(state_text());
    });
    cut_short_ |= reported < entries.size();
  }

  static Red red_of(const Problem& p, const Verdict& v) {
    return {p, v.breaches.empty() ? Breach{} : v.breaches.front()};
  }
  bool is_of_a_sanitizer(const std::string& line) const {
    return std::any_of(folder_.findings().begin(), folder_.findings().end(),
                       [&](const Finding& f) { return f.line == line && f.claim == hunting::kOfASanitizer; });
  }

  // What the instrumented program says now of lines on which it ended before, by line. A line is left out if
  // the program was not asked about it, because --edges is not given or the run is about to end.
  std::map<std::string, std::string> asked(const std::vector<Problem>& lines) {
    std::map<std::string, std::string> out;
    for (const Problem& p : lines) {
      if (trouble_ || interrupted()) break;
      const std::string line = to_line(p);
      if (options_.edges.empty()) {
        repeated(line, "not asked", "  (a sanitizer saw it, and --edges is not given)");
        continue;
      }
      progress_.show("asking the instrumented program about " + line);
      const Result<std::string> said = edges_.said_of(p);
      if (interrupted()) break;  // Ctrl-C ended the program too
      if (!said) {
        trouble_ = said.error();
        break;
      }
      failing_ += !said->empty();
      repeated(line, said->empty() ? "passes now" : "still fails");
      out[line] = *said;
    }
    return out;
  }

  bool has_unlooked(const std::string& line) const {
    bool unlooked = false;
    for (const Finding& f : folder_.findings())
      if (f.drawn == line) unlooked = !f.looked;  // the last one says
    return unlooked;
  }

  void batch(const std::vector<Problem>& problems) {
    std::vector<Red> red;
    judge(problems, [&](const Problem& p, const Verdict& v) {
      if (v.outcome == Outcome::unsupported || v.outcome == Outcome::skipped) {
        ++now_.unsupported;
        lines_.told(p, Fate::unsupported);
        return;
      }
      ++now_.lines;
      const bool failed = is_red(v.outcome);
      const Fate fate = v.outcome == Outcome::crashed ? Fate::crashed
                        : failed || v.inside > 0      ? Fate::near_trouble
                                                      : Fate::quiet;
      if (lines_.told(p, fate)) keep(p);
      if (!failed) return;
      ++now_.failures;
      red.push_back(red_of(p, v));
    });
    look_into(red);
  }

  // A round of libFuzzer, and what it found once more, by the program that is not instrumented. Where that
  // one finds nothing wrong with the line on which libFuzzer ended, what a sanitizer says is the finding.
  void round(uint64_t n) {
    progress_.show(fmt::format("libFuzzer looks for lines that reach new edges, from {} on", edges_.kept()));
    const Result<hunting::Edges::Found> found = edges_.search(n, kRunsOfRound, [&] { return over(); });
    if (!found) {
      trouble_ = found.error();
      return;
    }
    for (size_t first = 0; first < found->lines.size() && !trouble_ && !interrupted(); first += kBatch) {
      const auto begin = found->lines.begin() + static_cast<ptrdiff_t>(first);
      batch({begin, begin + static_cast<ptrdiff_t>(std::min(kBatch, found->lines.size() - first))});
    }
    const size_t failures = now_.failures;
    if (found->ended && !trouble_ && !interrupted()) batch({*found->ended});
    if (interrupted() || cut_short_) return;  // the next run judges them
    if (found->ended && now_.failures == failures)
      add_end(hunting::finding_of_end(*found->ended, found->words));
    if (!trouble_) trouble_ = edges_.taken();
    ended("edges", n);
  }

  void keep(const Problem& p) {
    if (auto error = folder_.keep(to_line(p))) trouble_ = error;
    if (options_.edges.empty()) return;
    if (auto error = edges_.know(p)) trouble_ = error;
  }

  // Lines with enough differences to tell causes apart come first: on a tensor of one element many causes
  // make the same bytes. Of those the plain ones, because few steps of them can be wrong; of those the small
  // ones, because their cause is found soonest. Where none of a kind could be explained, a small one may have
  // one cause of several alone.
  void look_into(std::vector<Red>& red) {
    const auto evidence = [](const Red& r) {
      return std::tuple(-std::min(r.breach.differ, kEnoughDiffer), to_line(r.line).size(),
                        r.line.x.shape.count());
    };
    std::stable_sort(red.begin(), red.end(),
                     [&](const Red& a, const Red& b) { return evidence(a) < evidence(b); });
    look(red, kCausesAtOnce, false);
    std::stable_sort(red.begin(), red.end(), [](const Red& a, const Red& b) {
      return a.line.x.shape.count() < b.line.x.shape.count();
    });
    look(red, kSmallOnes, true);
    if (!trouble_ && over()) leave(red);
  }

  // When the time is over: what fails is not lost. Of each kind of which no line was looked into, the first
  // stands for the others, and the next run looks for its cause.
  void leave(const std::vector<Red>& red) {
    for (const Red& r : red) {
      Kind& kind = kinds_[hunting::kind_of(r.line, r.breach)];
      if (kind.seen + kind.small + kind.left++ > 0) continue;
      Finding f = hunting::finding_of_kind(r.line, r.breach);
      f.looked = false;
      f.headline += "; the time was over before its cause was looked for";
      add(std::move(f));
    }
  }

  // Looks for the cause of the first lines, `most` of them; `unnamed`: of kinds without one.
  void look(std::vector<Red>& red, size_t most, bool unnamed) {
    size_t looked = 0;
    for (Red& r : red) {
      if (over() || looked == most) return;
      Kind& kind = kinds_[hunting::kind_of(r.line, r.breach)];
      if (r.looked || (unnamed && kind.named)) continue;
      size_t& seen = unnamed ? kind.small : kind.seen;
      if (seen++ >= (kind.named ? kSameKind : kUntilNamed)) continue;
      ++looked;
      r.looked = true;
      progress_.show("looking for the cause of " + to_line(r.line));
      kind.named |= add(r, red);
    }
  }

  hunting::CauseOptions cause_options() const {
    hunting::CauseOptions o;
    o.subject = options_.subject;
    o.environment = settings_.claims.environment;
    o.timeout = settings_.timeout;
    o.budget = options_.budget;
    o.folder = folder_.looking();
    o.over = [this] { return over(); };
    return o;
  }

  // What a sanitizer says of a line on which libFuzzer ended, shrunk if nobody knows it yet.
  void add_end(Finding end) {
    if (over()) {
      end.looked = false;
    } else if (!causes_.has(end.cause)) {
      progress_.show("shrinking " + end.drawn);
      shrink_end(end, subjects_, cause_options(), [&](const Problem& p) {
        const Result<std::string> said = edges_.said_of(p);
        return said ? *said : std::string();
      });
      edges_.drop_trial();
      end.looked = !interrupted();
      trouble_ = folder_.no_room();
    }
    add(std::move(end));
  }

  // What a sanitizer saw in an earlier run that had no time to shrink it.
  void look_into_ends() {
    if (options_.edges.empty()) return;
    for (const Finding& f : std::vector(folder_.findings())) {
      const bool unlooked = !f.looked && f.claim == hunting::kOfASanitizer && causes_.waits(f.cause);
      const Result<Problem> p = parse_line(f.drawn);
      if (unlooked && p && !over()) add_end(hunting::finding_of_end(*p, f.headline));
    }
  }

  // Whether its cause was named. `red`: all lines that failed with it.
  bool add(const Red& r, const std::vector<Red>& red) {
    std::vector<Problem> also;
    for (const Red& other : red)
      if (also.size() < kAlike && !(other.line == r.line) &&
          hunting::kind_of(other.line, other.breach) == hunting::kind_of(r.line, r.breach))
        also.push_back(other.line);
    Finding found = find_cause(r.line, r.breach, subjects_, cause_options(), also);
    const bool named = found.explained;
    found.looked = named || !interrupted();
    // On a full disk there is no diagnosis either, and the finding would be written down without its cause.
    if (!named) trouble_ = folder_.no_room();
    if (!trouble_) add(std::move(found));
    return named;
  }

  void add(Finding f) {
    if (trouble_) return;
    if (!causes_.add(f, folder_.findings())) {  // what a known cause has shown again
      if (auto error = folder_.dropped()) trouble_ = error;
      return;
    }
    f.number = folder_.findings().size() + 1;
    f.seconds = seconds();
    ++new_findings_;
    say(fmt::format("found {} after {:.0f} s: {}", f.number, f.seconds, f.headline));
    say(fmt::format("  cause    {}", f.cause));
    say(fmt::format("  line     {}", f.line));
    trouble_ = folder_.taken(f.number);
    if (!trouble_) trouble_ = folder_.add(f);
    record(to_json(f));
  }

  const HuntOptions& options_;
  const Subjects& subjects_;
  Folder& folder_;
  JsonLines* records_;
  std::FILE* out_;
  ProgressLine progress_;
  Lines lines_;
  hunting::Edges edges_;
  RunSettings settings_;
  hunting::KnownCauses causes_;
  struct Kind {
    size_t seen = 0;     // how many of its lines were explained
    size_t small = 0;    // how many more were, because they are small
    size_t left = 0;     // how many were not, because the time was over
    bool named = false;  // whether one of them has a cause with a name
  };
  std::map<std::string, Kind> kinds_;
  std::optional<Error> trouble_;
  size_t given_ = 0;  // lines so far: the numbers of their tasks
  Judged run_, now_;  // counts of this run; of what was judged since they were written down
  size_t failing_ = 0, new_findings_ = 0;
  bool cut_short_ = false;  // lines of what is being judged were left out, because the time was over
  const Clock::time_point start_ = Clock::now();
};

// What a process does that the first one gives its tasks: lines of the batch that it was told of last.
int serve_hunt(const HuntOptions& options, const Subjects& subjects) {
  RunSettings settings = options.settings;
  settings.subjects = {options.subject};
  size_t first = 0;
  std::vector<SuiteEntry> entries;
  crew()->serve([&](size_t i) { return judged_text(entries[i - first], subjects, settings); }, settings.jobs,
                settings.timeout, options.digest,
                [&](std::string_view told) {
                  std::istringstream lines{std::string(told)};
                  std::string line;
                  lines >> first >> std::ws;
                  for (entries.clear(); std::getline(lines, line);)
                    entries.push_back(drawn_entry(problem_of_line(line)));
                });
  return 0;
}

}  // namespace

int run_hunt(const HuntOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  const auto refuse = [&](const Error& error) {
    return fmt::print(err, "assay: {}\n", printable(error.text())), 2;
  };
  if (serves()) return serve_hunt(options, subjects);
  if (crew()) crew()->agree_on(options.digest, "the same command goes on with the batch that it was at");
  if (const auto error = choices::cannot_choose(options.only)) return refuse(*error);
  if (!options.jsonl.empty()) {
    if (const auto error = cannot_write(options.jsonl, "--jsonl")) return refuse(*error);
    if (Folder::is_own(options.folder, options.jsonl))
      return refuse(
          Error{"--jsonl " + options.jsonl + ": the hunt keeps its own state there", 0, "name another file"});
  }
  if (const Support here = present_in_child(*subjects.find(options.subject)); !here.yes)
    return fmt::print(err, "assay: subject {} is absent: {}\n", options.subject, here.why), 3;
  if (!options.edges.empty())
    if (const auto error = edges_of(options).cannot_start()) return refuse(*error);
  const auto folder =
      Folder::open(options.folder, {options.subject, options.seed, options.max_elements, options.only});
  if (!folder) return refuse(folder.error());
  const Result<std::vector<Problem>> found = (*folder)->found();
  if (!found) return refuse(found.error());
  std::unique_ptr<JsonLines> records;
  if (!options.jsonl.empty()) {
    auto opened = JsonLines::open(options.jsonl);
    if (!opened) return refuse(opened.error());
    records = std::move(*opened);
  }
  if (options.edges.empty() && (options.subject == "host" || options.subject.starts_with("plugin:")))
    fmt::print(err,
               "assay: choices, rounding cases and codes guide this hunt; with --edges, edges of compiled "
               "code do too\n");
  const InterruptScope scope;
  Hunt hunt(options, subjects, **folder, records.get(), out, err);
  hunt.repeat(*found);
  hunt.begin(options.given);
  hunt.go();
  return hunt.finish(err);
}

}  // namespace assay

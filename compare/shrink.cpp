#include "compare/shrink.h"

#include <algorithm>
#include <chrono>
#include <ostream>

#include <fmt/format.h>

#include "compare/describe.h"
#include "compare/isolated.h"
#include "compare/runner.h"
#include "contract/line.h"
#include "fixtures/fill.h"

namespace assay {

namespace {

// One candidate. Where `loaded`, x holds the data: they are no longer what the fill draws.
struct State {
  Problem problem;
  bool loaded = false;
  std::vector<std::byte> x;
};

struct Found {
  bool valid = false;                 // the subject could be run
  std::optional<Breach> breach;       // nothing: passes
  std::string why;                    // not valid: why
};

// Of whichever member: a split that loses members counts the others anew.
std::string_view plane_of(const Breach& b) { return std::string_view(b.plane).substr(0, b.plane.find('[')); }
bool same_failure(const Breach& a, const Breach& b) { return a.claim == b.claim && plane_of(a) == plane_of(b) && a.in_padding == b.in_padding; }

class Shrinker {
 public:
  Shrinker(const ShrinkOptions& options, const Subjects& subjects, const std::function<void(const std::string&)>& on_progress)
      : options_(options), subjects_(subjects), subject_(*subjects.find(options.subject)), on_progress_(on_progress) {}

  Result<Shrunk> run() {
    State state{options_.problem, false, {}};
    const Found first = evaluate(state), second = evaluate(state);
    if (!first.valid) return Error{first.why, 0, ""};
    if (first.breach.has_value() != second.breach.has_value() || (first.breach && !(*first.breach == *second.breach)))
      return Error{"two runs of this line on " + options_.subject + " differ: not deterministic, so nothing can be shrunk", 0, "assay run judges claim repeat with other orders"};
    if (!first.breach) return Error{"this line passes on " + options_.subject + ": there is nothing to shrink", 0, ""};
    original_ = *first.breach;

    drop_members(state);
    drop_direction(state);
    for (const bool aligned : {true, false}) crop(state, aligned);
    const State window = state;
    Shrunk out;
    if (load(state)) {
      zero(state);
      simplify(state);
      if (!express(state)) state = window;   // too many elements are left for a literal
    }
    const Found last = evaluate(state);      // the line itself, without the data kept beside it
    if (!last.breach || !same_failure(*last.breach, original_)) return Error{"the shrunk line does not fail: " + to_line(state.problem), 0, "report this as a defect of assay shrink"};
    out.bad = state.problem;
    out.breach = *last.breach;
    nearest(state, out);
    out.runs = runs_;
    out.exhausted = runs_ >= options_.max_runs;
    return out;
  }

 private:
  // ---- one evaluation ----

  Found evaluate(const State& s) {
    ++runs_;
    if (on_progress_) on_progress_(fmt::format("run {}: {}x{}", runs_, s.problem.x.shape.rows, s.problem.x.shape.cols));
    Found found;
    const std::optional<Error> invalid = validate(s.problem);
    if (invalid) return found.why = invalid->text(), found;
    std::vector<PlaneData> given;
    if (s.loaded) given.push_back({input_planes(s.problem).front(), s.x});
    const auto inputs = inputs_with(s.problem, given, subjects_.reference());
    if (!inputs) return found.why = inputs.error().text(), found;
    const IsolatedRun got = run_isolated(subject_, s.problem, *inputs, options_.environment, options_.timeout);
    if (got.status == IsolatedRun::Status::unsupported) return found.why = got.trouble(), found;
    found.valid = true;
    if (!got.sound()) {
      Breach b;
      b.claim = got.status == IsolatedRun::Status::crashed ? "crash" : got.execution.error ? "run" : "guard";
      b.got = options_.subject;
      b.message = got.trouble();
      if (b.claim == "guard") b.plane = b.message.substr(0, b.message.find(':'));
      found.breach = b;
      return found;
    }
    const IsolatedRun want = run_isolated(subjects_.reference(), s.problem, *inputs, Environment{}, options_.timeout);
    if (!want.sound()) {
      found.valid = false;
      found.why = "reference " + want.trouble();
      return found;
    }
    const Judgement judgement = judge(&s.problem, got.execution.planes, want.execution.planes);
    found.breach = parity_breach(s.problem, judgement, options_.subject, "reference");
    if (!found.breach)
      if (const auto laws = check_laws(s.problem, *inputs, got.execution.planes, options_.subject); !laws.empty()) found.breach = laws.front();
    return found;
  }

  // Whether `s` still fails in the same way; remembers the last that passed.
  bool fails(const State& s) {
    if (runs_ >= options_.max_runs) return false;
    const Found found = evaluate(s);
    if (found.valid && !found.breach) passed_ = s;
    return found.valid && found.breach && same_failure(*found.breach, original_);
  }

  bool keep(State& state, State candidate) {
    if (!fails(candidate)) return false;
    state = std::move(candidate);
    return true;
  }

  // ---- steps ----

  // A split becomes the line of one member where that fails alike; else it loses the members that do not matter.
  void drop_members(State& state) {
    const Split* split = state.problem.as<Split>();
    const FillKind kind = state.problem.x.fill.kind;
    if (!split || kind == FillKind::literal || kind == FillKind::pack) return;
    for (const Problem& member : member_problems(state.problem))
      if (keep(state, State{member, false, {}})) return;
    for (size_t m = split->members.size(); m-- > 0;) {
      State candidate = state;
      Split& op = *candidate.problem.as<Split>();
      if (op.members.size() < 2) return;
      const Shape gone = op.members[m];
      op.members.erase(op.members.begin() + static_cast<std::ptrdiff_t>(m));
      Shape& x = candidate.problem.x.shape;
      op.capacity -= gone.count();
      if (op.vary == Vary::both) x.cols -= gone.count();
      else (op.vary == Vary::last ? x.cols : x.rows) -= op.vary == Vary::last ? gone.cols : gone.rows;
      if (m == 0) candidate.problem.x.fill.at_row += gone.rows;
      if (!keep(state, candidate)) continue;
      split = state.problem.as<Split>();
    }
  }

  void drop_direction(State& state) {
    if (!(state.problem.as<Quantize>() || state.problem.as<Split>()) || !state.problem.row || !state.problem.col) return;
    for (Direction d : kDirections) {
      State candidate = state;
      candidate.problem.quantizer(d).reset();
      if (keep(state, candidate)) return;
    }
  }

  // Of a split x is no matrix of the line's shape, and its members are drawn one by one.
  static bool has_x(const Problem& p) {
    const std::vector<Plane> planes = input_planes(p);
    return !planes.empty() && planes.front().name == "x" && !p.as<Split>();
  }

  // The part of `state` that starts at (r0, c0); nothing where its line cannot say so.
  std::optional<State> part(const State& state, int64_t r0, int64_t c0, Shape shape) {
    if (state.problem.as<Split>()) return std::nullopt;
    State out = state;
    out.problem.x.shape = shape;
    const FillKind kind = state.problem.x.fill.kind;
    if (!state.loaded && kind != FillKind::literal && kind != FillKind::pack) {
      out.problem.x.fill.at_row += r0;
      out.problem.x.fill.at_col += c0;
      return out;
    }
    if (!load(out, state.problem.x.shape)) return std::nullopt;
    const size_t element = static_cast<size_t>(info(state.problem.x.source).bytes());
    std::vector<std::byte> x;
    for (int64_t r = 0; r < shape.rows; ++r) {
      const auto row = out.x.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>((r0 + r) * state.problem.x.shape.cols + c0) * element);
      x.insert(x.end(), row, row + static_cast<std::ptrdiff_t>(static_cast<size_t>(shape.cols) * element));
    }
    out.x = std::move(x);
    return out;
  }

  // Pins the amax that the whole tensor has, so that a part of it is scaled alike.
  bool pin(State& state) {
    bool pinned = false;
    for (Direction d : kDirections) {
      const auto& q = state.problem.quantizer(d);
      const bool has_amax = q && (q->format == FormatId::fp8_current || (q->format == FormatId::nvfp4 && !q->row_scaled));
      if (!state.problem.as<Quantize>() || !has_amax || q->amax) continue;
      const auto inputs = inputs_with(state.problem, state.loaded ? std::vector<PlaneData>{{input_planes(state.problem).front(), state.x}} : std::vector<PlaneData>{}, subjects_.reference());
      if (!inputs) return false;
      const IsolatedRun whole = run_isolated(subjects_.reference(), state.problem, *inputs, Environment{}, options_.timeout);
      const PlaneData* amax = find_plane(whole.execution.planes, plane_name(d, "amax"));
      if (!whole.sound() || !amax) return false;
      state.problem.quantizer(d)->amax = code_at(Encoding::f32, amax->bytes, 0);
      pinned = true;
    }
    return pinned;
  }

  void crop(State& state, bool aligned) {
    while (crop_once(state, aligned)) {
    }
    if (State candidate = state; pin(candidate) && fails(candidate)) {
      State smaller = candidate;
      if (!crop_once(smaller, aligned)) return;   // pinning bought nothing
      state = smaller;
      while (crop_once(state, aligned)) {
      }
    }
  }

  bool crop_once(State& state, bool aligned) {
    const Shape shape = state.problem.x.shape;
    for (int64_t parts : {2, 4, 8})
      for (const bool rows : {true, false}) {
        const int64_t whole = rows ? shape.rows : shape.cols, unit = aligned ? 32 : 1;
        const int64_t n = std::max(unit, whole / parts / unit * unit);
        if (n >= whole) continue;
        for (int64_t first = 0; first < whole; first += n) {
          const int64_t size = std::min(n, whole - first);
          const auto candidate = rows ? part(state, first, 0, {size, shape.cols}) : part(state, 0, first, {shape.rows, size});
          if (candidate && keep(state, *candidate)) return true;
          if (runs_ >= options_.max_runs) return false;
        }
      }
    return false;
  }

  // Puts the data beside the line. False where the op has no x.
  bool load(State& state) { return load(state, state.problem.x.shape); }
  bool load(State& state, Shape shape) {
    if (state.loaded) return true;
    if (!has_x(state.problem)) return false;
    Problem whole = state.problem;
    whole.x.shape = shape;
    const auto inputs = make_inputs(whole, subjects_.reference());
    if (!inputs) return false;
    state.x = find_plane(*inputs, "x")->bytes;
    return state.loaded = true;
  }

  Encoding source() const { return options_.problem.x.source; }
  uint32_t element(const State& s, int64_t i) const { return code_at(source(), s.x, i); }
  static int64_t count(const State& s) { return s.problem.x.shape.count(); }

  std::vector<int64_t> set_elements(const State& s) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count(s); ++i)
      if (element(s, i) != 0) out.push_back(i);
    return out;
  }

  void zero(State& state) {
    std::vector<int64_t> live = set_elements(state);
    for (size_t chunk = live.size(); chunk > 0; chunk = chunk > 1 ? (chunk + 1) / 2 : 0) {
      for (size_t at = 0; at < live.size();) {
        State candidate = state;
        const size_t end = std::min(at + chunk, live.size());
        for (size_t i = at; i < end; ++i) set_code(source(), candidate.x, live[i], 0);
        if (keep(state, candidate)) live.erase(live.begin() + static_cast<std::ptrdiff_t>(at), live.begin() + static_cast<std::ptrdiff_t>(end));
        else at = end;
        if (runs_ >= options_.max_runs) return;
      }
    }
  }

  void simplify(State& state) {
    const EncodingInfo& e = info(source());
    const std::vector<int64_t> live = set_elements(state);
    if (live.size() > kMaxLiteral) return;
    for (int64_t i : live) {
      const uint32_t code = element(state, i);
      auto attempt = [&](uint32_t simpler) {
        if (simpler == element(state, i)) return false;
        State candidate = state;
        set_code(source(), candidate.x, i, simpler);
        return keep(state, candidate);
      };
      if (e.has_sign() && code >> (e.bits - 1)) attempt(code & ~(1u << (e.bits - 1)));
      for (int cleared = e.mantissa_bits; cleared > 0; --cleared)   // from all mantissa bits to the lowest
        if (attempt(element(state, i) & ~((1u << cleared) - 1u))) break;
    }
  }

  std::string hex(uint32_t code) const { return fmt::format("{:0{}x}", code, info(source()).bytes() * 2); }

  // Turns the data beside the line into a literal in the line.
  bool express(State& state) const {
    const std::vector<int64_t> live = set_elements(state);
    if (live.size() > kMaxLiteral) return false;
    Fill fill;
    fill.kind = live.empty() ? FillKind::zeros : FillKind::literal;
    for (int64_t i : live)
      fill.payload += fmt::format("{}{}@{}.{}", fill.payload.empty() ? "" : "+", hex(element(state, i)), i / state.problem.x.shape.cols, i % state.problem.x.shape.cols);
    state.problem.x.fill = fill;
    state.loaded = false;
    state.x.clear();
    return true;
  }

  // ---- the nearest that passes ----

  void nearest(const State& bad, Shrunk& out) {
    State loaded = bad;
    if (load(loaded)) {
      const std::vector<int64_t> live = set_elements(loaded);
      auto attempt = [&](int64_t i, uint32_t code) {
        if (code == element(loaded, i)) return false;
        State candidate = loaded;
        set_code(source(), candidate.x, i, code);
        const Found found = evaluate(candidate);
        if (!found.valid || found.breach || !express(candidate)) return false;
        out.good = candidate.problem;
        const int64_t cols = bad.problem.x.shape.cols;
        out.good_differs = fmt::format("element ({}, {}): {} instead of {}", i / cols, i % cols, hex(code), hex(element(loaded, i)));
        return true;
      };
      if (live.size() <= kMaxLiteral) {
        for (const int step : {1, 2, 3})   // one code up, one down, zero
          for (int64_t i : live) {
            const uint32_t code = element(loaded, i);
            if (attempt(i, step == 1 ? code + 1 : step == 2 ? code - 1 : 0)) return;
          }
      }
    }
    if (!passed_) return;
    State last = *passed_;
    if (last.loaded && !express(last)) return;
    out.good = last.problem;
    out.good_differs = "the last part tried that passes";
  }

  const ShrinkOptions& options_;
  const Subjects& subjects_;
  Subject& subject_;
  const std::function<void(const std::string&)>& on_progress_;
  Breach original_;
  std::optional<State> passed_;
  size_t runs_ = 0;
};

}  // namespace

Result<Shrunk> shrink(const ShrinkOptions& options, const Subjects& subjects, const std::function<void(const std::string&)>& on_progress) {
  if (!subjects.find(options.subject)) return Error{"no subject '" + options.subject + "'", 0, ""};
  if (const Support here = present_in_child(*subjects.find(options.subject)); !here.yes) return Error{"subject " + options.subject + " is absent: " + here.why, 0, ""};
  return Shrinker(options, subjects, on_progress).run();
}

int run_shrink(const ShrinkOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto start = std::chrono::steady_clock::now();
  std::function<void(const std::string&)> progress;
  if (options.progress) progress = [&](const std::string& text) { err << "\r\x1b[K" << text << std::flush; };
  const auto shrunk = shrink(options, subjects, progress);
  if (options.progress) err << "\r\x1b[K" << std::flush;
  if (!shrunk) {
    err << "error: " << shrunk.error().text() << "\n";
    return 2;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Shape from = options.problem.x.shape, to = shrunk->bad.x.shape;
  const std::string subject = options.subject == "host" ? "" : " " + subjects.find(options.subject)->argument();
  const std::string environment = to_text(options.environment).empty() ? "" : " --env " + to_text(options.environment);
  out << fmt::format("shrunk   {}x{} to {}x{} in {} runs, {:.1f} s{}\n", from.rows, from.cols, to.rows, to.cols, shrunk->runs, seconds, shrunk->exhausted ? "; the limit of runs ended it" : "");
  out << fmt::format("  from     {}\n  fails    {}\n  claim    {}: {}\n", to_line(options.problem), to_line(shrunk->bad), shrunk->breach.claim,
                     shrunk->breach.want.empty() ? shrunk->breach.got : shrunk->breach.got + " == " + shrunk->breach.want);
  out << cause_text(shrunk->breach);
  if (shrunk->good) out << fmt::format("  passes   {}\n           {}\n", to_line(*shrunk->good), shrunk->good_differs);
  else out << "  passes   none of those that were tried\n";
  out << fmt::format("  repro    assay run{}{} '{}'\n", subject, environment, to_line(shrunk->bad));
  return 0;
}

}  // namespace assay

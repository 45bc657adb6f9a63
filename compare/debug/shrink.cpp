#include "compare/debug/shrink.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <ostream>
#include <string_view>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/process/run_in_child.h"
#include "compare/debug/reproducer.h"
#include "compare/process/pool.h"
#include "compare/report/screen.h"
#include "contract/line.h"
#include "fixtures/fill.h"

namespace assay {

namespace {

// One candidate. Where `loaded`, x holds the data: they are no longer what the fill draws. Of a gemm the data are those of one operand.
struct State {
  Problem problem;
  bool loaded = false;
  std::vector<std::byte> x;
  std::optional<Side> side;
};

// The line that draws the data.
Problem drawn(const State& s) { return s.side ? operand_problem(s.problem, *s.side) : s.problem; }
Fill& fill_of(State& s) { return s.side ? s.problem.as<Gemm>()->operand(*s.side).fill : s.problem.x.fill; }
std::vector<std::optional<Side>> sides_of(const Problem& p) { return p.as<Gemm>() ? std::vector<std::optional<Side>>{Side::a, Side::b} : std::vector<std::optional<Side>>{std::nullopt}; }

// What a crop makes smaller: rows and columns of x; of a gemm N, M and K.
int64_t& extent(Problem& p, size_t axis) { return axis == 0 ? p.x.shape.rows : axis == 1 ? p.x.shape.cols : p.as<Gemm>()->k; }
// As the line has them: "64x96", of a gemm <M>x<N>x<K>.
std::string sizes_text(const Problem& p) {
  const Gemm* op = p.as<Gemm>();
  return op ? fmt::format("{}x{}x{}", p.x.shape.cols, p.x.shape.rows, op->k) : fmt::format("{}x{}", p.x.shape.rows, p.x.shape.cols);
}

struct Found {
  bool valid = false;                 // the subject could be run
  std::optional<Breach> breach;       // nothing: passes
  std::string why;                    // not valid: why
};

// Of whichever member: a split that loses members counts the others anew.
std::string_view plane_of(const Breach& b) { return std::string_view(b.plane).substr(0, b.plane.find('[')); }
bool same_failure(const Breach& a, const Breach& b) { return a.claim == b.claim && plane_of(a) == plane_of(b) && a.in_padding == b.in_padding; }

constexpr int64_t kWindow = 32, kManyWindows = 64;   // of kWindow x kWindow elements: a tensor of so many is large
bool is_large(const Problem& p) { return p.as<Quantize>() && p.x.shape.count() >= kManyWindows * kWindow * kWindow; }

class Shrinker {
 public:
  Shrinker(const ShrinkOptions& options, const Subjects& subjects, const std::function<void(const std::string&)>& on_progress)
      : options_(options), subjects_(subjects), subject_(*subjects.find(options.subject)), on_progress_(on_progress) {}

  Result<Shrunk> run() {
    State state{options_.problem, false, {}, {}};
    const Found first = evaluate(state), second = options_.known ? first : evaluate(state);
    if (!first.valid) return Error{first.why, 0, ""};
    if (first.breach.has_value() != second.breach.has_value() || (first.breach && !(*first.breach == *second.breach)))
      return Error{"two runs of this line on " + options_.subject + " differ: not deterministic, so nothing can be shrunk", 0, "assay run judges claim repeat with other orders"};
    if (!first.breach) return Error{"this line passes on " + options_.subject + ": there is nothing to shrink", 0, ""};
    original_ = breach_ = *first.breach;

    drop_members(state);
    drop_direction(state);
    drop_epilogue(state);
    const State line = state;
    if (state.problem.as<Quantize>() && fill_of(state).kind == FillKind::pack) load(state);   // once, and not for every part
    if (is_large(state.problem) && !crop_to_window(state))
      if (State few = state; load(few) && zero_around(few) && express(few)) state = few;
    for (const bool aligned : {true, false}) crop(state, aligned);
    Shrunk out;
    for (const auto& side : sides_of(state.problem)) {
      state.side = side;
      const State window = state;
      if (!load(state)) continue;
      zero(state);
      simplify(state);
      if (express(state)) continue;
      state = window;                        // too many elements are left for a literal
      if (fill_of(state).kind == FillKind::pack) state.loaded = false, state.x.clear();
    }
    if (state.problem.as<Gemm>()) crop(state, false);   // K that neither operand has elements in any more
    const bool exhausted = spent();
    Found last = evaluate(state);            // the line itself, without the data kept beside it
    if (state.problem.x.fill.kind == FillKind::pack && !last.breach) last = evaluate(state = line);   // a tensor of the pack that has another shape than the line's has no windows
    if (!last.breach || !same_failure(*last.breach, original_)) return Error{"the shrunk line does not fail: " + to_line(state.problem), 0, "report this as a defect of assay shrink"};
    out.bad = state.problem;
    out.breach = *last.breach;
    if (!options_.known) nearest(state, out);
    out.runs = runs_;
    out.exhausted = exhausted;
    return out;
  }

 private:
  // ---- one evaluation ----

  Found evaluate(const State& s) {
    ++runs_;
    if (on_progress_) on_progress_(fmt::format("run {}: {}", runs_, sizes_text(s.problem)));
    Found found;
    const std::optional<Error> invalid = validate(s.problem);
    if (invalid) return found.why = invalid->text(), found;
    const auto inputs = inputs_of(s);
    if (!inputs) return found.why = inputs.error().text(), found;
    const IsolatedRun got = run_isolated(subject_, s.problem, *inputs, options_.environment, options_.timeout);
    if (got.status == IsolatedRun::Status::unsupported) return found.why = got.trouble(), found;
    found.valid = true;
    elements_ += s.problem.x.shape.count();
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
    const bool unpinned = subject_.unpinned(s.problem).has_value();          // N16.13: what lies inside the bound is no failure
    if (!unpinned) found.breach = parity_breach(s.problem, judge(&s.problem, got.execution.planes, want.execution.planes), options_.subject, "reference");
    const bool settled = options_.known && original_.claim == "parity";      // a law that is broken instead would be another failure
    if (!found.breach && !settled)
      if (const auto laws = check_laws(s.problem, *inputs, got.execution.planes, options_.subject, nullptr, unpinned ? GemmOrder::any : GemmOrder::pinned); !laws.empty())
        found.breach = laws.front();
    return found;
  }

  // The inputs of a candidate, the data beside the line among them.
  Result<std::vector<PlaneData>> inputs_of(const State& s) {
    if (!s.loaded) return make_inputs(s.problem, subjects_.reference());
    const Problem line = drawn(s);
    auto inputs = inputs_with(line, {{input_planes(line).front(), s.x}}, subjects_.reference());
    if (!inputs || !s.side) return inputs;
    const IsolatedRun made = run_isolated(subjects_.reference(), line, *inputs, Environment{}, options_.timeout);
    if (!made.sound()) return Error{"making an operand, reference " + made.trouble(), 0, ""};
    const Direction d = s.problem.as<Gemm>()->direction(*s.side);
    std::vector<PlaneData> given;
    for (const Plane& plane : input_planes(s.problem)) {
      if (!plane.name.starts_with(std::string(name_of(*s.side)) + ".")) continue;
      const std::string stem = plane.name.substr(2);
      const PlaneData* own = find_plane(made.execution.planes, plane_name(d, stem));
      given.push_back({plane, (own ? own : find_plane(*inputs, plane_name(d, "given." + stem)))->bytes});   // a given amax is no output
    }
    return inputs_with(s.problem, given, subjects_.reference());
  }

  bool spent() const {
    return runs_ >= options_.max_runs || (options_.max_elements > 0 && elements_ >= options_.max_elements) ||
           (options_.max_seconds > 0 && std::chrono::duration<double>(Clock::now() - start_).count() >= options_.max_seconds);
  }

  // Whether `s` still fails in the same way; remembers the last that passed. The steps ask for some parts more than once.
  bool fails(const State& s) {
    if (spent()) return false;
    const std::string key = to_line(s.problem) + (s.side ? std::string(name_of(*s.side)) : "") + (s.loaded ? fmt::format(" {:x}", std::hash<std::string_view>()({reinterpret_cast<const char*>(s.x.data()), s.x.size()})) : "");
    auto known = failures_.find(key);
    if (known == failures_.end()) {
      const Found found = evaluate(s);
      if (found.valid && !found.breach) passed_ = s;
      known = failures_.emplace(key, found.valid && found.breach && same_failure(*found.breach, original_) ? found.breach : std::nullopt).first;
    }
    if (known->second) failed_ = *known->second;
    return known->second.has_value();
  }

  bool keep(State& state, State candidate) {
    if (!fails(candidate)) return false;
    breach_ = failed_;
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
      if (keep(state, State{member, false, {}, {}})) return;
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

  // A part of the data beside the line.
  static std::vector<std::byte> cut(const std::vector<std::byte>& x, size_t element, Shape whole, int64_t r0, int64_t c0, Shape shape) {
    std::vector<std::byte> out;
    for (int64_t r = 0; r < shape.rows; ++r) {
      const auto row = x.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>((r0 + r) * whole.cols + c0) * element);
      out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(static_cast<size_t>(shape.cols) * element));
    }
    return out;
  }

  // The part of `state` whose rows, columns or K are `size` from `first` on; nothing where its line cannot say so.
  std::optional<State> part(const State& state, size_t axis, int64_t first, int64_t size) {
    if (state.problem.as<Split>()) return std::nullopt;
    if (state.problem.as<Gemm>()) return part_of_gemm(state, axis, first, size);
    const Shape whole = state.problem.x.shape;
    const int64_t r0 = axis == 0 ? first : 0, c0 = axis == 0 ? 0 : first;
    State out = state;
    extent(out.problem, axis) = size;
    const FillKind kind = state.problem.x.fill.kind;
    if (kind != FillKind::literal) {
      out.problem.x.fill.at_row += r0;
      out.problem.x.fill.at_col += c0;
    }
    if (!state.loaded && kind != FillKind::literal && kind != FillKind::pack) return out;
    State data = state;
    if (!load(data, whole)) return std::nullopt;
    out.x = cut(data.x, static_cast<size_t>(info(state.problem.x.source).bytes()), whole, r0, c0, out.problem.x.shape);
    out.loaded = true;
    return out;
  }

  // Every operand that the axis belongs to moves with it: by its window, a literal by its elements.
  std::optional<State> part_of_gemm(const State& state, size_t axis, int64_t first, int64_t size) {
    State out{state.problem, false, {}, {}};
    extent(out.problem, axis) = size;
    for (const Side side : kSides) {
      const bool rows = state.problem.as<Gemm>()->direction(side) == Direction::row;
      const int64_t line = axis == (side == Side::a ? 1u : 0u) ? first : 0, k = axis == 2 ? first : 0, r0 = rows ? line : k, c0 = rows ? k : line;
      out.side = side;
      if (fill_of(out).kind != FillKind::literal) {
        fill_of(out).at_row += r0;
        fill_of(out).at_col += c0;
        continue;
      }
      State whole{state.problem, false, {}, side};
      if (!load(whole)) return std::nullopt;
      const Shape from = drawn(whole).x.shape;
      out.x = cut(whole.x, static_cast<size_t>(info(source(whole)).bytes()), from, r0, c0, drawn(out).x.shape);
      out.loaded = true;
      if (!express(out)) return std::nullopt;
    }
    out.side = state.side;
    const Gemm& op = *out.problem.as<Gemm>();
    if (axis == 2 || !(op.reads_c() || op.bias)) return out;
    Fill& c = out.problem.x.fill;
    if (c.kind == FillKind::literal) return std::nullopt;
    (axis == 0 ? c.at_row : c.at_col) += first;
    return out;
  }

  // What follows the sum, where the failure does without it.
  void drop_epilogue(State& state) {
    if (!state.problem.as<Gemm>()) return;
    const Gemm plain;
    for (const auto& drop : std::initializer_list<std::function<void(Gemm&)>>{[](Gemm& g) { g.bias.reset(); }, [&](Gemm& g) { g.beta = plain.beta; }, [&](Gemm& g) { g.alpha = plain.alpha; }}) {
      State candidate = state;
      drop(*candidate.problem.as<Gemm>());
      if (!(candidate.problem == state.problem)) keep(state, candidate);
    }
  }

  // Pins the amax that the whole tensor has, so that a part of it is scaled alike.
  bool pin(State& state) {
    bool pinned = false;
    if (Gemm* op = state.problem.as<Gemm>()) {
      for (const Side side : kSides) pinned |= pin(op->operand(side).quantizer, op->direction(side), State{operand_problem(state.problem, side), false, {}, {}});
    } else if (state.problem.as<Quantize>()) {
      for (const Direction d : kDirections)
        if (auto& q = state.problem.quantizer(d)) pinned |= pin(*q, d, state);
    }
    return pinned;
  }
  bool pin(Quantizer& q, Direction d, const State& whole) {
    const bool has_amax = (q.format == FormatId::fp8_current || q.format == FormatId::nvfp4) && !q.row_scaled;
    if (!has_amax || q.amax) return false;
    const auto inputs = inputs_of(whole);
    if (!inputs) return false;
    const IsolatedRun run = run_isolated(subjects_.reference(), whole.problem, *inputs, Environment{}, options_.timeout);
    const PlaneData* amax = find_plane(run.execution.planes, plane_name(d, "amax"));
    if (!run.sound() || !amax) return false;
    q.amax = code_at(Encoding::f32, amax->bytes, 0);
    return true;
  }

  // What the first difference of `state` says something of, in x: an element, a block, everything.
  std::optional<Region> first_difference(const State& state) const {
    if (breach_.row < 0 || breach_.in_padding || !state.problem.as<Quantize>()) return std::nullopt;
    for (const Plane& plane : output_planes(state.problem))
      if (plane.name == breach_.plane) return region_of(&state.problem, plane, {false, breach_.row, breach_.col});
    return std::nullopt;
  }

  // Of many windows one that holds the first difference, where that fails alike; else with the tensor's amax.
  bool crop_to_window(State& state) {
    const auto at = first_difference(state);
    if (!at) return false;
    const Shape whole = state.problem.x.shape;
    State pinned = state;
    for (const bool own : {true, false}) {
      if (!own && !pin(pinned)) return false;
      for (const int64_t size : {kWindow, 4 * kWindow}) {
        if (whole.count() < kManyWindows * size * size) continue;
        const State& from = own ? state : pinned;
        const int64_t r0 = at->row0 / size * size, c0 = at->col0 / size * size;
        const auto rows = part(from, 0, r0, std::min(size, whole.rows - r0));
        const auto window = rows ? part(*rows, 1, c0, std::min(size, whole.cols - c0)) : std::nullopt;
        if (window && keep(state, *window)) return true;
      }
    }
    return false;
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
    const size_t axes = state.problem.as<Gemm>() ? 3 : 2;
    for (int64_t parts : {2, 4, 8})
      for (size_t axis = 0; axis < axes; ++axis) {
        const int64_t whole = extent(state.problem, axis), unit = aligned ? 32 : 1;
        const int64_t n = std::max(unit, whole / parts / unit * unit);
        if (n >= whole) continue;
        for (int64_t first = 0; first < whole; first += n) {
          const auto candidate = part(state, axis, first, std::min(n, whole - first));
          if (candidate && keep(state, *candidate)) return true;
          if (spent()) return false;
        }
      }
    return false;
  }

  // Puts the data beside the line. False where the op has no x.
  bool load(State& state) { return load(state, drawn(state).x.shape); }
  bool load(State& state, Shape shape) {
    if (state.loaded) return true;
    Problem whole = drawn(state);
    if (!has_x(whole)) return false;
    whole.x.shape = shape;
    const auto inputs = make_inputs(whole, subjects_.reference());
    if (!inputs) return false;
    state.x = find_plane(*inputs, "x")->bytes;
    return state.loaded = true;
  }

  static Encoding source(const State& s) { return s.side ? s.problem.as<Gemm>()->operand(*s.side).source : s.problem.x.source; }
  static uint32_t element(const State& s, int64_t i) { return code_at(source(s), s.x, i); }

  static std::vector<int64_t> set_elements(const State& s) {
    std::vector<int64_t> out;
    for (int64_t i = 0, count = drawn(s).x.shape.count(); i < count; ++i)
      if (element(s, i) != 0) out.push_back(i);
    return out;
  }

  void zero(State& state) {
    zero_around(state);
    std::vector<int64_t> live = set_elements(state);
    for (size_t chunk = live.size(); chunk > 0; chunk = chunk > 1 ? (chunk + 1) / 2 : 0) {
      for (size_t at = 0; at < live.size();) {
        State candidate = state;
        const size_t end = std::min(at + chunk, live.size());
        for (size_t i = at; i < end; ++i) set_code(source(state), candidate.x, live[i], 0);
        if (keep(state, candidate)) live.erase(live.begin() + static_cast<std::ptrdiff_t>(at), live.begin() + static_cast<std::ptrdiff_t>(end));
        else at = end;
        if (spent()) return;
      }
    }
  }

  // Of many elements those of the first difference alone, where that fails alike, or those of the window around it.
  bool zero_around(State& state) {
    const auto at = first_difference(state);
    if (!at || set_elements(state).size() <= kMaxLiteral) return false;
    const int64_t cols = state.problem.x.shape.cols;
    for (const int64_t size : {int64_t{1}, kWindow}) {
      const Region near{at->row0 / size * size, (at->row1 + size - 1) / size * size, at->col0 / size * size, (at->col1 + size - 1) / size * size};
      State candidate = state;
      for (int64_t i = 0; i < state.problem.x.shape.count(); ++i)
        if (!near.contains(i / cols, i % cols)) set_code(source(state), candidate.x, i, 0);
      if (keep(state, candidate)) return true;
    }
    return false;
  }

  void simplify(State& state) {
    const EncodingInfo& e = info(source(state));
    const std::vector<int64_t> live = set_elements(state);
    if (live.size() > kMaxLiteral) return;
    for (int64_t i : live) {
      const uint32_t code = element(state, i);
      auto attempt = [&](uint32_t simpler) {
        if (simpler == element(state, i)) return false;
        State candidate = state;
        set_code(source(state), candidate.x, i, simpler);
        return keep(state, candidate);
      };
      if (e.has_sign() && code >> (e.bits - 1)) attempt(code & ~(1u << (e.bits - 1)));
      for (int cleared = e.mantissa_bits; cleared > 0; --cleared)   // from all mantissa bits to the lowest
        if (attempt(element(state, i) & ~((1u << cleared) - 1u))) break;
    }
  }

  static std::string hex(const State& s, uint32_t code) { return fmt::format("{:0{}x}", code, info(source(s)).bytes() * 2); }

  // Turns the data beside the line into a literal in the line.
  static bool express(State& state) {
    const std::vector<int64_t> live = set_elements(state);
    if (live.size() > kMaxLiteral) return false;
    const int64_t cols = drawn(state).x.shape.cols;
    Fill fill;
    fill.kind = live.empty() ? FillKind::zeros : FillKind::literal;
    for (int64_t i : live)
      fill.payload += fmt::format("{}{}@{}.{}", fill.payload.empty() ? "" : "+", hex(state, element(state, i)), i / cols, i % cols);
    fill_of(state) = fill;
    state.loaded = false;
    state.x.clear();
    return true;
  }

  // ---- the nearest that passes ----

  void nearest(const State& bad, Shrunk& out) {
    for (const auto& side : sides_of(bad.problem)) {
      State loaded = bad;
      loaded.side = side;
      if (!load(loaded)) continue;
      const std::vector<int64_t> live = set_elements(loaded);
      auto attempt = [&](int64_t i, uint32_t code) {
        if (code == element(loaded, i)) return false;
        State candidate = loaded;
        set_code(source(loaded), candidate.x, i, code);
        const Found found = evaluate(candidate);
        if (!found.valid || found.breach || !express(candidate)) return false;
        out.good = candidate.problem;
        const int64_t cols = drawn(loaded).x.shape.cols;
        out.good_differs = fmt::format("{}element ({}, {}): {} instead of {}", loaded.side ? std::string(name_of(*loaded.side)) + " " : "", i / cols, i % cols, hex(loaded, code),
                                       hex(loaded, element(loaded, i)));
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
  Breach breach_, failed_;                                  // of the state that is kept; of the last that failed
  std::map<std::string, std::optional<Breach>> failures_;   // of what was run: nothing where it did not fail in the same way
  std::optional<State> passed_;
  size_t runs_ = 0;
  int64_t elements_ = 0;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
};

// What both sides make of the line, written down.
std::optional<Error> reproduce(const ShrinkOptions& options, const Subjects& subjects, const Problem& bad) {
  const auto inputs = make_inputs(bad, subjects.reference());
  if (!inputs) return inputs.error();
  Subject& subject = *subjects.find(options.subject);
  const IsolatedRun got = run_isolated(subject, bad, *inputs, options.environment, options.timeout);
  const IsolatedRun want = run_isolated(subjects.reference(), bad, *inputs, Environment{}, options.timeout);
  if (!want.sound()) return Error{"reference " + want.trouble(), 0, ""};
  return write_reproducer(options.reproducer, bad, subject.argument(), *inputs, got.execution.planes, want.execution.planes);
}

}  // namespace

Result<Shrunk> shrink(const ShrinkOptions& options, const Subjects& subjects, const std::function<void(const std::string&)>& on_progress) {
  if (!subjects.find(options.subject)) return Error{"no subject '" + options.subject + "'", 0, ""};
  if (const Support here = present_in_child(*subjects.find(options.subject)); !here.yes) return Error{"subject " + options.subject + " is absent: " + here.why, 0, ""};
  return Shrinker(options, subjects, on_progress).run();
}

int run_shrink(const ShrinkOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  if (Subject* subject = subjects.find(options.subject))
    if (const Support here = present_in_child(*subject); !here.yes) {
      err << "error: subject " << options.subject << " is absent: " << here.why << "\n";
      return 3;
    }
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
  const std::string subject = options.subject == "host" ? "" : " " + subjects.find(options.subject)->argument();
  const std::string environment = to_text(options.environment).empty() ? "" : " --env " + to_text(options.environment);
  out << fmt::format("shrunk   {} to {} in {} runs, {:.1f} s{}\n", sizes_text(options.problem), sizes_text(shrunk->bad), shrunk->runs, seconds, shrunk->exhausted ? "; the limit of runs ended it" : "");
  out << fmt::format("  from     {}\n  fails    {}\n  claim    {}: {}\n", to_line(options.problem), to_line(shrunk->bad), shrunk->breach.claim,
                     shrunk->breach.want.empty() ? shrunk->breach.got : shrunk->breach.got + " == " + shrunk->breach.want);
  out << cause_text(shrunk->breach);
  if (shrunk->good) out << fmt::format("  passes   {}\n           {}\n", to_line(*shrunk->good), shrunk->good_differs);
  else out << "  passes   none of those that were tried\n";
  out << fmt::format("  repro    assay run{}{} '{}'\n", subject, environment, to_line(shrunk->bad));
  if (options.reproducer.empty()) return 0;
  if (const auto error = reproduce(options, subjects, shrunk->bad)) {
    err << "error: " << error->text() << "\n";
    return 2;
  }
  out << fmt::format("  wrote    {}: reproduce.cpp, case.safetensors, README\n", options.reproducer);
  return 0;
}

}  // namespace assay

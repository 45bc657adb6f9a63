#include "compare/debug/shrink_crop.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace assay::shrinking {

namespace {

constexpr int64_t kManyWindows = 64;  // a tensor of so many is large

// A part of the data beside the line.
std::vector<std::byte> cut(const std::vector<std::byte>& x, Encoding e, Shape whole, int64_t r0, int64_t c0,
                           Shape shape) {
  const size_t bytes = static_cast<size_t>(info(e).bytes());
  std::vector<std::byte> out;
  for (int64_t r = 0; r < shape.rows; ++r) {
    const size_t first = static_cast<size_t>((r0 + r) * whole.cols + c0) * bytes;
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(first);
    out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(static_cast<size_t>(shape.cols) * bytes));
  }
  return out;
}

// Every operand that the axis belongs to moves with it: by its window, a literal by its elements.
std::optional<State> part_of_gemm(Trials& trials, const State& state, size_t axis, int64_t first,
                                  int64_t size) {
  State out{state.problem, false, {}, {}};
  extent(out.problem, axis) = size;
  for (const Side side : kSides) {
    const bool rows = state.problem.as<Gemm>()->direction(side) == Direction::row;
    const int64_t line = axis == (side == Side::a ? 1u : 0u) ? first : 0, k = axis == 2 ? first : 0;
    const int64_t r0 = rows ? line : k, c0 = rows ? k : line;
    out.side = side;
    if (fill_of(out).kind != FillKind::literal) {
      fill_of(out).at_row += r0;
      fill_of(out).at_col += c0;
      continue;
    }
    State whole{state.problem, false, {}, side};
    if (!trials.load(whole)) return std::nullopt;
    out.x = cut(whole.x, source(whole), drawn(whole).x.shape, r0, c0, drawn(out).x.shape);
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

// The part of `state` whose rows, columns or K are `size` from `first` on; nothing where its line cannot say
// so.
std::optional<State> part(Trials& trials, const State& state, size_t axis, int64_t first, int64_t size) {
  if (state.problem.as<Split>()) return std::nullopt;
  if (state.problem.as<Gemm>()) return part_of_gemm(trials, state, axis, first, size);
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
  if (!trials.load(data, whole)) return std::nullopt;
  out.x = cut(data.x, state.problem.x.source, whole, r0, c0, out.problem.x.shape);
  out.loaded = true;
  return out;
}

// ---- amaxes -----------------------------------------------------------------------------------------------

bool pin(Trials& trials, Quantizer& q, Direction d, const State& whole) {
  const bool has_amax = (q.format == FormatId::fp8_current || q.format == FormatId::nvfp4) && !q.row_scaled;
  if (!has_amax || q.amax) return false;
  const auto amax = trials.amax_of(whole, d);
  if (amax) q.amax = *amax;
  return amax.has_value();
}

// Pins the amaxes that the whole tensor has, so that a part of it is scaled alike.
bool pin(Trials& trials, State& state) {
  bool pinned = false;
  if (Gemm* op = state.problem.as<Gemm>()) {
    for (const Side side : kSides) {
      const State operand{operand_problem(state.problem, side), false, {}, {}};
      pinned |= pin(trials, op->operand(side).quantizer, op->direction(side), operand);
    }
  } else if (state.problem.as<Quantize>()) {
    for (const Direction d : kDirections)
      if (auto& q = state.problem.quantizer(d)) pinned |= pin(trials, *q, d, state);
  }
  return pinned;
}

bool crop_once(Trials& trials, State& state, bool aligned) {
  const size_t axes = state.problem.as<Gemm>() ? 3 : 2;
  for (int64_t parts : {2, 4, 8})
    for (size_t axis = 0; axis < axes; ++axis) {
      const int64_t whole = extent(state.problem, axis), unit = aligned ? 32 : 1;
      const int64_t n = std::max(unit, whole / parts / unit * unit);
      if (n >= whole) continue;
      for (int64_t first = 0; first < whole; first += n) {
        const auto candidate = part(trials, state, axis, first, std::min(n, whole - first));
        if (candidate && trials.keep(state, *candidate)) return true;
        if (trials.spent()) return false;
      }
    }
  return false;
}

}  // namespace

bool is_large(const Problem& p) {
  return p.as<Quantize>() && p.x.shape.count() >= kManyWindows * kWindow * kWindow;
}

std::optional<Region> first_difference(const State& state, const Breach& breach) {
  if (breach.row < 0 || breach.in_padding || !state.problem.as<Quantize>()) return std::nullopt;
  for (const Plane& plane : output_planes(state.problem))
    if (plane.name == breach.plane) return region_of(&state.problem, plane, {false, breach.row, breach.col});
  return std::nullopt;
}

bool crop_to_window(Trials& trials, State& state) {
  const auto at = first_difference(state, trials.breach());
  if (!at) return false;
  const Shape whole = state.problem.x.shape;
  State pinned = state;
  for (const bool own : {true, false}) {
    if (!own && !pin(trials, pinned)) return false;
    for (const int64_t size : {kWindow, 4 * kWindow}) {
      if (whole.count() < kManyWindows * size * size) continue;
      const State& from = own ? state : pinned;
      const int64_t r0 = at->row0 / size * size, c0 = at->col0 / size * size;
      const auto rows = part(trials, from, 0, r0, std::min(size, whole.rows - r0));
      const auto window = rows ? part(trials, *rows, 1, c0, std::min(size, whole.cols - c0)) : std::nullopt;
      if (window && trials.keep(state, *window)) return true;
    }
  }
  return false;
}

void crop(Trials& trials, State& state, bool aligned) {
  while (crop_once(trials, state, aligned)) {}
  State pinned = state;
  if (!pin(trials, pinned) || !trials.fails(pinned)) return;
  if (!crop_once(trials, pinned, aligned)) return;  // pinning bought nothing
  state = pinned;
  while (crop_once(trials, state, aligned)) {}
}

}  // namespace assay::shrinking

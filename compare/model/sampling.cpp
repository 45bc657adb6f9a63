#include "compare/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "contract/line.h"

namespace assay::model {

namespace {

constexpr int64_t kTile = 256;      // every tile of a kernel divides it
constexpr int64_t kColumns = 4096;  // of the base
// Elements of the base. Scales of blocks of 32 rows, a byte each, lie in lines of memory of their own only
// where there are 4096 rows.
constexpr int64_t elements_of_base(Sample sample) {
  return (sample == Sample::small ? 2560 : 4096) * kColumns;
}

// The least number from `least` on that leaves n's remainder by the tile.
int64_t alike(int64_t n, int64_t least) {
  const int64_t below = std::max<int64_t>(least, 0) / kTile * kTile + n % kTile;
  return below < least ? below + kTile : below;
}

// The line with another shape, read anew: sizes of members follow from it. Nothing where that is no line.
std::optional<Problem> with_shape(const Problem& p, int64_t rows, int64_t cols) {
  const auto word = [](int64_t r, int64_t c) {
    return " " + std::to_string(r) + "x" + std::to_string(c) + " ";
  };
  std::string line = to_line(p) + " ";
  const std::string shape = word(p.x.shape.rows, p.x.shape.cols);
  const size_t at = line.find(shape);
  if (at == std::string::npos) return {};
  line.replace(at, shape.size(), word(rows, cols));
  const auto read = parse_line(line);
  if (!read || read->x.shape != Shape{rows, cols}) return {};
  return *read;
}

using Lines = std::vector<std::optional<Problem>>;

// Fewer rows, and columns where there are many; empty where the line has too few rows for that.
Lines shorter(const Problem& p, int64_t base) {
  const Shape s = p.x.shape;
  const int64_t cols = s.cols <= kColumns ? s.cols : alike(s.cols, kColumns);
  const int64_t rows = alike(s.rows, base / std::max<int64_t>(cols, 1)), twice = alike(s.rows, 2 * rows);
  if (rows <= 0 || twice > s.rows) return {};
  const auto other = s.cols >= 2 * cols ? with_shape(p, rows, alike(s.cols, 2 * cols))
                                        : with_shape(p, alike(s.rows, rows + rows / 2), cols);
  return {other, with_shape(p, rows, cols), with_shape(p, twice, cols)};
}

// Fewer columns alone.
Lines narrower(const Problem& p, int64_t base) {
  const Shape s = p.x.shape;
  const int64_t cols = alike(s.cols, std::max(kTile, base / std::max<int64_t>(s.rows, 1)));
  const int64_t twice = alike(s.cols, 2 * cols);
  if (cols <= 0 || twice > s.cols) return {};
  return {with_shape(p, s.rows, alike(s.cols, cols + cols / 2)), with_shape(p, s.rows, cols),
          with_shape(p, s.rows, twice)};
}

}  // namespace

Result<std::vector<Problem>> sample_lines(const Problem& p, Sample sample) {
  if (p.x.shape.count() <= kCountedWhole) return std::vector<Problem>{p};
  for (const auto make : {shorter, narrower}) {
    std::vector<Problem> lines;
    for (const std::optional<Problem>& line : make(p, elements_of_base(sample)))
      if (line) lines.push_back(*line);
    if (lines.size() == 3) return lines;
  }
  return Error{to_line(p) + " has " + std::to_string(p.x.shape.count()) +
                   " elements, too many to be counted, and its shape cannot be made smaller",
               0, "type a line of at most " + std::to_string(kCountedWhole) + " elements"};
}

Extrapolated extrapolated(const std::vector<SizedTotals>& sizes, double elements) {
  Extrapolated out;
  const SizedTotals& last = sizes.back();
  if (sizes.size() == 1) return {last.totals, 0, ""};
  const SizedTotals& before = sizes[sizes.size() - 2];
  constexpr double kTooFew = 1e-3;
  const auto instructions = last.totals.find("warp instructions");
  const double least = instructions == last.totals.end() ? 0 : kTooFew * instructions->second;
  for (const auto& [name, n] : last.totals) {
    const auto of = [&name = name](const SizedTotals& s) {
      const auto found = s.totals.find(name);
      return found == s.totals.end() ? 0.0 : found->second;
    };
    const double slope = (n - of(before)) / (last.elements - before.elements);
    const auto at = [&, n = n](double e) { return n + slope * (e - last.elements); };
    out.totals[name] = std::max(0.0, at(elements));
    if (n <= least) continue;
    for (size_t k = 0; k + 2 < sizes.size(); ++k) {
      const double departure = std::abs(at(sizes[k].elements) - of(sizes[k])) / n;
      if (departure > out.departure) out.departure = departure, out.departing = name;
    }
  }
  return out;
}

}  // namespace assay::model

#include "compare/diagnosis/patterns/bands.h"

#include <algorithm>

#include <fmt/format.h>

namespace assay::patterns {

using std::string;

std::span<const Reading> readings() {
  static constexpr Reading kReadings[] = {{1, 0},   {1, 2},  {1, 4},  {1, 8},  {1, 16},  {1, 32},  {1, 64},
                                          {1, 128}, {2, 32}, {4, 32}, {8, 32}, {16, 32}, {8, 2},   {16, 2},
                                          {16, 4},  {16, 8}, {32, 2}, {32, 4}, {64, 2},  {128, 2}, {128, 4}};
  return kReadings;
}

Counts by_reading(const Counts& by_value, Reading reading) {
  const int64_t n = static_cast<int64_t>(by_value.of.size());
  Counts out(static_cast<size_t>(reading.modulus ? reading.modulus : reading(n - 1) + 1));
  for (int64_t v = 0; v < n; ++v) {
    const size_t k = static_cast<size_t>(reading(v));
    out.of[k] += by_value.of[static_cast<size_t>(v)];
    out.differ[k] += by_value.differ[static_cast<size_t>(v)];
  }
  return out;
}

Band best_band(const Counts& by_class, double rate, bool lowest) {
  Band best;
  double sum = 0, most = -1;
  int64_t from = 0;
  for (size_t k = 0; k < by_class.of.size(); ++k) {
    const double excess =
        static_cast<double>(by_class.differ[k]) - rate * static_cast<double>(by_class.of[k]);
    if (sum <= 0) {
      sum = 0;
      from = static_cast<int64_t>(k);
    }
    sum += lowest ? -excess : excess;
    if (sum > most) {
      most = sum;
      best.from = from;
      best.to = static_cast<int64_t>(k);
    }
  }
  best.complement = lowest;
  return best;
}

namespace {

// "the last row", "column < 32": a range of single coordinates, where it has a plain name; else nothing.
string plain_text(const Band& b, const string& axis, int64_t n, int64_t block) {
  if (b.from == n - 1) return fmt::format("the last {}", axis);
  if (b.from == b.to && b.from == 0) return fmt::format("the first {}", axis);
  if (b.to == n - 1 && block > 1 && n % block != 0 && b.from == n / block * block)
    return fmt::format("the partial last block ({}s {}..{})", axis, b.from, b.to);
  if (b.from > 0 && b.to == n - 1) return fmt::format("{} >= {}", axis, b.from);
  if (b.from == 0) return fmt::format("{} < {}", axis, b.to + 1);
  return "";
}

// Which part of each block a range of positions in it is.
const char* part_of_block(const Band& b, int64_t block) {
  if (b.from == block - 1) return "the last of each block";
  if (b.to == 0) return "the first of each block";
  if (b.from == block / 2 && b.to == block - 1) return "the second half of each block";
  if (b.from == 0 && b.to == block / 2 - 1) return "the first half of each block";
  return nullptr;
}

}  // namespace

string band_text(Band b, int64_t n, int64_t block, int64_t step, int64_t length) {
  const string axis = b.rows ? "row" : "column";
  string what = axis, note;
  const Reading r = b.reading;
  if (r.divisor * step > 1 && r.modulus) what += fmt::format(" / {}", r.divisor * step);
  if (r.modulus) what += fmt::format(" % {}", r.modulus);
  if (r.modulus == 32 && r.divisor > 1 && step == 1) note = fmt::format("lanes of {} elements", r.divisor);
  const bool single = !r.modulus && r.divisor == 1;
  if (single && step > 1) {
    n = length;
    b.from *= step;
    b.to = std::min((b.to + 1) * step, n) - 1;
    block = step;
  }
  if (single && !b.complement)
    if (string text = plain_text(b, axis, n, block); !text.empty()) return text;
  if (block > 1 && r.divisor == 1 && r.modulus == block && !b.complement)
    if (const char* part = part_of_block(b, block)) note = part;
  what += b.from == b.to ? fmt::format(" {} {}", b.complement ? "!=" : "==", b.from)
                         : fmt::format(" {} {}..{}", b.complement ? "not in" : "in", b.from, b.to);
  return note.empty() ? what : fmt::format("{} ({})", what, note);
}

}  // namespace assay::patterns

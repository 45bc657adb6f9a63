// Runs of codes that stand elsewhere, in whatever order.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/layout_search.h"

namespace assay::patterns {

namespace {

using std::string;

// How many codes in a row are so rarely equal by chance that a run of them says where it comes from; 0: no
// number of them that the plane has.
int64_t window_of(const AddressedCodes& codes) {
  const double bits = -std::log2(codes.chance), needed = std::log2(static_cast<double>(codes.n)) + 6;
  int64_t window = 4;
  while (window < 64 && static_cast<double>(window) * bits < needed) window *= 2;
  const bool enough = static_cast<double>(window) * bits >= needed && codes.n >= 2 * window;
  return enough ? window : 0;
}

// A hash of each window of codes.
std::vector<uint64_t> hashes(const std::vector<uint32_t>& codes, int64_t window) {
  constexpr uint64_t kBase = 0x9E3779B97F4A7C15u;
  const int64_t n = static_cast<int64_t>(codes.size());
  uint64_t power = 1, h = 0;
  for (int64_t i = 0; i < window; ++i) power *= kBase;
  std::vector<uint64_t> out(static_cast<size_t>(n - window + 1));
  for (int64_t i = 0; i < n; ++i) {
    h = h * kBase + codes[static_cast<size_t>(i)] + 1;
    if (i >= window) h -= power * (codes[static_cast<size_t>(i - window)] + 1);
    if (i >= window - 1) out[static_cast<size_t>(i - window + 1)] = h;
  }
  return out;
}

// Whether enough of some windows of got stand elsewhere in want: a quick look before the long one.
bool displaced(const std::vector<uint64_t>& in_got, const std::vector<uint64_t>& in_want) {
  std::unordered_map<uint64_t, int64_t>
      looked;  // where it stands in got; -1 once it is found elsewhere in want
  for (uint64_t n = 0; n < 512; ++n) {
    const uint64_t i = mixed(n) % in_got.size();
    looked.emplace(in_got[i], static_cast<int64_t>(i));
  }
  std::vector<bool> among(1 << 16);  // so that few are looked up
  for (const auto& [h, i] : looked) among[h >> 48] = true;
  size_t found = 0;
  for (size_t j = 0; j < in_want.size(); ++j) {
    if (!among[in_want[j] >> 48]) continue;
    const auto at = looked.find(in_want[j]);
    if (at == looked.end() || at->second < 0 || at->second == static_cast<int64_t>(j)) continue;
    at->second = -1;
    ++found;
  }
  return found * 4 >= looked.size();
}

// LayoutFit::source: from where each window of got comes that stands once in want.
std::vector<int32_t> windows_alone(const std::vector<uint64_t>& in_got, const std::vector<uint64_t>& in_want,
                                   int64_t n, int64_t window) {
  std::vector<std::pair<uint64_t, int32_t>> sorted(in_want.size());
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = {in_want[i], static_cast<int32_t>(i)};
  std::sort(sorted.begin(), sorted.end());
  std::vector<int32_t> source(static_cast<size_t>(n), -1);
  int64_t found = -1;  // of the window before
  for (int64_t i = 0; i + window <= n; ++i) {
    const uint64_t h = in_got[static_cast<size_t>(i)];
    const bool inside = found >= 0 && found + 1 < static_cast<int64_t>(in_want.size());
    if (inside && in_want[static_cast<size_t>(found + 1)] == h) {
      ++found;
    } else {
      const auto at = std::lower_bound(sorted.begin(), sorted.end(), std::pair<uint64_t, int32_t>(h, -1));
      const bool once =
          at != sorted.end() && at->first == h && (at + 1 == sorted.end() || (at + 1)->first != h);
      found = once ? at->second : -1;
    }
    for (int64_t k = 0; found >= 0 && k < window; ++k)
      source[static_cast<size_t>(i + k)] = static_cast<int32_t>(found + k);
  }
  return source;
}

// Elements between, which no window holds alone, go with their neighbours.
void extend_to_neighbours(std::vector<int32_t>& source, const AddressedCodes& codes) {
  const int64_t n = codes.n;
  for (const int64_t step : {1, -1})
    for (int64_t i = step > 0 ? 1 : n - 2; i >= 0 && i < n; i += step) {
      const int32_t before = source[static_cast<size_t>(i - step)];
      const int64_t from = before + step;
      if (source[static_cast<size_t>(i)] >= 0 || before < 0 || from < 0 || from >= n) continue;
      if (codes.equal(i, from)) source[static_cast<size_t>(i)] = static_cast<int32_t>(from);
    }
}

// The share of addresses that a map reaches. Nothing where it is no permutation of runs: few of them, no
// place taken twice, and most of them elsewhere. Anything else is a patchwork.
std::optional<double> share_of_runs(const std::vector<int32_t>& source, int64_t window) {
  const int64_t n = static_cast<int64_t>(source.size());
  std::vector<bool> taken(source.size());
  int64_t mapped = 0, moved = 0, twice = 0, pieces = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t from = source[static_cast<size_t>(i)];
    if (from < 0) continue;
    ++mapped;
    moved += from != i;
    twice += taken[static_cast<size_t>(from)];
    taken[static_cast<size_t>(from)] = true;
    pieces += i == 0 || source[static_cast<size_t>(i - 1)] + 1 != from;
  }
  if (mapped * 2 < n || moved * 2 < mapped || twice * 20 > mapped || pieces * window > n) return {};
  return static_cast<double>(mapped) / static_cast<double>(n);
}

// ---- words for runs ---------------------------------------------------------------------------------------

// "4 steps of 128, 32 of 4": loops that go through `at`, or nothing.
string strides(std::vector<int64_t> at) {
  string out;
  while (at.size() > 1) {
    const int64_t step = at[1] - at[0];
    size_t n = 1;
    while (n < at.size() && at[n] - at[n - 1] == step) ++n;
    if (n == 1 || at.size() % n != 0) return "";
    std::vector<int64_t> heads;
    for (size_t k = 0; k < at.size(); k += n) {
      for (size_t i = 1; i < n; ++i)
        if (at[k + i] - at[k + i - 1] != step) return "";
      heads.push_back(at[k]);
    }
    out += out.empty() ? fmt::format("{} steps of {}", n, step) : fmt::format(", {} of {}", n, step);
    at = std::move(heads);
  }
  return out;
}

// The value that most elements have.
int64_t most_frequent(const std::map<int64_t, int64_t>& counts) {
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// How many addresses stand how far from where they come, by distance.
std::map<int64_t, int64_t> offsets_of(const std::vector<int32_t>& source) {
  std::map<int64_t, int64_t> out;
  for (size_t i = 0; i < source.size(); ++i)
    if (source[i] >= 0) ++out[static_cast<int64_t>(i) - source[i]];
  return out;
}

// How many addresses belong to runs of which length.
std::map<int64_t, int64_t> lengths_of(const std::vector<int32_t>& source) {
  std::map<int64_t, int64_t> out;
  int64_t run = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    const int32_t s = source[i];
    const bool goes_on = i > 0 && s >= 0 && source[i - 1] >= 0 && s == source[i - 1] + 1;
    if (goes_on) {
      ++run;
      continue;
    }
    if (run) out[run] += run;
    run = s >= 0;
  }
  if (run) out[run] += run;
  return out;
}

// From where the first runs come, as places of the plane.
string places_of(const std::vector<int64_t>& starts, const Plane& plane) {
  constexpr size_t kShown = 6;
  string out;
  for (size_t k = 0; k < std::min(starts.size(), kShown); ++k) {
    const Place p = place_of(plane, std::max<int64_t>(0, starts[k]));
    out += (k ? ", " : "") + (starts[k] < 0 ? string("?") : fmt::format("({}, {})", p.row, p.col));
  }
  return out + (starts.size() > kShown ? ", ..." : "");
}

// The name and description of a map: one offset, strides of whole runs, or rows in an order.
std::pair<string, string> describe(const std::vector<int32_t>& source, const Plane& plane) {
  const std::map<int64_t, int64_t> offsets = offsets_of(source);
  const int64_t n = static_cast<int64_t>(source.size()), offset = most_frequent(offsets);
  const auto mapped = std::count_if(source.begin(), source.end(), [](int32_t s) { return s >= 0; });
  if (offsets.at(offset) * 10 >= mapped * 9)
    return {fmt::format("offset_{}", offset),
            fmt::format("every code is shifted {} places {}", std::abs(offset),
                        offset > 0 ? "later" : "earlier")};
  const int64_t length = most_frequent(lengths_of(source));
  if (n % length != 0) return {"runs", fmt::format("runs of about {} codes in another order", length)};
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < n; i += length) starts.push_back(source[static_cast<size_t>(i)]);
  if (const string nest = strides(starts); !nest.empty())
    return {"strides", fmt::format("runs of {} codes; their places, the fastest first: {}", length, nest)};
  return {"runs", fmt::format("runs of {} codes in another order: they come from (row, column) {}", length,
                              places_of(starts, plane))};
}

}  // namespace

// Windows of codes that stand once in want and are found in got: a map of whatever keeps runs of them
// together.
void offer_runs(LayoutSearch& search) {
  const AddressedCodes& codes = search.codes();
  const int64_t window = window_of(codes);
  if (window == 0) return;
  const std::vector<uint64_t> in_want = hashes(codes.want, window), in_got = hashes(codes.got, window);
  if (!displaced(in_got, in_want)) return;
  std::vector<int32_t> source = windows_alone(in_got, in_want, codes.n, window);
  extend_to_neighbours(source, codes);
  const auto share = share_of_runs(source, window);
  if (!share || *share < codes.worth) return;
  const auto [name, text] = describe(source, codes.plane);
  // What was not found may have come from anywhere; an exact fit leaves nothing.
  const bool exact = std::none_of(source.begin(), source.end(), [](int32_t s) { return s < 0; });
  search.keep({name, text, *share, exact, name.starts_with("offset_"), std::move(source)});
}

}  // namespace assay::patterns

#include "compare/diagnosis/patterns/layout_search.h"

#include <algorithm>
#include <unordered_map>

#include "compare/arithmetic/codes.h"

namespace assay::patterns {

using std::string;

uint64_t mixed(uint64_t v) {
  v = (v + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
  v = (v ^ (v >> 29)) * 0x94D049BB133111EBu;
  return v ^ (v >> 32);
}

// ---- the codes --------------------------------------------------------------------------------------------

AddressedCodes::AddressedCodes(const Plane& p)
    : plane(p), n(p.padded.count()), by_columns(p.layout == ScaleLayout::gemm && p.tiles_by_columns()) {}

AddressedCodes::AddressedCodes(const Plane& p, std::span<const std::byte> came,
                               std::span<const std::byte> right)
    : AddressedCodes(p) {
  for (auto [codes, bytes] : {std::pair(&got, came), std::pair(&want, right)}) {
    codes->resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) (*codes)[static_cast<size_t>(i)] = code_at(plane, bytes, i);
  }
  std::unordered_map<uint32_t, int64_t> count;
  int64_t near = 0;
  meant.assign(static_cast<size_t>(n), false);
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c) {
      const int64_t i = index_of(plane, r, c);
      const uint32_t g = got[static_cast<size_t>(i)], w = want[static_cast<size_t>(i)];
      ++logical;
      meant[static_cast<size_t>(i)] = true;
      same += g == w;
      near += g == w || codes_apart(plane.encoding, g, w).value_or(2) <= 1;
      ++count[w];
    }
  const double all = static_cast<double>(logical);
  double squares = 0;
  for (const auto& [code, times] : count) squares += static_cast<double>(times) * static_cast<double>(times);
  chance = logical ? squares / (all * all) : 1;
  const double stands = logical ? static_cast<double>(same) / all : 1;
  worth = std::max(chance + (1 - chance) / 2, stands + (1 - stands) / 2);
  // Where most codes are right or nearly so as they stand, it is values that are wrong: smooth data fit
  // shifted copies of themselves.
  if (near * 2 > logical) worth = std::max(worth, 0.85);
}

// ---- what is kept -----------------------------------------------------------------------------------------

void LayoutSearch::look_for_every_code_of(string name) {
  aim_ = Aim::every_code;
  only_ = std::move(name);
}

bool LayoutSearch::any_exact() const {
  return std::any_of(fits_.begin(), fits_.end(), [](const LayoutFit& f) { return f.exact; });
}

// Addresses that the map does not reach say nothing.
void LayoutSearch::take(string name, string description, std::vector<int32_t> source) {
  int64_t mapped = 0, agree = 0, moved = 0;
  for (int64_t i = 0; i < codes_.n; ++i) {
    const int32_t from = source[static_cast<size_t>(i)];
    if (from < 0 || !codes_.meant[static_cast<size_t>(from)]) continue;
    ++mapped;
    moved += from != i;
    agree += codes_.equal(i, from);
  }
  if (mapped * 10 < codes_.logical * 9 || moved == 0) return;
  const double share = static_cast<double>(agree) / static_cast<double>(mapped);
  if (share < codes_.worth) return;
  for (const LayoutFit& f : fits_)
    if (f.source == source) return;
  const bool exact = agree == mapped && mapped >= codes_.logical;
  fits_.push_back({std::move(name), std::move(description), share, exact, true, std::move(source)});
}

// Addresses that the map does not reach must hold 0.
void LayoutSearch::take_if_every_code(string name, string description, std::vector<int32_t> source) {
  int64_t moved = 0;
  for (int64_t i = 0; i < codes_.n; ++i) {
    if (!codes_.meant[static_cast<size_t>(i)]) continue;
    const int32_t from = source[static_cast<size_t>(i)];
    if (from >= 0 ? !codes_.equal(i, from) : codes_.got[static_cast<size_t>(i)] != 0) return;
    moved += !codes_.equal(i, i);
  }
  const auto same = [&](const LayoutFit& f) { return f.source == source; };
  if (moved >= 4 && std::none_of(fits_.begin(), fits_.end(), same))
    fits_.push_back({std::move(name), std::move(description), 1, true, true, std::move(source)});
}

void LayoutSearch::offer(const string& name, const string& description, Shape extent, const Map& map) {
  constexpr int64_t kSamples = 2048;
  if (!only_.empty() && name != only_) return;
  const int64_t n = codes_.n, rows = codes_.outer(extent), cols = codes_.along(extent);
  const int64_t samples = aim_ == Aim::name ? 0 : std::min(rows * cols, kSamples);
  int64_t looked = 0, agree = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const uint64_t drawn = mixed(static_cast<uint64_t>(s)) % static_cast<uint64_t>(rows * cols);
    const int64_t i = samples < kSamples ? s : static_cast<int64_t>(drawn);
    const auto [to, from] = map(i / cols, i % cols);
    if (to < 0 || to >= n || from < 0 || from >= n) continue;
    ++looked;
    agree += codes_.equal(to, from);
    const bool wrong = codes_.meant[static_cast<size_t>(to)] && !codes_.equal(to, from);
    if (aim_ == Aim::every_code && wrong) return;
  }
  const bool good =
      looked >= 16 && static_cast<double>(agree) >= (codes_.worth - 0.1) * static_cast<double>(looked);
  if (aim_ == Aim::better && !good) return;
  std::vector<int32_t> source(static_cast<size_t>(n), -1);
  for (int64_t o = 0; o < rows; ++o)
    for (int64_t k = 0; k < cols; ++k) {
      const auto [to, from] = map(o, k);
      if (to >= 0 && to < n && from >= 0 && from < n)
        source[static_cast<size_t>(to)] = static_cast<int32_t>(from);
    }
  switch (aim_) {
    case Aim::better: return take(name, description, std::move(source));
    case Aim::every_code: return take_if_every_code(name, description, std::move(source));
    case Aim::name:
      if (fits_.empty()) fits_.push_back({name, description, 0, false, true, std::move(source)});
  }
}

}  // namespace assay::patterns

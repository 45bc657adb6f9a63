#include "fast/ptx/traffic.h"

#include <algorithm>
#include <bit>

namespace assay::ptx {

namespace {

constexpr unsigned kBanks = 32, kBankBytes = 4;

// Distinct numbers among the first n, which are sorted where they do not rise already.
size_t distinct(uint64_t* numbers, size_t n) {
  if (!std::is_sorted(numbers, numbers + n)) std::sort(numbers, numbers + n);
  return static_cast<size_t>(std::unique(numbers, numbers + n) - numbers);
}

// Wavefronts of one phase: the most distinct words that one bank has to give.
uint64_t wavefronts_of(const uint64_t* addresses, unsigned bytes, uint32_t lanes) {
  std::array<uint64_t, kLanes * 2> words;
  size_t n = 0;
  const unsigned each = std::max(1u, bytes / kBankBytes);
  for (uint32_t m = lanes; m; m &= m - 1)
    for (unsigned k = 0; k < each; ++k) words[n++] = addresses[std::countr_zero(m)] / kBankBytes + k;
  n = distinct(words.data(), n);
  if (n == 0 || words[n - 1] - words[0] < kBanks) return n ? 1 : 0;
  std::array<uint8_t, kBanks> busy{};
  uint8_t most = 0;
  for (size_t k = 0; k < n; ++k) most = std::max(most, ++busy[words[k] % kBanks]);
  return most;
}

SharedTraffic shared_traffic(const uint64_t* addresses, unsigned bytes, uint32_t lanes) {
  SharedTraffic out;
  out.requests = 1;
  const unsigned in_phase = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  for (unsigned first = 0; first < kLanes; first += in_phase) {
    const uint32_t phase = in_phase == 32 ? lanes : lanes & (((1u << in_phase) - 1) << first);
    if (!phase) continue;
    const uint64_t wavefronts = wavefronts_of(addresses, bytes, phase);
    out.wavefronts += wavefronts;
    out.conflicts += wavefronts - 1;
  }
  return out;
}

// The sectors that the lanes touch, distinct; at most two of each lane, for the greatest vector of 32 bytes.
size_t sectors_of(const uint64_t* addresses, unsigned bytes, uint32_t lanes, uint64_t* sectors) {
  size_t n = 0;
  for (uint32_t m = lanes; m; m &= m - 1) {
    const uint64_t at = addresses[std::countr_zero(m)];
    for (uint64_t s = at >> 5; s <= (at + bytes - 1) >> 5; ++s)
      if ((n == 0 || sectors[n - 1] != s) && n < size_t{2} * kLanes) sectors[n++] = s;
  }
  return distinct(sectors, n);
}

// How many of these sectors, which rise, the lanes do not ask for whole.
size_t partial_of(const uint64_t* addresses, unsigned bytes, uint32_t lanes, const uint64_t* sectors,
                  size_t count) {
  std::array<uint32_t, size_t{2} * kLanes> asked{};  // a bit for each byte of a sector
  for (uint32_t m = lanes; m; m &= m - 1) {
    const uint64_t at = addresses[std::countr_zero(m)], end = at + bytes;
    for (uint64_t s = at >> 5; s <= (end - 1) >> 5; ++s) {
      const uint64_t from = std::max(at, s << 5) & 31, to = std::min(end, (s + 1) << 5) - (s << 5);
      const uint64_t mask = ((uint64_t{1} << to) - 1) & ~((uint64_t{1} << from) - 1);
      asked[static_cast<size_t>(std::lower_bound(sectors, sectors + count, s) - sectors)] |=
          static_cast<uint32_t>(mask);
    }
  }
  return static_cast<size_t>(std::count_if(asked.begin(), asked.begin() + static_cast<std::ptrdiff_t>(count),
                                           [](uint32_t bits) { return bits != ~uint32_t{0}; }));
}

// The frequent case, without a search: all lanes access bytes that lie one behind the other.
bool in_a_row(const uint64_t* addresses, unsigned bytes, uint32_t lanes) {
  if (lanes != ~0u) return false;
  uint64_t differ = 0;
  for (unsigned l = 0; l < kLanes; ++l) differ |= addresses[l] ^ (addresses[0] + uint64_t{l} * bytes);
  return differ == 0;
}
size_t sectors_of_row(uint64_t begin, uint64_t end, uint64_t* sectors, uint64_t& partial) {
  size_t n = 0;
  for (uint64_t s = begin >> 5; s <= (end - 1) >> 5; ++s) sectors[n++] = s;
  const bool first = begin % 32 != 0, last = end % 32 != 0;
  partial = n == 1 ? first || last : uint64_t{first} + last;
  return n;
}

void count_global(Warp& w, const Instruction& i, const uint64_t* addresses, unsigned bytes, uint32_t lanes,
                  bool read, bool write) {
  Block& b = *w.block;
  std::array<uint64_t, size_t{2} * kLanes> sectors;
  Traffic t;
  t.requests = 1;
  t.bytes = uint64_t{bytes} * static_cast<unsigned>(std::popcount(lanes));
  if (in_a_row(addresses, bytes, lanes)) {
    t.sectors = sectors_of_row(addresses[0], addresses[0] + t.bytes, sectors.data(), t.partial);
  } else {
    t.sectors = sectors_of(addresses, bytes, lanes, sectors.data());
    t.partial = partial_of(addresses, bytes, lanes, sectors.data(), t.sectors);
  }
  for (size_t k = 0; k < t.sectors; ++k) {
    t.lines += k == 0 || sectors[k] >> 2 != sectors[k - 1] >> 2;
    if (read) b.sectors->read.insert(sectors[k]);
    if (write) b.sectors->written.insert(sectors[k]);
  }
  if (read) b.counters->loads.add(t);
  if (write) b.counters->stores.add(t);
  b.counted(i).global.add(t);
}

void count_shared(Warp& w, const Instruction& i, const SharedTraffic& t) {
  w.block->counters->shared.add(t);
  w.block->counted(i).shared.add(t);
}

}  // namespace

uint64_t Sectors::count() const {
  uint64_t n = 0;
  for (const auto& [page, bits] : pages_)
    for (const uint64_t word : bits) n += static_cast<unsigned>(std::popcount(word));
  return n;
}

void count_access(Warp& w, const Instruction& i, const uint64_t* addresses, unsigned bytes, bool read,
                  bool write) {
  Counters& c = *w.block->counters;
  std::array<uint64_t, kLanes> at{};
  uint32_t global = 0, shared = 0;  // the lanes of each space: a generic request may have both
  if (i.space == Space::global || i.space == Space::constant) {
    global = w.active;
  } else if (i.space == Space::shared) {
    shared = w.active;
  } else {
    for (uint32_t m = w.active; m; m &= m - 1) {
      const auto l = static_cast<unsigned>(std::countr_zero(m));
      at[l] = addresses[l];
      const Space space = located(i, at[l]);
      if (space == Space::shared) shared |= 1u << l;
      if (space == Space::global) global |= 1u << l;
    }
    addresses = at.data();
  }
  if (i.kind == Class::atomic) {
    std::array<uint64_t, kLanes> all;
    size_t n = 0;
    for (uint32_t m = w.active; m; m &= m - 1) all[n++] = addresses[std::countr_zero(m)];
    for (size_t k = 0; k < n; ++k) w.block->sectors->atomic.insert(all[k]);
    c.atomics += n;
    c.collisions += n - distinct(all.data(), n);
  }
  if (i.space == Space::constant) return;
  if (global) count_global(w, i, addresses, bytes, global, read, write);
  if (shared) count_shared(w, i, shared_traffic(addresses, bytes, shared));
}

void count_rows(Warp& w, const Instruction& i, const uint64_t* addresses, unsigned rows) {
  count_shared(w, i, shared_traffic(addresses, 16, rows == kLanes ? ~0u : (1u << rows) - 1));
}

}  // namespace assay::ptx

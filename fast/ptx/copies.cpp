#include "fast/ptx/copies.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "fast/ptx/checks.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/mbarriers.h"
#include "fast/ptx/recorder.h"

namespace assay::ptx {

void carry_out(Warp& w, const Instruction& i, uint32_t lanes) {
  if (!lanes) return;
  Block& b = *w.block;
  w.active = lanes;
  if (b.checks) b.checks->before(w, i);
  if (b.recorder) b.recorder->before(w, i);
  i.handler(w, i);
  if (b.recorder) b.recorder->after(w, i);
  if (b.checks) b.checks->after(w, i);
}

namespace {

uint64_t address_of(Warp& w, uint32_t base, bool wide, int64_t offset, unsigned lane) {
  const uint64_t at = read_cell(w, base, wide, lane) + static_cast<uint64_t>(offset);
  return wide ? at : static_cast<uint32_t>(at);
}

// Lanes that read fewer bytes than they write: byte by byte, and zeros behind the last.
void arrive_in_part(Warp& w, const Copy& c, uint32_t lanes) {
  const Kernel& k = *w.block->kernel;
  const Kernel::Arrival& a = k.arrivals[c.instruction->target + 1];
  for (uint32_t n = 0; lanes && n < c.instruction->code; ++n) {
    uint32_t read = 0;
    for (uint32_t m = lanes; m; m &= m - 1) {
      const auto l = static_cast<unsigned>(std::countr_zero(m));
      if (n < c.given[l]) read |= 1u << l;
      cells<uint64_t>(w, c.instruction->d[0])[l] = c.to[l] + n;
      cells<uint64_t>(w, c.instruction->d[1])[l] = c.from[l] + n;
    }
    carry_out(w, k.code[a.load], read);
    carry_out(w, k.code[a.zero], lanes & ~read);
    carry_out(w, k.code[a.store], lanes);
  }
}

// The lanes of one copy, whose registers may hold the addresses of a later one by now.
void arrive(Warp& w, const Copy& c, uint32_t lanes) {
  const Kernel& k = *w.block->kernel;
  const Kernel::Arrival& a = k.arrivals[c.instruction->target];
  for (uint32_t m = lanes; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    cells<uint64_t>(w, c.instruction->d[0])[l] = c.to[l];
    cells<uint64_t>(w, c.instruction->d[1])[l] = c.from[l];
  }
  uint32_t none = 0, part = 0;
  for (uint32_t m = lanes & ~c.whole; m; m &= m - 1)
    (c.given[static_cast<size_t>(std::countr_zero(m))] ? part : none) |= m & (0 - m);
  carry_out(w, k.code[a.load], lanes & c.whole);
  for (uint32_t n = 0; n < a.words; ++n) carry_out(w, k.code[a.zero + n], none);
  carry_out(w, k.code[a.store], lanes & ~part);
  arrive_in_part(w, c, part);
}

// Of the copies of `lanes`, in the order in which they were issued, those arrive of which due(copy, lane). An
// arrival at an mbarrier comes when no copy of its lane is left before it.
template <class F> void arrive_where(Warp& w, uint32_t lanes, F due) {
  if (w.copies.empty()) return;
  const uint32_t active = w.active;
  uint32_t under_way = 0;
  for (Copy& c : w.copies) {
    uint32_t now = 0;
    for (uint32_t m = c.lanes & lanes; m; m &= m - 1)
      if (!c.at_mbarrier && due(c, static_cast<unsigned>(std::countr_zero(m)))) now |= m & (0 - m);
    if (c.at_mbarrier) now = c.lanes & lanes & ~under_way;
    c.lanes &= ~now;
    if (!c.at_mbarrier) under_way |= c.lanes;
    if (c.at_mbarrier)
      for (uint32_t m = now; m; m &= m - 1) {
        const auto l = static_cast<unsigned>(std::countr_zero(m));
        arrive_now(w, *c.instruction, l, c.to[l]);
      }
    else if (now) arrive(w, c, now);
  }
  std::erase_if(w.copies, [](const Copy& c) { return c.lanes == 0; });
  w.active = active;
}

}  // namespace

void issue_copy(Warp& w, const Instruction& i) {
  Copy c;
  c.instruction = &i;
  c.lanes = c.whole = w.active;
  const uint32_t bytes = i.code;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    c.to[l] = address_of(w, i.s[0], i.wide_to, i.to_offset, l);
    c.from[l] = address_of(w, i.s[1], i.wide_s, i.offset, l);
    c.group[l] = w.closed_groups[l];
    cells<uint64_t>(w, i.d[0])[l] = c.to[l];
    cells<uint64_t>(w, i.d[1])[l] = c.from[l];
    const uint32_t given = i.with_optional ? w.words[i.s[2] + l] : bytes;
    if (given > bytes)
      fail(w, i, static_cast<int>(l),
           "has " + std::to_string(given) + " bytes to read of the " + std::to_string(bytes) +
               " that it writes");
    if (given != bytes) c.whole &= ~(1u << l);
    c.given[l] = static_cast<uint8_t>(given);
    if (given && c.from[l] % bytes)
      fail(w, i, static_cast<int>(l),
           "of " + std::to_string(bytes) +
               " bytes at an address that is no multiple of them: " + w.block->memory->place(c.from[l]));
  }
  w.copies.push_back(c);
}

void close_group(Warp& w, const Instruction&) {
  for (uint32_t m = w.active; m; m &= m - 1) ++w.closed_groups[static_cast<size_t>(std::countr_zero(m))];
}

void wait_for_groups(Warp& w, const Instruction& i) {
  arrive_where(w, w.active,
               [&](const Copy& c, unsigned l) { return uint64_t{c.group[l]} + i.code < w.closed_groups[l]; });
}

void wait_for_all(Warp& w, const Instruction&) {
  arrive_where(w, w.active, [](const Copy&, unsigned) { return true; });
}

bool deliver_copies(Block& b, bool last) {
  for (size_t n = 0; n < b.warps.size(); ++n) {
    Warp& w = b.warps[last ? b.warps.size() - 1 - n : n];
    const auto first =
        std::find_if(w.copies.begin(), w.copies.end(), [](const Copy& c) { return c.at_mbarrier; });
    if (first == w.copies.end()) continue;
    const auto before = static_cast<size_t>(first - w.copies.begin());
    arrive_where(w, first->lanes,
                 [&](const Copy& c, unsigned) { return static_cast<size_t>(&c - w.copies.data()) < before; });
    return true;
  }
  return false;
}

void finish_copies(Warp& w, uint32_t lanes) {
  arrive_where(w, lanes, [](const Copy&, unsigned) { return true; });
}

}  // namespace assay::ptx

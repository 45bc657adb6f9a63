#include "fast/ptx/bulk.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "fast/ptx/checks.h"
#include "fast/ptx/copies.h"
#include "fast/ptx/mbarriers.h"
#include "fast/ptx/tensor_map.h"

namespace assay::ptx {

namespace {

constexpr unsigned kBulkAlign = 16, kTensorAlign = 128;

uint64_t value_of(const Warp& w, const Kernel::Bulk::Address& a, unsigned lane) {
  uint64_t v = w.words[a.place + lane];
  if (a.wide) std::memcpy(&v, w.words + a.place + 2 * lane, sizeof v);
  v += static_cast<uint64_t>(a.offset);
  return a.wide ? v : static_cast<uint32_t>(v);
}

[[noreturn]] void misaligned(Warp& w, const Instruction& i, unsigned lane, const std::string& what,
                             uint64_t at, unsigned align) {
  fail(w, i, static_cast<int>(lane),
       "needs " + what + " that is a multiple of " + std::to_string(align) + ", and is given " +
           std::to_string(at));
}

TensorMap map_of(Warp& w, const Instruction& i, const Kernel::Bulk& f, unsigned lane) {
  const uint64_t at = value_of(w, f.global, lane);
  std::array<std::byte, kTensorMapBytes> bytes;
  for (unsigned n = 0; n < kTensorMapBytes; n += kTensorMapAlign)
    std::memcpy(bytes.data() + n, resolve(w, i, static_cast<int>(lane), at + n, kTensorMapAlign, false),
                kTensorMapAlign);
  TensorMap m;
  try {
    m = decode_tensor_map(bytes);
  } catch (const Fault& e) {
    fail(w, i, static_cast<int>(lane), std::string("is given an address of no tensor map: ") + e.what());
  }
  if (m.rank != f.rank)
    fail(w, i, static_cast<int>(lane),
         "names " + std::to_string(f.rank) + " coordinates, and its tensor map has " +
             std::to_string(m.rank) + " dimensions");
  return m;
}

// The bytes of a copy lie in shared memory, and none of them belongs to an mbarrier.
void check_shared(Warp& w, const Instruction& i, unsigned lane, uint64_t shared, uint64_t bytes) {
  if (shared > w.block->shared.size() || bytes > w.block->shared.size() - shared)
    fail(w, i, static_cast<int>(lane),
         "of " + std::to_string(bytes) + " bytes outside shared memory of " +
             std::to_string(w.block->shared.size()) + " bytes, offset " + std::to_string(shared));
  if (const auto mbarrier = overlapped(*w.block, shared, bytes))
    fail(w, i, static_cast<int>(lane),
         "reaches into the mbarrier at shared offset " + std::to_string(*mbarrier));
}

// The copy that one lane issues.
BulkCopy begun(Warp& w, const Instruction& i, unsigned lane) {
  const Kernel::Bulk& f = w.block->kernel->bulks[i.target];
  BulkCopy c;
  c.instruction = &i, c.warp = &w, c.lane = lane, c.to_shared = f.to_shared;
  const uint64_t shared = shared_offset(w, i, static_cast<int>(lane), value_of(w, f.shared, lane));
  const unsigned align = f.rank ? kTensorAlign : kBulkAlign;
  if (shared % align) misaligned(w, i, lane, "an offset in shared memory", shared, align);
  if (f.rank) {
    const TensorMap m = map_of(w, i, f, lane);
    std::array<int32_t, kMostDimensions> first{};
    for (unsigned d = 0; d < f.rank; ++d) first[d] = static_cast<int32_t>(w.words[f.at[d] + lane]);
    // No document says so, but an H100 ends the kernel as by an illegal instruction (docs/ptx.md).
    const int64_t in_half_bytes = int64_t{first[0]} * m.element_bytes * (m.half_bytes ? 1 : 2);
    if (in_half_bytes % (2 * kBulkAlign))
      fail(w, i, static_cast<int>(lane),
           "begins at element " + std::to_string(first[0]) + " of a row, which lies at no multiple of " +
               std::to_string(kBulkAlign) + " bytes: a GPU ends the kernel as by an illegal instruction");
    c.bytes = m.box_bytes();
    check_shared(w, i, lane, shared, c.bytes);  // which bounds the number of pieces
    c.pieces = pieces_of(m, {first.data(), f.rank}, shared);
  } else {
    const uint64_t global = value_of(w, f.global, lane);
    c.bytes = w.words[f.bytes + lane];
    if (global % kBulkAlign) misaligned(w, i, lane, "an address in global memory", global, kBulkAlign);
    if (c.bytes % kBulkAlign) misaligned(w, i, lane, "a size", c.bytes, kBulkAlign);
    check_shared(w, i, lane, shared, c.bytes);
    if (c.bytes) c.pieces.push_back({shared, global, static_cast<uint32_t>(c.bytes), false});
  }
  // A store writes nothing outside the tensor.
  if (!f.to_shared) std::erase_if(c.pieces, [](const BulkPiece& p) { return p.zero; });
  return c;
}

void check_global(Warp& w, const BulkCopy& c) {
  for (const BulkPiece& p : c.pieces) {
    if (p.zero) continue;
    const Allocation* a = w.block->memory->holding(p.global, p.bytes);
    const auto lane = static_cast<int>(c.lane);
    if (!a)
      fail(w, *c.instruction, lane,
           "of " + std::to_string(p.bytes) + " bytes side by side outside every allocation; " +
               w.block->memory->nearest(p.global));
    if (!c.to_shared && !a->writable)
      fail(w, *c.instruction, lane, "writes to '" + a->name + "', which is an input");
  }
}

// Lanes of a warp move as many pieces of one size at once, whoever issued the copy.
class Mover {
 public:
  explicit Mover(const BulkCopy& c)
      : c_(c), w_(*c.warp), form_(w_.block->kernel->bulks[c.instruction->target]) {}
  void move() {
    for (const BulkPiece& p : c_.pieces) {
      const uint64_t parts = p.shared | p.bytes | (p.zero ? 0 : p.global) | 16;
      const auto size = form_.element ? form_.element : static_cast<unsigned>(parts & (0 - parts));
      for (uint32_t done = 0; done < p.bytes; done += size)
        add(p.shared + done, p.global + done, size, p.zero);
    }
    flush();
  }

 private:
  void add(uint64_t shared, uint64_t global, unsigned size, bool zero) {
    if (count_ == kLanes || (count_ && (size != size_ || zero != zero_))) flush();
    size_ = size, zero_ = zero;
    std::memcpy(w_.words + form_.shared_at + 2 * count_, &shared, sizeof shared);
    std::memcpy(w_.words + form_.global_at + 2 * count_, &global, sizeof global);
    ++count_;
  }
  void flush() {
    if (count_ == 0) return;
    const uint32_t lanes = count_ == kLanes ? ~0u : (1u << count_) - 1;
    const Kernel& k = *w_.block->kernel;
    const auto way = form_.element ? 0 : static_cast<unsigned>(std::countr_zero(size_));
    const Kernel::Arrival& a = k.arrivals[form_.arrival + way];
    if (!zero_) carry_out(w_, k.code[a.load], lanes);
    for (uint32_t n = 0; zero_ && n < a.words; ++n) carry_out(w_, k.code[a.zero + n], lanes);
    carry_out(w_, k.code[a.store], lanes);
    count_ = 0;
  }
  const BulkCopy& c_;
  Warp& w_;
  const Kernel::Bulk& form_;
  unsigned count_ = 0, size_ = 1;
  bool zero_ = false;
};

void arrive(const BulkCopy& c) {
  Warp& w = *c.warp;
  Block& b = *w.block;
  const uint32_t active = w.active;
  w.speaks_for = static_cast<int>(c.lane);
  if (b.checks) b.checks->carry_pieces(true);
  Mover(c).move();
  if (b.checks) b.checks->carry_pieces(false);
  w.speaks_for = -1;
  w.active = active;
}

// Those copies arrive, in their order, of which due(copy).
template <class F> std::vector<BulkCopy> taken(Block& b, F due) {
  std::vector<BulkCopy> out, left;
  for (BulkCopy& c : b.bulk) (due(c) ? out : left).push_back(std::move(c));
  b.bulk = std::move(left);
  return out;
}

}  // namespace

void issue_bulk(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  const Kernel::Bulk& f = b.kernel->bulks[i.target];
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    BulkCopy c = begun(w, i, l);
    check_global(w, c);
    c.group = w.closed_bulk_groups[l];
    if (c.to_shared) {
      c.mbarrier = shared_offset(w, i, static_cast<int>(l), value_of(w, f.barrier, l));
      mbarrier_at(w, i, l, c.mbarrier);
    }
    if (b.checks) b.checks->issue_bulk(w, c);
    if (b.stores_at_once && !c.to_shared) arrive(c);
    else b.bulk.push_back(std::move(c));
  }
}

void close_bulk_group(Warp& w, const Instruction&) {
  for (uint32_t m = w.active; m; m &= m - 1) ++w.closed_bulk_groups[static_cast<size_t>(std::countr_zero(m))];
}

void wait_for_bulk_groups(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  const bool reads = b.kernel->opcodes[i.opcode].has("read");
  const auto mine = taken(b, [&](const BulkCopy& c) {
    return !c.to_shared && c.warp == &w && w.active >> c.lane & 1 &&
           uint64_t{c.group} + i.code < w.closed_bulk_groups[c.lane];
  });
  for (const BulkCopy& c : mine) arrive(c);
  if (b.checks) b.checks->wait_for_bulk(w, i.code, reads);
}

bool deliver_bulk(Block& b, bool last) {
  const auto loads = [](const BulkCopy& c) { return c.to_shared; };
  const auto first = std::find_if(b.bulk.begin(), b.bulk.end(), loads);
  if (first == b.bulk.end()) return false;
  const auto chosen = last ? std::find_if(b.bulk.rbegin(), b.bulk.rend(), loads).base() - 1 : first;
  const BulkCopy c = std::move(*chosen);
  b.bulk.erase(chosen);
  arrive(c);
  if (b.checks) b.checks->complete_bulk(c);
  complete_bytes(*c.warp, *c.instruction, c.lane, c.mbarrier, c.bytes);
  return true;
}

void finish_bulk(Block& b) {
  for (const BulkCopy& c : taken(b, [](const BulkCopy&) { return true; })) {
    // A store that is still under way is let go: the ISA does not forbid it, and TransformerEngine's kernels
    // end so. A load would write to the shared memory of another block.
    if (b.checks && c.to_shared)
      fail(*c.warp, *c.instruction, static_cast<int>(c.lane),
           "is not waited for: the block ends before it has written to its shared memory");
    arrive(c);
  }
}

}  // namespace assay::ptx

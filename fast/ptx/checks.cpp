#include "fast/ptx/checks.h"

#include <array>
#include <bit>
#include <cstring>

#include "fast/ptx/matrix.h"
#include "fast/ptx/mbarriers.h"

namespace assay::ptx {

namespace {

bool touches_memory(const Instruction& i) {
  return i.kind == Class::load || i.kind == Class::store || i.kind == Class::atomic;
}

uint64_t cell(const Warp& w, uint32_t place, bool wide, unsigned lane) {
  if (!wide) return w.words[place + lane];
  uint64_t v = 0;
  std::memcpy(&v, w.words + place + 2 * lane, sizeof v);
  return v;
}

}  // namespace

Checks::Checks(const Block& block) : b_(block), undefined_(block), in_flight_(block), races_(block) {
  for (const Opcode& op : block.kernel->opcodes) {
    Manner m;
    m.orders = op.has("acquire") || op.has("release") || op.has("acq_rel");
    m.acquires = op.row->kind != Class::store && !op.has("release");
    m.releases = op.row->kind != Class::load && !op.has("acquire");
    m.strong = m.orders || op.has("relaxed") || op.has("volatile") || op.row->kind == Class::atomic;
    // Every block is a cluster of its own.
    m.in_block = op.has("cta") || op.has("cluster");
    m.constant = op.has("nc");
    m.fence = op.row->form == Form::membar || op.row->form == Form::fence;
    m.proxy_fence = op.row->form == Form::fence_proxy;
    manners_.push_back(m);
  }
}

void Checks::start_block() {
  fenced_ = fenced_widely_ = false;
  undefined_.start_block();
  in_flight_.start_block();
  races_.start_block();
}

void Checks::before(Warp& w, const Instruction& i) {
  if (manners_[i.opcode].fence) fenced_ = true, fenced_widely_ |= !manners_[i.opcode].in_block;
  if (manners_[i.opcode].proxy_fence) races_.fence_proxies(w, w.active);
  if (in_flight_.watches()) in_flight_.access(w, i);
  if (i.kind == Class::copy || i.kind == Class::barrier) undefined_.check_operands(w, i);
  if (!touches_memory(i)) return undefined_.before(w, i);
  undefined_.check_address(w, i);
  const unsigned bytes = access_bytes(b_.kernel->opcodes[i.opcode]);
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(m));
    // A parameter at a place that the text gives has no register for its address.
    const uint64_t base = i.sources ? cell(w, i.s[0], i.wide_s, lane) : 0;
    const uint64_t address = base + static_cast<uint64_t>(i.offset);
    access(w, i, lane, i.wide_s ? address : static_cast<uint32_t>(address), bytes);
  }
}

void Checks::access(Warp& w, const Instruction& i, unsigned lane, uint64_t address, unsigned bytes) {
  const bool load = i.kind == Class::load, store = i.kind == Class::store;
  const unsigned count = load || store ? i.vector : 1;
  // The errors of the access itself come first.
  resolve(w, i, static_cast<int>(lane), address, bytes * count, !load);
  const Space space = located(i, address);
  if (space == Space::shared)
    if (const auto mbarrier = overlapped(b_, address, bytes * count))
      fail(w, i, static_cast<int>(lane),
           "reaches into the mbarrier at shared offset " + std::to_string(*mbarrier) +
               ", which only instructions of mbarriers may before mbarrier.inval");
  for (unsigned k = 0; k < count; ++k) {
    const uint64_t at = address + uint64_t{k} * bytes;
    if (load) undefined_.load(w, i, lane, k, space, at, bytes);
    else if (store) undefined_.store(w, i, lane, k + 1, space, at, bytes);
    else undefined_.change(w, i, lane, space, at, bytes);
  }
  if ((space != Space::shared && space != Space::global) || carries_pieces_) return;
  // What nobody may write does not race.
  if (const Allocation* a = space == Space::global ? b_.memory->holding(address, 1) : nullptr;
      a && !a->writable)
    return;
  const Manner& manner = manners_[i.opcode];
  std::array<uint8_t, 32> values{};
  if (store)
    for (unsigned k = 0; k < count; ++k) {
      const uint64_t v = cell(w, i.s[1 + k], i.wide_d, lane);
      std::memcpy(values.data() + size_t{k} * bytes, &v, bytes);
    }
  const Races::Kind kind = manner.strong && manner.in_block ? Races::Kind::atomic_in_block
                           : manner.strong                  ? Races::Kind::atomic
                           : manner.constant                ? Races::Kind::constant_read
                           : load                           ? Races::Kind::read
                                                            : Races::Kind::write;
  if (manner.orders || (fenced_ && manner.strong))
    races_.order_by(w, lane, space, address,
                    {manner.acquires, manner.releases,
                     // Shared memory is another one in every block.
                     space == Space::global && !manner.in_block && (manner.orders || fenced_widely_)});
  races_.access(w, i, lane, space, address, bytes * count, kind, store ? values.data() : nullptr);
}

void Checks::touch(Warp& w, const Instruction& i, unsigned lane, uint64_t mbarrier, bool begins_or_ends) {
  races_.access(w, i, lane, Space::shared, mbarrier, kMbarrierBytes,
                begins_or_ends ? Races::Kind::write : Races::Kind::atomic, nullptr);
  if (!begins_or_ends) return;
  races_.forget(mbarrier);
  undefined_.forget_shared(mbarrier, kMbarrierBytes);
}

void Checks::after(Warp& w, const Instruction& i) {
  if (!touches_memory(i)) undefined_.after(w, i);
  if (i.kind == Class::copy && !b_.kernel->opcodes[i.opcode].has("bulk")) issue(w, i);
}

// Until a copy arrives, nobody may use what it writes to, nor write there.
void Checks::issue(Warp& w, const Instruction& i) {
  const Instruction& store = b_.kernel->code[b_.kernel->arrivals[i.target].store];
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(m));
    const uint64_t at = shared_offset(w, store, static_cast<int>(lane), cell(w, i.d[0], true, lane));
    resolve(w, store, static_cast<int>(lane), at, i.code, true);
    races_.access(w, store, lane, Space::shared, at, i.code, Races::Kind::write, nullptr);
    undefined_.forget_shared(at, i.code);
  }
}

void Checks::issue_bulk(Warp& w, BulkCopy& c) {
  const Instruction& i = *c.instruction;
  const auto actor = c.to_shared ? Races::Actor::load : Races::Actor::store;
  c.number = races_.begin_copy(w, c.lane, c.to_shared ? std::nullopt : std::optional(c.group));
  for (const BulkPiece& p : c.pieces) {
    races_.access_by_copy(w, i, c.lane, Space::shared, p.shared, p.bytes, c.to_shared, actor);
    const Allocation* a = p.zero ? nullptr : b_.memory->holding(p.global, p.bytes);
    if (a && a->writable)
      races_.access_by_copy(w, i, c.lane, Space::global, p.global, p.bytes, !c.to_shared, actor);
    if (c.to_shared) undefined_.forget_shared(p.shared, p.bytes);
  }
}

void Checks::meet(Warp& w, const Meeting& m, MeetingHandler handler) {
  const Instruction& i = *m.parts[0].instruction;
  const Opcode& op = b_.kernel->opcodes[i.opcode];
  if (op.row->name == "wgmma") {
    // Of what is in registers a product makes what it makes (Undefined::multiply).
    if (i.handler) undefined_.check_operands(w, i, b_.kernel->products[i.target].a_in_registers ? 4 : 0);
    return handler(w, m);
  }
  for (size_t p = 0; in_flight_.watches() && p < m.count; ++p) in_flight_.access(w, *m.parts[p].instruction);
  if (touches_memory(i)) return move_matrices(w, m, handler);
  if (op.row->form == Form::movmatrix) return undefined_.transpose(w, i), handler(w, m);
  undefined_.meet(w, m, handler);
  if (op.row->form == Form::bar_warp_sync) races_.meet(w, m.lanes);
}

// Every row is an access of the lane that holds its address.
void Checks::move_matrices(Warp& w, const Meeting& m, MeetingHandler handler) {
  const Instruction& i = *m.parts[0].instruction;
  undefined_.check_rows(w, i);
  const MatrixRows rows = matrix_rows(w, i);
  handler(w, m);
  undefined_.move_matrices(w, i, rows);
  const auto kind = i.kind == Class::load ? Races::Kind::read : Races::Kind::write;
  for (unsigned lane = 0; lane < kMatrixRows * i.vector; ++lane) {
    std::array<uint8_t, kMatrixRowBytes> values{};
    std::memcpy(values.data(), b_.shared.data() + rows[lane], values.size());
    races_.access(w, i, lane, Space::shared, rows[lane], kMatrixRowBytes, kind,
                  kind == Races::Kind::write ? values.data() : nullptr);
  }
}

void Checks::arrive(uint32_t barrier, Warp& w, const Instruction& i, uint32_t lanes) {
  w.active = lanes;
  undefined_.check_operands(w, i);
  races_.arrive(barrier, w, lanes, i.barrier != BarrierKind::arrive);
  undefined_.define(w, i, lanes);
}

}  // namespace assay::ptx

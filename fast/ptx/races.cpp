#include "fast/ptx/races.h"

#include <algorithm>
#include <bit>

namespace assay::ptx {

namespace {

uint16_t thread_of(const Warp& w, unsigned lane) { return static_cast<uint16_t>(w.index * kLanes + lane); }

std::vector<uint16_t> threads_of(const Warp& w, uint32_t lanes) {
  std::vector<uint16_t> out;
  for (uint32_t m = lanes; m; m &= m - 1)
    out.push_back(thread_of(w, static_cast<unsigned>(std::countr_zero(m))));
  return out;
}

void remember(std::array<Races::Access, 2>& slots, const Races::Access& now) {
  if (slots[0].block != now.block || slots[0].thread != now.thread) slots[1] = slots[0];
  slots[0] = now;
}

std::string words(Races::Kind kind) {
  switch (kind) {
    case Races::Kind::read: return "reads";
    case Races::Kind::constant_read: return "reads, as what nothing writes (.nc),";
    case Races::Kind::atomic: return "changes";
    case Races::Kind::atomic_in_block: return "changes, for its block alone (.cta, .cluster),";
    default: return "writes";
  }
}

bool is_atomic(Races::Kind kind, bool one_block) {
  return kind == Races::Kind::atomic || (one_block && kind == Races::Kind::atomic_in_block);
}

}  // namespace

Races::Races(const Block& block) : b_(block), shared_(block.shared.size()) {}

uint32_t Races::block_number() const {
  const Dim& g = b_.launch->grid;
  return 1 + b_.index.x + g.x * (b_.index.y + g.y * b_.index.z);
}

void Races::start_block() {
  const Kernel& k = *b_.kernel;
  slots_ = k.bulks.empty() && k.products.empty() ? b_.threads : size_t{6} * b_.threads;
  clock_.assign(b_.threads, 1);
  clock_.resize(slots_);
  common_.assign(slots_, 0);
  groups_.clear();
  more_.assign(b_.threads, nullptr);
  arrivals_.clear();
  phases_.clear();
  blocks_known_.assign(b_.launch->grid.count() + 1, false);
}

Races::Cell* Races::cell(Space space, uint64_t address) {
  if (space == Space::shared) return &shared_[address];
  const uint64_t number = address / kPageBytes;
  if (number != last_page_) {
    auto found = pages_.find(number);
    if (found == pages_.end()) {
      if (pages_.size() == kMostPages) return nullptr;
      found = pages_.emplace(number, std::make_unique<Page>()).first;
    }
    last_page_ = number;
    last_ = found->second.get();
  }
  return &(*last_)[address % kPageBytes];
}

bool Races::ordered(const Access& before, uint16_t thread) const {
  if (before.block != block_number()) return blocks_known_[before.block];
  if (before.thread == thread || before.clock <= common_[before.thread]) return true;
  return more_[thread] && before.clock <= (*more_[thread])[before.thread];
}

std::optional<Races::Access> Races::conflict(const Cell& c, const Access& now) const {
  // Shared memory is another one in every block.
  for (const Access& before : c.writes) {
    if (before.kind == Kind::none) continue;
    if (now.kind == Kind::constant_read) return before;
    if (ordered(before, now.thread)) continue;
    const bool one_block = before.block == now.block;
    const bool both_atomic = is_atomic(before.kind, one_block) && is_atomic(now.kind, one_block);
    const bool equal = before.kind == Kind::write && now.kind == Kind::write && before.value == now.value;
    if (!both_atomic && !equal) return before;
  }
  if (reads(now.kind)) return {};
  for (const Access& before : c.reads)
    if (before.kind == Kind::constant_read || (before.kind != Kind::none && !ordered(before, now.thread)))
      return before;
  return {};
}

void Races::access(Warp& w, const Instruction& i, unsigned lane, Space space, uint64_t address,
                   unsigned bytes, Kind kind, const uint8_t* values) {
  Access now;
  now.block = block_number();
  now.thread = thread_of(w, lane);
  now.clock = clock_[now.thread];
  now.pc = static_cast<uint32_t>(&i - b_.kernel->code.data());
  now.kind = kind;
  for (unsigned k = 0; k < bytes; ++k) {
    Cell* c = cell(space, address + k);
    if (!c) return;
    if (space == Space::shared && c->writes[0].block != now.block && c->reads[0].block != now.block) *c = {};
    now.value = values ? values[k] : 0;
    if (const auto before = conflict(*c, now)) report(w, i, lane, space, address + k, bytes, *before, now);
    remember(reads(kind) ? c->reads : c->writes, now);
  }
}

void Races::report(Warp& w, const Instruction& i, unsigned lane, Space space, uint64_t address,
                   unsigned bytes, const Access& before, const Access& now) const {
  const bool same_block = before.block == now.block;
  const Dim& g = b_.launch->grid;
  const uint32_t n = before.block - 1;
  const std::string block = "block (" + std::to_string(n % g.x) + "," + std::to_string(n / g.x % g.y) + "," +
                            std::to_string(n / g.x / g.y) + ") ";
  const bool constant = now.kind == Kind::constant_read || before.kind == Kind::constant_read;
  const std::string missing = constant                         ? "no order makes that right"
                              : !same_block                    ? "blocks of one grid are not ordered"
                              : before.thread >= multiplier(0) ? "nobody has waited for that product"
                              : before.thread >= b_.threads    ? "nobody has waited for that copy"
                              : before.thread / kLanes == now.thread / kLanes
                                  ? "no bar.warp.sync or barrier orders these lanes"
                                  : "no barrier of the block orders them";
  const Instruction& other = b_.kernel->code[before.pc];
  fail(w, i, static_cast<int>(lane),
       "of " + std::to_string(bytes) + " bytes " + words(now.kind) + " a byte that " +
           (same_block ? "" : block) + "thread " + std::to_string(before.thread % b_.threads) + " " +
           words(before.kind) + " at PTX line " + std::to_string(other.line) + " (" + b_.kernel->text(other) +
           "), and " + missing + ": " +
           (space == Space::shared ? "shared memory, offset " + std::to_string(address)
                                   : b_.memory->place(address)));
}

void Races::raise(Clocks& to, uint16_t thread) const {
  if (more_[thread])
    for (size_t u = 0; u < to.size(); ++u) to[u] = std::max(to[u], (*more_[thread])[u]);
  to[thread] = std::max(to[thread], clock_[thread]);
}

void Races::join(const std::vector<uint16_t>& from, const std::vector<uint16_t>& to) {
  auto known = std::make_shared<Clocks>(slots_, 0);
  const Clocks* last = nullptr;
  for (const uint16_t t : from) {
    // Lanes of one warp mostly know the same.
    if (more_[t] && more_[t].get() == last) (*known)[t] = std::max((*known)[t], clock_[t]);
    else raise(*known, t);
    last = more_[t].get();
  }
  if (to.size() == b_.live_threads) {
    // What each knows is what all know. Of threads that have left nothing is learnt.
    for (size_t u = 0; u < common_.size(); ++u) common_[u] = std::max(common_[u], (*known)[u]);
    std::fill(more_.begin(), more_.end(), nullptr);
  } else {
    for (const uint16_t t : to) more_[t] = known;
  }
  for (const uint16_t t : from) ++clock_[t];
}

void Races::order_by(const Warp& w, unsigned lane, Space space, uint64_t address, const Ordering& by) {
  const uint16_t thread = thread_of(w, lane);
  Order& order = orders_[{space, address}];
  if (order.block != block_number()) order.known = nullptr, order.block = block_number();
  order.blocks.resize(blocks_known_.size());
  if (by.acquires) {
    if (order.known) {
      auto known = std::make_shared<Clocks>(*order.known);
      raise(*known, thread);
      more_[thread] = std::move(known);
    }
    for (size_t n = 0; by.across_blocks && n < order.blocks.size(); ++n)
      if (order.blocks[n]) blocks_known_[n] = true;
  }
  if (by.releases) {
    auto known = order.known ? std::make_shared<Clocks>(*order.known) : std::make_shared<Clocks>(slots_, 0);
    raise(*known, thread);
    order.known = std::move(known);
    for (size_t n = 0; by.across_blocks && n < order.blocks.size(); ++n)
      if (blocks_known_[n]) order.blocks[n] = true;
    if (by.across_blocks) order.blocks[block_number()] = true;
  }
  ++clock_[thread];
}

void Races::arrive(uint32_t barrier, const Warp& w, uint32_t lanes, bool waits) {
  Arrivals& a = arrivals_[barrier];
  for (const uint16_t t : threads_of(w, lanes)) {
    a.all.push_back(t);
    if (waits) a.waiting.push_back(t);
  }
}

void Races::complete(uint32_t barrier) {
  Arrivals& a = arrivals_[barrier];
  join(a.all, a.waiting);
  a = {};
}

void Races::arrive_at(uint64_t mbarrier, const Warp& w, uint32_t lanes) {
  Clocks& now = phases_[mbarrier].now;
  now.resize(clock_.size());
  for (const uint16_t t : threads_of(w, lanes)) {
    raise(now, t);
    ++clock_[t];
  }
}

void Races::complete_phase(uint64_t mbarrier) {
  Phases& p = phases_[mbarrier];
  p.complete.resize(clock_.size());
  for (size_t u = 0; u < p.now.size(); ++u) p.complete[u] = std::max(p.complete[u], p.now[u]);
  p.now.clear();
}

void Races::pass(uint64_t mbarrier, const Warp& w, uint32_t lanes) {
  const Clocks& complete = phases_[mbarrier].complete;
  if (complete.empty()) return;
  // Lanes of one warp mostly know the same.
  std::shared_ptr<const Clocks> before, after;
  for (const uint16_t t : threads_of(w, lanes)) {
    if (!after || more_[t] != before) {
      before = more_[t];
      auto known = std::make_shared<Clocks>(complete);
      for (size_t u = 0; before && u < known->size(); ++u) (*known)[u] = std::max((*known)[u], (*before)[u]);
      after = std::move(known);
    }
    more_[t] = after;
  }
}

uint32_t Races::known(uint16_t thread, uint16_t of) const {
  return std::max(common_[of], more_[thread] ? (*more_[thread])[of] : 0);
}

void Races::learn(uint16_t thread, uint16_t of, uint32_t clock) {
  if (known(thread, of) >= clock) return;
  auto now = more_[thread] ? std::make_shared<Clocks>(*more_[thread]) : std::make_shared<Clocks>(slots_, 0);
  (*now)[of] = clock;
  more_[thread] = now;
}

uint32_t Races::begin_copy(const Warp& w, unsigned lane, std::optional<uint32_t> group) {
  const uint16_t t = thread_of(w, lane);
  if (!group) return ++clock_[loader(t)];
  const uint32_t number = ++clock_[reader(t)];
  clock_[writer(t)] = number;
  groups_[t].emplace_back(*group, number);
  return number;
}

void Races::access_by_copy(Warp& w, const Instruction& i, unsigned lane, Space space, uint64_t address,
                           unsigned bytes, bool write, Actor actor) {
  Access now;
  now.block = block_number();
  now.thread = thread_of(w, lane);
  now.pc = static_cast<uint32_t>(&i - b_.kernel->code.data());
  now.kind = !write ? Kind::read : b_.kernel->bulks[i.target].element ? Kind::atomic : Kind::copied;
  Access kept = now;
  kept.thread = actor == Actor::load      ? loader(now.thread)
                : actor == Actor::product ? multiplier(now.thread)
                : write                   ? writer(now.thread)
                                          : reader(now.thread);
  kept.clock = clock_[kept.thread];
  for (unsigned k = 0; k < bytes; ++k) {
    Cell* c = cell(space, address + k);
    if (!c) return;
    if (space == Space::shared && c->writes[0].block != now.block && c->reads[0].block != now.block) *c = {};
    // It comes behind what its thread knows when it issues it, but is no part of that thread.
    if (const auto before = conflict(*c, now)) report(w, i, lane, space, address + k, bytes, *before, now);
    if (!write) check_proxy(w, i, lane, space, address + k, c->writes[0]);
    remember(write ? c->writes : c->reads, kept);
  }
}

// Memory Consistency Model: what the generic proxy wrote precedes what the async proxy reads only where a
// proxy fence stands on the way from one to the other.
void Races::check_proxy(Warp& w, const Instruction& i, unsigned lane, Space space, uint64_t address,
                        const Access& before) const {
  if (before.kind == Kind::none || before.block != block_number() || before.thread >= b_.threads) return;
  if (before.clock <= known(thread_of(w, lane), fenced(before.thread))) return;
  const Instruction& other = b_.kernel->code[before.pc];
  fail(w, i, static_cast<int>(lane),
       "reads a byte that thread " + std::to_string(before.thread) + " writes at PTX line " +
           std::to_string(other.line) + " (" + b_.kernel->text(other) +
           "), and no fence.proxy.async stands between the two: " +
           (space == Space::shared ? "shared memory, offset " + std::to_string(address)
                                   : b_.memory->place(address)));
}

void Races::complete_copy(uint64_t mbarrier, const Warp& w, unsigned lane, uint32_t number) {
  const uint16_t t = thread_of(w, lane);
  Clocks& now = phases_[mbarrier].now;
  now.resize(slots_);
  now[loader(t)] = std::max(now[loader(t)], number);
}

void Races::complete_product(const Warp& w, uint32_t number) {
  for (unsigned lane = 0; lane < kLanes; ++lane)
    learn(thread_of(w, lane), multiplier(first_thread(w)), number);
}

void Races::wait_for_copies(const Warp& w, uint32_t left, bool reads) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(m));
    const uint16_t t = thread_of(w, lane);
    uint32_t last = 0;
    for (const auto& [group, number] : groups_[t])
      if (uint64_t{group} + left < w.closed_bulk_groups[lane]) last = std::max(last, number);
    if (last == 0) continue;
    learn(t, reader(t), last);
    if (!reads) learn(t, writer(t), last);
  }
}

void Races::fence_proxies(const Warp& w, uint32_t lanes) {
  if (slots_ == b_.threads) return;
  for (const uint16_t t : threads_of(w, lanes)) {
    auto now = more_[t] ? std::make_shared<Clocks>(*more_[t]) : std::make_shared<Clocks>(slots_, 0);
    for (uint16_t u = 0; u < b_.threads; ++u) (*now)[fenced(u)] = known(t, u);
    (*now)[fenced(t)] = clock_[t];
    more_[t] = now;
    ++clock_[t];
  }
}

void Races::meet(const Warp& w, uint32_t lanes) {
  const auto threads = threads_of(w, lanes);
  join(threads, threads);
}

}  // namespace assay::ptx

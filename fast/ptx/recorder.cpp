#include "fast/ptx/recorder.h"

#include <bit>
#include <cstring>

#include "fast/ptx/module.h"

namespace assay::ptx {

namespace {

constexpr size_t kMostWords = size_t{1} << 29;

bool touches_memory(const Instruction& i) {
  return i.kind == Class::load || i.kind == Class::store || i.kind == Class::atomic;
}
bool is_predicate(uint16_t which, unsigned k) { return which >> k & 1; }

uint64_t bytes_at(uint64_t address, unsigned bytes) {
  uint64_t v = 0;
  std::memcpy(&v, reinterpret_cast<const void*>(address), bytes);
  return v;
}

// What an atomic of one lane finds: its memory must be reachable, or the handler itself throws.
uint64_t memory_of(Warp& w, const Instruction& i, unsigned lane, uint64_t address) {
  const unsigned bytes = access_bytes(w.block->kernel->opcodes[i.opcode]);
  const auto* at = resolve(w, i, static_cast<int>(lane), address, bytes, true);
  return bytes_at(reinterpret_cast<uint64_t>(at), bytes);
}

template <class F> void for_each_lane(uint32_t lanes, F f) {
  for (uint32_t m = lanes; m; m &= m - 1) f(static_cast<unsigned>(std::countr_zero(m)));
}

}  // namespace

uint64_t access_address(const Warp& w, const Instruction& i, unsigned lane) {
  uint64_t base = 0;
  if (i.sources && i.wide_s) std::memcpy(&base, w.words + i.s[0] + 2 * lane, sizeof base);
  else if (i.sources) base = w.words[i.s[0] + lane];
  base += static_cast<uint64_t>(i.offset);
  return i.wide_s || !i.sources ? base : static_cast<uint32_t>(base);
}

void Recorder::start_run() {
  launches_.clear(), blocks_.clear(), events_.clear(), values_.clear(), writers_.clear();
  meetings_ = 0;
}

void Recorder::start_launch(const Module& module, const Kernel& kernel, const Memory& memory) {
  launches_.push_back({kernel.name, module.text(), kernel, memory});
  block_in_launch_ = 0;
  watched_addresses_.clear();
  for (const BytePlace& p : watched)
    if (const Allocation* a = memory.named(p.allocation)) watched_addresses_.insert(a->base + p.offset);
}

void Recorder::start_block(const Block& b) {
  const BlockName name{static_cast<uint32_t>(launches_.size() - 1), block_in_launch_++};
  blocks_.push_back({name, b.index});
  keeping_ = keep.contains(name);
}

bool Recorder::writes(const Instruction& i) const {
  return i.kind == Class::store || i.kind == Class::atomic;
}

void Recorder::append(const Warp& w, uint32_t place, bool predicate) {
  const uint32_t* from = predicate ? w.predicates + place : w.words + place;
  values_.insert(values_.end(), from, from + words(*w.block->kernel, place, predicate));
}

size_t Recorder::words(const Kernel& k, uint32_t place, bool predicate) const {
  return predicate ? 1 : k.wide[place / kLanes] ? 2 * kLanes : kLanes;
}

void Recorder::open(const Warp& w, const Instruction& i, uint32_t lanes, uint32_t meeting) {
  if (values_.size() > kMostWords)
    throw Fault("the blocks behind this value did too much to be kept: trace a smaller tensor");
  open_.push_back(events_.size());
  const auto pc = static_cast<uint32_t>(&i - w.block->kernel->code.data());
  events_.push_back({static_cast<uint32_t>(launches_.size() - 1), static_cast<uint32_t>(blocks_.size() - 1),
                     pc, lanes, meeting, static_cast<uint16_t>(w.index), values_.size()});
  for (unsigned k = 0; k < i.sources; ++k) append(w, i.s[k], is_predicate(i.predicate_s, k));
}

void Recorder::keep_memory(Warp& w, const Instruction& i, uint32_t lanes) {
  addresses_ = {}, found_ = {};
  const bool matrices = i.flow == Flow::meeting;
  for_each_lane(lanes, [&](unsigned l) {
    addresses_[l] = access_address(w, i, l);
    if (i.kind == Class::atomic && !matrices) found_[l] = memory_of(w, i, l, addresses_[l]);
  });
}

// A block that writes one of the watched bytes. An atomic that leaves what it finds writes nothing.
void Recorder::note_writers(Warp& w, const Instruction& i, uint32_t lanes) {
  const unsigned bytes = access_bytes(w.block->kernel->opcodes[i.opcode]) * i.vector;
  for_each_lane(lanes, [&](unsigned l) {
    uint64_t at = addresses_[l];
    if (located(i, at) != Space::global) return;
    if (i.kind == Class::atomic && bytes_at(at, bytes) == found_[l]) return;
    for (unsigned n = 0; n < bytes; ++n)
      if (watched_addresses_.contains(at + n)) writers_.insert(blocks_.back().name);
  });
}

void Recorder::before(Warp& w, const Instruction& i) {
  open_.clear();
  if (touches_memory(i) && (keeping_ || writes(i))) keep_memory(w, i, w.active);
  if (keeping_) open(w, i, w.active, 0);
}

void Recorder::after(Warp& w, const Instruction& i) {
  if (writes(i) && !watched_addresses_.empty()) note_writers(w, i, w.active);
  if (!keeping_) return;
  for (unsigned k = 0; k < i.destinations; ++k) append(w, i.d[k], is_predicate(i.predicate_d, k));
  if (!touches_memory(i)) return;
  const auto put = [&](const std::array<uint64_t, kLanes>& numbers) {
    for (const uint64_t v : numbers) {
      values_.push_back(static_cast<uint32_t>(v));
      values_.push_back(static_cast<uint32_t>(v >> 32));
    }
  };
  put(addresses_);
  if (i.kind != Class::atomic) return;
  put(found_);
  std::array<uint64_t, kLanes> left{};
  for_each_lane(w.active, [&](unsigned l) { left[l] = memory_of(w, i, l, addresses_[l]); });
  put(left);
}

void Recorder::before(Warp& w, const Meeting& m) {
  open_.clear();
  if (!keeping_) return;
  ++meetings_;
  for (size_t p = 0; p < m.count; ++p) {
    const Instruction& i = *m.parts[p].instruction;
    if (touches_memory(i)) keep_memory(w, i, m.parts[p].lanes);
    open(w, i, m.parts[p].lanes, meetings_);
    // The destinations follow when the handler is done; their place is kept free.
    for (unsigned k = 0; k < i.destinations; ++k) append(w, i.d[k], is_predicate(i.predicate_d, k));
    if (!touches_memory(i)) continue;
    for (const uint64_t v : addresses_) {
      values_.push_back(static_cast<uint32_t>(v));
      values_.push_back(static_cast<uint32_t>(v >> 32));
    }
  }
}

void Recorder::after(Warp& w, const Meeting& m) {
  if (!keeping_) return;
  for (size_t p = 0; p < m.count; ++p) {
    const Recorded& e = events_[open_[p]];
    const Instruction& i = *m.parts[p].instruction;
    for (unsigned k = 0; k < i.destinations; ++k) {
      const bool predicate = is_predicate(i.predicate_d, k);
      const uint32_t* from = predicate ? w.predicates + i.d[k] : w.words + i.d[k];
      std::memcpy(values_.data() + begin_of(e, k, true), from,
                  words(*w.block->kernel, i.d[k], predicate) * sizeof(uint32_t));
    }
  }
}

size_t Recorder::begin_of(const Recorded& e, unsigned k, bool destination) const {
  const Instruction& i = instruction(e);
  size_t at = e.values;
  for (unsigned s = 0; s < (destination ? i.sources : k); ++s)
    at += words(kernel(e), i.s[s], is_predicate(i.predicate_s, s));
  for (unsigned d = 0; destination && d < k; ++d)
    at += words(kernel(e), i.d[d], is_predicate(i.predicate_d, d));
  return at;
}

uint64_t Recorder::value(const Recorded& e, size_t at, uint32_t place, bool predicate, unsigned lane) const {
  if (predicate) return values_[at] >> lane & 1;
  if (!kernel(e).wide[place / kLanes]) return values_[at + lane];
  return values_[at + 2 * lane] | uint64_t{values_[at + 2 * lane + 1]} << 32;
}

uint64_t Recorder::source(const Recorded& e, unsigned k, unsigned lane) const {
  const Instruction& i = instruction(e);
  const bool predicate = is_predicate(i.predicate_s, k);
  return value(e, begin_of(e, k, false), i.s[k], predicate, lane) ^ (predicate ? i.inverted >> k & 1 : 0);
}

uint64_t Recorder::destination(const Recorded& e, unsigned k, unsigned lane) const {
  const Instruction& i = instruction(e);
  return value(e, begin_of(e, k, true), i.d[k], is_predicate(i.predicate_d, k), lane);
}

namespace {
uint64_t pair_at(const std::vector<uint32_t>& words, size_t at) {
  return words[at] | uint64_t{words[at + 1]} << 32;
}
}  // namespace

uint64_t Recorder::address(const Recorded& e, unsigned lane) const {
  return pair_at(values_, begin_of(e, instruction(e).destinations, true) + 2 * lane);
}
uint64_t Recorder::found(const Recorded& e, unsigned lane) const {
  return pair_at(values_, begin_of(e, instruction(e).destinations, true) + 2 * (kLanes + lane));
}
uint64_t Recorder::left(const Recorded& e, unsigned lane) const {
  return pair_at(values_, begin_of(e, instruction(e).destinations, true) + 2 * (2 * kLanes + lane));
}

}  // namespace assay::ptx

#include "fast/ptx/undefined.h"

#include <algorithm>
#include <bit>

namespace assay::ptx {

namespace {

bool written_by(uint16_t predicates, unsigned k) { return predicates >> k & 1; }

uint32_t predicate_lanes(const Warp& w, const Instruction& i, unsigned k) {
  return w.predicates[i.s[k]] ^ (i.inverted >> k & 1 ? ~0u : 0u);
}

}  // namespace

Undefined::Undefined(const Block& block)
    : b_(block), warps_(block.warps.size()), local_(block.warps.size()) {}

void Undefined::start_block() {
  const Kernel& k = *b_.kernel;
  shared_.assign(b_.shared.size(), 0);
  for (size_t n = 0; n < warps_.size(); ++n) {
    Registers& r = warps_[n];
    r.lanes.assign(k.words / kLanes + 1, ~0u);
    r.origin.assign(r.lanes.size(), 0);
    r.predicate_lanes.assign(k.predicates, ~0u);
    r.predicate_lanes[k.true_predicate] = 0;
    for (const Kernel::Constant& c : k.constants) {
      r.lanes[c.place / kLanes] = 0;
      if (c.wide) r.lanes[c.place / kLanes + 1] = 0;
    }
    for (const uint32_t place : k.special)
      if (place != kUnused) r.lanes[place / kLanes] = 0;
    local_[n].assign(k.local_bytes * kLanes, 0);
  }
}

Undefined::Halves Undefined::halves(const Warp& w, uint32_t place) const {
  const auto& lanes = warps_[w.index].lanes;
  const uint32_t at = place / kLanes;
  return {lanes[at], b_.kernel->wide[at] ? lanes[at + 1] : 0};
}

uint32_t Undefined::source(const Warp& w, const Instruction& i, unsigned k) const {
  return written_by(i.predicate_s, k) ? warps_[w.index].predicate_lanes[i.s[k]] : halves(w, i.s[k]).any();
}

uint32_t Undefined::origin_of(const Warp& w, const Instruction& i, unsigned k) const {
  return written_by(i.predicate_s, k) ? 0 : warps_[w.index].origin[i.s[k] / kLanes];
}

uint32_t Undefined::sources(const Warp& w, const Instruction& i, uint32_t& origin) const {
  uint32_t lanes = 0;
  for (unsigned k = 0; k < i.sources; ++k) {
    const uint32_t more = source(w, i, k);
    if (more & w.active && !origin) origin = origin_of(w, i, k);
    lanes |= more;
  }
  return lanes;
}

void Undefined::set(const Warp& w, const Instruction& i, unsigned k, uint32_t lanes, Halves undefined,
                    uint32_t origin) {
  Registers& r = warps_[w.index];
  const auto change = [lanes](uint32_t& now, uint32_t to) { now = (now & ~lanes) | (to & lanes); };
  if (written_by(i.predicate_d, k)) return change(r.predicate_lanes[i.d[k]], undefined.any());
  const uint32_t at = i.d[k] / kLanes;
  change(r.lanes[at], undefined.low);
  if (b_.kernel->wide[at]) change(r.lanes[at + 1], undefined.high);
  if (undefined.any() & lanes) r.origin[at] = origin;
}

void Undefined::report(Warp& w, const Instruction& i, uint32_t lanes, const std::string& what,
                       uint32_t origin) const {
  std::string from = "a register that nothing was written to";
  if (origin) {
    const Instruction& o = b_.kernel->code[origin - 1];
    from = "memory that nothing was written to, read at PTX line " + std::to_string(o.line) + " (" +
           b_.kernel->text(o) + ")";
  }
  fail(w, i, std::countr_zero(lanes), what + ", which comes from " + from);
}

void Undefined::check_guard(Warp& w, const Instruction& i, uint32_t lanes) const {
  if (const uint32_t bad = warps_[w.index].predicate_lanes[i.guard] & lanes)
    report(w, i, bad, "is guarded by an undefined predicate", 0);
}

void Undefined::check_address(Warp& w, const Instruction& i) const {
  if (i.kind == Class::atomic) check_operands(w, i);
  if (i.sources == 0) return;
  if (const uint32_t bad = source(w, i, 0) & w.active)
    report(w, i, bad, "is given an undefined address", origin_of(w, i, 0));
}

void Undefined::check_operands(Warp& w, const Instruction& i) const {
  for (unsigned k = 0; k < i.sources; ++k)
    if (const uint32_t bad = source(w, i, k) & w.active)
      report(w, i, bad, "takes an undefined operand", origin_of(w, i, k));
}

void Undefined::define(const Warp& w, const Instruction& i, uint32_t lanes) {
  for (unsigned k = 0; k < i.destinations; ++k) set(w, i, k, lanes, {}, 0);
}

bool Undefined::move_halves(const Warp& w, const Instruction& i, Form form) {
  const auto wide = [&](uint32_t place) { return b_.kernel->wide[place / kLanes]; };
  const auto first = [&] { return halves(w, i.s[0]); };
  switch (form) {
    case Form::mov:
      if (i.width == 0) return pending_[0] = first(), true;
      if (i.width != 32) return false;
      if (i.sources == 2) pending_[0] = {halves(w, i.s[0]).low, halves(w, i.s[1]).low};
      else pending_[0] = {first().low, 0}, pending_[1] = {first().high, 0};
      return true;
    case Form::and_bits:
    case Form::or_bits:
    case Form::xor_bits: {
      const Halves a = first(), b = halves(w, i.s[1]);
      pending_[0] = {a.low | b.low, a.high | b.high};
      return true;
    }
    case Form::not_bits: return pending_[0] = first(), true;
    case Form::cvt_int:
      // To a register of 32 bits goes the low half. To one of 64 the sign may reach the high half.
      pending_[0] = wide(i.d[0]) && !wide(i.s[0]) ? Halves{first().low, first().low} : first();
      return true;
    case Form::shl:
    case Form::shr: {
      if (!wide(i.s[0])) return false;
      const uint32_t* amounts = w.words + i.s[1];
      for (uint32_t m = w.active; m; m &= m - 1)
        if (const uint32_t amount = amounts[std::countr_zero(m)]; amount < 32 || amount > 63) return false;
      if (source(w, i, 1) & w.active) return false;
      const Halves a = first();
      pending_[0] = form == Form::shl ? Halves{0, a.low} : Halves{a.high, a.high};
      return true;
    }
    default: return false;
  }
}

void Undefined::before(Warp& w, const Instruction& i) {
  pending_origin_ = 0;
  const uint32_t all = sources(w, i, pending_origin_);
  if (!(all & w.active)) return pending_.fill({});
  const Form form = b_.kernel->opcodes[i.opcode].row->form;
  if (move_halves(w, i, form)) return;
  uint32_t lanes = all;
  if (form == Form::selp || form == Form::and_pred || form == Form::or_pred) {
    const uint32_t a = source(w, i, 0), b = source(w, i, 1);
    if (form == Form::selp) {
      const uint32_t first = predicate_lanes(w, i, 2);
      lanes = source(w, i, 2) | (first & a) | (~first & b);
      pending_origin_ = origin_of(w, i, a & first & w.active ? 0 : 1);
    } else {
      // false decides an and, true an or.
      const uint32_t flip = form == Form::and_pred ? 0u : ~0u;
      const uint32_t decides =
          (~a & ~(predicate_lanes(w, i, 0) ^ flip)) | (~b & ~(predicate_lanes(w, i, 1) ^ flip));
      lanes = (a | b) & ~decides;
    }
  }
  pending_.fill({lanes, lanes});
}

void Undefined::after(Warp& w, const Instruction& i) {
  for (unsigned k = 0; k < i.destinations; ++k) set(w, i, k, w.active, pending_[k], pending_origin_);
}

uint8_t* Undefined::flags(const Warp& w, unsigned lane, Space space, uint64_t address) {
  switch (space) {
    case Space::shared: return &shared_[address];
    case Space::local: return &local_[w.index][lane * b_.kernel->local_bytes + address];
    case Space::param:
    case Space::constant: return nullptr;
    default: break;
  }
  const Allocation* a = b_.memory->holding(address, 1);
  return a && a->written ? a->written->data() + (address - a->base) : nullptr;
}

void Undefined::load(Warp& w, const Instruction& i, unsigned lane, unsigned k, Space space, uint64_t address,
                     unsigned bytes) {
  const uint8_t* written = flags(w, lane, space, address);
  const auto missing = [&](unsigned from, unsigned to) {
    return written && std::find(written + from, written + to, 0) != written + to ? 1u << lane : 0u;
  };
  const Halves undefined =
      bytes == 8 ? Halves{missing(0, 4), missing(4, 8)} : Halves{missing(0, bytes), missing(0, bytes)};
  set(w, i, k, 1u << lane, undefined, static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1);
}

void Undefined::store(Warp& w, const Instruction& i, unsigned lane, unsigned k, Space space, uint64_t address,
                      unsigned bytes) {
  const Halves undefined = halves(w, i.s[k]);
  const bool low = undefined.low >> lane & 1, high = bytes == 8 && (undefined.high >> lane & 1);
  const bool kept = space == Space::shared || space == Space::local;
  if ((low || high) && !kept)
    report(w, i, 1u << lane, "stores an undefined value to " + b_.memory->place(address), origin_of(w, i, k));
  if (uint8_t* written = flags(w, lane, space, address))
    for (unsigned n = 0; n < bytes; ++n) written[n] = !(n < 4 ? low : high);
}

void Undefined::change(Warp& w, const Instruction& i, unsigned lane, Space space, uint64_t address,
                       unsigned bytes) {
  const uint8_t* written = flags(w, lane, space, address);
  if (written && std::find(written, written + bytes, 0) != written + bytes)
    fail(w, i, static_cast<int>(lane),
         "changes memory that nothing was written to: " +
             (space == Space::shared ? "shared memory, offset " + std::to_string(address)
                                     : b_.memory->place(address)));
  if (i.destinations) set(w, i, 0, 1u << lane, {}, 0);
}

void Undefined::meet(Warp& w, const Meeting& m, MeetingHandler handler) {
  const bool shuffles = b_.kernel->opcodes[m.parts[0].instruction->opcode].row->form == Form::shfl;
  std::array<uint32_t, kLanes> flags{}, source_was{}, destination_was{};
  uint32_t any = 0, origin = 0;
  const auto for_lanes = [&](auto f) {
    for (size_t p = 0; p < m.count; ++p)
      for (uint32_t l = m.parts[p].lanes; l; l &= l - 1)
        f(*m.parts[p].instruction, static_cast<unsigned>(std::countr_zero(l)));
  };
  for (size_t p = 0; p < m.count; ++p) {
    const Instruction& i = *m.parts[p].instruction;
    for (unsigned k = shuffles ? 1 : 0; k < i.sources; ++k) any |= source(w, i, k) & m.parts[p].lanes;
    if (i.sources && !origin) origin = origin_of(w, i, 0);
  }
  if (shuffles) {
    // The shuffle itself carries a flag for every lane, then the values.
    for_lanes([&](const Instruction& i, unsigned l) {
      source_was[l] = w.words[i.s[0] + l];
      destination_was[l] = w.words[i.d[0] + l];
    });
    for_lanes([&](const Instruction& i, unsigned l) { w.words[i.s[0] + l] = source(w, i, 0) >> l & 1; });
    handler(w, m);
    for_lanes([&](const Instruction& i, unsigned l) { flags[l] = w.words[i.d[0] + l]; });
    for_lanes([&](const Instruction& i, unsigned l) {
      w.words[i.d[0] + l] = destination_was[l];
      w.words[i.s[0] + l] = source_was[l];
    });
  }
  handler(w, m);
  for_lanes([&](const Instruction& i, unsigned l) {
    const bool undefined = shuffles ? flags[l] || (any >> l & 1) : any != 0;
    for (unsigned k = 0; k < i.destinations; ++k) {
      const bool value = k == 0 || !shuffles;
      set(w, i, k, 1u << l, undefined && value ? Halves{~0u, ~0u} : Halves{}, origin);
    }
  });
}

}  // namespace assay::ptx

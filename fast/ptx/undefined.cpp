#include "fast/ptx/undefined.h"

#include <algorithm>
#include <bit>

#include "fast/ptx/shuffle.h"

namespace assay::ptx {

namespace {

bool written_by(uint16_t predicates, unsigned k) { return predicates >> k & 1; }

uint32_t predicate_lanes(const Warp& w, const Instruction& i, unsigned k) {
  return w.predicates[i.s[k]] ^ (i.inverted >> k & 1 ? ~0u : 0u);
}

}  // namespace

uint32_t Undefined::Bytes::any() const {
  uint32_t lanes = 0;
  for (const uint32_t byte : of) lanes |= byte;
  return lanes;
}
Undefined::Bytes Undefined::Bytes::all(uint32_t lanes) {
  Bytes b;
  b.of.fill(lanes);
  return b;
}

Undefined::Undefined(const Block& block)
    : b_(block), warps_(block.warps.size()), local_(block.warps.size()) {}

void Undefined::start_block() {
  const Kernel& k = *b_.kernel;
  shared_.assign(b_.shared.size(), 0);
  for (size_t n = 0; n < warps_.size(); ++n) {
    Registers& r = warps_[n];
    r.bytes.assign(4 * (k.words / kLanes + 1), ~0u);
    r.origin.assign(k.words / kLanes + 1, 0);
    r.predicates.assign(k.predicates, ~0u);
    r.predicate_origin.assign(k.predicates, 0);
    r.carry = ~0u, r.carry_origin = 0;
    r.predicates[k.true_predicate] = 0;
    const auto define = [&](uint32_t place) {
      std::fill_n(r.bytes.begin() + 4 * (place / kLanes), wide(place) ? 8 : 4, 0u);
    };
    for (const Kernel::Constant& c : k.constants) define(c.place);
    for (const uint32_t place : k.special)
      if (place != kUnused) define(place);
    for (const Kernel::Bulk& bulk : k.bulks) define(bulk.shared_at), define(bulk.global_at);
    local_[n].assign(k.local_bytes * kLanes, 0);
  }
}

Undefined::Bytes Undefined::bytes(const Warp& w, uint32_t place) const {
  Bytes out;
  std::copy_n(warps_[w.index].bytes.begin() + 4 * (place / kLanes), wide(place) ? 8 : 4, out.of.begin());
  return out;
}

uint32_t Undefined::source(const Warp& w, const Instruction& i, unsigned k) const {
  const Registers& r = warps_[w.index];
  if (written_by(i.predicate_s, k)) return r.predicates[i.s[k]];
  const uint32_t* of = r.bytes.data() + 4 * (i.s[k] / kLanes);
  const uint32_t low = of[0] | of[1] | of[2] | of[3];
  return wide(i.s[k]) ? low | of[4] | of[5] | of[6] | of[7] : low;
}

uint32_t Undefined::origin_of(const Warp& w, const Instruction& i, unsigned k) const {
  const Registers& r = warps_[w.index];
  return written_by(i.predicate_s, k) ? r.predicate_origin[i.s[k]] : r.origin[i.s[k] / kLanes];
}

uint32_t Undefined::sources(const Warp& w, const Instruction& i, uint32_t& origin) const {
  uint32_t lanes = 0;
  for (unsigned k = 0; k < i.sources; ++k) {
    const uint32_t more = source(w, i, k);
    if (more & w.active && !origin) origin = origin_of(w, i, k);
    lanes |= more;
  }
  if (i.carry_in) {
    const Registers& r = warps_[w.index];
    if (r.carry & w.active && !origin) origin = r.carry_origin;
    lanes |= r.carry;
  }
  return lanes;
}

void Undefined::set(const Warp& w, const Instruction& i, unsigned k, uint32_t lanes, const Bytes& undefined,
                    uint32_t origin) {
  Registers& r = warps_[w.index];
  const auto change = [lanes](uint32_t& now, uint32_t to) { now = (now & ~lanes) | (to & lanes); };
  if (written_by(i.predicate_d, k)) {
    if (undefined.any() & lanes) r.predicate_origin[i.d[k]] = origin;
    return change(r.predicates[i.d[k]], undefined.any());
  }
  const uint32_t at = i.d[k] / kLanes;
  for (size_t n = 0; n < (wide(i.d[k]) ? 8u : 4u); ++n) change(r.bytes[4 * at + n], undefined.of[n]);
  if (undefined.any() & lanes) r.origin[at] = origin;
}

void Undefined::report(Warp& w, const Instruction& i, uint32_t lanes, const std::string& what,
                       uint32_t origin) const {
  std::string from = "a register that nothing was written to";
  if (origin) {
    const Instruction& o = b_.kernel->code[origin - 1];
    from = b_.kernel->opcodes[o.opcode].row->form == Form::shfl ? "a lane that takes no part"
                                                                : "memory that nothing was written to";
    from += ", read at PTX line " + std::to_string(o.line) + " (" + b_.kernel->text(o) + ")";
  }
  fail(w, i, std::countr_zero(lanes), what + ", which comes from " + from);
}

void Undefined::check_guard(Warp& w, const Instruction& i, uint32_t lanes) const {
  if (const uint32_t bad = warps_[w.index].predicates[i.guard] & lanes)
    report(w, i, bad, "is guarded by an undefined predicate", warps_[w.index].predicate_origin[i.guard]);
}

void Undefined::check_address(Warp& w, const Instruction& i) const {
  if (i.kind == Class::atomic) check_operands(w, i);
  if (i.sources == 0) return;
  if (const uint32_t bad = source(w, i, 0) & w.active)
    report(w, i, bad, "is given an undefined address", origin_of(w, i, 0));
}

void Undefined::check_operands(Warp& w, const Instruction& i, unsigned first) const {
  for (unsigned k = first; k < i.sources; ++k)
    if (const uint32_t bad = source(w, i, k) & w.active)
      report(w, i, bad, "takes an undefined operand", origin_of(w, i, k));
}

void Undefined::define(const Warp& w, const Instruction& i, uint32_t lanes) {
  Registers& r = warps_[w.index];
  for (unsigned k = 0; k < i.destinations; ++k) {
    if (written_by(i.predicate_d, k)) {
      r.predicates[i.d[k]] &= ~lanes;
      continue;
    }
    uint32_t* of = r.bytes.data() + 4 * (i.d[k] / kLanes);
    for (size_t n = 0; n < (wide(i.d[k]) ? 8u : 4u); ++n) of[n] &= ~lanes;
  }
}

bool Undefined::move_bytes(const Warp& w, const Instruction& i, const Opcode& op) {
  switch (op.row->form) {
    case Form::mov: {
      const unsigned part = i.width / 8u;
      if (i.width == 0) pending_[0] = bytes(w, i.s[0]);
      else if (i.sources > 1)
        for (unsigned n = 0; n < part * i.sources; ++n)
          pending_[0].of[n] = bytes(w, i.s[n / part]).of[n % part];
      else
        for (unsigned n = 0; n < part * i.destinations; ++n)
          pending_[n / part].of[n % part] = bytes(w, i.s[0]).of[n];
      return true;
    }
    case Form::not_bits: return pending_[0] = bytes(w, i.s[0]), true;
    case Form::or_bits:
    case Form::xor_bits:
      for (unsigned n = 0; n < 8; ++n) pending_[0].of[n] = bytes(w, i.s[0]).of[n] | bytes(w, i.s[1]).of[n];
      return true;
    case Form::and_bits: return mask_bytes(w, i), true;
    case Form::selp: {
      const Bytes a = bytes(w, i.s[0]), b = bytes(w, i.s[1]);
      const uint32_t first = predicate_lanes(w, i, 2), unknown = source(w, i, 2);
      for (unsigned n = 0; n < 8; ++n) pending_[0].of[n] = (first & a.of[n]) | (~first & b.of[n]) | unknown;
      pending_origin_ = origin_of(w, i, a.any() & first & w.active ? 0 : 1);
      return true;
    }
    case Form::cvt_int:
    case Form::cvt_pair:
    case Form::cvt_e8m0:
    case Form::cvt_half_pair:
    case Form::cvt_unpack: return convert_bytes(w, i, op), true;
    case Form::shl:
    case Form::shr: return shift_bytes(w, i, op);
    case Form::prmt:
      if (!op.modifiers.empty() || source(w, i, 2) & w.active) return false;
      return permute_bytes(w, i), true;
    default: return false;
  }
}

// A byte of zeros decides what the other operand has there.
void Undefined::mask_bytes(const Warp& w, const Instruction& i) {
  const Bytes a = bytes(w, i.s[0]), b = bytes(w, i.s[1]);
  const auto zeros = [&](uint32_t place, unsigned n) {
    uint32_t lanes = 0;
    for (unsigned l = 0; l < kLanes; ++l) {
      const uint32_t word = wide(place) ? w.words[place + 2 * l + n / 4] : w.words[place + l];
      lanes |= uint32_t{(word >> (8 * (n % 4)) & 0xFF) == 0} << l;
    }
    return lanes;
  };
  for (unsigned n = 0; n < (wide(i.s[0]) ? 8u : 4u); ++n)
    pending_[0].of[n] =
        (a.of[n] & ~(~b.of[n] & zeros(i.s[1], n))) | (b.of[n] & ~(~a.of[n] & zeros(i.s[0], n)));
}

// Pairs: the second source is the lower part.
void Undefined::convert_bytes(const Warp& w, const Instruction& i, const Opcode& op) {
  if (op.row->form == Form::cvt_int) {
    const Bytes from = bytes(w, i.s[0]);
    const auto to_size = static_cast<unsigned>(info(op.first()).bytes());
    const auto from_size = static_cast<unsigned>(info(op.last()).bytes());
    const unsigned kept = op.has("sat") ? 0 : std::min(to_size, from_size);
    // Beyond the narrower of the two lies its sign, or zeros.
    for (unsigned n = 0; n < 8; ++n)
      pending_[0].of[n] = kept == 0 ? from.any() : from.of[std::min(n, kept - 1)];
    return;
  }
  if (op.row->form == Form::cvt_unpack) {  // each half of the result from its own code
    const Bytes from = bytes(w, i.s[0]);
    const bool nibbles = op.last() == Type::e2m1x2;
    for (unsigned n = 0; n < 4; ++n) pending_[0].of[n] = from.of[nibbles ? 0 : n / 2];
    return;
  }
  const uint32_t high = bytes(w, i.s[0]).any(), low = bytes(w, i.s[1]).any();
  const unsigned part = op.row->form == Form::cvt_half_pair ? 2 : 1;
  if (op.first() == Type::e2m1x2) pending_[0].of[0] = low | high;
  else
    for (unsigned n = 0; n < part; ++n) pending_[0].of[n] = low, pending_[0].of[part + n] = high;
}

// By one amount for all lanes.
bool Undefined::shift_bytes(const Warp& w, const Instruction& i, const Opcode& op) {
  const auto size = static_cast<int>(info(op.first()).bytes());
  const uint32_t amount = w.words[i.s[1] + static_cast<unsigned>(std::countr_zero(w.active))];
  for (uint32_t m = w.active; m; m &= m - 1)
    if (w.words[i.s[1] + static_cast<unsigned>(std::countr_zero(m))] != amount) return false;
  if (amount >= static_cast<uint32_t>(8 * size) || source(w, i, 1) & w.active) return false;
  const Bytes from = bytes(w, i.s[0]);
  const int whole = static_cast<int>(amount / 8), step = op.row->form == Form::shl ? -1 : 1;
  const bool sign = step > 0 && info(op.first()).kind == Kind::integer;
  for (int n = 0; n < size; ++n)
    for (const int at : {n + step * whole, n + step * (whole + (amount % 8 != 0))}) {
      if (at >= 0 && at < size) pending_[0].of[static_cast<size_t>(n)] |= from.of[static_cast<size_t>(at)];
      else if (sign && at >= size)
        pending_[0].of[static_cast<size_t>(n)] |= from.of[static_cast<size_t>(size - 1)];
    }
  return true;
}

void Undefined::permute_bytes(const Warp& w, const Instruction& i) {
  const Bytes a = bytes(w, i.s[0]), b = bytes(w, i.s[1]);
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(m));
    for (unsigned n = 0; n < 4; ++n) {
      const uint32_t from = w.words[i.s[2] + lane] >> (4 * n) & 7;
      pending_[0].of[n] |= (from < 4 ? a.of[from] : b.of[from - 4]) & 1u << lane;
    }
  }
}

// false decides an and, true an or.
uint32_t Undefined::decided(const Warp& w, const Instruction& i, Form form) const {
  const uint32_t flip = form == Form::and_pred ? 0u : ~0u;
  uint32_t lanes = 0;
  for (unsigned k = 0; k < 2; ++k) lanes |= ~source(w, i, k) & ~(predicate_lanes(w, i, k) ^ flip);
  return lanes;
}

void Undefined::before(Warp& w, const Instruction& i) {
  pending_origin_ = 0;
  const uint32_t all = sources(w, i, pending_origin_);
  defined_ = !(all & w.active);
  if (defined_) return;
  pending_.fill({});
  const Opcode& op = b_.kernel->opcodes[i.opcode];
  if (move_bytes(w, i, op)) return;
  const Form form = op.row->form;
  const bool predicates = form == Form::and_pred || form == Form::or_pred;
  pending_.fill(Bytes::all(predicates ? all & ~decided(w, i, form) : all));
}

void Undefined::after(Warp& w, const Instruction& i) {
  if (i.carry_out) {
    Registers& r = warps_[w.index];
    const uint32_t undefined = defined_ ? 0 : pending_[0].any() & w.active;
    r.carry = (r.carry & ~w.active) | undefined;
    if (undefined) r.carry_origin = pending_origin_;
  }
  if (defined_) return define(w, i, w.active);
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
                     unsigned size) {
  const uint8_t* written = flags(w, lane, space, address);
  Bytes undefined;
  // A narrow value may reach the upper bytes as its sign.
  for (unsigned n = 0; n < 8; ++n)
    if (written && !written[std::min(n, size - 1)]) undefined.of[n] = 1u << lane;
  set(w, i, k, 1u << lane, undefined, static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1);
}

void Undefined::store(Warp& w, const Instruction& i, unsigned lane, unsigned k, Space space, uint64_t address,
                      unsigned size) {
  const Bytes undefined = bytes(w, i.s[k]);
  const bool kept = space == Space::shared || space == Space::local;
  uint8_t* written = flags(w, lane, space, address);
  for (unsigned n = 0; n < size; ++n) {
    const bool missing = undefined.of[n] >> lane & 1;
    if (missing && !kept)
      report(w, i, 1u << lane, "stores an undefined value to " + b_.memory->place(address),
             origin_of(w, i, k));
    if (written) written[n] = !missing;
  }
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

void Undefined::check_rows(Warp& w, const Instruction& i) const {
  const uint32_t lanes = i.vector == 4 ? ~0u : (1u << kMatrixRows * i.vector) - 1;
  if (const uint32_t bad = source(w, i, 0) & lanes)
    report(w, i, bad, "is given an undefined address", origin_of(w, i, 0));
}

void Undefined::move_matrices(const Warp& w, const Instruction& i, const MatrixRows& rows) {
  const auto origin = static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1;
  std::array<Bytes, 4> registers{};
  if (i.kind == Class::store)
    for (unsigned k = 0; k < i.vector; ++k) registers[k] = bytes(w, i.s[1 + k]);
  for_elements(i, [&](unsigned matrix, unsigned row, unsigned column, unsigned lane, unsigned half) {
    const uint64_t at = rows[kMatrixRows * matrix + row] + 2 * column;
    for (unsigned n = 0; n < 2; ++n) {
      uint32_t& undefined = registers[matrix].of[2 * half + n];
      if (i.kind == Class::store) shared_[at + n] = !(undefined >> lane & 1);
      else if (!shared_[at + n]) undefined |= 1u << lane;
    }
  });
  if (i.kind == Class::load)
    for (unsigned k = 0; k < i.vector; ++k) set(w, i, k, ~0u, registers[k], origin);
}

void Undefined::transpose(const Warp& w, const Instruction& i) {
  const Bytes from = bytes(w, i.s[0]);
  Bytes to;
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned half = 0; half < 2; ++half) {
      const HalfPlace source = transposed({lane, half});
      for (unsigned n = 0; n < 2; ++n)
        to.of[2 * half + n] |= (from.of[2 * source.half + n] >> source.lane & 1) << lane;
    }
  set(w, i, 0, ~0u, to, origin_of(w, i, 0));
}

void Undefined::multiply(const Warp& w, const Instruction& i, const ProductParts& p) {
  const unsigned size = p.shape.bits / 8;
  const auto missing = [&](const SharedMatrix& m, unsigned line) {
    for (unsigned k = 0; k < p.shape.k; ++k)
      for (uint64_t at = m.at(line, k), end = at + size; at < end; ++at)
        if (!shared_[at]) return true;
    return false;
  };
  uint32_t rows = 0, columns = 0;
  for (unsigned row = 0; row < kMmaRows; ++row)
    if (!p.form->a_in_registers && missing(p.a, p.first_row + row)) rows |= 1u << row;
  for (unsigned k = 0; p.form->a_in_registers && k < p.shape.a_registers(); ++k) {
    const uint32_t lanes = bytes(w, i.s[k]).any();
    for (uint32_t m = lanes; m; m &= m - 1)
      rows |= 1u << (static_cast<unsigned>(std::countr_zero(m)) / 4 + 8 * (k % 2));
  }
  for (unsigned column = 0; column < kMmaColumns; ++column)
    if (missing(p.b, p.first_column + column)) columns |= 1u << column;
  const auto origin = static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1;
  for (unsigned k = 0; k < i.destinations; ++k) {
    uint32_t lanes = p.adds ? bytes(w, i.d[k]).any() : 0;
    for (unsigned row = 0; row < kMmaRows; ++row)
      for (unsigned column = 0; column < kMmaColumns; ++column)
        if (const Place at = place_in_c(row, column);
            at.index == k && (rows >> row & 1 || columns >> column & 1))
          lanes |= 1u << at.lane;
    set(w, i, k, ~0u, Bytes::all(lanes), origin);
  }
}

void Undefined::meet(Warp& w, const Meeting& m, MeetingHandler handler) {
  const bool shuffles = b_.kernel->opcodes[m.parts[0].instruction->opcode].row->form == Form::shfl;
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
  // Of a shuffle: which bytes of what each lane reads nobody wrote.
  std::array<uint32_t, kLanes> flags{};
  if (shuffles) {
    std::array<Bytes, kLanes> values;
    for_lanes([&](const Instruction& i, unsigned l) { values[l] = bytes(w, i.s[0]); });
    for_lanes([&](const Instruction& i, unsigned l) {
      unsigned from = l;
      const Opcode& op = b_.kernel->opcodes[i.opcode];
      if (!source_lane(shuffle_of(op), l, w.words[i.s[1] + l], w.words[i.s[2] + l], from)) from = l;
      if (from >= kLanes || !(m.lanes >> from & 1)) {
        flags[l] = 0xF, origin = static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1;
        return;
      }
      for (unsigned n = 0; n < 4; ++n) flags[l] |= (values[from].of[n] >> from & 1) << n;
    });
  }
  handler(w, m);
  for_lanes([&](const Instruction& i, unsigned l) {
    for (unsigned k = 0; k < i.destinations; ++k) {
      Bytes undefined = Bytes::all(any && (!shuffles || any >> l & 1) ? ~0u : 0u);
      for (unsigned n = 0; n < 4 && shuffles && k == 0; ++n)
        if (flags[l] >> n & 1) undefined.of[n] = ~0u;
      set(w, i, k, 1u << l, undefined, origin);
    }
  });
}

}  // namespace assay::ptx

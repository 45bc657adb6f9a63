#include "fast/ptx/flow.h"

#include <algorithm>
#include <string_view>

namespace assay::ptx {

namespace {

constexpr uint64_t kAll = ~uint64_t{0};

// One instruction of one lane, and the bits of its result that are asked for.
struct FlowOf {
  const Instruction& i;
  const Opcode& op;
  const LaneValues& v;
  unsigned destination;
  uint64_t wanted;
  SourceBits& needed;

  unsigned bits() const { return static_cast<unsigned>(info(op.first()).bits); }
  bool is_signed() const { return info(op.first()).kind == Kind::integer; }
  void add(unsigned k, uint64_t of_it) const { needed[k] |= of_it; }
  void add_all() const {
    for (unsigned k = 0; k < i.sources; ++k) add(k, kAll);
  }

  // 9.7.9.3, 9.7.9.4
  void move() const {
    if (i.width == 0) return add(0, wanted);
    if (i.sources > 1)
      for (unsigned k = 0; k < i.sources; ++k) add(k, wanted >> (k * i.width) & low_bits_mask(i.width));
    else add(0, (wanted & low_bits_mask(i.width)) << (destination * i.width));
  }

  // The operand that the result equals, part by part of packed types; all where it equals none.
  void taken() const {
    const unsigned part = info(op.first()).kind == Kind::packed ? bits() / 2 : bits();
    for (unsigned at = 0; at < bits(); at += part) {
      const uint64_t mask = low_bits_mask(part) << at;
      if (!(wanted & mask)) continue;
      unsigned k = 0;
      while (k < i.sources && (v.s[k] & mask) != (v.d[0] & mask)) ++k;
      if (k < i.sources) add(k, mask);
      else
        for (unsigned s = 0; s < i.sources; ++s) add(s, mask);
    }
  }

  // An operand that has zeros there leaves the other's bits in or and xor, and decides an and, which ones
  // leave as they are.
  void bitwise(Form form) const {
    const uint64_t a = v.s[0] & wanted, b = v.s[1] & wanted;
    const uint64_t passes = form == Form::and_bits ? wanted : 0;
    if (form == Form::and_bits && !a != !b) return add(a ? 1 : 0, wanted);
    if (a == passes && b != passes) return add(1, wanted);
    if (b == passes && a != passes) return add(0, wanted);
    add(0, wanted), add(1, wanted);
  }

  void shift_left() const {
    const auto amount = static_cast<uint32_t>(v.s[1]);
    add(1, kAll);
    if (amount < bits()) add(0, wanted >> amount);
  }
  void shift_right() const {
    const auto amount = static_cast<uint32_t>(v.s[1]);
    const uint64_t kept = wanted & low_bits_mask(bits()), top = uint64_t{1} << (bits() - 1);
    add(1, kAll);
    if (amount < bits()) add(0, kept << amount & low_bits_mask(bits()));
    if (is_signed() && (amount >= bits() || kept >> (bits() - 1 - amount))) add(0, top);
  }

  void permute() const {
    if (!op.modifiers.empty()) return add_all();
    add(2, kAll);
    for (unsigned n = 0; n < 4; ++n) {
      const uint64_t of_byte = wanted >> (8 * n) & 0xFF, selector = v.s[2] >> (4 * n);
      if (!of_byte) continue;
      add((selector & 7) < 4 ? 0 : 1, (selector & 8 ? uint64_t{0x80} : of_byte) << (8 * (selector & 3)));
    }
  }

  void convert_integer() const {
    if (op.has("sat")) return add_all();
    const auto kept = static_cast<unsigned>(std::min(info(op.first()).bits, info(op.last()).bits));
    add(0, wanted & low_bits_mask(kept));
    if (wanted & ~low_bits_mask(kept) && info(op.last()).kind == Kind::integer)
      add(0, uint64_t{1} << (kept - 1));
  }

  // Packed results, of which each part has its own source: the first source is the highest part.
  void convert_parts(unsigned parts) const {
    const unsigned part = bits() / parts;
    for (unsigned n = 0; n < parts; ++n)
      if (wanted >> (n * part) & low_bits_mask(part)) add(parts - 1 - n, kAll);
    if (i.sources > parts) add(parts, kAll);  // random bits
  }

  // Of one source with two parts, each half of the result from its own.
  void unpack() const {
    const auto part = static_cast<unsigned>(info(op.last()).bits) / 2;
    for (unsigned n = 0; n < 2; ++n)
      if (wanted >> (n * bits() / 2) & low_bits_mask(bits() / 2)) add(0, low_bits_mask(part) << (n * part));
  }

  void insert() const {
    const auto at = static_cast<unsigned>(v.s[2] & 0xFF), length = static_cast<unsigned>(v.s[3] & 0xFF);
    const uint64_t inside = at < 64 ? low_bits_mask(length) << at : 0;
    add(2, kAll), add(3, kAll);
    if (at < 64) add(0, (wanted & inside) >> at);
    add(1, wanted & ~inside);
  }

  void extract() const {
    const auto at = static_cast<unsigned>(v.s[1] & 0xFF), length = static_cast<unsigned>(v.s[2] & 0xFF);
    add(1, kAll), add(2, kAll);
    if (is_signed() || at >= 64) add(0, kAll);
    else add(0, (wanted & low_bits_mask(length)) << at);
  }

  // false decides an and, true an or.
  void logic(bool decides) const {
    for (unsigned k = 0; k < 2; ++k)
      if ((v.s[k] != 0) == decides) return add(k, 1);
    add(0, 1), add(1, 1);
  }

  void select() const {
    add(2, kAll);
    add(v.s[2] ? 0 : 1, wanted);
  }
};

bool takes_one_operand(const Opcode& op) {
  return (op.row->name == "min" || op.row->name == "max") && !op.has("abs");
}

}  // namespace

void add_sources_of(const Instruction& i, const Opcode& op, const LaneValues& v, unsigned n, uint64_t wanted,
                    SourceBits& needed) {
  const FlowOf f{i, op, v, n, wanted, needed};
  if (takes_one_operand(op)) return f.taken();
  switch (op.row->form) {
    case Form::mov: return f.move();
    case Form::selp: return f.select();
    case Form::and_bits:
    case Form::or_bits:
    case Form::xor_bits: return f.bitwise(op.row->form);
    case Form::not_bits: return f.add(0, wanted);
    case Form::and_pred: return f.logic(false);
    case Form::or_pred: return f.logic(true);
    case Form::shl: return f.shift_left();
    case Form::shr: return f.shift_right();
    case Form::prmt: return f.permute();
    case Form::cvt_int: return f.convert_integer();
    case Form::cvt_half_pair:
    case Form::cvt_half_rs:
    case Form::cvt_pair:
    case Form::cvt_e8m0: return f.convert_parts(2);
    case Form::cvt_rs: return f.convert_parts(4);
    case Form::cvt_unpack: return f.unpack();
    case Form::bfi: return f.insert();
    case Form::bfe: return f.extract();
    default: return f.add_all();
  }
}

}  // namespace assay::ptx

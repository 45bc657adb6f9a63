#include "fast/ptx/bind.h"

#include <bit>
#include <utility>

#include "fast/ptx/fragments.h"

namespace assay::ptx {

namespace {

// The type that stands for an operand of twice the width.
Type twice(Type t) { return info(t).bits == 16 ? Type::b32 : Type::b64; }

std::vector<std::string_view> patterns_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

Space space_of(const Opcode& op) {
  if (op.has("global")) return Space::global;
  if (op.has("shared") || op.has("shared::cta")) return Space::shared;
  if (op.has("local")) return Space::local;
  if (op.has("param")) return Space::param;
  if (op.has("const")) return Space::constant;
  return Space::generic;
}

[[noreturn]] void wrong(const Operand& o, const std::string& wanted) {
  throw Fault("'" + o.text + "' is no " + wanted);
}

}  // namespace

std::string Binder::label(const std::vector<Operand>& operands) {
  if (operands.size() != 1 || operands[0].what != Operand::What::symbol || operands[0].address)
    throw Fault("a branch takes one label");
  return operands[0].text;
}

void Binder::bind(const Opcode& op, const std::vector<Operand>& operands, Instruction& i) {
  i.space = space_of(op);
  i.vector = op.has("v2") || op.has("x2") ? 2 : op.has("v4") || op.has("x4") ? 4 : op.has("v8") ? 8 : 1;
  if (op.has("bulk") && op.row->kind == Class::copy) {
    i.space = Space::generic;  // of the tensor map, which may lie anywhere
    i.target = static_cast<uint32_t>(k_.bulks.size());
    k_.bulks.emplace_back().to_shared = !op.has("bulk_group");
    if (op.has("reduce")) k_.bulks.back().element = static_cast<uint32_t>(info(op.last()).bytes());
  }
  const bool product = op.row->name == "wgmma" && !op.types.empty();
  if (product) {
    i.target = static_cast<uint32_t>(k_.products.size());
    k_.products.emplace_back();
  }
  const auto patterns = patterns_of(op.row->operands);
  size_t optional = 0;
  for (std::string_view p : patterns) optional += p.front() == '[';
  if (operands.size() > patterns.size() || operands.size() + optional < patterns.size())
    throw Fault("'" + op.text + "' takes " + std::to_string(patterns.size()) + " operands, not " +
                std::to_string(operands.size()));
  i.with_optional = optional && operands.size() == patterns.size();
  if (op.row->form == Form::mov &&
      (operands[0].what == Operand::What::vector || operands[1].what == Operand::What::vector))
    return bind_move(op, operands[0], operands[1], i);
  size_t at = 0;
  for (std::string_view p : patterns) {
    const bool may_lack = p.front() == '[';
    if (may_lack && !i.with_optional) continue;
    bind_one(op, may_lack ? p.substr(1, p.size() - 2) : p, operands[at++], i);
  }
  if (product) set_numbers(op, i);
  // Where every lane takes part, the mask of members is no operand of the text.
  if (op.row->form == Form::ldmatrix || op.row->form == Form::stmatrix || op.row->name == "mma" ||
      op.row->name == "wmma" || op.row->form == Form::movmatrix || op.row->name == "wgmma")
    add_source(names_.constant(0xFFFFFFFF, false), i);
}

void Binder::bind_one(const Opcode& op, std::string_view pattern, const Operand& o, Instruction& i) {
  const char letter = pattern.front();
  if (letter == 'm' && !o.parts.empty()) throw Fault("'" + op.text + "' takes no coordinates");
  if (o.barred && pattern.size() == 1) throw Fault("'" + op.text + "' has no second destination");
  if (o.address != (std::string_view("mkGBM").find(letter) != std::string_view::npos))
    throw Fault(o.address ? "'" + op.text + "' takes no address there"
                          : "'" + op.text + "' needs an address in brackets, not '" + o.text + "'");
  switch (letter) {
    case 'd': destination(o, info(op.first()).bits, false, i); break;
    case 'n': destination(o, 32, false, i); break;
    case 'D': destination(o, info(twice(op.first())).bits, false, i); break;
    case 'x': destination(o, info(op.first()).bits, true, i); break;
    case 'p': predicate_destination(o, i); break;
    case 'a': add_source(source(o, op.last(), false), i); break;
    case 't': add_source(source(o, op.first(), false), i); break;
    case 'A': add_source(source(o, twice(op.last()), false), i); break;
    case 'u': add_source(source(o, Type::b32, false), i); break;
    case 'w': add_source(source(o, Type::b64, false), i); break;
    case 'y': add_source(source(o, op.last(), true, &i.wide_s), i); break;
    case 'q': predicate_source(o, i); break;
    case 'm': op.row->kind == Class::copy&& i.sources == 0 ? copy_target(o, i) : address(o, i); break;
    case 'k':
    case 'G':
    case 'B':
    case 'M': bulk_address(letter, op, o, i); break;
    case 'z':
      add_source(source(o, Type::b32, false), i);
      k_.bulks[i.target].bytes = i.s[i.sources - 1];
      break;
    case 'v': accessed(op, o, true, i); break;
    case 's': accessed(op, o, false, i); break;
    case 'f':
    case 'g': fragments(op, o, letter == 'f', i); break;
    case 'R':
    case 'X':
    case 'Y':
    case 'Z': multiplied(letter, op, o, i); break;
    case 'W':
    case 'P':
    case 'I': product(letter, op, o, i); break;
    case 'L': break;  // of the decoder (decode.cpp)
    case 'i':
      if (o.what != Operand::What::number) wrong(o, "number");
      i.code = static_cast<uint32_t>(o.number.bits);
      break;
    case '4':
      if (o.what != Operand::What::vector || o.parts.size() != 4) wrong(o, "vector of four");
      for (const Operand& part : o.parts) add_source(source(part, op.last(), false), i);
      break;
    default: throw Fault("the table has no operand '" + std::string(pattern) + "'");
  }
  if (pattern.size() == 3 && o.barred) predicate_destination(o.parts.front(), i);
}

void Binder::add_source(uint32_t place, Instruction& i) {
  if (i.sources == kMostSources) throw Fault("too many operands");
  i.s[i.sources++] = place;
}

void Binder::destination(const Operand& o, int bits, bool relaxed, Instruction& i) {
  if (o.what == Operand::What::sink) {
    i.d[i.destinations++] = names_.sink();
    i.wide_d = bits > 32;
    return;
  }
  if (o.what != Operand::What::reg || o.reg.predicate()) wrong(o, "register");
  if (relaxed ? o.reg.bits() < bits : o.reg.bits() != bits)
    throw Fault("'" + o.text + "' has " + std::to_string(o.reg.bits()) + " bits, the instruction " +
                std::to_string(bits));
  i.d[i.destinations++] = o.reg.place;
  i.wide_d = o.reg.wide();
}

void Binder::predicate_destination(const Operand& o, Instruction& i) {
  i.predicate_d = static_cast<uint16_t>(i.predicate_d | 1u << i.destinations);
  if (o.what == Operand::What::sink) i.d[i.destinations++] = names_.predicate_sink();
  else if (o.what == Operand::What::reg && o.reg.predicate()) i.d[i.destinations++] = o.reg.place;
  else wrong(o, "predicate");
}

void Binder::predicate_source(const Operand& o, Instruction& i) {
  bool inverted = o.inverted;
  uint32_t place = k_.true_predicate;
  if (o.what == Operand::What::number) inverted = inverted == (o.number.bits != 0);
  else if (o.what == Operand::What::reg && o.reg.predicate()) place = o.reg.place;
  else wrong(o, "predicate");
  i.predicate_s = static_cast<uint16_t>(i.predicate_s | 1u << i.sources);
  if (inverted) i.inverted = static_cast<uint16_t>(i.inverted | 1u << i.sources);
  add_source(place, i);
}

uint64_t Binder::number_bits(const Operand& o, Type t) const {
  const Number& n = o.number;
  const TypeInfo& type = info(t);
  if (n.form == Number::Form::integer) {
    if (type.kind == Kind::floating && type.bits > 16)
      throw Fault("'" + o.text + "' is an integer, the operand is ." + std::string(type.name));
    return n.bits;
  }
  if (type.kind == Kind::natural || type.kind == Kind::integer)
    throw Fault("'" + o.text + "' is not an integer, the operand is ." + std::string(type.name));
  // A decimal fraction serves binary32 too; the bits of 0f and 0d serve operands of their own width.
  if (type.bits == 32 && n.form == Number::Form::binary64 && o.text.find('.') != std::string::npos)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(n.bits)));
  if (type.bits != (n.form == Number::Form::binary32 ? 32 : 64))
    throw Fault("'" + o.text + "' does not fit ." + std::string(type.name));
  return n.bits;
}

uint32_t Binder::symbol_address(const Operand& o, bool wide) {
  if (o.text.starts_with("%envreg"))
    throw Fault("'" + o.text +
                "' belongs to the driver: barriers of a whole grid read it, and they are refused");
  const Variable* v = names_.find_variable(o.text);
  if (!v) throw Fault("unknown name '" + o.text + "'");
  const auto offset = static_cast<uint64_t>(o.displacement);
  if (v->space == Space::shared && v->bytes == 0) return names_.dynamic_address(offset, wide);
  return names_.constant(v->address + offset, wide);
}

uint32_t Binder::source(const Operand& o, Type t, bool relaxed, bool* wide_register) {
  const int bits = info(t).bits;
  bool wide = bits > 32;
  uint32_t place = 0;
  if (o.inverted) wrong(o, "value");
  switch (o.what) {
    case Operand::What::reg:
      if (o.reg.predicate()) wrong(o, "value");
      if (relaxed ? o.reg.bits() < bits : o.reg.bits() != bits)
        throw Fault("'" + o.text + "' has " + std::to_string(o.reg.bits()) + " bits, the operand " +
                    std::to_string(bits));
      place = o.reg.place;
      wide = o.reg.wide();
      break;
    case Operand::What::number: place = names_.constant(number_bits(o, t), wide); break;
    case Operand::What::symbol: place = symbol_address(o, wide); break;
    default: wrong(o, "value");
  }
  if (wide_register) *wide_register = wide;
  return place;
}

void Binder::address(const Operand& o, Instruction& i) {
  i.offset = o.displacement;
  i.wide_s = true;
  if (o.what == Operand::What::reg) {
    if (o.reg.predicate() || o.reg.bits() < 32) wrong(o, "address");
    i.wide_s = o.reg.wide();
    return add_source(o.reg.place, i);
  }
  if (o.what == Operand::What::number) return add_source(names_.constant(0, true), i);
  if (o.what != Operand::What::symbol) wrong(o, "address");
  const Variable* v = names_.find_variable(o.text);
  if (!v) throw Fault("unknown name '" + o.text + "'");
  if (i.space == Space::param && v->of_call) i.space = Space::local;
  if (v->framed) {
    if (i.space != Space::local)
      throw Fault("'" + o.text + "' lies in another space than the instruction names");
    i.offset += static_cast<int64_t>(v->address);
    return add_source(names_.frame, i);
  }
  if (i.space == Space::generic ? v->space != Space::global && v->space != Space::constant
                                : v->space != i.space)
    throw Fault("'" + o.text + "' lies in another space than the instruction names");
  if (v->space == Space::param) {
    i.offset += static_cast<int64_t>(v->address);  // and no source: every lane reads the same place
    return;
  }
  Operand base = o;
  base.displacement = 0;
  add_source(symbol_address(base, true), i);
}

// An address of a bulk copy: in shared or global memory, of its mbarrier, of a tensor map with coordinates.
void Binder::bulk_address(char letter, const Opcode& op, const Operand& o, Instruction& i) {
  Instruction own;
  own.space = letter == 'k' || letter == 'B' ? Space::shared : letter == 'G' ? Space::global : Space::generic;
  address(o, own);
  if (own.sources == 0) wrong(o, "address of a bulk copy");
  add_source(own.s[0], i);
  Kernel::Bulk& b = k_.bulks[i.target];
  const Kernel::Bulk::Address at{own.s[0], own.wide_s, own.offset};
  (letter == 'k' ? b.shared : letter == 'B' ? b.barrier : b.global) = at;
  if ((letter == 'M') != !o.parts.empty())
    throw Fault("'" + op.text +
                (letter == 'M' ? "' needs coordinates behind its tensor map"
                               : "' takes coordinates behind its tensor map alone"));
  if (letter != 'M') return;
  while (!op.has(std::to_string(b.rank) + "d")) ++b.rank;
  if (o.parts.size() != b.rank)
    throw Fault("'" + op.text + "' needs " + std::to_string(b.rank) + " coordinates, not " +
                std::to_string(o.parts.size()));
  for (uint32_t d = 0; d < b.rank; ++d) {
    add_source(source(o.parts[d], Type::s32, false), i);
    b.at[d] = i.s[i.sources - 1];
  }
}

// Of the two addresses of a copy the first, which lies in shared memory.
void Binder::copy_target(const Operand& o, Instruction& i) {
  const Space from = std::exchange(i.space, Space::shared);
  address(o, i);
  i.space = from;
  i.to_offset = i.offset;
  i.wide_to = i.wide_s;
}

// What a load writes or a store reads: as many elements as .v2, .v4 or .v8 says, in registers of one width.
void Binder::accessed(const Opcode& op, const Operand& o, bool load, Instruction& i) {
  const bool is_vector = o.what == Operand::What::vector;
  // One element may stand in braces too: Triton writes ld.global.b16 { %rs1 }, [..].
  if ((i.vector > 1 && !is_vector) || (is_vector && o.parts.size() != i.vector))
    throw Fault("'" + op.text + "' needs " + std::to_string(i.vector) + " elements");
  if (i.vector * info(op.last()).bytes() > 32) throw Fault("'" + op.text + "' is wider than 32 bytes");
  const std::vector<Operand> single = {o};
  const std::vector<Operand>& all = is_vector ? o.parts : single;
  i.wide_d = info(op.last()).bits > 32;
  int registers = 0, wide = 0;
  for (const Operand& e : all)
    if (e.what == Operand::What::reg) ++registers, wide += e.reg.wide();
  if (wide && wide != registers) throw Fault("'" + op.text + "' needs elements of one width");
  if (wide) i.wide_d = true;
  for (const Operand& e : all) {
    if (load) {
      const bool keep = i.wide_d;
      destination(e, info(op.last()).bits, true, i);
      i.wide_d = keep;
    } else if (e.what == Operand::What::number) {
      add_source(names_.constant(number_bits(e, op.last()), i.wide_d), i);
    } else {
      add_source(source(e, op.last(), true), i);
    }
  }
}

// One register of 32 bits for each matrix.
void Binder::fragments(const Opcode& op, const Operand& o, bool written, Instruction& i) {
  const std::vector<Operand> single = {o};
  const std::vector<Operand>& all = o.what == Operand::What::vector ? o.parts : single;
  if (all.size() != i.vector)
    throw Fault("'" + op.text + "' needs " + std::to_string(i.vector) + " elements");
  for (const Operand& e : all) {
    if (written) destination(e, 32, false, i);
    else add_source(source(e, Type::b32, false), i);
  }
}

// A fragment of mma or wmma: registers of 32 bits, as many as the shape gives it.
void Binder::multiplied(char letter, const Opcode& op, const Operand& o, Instruction& i) {
  const MmaShape s = mma_shape(op);
  const size_t count = letter == 'X' ? s.a_registers() : letter == 'Y' ? s.b_registers() : s.c_registers();
  const std::vector<Operand> single = {o};
  const std::vector<Operand>& all = o.what == Operand::What::vector ? o.parts : single;
  if (all.size() != count)
    throw Fault("'" + op.text + "' needs " + std::to_string(count) + " registers there, not " +
                std::to_string(all.size()));
  for (const Operand& e : all) {
    if (letter == 'R') destination(e, 32, false, i);
    else add_source(source(e, letter == 'Z' ? Type::f32 : Type::b32, false), i);
  }
}

// wgmma: the accumulators, A in registers or by its descriptor, a number.
void Binder::product(char letter, const Opcode& op, const Operand& o, Instruction& i) {
  Kernel::Product& p = k_.products[i.target];
  const auto need = [&](size_t count) {
    if (o.what != Operand::What::vector || o.parts.size() != count)
      throw Fault("'" + op.text + "' needs " + std::to_string(count) + " registers in braces");
  };
  if (letter == 'W') {
    p.tiles = product_columns(op) / kMmaColumns;
    need(size_t{4} * p.tiles);
    for (const Operand& e : o.parts) {
      if (e.what != Operand::What::reg || e.reg.predicate() || e.reg.bits() != 32) wrong(e, "register");
      p.d.push_back(e.reg.place);
    }
  } else if (letter == 'I') {
    if (o.what != Operand::What::number) wrong(o, "number");
    p.numbers.push_back(o.number.bits);
  } else if (o.what != Operand::What::vector) {
    add_source(source(o, Type::b64, false), i);
  } else {
    need(mma_shape(op).a_registers());
    for (const Operand& e : o.parts) add_source(source(e, Type::b32, false), i);
    p.a_in_registers = true;
  }
}

// 9.7.15.5.2: the signs of A and B, and for elements of 16 bits whether a matrix in shared memory is
// transposed.
void Binder::set_numbers(const Opcode& op, const Instruction& i) {
  Kernel::Product& p = k_.products[i.target];
  const size_t transposable = mma_shape(op).bits != 16 ? 0 : p.a_in_registers ? 1 : 2;
  if (p.numbers.size() != 2 + transposable)
    throw Fault("'" + op.text + "' needs " + std::to_string(2 + transposable) +
                " numbers behind scale-d, not " + std::to_string(p.numbers.size()));
  const auto sign = [&](size_t n) {
    if (p.numbers[n] != 1 && p.numbers[n] != ~uint64_t{0})
      throw Fault("'" + op.text + "' takes 1 or -1 as the sign of a matrix");
    return p.numbers[n] != 1;
  };
  const auto transposed = [&](size_t n) {
    if (p.numbers[n] > 1) throw Fault("'" + op.text + "' takes 0 or 1 for whether a matrix is transposed");
    return p.numbers[n] == 1;
  };
  p.a_negated = sign(0), p.b_negated = sign(1);
  if (transposable == 2) p.a_along_lines = transposed(2);
  if (transposable) p.b_along_lines = transposed(1 + transposable);
}

// 9.7.9.4: between a register and its parts, the lowest first.
void Binder::bind_move(const Opcode& op, const Operand& to, const Operand& from, Instruction& i) {
  const bool packs = from.what == Operand::What::vector;
  const std::vector<Operand>& parts = packs ? from.parts : to.parts;
  const int bits = info(op.last()).bits;
  if (info(op.last()).kind != Kind::untyped || (packs && to.what == Operand::What::vector) ||
      bits % static_cast<int>(parts.size()))
    throw Fault("'" + op.text + "' does not take these parts");
  i.width = static_cast<uint8_t>(bits / static_cast<int>(parts.size()));
  static constexpr Type kParts[] = {Type::b8, Type::b16, Type::b32};
  const Type part = kParts[i.width == 8 ? 0 : i.width == 16 ? 1 : 2];
  if (info(part).bits != i.width || parts.size() < 2)
    throw Fault("'" + op.text + "' does not take " + std::to_string(parts.size()) + " parts");
  if (packs) {
    for (const Operand& p : parts) add_source(source(p, part, false), i);
    destination(to, bits, false, i);
  } else {
    for (const Operand& p : parts) destination(p, i.width, false, i);
    add_source(source(from, op.last(), false, &i.wide_s), i);
  }
}

}  // namespace assay::ptx

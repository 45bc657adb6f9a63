#include "fast/ptx/frames.h"

#include <algorithm>
#include <tuple>

#include "fast/ptx/choose.h"

namespace assay::ptx {

namespace {

constexpr uint64_t kFrameAlign = 16;

// Parameters and results lie in the frame one behind the other; the place to return to is before them.
std::vector<Variable> placed(const std::vector<Parameter>& parameters, uint64_t& top) {
  std::vector<Variable> out;
  for (const Parameter& p : parameters) {
    if (p.align > kFrameAlign)
      throw Fault("a function that calls itself has parameters of at most 16 bytes' alignment here");
    top = align_up(top, p.align);
    Variable v{p.name, Space::local, p.type, p.bytes, p.align, top};
    v.of_call = v.framed = true;
    out.push_back(v);
    top += p.bytes;
  }
  return out;
}

}  // namespace

void Frames::begin(const std::set<const Function*>& functions, uint32_t line) {
  if (functions.empty()) return;
  next_ = names_.unnamed(true), wide_ = names_.unnamed(true);
  back_ = names_.unnamed(false), word_ = names_.unnamed(false);
  names_.frame = names_.unnamed(true);
  for (const Function* f : functions) {
    Frame& frame = frames_[f];
    frame.function = f;
    frame.top = 4;
    frame.results = placed(f->results, frame.top);
    frame.parameters = placed(f->parameters, frame.top);
    std::tie(frame.size, frame.size_constant) = names_.later_constant();
    std::tie(frame.limit, frame.limit_constant) = names_.later_constant();
  }
  uint32_t first = 0;
  std::tie(first, first_) = names_.later_constant();
  Instruction begin;
  begin.line = line;
  add(begin, "mov.u64", {operand(Type::b64, names_.frame), operand(Type::b64, first)});
}

Frame* Frames::of(const Function* f) {
  const auto found = frames_.find(f);
  return found == frames_.end() ? nullptr : &found->second;
}

void Frames::end() {
  if (frames_.empty()) return;
  const uint64_t first = align_up(k_.local_bytes, kFrameAlign);
  k_.local_bytes = first + kStackBytes;
  k_.constants[first_].value = first;
  for (const auto& [f, frame] : frames_) {
    const uint64_t size = align_up(frame.top, kFrameAlign);
    if (size > kStackBytes)
      throw Fault("'" + f->name + "' calls itself and needs " + std::to_string(size) +
                  " bytes for a call, of " + std::to_string(kStackBytes));
    k_.constants[frame.size_constant].value = size;
    k_.constants[frame.limit_constant].value = first + kStackBytes - size;
  }
}

Operand Frames::operand(Type type, uint32_t place) {
  Operand o;
  o.what = Operand::What::reg;
  o.reg = {type, place};
  return o;
}
Operand Frames::at(uint32_t place, uint64_t offset) {
  Operand o = operand(Type::b64, place);
  o.address = true;
  o.displacement = static_cast<int64_t>(offset);
  return o;
}
Operand Frames::number(uint64_t value) {
  Operand o;
  o.what = Operand::What::number;
  o.number.bits = value;
  return o;
}
Operand Frames::named(const std::string& name, uint64_t offset) {
  Operand o;
  o.what = Operand::What::symbol;
  o.text = name;
  o.address = true;
  o.displacement = static_cast<int64_t>(offset);
  return o;
}

Instruction Frames::make(const Instruction& of, const std::string& text,
                         const std::vector<Operand>& operands) {
  Instruction i;
  i.line = of.line, i.source = of.source;
  i.opcode = static_cast<uint32_t>(k_.opcodes.size());
  auto known = understood_.find(text);
  if (known == understood_.end()) known = understood_.emplace(text, understand(text)).first;
  Opcode op = known->second;
  binder_.bind(op, operands, i);
  choose(op, i);
  if (!k_.opcodes.empty() && of.line) op.text = k_.text(of);
  k_.opcodes.push_back(std::move(op));
  return i;
}
void Frames::add(const Instruction& of, const std::string& text, const std::vector<Operand>& operands) {
  k_.code.push_back(make(of, text, operands));
}

void Frames::trap(const Instruction& of, CallTrap why, const std::vector<uint32_t>& sources, uint32_t guard) {
  Instruction i;
  i.line = of.line, i.source = of.source, i.opcode = of.opcode;
  i.kind = Class::control;
  i.flow = Flow::trap;
  i.code = static_cast<uint32_t>(why);
  for (const uint32_t s : sources) i.s[i.sources++] = s;
  i.has_guard = guard != kUnused, i.guard = i.has_guard ? guard : 0;
  k_.code.push_back(i);
}

Operand Frames::address_of(const Instruction& of, const Variable& v, int64_t displacement) {
  const uint32_t place = names_.unnamed(true);
  add(of, "add.u64",
      {operand(Type::b64, place), operand(Type::b64, names_.frame),
       number(v.address + static_cast<uint64_t>(displacement))});
  return operand(Type::b64, place);
}

// Between a variable that has a name here and the bytes behind an address.
void Frames::copy(const Instruction& of, uint64_t bytes, uint64_t align, const std::string& name,
                  uint32_t place, uint64_t offset, bool from_name) {
  // The largest step that divides the size and keeps the alignment of both.
  uint64_t step = std::min<uint64_t>({align, names_.find_variable(name)->align, 8});
  while (bytes % step) step /= 2;
  const std::string type = ".b" + std::to_string(8 * step);
  const Operand data = step == 8 ? operand(Type::b64, wide_) : operand(Type::b32, word_);
  for (uint64_t n = 0; n < bytes; n += step) {
    const Operand here = named(name, n), there = at(place, offset + n);
    add(of, "ld.local" + type, {data, from_name ? here : there});
    add(of, "st.local" + type, {from_name ? there : here, data});
  }
}

void Frames::enter(const Instruction& i, Frame& to, const Frame* from,
                   const std::vector<std::string>& arguments) {
  const Operand next = operand(Type::b64, next_), frame = operand(Type::b64, names_.frame);
  if (from) add(i, "add.u64", {next, frame, operand(Type::b64, from->size)});
  else add(i, "mov.u64", {next, frame});
  for (size_t n = 0; n < arguments.size(); ++n) {
    const Variable& v = to.parameters[n];
    copy(i, v.bytes, v.align, arguments[n], next_, v.address, true);
  }
  add(i, "mov.u32", {operand(Type::b32, back_), number(to.calls++)});
  add(i, "mov.u64", {frame, next});
}

void Frames::come_back(const Instruction& i, Frame& of, const Frame* from,
                       const std::vector<std::string>& results) {
  const Operand next = operand(Type::b64, next_), frame = operand(Type::b64, names_.frame);
  add(i, "mov.u64", {next, frame});
  if (from) add(i, "sub.u64", {frame, frame, operand(Type::b64, from->size)});
  for (size_t n = 0; n < results.size(); ++n) {
    const Variable& v = of.results[n];
    copy(i, v.bytes, v.align, results[n], next_, v.address, false);
  }
}

void Frames::spill(const Instruction& of, const Frame& f, bool load) {
  uint64_t to = align_up(f.top, 8);
  const auto move = [&](const std::string& type, const Operand& data) {
    if (load) add(of, "ld.local" + type, {data, at(names_.frame, to)});
    else add(of, "st.local" + type, {at(names_.frame, to), data});
    to += 8;
  };
  const Operand word = operand(Type::b32, word_);
  for (const Register& r : f.registers) {
    if (r.predicate()) {
      const Operand p = operand(Type::pred, r.place);
      if (!load) add(of, "selp.u32", {word, number(1), number(0), p});
      move(".b32", word);
      if (load) add(of, "setp.ne.u32", {p, word, number(0)});
    } else if (r.wide()) {
      move(".b64", operand(Type::b64, r.place));
      if (r.type == Type::b128) move(".b64", operand(Type::b64, r.place + 2 * kLanes));
    } else {
      move(".b32", operand(Type::b32, r.place));
    }
  }
}

void Frames::restore(const Instruction& i, Frame& f) {
  spill(i, f, true);
  add(i, "ld.local.b32", {operand(Type::b32, back_), at(names_.frame, 0)});
}

void Frames::keep(const Instruction& i, Frame& f) {
  add(i, "setp.gt.u64",
      {operand(Type::pred, answer()), operand(Type::b64, names_.frame), operand(Type::b64, f.limit)});
  trap(i, CallTrap::too_deep, {}, answer());
  add(i, "st.local.b32", {at(names_.frame, 0), operand(Type::b32, back_)});
  spill(i, f, false);
  // Two words more than registers would need at most: one of 128 bits has two places.
  f.top = align_up(f.top, 8) + 16 * f.registers.size();
}

}  // namespace assay::ptx

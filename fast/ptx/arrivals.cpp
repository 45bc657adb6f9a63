#include "fast/ptx/arrivals.h"

#include <string>

#include "fast/ptx/choose.h"

namespace assay::ptx {

void Arrivals::make(size_t copy) {
  const Instruction of = k_.code[copy];  // a copy of it: the code grows
  const auto first = static_cast<uint32_t>(k_.arrivals.size());
  const Form form = k_.opcodes[of.opcode].row->form;
  if (form == Form::cp_async || form == Form::cp_async_hint) {
    make_one(of, of.code, of.d[1], of.d[0], true);
    make_one(of, 1, of.d[1], of.d[0], true);
    k_.code[copy].target = first;
    return;
  }
  if (of.meeting) return make_tiles(of);
  Kernel::Bulk& b = k_.bulks[of.target];
  b.arrival = first;
  b.shared_at = names_.unnamed(true), b.global_at = names_.unnamed(true);
  if (b.element) return make_reduction(of, b);
  const uint32_t from = b.to_shared ? b.global_at : b.shared_at, to = b.to_shared ? b.shared_at : b.global_at;
  for (const unsigned bytes : {1u, 2u, 4u, 8u, 16u}) make_one(of, bytes, from, to, b.to_shared);
}

// Sources: A in registers or its descriptor, the descriptor of B, the accumulators, whether they are added
// to.
void Arrivals::make_tiles(const Instruction& of) {
  Kernel::Product& p = k_.products[of.target];
  p.a_at = names_.unnamed(true), p.b_at = names_.unnamed(true), p.adds_at = names_.unnamed_predicate();
  p.first_tile = static_cast<uint32_t>(k_.code.size());
  for (uint32_t n = 0; n < p.tiles; ++n) {
    Instruction i = of;
    i.meeting = nullptr, i.flow = Flow::plain, i.has_guard = false;
    i.code = n, i.sources = 0, i.predicate_s = 0, i.inverted = 0;
    if (p.a_in_registers) i.sources = 4;  // which stand in front already
    else i.s[i.sources++] = p.a_at;
    i.s[i.sources++] = p.b_at;
    for (uint32_t k = 0; k < 4; ++k) i.d[i.destinations++] = i.s[i.sources++] = p.d[4 * n + k];
    i.predicate_s = static_cast<uint16_t>(1u << i.sources);
    i.s[i.sources++] = p.adds_at;
    k_.code.push_back(i);
  }
}

// 9.7.9.25.4.2: each element is combined by itself, as by red.relaxed.gpu.
void Arrivals::make_reduction(const Instruction& of, const Kernel::Bulk& b) {
  const std::string& text = k_.text(of);  // "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
  const size_t type = text.rfind('.'), operation = text.rfind('.', type - 1);
  const uint32_t data = names_.unnamed(b.element == 8);
  Instruction load = begun(of, "ld.shared.b" + std::to_string(8 * b.element));
  load.space = Space::shared;
  load.s[load.sources++] = b.shared_at;
  load.d[load.destinations++] = data;
  Instruction reduce = begun(of, "red.relaxed.gpu.global" + k_.text(of).substr(operation));
  reduce.space = Space::global;
  reduce.s[reduce.sources++] = b.global_at;
  reduce.s[reduce.sources++] = data;
  load.wide_s = reduce.wide_s = true;
  load.wide_d = b.element == 8;
  Kernel::Arrival a{ended(load), 0, 0, 0};
  a.store = ended(reduce);
  k_.arrivals.push_back(a);
}

Instruction Arrivals::begun(const Instruction& of, const std::string& text) {
  Instruction i;
  i.line = of.line, i.source = of.source;
  i.opcode = static_cast<uint32_t>(k_.opcodes.size());
  k_.opcodes.push_back(understand(text));
  k_.opcodes.back().text = k_.text(of);
  return i;
}

uint32_t Arrivals::ended(Instruction& i) {
  choose(k_.opcodes[i.opcode], i);
  k_.code.push_back(i);
  return static_cast<uint32_t>(k_.code.size() - 1);
}

void Arrivals::make_one(const Instruction& of, unsigned bytes, uint32_t from, uint32_t to, bool to_shared) {
  if (data_[0] == kUnused)
    for (uint32_t& place : data_) place = names_.unnamed(false);
  const unsigned words = bytes < 4 ? 1 : bytes / 4;
  const std::string type = bytes < 4 ? ".b" + std::to_string(8 * bytes) : ".b32";
  const std::string vector = words == 1 ? "" : ".v" + std::to_string(words);
  const auto access = [&](const char* opcode, bool shared, uint32_t address) {
    Instruction i = begun(of, std::string(opcode) + (shared ? ".shared" : ".global") + vector + type);
    i.space = shared ? Space::shared : Space::global;
    i.vector = static_cast<uint8_t>(words), i.wide_s = true;
    i.s[i.sources++] = address;
    return i;
  };
  Instruction load = access("ld", !to_shared, from), store = access("st", to_shared, to);
  for (unsigned n = 0; n < words; ++n) load.d[load.destinations++] = data_[n];
  for (unsigned n = 0; n < words; ++n) store.s[store.sources++] = data_[n];
  Kernel::Arrival a{ended(load), static_cast<uint32_t>(k_.code.size()), words, 0};
  for (unsigned n = 0; n < words; ++n) {
    Instruction zero = begun(of, "mov.b32");
    zero.d[zero.destinations++] = data_[n], zero.s[zero.sources++] = names_.constant(0, false);
    ended(zero);
  }
  a.store = ended(store);
  k_.arrivals.push_back(a);
}

}  // namespace assay::ptx

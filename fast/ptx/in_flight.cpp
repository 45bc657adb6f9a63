#include "fast/ptx/in_flight.h"

#include <bit>

#include "fast/ptx/fragments.h"

namespace assay::ptx {

void InFlight::start_block() {
  if (!watches()) return;
  for (OfWarp& o : warps_) {
    o.registers.assign(b_.kernel->words / kLanes + 1, {});
    o.fenced = false;
  }
}

template <class F> void InFlight::for_registers(const Instruction& i, F f) const {
  const Kernel::Product& p = b_.kernel->products[i.target];
  if (p.a_in_registers)
    for (unsigned k = 0; k < mma_shape(b_.kernel->opcodes[i.opcode]).a_registers(); ++k) f(i.s[k], false);
  for (const uint32_t place : p.d) f(place, true);
}

std::string InFlight::named(uint32_t instruction) const {
  const Instruction& i = b_.kernel->code[instruction - 1];
  return "PTX line " + std::to_string(i.line) + " (" + b_.kernel->text(i) + ")";
}

bool InFlight::of_one_shape(const Instruction& a, const Instruction& b) const {
  const Kernel& k = *b_.kernel;
  return mma_shape(k.opcodes[a.opcode]).k == mma_shape(k.opcodes[b.opcode]).k &&
         k.products[a.target].d == k.products[b.target].d;
}

void InFlight::access(Warp& w, const Instruction& i) {
  const auto touch = [&](uint32_t place, const char* does) {
    Register& r = at(w, place);
    if (r.writes || r.reads)
      fail(w, i, std::countr_zero(w.active),
           std::string(does) + " a register of the product at " + named(r.by) +
               ", for which no wgmma.wait_group has waited");
    r.accessed = static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1;
  };
  for (unsigned k = 0; k < i.sources; ++k)
    if (!(i.predicate_s >> k & 1)) touch(i.s[k], "reads");
  for (unsigned k = 0; k < i.destinations; ++k)
    if (!(i.predicate_d >> k & 1)) touch(i.d[k], "writes");
}

void InFlight::fence(const Warp& w) {
  if (!watches()) return;
  OfWarp& o = warps_[w.index];
  o.fenced = true;
  for (Register& r : o.registers) r.accessed = 0;
}

void InFlight::begin(Warp& w, const Instruction& i) {
  OfWarp& o = warps_[w.index];
  if (!o.fenced) fail(w, i, 0, "is the first of its warp, and no wgmma.fence stands before it");
  for_registers(i, [&](uint32_t place, bool written) {
    const Register& r = at(w, place);
    if (r.accessed)
      fail(w, i, 0,
           "has a register that " + named(r.accessed) + " accesses, and no wgmma.fence stands between");
    // Products of one shape add to one accumulator in their order.
    const bool shared = r.writes && written && !r.reads && of_one_shape(b_.kernel->code[r.by - 1], i);
    if ((r.writes && !shared) || (r.reads && written))
      fail(w, i, 0,
           "has a register of the product at " + named(r.by) + ", for which no wgmma.wait_group has waited");
  });
  for_registers(i, [&](uint32_t place, bool written) {
    Register& r = at(w, place);
    ++(written ? r.writes : r.reads);
    r.by = static_cast<uint32_t>(&i - b_.kernel->code.data()) + 1;
  });
}

void InFlight::complete(const Warp& w, const Instruction& i) {
  for_registers(i, [&](uint32_t place, bool written) {
    Register& r = at(w, place);
    --(written ? r.writes : r.reads);
  });
}

}  // namespace assay::ptx

// Registers that wgmma reads and writes behind the back of the program's order (9.7.15.7): between a product
// and the wait for its group nothing else may access its accumulators, nor the fragments of A that it reads;
// and what accessed them before must be followed by a wgmma.fence.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fast/ptx/machine.h"

namespace assay::ptx {

class InFlight {
 public:
  explicit InFlight(const Block& block) : b_(block), warps_(block.warps.size()) {}
  void start_block();
  bool watches() const { return !b_.kernel->products.empty(); }

  // Any other instruction. Fault: it accesses a register of a product that nobody has waited for.
  void access(Warp&, const Instruction&);
  void fence(const Warp& w);
  // Fault: no fence behind what accessed a register of the product, or another product's that is under way.
  void begin(Warp&, const Instruction&);
  void complete(const Warp&, const Instruction&);

 private:
  struct Register {
    uint32_t reads = 0, writes = 0;  // products under way that do
    uint32_t by = 0;                 // the last of them, an instruction, from 1
    uint32_t accessed = 0;           // the instruction that did, not followed by a fence, from 1
  };
  struct OfWarp {
    std::vector<Register> registers;
    bool fenced = false;
  };
  Register& at(const Warp& w, uint32_t place) { return warps_[w.index].registers[place / kLanes]; }
  // Calls f(place, written) for the registers of a product.
  template <class F> void for_registers(const Instruction& i, F f) const;
  // Products of one shape with the same accumulators.
  bool of_one_shape(const Instruction&, const Instruction&) const;
  std::string named(uint32_t instruction) const;

  const Block& b_;
  std::vector<OfWarp> warps_;
};

}  // namespace assay::ptx

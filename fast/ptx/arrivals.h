// What copies do when they arrive, as instructions behind the end of a kernel's code (Kernel::Arrival). They
// have the text and the line of their copy, so that what goes wrong in them names it.
#pragma once
#include <cstdint>

#include "fast/ptx/registers.h"

namespace assay::ptx {

class Arrivals {
 public:
  Arrivals(Kernel& kernel, Names& names) : k_(kernel), names_(names) {}
  // Of the copy that stands at `copy` in the code. `cp.async` has two arrivals behind each other: of the
  // whole and of one byte; a bulk copy has five, of 1, 2, 4, 8 and 16 bytes, and a bulk reduction one, of an
  // element. A wgmma has an instruction for each 8 columns, and no Kernel::Arrival.
  void make(size_t copy);

 private:
  // Each lane moves this many bytes between the addresses in two registers.
  void make_one(const Instruction& of, unsigned bytes, uint32_t from, uint32_t to, bool to_shared);
  // Each lane combines an element in shared memory with one in global memory.
  void make_tiles(const Instruction& of);
  void make_reduction(const Instruction& of, const Kernel::Bulk&);
  Instruction begun(const Instruction& of, const std::string& text);
  uint32_t ended(Instruction&);

  Kernel& k_;
  Names& names_;
  uint32_t data_[4] = {kUnused};
};

}  // namespace assay::ptx

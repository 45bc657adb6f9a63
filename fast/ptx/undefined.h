// Values that nobody wrote: registers, shared and local memory at the begin of a block, and buffers whose
// contents a launch may not count on. A value that is computed from one is one too. It may be moved and kept
// in shared or local memory, as compilers do; it is an error where it decides a branch or an address, or
// reaches global memory.
//
// It is known byte by byte and lane by lane: compilers carry several values in one register, of which some
// may not be there. What moves bytes as they are moves this too; the result of arithmetic is undefined as a
// whole where any operand is. selp asks for the value that it takes, and.pred, or.pred and and.b32 for no
// more than what decides them.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fast/ptx/matrix.h"
#include "fast/ptx/wgmma.h"

namespace assay::ptx {

class Undefined {
 public:
  explicit Undefined(const Block& block);
  void start_block();

  // Fault: the guard is undefined in one of the lanes.
  void check_guard(Warp&, const Instruction&, uint32_t lanes) const;
  // Fault: the address or, of an atomic, an operand is undefined in an active lane.
  void check_address(Warp&, const Instruction&) const;
  // Fault: any source from `first` on is undefined in an active lane; and what is done with destinations that
  // are always defined.
  void check_operands(Warp&, const Instruction&, unsigned first = 0) const;
  void define(const Warp&, const Instruction&, uint32_t lanes);
  // Before the handler: what its destinations will be. Not for loads, stores and atomics.
  void before(Warp&, const Instruction&);
  // Behind it: they are.
  void after(Warp&, const Instruction&);

  // One lane's bytes, which a load takes to destination `k`, or a store takes from its source `k`.
  void load(Warp&, const Instruction&, unsigned lane, unsigned k, Space, uint64_t address, unsigned bytes);
  void store(Warp&, const Instruction&, unsigned lane, unsigned k, Space, uint64_t address, unsigned bytes);
  // Bytes of shared memory that a copy will write: until it arrives, nobody has.
  void forget_shared(uint64_t address, unsigned bytes) {
    std::fill_n(shared_.begin() + static_cast<long>(address), bytes, uint8_t{0});
  }
  // Destinations of an atomic are what memory held. Fault: nobody wrote it.
  void change(Warp&, const Instruction&, unsigned lane, Space, uint64_t address, unsigned bytes);

  // *.sync: what the instruction gives to each part. A shuffle moves what is undefined with the values.
  void meet(Warp&, const Meeting&, MeetingHandler);

  // ldmatrix and stmatrix. Before the handler, a Fault: the address of a row is undefined. Behind it: what
  // was moved is as defined as it was.
  void check_rows(Warp&, const Instruction&) const;
  void move_matrices(const Warp&, const Instruction&, const MatrixRows&);
  // movmatrix: elements keep what they are.
  void transpose(const Warp&, const Instruction&);
  // Eight columns of a wgmma: a sum is undefined where anything in its row or its column is, or what it is
  // added to.
  void multiply(const Warp&, const Instruction& tile, const ProductParts&);

 private:
  // The lanes in which each byte of a value is undefined.
  struct Bytes {
    std::array<uint32_t, 8> of = {};
    uint32_t any() const;
    static Bytes all(uint32_t lanes);
  };
  struct Registers {
    std::vector<uint32_t> bytes, predicates;  // four for a register of up to 32 bits, eight for a wide one
    std::vector<uint32_t> origin;             // where the value came from: an instruction, from 1
    std::vector<uint32_t> predicate_origin;
    uint32_t carry = ~0u, carry_origin = 0;  // lanes whose carry is undefined
  };
  bool wide(uint32_t place) const { return b_.kernel->wide[place / kLanes]; }
  Bytes bytes(const Warp&, uint32_t place) const;
  uint32_t source(const Warp&, const Instruction&, unsigned k) const;
  uint32_t sources(const Warp&, const Instruction&, uint32_t& origin) const;
  void set(const Warp&, const Instruction&, unsigned k, uint32_t lanes, const Bytes& undefined,
           uint32_t origin);
  // What moves bytes as they are; false for other instructions.
  bool move_bytes(const Warp&, const Instruction&, const Opcode&);
  bool shift_bytes(const Warp&, const Instruction&, const Opcode&);
  void convert_bytes(const Warp&, const Instruction&, const Opcode&);
  void permute_bytes(const Warp&, const Instruction&);
  void mask_bytes(const Warp&, const Instruction&);
  uint32_t decided(const Warp&, const Instruction&, Form) const;
  uint8_t* flags(const Warp&, unsigned lane, Space, uint64_t address);
  [[noreturn]] void report(Warp&, const Instruction&, uint32_t lanes, const std::string& what,
                           uint32_t origin) const;
  uint32_t origin_of(const Warp&, const Instruction&, unsigned k) const;

  const Block& b_;
  std::vector<Registers> warps_;
  std::vector<uint8_t> shared_;                   // 1: written
  std::vector<std::vector<uint8_t>> local_;       // by warp
  bool defined_ = false;                          // every source of the instruction is: the frequent case
  std::array<Bytes, kMostDestinations> pending_;  // of each destination, where one is not
  uint32_t pending_origin_ = 0;
};

}  // namespace assay::ptx

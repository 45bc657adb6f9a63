// A kernel that is ready to run: instructions with their handlers, and the plan of its registers and memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fast/ptx/forms.h"
#include "fast/ptx/types.h"

namespace assay::ptx {

struct Warp;
struct Instruction;
struct Meeting;
// Carries out one instruction for the lanes `active` of a warp.
using Handler = void (*)(Warp&, const Instruction&);
// Carries out one instruction that the lanes of a warp carry out together (*.sync).
using MeetingHandler = void (*)(Warp&, const Meeting&);

// What an instruction does to the order of instructions.
enum class Flow : uint8_t { plain, branch, table, exit, barrier, meeting, wait, trap };
enum class BarrierKind : uint8_t { sync, arrive, popc, all, any };

// Why a call is a trap (Instruction::code).
enum class CallTrap : uint32_t { assertion, no_function, too_deep };

inline constexpr unsigned kLanes = 32;
inline constexpr unsigned kMostDestinations = 8, kMostSources = 17;

struct Instruction {
  Handler handler = nullptr;
  MeetingHandler meeting = nullptr;
  // Places in the register file in words, or indices of predicates.
  uint32_t d[kMostDestinations] = {}, s[kMostSources] = {};
  uint8_t destinations = 0, sources = 0;
  uint16_t inverted = 0;                      // bit k: the predicate s[k] is read inverted
  uint16_t predicate_d = 0, predicate_s = 0;  // bit k: d[k] or s[k] is a predicate
  Flow flow = Flow::plain;
  Class kind = Class::move;
  Space space = Space::generic;  // of loads, stores and atomics
  uint8_t vector = 1;            // elements that one lane loads or stores
  uint8_t width = 0;             // bytes of one of them; bits of one part of mov
  bool wide_d = false, wide_s = false,
       wide_to = false;   // the register takes eight bytes where the type alone does not decide it
  bool unpinned = false;  // the PTX ISA gives only a bound of the result (9.7.3), or leaves an order open
  bool carry_in = false, carry_out = false;  // reads, writes the carry (9.7.2)
  bool with_optional = false;                // the operand that may be absent is there
  bool aligned = false;                      // a barrier that whole warps reach together
  BarrierKind barrier = BarrierKind::sync;
  bool has_guard = false, guard_inverted = false;
  uint32_t guard = 0;   // a predicate
  uint32_t target = 0;  // of a branch: an instruction; of a copy: its place in Kernel::arrivals or bulks
  uint32_t code = 0;    // what else a handler needs: a table of lop3, a rounding, an index of Kernel::tables
  int64_t offset = 0;   // of an address
  int64_t to_offset = 0;  // of the address that a copy writes to
  uint32_t opcode = 0;    // in Kernel::opcodes
  uint32_t stretch = 0;   // so many from here on always follow each other, for all lanes that come here
  uint32_t line = 0;      // of the PTX text
  uint32_t source = 0;    // in Kernel::sources, from 1; 0 where no .loc stands before it
};

// A line of the source that was compiled, from .loc (11.5.2).
struct SourceLine {
  std::string file;
  uint32_t line = 0;
};

// The special registers that hold a value of each lane or block (10).
enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  dynamic_smem_size,
  total_smem_size,
  zero,
  one
};
inline constexpr size_t kSpecials = 24;
inline constexpr uint32_t kUnused = 0xFFFFFFFFu;

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<Opcode> opcodes;
  std::vector<SourceLine> sources;
  uint32_t words = 0, predicates = 0;  // of the register file of a warp
  struct Constant {
    uint32_t place;
    bool wide;
    uint64_t value;
  };
  // What a copy does when it arrives: places in `code` behind the end of the body. `zero` is the first of
  // `words` moves.
  struct Arrival {
    uint32_t load, zero, words, store;
  };
  std::vector<Arrival> arrivals;
  // The operands of a bulk copy, and what moves its pieces (arrivals.h).
  struct Bulk {
    struct Address {
      uint32_t place = 0;
      bool wide = true;
      int64_t offset = 0;
    };
    Address shared, global, barrier;  // `global` is that of the tensor map where there is one
    uint32_t bytes = 0;               // the register of the size
    uint32_t rank = 0;                // coordinates of a tensor copy, and their registers; else 0
    std::array<uint32_t, 5> at{};
    bool to_shared = false;
    uint32_t element = 0;                                // bytes, of a reduction; else 0
    uint32_t arrival = 0, shared_at = 0, global_at = 0;  // registers with the addresses of pieces
  };
  std::vector<Bulk> bulks;
  // The operands of a wgmma, and what carries it out (wgmma.h).
  struct Product {
    std::vector<uint32_t> d;        // registers of the accumulators
    std::vector<uint64_t> numbers;  // as they stand in the text
    bool a_in_registers = false, a_along_lines = false, b_along_lines = false;
    bool a_negated = false, b_negated = false;
    // The instructions that carry it out; registers that hold its descriptors then, and whether it adds.
    uint32_t tiles = 0, first_tile = 0, a_at = 0, b_at = 0, adds_at = 0;
  };
  std::vector<Product> products;
  std::vector<Constant> constants;  // registers that hold a number
  std::vector<bool> wide;           // by place / kLanes: whether a register of eight bytes begins there
  std::vector<std::vector<uint32_t>> tables;  // targets of branches by an index
  uint32_t true_predicate = 0;                // predicates[true_predicate] is set in every lane
  uint32_t special[kSpecials];  // the register of each special register that is read, else kUnused
  uint64_t static_shared = 0, local_bytes = 0;
  const std::string& text(const Instruction& i) const { return opcodes[i.opcode].text; }
};

}  // namespace assay::ptx

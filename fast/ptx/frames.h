// Functions that call themselves. Each is in the code once, and a call of it is a branch. What belongs to one
// of its calls lies in local memory, in a frame: the place to return to, its parameters and variables, and
// what its registers held before, which are those of the call around it. All of this is done by ordinary
// instructions, so checks, slices and divergence need to know nothing of calls.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fast/ptx/bind.h"
#include "fast/ptx/kernel.h"
#include "fast/ptx/module.h"
#include "fast/ptx/registers.h"

namespace assay::ptx {

// What a thread has for frames. CUDA's default is 1 KiB of frames that ptxas makes smaller than these.
inline constexpr uint64_t kStackBytes = 1u << 15;

struct Frame {
  const Function* function = nullptr;
  size_t scope = 0;                           // of its labels
  std::vector<Variable> results, parameters;  // in the frame
  std::vector<Register> registers;            // that its body declares
  uint64_t top = 0;                           // bytes, as far as they are known
  uint32_t size = kUnused;                    // the register of their number
  size_t size_constant = 0, limit_constant = 0;
  uint32_t limit = kUnused;  // the greatest address at which the frame has room
  uint32_t calls = 0;        // places to return to
};

class Frames {
 public:
  Frames(Kernel& k, Names& names, Binder& binder) : k_(k), names_(names), binder_(binder) {}

  // Makes the frames of the functions, and the instruction that sets the first frame's address.
  void begin(const std::set<const Function*>& functions, uint32_t line);
  // Null where the function does not call itself.
  Frame* of(const Function* f);
  // Gives the frames their sizes and the kernel its local memory, when all is decoded.
  void end();

  // Instructions for the call `i`, whose line and text they have. The new frame lies behind the frame `from`
  // (null: the kernel's own body).
  void enter(const Instruction& i, Frame& to, const Frame* from, const std::vector<std::string>& arguments);
  void come_back(const Instruction& i, Frame& of, const Frame* from, const std::vector<std::string>& results);
  // At the end of the function: what it held is put back; the branch to the place of return is the caller's.
  void restore(const Instruction& i, Frame& f);
  // At its beginning: is there room, and what its registers hold is kept.
  void keep(const Instruction& i, Frame& f);

  // An instruction with the line and the text of another.
  Instruction make(const Instruction& of, const std::string& text, const std::vector<Operand>& operands);
  void trap(const Instruction& of, CallTrap, const std::vector<uint32_t>& sources, uint32_t guard);
  static Operand operand(Type, uint32_t place);
  uint32_t back() const { return back_; }
  uint32_t answer() {
    if (answer_ == kUnused) answer_ = names_.unnamed_predicate();
    return answer_;
  }
  // The address of a variable of the frame, in a register.
  Operand address_of(const Instruction& of, const Variable&, int64_t displacement);

 private:
  static Operand at(uint32_t place, uint64_t offset);
  static Operand number(uint64_t);
  static Operand named(const std::string&, uint64_t offset);
  void add(const Instruction& of, const std::string& text, const std::vector<Operand>& operands);
  void copy(const Instruction& of, uint64_t bytes, uint64_t align, const std::string& name, uint32_t place,
            uint64_t offset, bool from_name);
  // Loads or stores each register of the function, behind what else is in its frame.
  void spill(const Instruction& of, const Frame&, bool load);

  Kernel& k_;
  Names& names_;
  Binder& binder_;
  std::map<std::string, Opcode> understood_;  // by its text: every call of a function has the same ones
  std::map<const Function*, Frame> frames_;
  size_t first_ = 0;  // constant: where the first frame begins
  uint32_t next_ = kUnused, back_ = kUnused, answer_ = kUnused, word_ = kUnused, wide_ = kUnused;
};

}  // namespace assay::ptx

// What is watched while a launch runs with RunOptions::check: values that nobody wrote, and races.
#pragma once
#include "fast/ptx/races.h"
#include "fast/ptx/undefined.h"

namespace assay::ptx {

class Checks {
 public:
  explicit Checks(const Block& block);
  void start_block();

  void guard(Warp& w, const Instruction& i, uint32_t lanes) const { undefined_.check_guard(w, i, lanes); }
  void operands(Warp& w, const Instruction& i) const { undefined_.check_operands(w, i); }
  // Around the handler of an instruction that is not *.sync, with the lanes in Warp::active.
  void before(Warp&, const Instruction&);
  void after(Warp&, const Instruction&);
  // Carries out a *.sync instruction.
  void meet(Warp&, const Meeting&, MeetingHandler);
  // Lanes come to a barrier, of which `from` is the first source that decides it; it is complete.
  void arrive(uint32_t barrier, Warp&, const Instruction&, uint32_t lanes);
  void complete(uint32_t barrier) { races_.complete(barrier); }

 private:
  // How an opcode touches memory.
  struct Manner {
    bool strong = false;  // two such operations on one address do not race
    bool orders = false;  // .acquire, .release, .acq_rel
    bool fence = false;
  };
  void move_matrices(Warp&, const Meeting&, MeetingHandler);
  void issue(Warp&, const Instruction& copy);
  void access(Warp&, const Instruction&, unsigned lane, uint64_t address);

  const Block& b_;
  Undefined undefined_;
  Races races_;
  std::vector<Manner> manners_;  // by opcode
  bool fenced_ = false;          // the block has come to a fence
};

}  // namespace assay::ptx

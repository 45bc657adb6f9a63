// What is watched while a launch runs with RunOptions::check: values that nobody wrote, and races.
#pragma once
#include "fast/ptx/in_flight.h"
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

  // An mbarrier instruction of one lane reaches the object at a shared offset: it begins or ends it, or is
  // one of those that do not race with each other. Fault: it races with what another thread did there.
  void touch(Warp&, const Instruction&, unsigned lane, uint64_t mbarrier, bool begins_or_ends);
  void arrive_at(uint64_t mbarrier, const Warp& w, unsigned lane) {
    races_.arrive_at(mbarrier, w, 1u << lane);
  }
  void complete_phase(uint64_t mbarrier) { races_.complete_phase(mbarrier); }
  // A bulk copy is issued. Fault: it races; it reads what the generic proxy wrote and no fence.proxy.async
  // stands between.
  void issue_bulk(Warp&, BulkCopy&);
  // It has arrived, and its mbarrier learns it. Lanes wait until at most `left` of their groups have not
  // read, or written.
  void complete_bulk(const BulkCopy& c) { races_.complete_copy(c.mbarrier, *c.warp, c.lane, c.number); }
  void wait_for_bulk(const Warp& w, uint32_t left, bool reads) { races_.wait_for_copies(w, left, reads); }
  // A wgmma is issued, and reads 16 bytes of shared memory. Fault: its registers are not fenced or belong to
  // another product under way; it races; no fence.proxy.async. Eight of its columns are carried out; all are.
  uint32_t begin_product(Warp& w, const Instruction& i) {
    in_flight_.begin(w, i);
    return races_.begin_product(w);
  }
  void read_by_product(Warp& w, const Instruction& i, uint64_t at) {
    races_.access_by_copy(w, i, 0, Space::shared, at, 16, false, Races::Actor::product);
  }
  void fence_products(const Warp& w) { in_flight_.fence(w); }
  void multiply(const Warp& w, const Instruction& tile, const ProductParts& p) {
    undefined_.multiply(w, tile, p);
  }
  void complete_product(const Warp& w, const PendingProduct& p) {
    in_flight_.complete(w, *p.instruction);
    races_.complete_product(w, p.number);
  }
  // Accesses that follow are those of a copy that was issued: they race with nothing anew.
  void carry_pieces(bool on) { carries_pieces_ = on; }
  void pass(uint64_t mbarrier, const Warp& w, uint32_t lanes) { races_.pass(mbarrier, w, lanes); }

 private:
  // How an opcode touches memory.
  struct Manner {
    bool strong = false;  // two such operations on one address do not race
    bool orders = false;  // .acquire, .release, .acq_rel
    // What it does where it orders, or behind a fence: a load does not release, nor does a store acquire.
    bool acquires = false, releases = false;
    bool constant = false;  // .nc
    bool in_block = false;  // .cta, .cluster: for the threads of one block
    bool fence = false, proxy_fence = false;
  };
  void move_matrices(Warp&, const Meeting&, MeetingHandler);
  void issue(Warp&, const Instruction& copy);
  // `bytes`: of one element.
  void access(Warp&, const Instruction&, unsigned lane, uint64_t address, unsigned bytes);

  const Block& b_;
  Undefined undefined_;
  InFlight in_flight_;
  Races races_;
  std::vector<Manner> manners_;  // by opcode
  bool carries_pieces_ = false;
  bool fenced_ = false, fenced_widely_ = false;  // the block has come to a fence, to one of more than .cta
};

}  // namespace assay::ptx

// What some blocks of a run did, instruction by instruction with every value, for the slice behind a stored
// value (slice.h). A run is one or more launches; the same launches run again do the same, so that a second
// run can keep the blocks that the first one found.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fast/ptx/machine.h"

namespace assay::ptx {

class Module;

// A block of a run: the place of its launch in the run, and its own in the order in which blocks ran.
using BlockName = std::pair<uint32_t, uint64_t>;

// A byte of global memory by the name of its allocation, which is the same in every run; addresses are not.
struct BytePlace {
  std::string allocation;
  uint64_t offset = 0;
  auto operator<=>(const BytePlace&) const = default;
};

// One instruction of the lanes of one warp that carried it out together.
struct Recorded {
  uint32_t launch = 0, block = 0;           // places in Recorder::launches and Recorder::blocks
  uint32_t pc = 0, lanes = 0, meeting = 0;  // what lanes carry out together has one number, from 1
  uint16_t warp = 0;
  size_t values = 0;  // where its values begin in Recorder
};

class Recorder {
 public:
  // The blocks whose instructions are kept, and the bytes whose writers are looked for.
  std::set<BlockName> keep;
  std::set<BytePlace> watched;

  // A launch as far as a slice needs it: the run's modules may be gone by then.
  struct LaunchRecord {
    std::string name, text;
    Kernel kernel;
    Memory memory;
  };
  struct BlockRecord {
    BlockName name;
    Dim index;
  };

  // Forgets the run before.
  void start_run();
  void start_launch(const Module&, const Kernel&, const Memory&);
  void start_block(const Block&);
  // Around the handler of an instruction, with the lanes in Warp::active. Fault: the blocks that are kept did
  // more than fits 2 GiB.
  void before(Warp&, const Instruction&);
  void after(Warp&, const Instruction&);
  void before(Warp&, const Meeting&);
  void after(Warp&, const Meeting&);

  const std::vector<LaunchRecord>& launches() const { return launches_; }
  const std::vector<BlockRecord>& blocks() const { return blocks_; }
  const std::vector<Recorded>& events() const { return events_; }
  const std::set<BlockName>& writers() const { return writers_; }

  // Values of an event in one lane. A predicate is 0 or 1, and read as the instruction reads it.
  uint64_t source(const Recorded&, unsigned k, unsigned lane) const;
  uint64_t destination(const Recorded&, unsigned k, unsigned lane) const;
  // Of a load, store or atomic; what an atomic found and left.
  uint64_t address(const Recorded&, unsigned lane) const;
  uint64_t found(const Recorded&, unsigned lane) const;
  uint64_t left(const Recorded&, unsigned lane) const;
  const Instruction& instruction(const Recorded& e) const { return launches_[e.launch].kernel.code[e.pc]; }
  const Kernel& kernel(const Recorded& e) const { return launches_[e.launch].kernel; }

 private:
  void open(const Warp&, const Instruction&, uint32_t lanes, uint32_t meeting);
  void keep_memory(Warp&, const Instruction&, uint32_t lanes);
  void note_writers(Warp&, const Instruction&, uint32_t lanes);
  void append(const Warp&, uint32_t place, bool predicate);
  uint64_t value(const Recorded&, size_t at, uint32_t place, bool predicate, unsigned lane) const;
  size_t words(const Kernel&, uint32_t place, bool predicate) const;
  size_t begin_of(const Recorded&, unsigned k, bool destination) const;
  bool writes(const Instruction&) const;

  std::vector<LaunchRecord> launches_;
  std::vector<BlockRecord> blocks_;
  std::vector<Recorded> events_;
  std::vector<uint32_t> values_;
  std::set<BlockName> writers_;
  std::unordered_set<uint64_t> watched_addresses_;
  std::array<uint64_t, kLanes> addresses_{}, found_{};  // of the instruction that runs
  std::vector<size_t> open_;                            // its events
  uint64_t block_in_launch_ = 0;
  uint32_t meetings_ = 0;
  bool keeping_ = false;
};

// The address of an access of one lane, as its instruction gives it.
uint64_t access_address(const Warp&, const Instruction&, unsigned lane);

}  // namespace assay::ptx

// Several ranks at once, each with a Session of its own, whose groups meet. By default they are threads of
// this process; under `mpirun` with a build of the preset `mpi` they are its processes. What runs under both:
//
//   std::vector<ArrayPtr> parts(2), scales(2);
//   run_ranks(2, "dp", [&](int rank, const GroupPtr& group) {
//     Session session = run.session();
//     ...
//     parts[rank] = ...;
//   }, shared(parts, scales));
//
// Under MPI every process runs the caller's code, and `work` only for its own rank. So whatever `work` leaves
// behind goes through `shared` (an element per rank) or `of_rank` (values that one rank alone writes): every
// process has all of it afterwards. A type of the caller's own needs a function `wire` (wire.h). What the
// code does outside of `work` must be the same in every process.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/base/session.h"
#include "training/base/wire.h"

namespace assay::training {

// What `work` leaves behind: each function writes or reads what one rank has left.
using Left = std::vector<std::function<void(Wire&, int rank)>>;

// Containers with an element for each rank, which that rank writes.
template <class... PerRank> Left shared(PerRank&... containers) {
  return {[&containers](Wire& w, int rank) { w(containers[static_cast<size_t>(rank)]); }...};
}
// Values that `owner` writes.
template <class... Values> Left of_rank(int owner, Values&... values) {
  return {[owner, &values](Wire& w, int rank) {
    if (rank == owner) w(values);
  }...};
}

// Calls `work` once per rank 0..size-1, at the same time, with a group called `name` that reduces and gathers
// over them; returns when all have ended. Rethrows the exception of the lowest rank that failed by itself; of
// another process, a SemanticError of the same class and words, or a std::runtime_error. RankError
// (rank_engine.h) where a rank does not come to a collective in time, or comes with another one: its kind,
// its dtype, its shape and its place in the order are compared before any rank reads a value.
void run_ranks(int size, const std::string& name, const std::function<void(int rank, const GroupPtr&)>& work,
               const Left& left = {});

// What one rank did in one call of run_ranks.
struct RankRecord {
  int rank = 0;
  std::string process;                   // "host:4711": where it ran, and its process id
  std::vector<std::string> collectives;  // "all_gather bfloat16 64x256 of tp <digest of what it sent>"
  std::vector<std::string> left;         // digests of what it left behind, in the order of `left`
};
struct RankRun {
  std::string group;
  int size = 0;
  std::vector<RankRecord> ranks;  // by rank; empty where the run ended with an error
  std::string error;              // "rank 1: ValueError: ..."
};
void wire(Wire&, RankRecord&);

// While one lives, notes what this thread's calls of run_ranks do. Not to be nested.
class RankTranscript {
 public:
  RankTranscript();
  ~RankTranscript();
  RankTranscript(const RankTranscript&) = delete;
  RankTranscript& operator=(const RankTranscript&) = delete;
  std::vector<RankRun> runs;
  int most() const;  // ranks at once; 1 without any run
};

// The texts of all of the launcher's processes, by process; each calls it at the same place. Of one process
// its own. RankError as for a collective.
std::vector<std::string> texts_of_processes(const std::string& what, const std::string& mine);

}  // namespace assay::training

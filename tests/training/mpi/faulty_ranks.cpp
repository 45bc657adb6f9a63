// Ranks of which one misbehaves, judged as `assay run` judges them: test_ranks.py starts it, under mpirun and
// alone, and reads what it prints.
//
//   faulty_ranks <fault> <rank> <deadline in seconds>
//
// One scenario of three ranks with the fault in its third round, and then a sound one of two: ranks that only
// disagreed must be able to meet again.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include <unistd.h>

#include "compare/commands/run.h"
#include "compare/commands/training_cases/scenario.h"
#include "reference/subject.h"
#include "training/base/ranks.h"
#include "training/mpi/mpi_ranks.h"

namespace {

using namespace assay;
using namespace assay::training;

constexpr int kRounds = 5, kFaultyRound = 2;
std::string fault;
int faulty_rank = 0;

ArrayPtr numbers(int64_t n, DType dtype, int first) {
  const ArrayPtr out = zeros({n}, dtype);
  int next = first;
  for (std::byte& b : out->bytes()) b = static_cast<std::byte>(next++);
  return out;
}

// What the faulty rank does instead of its next collective; true: it leaves.
bool misbehaves(ProcessGroup& group) {
  F32Bits amax = 1;
  if (fault == "kill") std::raise(SIGKILL);
  if (fault == "exit") ::_exit(0);
  if (fault == "hang")
    for (;;) ::pause();
  if (fault == "delay") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (fault == "throw") throw SemanticError(ErrorClass::value_error, "a shard that cannot be");
  if (fault == "kind") group.all_reduce_max(std::span(&amax, 1));
  if (fault == "dtype") group.all_gather(numbers(4, DType::int16, 0));
  if (fault == "shape") group.all_gather(numbers(5, DType::uint8, 0));
  return fault == "leave";
}

void rounds(ScenarioRun& run, int ranks, bool sound) {
  std::vector<ArrayPtr> seen(static_cast<size_t>(ranks));
  std::vector<F32Bits> most(static_cast<size_t>(ranks));
  run_ranks(
      ranks, "dp",
      [&](int rank, const GroupPtr& group) {
        const auto at = static_cast<size_t>(rank);
        std::vector<ArrayPtr> parts;
        for (int round = 0; round < kRounds; ++round) {
          const bool faulty = !sound && rank == faulty_rank && round == kFaultyRound;
          if (faulty && misbehaves(*group)) return;
          for (const ArrayPtr& part : group->all_gather(numbers(4, DType::uint8, 16 * rank + round)))
            parts.push_back(part);
          most[at] = static_cast<F32Bits>(100 * rank + round);
          group->all_reduce_max(std::span(&most[at], 1));
        }
        seen[at] = concatenate(parts);
        if (!sound && rank == faulty_rank && fault == "corrupt") seen[at]->bytes()[7] ^= std::byte{4};
      },
      shared(seen, most));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    std::vector<ArrayPtr> want;
    for (int round = 0; round < kRounds; ++round)
      for (int from = 0; from < ranks; ++from) want.push_back(numbers(4, DType::uint8, 16 * from + round));
    run.expect_equal(seen[at], concatenate(want), "what rank " + std::to_string(rank) + " gathered");
    run.expect_equal(int64_t{most[at]}, int64_t{100 * (ranks - 1) + kRounds - 1},
                     "the maximum on rank " + std::to_string(rank));
  }
}

const Scenario kFaulty{
    "X-1", "One rank misbehaves", "", "", "", [](ScenarioRun& run) { rounds(run, 3, false); }, {}, 3};
const Scenario kSound{
    "X-2", "Ranks meet again", "", "", "", [](ScenarioRun& run) { rounds(run, 2, true); }, {}, 2};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "faulty_ranks: expected <fault> <rank> <deadline>\n");
    return 2;
  }
  fault = argv[1];
  faulty_rank = std::atoi(argv[2]);
  rank_library() = mpi_library();
  set_rank_engine(make_mpi_ranks());
  RunOptions options;
  options.training_cases = {case_of(kFaulty), case_of(kSound)};
  options.settings.subjects = {"reference"};
  options.deadline = std::atof(argv[3]);
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  const int status = run_run(options, subjects, stdout, stderr);
  set_rank_engine(nullptr);
  return status;
}

// One word of the first process of a launcher for all the others: all of MPI that processes need which then
// connect by other means (compare/process/crew_sockets.h).
#pragma once
#include <string>

namespace assay::training {

struct MpiPlace {
  int process = 0, processes = 1;
  std::string word;  // that of the first process
};

// Calls MPI_Init, a broadcast and MPI_Finalize in a child process, so that this one may fork afterwards.
// Every process of the launcher calls it, with a word of `longest` bytes at most. Throws where MPI fails,
// whose own words are on standard error.
MpiPlace meet_by_mpi(const std::string& word, size_t longest);

}  // namespace assay::training

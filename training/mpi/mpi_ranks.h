// Ranks that are processes, started by mpirun or by a Slurm job, which meet over MPI. Compiled by the preset
// `mpi` alone; no other program links MPI.
#pragma once
#include <memory>
#include <string>

#include "training/base/rank_engine.h"

namespace assay::training {

// The engine of this process where a launcher started it together with others; else null, and MPI is not
// touched. Call it once, first of all. While it lives, SIGTERM and SIGINT, by which a launcher ends a job of
// which a process has died, end the meeting that waits. Every process but the first is silent: its standard
// output and error go nowhere.
std::unique_ptr<RankEngine> make_mpi_ranks();

// Whether a launcher has started this process: Open MPI's mpirun and Slurm's srun say so in the environment.
bool launched();

// "Open MPI v4.1.4 (MPI 3.1)".
std::string mpi_library();

}  // namespace assay::training

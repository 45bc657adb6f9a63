// Ranks that are processes with a GPU each: their messages travel by NCCL, from GPU to GPU. MPI starts them,
// hands out NCCL's id and carries what is said when a rank gives up. Compiled where the preset `mpi` finds
// NCCL and a CUDA toolkit (docs/ranks.md).
#pragma once
#include <memory>
#include <string>

#include "contract/result.h"
#include "training/base/rank_engine.h"

namespace assay::training {

// "NCCL 2.32.3"; empty where the program was built without.
std::string nccl_library();

// An engine over `mpi`, the engine of all processes that a launcher started. Every process calls it at the
// same place and gets an engine, or all get an error: the program was built without NCCL; a machine has fewer
// GPUs than processes; NCCL itself cannot start.
Result<std::unique_ptr<RankEngine>> over_nccl(std::unique_ptr<RankEngine>& mpi);

}  // namespace assay::training

// What stands for nccl_ranks.cpp where a build finds no NCCL.
#include "training/mpi/nccl_ranks.h"

namespace assay::training {

std::string nccl_library() { return {}; }

Result<std::unique_ptr<RankEngine>> over_nccl(std::unique_ptr<RankEngine>&) {
  return Error{"ASSAY_RANKS=nccl: expected a program that was built with NCCL, found one without", 0,
               "configure with -DNCCL_ROOT=<folder with include/nccl.h>, or leave ASSAY_RANKS out: MPI"};
}

}  // namespace assay::training

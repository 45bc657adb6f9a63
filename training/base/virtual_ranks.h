// Virtual ranks: one thread per rank, in this process.
#pragma once
#include <memory>

#include "training/base/rank_engine.h"

namespace assay::training {

std::unique_ptr<RankEngine> make_virtual_ranks();

}  // namespace assay::training

// Virtual ranks: one thread and one Session per rank, whose groups meet. A rank that throws frees the others,
// and its exception is the caller's.
#pragma once
#include <functional>
#include <string>

#include "training/base/session.h"

namespace assay::training {

// Calls `work` once per rank 0..size-1, at the same time, with a group called `name` that reduces and gathers
// over them; returns when all have ended. Rethrows the exception of the lowest rank that failed by itself.
void run_ranks(int size, const std::string& name, const std::function<void(int rank, const GroupPtr&)>& work);

}  // namespace assay::training

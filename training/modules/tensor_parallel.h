// What a linear layer does between ranks: gathers of shards, quantized where a quantizer is given, and sums
// of partial results (TE distributed.py, module/linear.py).
#pragma once
#include <string>

#include "training/formats/matmul.h"

namespace assay::training {

// Whether the ranks of this group exchange tensors. A group that only reduces amaxes does not.
bool meets(const GroupPtr&);

// The rows of all ranks, rank by rank (training/ranks/gather.h): with a quantizer quantized as its usages
// say. `codes` off: a plain shard travels as it is, and the whole is quantized.
Tensorlike gather(Session&, const Tensorlike& shard, const GroupPtr&, const QuantizerPtr& quantizer,
                  const std::string& who, bool codes = true);

// The sum of all ranks' partial results, binary32 in rank order and rounded once; of a scatter this rank's
// rows.
ArrayPtr reduced(Session&, const GroupPtr&, const ArrayPtr& partial, const std::string& who, bool scatter);

}  // namespace assay::training

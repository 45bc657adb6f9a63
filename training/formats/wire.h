// Quantized tensors and quantizers as bytes that another rank's process reads again (training/base/wire.h).
// Buffers that tensors of one message share are shared afterwards too. A process group travels by its name
// and size alone: who reads it cannot meet over it.
#pragma once
#include "training/base/wire.h"
#include "training/formats/ops.h"

namespace assay::training {

// Either may be null. std::logic_error for a class that no other process could make: observers, and Python's
// reference quantizers.
void wire(Wire&, StoragePtr&);
void wire(Wire&, QuantizerPtr&);
void wire(Wire&, GroupPtr&);
void wire(Wire&, AmaxReduction&);
void wire(Wire&, Usages&);
void wire(Wire&, Warning&);

}  // namespace assay::training

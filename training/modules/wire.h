// Records of steps as bytes that another rank's process reads again (training/base/wire.h).
#pragma once
#include "training/formats/wire.h"
#include "training/modules/step.h"

namespace assay::training {

// Planes of GEMMs keep name, encoding, shapes and bytes; members of grouped planes do not travel.
void wire(Wire&, StepRecord&);
void wire(Wire&, GemmRecord&);
void wire(Wire&, NamedArray&);
void wire(Wire&, Collective&);

}  // namespace assay::training

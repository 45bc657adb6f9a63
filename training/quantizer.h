// For programs of users (docs/custom-factories.md): the quantizers, by TransformerEngine's names. Declared in training/formats/quantizer.h.
#pragma once
#include "training/formats/quantizer.h"

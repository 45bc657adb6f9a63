// For programs of users (docs/custom-factories.md): registering a factory, and the quantizers that it may
// return. Declared in training/recipes/factories.h.
#pragma once
#include "training/quantizer.h"
#include "training/recipes/factories.h"

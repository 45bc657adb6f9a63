// For programs of users (docs/custom-factories.md): hybrid quantizers. Declared in training/formats/hybrid.h.
#pragma once
#include "training/formats/hybrid.h"

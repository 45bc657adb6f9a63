// For programs of users (docs/custom-factories.md): registering a factory. Declared in training/recipes/factories.h.
#pragma once
#include "training/recipes/factories.h"

// For programs of users (docs/custom-factories.md): the quantizers of every format, by TransformerEngine's
// names.
#pragma once
#include "training/formats/formats.h"

// The quantizers and storages of every format.
#pragma once
#include "training/formats/blockwise.h"
#include "training/formats/float8.h"
#include "training/formats/hybrid.h"
#include "training/formats/identity.h"
#include "training/formats/mx.h"
#include "training/formats/mxfp8.h"
#include "training/formats/nvfp4.h"
#include "training/formats/quantizer.h"
#include "training/formats/reference_quantizers.h"
#include "training/formats/storage.h"

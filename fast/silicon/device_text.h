// A PTX text made ready for the driver of a GPU.
#pragma once
#include <string>

#include "fast/ptx/module.h"

namespace assay::silicon {

// The module's text without its other entries and what is for debuggers, which need not be compiled;
// `.target` is the GPU's, and a
// `.version` that is newer than `newest` becomes that.
std::string device_text(const ptx::Module& module, const std::string& entry, const std::string& architecture,
                        const std::string& newest);

}  // namespace assay::silicon

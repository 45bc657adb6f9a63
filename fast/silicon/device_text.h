// A PTX text made ready for the driver of a GPU.
#pragma once
#include <string>

#include "fast/ptx/module.h"

namespace assay::silicon {

// The module's text with this entry alone, which spares the driver the others. `.target` becomes the GPU's
// architecture, and a `.version` newer than `newest` becomes `newest`. std::runtime_error: the module has no
// such entry.
std::string device_text(const ptx::Module& module, const std::string& entry, const std::string& architecture,
                        const std::string& newest);

}  // namespace assay::silicon

// The memory of the current CUDA device for plugins (contract/device_memory.h). Always linkable: without CUDA
// at build time, or a device, present() says so.
#pragma once
#include <memory>

#include "contract/device_memory.h"

namespace assay {

std::unique_ptr<DeviceMemory> make_device_memory();

}  // namespace assay

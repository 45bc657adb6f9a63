// A third-party shared library as a Subject (C interface: contract/assay_plugin.h).
#pragma once
#include <memory>
#include <string>

#include "contract/device_memory.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// The subject that loads `path`. name() is "plugin:<file name without lib and extension>"; what the library
// calls itself is in Served::by. Making it loads nothing: the library is loaded by the first supports() or
// run() of the calling process, which therefore belong in a worker. present() loads it in a child process and
// says whether that works; an absent file, a missing entry point and another ABI version are told apart, and
// a library of device pointers is absent without a device. `device` gives it its memory; it is null in
// programs without a device. Error: `path` cannot be read.
Result<std::unique_ptr<Subject>> make_plugin_subject(const std::string& path,
                                                     std::shared_ptr<DeviceMemory> device = nullptr);

// Whether the subject is a plugin of device pointers, whose times are a GPU's. Loads it in a child process,
// once.
bool takes_device_pointers(const Subject&);

}  // namespace assay

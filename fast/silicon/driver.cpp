#include "fast/silicon/driver.h"

#include <dlfcn.h>

#include <stdexcept>

namespace assay::silicon {

namespace {

template <class Function> Function found(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (!symbol) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

Driver::Driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) throw std::runtime_error("no CUDA driver: libcuda.so.1 was not found");
#define ASSAY_NAME_OF(f) #f
#define ASSAY_FIND(f) f = found<decltype(&::f)>(library, ASSAY_NAME_OF(f));
  ASSAY_DRIVER_FUNCTIONS(ASSAY_FIND)
#undef ASSAY_FIND
#undef ASSAY_NAME_OF
  check(cuInit(0), "starting the driver");
  check(cuDeviceGet(&device_, 0), "finding the GPU");
  int major = 0, minor = 0;
  check(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_),
        "asking for the capability");
  check(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_),
        "asking for the capability");
  architecture = "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device_), "making a context");
  check(cuCtxSetCurrent(context), "using the context");
}

void Driver::check(CUresult status, const std::string& what) const {
  if (status == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(status, &name);
  throw std::runtime_error(what + ": " + (name ? name : "an unknown error"));
}

void Driver::reset() {
  // Without the release the driver of an H100 gave the same context back, destroyed. It may return the
  // kernel's error once more.
  (void)cuDevicePrimaryCtxRelease(device_);
  check(cuDevicePrimaryCtxReset(device_), "leaving the context");
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device_), "making a context");
  check(cuCtxSetCurrent(context), "using the context");
}

}  // namespace assay::silicon

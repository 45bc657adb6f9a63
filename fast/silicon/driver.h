// The CUDA driver of this machine, opened when a program first asks for it: a program that does not needs
// none.
#pragma once
#include <cuda.h>

#include <string>

namespace assay::silicon {

// cuda.h renames a function whose arguments have changed (cuMemAlloc is cuMemAlloc_v2), here and where a
// member is used.
#define ASSAY_DRIVER_FUNCTIONS(F) \
  F(cuInit)                       \
  F(cuGetErrorName)               \
  F(cuDeviceGet)                  \
  F(cuDeviceGetAttribute)         \
  F(cuDevicePrimaryCtxRetain)     \
  F(cuDevicePrimaryCtxRelease)    \
  F(cuDevicePrimaryCtxReset)      \
  F(cuCtxSetCurrent)              \
  F(cuModuleLoadDataEx)           \
  F(cuModuleGetFunction)          \
  F(cuModuleGetGlobal)            \
  F(cuFuncSetAttribute)           \
  F(cuMemAlloc)                   \
  F(cuMemFree)                    \
  F(cuMemcpyHtoD)                 \
  F(cuMemcpyDtoH)                 \
  F(cuLaunchKernel)               \
  F(cuStreamQuery)                \
  F(cuTensorMapEncodeTiled)

struct Driver {
  // std::runtime_error: there is no driver or no GPU, or the driver is older than one of the functions.
  Driver();
  Driver(const Driver&) = delete;

  // std::runtime_error where the status is an error, with the driver's name of it.
  void check(CUresult status, const std::string& what) const;
  // Makes the context anew: after an error of a kernel the driver refuses everything else.
  void reset();

#define ASSAY_MEMBER(f) decltype(&::f) f = nullptr;
  ASSAY_DRIVER_FUNCTIONS(ASSAY_MEMBER)
#undef ASSAY_MEMBER

  std::string architecture;  // sm_90a: what a text's .target becomes

 private:
  CUdevice device_ = 0;
};

}  // namespace assay::silicon

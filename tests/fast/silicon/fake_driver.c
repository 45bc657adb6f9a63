// A fake CUDA driver, for silicon_test.cpp. Its device memory is memory of the process. It refuses a text
// that contains the word `refused`. A launch of the entry `copy` copies, a launch of `broken` ends in an
// error, and any other launch does nothing.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult status, const char** name) {
  *name = status == CUDA_ERROR_INVALID_PTX ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_ILLEGAL_ADDRESS";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what, CUdevice device) {
  (void)device;
  return *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0, CUDA_SUCCESS;
}
// A context that somebody holds comes back as it is, also when it was destroyed: as an H100's driver has it.
static int holders = 0, destroyed = 0;
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  (void)device;
  if (holders++ == 0) destroyed = 0;
  return *context = (CUcontext)context, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return (void)device, --holders, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return (void)device, destroyed = 1, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return (void)context, CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* text, unsigned count, CUjit_option* options,
                            void** values) {
  (void)options;
  if (destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (strstr(text, "refused")) {
    if (count) snprintf(values[0], 64, "line 7: refused");
    return CUDA_ERROR_INVALID_PTX;
  }
  return *module = (CUmodule)text, CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  (void)module;
  return *function = (CUfunction)strdup(name), CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal(CUdeviceptr* at, size_t* bytes, CUmodule module, const char* name) {
  (void)module, (void)name;
  static char memory[4096];
  return *at = (CUdeviceptr)memory, *bytes = sizeof memory, CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
  return (void)f, (void)what, (void)value, CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* at, size_t bytes) {
  void* memory = NULL;
  const int failed = posix_memalign(&memory, 256, bytes);
  return *at = (CUdeviceptr)memory, failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr at) { return free((void*)at), CUDA_SUCCESS; }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return memcpy((void*)to, from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return memcpy(to, (void*)from, bytes), CUDA_SUCCESS;
}

static CUresult ended = CUDA_SUCCESS;
// The parameters of `copy`: the addresses of the destination and the source, and how many bytes.
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
  ended = strcmp((const char*)f, "broken") == 0 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
  if (strcmp((const char*)f, "copy") == 0) {
    CUdeviceptr to, from;
    unsigned bytes;
    memcpy(&to, parameters[0], sizeof to);
    memcpy(&from, parameters[1], sizeof from);
    memcpy(&bytes, parameters[2], sizeof bytes);
    memcpy((void*)to, (void*)from, bytes);
  }
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) { return (void)stream, ended; }
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  (void)type, (void)rank, (void)sizes, (void)strides, (void)box, (void)steps, (void)interleave, (void)swizzle,
      (void)promotion, (void)fill;
  memset(map, 0, sizeof *map);
  memcpy(map, &address, sizeof address);
  return CUDA_SUCCESS;
}

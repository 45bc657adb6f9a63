// Words for reports.
#pragma once
#include <string>

#include "fast/simt/thread.h"

namespace assay::simt {

// "(1,0,0)"
std::string to_text(Index3);
// "fast/formats/mxfp8.cu:120", from the repository root where the file lies below it.
std::string to_text(Site);
// "__shfl_xor_sync", "__syncthreads_count"
const char* name_of(WarpOp);
const char* name_of(BarrierOp);

// What this OS thread's worker knows about an address: a shared array, a stack that overflowed; or an empty
// string.
std::string describe_worker_address(const void*);
// The addresses that device buffers are given; null and 0 before the first.
struct AddressRange {
  const std::byte* begin;
  size_t bytes;
};
AddressRange device_window();
// The device buffer that holds or is nearest to an address, or an empty string when it is no device memory.
std::string describe_device_address(const void*);

// Catches SIGSEGV and SIGBUS in kernels: prints kernel, block, thread and what lies at the address, and ends
// the process with kMemoryFaultStatus. Faults outside kernels go to whoever handled them before. Call as
// often as you like.
void catch_memory_faults();
// Gives this OS thread a stack for signal handlers, without which an overflowing kernel stack cannot be
// reported.
void ensure_signal_stack();

}  // namespace assay::simt

/* The example plugin with one fault in it, chosen by FAULT_<name> at compile time. Each must cost one case
 * and no more. */
#define assay_plugin_run honest_run
#define assay_plugin_abi honest_abi
#define assay_plugin_supports honest_supports
#include "examples/plugin/example_plugin.c"
#undef assay_plugin_run
#undef assay_plugin_abi
#undef assay_plugin_supports
#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

uint32_t assay_plugin_abi(void) {
#if defined FAULT_next_abi
  return ASSAY_PLUGIN_ABI + 1;
#elif defined FAULT_old_abi
  return 2;
#else
  return ASSAY_PLUGIN_ABI;
#endif
}

#if defined FAULT_device || defined FAULT_device_out_of_bounds || defined FAULT_device_writes_input || \
    defined FAULT_device_late_error || defined FAULT_device_timed
int assay_plugin_memory(void) { return ASSAY_MEMORY_DEVICE; }
#elif defined FAULT_nowhere
int assay_plugin_memory(void) { return 7; }
#endif

/* Flushes denormal numbers to zero, as the start-up code of -ffast-math does; or keeps them again. */
static inline void flush_denormals(int flush) {
#if defined __x86_64__
  unsigned csr;
  __asm__ volatile("stmxcsr %0" : "=m"(csr));
  csr = flush ? csr | 0x8040 : csr & ~0x8040u;
  __asm__ volatile("ldmxcsr %0" : : "m"(csr));
#elif defined __aarch64__
  unsigned long fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  fpcr = flush ? fpcr | (1ul << 24) : fpcr & ~(1ul << 24);
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

#if defined FAULT_float_load || defined FAULT_float_load_and_back
__attribute__((constructor)) static void flush_on_load(void) { flush_denormals(1); }
#endif

int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
#ifdef FAULT_float_supports
  fesetround(FE_UPWARD);
#endif
#ifdef FAULT_describe
  (void)line, (void)why, (void)why_bytes;
  return 1;
#else
#ifdef FAULT_supports_crash /* on tensors without rows */
  if (strstr(line, " 0x")) abort();
#endif
  return honest_supports(line, why, why_bytes);
#endif
}

#ifdef FAULT_load_crash
__attribute__((constructor)) static void crash_on_load(void) { abort(); }
#endif

int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                     const assay_plane* outputs, size_t output_count, char* message, size_t message_bytes) {
#ifdef FAULT_describe
  const int status = 0;
  (void)line, (void)inputs, (void)input_count;
#else
  const int status = honest_run(line, inputs, input_count, outputs, output_count, message, message_bytes);
#endif
  const assay_plane* last = &outputs[output_count - 1]; /* row.data */
  unsigned char* bytes = last->data;
  (void)bytes;
#if defined FAULT_rounding /* one code too small wherever the code is odd */
  for (uint64_t i = 0; i < last->bytes; ++i)
    if ((bytes[i] & 0x7F) != 0x7F) bytes[i] -= bytes[i] & 1;
#elif defined FAULT_float_rounding
  fesetround(FE_TOWARDZERO);
#elif defined FAULT_float_flush
  flush_denormals(1);
#elif defined FAULT_float_load_and_back
  flush_denormals(0);
#elif defined FAULT_crash
  raise(SIGSEGV);
#elif defined FAULT_hang
  for (;;) sleep(1);
#elif defined FAULT_exit
  exit(0);
#elif defined FAULT_quick_exit
  quick_exit(0);
#elif defined FAULT_far_past
  ((volatile unsigned char*)bytes)[last->bytes + 1000] = 0xEE;
#elif defined FAULT_far_before
  *((volatile unsigned char*)bytes - 70000) = 0xEE;
#elif defined FAULT_device_writes_input
  ((unsigned char*)inputs[0].data)[5] ^= 1;
#elif defined FAULT_device_late_error /* the fake device of the tests looks for it */
  setenv("ASSAY_TEST_DEVICE_ERROR", "an illegal memory access was encountered", 1);
#elif defined FAULT_out_of_bounds || defined FAULT_device_out_of_bounds /* one byte past the end */
  ((volatile unsigned char*)bytes)[last->bytes] = 0x55;
#elif defined FAULT_describe /* says what it was told of the last plane, which it cannot make */
  snprintf(message, message_bytes, "%s packed %d bytes %d members %d last at %d of %dx%d", last->name,
           last->packed, (int)last->bytes, (int)last->member_count,
           last->member_count ? (int)last->members[last->member_count - 1].offset : 0,
           last->member_count ? (int)last->members[last->member_count - 1].padded_rows : 0,
           last->member_count ? (int)last->members[last->member_count - 1].padded_cols : 0);
  return 7;
#elif defined FAULT_refuse
  snprintf(message, message_bytes, "out of luck");
  return 7;
#endif
  return status;
}

#if defined FAULT_timed || \
    defined FAULT_device_timed /* warm runs by its own clock, which is made up; cold ones not */
int assay_plugin_time(const char* line, const assay_plane* inputs, size_t input_count,
                      const assay_plane* outputs, size_t output_count, int repeats, int cold,
                      uint64_t* nanoseconds, char* message, size_t message_bytes) {
  if (cold) return ASSAY_NOT_TIMED;
  for (int i = 0; i < repeats; ++i) nanoseconds[i] = 1000 * (uint64_t)(i + 1);
  return assay_plugin_run(line, inputs, input_count, outputs, output_count, message, message_bytes);
}
#endif

/* The example plugin with one fault in it, chosen by FAULT_<name> at compile time. Each must cost one case and no more. */
#define assay_plugin_run honest_run
#define assay_plugin_abi honest_abi
#include "examples/plugin/example_plugin.c"
#undef assay_plugin_run
#undef assay_plugin_abi
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

uint32_t assay_plugin_abi(void) {
#ifdef FAULT_old_abi
  return ASSAY_PLUGIN_ABI + 1;
#else
  return ASSAY_PLUGIN_ABI;
#endif
}

#ifdef FAULT_load_crash
__attribute__((constructor)) static void crash_on_load(void) { abort(); }
#endif

int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count, const assay_plane* outputs, size_t output_count, char* message,
                     size_t message_bytes) {
  const int status = honest_run(line, inputs, input_count, outputs, output_count, message, message_bytes);
  const assay_plane* last = &outputs[output_count - 1]; /* row.data */
  unsigned char* bytes = last->data;
  (void)bytes;
#if defined FAULT_rounding /* one code too small wherever the code is odd */
  for (uint64_t i = 0; i < last->bytes; ++i)
    if ((bytes[i] & 0x7F) != 0x7F) bytes[i] -= bytes[i] & 1;
#elif defined FAULT_crash
  raise(SIGSEGV);
#elif defined FAULT_hang
  for (;;) sleep(1);
#elif defined FAULT_exit
  exit(0);
#elif defined FAULT_out_of_bounds /* one byte past the end */
  ((volatile unsigned char*)bytes)[last->bytes] = 0x55;
#elif defined FAULT_refuse
  snprintf(message, message_bytes, "out of luck");
  return 7;
#endif
  return status;
}

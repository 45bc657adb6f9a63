/* A plugin that runs every line, by asking the test program that has loaded it, and then misbehaves as the
 * environment says: ASSAY_TEST_WRONG=1                              every E8M0 scale is one binade too small
 *   ASSAY_TEST_CRASH, _HANG, _EXIT, _OUTSIDE=<line>  on that canonical line alone
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/assay_plugin.h"

/* Of the test program: 0, or 1 with the reason in `message`. */
int assay_test_supports(const char* line, char* why, size_t why_bytes);
int assay_test_run(const char* line, const assay_plane* inputs, size_t input_count,
                   const assay_plane* outputs, size_t output_count, char* message, size_t message_bytes);

uint32_t assay_plugin_abi(void) { return ASSAY_PLUGIN_ABI; }
const char* assay_plugin_name(void) { return "every line"; }
int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
  return assay_test_supports(line, why, why_bytes);
}

static int asked(const char* what, const char* line) {
  const char* value = getenv(what);
  return value && strcmp(value, line) == 0;
}

int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                     const assay_plane* outputs, size_t output_count, char* message, size_t message_bytes) {
  if (asked("ASSAY_TEST_CRASH", line)) raise(SIGSEGV);
  if (asked("ASSAY_TEST_EXIT", line)) exit(0);
  while (asked("ASSAY_TEST_HANG", line)) sleep(1);
  const int status = assay_test_run(line, inputs, input_count, outputs, output_count, message, message_bytes);
  if (asked("ASSAY_TEST_OUTSIDE", line)) ((volatile unsigned char*)outputs[0].data)[outputs[0].bytes] = 0x55;
  for (size_t i = 0; getenv("ASSAY_TEST_WRONG") && i < output_count; ++i)
    if (strcmp(outputs[i].encoding, "e8m0") == 0 && strstr(outputs[i].name, "scale") &&
        !strstr(line, "noop=1"))
      for (uint64_t k = 0; k < outputs[i].bytes; ++k)
        ((unsigned char*)outputs[i].data)[k] -= ((unsigned char*)outputs[i].data)[k] != 0;
  return status;
}

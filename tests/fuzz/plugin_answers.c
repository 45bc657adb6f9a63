/* A plugin whose answers are the bytes that it was last given (tests/fuzz/plugin.cpp). */
#include <string.h>

#include "contract/assay_plugin.h"

static const unsigned char* bytes;
static size_t left;
static char name[64];

static unsigned take(void) {
  if (!left) return 0;
  --left;
  return *bytes++;
}
/* Text up to the length that its first byte says. It has no end where it fills the buffer, as a careless
 * strncpy leaves it. */
static void fill(char* to, size_t most) {
  size_t n = 16 * (size_t)take();
  if (n > left) n = left;
  if (n > most) n = most;
  memcpy(to, bytes, n);
  if (n < most) to[n] = '\0';
  bytes += n;
  left -= n;
}

void fuzz_answers(const unsigned char* data, size_t size);
void fuzz_answers(const unsigned char* data, size_t size) {
  bytes = data;
  left = size;
  fill(name, sizeof name - 1);
}
uint32_t assay_plugin_abi(void) { return ASSAY_PLUGIN_ABI; }
const char* assay_plugin_name(void) { return name; }
int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
  (void)line;
  const int yes = (int)(take() & 1);
  fill(why, why_bytes);
  return yes;
}
int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                     const assay_plane* outputs, size_t output_count, char* message, size_t message_bytes) {
  (void)line, (void)inputs, (void)input_count;
  const int status = (int)(take() & 1);
  fill(message, message_bytes);
  for (size_t n = 0; n < output_count; ++n)
    for (uint64_t at = 0; at < outputs[n].bytes; ++at)
      ((unsigned char*)outputs[n].data)[at] = (unsigned char)take();
  return status;
}
int assay_plugin_time(const char* line, const assay_plane* inputs, size_t input_count,
                      const assay_plane* outputs, size_t output_count, int repeats, int cold,
                      uint64_t* nanoseconds, char* message, size_t message_bytes) {
  (void)line, (void)inputs, (void)input_count, (void)outputs, (void)output_count, (void)cold;
  const int status = (int)(take() % 3) - 1;
  fill(message, message_bytes);
  for (int n = 0; n < repeats; ++n) {
    unsigned char* to = (unsigned char*)(nanoseconds + n);
    for (size_t i = 0; i < sizeof *nanoseconds; ++i) to[i] = (unsigned char)take();
  }
  return status;
}

/* The C interface of a plugin: a shared library whose kernels Assay judges, `assay run --plugin libmine.so
 * <suite>`.
 *
 * Export the first four functions below with C linkage and default visibility, and the others where they are
 * of use. Nothing of Assay is linked into a plugin and this header stands alone (C99, C++). Complete ones:
 * examples/plugin/ in C, examples/plugin_cuda/ with device pointers. docs/plugins.md.
 *
 * A library is loaded and run in worker processes only: a crash, a hang or an exit costs one case. Calls are
 * never concurrent within a process. They run under the float environment (how arithmetic rounds, whether it
 * keeps denormals) that loading the library left, and must leave it as it was.
 */
#ifndef ASSAY_PLUGIN_H
#define ASSAY_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface, and the oldest that is still loaded. Version 3 adds assay_plugin_memory and
 * assay_plugin_time and changes nothing: in a library of version 2 neither is looked for. */
#define ASSAY_PLUGIN_ABI 3
#define ASSAY_PLUGIN_OLDEST_ABI 2

/* One member of a grouped plane (N14.2): from element `offset` on stands an array as its own line would lay
 * it out. */
typedef struct assay_member {
  int64_t offset;
  int64_t rows, cols;
  int64_t padded_rows, padded_cols;
} assay_member;

/* One plane (contract/planes.h; `assay list '<line>' --planes` prints those of a line): a dense row-major
 * array of padded_rows x padded_cols elements, of which the first rows x cols mean something. Elements are
 * little-endian; codes of fewer than 8 bits take a byte each, or, where `packed` is not 0, their own 4 or 6
 * bits, the first in the lowest (N6.8). A plane whose name ends in ".scale_gemm" has the tensor-core tile
 * order (N6.3). The planes of a split that hold one array for each member are 1 x elements; what stands
 * beyond the members is neither read nor written (N14.6). */
typedef struct assay_plane {
  const char* name;     /* "x", "row.scale_inv", "col.data", ... */
  const char* encoding; /* "f32", "bf16", "f16", "e4m3", "e5m2", "e2m1", "e8m0", ... */
  int64_t rows, cols;   /* meaningful elements */
  int64_t padded_rows, padded_cols;
  void* data;     /* inputs must not be written; in the memory of assay_plugin_memory, as nothing else of this
                     struct is */
  uint64_t bytes; /* padded_rows * padded_cols elements; 0 for an empty tensor, and then data may be NULL */
  int packed;     /* 1: codes of 4 or 6 bits without a gap */
  const assay_member* members; /* of a grouped plane, in order; else NULL */
  size_t member_count;
} assay_plane;

/* ASSAY_PLUGIN_ABI as the library was compiled. Checked before anything else is called. */
uint32_t assay_plugin_abi(void);

/* What served a case, for `assay run -v` and the JSON lines: static text. Reports, --subject and --require
 * call the plugin after its file: `plugin:mine` for libmine.so. */
const char* assay_plugin_name(void);

/* Whether the library runs the Problem that `line` describes. `line` is canonical: every key that applies is
 * printed ("quantize mxfp8 64x256 bf16 dir=row element=e4m3 ..."), so that a plugin compares words and needs
 * no defaults (docs/plugins.md says how they are written). 1: yes. 0: no, with the reason as NUL-terminated
 * text of at most why_bytes bytes in `why`: the case counts as unsupported, not as failed. */
int assay_plugin_supports(const char* line, char* why, size_t why_bytes);

/* Computes every output plane. Outputs come filled with a poison byte and between guard bytes: each byte of
 * each output must be written, padding with zeros, and nothing outside; under a noop flag of 1.0 nothing is
 * written. Returns 0, or anything else and the reason in `message`, NUL-terminated: the case then fails. */
int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                     const assay_plane* outputs, size_t output_count, char* message, size_t message_bytes);

/* Optional. Where `data` of every plane points: ASSAY_MEMORY_HOST, as without this function, or
 * ASSAY_MEMORY_DEVICE: memory of the current CUDA device, at least as aligned as --env alignment asks for
 * (256 bytes), between guard bytes. Work of assay_plugin_run may be queued on the default stream, or on any
 * that waits for it: the device is synchronised before outputs are read. Where Assay was built without CUDA,
 * or there is no GPU, a library of device memory is absent with that reason, and its cases count as skipped.
 */
#define ASSAY_MEMORY_HOST 0
#define ASSAY_MEMORY_DEVICE 1
int assay_plugin_memory(void);

/* Optional. Runs `repeats` times what assay_plugin_run does on the same arguments and stores what each run
 * took in `nanoseconds`; with cold != 0 caches are flushed before each. Called by `assay bench` for a case
 * that is passed. Returns 0; or ASSAY_NOT_TIMED and does nothing (cold runs that it has no way to make, say);
 * or anything else with the reason in `message`. Without it Assay times assay_plugin_run: with device events,
 * or on the host with a clock around it. */
#define ASSAY_NOT_TIMED (-1)
int assay_plugin_time(const char* line, const assay_plane* inputs, size_t input_count,
                      const assay_plane* outputs, size_t output_count, int repeats, int cold,
                      uint64_t* nanoseconds, char* message, size_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif

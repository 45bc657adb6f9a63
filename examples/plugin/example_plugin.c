/* A plugin that passes: identity, and MXFP8 rows with the default numerics. It shows the whole interface and
 * is meant to be read, not to be fast.
 *
 *   cc -shared -fPIC -O2 -ffp-contract=off -I<assay> example_plugin.c -o libexample.so -lm
 *   assay run --plugin ./libexample.so 'quantize mxfp8 64x256 bf16 dir=row fill=ties'
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "contract/assay_plugin.h"

uint32_t assay_plugin_abi(void) { return ASSAY_PLUGIN_ABI; }
const char* assay_plugin_name(void) { return "example: identity and mxfp8 rows in C"; }

/* Copies word `index` of the line into `out`: 0 the op, 1 the format, 2 the shape, 3 the source encoding,
 * then the keys. */
static int word(const char* line, int index, char* out, size_t bytes) {
  while (index > 0 && *line) {
    line += strcspn(line, " ");
    line += strspn(line, " ");
    --index;
  }
  const size_t n = strcspn(line, " ");
  if (n == 0 || n >= bytes) return 0;
  memcpy(out, line, n);
  out[n] = '\0';
  return 1;
}

/* Whether the line says key=value. A canonical line names every key that applies. */
static int says(const char* line, const char* key, const char* value) {
  const size_t k = strlen(key), v = strlen(value);
  for (const char* at = line; *at; at += strcspn(at, " "), at += strspn(at, " "))
    if (strncmp(at, key, k) == 0 && at[k] == '=' && strncmp(at + k + 1, value, v) == 0 &&
        (at[k + 1 + v] == ' ' || at[k + 1 + v] == '\0'))
      return 1;
  return 0;
}

/* The first word behind the shape and the source that is not among `known`, where "seed=" stands for any
 * seed; NULL when all are. A choice that Assay learns to ask about later is a word that this plugin does not
 * know, and its lines become unsupported instead of wrong. */
static const char* unknown(const char* line, const char* const* known) {
  int i = 0;
  for (const char* at = line; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
    const char* const* k = known;
    while (*k && strncmp(at, *k, strlen(*k)) != 0) ++k;
    const char end = *k ? at[strlen(*k)] : 0;
    if (i++ >= 4 && !(*k && (end == ' ' || end == '\0' || (*k)[strlen(*k) - 1] == '='))) return at;
  }
  return NULL;
}

int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
  char op[32], format[64];
  if (!word(line, 0, op, sizeof op) || !word(line, 1, format, sizeof format))
    return snprintf(why, why_bytes, "no such line"), 0;
  if (strcmp(op, "quantize") != 0) return snprintf(why, why_bytes, "only quantize, found %s", op), 0;
  if (!says(line, "noop", "none")) return snprintf(why, why_bytes, "no noop flag"), 0;
  if (strcmp(format, "identity") == 0) return 1;
  if (strcmp(format, "mxfp8") != 0)
    return snprintf(why, why_bytes, "only identity and mxfp8, found %s", format), 0;
  if (!says(line, "dir", "row")) return snprintf(why, why_bytes, "only dir=row"), 0;
  static const char* const known[] = {"dir=row",
                                      "block=1x32",
                                      "scales=compact",
                                      "scale_from=x",
                                      "noop=none",
                                      "element=",
                                      "fill=",
                                      "seed=",
                                      "at=",
                                      "flavour=",
                                      "arch=",
                                      "dispatch=",
                                      "neg_zero=keep",
                                      "zero_amax=guarded",
                                      "nan_code=positive",
                                      "nan_amax=ignore",
                                      "element_ties=even",
                                      "element_overflow=saturate",
                                      "pre_round=none",
                                      "mx_scale=up",
                                      "mx_inf=max",
                                      NULL};
  const char* const other = unknown(line, known);
  if (other) return snprintf(why, why_bytes, "not %.*s", (int)strcspn(other, " "), other), 0;
  return 1;
}

/* Element i of the source as binary32; exact. */
static float load(const assay_plane* x, int64_t i) {
  uint32_t bits = 0;
  uint16_t half;
  float value;
  if (strcmp(x->encoding, "f32") == 0) {
    memcpy(&bits, (const char*)x->data + 4 * i, 4);
  } else if (strcmp(x->encoding, "bf16") == 0) {
    memcpy(&half, (const char*)x->data + 2 * i, 2);
    bits = (uint32_t)half << 16;
  } else {
    memcpy(&half, (const char*)x->data + 2 * i, 2);
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) value = fraction ? NAN : INFINITY;
    else value = exponent ? ldexpf((float)(fraction + 1024), exponent - 25) : ldexpf((float)fraction, -24);
    return half >> 15 ? -value : value;
  }
  memcpy(&value, &bits, 4);
  return value;
}

/* The code of `v` in an 8-bit format: nearest, ties to even, saturating; N2.1, N2.2, N2.4, N2.5. */
static uint8_t encode(float v, int mantissa, int bias, double max) {
  if (isnan(v)) return 0x7F;
  const uint8_t sign = signbit(v) ? 0x80 : 0;
  double a = fabs((double)v);
  int e;
  if (a > 2 * max) a = 2 * max; /* an infinity has no exponent */
  frexp(a, &e);
  e = e - 1 < 1 - bias ? 1 - bias : e - 1;
  a = ldexp(nearbyint(ldexp(a, mantissa - e)), e - mantissa);
  if (a > max) a = max;
  frexp(a, &e); /* rounding may have reached the next binade */
  if (a == 0 || e - 1 < 1 - bias) return (uint8_t)(sign | (int)ldexp(a, mantissa - (1 - bias)));
  return (uint8_t)(sign + ((e - 1 + bias) << mantissa) +
                   ((int)ldexp(a, mantissa - (e - 1)) - (1 << mantissa)));
}

/* The least power of two not below p, as E8M0; N5.3. */
static uint8_t scale_code(float p) {
  int e;
  if (isinf(p)) return 254;
  if (p == 0) return 0;
  const float fraction = frexpf(p, &e);
  const int k = e - (fraction == 0.5f) + 127;
  return (uint8_t)(k < 0 ? 0 : k > 254 ? 254 : k);
}

static const assay_plane* find(const assay_plane* planes, size_t count, const char* name) {
  for (size_t i = 0; i < count; ++i)
    if (strcmp(planes[i].name, name) == 0) return &planes[i];
  return NULL;
}

int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                     const assay_plane* outputs, size_t output_count, char* message, size_t message_bytes) {
  const assay_plane* x = find(inputs, input_count, "x");
  char format[64];
  if (!x || !word(line, 1, format, sizeof format)) return snprintf(message, message_bytes, "no plane x"), 1;

  if (strcmp(format, "identity") == 0) {
    for (size_t i = 0; i < output_count; ++i)
      if (x->bytes) memcpy(outputs[i].data, x->data, x->bytes);
    return 0;
  }

  const assay_plane* scales = find(outputs, output_count, "row.scale_inv");
  const assay_plane* data = find(outputs, output_count, "row.data");
  if (!scales || !data) return snprintf(message, message_bytes, "no plane row.scale_inv or row.data"), 1;
  const int e4m3 = strcmp(data->encoding, "e4m3") == 0;
  const float max = e4m3 ? 448.0f : 57344.0f, reciprocal = 1.0f / max;
  uint8_t* codes = data->data;
  uint8_t* stored = scales->data;
  if (scales->bytes) memset(stored, 0, scales->bytes); /* padding is zero: N6.4 */
  for (int64_t r = 0; r < x->rows; ++r)
    for (int64_t b = 0; b * 32 < x->cols; ++b) {
      const int64_t first = r * x->cols + b * 32, n = x->cols - b * 32 < 32 ? x->cols - b * 32 : 32;
      float amax = 0;
      for (int64_t i = 0; i < n; ++i) {
        const float a = fabsf(load(x, first + i));
        if (a > amax) amax = a; /* never true for a NaN: N5.1. fmaxf would let signalling ones through */
      }
      const uint8_t k = scale_code(amax * reciprocal);
      stored[r * scales->padded_cols + b] = k;
      const float multiplier = ldexpf(1.0f, 127 - k);
      for (int64_t i = 0; i < n; ++i)
        codes[first + i] = encode(load(x, first + i) * multiplier, e4m3 ? 3 : 2, e4m3 ? 7 : 15, max);
    }
  return 0;
}

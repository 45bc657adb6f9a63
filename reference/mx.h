// The microscaling formats: 32 elements share a power of two that is stored as E8M0. MXFP8, MXFP6 and MXFP4
// differ in how an amax becomes the value whose power of two is taken, and in where and how wide their data
// stand, which the planes say.
#pragma once
#include <cstdint>
#include <string_view>

#include "reference/tensor.h"

namespace assay::reference {

// What a reader multiplies by (N5.9), what elements are multiplied by (N5.4). k = 255 is NaN.
double decoded_scale(uint32_t k);
double multiplier(uint32_t k, const Quantizer&);

struct MxFormat {
  double (*scaled_amax)(double amax,
                        Encoding element);  // p, of which the scale is the code (N5.2, N15.2), but for the
                                            // rules of N17.6 that take the amax itself
  std::string_view amax_clause, scaled_clause, element_clause;  // for traces
};

// The ops of a Format (reference/formats/format.h).
void quantize_mx(const Run&, Direction, const MxFormat&);
void dequantize_mx(const Run&, Direction);
void scale_chain_mx(const Run&, const MxFormat&);
Tracer trace_mx(const Run&, Direction, const MxFormat&);  // the format must outlive it

}  // namespace assay::reference

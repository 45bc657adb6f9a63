// The sets of inputs that the parts of the certificate run over. Each says in words what it holds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/commands/certify/part.h"

namespace assay {

// ---- patterns and codes (domains.cpp) -----------------------------------------------------------

// Pattern i of the set boundaries().
uint32_t boundary_pattern(int64_t i);

Domain every_code(Encoding);
Domain every_float();
// Every float at which a cast changes its result, with both neighbours.
Domain boundaries();

Domain every_amax();  // without a sign, and a sample with one
Domain amaxes_without_sign();
Domain bf16_amaxes();
Domain structured_amaxes();

Domain amax_rows(int64_t cols);  // one amax among zeros
// Blocks with two amaxes of each binade of the source and what lies below them, in rows of this many: 1, or
// another divisor of the number of amaxes, which is 62 of f16 and 510 of bf16 and f32.
Domain blocks_of_binades(Encoding source, int64_t length, int64_t in_a_row);
// The rows of a domain of one input plane, each of `length` elements, as columns.
Domain down_columns(Domain rows, int64_t length);

// ---- more than one number -----------------------------------------------------------------------

// Tensor and block amaxes of the scale chain of NVFP4 (amax_pairs.cpp).
Domain amax_pairs(E4m3Max, CertifyExtent);

// Values, each with every random byte, or with one (stochastic_pairs.cpp).
Domain stochastic_pairs(CertifyExtent);
Domain drawn_floats(CertifyExtent);
// What breaks N12.3 in outputs of stochastic_pairs(), by counting; or an empty string.
std::string counts_are_right(const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& outputs);

// Rows of a dequantize line of a format with blocks, each one block: every code of an element under every
// code of a scale; of NVFP4 under amaxes of the tensor as well (coded_blocks.cpp). Pieces have
// rows_of_all_codes() rows, because a tensor has one amax.
Domain coded_blocks(const Problem&, CertifyExtent);
int64_t rows_of_all_codes(const Problem&);

// Rows of a quantize line whose blocks are whole rows: each holds one amax, and elements below it that have
// its scale (scaled_elements.cpp). Every amax of a 16-bit source, with every pattern below it; or
// amaxes of f32, with the patterns around every point where the code changes.
Domain scaled_elements(const Problem&);

}  // namespace assay

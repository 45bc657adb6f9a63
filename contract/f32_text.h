// Binary32 values in text. The only place of contract/ where a float appears: everywhere else they are bits.
#pragma once
#include <string>
#include <string_view>

#include "contract/encoding.h"
#include "contract/result.h"

namespace assay {

// Reads "448", "1e-6", "inf", "nan" (canonical 7FFFFFFF) or bits as "0x7F7FFFFF" (exactly 8 digits).
// A decimal that overflows binary32 is an error.
Result<F32Bits> parse_f32(std::string_view text);

// The shortest decimal that reads back to the same bits; bits as 0x........ for NaN.
std::string f32_text(F32Bits bits);

}  // namespace assay

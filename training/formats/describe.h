// How a quantizer shows its settings: the words that the describe() of every format shares.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "contract/encoding.h"
#include "fixtures/json.h"
#include "training/formats/quantizer.h"

namespace assay::training {

// The class, what every quantizer has (usages, internal, optimize_for_gemm), and then the fields of the
// class.
json::Value described(const Quantizer&, std::initializer_list<std::pair<std::string_view, json::Value>> own);

json::Value shown_f32(F32Bits);            // as a number
json::Value shown_dtype(Encoding);         // "E4M3"
json::Value shown_group(const GroupPtr&);  // its name, or null

}  // namespace assay::training

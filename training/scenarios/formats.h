// Quantizers by short names, and what scenarios ask of the tensors that they make.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "training/formats/hybrid.h"
#include "training/formats/storage.h"
#include "training/scenarios/scenario.h"

namespace assay::training {

// A new quantizer: "CS" current scaling and "DS" delayed (with a scale of 3 of its own), per-tensor E4M3;
// "MX" MXFP8; "MX4" MXFP4, "MX6" MXFP6 in E2M3 and a code in a byte, "MX6P" in E3M2 and packed; "BLK1",
// "BLK2" blockwise FP8 of 1x128 and 128x128; of NVFP4 "FP4p" plain, "FP4w" square blocks, "FP4i" RHT, "FP4g"
// RHT and stochastic rounding, "FP4rs" row-scaled; "ID" Identity; and hybrids of two of them: "H(MX|CS)", and
// "H(MX|CS;rwdq)" where columns come from the dequantized rows. std::logic_error of another name.
QuantizerPtr quantizer_named(std::string_view name, Usages usages = {true, true});
// The same, as the hybrid that it is.
std::shared_ptr<HybridQuantizer> hybrid_named(std::string_view name, Usages usages = {true, true});

// "TF", as text() writes it.
Usages usages_of(std::string_view text);
inline constexpr Usages kBothUsages{true, true}, kRowUsage{true, false}, kColumnUsage{false, true},
    kNoUsage{false, false};

// The buffer of this name, null where it is absent or the class has none.
ArrayPtr buffer(Storage& storage, std::string_view name);
// The names of the buffers that exist.
std::vector<std::string> buffer_names(Storage& storage);
// Every buffer that `part` has is that of `whole`, bit for bit; `part` must have one.
bool expect_part(ScenarioRun& run, Storage& part, Storage& whole, std::string_view what);

}  // namespace assay::training

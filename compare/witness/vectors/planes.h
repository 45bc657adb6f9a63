// Tensors of a file as planes of a Problem: whether they fit, the inputs that rows make of several tensors,
// and expected tensors of another form (compare/witness/vectors/table.h says what `@how:tensors` and `as`
// mean).
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compare/witness/vectors/source.h"
#include "contract/planes.h"
#include "contract/result.h"
#include "fixtures/inputs.h"

namespace assay {

// How a tensor holds a plane: not at all; by its meaningful elements, row by row; or by all padded ones in
// the stored order, which is what a GEMM layout always is.
enum class Fit { none, meaningful, padded };
Fit fit_of(const safetensors::Tensor&, const Plane&);
// That a tensor, called `name`, does not fit a plane.
Error misfit(std::string_view name, const safetensors::Tensor&, const Plane&);

const Plane* plane_named(const std::vector<Plane>&, std::string_view name);

// The bytes of an input plane from the text behind its "=": a tensor, or `@how:tensors`.
Result<PlaneData> input_plane(std::string_view from, const VectorSource&, const Plane&);

// What an expected tensor of another form says the plane's meaningful elements are.
Result<std::vector<std::byte>> converted(std::string_view as, const safetensors::Tensor&, const Plane&);

}  // namespace assay

// Bytes against the reference inside a program of the user's: what the matchers of tests/assay_gtest.h say.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// The bytes of a plane, by its name (contract/planes.h): "x", "row.data".
struct NamedBytes {
  std::string plane;
  std::span<const std::byte> bytes;
};

// The input planes of a line, drawn by its fill or made from its keys; a plane of `given` replaces the one of
// its name. `reference` makes what is itself quantized. Errors: a line that cannot be read, a plane that the
// line does not read, or one of another size.
Result<std::vector<PlaneData>> inputs_of(std::string_view line, Subject& reference,
                                         std::span<const NamedBytes> given = {});

// How `outputs` differ from what the reference writes for the line: the screen of a failure, or an empty
// string. Output planes may be missing; those that are given are judged in causal order. A plane has its
// padded size or, where it is row-major, that of its meaningful elements. Row-major padding is not judged;
// padding of the tile order must be 0. What cannot be compared (a bad line, an unknown plane, another size,
// no plane) is told as a failure too.
std::string mismatch(std::string_view line, Subject& reference, std::span<const NamedBytes> inputs,
                     std::span<const NamedBytes> outputs);

// The same of two buffers of rows x cols elements, row-major, 4-bit and 6-bit codes in a byte each.
std::string mismatch(Encoding encoding, Shape shape, std::span<const std::byte> got,
                     std::span<const std::byte> want);

}  // namespace assay

// A failure that stands alone: a folder with the case as a pack, a C++ program that needs nothing of Assay,
// and what to type.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/inputs.h"

namespace assay {

inline constexpr size_t kMaxReproducerBytes =
    size_t{1} << 20;  // of all planes together: the program holds them as text

// Writes into `folder`, which is made where it is not there:
//   case.safetensors   the cases `got` and `want` of the line: the inputs in both, the outputs of each side
//                      (docs/packs.md)
//   reproduce.cpp      the same bytes inline, a comparison, a marked place for the reader's kernel; where
//                      `subject_argument` is "--plugin <path>", quoted as for a
//                      shell, it loads that library, with poisoned outputs between guard bytes. Exit status 0
//                      equal, 1 different, 2 nothing could be run
//   README             the line, the first difference, the commands
// `inputs` in the order of input_planes(bad); `got` and `want` hold output planes of it, `got` none where the
// subject crashed. `subject_argument` is what is typed behind the line (Subject::argument()); empty where no
// subject made `got`. Errors: more than kMaxReproducerBytes, a folder that cannot be written.
std::optional<Error> write_reproducer(const std::string& folder, const Problem& bad,
                                      const std::string& subject_argument,
                                      const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got,
                                      const std::vector<PlaneData>& want);
// Why write_reproducer could not write into `folder`, as far as that can be known before; makes and writes
// nothing. `option` as cannot_write has it.
std::optional<Error> cannot_write_reproducer(const std::string& folder, std::string_view option);

}  // namespace assay

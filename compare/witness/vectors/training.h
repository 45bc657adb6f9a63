// Third-party vectors of what no line says and the training layer does: gradients of biases, and the padding
// of experts' rows.
//   mxfp8_dbias, fp8_delayed_dbias   dbias [K] of grad [R, K], in grad's dtype: the entry that quantizes grad
//                                    in the same call (training/groups/split_quantize.h)
//   multi_padding                    t<i>.padded of t<i>.input: rows of +0 up to a multiple of params.align,
//                                    and removed again
// The other tensors of these families are lines (compare/witness/vectors/table.h).
#pragma once
#include <string>
#include <string_view>

#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"

namespace assay {

bool is_training_family(std::string_view family);

// True where the training layer makes this expected tensor of that family.
bool is_training_tensor(std::string_view family, std::string_view tensor);

// Where what the training layer makes on `subject` differs from the file's `tensor`: "element 3: 3f80,
// expected 4000"; empty where equal. Errors: the file lacks an input, a parameter or the like, or they do not
// fit each other; the subject does not run it.
Result<std::string> training_difference(std::string_view family, const safetensors::File& file,
                                        const json::Value& params, std::string_view tensor, Subject& subject);

}  // namespace assay

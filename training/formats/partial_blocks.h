// Blocks that a tensor fills only in part, as the stand-ins of the witness records quantized them
// (Session::stand_ins): the original's kernels refuse such shapes.
#pragma once
#include <functional>

#include "training/formats/storage.h"

namespace assay::training {

// Whether `x` is for the stand-ins: its rows or columns are no multiple of `grain`, and no flag is given.
bool is_for_stand_ins(const Session&, const Array& x, int64_t grain, std::optional<F32Bits> noop);
// Hands `fill` x [rows, cols] with zeros up to multiples of `grain`, which fills `padded`, a storage of the
// class of `s`, and cuts what `s` allocates for x out of it.
void fill_from_padded(Session&, const Quantizer&, const ArrayPtr& x, int64_t grain, Storage& s,
                      Storage& padded, const std::function<void(const ArrayPtr& whole)>& fill);

}  // namespace assay::training

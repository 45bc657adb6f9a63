// The lanes on their own, as Subjects: the element arithmetic of fast/lane in plain loops on this processor,
// with no kernel, no launch and no executor around it. Every float there is can go through it in seconds;
// what kernels add is judged as `host`.
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

// "lanes": every cast, by the integer conversions (fast/lane/encode.cuh, decode.cuh).
std::unique_ptr<Subject> make_lanes_subject();

// "lanes_twin": the casts that tuned kernels leave to a GPU's conversion instructions, by the twins that
// stand for them on a host (fast/lane/convert.cuh); supports() refuses the others.
std::unique_ptr<Subject> make_lanes_twin_subject();

}  // namespace assay

// The reference as a Subject: how the bytes must come out (docs/numerics.md), for every op, every Numerics
// value, either direction and pairs of different formats. Environment::threads is honoured; no other part of
// the Environment can matter here.
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

std::unique_ptr<Subject> make_reference_subject();  // name() == "reference"

}  // namespace assay

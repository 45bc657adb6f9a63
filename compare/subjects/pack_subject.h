// A recording as a Subject.
#pragma once
#include <memory>
#include <string>

#include "compare/packs/pack.h"
#include "contract/subject.h"

namespace assay {

// It supports the lines that the pack holds (compared in their canonical form) with bytes for every output
// plane; run() copies them.
std::unique_ptr<Subject> make_pack_subject(std::shared_ptr<const Pack> pack, std::string name);

}  // namespace assay

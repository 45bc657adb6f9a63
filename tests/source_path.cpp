#include "tests/source_path.h"

namespace assay {

std::string source_path(std::string_view below) { return std::string(ASSAY_SOURCE_DIR "/").append(below); }

}  // namespace assay

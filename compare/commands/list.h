// `assay list <suite|line>...`: what would run. Also the suites, the keys of the line and the subjects.
#pragma once

namespace assay {

struct Program;

// Exit status: 0; 2 bad usage; 3 nothing is left of what was asked for.
void register_list(Program&);

}  // namespace assay

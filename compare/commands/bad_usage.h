// Reads the command line, and says what is wrong with one that cannot be run: the option or command that was
// probably meant, a line without quotes.
#pragma once

namespace assay {

struct Program;

inline constexpr int kBadUsage = 2;

// Calls the command that the command line names, and returns the exit status. Throws what that command
// throws, and a Refusal for an unknown command.
int parse_and_run(Program&, int argc, char** argv);

}  // namespace assay

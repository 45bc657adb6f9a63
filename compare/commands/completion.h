// `assay completion` and `assay manual`: what a shell completes, and a man page, from the same rows as the
// help.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "compare/commands/command_line.h"
#include "compare/commands/options.h"

namespace assay {

// A script for bash or zsh: commands, options with the words they take, suites, and in a quoted line its ops,
// formats and keys.
std::string bash_completion(std::span<const CommandInfo> commands);
std::string zsh_completion(std::span<const CommandInfo> commands);

void register_completion(Program& program);

}  // namespace assay

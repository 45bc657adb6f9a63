// Which pipe of an SM an instruction takes (pipes.def).
#pragma once
#include <optional>
#include <string_view>

#include "compare/model/gpus.h"

namespace assay::model {

// Of an instruction as nvdisasm prints it, without its guard: "LOP3.LUT R1, R2, ...". Pipe::other where no
// row knows it.
Pipe pipe_of_sass(std::string_view instruction);

// Of an instruction of PTX, with or without its guard: "@%p1 add.s32 %r1, %r2, %r3;". Nothing where ptxas
// makes no instruction of it as a rule: a move, a conversion of an address, a parameter.
std::optional<Pipe> pipe_of_ptx(std::string_view instruction);

}  // namespace assay::model

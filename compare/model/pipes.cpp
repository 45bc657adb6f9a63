#include "compare/model/pipes.h"

namespace assay::model {

namespace {

struct SassRow {
  std::string_view opcode, holds;
  Pipe pipe;
};
struct PtxRow {
  std::string_view opcode, holds;
  std::optional<Pipe> pipe;
};

namespace rows {
#define PIPE(name, rate, source) constexpr Pipe name = Pipe::name;
#define GPU(name, title, architecture, sms, ghz, copy, peak, source)
#define CONSTANT(name, value, source)
#include "compare/model/gpus.def"
constexpr std::optional<Pipe> none = std::nullopt;

constexpr SassRow kSass[] = {
#define SASS(opcode, holds, pipe) SassRow{opcode, holds, pipe},
#define PTX(opcode, holds, pipe)
#include "compare/model/pipes.def"
};
constexpr PtxRow kPtx[] = {
#define SASS(opcode, holds, pipe)
#define PTX(opcode, holds, pipe) PtxRow{opcode, holds, pipe},
#include "compare/model/pipes.def"
};
}  // namespace rows

template <class Row, size_t kCount>
const Row* matching(const Row (&table)[kCount], std::string_view opcode, std::string_view whole) {
  for (const Row& row : table)
    if (opcode.starts_with(row.opcode) && whole.find(row.holds) != std::string_view::npos) return &row;
  return nullptr;
}

}  // namespace

Pipe pipe_of_sass(std::string_view instruction) {
  const SassRow* row = matching(rows::kSass, instruction.substr(0, instruction.find(' ')), instruction);
  return row ? row->pipe : Pipe::other;
}

std::optional<Pipe> pipe_of_ptx(std::string_view instruction) {
  if (instruction.starts_with('@')) {
    const size_t end = instruction.find(' ');
    instruction.remove_prefix(end == std::string_view::npos ? instruction.size() : end + 1);
  }
  const PtxRow* row = matching(rows::kPtx, instruction.substr(0, instruction.find(' ')), instruction);
  return row ? row->pipe : Pipe::other;
}

}  // namespace assay::model

// Copies that arrive later (9.7.9.25.3).
#include "fast/ptx/choose.h"
#include "fast/ptx/copies.h"

namespace assay::ptx {

bool choose_copy(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::cp_async:
    case Form::cp_async_hint: i.handler = &issue_copy; return true;
    case Form::cp_async_commit: i.handler = &close_group; return true;
    case Form::cp_async_wait: i.handler = &wait_for_groups; return true;
    case Form::cp_async_wait_all: i.handler = &wait_for_all; return true;
    default: return false;
  }
}

}  // namespace assay::ptx

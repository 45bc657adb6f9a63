// Copies that arrive later (9.7.9.25).
#include "fast/ptx/bulk.h"
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
    case Form::bulk_load:
    case Form::bulk_load_hint:
    case Form::bulk_store:
    case Form::bulk_store_hint:
    case Form::bulk_int:
    case Form::bulk_int_hint:
    case Form::bulk_long:
    case Form::bulk_long_hint:
    case Form::bulk_wrap:
    case Form::bulk_wrap_hint:
    case Form::bulk_bits:
    case Form::bulk_bits_hint:
    case Form::bulk_float:
    case Form::bulk_float_hint:
    case Form::tensor_load:
    case Form::tensor_load_hint:
    case Form::tensor_store:
    case Form::tensor_store_hint: i.handler = &issue_bulk; return true;
    case Form::bulk_commit: i.handler = &close_bulk_group; return true;
    case Form::bulk_wait: i.handler = &wait_for_bulk_groups; return true;
    default: return false;
  }
}

}  // namespace assay::ptx

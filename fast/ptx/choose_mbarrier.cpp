// Barriers that are objects in shared memory (9.7.13.15).
#include "fast/ptx/choose.h"
#include "fast/ptx/mbarriers.h"

namespace assay::ptx {

bool choose_mbarrier(const Opcode& op, Instruction& i) {
  i.code = (op.has("arrive_drop") ? kDrops : 0u) | (op.has("noComplete") ? kNeverLast : 0u) |
           (op.has("relaxed") ? kUnordered : 0u) | (op.has("parity") ? kByParity : 0u) |
           (op.has("complete_tx") ? kCompletes : 0u) | (op.has("noinc") ? kForeseen : 0u);
  switch (op.row->form) {
    case Form::mbarrier_init: i.handler = &begin_mbarrier; return true;
    case Form::mbarrier_inval: i.handler = &end_mbarrier; return true;
    case Form::mbarrier_tx: i.handler = &count_bytes; return true;
    case Form::mbarrier_arrive:
      if (i.with_optional) i.code |= kCounted;
      i.handler = &arrive_at_mbarrier;
      return true;
    case Form::mbarrier_arrive_tx: i.code |= kExpects, i.handler = &arrive_at_mbarrier; return true;
    case Form::mbarrier_arrive_only: i.code |= kCounted, i.handler = &arrive_at_mbarrier; return true;
    case Form::cp_async_arrive: i.handler = &arrive_behind_copies; return true;
    case Form::mbarrier_pending: i.handler = &pending_arrivals; return true;
    case Form::mbarrier_test:
    case Form::mbarrier_test_parity:
    case Form::mbarrier_try:
    case Form::mbarrier_try_parity:
      i.handler = &ask_mbarrier;
      i.flow = Flow::wait;
      return true;
    default: return false;
  }
}

}  // namespace assay::ptx

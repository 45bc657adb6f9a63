// Branches, barriers, and instructions that change nothing here (9.7.12, 9.7.13, 9.7.19).
#include "fast/ptx/choose.h"

namespace assay::ptx {

namespace {

void nothing(Warp&, const Instruction&) {}

bool choose_barrier(const Opcode& op, Instruction& i) {
  // bar is barrier.aligned (9.7.13.1).
  i.aligned = op.row->name == "bar" || op.has("aligned");
  switch (op.row->form) {
    case Form::bar_sync:
    case Form::barrier_sync: i.barrier = BarrierKind::sync; break;
    case Form::bar_arrive:
    case Form::barrier_arrive: i.barrier = BarrierKind::arrive; break;
    case Form::barrier_red_popc:
    case Form::bar_red_popc: i.barrier = BarrierKind::popc; break;
    case Form::barrier_red_pred:
    case Form::bar_red_pred: i.barrier = op.has("and") ? BarrierKind::all : BarrierKind::any; break;
    default: return false;
  }
  i.flow = Flow::barrier;
  return true;
}

}  // namespace

bool choose_control(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::bra: i.flow = Flow::branch; return true;
    case Form::brx_idx: i.flow = Flow::table; return true;
    case Form::ret:
    case Form::exit: i.flow = Flow::exit; return true;
    case Form::trap:
    case Form::brkpt: i.flow = Flow::trap; return true;
    case Form::call:  // its body follows (decode.cpp)
    // One block runs at a time, lane after lane: memory is in order, and so are launches.
    case Form::membar:
    case Form::fence:
    case Form::fence_proxy:
    case Form::fence_mbarrier:
    case Form::griddepcontrol:
    case Form::nanosleep: i.handler = &nothing; return true;
    default: return choose_barrier(op, i);
  }
}

}  // namespace assay::ptx

// Session: everything a training step runs on and leaves traces in: the Subject that computes every byte, the
// architecture that is modelled, the random number ledger, the virtual ranks' collective trace, warnings, and
// the list of launches. One Session is one process of the original; two Sessions share nothing.
//
// The semantic layer decides; a Subject computes. No arithmetic on tensor elements happens in training/ but
// the norms and activations (docs/independence.md).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "contract/subject.h"
#include "fixtures/inputs.h"
#include "training/base/array.h"
#include "training/base/errors.h"

namespace assay::training {

// The generator that stochastic rounding draws Philox states from. Each draw takes a state and advances the
// offset by kPhiloxStep (TE csrc/quantizer.cpp). One generator per process: whatever draws, later draws
// shift. Philox state {seed, offset} becomes `rng=seed,offset,0` of the line.
inline constexpr uint64_t kPhiloxStep = 1024;
struct RngDraw {
  std::string who;  // "NVFP4Quantizer", and "NVFP4Quantizer columns" for the second state that columns may
                    // have of their own
  uint64_t offset = 0;  // the state that was drawn
  bool used = true;     // a state may be drawn and not used (TE csrc/quantizer.cpp)
};
struct RngLedger {
  uint64_t seed = 0, offset = 0;
  std::vector<RngDraw> draws;
  // Where set, gives the offset of every draw instead, and the ledger still advances: two routes that draw in
  // another order get equal states (exclusion E2 of docs/parity.md).
  std::function<uint64_t()> inject;
  // The state to use; advances by `states` steps: a call for n tensors takes one state and leaves room for n.
  Rng draw(std::string who, bool used = true, uint64_t states = 1);
  void reseed(uint64_t new_seed, uint64_t new_offset = 0) { seed = new_seed, offset = new_offset; }
};

// A group of virtual ranks. Reductions call back with the calling rank's value and return the group's; every
// call is traced.
struct ProcessGroup {
  std::string name;  // "tp0"
  int size = 1, rank = 0;
  // Maximum of this rank's amaxes with those of the other ranks, element by element, in place; bits are
  // non-negative floats. Empty: the values stay.
  std::function<void(std::span<F32Bits>)> all_reduce_max;
  // Every rank's tensor, in rank order. Empty: modules neither gather nor reduce tensors, and compute what
  // this rank alone has.
  std::function<std::vector<ArrayPtr>(const ArrayPtr&)> all_gather;
};
using GroupPtr = std::shared_ptr<ProcessGroup>;
struct Collective {
  std::string what;  // "all_reduce_max", "all_gather", "reduce_scatter", "all_reduce"
  std::string who;   // which tensor: "input", "grad_output"; set by the module through Session::tensor_name
  std::string group;
  bool operator==(const Collective&) const = default;
};

// How every GEMM of a process sums (N16): one of the portable sums, or Hopper's tensor cores, where operands
// and accumulator choose among N16.5's.
enum class GemmModel : uint8_t { f32_sequential, exact, hopper };

struct Session {
  Session(Subject& subject, Environment environment = {}) : subject(subject), environment(environment) {}

  Subject& subject;
  Environment environment;
  Arch arch = Arch::sm100;  // decides what storages hold (tn_only) and, under flavour te, which kernel
  Flavour flavour = Flavour::assay;  // te: Problems carry flavour=te arch=<arch>
  // Where set, changes the Numerics of every quantize after the flavour has chosen them: how the parity
  // matrix takes one cause of a difference away (docs/parity.md).
  std::function<void(Numerics&)> adjust;
  GemmModel gemm_model = GemmModel::f32_sequential;
  // Whether kernels take what the original's refuse and the stand-ins of its witness records took: a
  // transpose of per-tensor FP8 without the rows, and a partial block of MXFP8, as if zeros followed.
  bool stand_ins = false;
  RngLedger rng;
  std::vector<Collective> collectives;
  Warnings warnings;
  std::vector<std::string> launches;  // the line of every Problem that ran, in order
  std::string tensor_name;            // what is being quantized now, for the traces
  int unnamed_modules =
      0;  // modules that were given no name: the nth is called "Layer_<n>" (TE module/base.py)

  // Per-tensor FP8 keeps a physical transpose for its columns; otherwise one byte plane serves both
  // directions (semantics of TE utils.py).
  bool tn_only() const { return !(arch == Arch::sm100 || arch == Arch::sm110); }

  // Runs one Problem; `inputs` are planes by name, `keep` outputs that must start from given bytes (noop).
  // Throws SemanticError(RuntimeError) with the subject's words where it does not support the Problem or
  // fails.
  std::vector<PlaneData> run(const Problem& problem, const std::vector<PlaneData>& inputs,
                             const std::vector<PlaneData>& keep = {});
  void warn(std::string category, std::string text) {
    warnings.push_back({std::move(category), std::move(text)});
  }
};

// `x` converted to another float dtype by op cast (N2); x itself where it has it.
ArrayPtr cast(Session&, const ArrayPtr& x, DType to);

}  // namespace assay::training

// The parity matrix: hybrid against vanilla, module by module. A cell runs one module twice: along vanilla's
// route (both directions in one launch, fused norm, activation and bias gradient, built-in recipe) and along
// hybrid's (two single-direction launches, unfused producers, CustomRecipe), and compares everything that the
// two steps left, in causal order, bit for bit. Where a hybrid has a format per GEMM there are three vanilla
// routes, one per GEMM.
//
// A cell that differs is excluded only where removing a named cause makes it equal (docs/parity.md): the
// exclusion is computed in the run, never listed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "contract/problem.h"
#include "training/kit/modules.h"
#include "training/kit/recipes.h"

namespace assay::training {

// One step under which circumstances.
//   train            weights in bf16, quantized anew
//   cached           a second microbatch that uses the first one's workspaces
//   quantized_init   weights kept quantized
//   trajectory       three steps, weights updated by their gradients
//   evaluation       a step, an evaluation, a step
//   column, row      tensor and sequence parallel, with amax groups
enum class Phase : uint8_t { train, cached, quantized_init, trajectory, evaluation, column, row };
inline constexpr std::string_view kPhaseNames[] = {
    "train", "cached", "quantized_init", "trajectory", "evaluation", "column", "row"};
constexpr std::string_view name_of(Phase p) { return kPhaseNames[static_cast<size_t>(p)]; }

// The module of a cell that is attention's core: its formats are one of fp8_current, mxfp8 and fp8_delayed,
// and its roles are the slots that are hybrids under a custom recipe, "qkv", or kNoHybrid.
inline constexpr std::string_view kAttention = "attention", kNoHybrid = "plain";

struct Cell {
  std::string_view module;  // one of kModules or kAttentionModules, or kAttention
  GemmFormats formats;
  // Tensors that are hybrids. The others are vanilla's where one format serves both directions.
  std::string_view roles = "input,weight";
  // Of vanilla: "high_precision", or "dequantized", where hybrids take columns from dequantized rows.
  std::string_view backward_override = "";
  Phase phase = Phase::train;
  Arch arch = Arch::sm100;
  Flavour flavour = Flavour::assay;
  // Rows of the input: 64 and 96 lie on both sides of what fused kernels take, and 160 is more than one chunk
  // of a fused sum of rows.
  int64_t tokens = 64;
  bool packed = false;  // grouped weights in one parameter
  // Ranks that take the step together. 0: one process, which meets a stand-in for another rank's amaxes where
  // the phase is parallel. With fsdp and a parallel phase, half of four ranks shard weights and half
  // features.
  int ranks = 0;
  bool sequence = false;       // of a parallel phase on ranks: rows are sharded too
  std::string_view fsdp = "";  // "reshard", "keep": FSDP2's weights after forward; needs ranks
  bool adam = false;           // FusedAdam updates the parameters, and a second step follows
  bool recompute = false;      // forward runs again in backward
  // Of multi-head attention: "fp8_dpa" or "fp8_mha", the field of the recipe by which its core is quantized
  // too; empty: the core runs in 16 bits.
  std::string_view core = "";
  bool checkpoint_core = false;  // the core alone runs again in backward
  // Where set, hybrid's quantizers come from this registered factory and `formats` follows from them; `roles`
  // then says nothing.
  std::string_view factory = "";
  bool operator==(const Cell&) const = default;
};

bool is_parallel(Phase);
// Of a cell on ranks: how many share the features of a layer, and how many the rows of its weights.
int tensor_ranks(const Cell&);
int mesh_size(const Cell&);
// Whether the cell runs on ranks, or keeps more over its steps than a module does by itself.
bool is_trained(const Cell&);
// The module of a cell; `packed` may be taken away from it.
ModuleSettings module_of(const Cell&, bool packed);

// "parity linear mxfp8 roles=input,weight phase=cached arch=sm90": what differs from the defaults; formats as
// "mxfp8", "mxfp8|nvfp4" (fprop | both gradients) or "a|b|c". Of a factory "parity linear factory=my_hybrid
// phase=cached".
std::string to_text(const Cell&);
// What follows module, formats and roles: "phase=cached arch=sm90"; empty where all is default.
std::string circumstances(const Cell&);
// The formats' column of the table: "mxfp8|nvfp4".
std::string to_text(const GemmFormats&);

}  // namespace assay::training

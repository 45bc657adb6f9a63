// FusedAdam: which kernel updates which parameter, in which order, and what a step keeps beside it (TE
// optimizers/fused_adam.py). The arithmetic of an element is the op `adam` of the Subject (N19), that of
// states in f16 and FP8 the op `scale_state`.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/formats/float8.h"
#include "training/formats/ops.h"

namespace assay::training {

struct AdamOptions {
  F32Bits lr = 0x3A83126F, beta1 = 0x3F666666, beta2 = 0x3F7FBE77, eps = 0x322BCC77, weight_decay = 0;
  bool bias_correction = true, adam_w_mode = true, amsgrad = false, capturable = false,
       master_weights = false, store_param_remainders = false;
  std::optional<bool> set_grad_none;  // deprecated: a warning, and no effect
  // Names of dtypes, since the original is asked for some that it refuses.
  std::string master_weight_dtype = "float32", exp_avg_dtype = "float32", exp_avg_sq_dtype = "float32";
  AdamRounding rounding = AdamRounding::plain;  // N19.2; the original's kernel is neither
};

// A parameter as the optimizer sees it. Two of them are one where their pointers are.
struct Trained {
  Piece value;    // quantized, or plain in f32, bf16 or f16
  ArrayPtr grad;  // null: none
  bool sparse_grad = false;
  Storage* quantized() const;
  const Float8Quantizer* delayed() const;  // of per-tensor FP8 with delayed scaling, else null
  DType nominal() const;
  Dims shape() const;
};
using TrainedPtr = std::shared_ptr<Trained>;

// One state of one parameter. f16 and FP8 hold it divided by `scale`; f32 and int16 have none.
struct AdamState {
  ArrayPtr plain;
  std::shared_ptr<Float8Storage> fp8;
  ArrayPtr scale;
  std::string dtype() const;  // "float32", or "Float8Tensor"
};
struct AdamStates {
  AdamState exp_avg, exp_avg_sq;
  std::optional<AdamState> master;
};

// One launch of a kernel over the parameters of a list.
struct AdamLaunch {
  std::string kernel;
  std::vector<DType> lists;  // the dtype of the first tensor of each list
  size_t tensors = 0;        // of each list
  int64_t step = 0;
  bool fp8 = false;
};

struct AdamGroup {
  std::vector<TrainedPtr> params;
  int64_t step = 0;
};

// Who listens to a step, for records of it. Both may be empty.
struct AdamLog {
  std::function<void(const AdamLaunch&)> launch;
  std::function<void(const Quantizer&)> quantize;  // before every quantization
};

class FusedAdam {
 public:
  // RuntimeError, in this order: amsgrad; a master dtype that is not f32 or f16, with masters; exp_avg, then
  // exp_avg_sq, not f32, f16, bf16 or uint8; capturable with masters not in f32, with moments that are not
  // both f32 or both bf16, with remainders. Remainders are off without f32 masters, silently.
  FusedAdam(Session&, std::vector<AdamGroup> groups, AdamOptions options, AdamLog log = {});

  // exp_avg and exp_avg_sq (zeros), then the master: the parameter dequantized to f32; f16: rounded, under
  // the scale 1 until a step has been made; int16 zeros where remainders are stored and the nominal dtype is
  // bf16. Nothing where the parameter has its states.
  void initialize_state(const TrainedPtr&);
  // Every group in turn. RuntimeError where a gradient is sparse, a quantized parameter has no master, or the
  // dtypes of a group do not go together: by then its `step` has advanced. The kernels of a group run in the
  // order 16-bit, FP8, f32, then quantized parameters are quantized from their masters, then states are
  // scaled.
  void step();

  bool stores_remainders() const { return options_.store_param_remainders; }
  const AdamOptions& options() const { return options_; }
  const std::vector<AdamGroup>& groups() const { return groups_; }
  const AdamStates* states(const TrainedPtr&) const;  // null before the first step
  // A state in f32, as a step reads it (N19.7). bf16 is widened.
  ArrayPtr unscaled(const AdamState&);
  // What a checkpoint holds: every state in f32 (remainders as they are), in the order of the parameters.
  struct Saved {
    std::vector<int64_t> steps;
    std::vector<std::map<std::string, ArrayPtr>> states;
  };
  Saved state_dict();
  // States are scaled anew: f16 and FP8 give the same bytes where the largest magnitude was kept. ValueError
  // where the groups are others. Of a checkpoint without masters an optimizer with masters has none either: a
  // step then ends in a KeyError for every parameter that needs one.
  void load_state_dict(const Saved&);

  // Capturable: what found an overflow in the gradients sets it; at exactly 1 no kernel changes anything, and
  // the next step does not count.
  bool noop_flag = false;

 private:
  struct Work;
  void check() const;
  AdamState make_state(const Dims& shape, const std::string& dtype);
  void store(AdamState&, const ArrayPtr& unscaled);
  bool keeps_remainder(const Trained&) const;
  ArrayPtr operand(const AdamState&, bool keep_bf16);
  void collect(const TrainedPtr&, Work&);
  void launch(const Work&, int64_t step);
  void run_kernel(const std::string& kernel, struct AdamEntry&, int64_t step);
  void write_back(const Work&);

  Session& session_;
  std::vector<AdamGroup> groups_;
  AdamOptions options_;
  AdamLog log_;
  bool fuse_unscale_ = false;
  std::map<TrainedPtr, AdamStates> states_;
};

// A bf16 parameter and the 16 bits that its master has more. Movement of bits alone.
ArrayPtr joined_remainder(const Array& parameter, const Array& remainder);  // f32
struct SplitMaster {
  ArrayPtr parameter, remainder;  // bf16, int16
};
SplitMaster split_remainder(const Array& master);

}  // namespace assay::training

// The contract of quantizers: the objects that a factory returns and a module keeps, one per slot. A
// quantizer holds settings and wishes (usages), no data; quantize() turns a plain Array into a Storage with
// the directions that are wanted. The bytes come from the Session's Subject: vanilla formats write both
// directions in one launch, a HybridQuantizer runs its two children apart, exactly as the original dispatches
// (TE quantized_tensor.py, tensor/*.py). The classes are in the headers of the formats (formats.h).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/problem.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/session.h"

namespace assay::training {

class Storage;
using StoragePtr = std::shared_ptr<Storage>;
class Quantizer;
using QuantizerPtr = std::shared_ptr<Quantizer>;

// Whether a quantizer takes the maximum of its amax over a group before it scales. Part of the call, not of
// the format: modules set it right before quantizing.
struct AmaxReduction {
  bool enabled = false;
  GroupPtr group;
  // This rank's amax where the producer of the tensor has taken it (quantize_with_amax of TE's activations).
  // Without it the quantizer takes it.
  std::optional<F32Bits> local = std::nullopt;
};

struct Usages {
  bool rowwise = false, columnwise = false;
  bool operator==(const Usages&) const = default;
};

class Quantizer : public std::enable_shared_from_this<Quantizer> {
 public:
  bool rowwise_usage = true, columnwise_usage = true;  // what the next quantize or make_empty yields
  bool internal = false;                               // produce the light storage object instead of a tensor
  bool optimize_for_gemm = false;                      // scales may come out swizzled

  virtual ~Quantizer() = default;
  // "MXFP8Quantizer": the original's class.
  virtual std::string_view class_name() const = 0;
  // Every public attribute, by the original's names, with the class under "class"; children of a hybrid
  // recursively.
  virtual json::Value describe() const = 0;
  // A new object with the same settings. Delayed scaling shares its scale and amax.
  virtual QuantizerPtr copy() const = 0;
  // Python reference quantizers: their tensors go to a Python GEMM.
  virtual bool custom() const { return false; }
  // The built-in recipe class that this quantizer belongs to, or "CustomRecipe"; throws NotImplementedError
  // for reference quantizers.
  virtual std::string_view compatible_recipe() const = 0;
  virtual bool supports_only_rowwise_all_gather() const { return false; }
  // Quantizing the same input again gives the same bytes, for the directions wanted now.
  virtual bool is_requantization_safe() const { return false; }
  virtual bool is_quantizable(const Dims&) const { return true; }
  // The switch and group of amax reduction, or null where the class has none.
  virtual AmaxReduction* amax_reduction() { return nullptr; }

  // Nothing keeps the current value. Never touches existing tensors.
  void set_usage(std::optional<bool> rowwise, std::optional<bool> columnwise);
  Usages usages() const { return {rowwise_usage, columnwise_usage}; }

  // x in the directions that are wanted. The result keeps a copy of this quantizer, stripped of its amax
  // group (rule R2 of docs/training.md). With `out` that one is refreshed by update_quantized and returned.
  StoragePtr quantize(Session&, const ArrayPtr& x, const StoragePtr& out = nullptr);
  // Each tensor of a list by itself, in order (TE quantized_tensor.py, multi_quantize).
  std::vector<StoragePtr> multi_quantize(Session&, const std::vector<ArrayPtr>& list);
  // Refreshes dst in place, honouring this quantizer's usages: missing buffers are allocated, buffers that
  // are not wanted removed. A noop flag of exactly 1.0 changes nothing. Throws ValueError or AssertionError,
  // by class, where dst is of another class.
  virtual void update_quantized(Session&, const ArrayPtr& x, Storage& dst,
                                std::optional<F32Bits> noop = std::nullopt) = 0;
  // Uninitialised buffers (they read as the Environment's poison) for the directions that are wanted now.
  // Reference quantizers throw NotImplementedError.
  virtual StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const = 0;
  // Delayed scaling notes the largest magnitude of x; others do nothing.
  virtual void calibrate(Session&, const ArrayPtr&) {}

  // The settings of one direction as the line has them; nothing for hybrids and reference quantizers.
  virtual std::optional<assay::Quantizer> line(Direction) const { return std::nullopt; }
  // Whether two quantizers of this class compare and hash by their fields; others compare by identity.
  virtual bool compared_by_value() const { return false; }
  // The fields by which they do, in alphabetic order: all but the process group. Empty for a class that
  // compares by identity.
  std::vector<std::string> value_fields() const;

 protected:
  virtual StoragePtr quantize_impl(Session&, const ArrayPtr& x) = 0;
};

// Value equality: TypeError where a live process group stands in the way, identity for Identity, delayed and
// hybrid quantizers.
bool equal(const Quantizer& a, const Quantizer& b);
// Equal quantizers hash alike. TypeError as for equal().
size_t hash(const Quantizer&);
// What is serialised: a copy that holds no process group.
QuantizerPtr exported(const Quantizer&);

// What each class says about itself in the same words: its name, its recipe, and a copy. Self has kClass and
// kRecipe.
template <class Self> class QuantizerOf : public Quantizer {
 public:
  std::string_view class_name() const override { return Self::kClass; }
  std::string_view compatible_recipe() const override { return Self::kRecipe; }
  QuantizerPtr copy() const override { return std::make_shared<Self>(static_cast<const Self&>(*this)); }
};

// What a factory may return instead of a quantizer: a wish that the recipe state fulfils.
struct QuantizerRequest {};  // the base class, which no state can fulfil
struct DelayedScalingRequest {
  std::string fp8_format = "HYBRID";
  int margin = 0;
  int amax_history_len = 1024;
  std::string amax_compute_algo = "max";
  std::optional<std::string> scaling_factor_compute_algo;  // a callable has no text form
  bool reduce_amax = true;
  bool operator==(const DelayedScalingRequest&) const = default;
};
json::Value describe(const DelayedScalingRequest&);
// None, a quantizer or a request; the last three stand for what else a caller may pass by mistake.
struct NotAQuantizer {
  std::string what;  // "a number", "a quantizer class"
};
using QuantizerLike =
    std::variant<std::monostate, QuantizerPtr, DelayedScalingRequest, QuantizerRequest, NotAQuantizer>;

}  // namespace assay::training

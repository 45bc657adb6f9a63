// Hybrids: one quantizer for rows and another for columns, and the storage that holds what they make (TE
// tensor/hybrid_tensor.py, tensor/storage/hybrid_tensor_storage.py).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/session.h"
#include "training/formats/quantizer.h"
#include "training/formats/storage.h"

namespace assay::training {

class HybridQuantizer final : public Quantizer {
 public:
  // Checks, in this order, per direction: a request or no quantizer is a TypeError; then: the same object
  // twice, an unknown source are ValueErrors. source: "original" or "rowwise_dequantized". Pins the usages of
  // the given objects: row (true, false), column (false, true).
  HybridQuantizer(const QuantizerLike& rowwise, const QuantizerLike& columnwise,
                  const std::string& source = "original");
  QuantizerPtr rowwise_quantizer, columnwise_quantizer;
  std::string columnwise_source;

  std::string_view class_name() const override { return "HybridQuantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "CustomRecipe"; }
  bool supports_only_rowwise_all_gather() const override;
  bool is_requantization_safe() const override;
  // Read: any child reduces. Written: forwarded to the children that have the attribute.
  bool with_amax_reduction() const;
  void set_with_amax_reduction(bool on);
  // Read: the children's common group; RuntimeError where they disagree.
  GroupPtr amax_reduction_group() const;
  void set_amax_reduction_group(const GroupPtr& group);
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

class HybridStorage final : public Storage {
 public:
  // TypeError where `quantizer` has no two children; keeps a copy of it.
  HybridStorage(StoragePtr rowwise, StoragePtr columnwise, const QuantizerPtr& quantizer,
                DType dtype = DType::float32);
  StoragePtr rowwise_storage, columnwise_storage;
  static constexpr ClassNames kNames{"HybridQuantizedTensor", "HybridQuantizedTensorStorage"};
  ClassNames names() const override { return kNames; }
  std::vector<Field> fields() override;
  Usages present() const override { return {rowwise_storage != nullptr, columnwise_storage != nullptr}; }
  Dims size() const override;
  std::string device() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise)
      override;  // atomic: RuntimeError names the direction, nothing is dropped
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from)
      override;  // NotImplementedError where the directions differ, before anything is written
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
  // NotImplementedError: a hybrid gathers through its children (training/formats/ops.h).
  std::vector<std::string> fsdp_buffer_fields() const override;

 private:
  const Storage& either() const;
};

// Helper decisions of the modules (TE module/_common.py).
// Sets the group right before a quantize, or clears it with null; unwraps observers; nothing where a
// quantizer has no such attribute (rule R1).
void set_amax_reduction_group(Quantizer&, const GroupPtr&);
// Whether the columns of a wgrad input can be rebuilt from the saved original.
bool can_rebuild_wgrad_input(const Quantizer&);
// Usages for an all-gather of the wgrad operand.
Usages wgrad_gather_usages(const Quantizer&);
// Replaces a stored quantizer; RuntimeError for a tensor without one, a UserWarning where the object differs.
void update_quantizer(Session&, Storage&, QuantizerPtr);

}  // namespace assay::training

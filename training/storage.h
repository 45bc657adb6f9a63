// Storages: quantized tensors as named buffers. Each class of the original keeps its own names, presence rules and errors; a hybrid holds two storages and no
// buffer of its own. Behaviour by class: TE tensor/storage/*.py.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fixtures/json.h"
#include "training/quantizer.h"

namespace assay::training {

// A buffer's name and place in its object: "_rowwise_data" and the pointer that holds it, null when absent.
struct Field {
  std::string_view name;
  ArrayPtr* slot;
};
using Saved = std::vector<ArrayPtr>;   // absent buffers keep their place as null

// What FSDP2 gathers of one sub-storage.
struct Extracted {
  std::vector<ArrayPtr> buffers;       // concatenable along dim 0
  json::Value meta;
};

class Storage : public std::enable_shared_from_this<Storage> {
 public:
  QuantizerPtr quantizer;              // a copy of the one that made it; may be null
  DType dtype = DType::float32;        // nominal
  bool is_tensor = true;               // the tensor class rather than the light storage (Quantizer::internal)

  virtual ~Storage() = default;
  virtual std::string_view class_name() const = 0;               // "MXFP8Tensor", "MXFP8TensorStorage"
  // Buffers in the order in which they are saved; of a hybrid those of its rows, then those of its columns.
  virtual std::vector<Field> fields() = 0;
  virtual Usages get_usages() const = 0;                         // by which buffers exist
  virtual Dims size() const = 0;                                 // logical; RuntimeError where nothing is left
  // Nothing leaves a direction alone, true demands it, false drops it.
  virtual void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) = 0;
  // In `to`, or the nominal dtype. Depends on which buffers exist, never on a quantizer's usages.
  virtual ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) = 0;
  virtual Saved prepare_for_saving();                            // the buffers; this object's become null
  virtual size_t restore_from_saved(const Saved&, size_t from);  // index of the first one that was not consumed
  virtual StoragePtr view(const Dims& shape) = 0;
  virtual void clear();
  virtual void copy_from_storage(const Storage& from) = 0;       // TypeError of another class
  // The shapes of the data tensors for the directions asked for; ValueError for neither.
  virtual std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) = 0;
  virtual std::vector<std::string> fsdp_buffer_fields() const = 0;
  virtual Extracted fsdp_extract_buffers() = 0;
  virtual void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) = 0;
};

// Per-tensor FP8. One scale_inv for both planes. What may exist depends on the architecture (Session::tn_only), which each object remembers.
class Float8Storage final : public Storage {
 public:
  explicit Float8Storage(bool tn_only) : tn_only(tn_only) {}
  bool tn_only;
  Encoding fp8_dtype = Encoding::e4m3;
  ArrayPtr data, transpose, scale_inv;
  bool transpose_invalid = true;       // true: the plane must not be read
  std::string_view class_name() const override { return is_tensor ? "Float8Tensor" : "Float8TensorStorage"; }
  std::vector<Field> fields() override;
  Usages get_usages() const override;
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;
  ArrayPtr dequantize(Session&, std::optional<DType> to) override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise, bool columnwise) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

// What the three block-scaled formats share: data and scales by direction.
class BlockScaledStorage : public Storage {
 public:
  Encoding element = Encoding::e4m3;
  ArrayPtr rowwise_data, rowwise_scale_inv, columnwise_data, columnwise_scale_inv;
  bool with_gemm_swizzled_scales = false;
  Usages get_usages() const override { return {rowwise_data != nullptr, columnwise_data != nullptr}; }
};

class MXFP8Storage final : public BlockScaledStorage {
 public:
  std::string_view class_name() const override { return is_tensor ? "MXFP8Tensor" : "MXFP8TensorStorage"; }
  std::vector<Field> fields() override;
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;
  ArrayPtr dequantize(Session&, std::optional<DType> to) override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise, bool columnwise) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

class Float8BlockwiseStorage final : public BlockScaledStorage {
 public:
  bool is_2d = false;
  std::string_view class_name() const override { return is_tensor ? "Float8BlockwiseQTensor" : "Float8BlockwiseQTensorStorage"; }
  std::vector<Field> fields() override;
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;
  ArrayPtr dequantize(Session&, std::optional<DType> to) override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise, bool columnwise) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

class NVFP4Storage final : public BlockScaledStorage {
 public:
  NVFP4Storage() { element = Encoding::e2m1; }
  ArrayPtr amax_rowwise, amax_columnwise;
  bool row_scaled = false, use_4over6 = false;
  int e4m3_max = 448;
  std::string_view class_name() const override { return is_tensor ? "NVFP4Tensor" : "NVFP4TensorStorage"; }
  std::vector<Field> fields() override;
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;
  ArrayPtr dequantize(Session&, std::optional<DType> to) override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise, bool columnwise) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

class IdentityStorage : public Storage {
 public:
  ArrayPtr hp_data;                    // serves both directions
  std::string_view class_name() const override { return is_tensor ? "IdentityTensor" : "IdentityTensorStorage"; }
  std::vector<Field> fields() override;
  Usages get_usages() const override { return {hp_data != nullptr, hp_data != nullptr}; }
  Dims size() const override;
  void update_usage(std::optional<bool>, std::optional<bool>) override {}
  ArrayPtr dequantize(Session&, std::optional<DType> to) override;
  StoragePtr view(const Dims& shape) override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise, bool columnwise) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

class HybridStorage final : public Storage {
 public:
  // TypeError where `quantizer` has no two children; keeps a copy of it.
  HybridStorage(StoragePtr rowwise, StoragePtr columnwise, QuantizerPtr quantizer, DType dtype = DType::float32);
  StoragePtr rowwise_storage, columnwise_storage;
  std::string_view class_name() const override { return is_tensor ? "HybridQuantizedTensor" : "HybridQuantizedTensorStorage"; }
  std::vector<Field> fields() override;
  Usages get_usages() const override { return {rowwise_storage != nullptr, columnwise_storage != nullptr}; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;   // atomic: RuntimeError names the direction, nothing is dropped
  ArrayPtr dequantize(Session&, std::optional<DType> to) override;
  Saved prepare_for_saving() override;
  size_t restore_from_saved(const Saved&, size_t from) override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise, bool columnwise) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

// Whether a cached quantized weight still serves the usages that a forward wants; what each class checks differs (TE module/base.py).
bool workspace_valid(const Storage& cached, const Quantizer& wanted, bool tn_only);

}  // namespace assay::training

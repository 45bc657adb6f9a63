// Storages: quantized tensors as named buffers. Each class of the original keeps its own names, presence rules and errors; a hybrid holds two storages and no
// buffer of its own. Behaviour by class: TE tensor/storage/*.py.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/json.h"
#include "training/formats/quantizer.h"

namespace assay::training {

// A buffer's name and place in its object: "_rowwise_data", or "_rowwise_storage._data" in a hybrid, and the pointer that holds it, null when absent.
struct Field {
  std::string name;
  ArrayPtr* slot;
};
using Saved = std::vector<ArrayPtr>;   // absent buffers keep their place as null

// What FSDP2 gathers of one sub-storage.
struct Extracted {
  std::vector<ArrayPtr> buffers;       // concatenable along dim 0
  json::Value meta;                    // field_names, and what the class needs to put the buffers back
};

class Storage : public std::enable_shared_from_this<Storage> {
 public:
  QuantizerPtr quantizer;              // a copy of the one that made it; may be null
  DType dtype = DType::float32;        // nominal
  bool is_tensor = true;               // the tensor class rather than the light storage (Quantizer::internal)
  GroupPtr amax_reduction_group;       // of per-tensor FP8 and NVFP4: the ranks that hold the other shards, noted by FSDP2 (training/formats/ops.h)

  virtual ~Storage() = default;
  // Keeps a copy of `original`: what later happens to a module's quantizer does not reach a tensor that exists.
  void keep(const QuantizerPtr& original) { quantizer = original ? original->copy() : nullptr; }
  virtual std::string_view class_name() const = 0;               // "MXFP8Tensor", "MXFP8TensorStorage"
  // Buffers in the order in which they are saved; of a hybrid those of its rows, then those of its columns.
  virtual std::vector<Field> fields() = 0;
  // Directions by which buffers exist.
  virtual Usages present() const = 0;
  // The same as the original's method, which the light NVFP4 storage lacks (NotImplementedError).
  virtual Usages get_usages() const { return present(); }
  virtual Dims size() const = 0;                                 // logical; AttributeError or RuntimeError, by class, where nothing is left
  // "cpu": where the buffers live; RuntimeError where nothing is left.
  virtual std::string device() const;
  // Nothing leaves a direction alone, true demands it, false drops it.
  virtual void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) = 0;
  // In `to`, or the nominal dtype. Depends on which buffers exist, never on a quantizer's usages. A new Array, but for Identity's own.
  virtual ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) = 0;
  virtual Saved prepare_for_saving();                            // the buffers; this object's become null
  virtual size_t restore_from_saved(const Saved&, size_t from);  // index of the first one that was not consumed
  // Another object over the same buffers with the same settings; a hybrid's children likewise.
  virtual StoragePtr make_like() const = 0;
  // Another shape over the same bytes, one dimension may be -1; RuntimeError, or NotImplementedError, where the class cannot.
  virtual StoragePtr view(const Dims& shape) = 0;
  // Frees the memory of the buffers, also for those who share the Array; they stay as empty ones.
  virtual void clear();
  virtual void copy_from_storage(const Storage& from) = 0;       // in place, buffers that both have; TypeError of another class, RuntimeError of other settings
  // The data of the directions asked for, null where absent: two, or one where one is asked for; ValueError for neither.
  virtual std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) = 0;
  // The gather protocol of FSDP2: what is sent, in order; the buffers to send; and what to do with their concatenation. NotImplementedError where a class has none.
  virtual std::vector<std::string> fsdp_buffer_fields() const = 0;
  virtual Extracted fsdp_extract_buffers();
  virtual void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta);

 protected:
  // A copy of the object, not of its buffers, with a quantizer of its own and no group.
  template <class S> static std::shared_ptr<S> another(const S& s) {
    auto out = std::make_shared<S>(s);
    out->keep(s.quantizer);
    out->amax_reduction_group = nullptr;
    return out;
  }
};

// Per-tensor FP8. One scale_inv for both planes. What may exist depends on the architecture (Session::tn_only), which each object remembers.
class Float8Storage final : public Storage {
 public:
  explicit Float8Storage(bool tn_only) : tn_only(tn_only) {}
  bool tn_only;
  Encoding fp8_dtype = Encoding::e4m3;
  ArrayPtr data, transpose, scale_inv;
  bool transpose_invalid = true;       // true: the plane must not be read
  bool has_transpose() const { return transpose && !transpose_invalid; }
  std::string_view class_name() const override { return is_tensor ? "Float8Tensor" : "Float8TensorStorage"; }
  std::vector<Field> fields() override;
  Usages present() const override { return {data != nullptr, tn_only ? has_transpose() : data != nullptr}; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  void clear() override;               // keeps scale_inv, which tensors share
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
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
  std::vector<Field> fields() override;
  Usages present() const override { return {rowwise_data != nullptr, columnwise_data != nullptr}; }
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
};

class MXFP8Storage final : public BlockScaledStorage {
 public:
  std::string_view class_name() const override { return is_tensor ? "MXFP8Tensor" : "MXFP8TensorStorage"; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;   // not atomic: rows go before columns are missed
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  void copy_from_storage(const Storage& from) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;
};

class Float8BlockwiseStorage final : public BlockScaledStorage {
 public:
  bool is_2d = false;
  std::string_view class_name() const override { return is_tensor ? "Float8BlockwiseQTensor" : "Float8BlockwiseQTensorStorage"; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;   // AssertionError; 2-D scales yield columns from rows
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  void copy_from_storage(const Storage& from) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;

 private:
  void create_columnwise();
};

class NVFP4Storage final : public BlockScaledStorage {
 public:
  NVFP4Storage() { element = Encoding::e2m1; }
  ArrayPtr amax_rowwise, amax_columnwise;
  bool row_scaled = false, use_4over6 = false;
  int e4m3_max = 448;                  // 256 only under four over six
  // A bound other than 448 counts only with four over six.
  void set_four_over_six(bool use, int max) { use_4over6 = use, e4m3_max = use ? max : 448; }
  std::string_view class_name() const override { return is_tensor ? "NVFP4Tensor" : "NVFP4TensorStorage"; }
  std::vector<Field> fields() override;
  Usages get_usages() const override;
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;   // not atomic; columns from rows with 2-D blocks, by the quantizer
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;            // rows only: NotImplementedError for columns, ValueError for nothing
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  void copy_from_storage(const Storage& from) override;
  std::vector<std::string> fsdp_buffer_fields() const override;

 private:
  void create_columnwise();
};

class IdentityStorage : public Storage {
 public:
  IdentityStorage() = default;
  // The nominal dtype is the payload's unless another is given.
  explicit IdentityStorage(ArrayPtr payload, std::optional<DType> nominal = std::nullopt);
  ArrayPtr hp_data;                    // serves both directions
  std::string_view class_name() const override { return is_tensor ? "IdentityTensor" : "IdentityTensorStorage"; }
  std::vector<Field> fields() override;
  Usages present() const override { return {hp_data != nullptr, hp_data != nullptr}; }
  Dims size() const override;
  void update_usage(std::optional<bool>, std::optional<bool>) override {}
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;   // the payload itself unless another dtype is asked for
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  void copy_from_storage(const Storage& from) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
  std::vector<std::string> fsdp_buffer_fields() const override { return {"_hp_data"}; }
};

class HybridStorage final : public Storage {
 public:
  // TypeError where `quantizer` has no two children; keeps a copy of it.
  HybridStorage(StoragePtr rowwise, StoragePtr columnwise, const QuantizerPtr& quantizer, DType dtype = DType::float32);
  StoragePtr rowwise_storage, columnwise_storage;
  std::string_view class_name() const override { return is_tensor ? "HybridQuantizedTensor" : "HybridQuantizedTensorStorage"; }
  std::vector<Field> fields() override;
  Usages present() const override { return {rowwise_storage != nullptr, columnwise_storage != nullptr}; }
  Dims size() const override;
  std::string device() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;   // atomic: RuntimeError names the direction, nothing is dropped
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override;
  StoragePtr view(const Dims& shape) override;
  void clear() override;
  void copy_from_storage(const Storage& from) override;          // NotImplementedError where the directions differ, before anything is written
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
  // NotImplementedError: a hybrid gathers through its children (training/formats/ops.h).
  std::vector<std::string> fsdp_buffer_fields() const override;

 private:
  const Storage& either() const;
};

// Whether a cached quantized weight still serves the usages that a forward wants; what each class checks differs (TE module/base.py).
bool workspace_valid(const Storage& cached, const Quantizer& wanted, bool tn_only);

}  // namespace assay::training

// The contract of storages: quantized tensors as named buffers. Each class of the original keeps its own
// names, presence rules and errors; a hybrid holds two storages and no buffer of its own. Behaviour by class:
// TE tensor/storage/*.py. The classes are in the headers of the formats (formats.h).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/errors.h"
#include "training/base/session.h"
#include "training/formats/quantizer.h"

namespace assay::training {

// A buffer's name and place in its object: "_rowwise_data", or "_rowwise_storage._data" in a hybrid, and the
// pointer that holds it, null when absent.
struct Field {
  std::string name;
  ArrayPtr* slot;
};
using Saved = std::vector<ArrayPtr>;  // absent buffers keep their place as null

// What FSDP2 gathers of one sub-storage.
struct Extracted {
  std::vector<ArrayPtr> buffers;  // concatenable along dim 0
  json::Value meta;               // field_names, and what the class needs to put the buffers back
};

// What the original calls the tensor class and the light storage: "MXFP8Tensor", "MXFP8TensorStorage".
struct ClassNames {
  std::string_view tensor, light;
};

class Storage : public std::enable_shared_from_this<Storage> {
 public:
  QuantizerPtr quantizer;         // a copy of the one that made it; may be null
  DType dtype = DType::float32;   // nominal
  bool is_tensor = true;          // the tensor class rather than the light storage (Quantizer::internal)
  GroupPtr amax_reduction_group;  // of per-tensor FP8 and NVFP4: the ranks that hold the other shards, noted
                                  // by FSDP2 (training/formats/ops.h)

  ArrayPtr init_value;  // of a parameter: the high-precision values that it was made from, where
                        // somebody asked to preserve them (TE get_high_precision_init_val)

  virtual ~Storage() = default;
  // Keeps a copy of `original`: what later happens to a module's quantizer does not reach a tensor that
  // exists.
  void keep(const QuantizerPtr& original) { quantizer = original ? original->copy() : nullptr; }
  virtual ClassNames names() const = 0;
  std::string_view class_name() const { return is_tensor ? names().tensor : names().light; }
  // Buffers in the order in which they are saved; of a hybrid those of its rows, then those of its columns.
  virtual std::vector<Field> fields() = 0;
  // Directions by which buffers exist.
  virtual Usages present() const = 0;
  // The same as the original's method, which the light NVFP4 storage lacks (NotImplementedError).
  virtual Usages get_usages() const { return present(); }
  virtual Dims size() const = 0;  // logical; AttributeError or RuntimeError, by class, where nothing is left
  // "cpu": where the buffers live; RuntimeError where nothing is left.
  virtual std::string device() const;
  // Nothing leaves a direction alone, true demands it, false drops it.
  virtual void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) = 0;
  // In `to`, or the nominal dtype. Depends on which buffers exist, never on a quantizer's usages. A new
  // Array, but for Identity's own.
  virtual ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) = 0;
  virtual Saved prepare_for_saving();  // the buffers; this object's become null
  virtual size_t restore_from_saved(const Saved&,
                                    size_t from);  // index of the first one that was not consumed
  // Another object over the same buffers with the same settings; a hybrid's children likewise.
  virtual StoragePtr make_like() const = 0;
  // Another shape over the same bytes, one dimension may be -1; RuntimeError, or NotImplementedError, where
  // the class cannot.
  virtual StoragePtr view(const Dims& shape) = 0;
  // Frees the memory of the buffers, also for those who share the Array; they stay as empty ones.
  virtual void clear();
  // In place, buffers that both have; TypeError of another class, RuntimeError of other settings.
  virtual void copy_from_storage(const Storage& from);
  // The data of the directions asked for, null where absent: two, or one where one is asked for; ValueError
  // for neither.
  virtual std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) = 0;
  // The gather protocol of FSDP2: what is sent, in order; the buffers to send; and what to do with their
  // concatenation. NotImplementedError where a class has none.
  virtual std::vector<std::string> fsdp_buffer_fields() const = 0;
  virtual Extracted fsdp_extract_buffers();
  virtual void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta);

 protected:
  // RuntimeError where `from`, of this class, has settings that its bytes depend on and that differ from
  // these.
  virtual void expect_same_settings(const Storage& from) const;
  // "<call>: expected an MXFP8Tensor with <what>, found none left".
  [[noreturn]] void nothing_left(ErrorClass, std::string_view call, std::string_view what = "data") const;
  // A copy of the object, not of its buffers, with a quantizer of its own and no group.
  template <class S> static std::shared_ptr<S> another(const S& s) {
    auto out = std::make_shared<S>(s);
    out->keep(s.quantizer);
    out->amax_reduction_group = nullptr;
    out->init_value = nullptr;
    return out;
  }
};

// The storage as one of class S; null where it is of another class.
template <class S> S* storage_as(Storage& s) { return dynamic_cast<S*>(&s); }
template <class S> S* storage_as(const StoragePtr& s) { return dynamic_cast<S*>(s.get()); }

// Whether a cached quantized weight still serves the usages that a forward wants; what each class checks
// differs (TE module/base.py).
bool workspace_valid(const Storage& cached, const Quantizer& wanted, bool tn_only);

}  // namespace assay::training

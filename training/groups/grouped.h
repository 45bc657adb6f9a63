// GroupedTensor: n matrices that share one quantizer and one set of flat buffers, as the weights or the
// inputs of a group of experts do. Each member is a contiguous chunk of every buffer, with scales padded
// member by member (TE tensor/storage/grouped_tensor_storage.py, tensor/grouped_tensor.py).
//
// Member i begins at element offset sum of (m_j k_j), j < i. What varies decides the logical shape:
//   uniform   (n m, k)      first   (sum of m_i, k)      last   (m, sum of k_i), by size, not by column
//             slices      both   (1, sum of m_i k_i)
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/problem.h"
#include "training/base/session.h"
#include "training/formats/matmul.h"
#include "training/formats/quantizer.h"
#include "training/formats/storage.h"

namespace assay::training {

class GroupedTensor;
using GroupedTensorPtr = std::shared_ptr<GroupedTensor>;
// Host offsets, n + 1 of them, in elements; nothing where the buffer they index is absent.
using Offsets = std::optional<std::vector<int64_t>>;

class GroupedTensor {
 public:
  int64_t num_tensors = 0;
  Shape logical_shape;
  std::vector<Dims> tensor_shapes;  // (rows, cols), or (elements) of a 1-D member
  QuantizerPtr quantizer;  // the given object, for all members; members hold copies. Null: high precision
  DType fake_dtype = DType::float32;  // nominal
  bool is_tensor = true;              // the tensor class; the light storage where the quantizer is internal
  ArrayPtr rowwise_data,
      columnwise_data;  // 1-D, as are all buffers: uint8, or the nominal dtype without a quantizer
  ArrayPtr scale_inv, columnwise_scale_inv;  // one and the same under current scaling
  ArrayPtr amax, columnwise_amax, scale;     // float32, by format
  ArrayPtr first_dims, last_dims;            // int64 [n]; null where all members agree
  ArrayPtr tensor_offsets;                   // int64 [n + 1], the first is 0; null where nothing varies
  Offsets offsets, scale_inv_offsets, columnwise_scale_inv_offsets;
  std::vector<Tensorlike> quantized_tensors;  // the members, views of the buffers
  bool with_gemm_swizzled_scales = false, row_scaled_nvfp4 = false, nvfp4_use_4over6 = false;
  int nvfp4_e4m3_max = 448;

  std::string_view class_name() const { return is_tensor ? "GroupedTensor" : "GroupedTensorStorage"; }
  // The seven buffers of values, by name, absent ones included.
  std::vector<Field> buffers();
  // What the tensor class shows outwards: (n, m, k) where nothing varies, (n, m) of 1-D members, else the
  // logical shape.
  Dims shape() const;

  bool has_data() const { return rowwise_data != nullptr; }
  bool has_columnwise_data() const { return columnwise_data != nullptr; }
  bool all_same_first_dim() const { return !first_dims; }
  bool all_same_last_dim() const { return !last_dims; }
  bool all_same_shape() const { return !first_dims && !last_dims; }
  bool varying_both_dims() const { return first_dims && last_dims; }
  // RuntimeError where members differ in it.
  int64_t get_common_first_dim() const;
  int64_t get_common_last_dim() const;

  // The members as views of the buffers; plain Arrays without a quantizer. Sets the host offsets.
  std::vector<Tensorlike> split_into_quantized_tensors(Session&);
  // Quantizes `tensors`, one for each member, in place: no buffer moves. A noop flag of exactly 1.0 changes
  // nothing. Each member of a delayed group notes its amax in its own slot of `amax`. Returns the members.
  // ValueError for another number of tensors, or without a quantizer.
  const std::vector<Tensorlike>& quantize(Session&, const std::vector<ArrayPtr>& tensors,
                                          std::optional<F32Bits> noop = std::nullopt);
  // Every member in its plain values.
  std::vector<ArrayPtr> dequantize(Session&, std::optional<DType> to = std::nullopt);
  // The tensor class's arithmetic in place: dequantize, compute, quantize again, member by member.
  // NotImplementedError where shapes vary.
  void update_in_place(Session&, const std::function<ArrayPtr(const ArrayPtr&)>& compute);
  // The one change of shape that the tensor class has: to one dimension. RuntimeError for any other.
  ArrayPtr view(const Dims& shape) const;

  // Buffers, then first_dims, last_dims and tensor_offsets; absent ones keep their place. This object's
  // become null, and its members with them.
  Saved prepare_for_saving();
  // Index of the first one that was not consumed.
  size_t restore_from_saved(const Saved&, size_t from = 0);
  // No members, no buffers, a logical shape of (0, 0).
  void clear();
};

// How members are laid out. `first_dims` and `last_dims` hold n sizes where they vary.
struct GroupedLayout {
  int64_t num_tensors = 0;
  std::optional<std::vector<int64_t>> first_dims, last_dims;
  Shape logical;  // may be larger than the members: then buffers of data are over-allocated
};
GroupedLayout layout_of(const std::vector<Shape>& members);

// Uninitialised buffers for the quantizer's usages, and the members over them. `dtype` is the nominal one,
// and that of the data without a quantizer. `capturing`: a stream is being captured into a graph. Throws
// AssertionError for a bad logical shape or, without a quantizer, no dtype; NotImplementedError for Identity
// and Hybrid; ValueError for other quantizers that no built-in recipe has, for sizes that vary while
// capturing, and for row-scaled NVFP4 without rows or with columns.
GroupedTensorPtr make_grouped_tensor(Session&, const GroupedLayout&, const QuantizerPtr& quantizer,
                                     std::optional<DType> dtype = DType::float32, bool capturing = false);
// The same from the members' shapes.
GroupedTensorPtr make_grouped_tensor_with_shapes(Session&, const std::vector<Shape>& members,
                                                 const QuantizerPtr& quantizer,
                                                 std::optional<DType> dtype = DType::float32);
// A group in high precision over a buffer that exists: n members of `tensor_shape`, which has one dimension
// or two. ValueError for no members, no buffer, or one of another size.
GroupedTensorPtr make_grouped_tensor_from_rowwise_data(int64_t num_tensors, const Dims& tensor_shape,
                                                       const ArrayPtr& rowwise_data, bool internal = false);

// int64 [n + 1]: where each split begins in elements, the first 0 (TE csrc/extensions/cast.cpp).
ArrayPtr splits_to_offsets(const std::vector<int64_t>& split_dims, int64_t common_dim);
ArrayPtr int64_array(const std::vector<int64_t>& values);
std::vector<int64_t> int64_values(const Array& array);

}  // namespace assay::training

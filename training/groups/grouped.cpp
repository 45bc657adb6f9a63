#include "training/groups/grouped.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "training/formats/formats.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

[[noreturn]] void raise(ErrorClass c, const std::string& what) { throw SemanticError(c, what); }

// What a built-in recipe's groups keep beside data and scales by direction.
struct GroupFormat {
  std::string_view recipe;
  bool by_architecture;  // which data exist depends on the GEMMs' layouts as well (Session::tn_only)
  bool one_scale_inv;    // both directions share the buffer
  bool amax, scale;      // one for each member
};
constexpr std::array kFormats = {
    GroupFormat{"MXFP8BlockScaling", false, false, false, false},
    GroupFormat{"NVFP4BlockScaling", false, false, false, false},
    GroupFormat{"Float8BlockScaling", false, false, false, false},
    GroupFormat{"DelayedScaling", false, false, true, false},
    GroupFormat{"Float8CurrentScaling", true, true, true, true},
};

const GroupFormat& format_of(const Quantizer& q) {
  if (dynamic_cast<const IdentityQuantizer*>(&q) || dynamic_cast<const HybridQuantizer*>(&q))
    raise(ErrorClass::not_implemented_error,
          "grouped tensor: expected a quantizer with one format for all members, found " +
              std::string(q.class_name()) + "; keep separate tensors for Identity and Hybrid quantizers");
  const std::string_view recipe = q.compatible_recipe();
  const auto at = std::find_if(kFormats.begin(), kFormats.end(),
                               [&](const GroupFormat& f) { return f.recipe == recipe; });
  if (at == kFormats.end())
    raise(ErrorClass::value_error, "grouped tensor: expected the quantizer of a built-in recipe, found " +
                                       std::string(q.class_name()) + " of " + std::string(recipe));
  return *at;
}

// Where a member's field stands: the buffers that may hold it, the first that exists.
struct Place {
  std::string_view field;
  ArrayPtr GroupedTensor::*buffer;
  ArrayPtr GroupedTensor::*otherwise = nullptr;
};
constexpr std::array kPlaces = {
    Place{"_data", &GroupedTensor::rowwise_data},
    Place{"_transpose", &GroupedTensor::columnwise_data},
    Place{"_scale_inv", &GroupedTensor::scale_inv, &GroupedTensor::columnwise_scale_inv},
    Place{"_rowwise_data", &GroupedTensor::rowwise_data},
    Place{"_rowwise_scale_inv", &GroupedTensor::scale_inv},
    Place{"_columnwise_data", &GroupedTensor::columnwise_data},
    Place{"_columnwise_scale_inv", &GroupedTensor::columnwise_scale_inv},
    Place{"_amax_rowwise", &GroupedTensor::amax},
    Place{"_amax_columnwise", &GroupedTensor::columnwise_amax},
};
const Place& place_of(std::string_view field) {
  return *std::find_if(kPlaces.begin(), kPlaces.end(), [&](const Place& p) { return p.field == field; });
}
bool is_data(const Place& p) {
  return p.buffer == &GroupedTensor::rowwise_data || p.buffer == &GroupedTensor::columnwise_data;
}

// Both directions' fields of a member as its own storage would have them.
std::vector<BufferShape> member_fields(const Quantizer& q, const Dims& shape) {
  return allocated(q, shape, {true, true}, DType::float32, true);
}

Offsets running(const std::vector<Dims>& shapes) {
  std::vector<int64_t> out{0};
  for (const Dims& s : shapes) out.push_back(out.back() + count_of(s));
  return out;
}

// The dtype, and elements for each member of the tensor's field `field`.
struct FieldSizes {
  DType dtype = DType::uint8;
  std::vector<int64_t> offsets{0};
};
FieldSizes sizes_of(const Quantizer& q, const std::vector<Dims>& shapes, std::string_view field) {
  FieldSizes out;
  for (const Dims& shape : shapes)
    for (const BufferShape& b : member_fields(q, shape))
      if (b.name == field) out.dtype = b.dtype, out.offsets.push_back(out.offsets.back() + count_of(b.shape));
  return out;
}

ArrayPtr part_of(const ArrayPtr& buffer, int64_t from, const Dims& shape) {
  return view(slice(buffer, 0, from, from + count_of(shape)), shape);
}

std::vector<Dims> shapes_of(const GroupedLayout& layout) {
  const int64_t n = layout.num_tensors;
  std::vector<Dims> out;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t rows = layout.first_dims  ? (*layout.first_dims)[at]
                         : layout.last_dims ? layout.logical.rows
                                            : layout.logical.rows / n;
    out.push_back({rows, layout.last_dims ? (*layout.last_dims)[at] : layout.logical.cols});
  }
  return out;
}

// Buffers of a quantized group, by the sizes of the members' own.
void allocate(Session& session, GroupedTensor& g, const Quantizer& q) {
  const GroupFormat& format = format_of(q);
  const Usages wanted = q.usages();
  if (const auto* fp4 = dynamic_cast<const NVFP4Quantizer*>(&q)) {
    if (fp4->row_scaled_nvfp4 && !wanted.rowwise)
      raise(ErrorClass::value_error,
            "grouped tensor: expected rowwise usage with row-scaled NVFP4, found it off");
    if (fp4->row_scaled_nvfp4 && wanted.columnwise)
      raise(ErrorClass::value_error,
            "grouped tensor: expected no columnwise usage with row-scaled NVFP4, found it on");
    g.row_scaled_nvfp4 = fp4->row_scaled_nvfp4;
    g.nvfp4_use_4over6 = fp4->nvfp4_use_4over6;
    g.nvfp4_e4m3_max = fp4->nvfp4_e4m3_max;
  }
  const bool tn_only = session.tn_only();
  const Usages made =
      format.by_architecture ? Usages{wanted.rowwise || !tn_only, wanted.columnwise && tn_only} : wanted;
  const auto buffer = [&](int64_t elements, DType dtype) {
    return empty({elements}, dtype, std::byte{session.environment.poison});
  };
  const auto allocate_for = [&](std::string_view field, ArrayPtr& slot, Offsets* offsets) {
    const FieldSizes sizes = sizes_of(q, g.tensor_shapes, field);
    if (sizes.offsets.size() == 1) return;  // the format has no such field
    if (!slot) slot = buffer(sizes.offsets.back(), sizes.dtype);
    if (offsets) *offsets = sizes.offsets;
  };
  const FormatInfo& codes = info(q.line(Direction::row)->format);
  const bool per_tensor = codes.per_tensor_fp8();
  const int64_t n = g.num_tensors, data = g.logical_shape.count() / (codes.packed() ? 2 : 1);
  if (made.rowwise) {
    g.rowwise_data = buffer(data, DType::uint8);
    allocate_for(per_tensor ? "_scale_inv" : "_rowwise_scale_inv", g.scale_inv, &g.scale_inv_offsets);
    allocate_for("_amax_rowwise", g.amax, nullptr);
  }
  if (made.columnwise) {
    g.columnwise_data = buffer(data, DType::uint8);
    if (format.one_scale_inv) g.columnwise_scale_inv = g.scale_inv;
    allocate_for(per_tensor ? "_scale_inv" : "_columnwise_scale_inv", g.columnwise_scale_inv,
                 &g.columnwise_scale_inv_offsets);
    allocate_for("_amax_columnwise", g.columnwise_amax, nullptr);
  }
  if (format.amax) g.amax = zeros({n}, DType::float32);  // delayed scaling accumulates into it
  if (format.scale) g.scale = buffer(n, DType::float32);
}

constexpr std::array kSaved = {
    &GroupedTensor::rowwise_data, &GroupedTensor::columnwise_data,
    &GroupedTensor::scale_inv,    &GroupedTensor::columnwise_scale_inv,
    &GroupedTensor::amax,         &GroupedTensor::columnwise_amax,
    &GroupedTensor::scale,        &GroupedTensor::first_dims,
    &GroupedTensor::last_dims,    &GroupedTensor::tensor_offsets,
};

}  // namespace

ArrayPtr int64_array(const std::vector<int64_t>& values) {
  return from_bytes({static_cast<int64_t>(values.size())}, DType::int64, std::as_bytes(std::span(values)));
}

std::vector<int64_t> int64_values(const Array& array) {
  if (array.dtype != DType::int64)
    raise(ErrorClass::type_error,
          "grouped tensor: expected sizes as int64, found " + std::string(name_of(array.dtype)));
  std::vector<int64_t> out(static_cast<size_t>(array.count()));
  if (!out.empty()) std::memcpy(out.data(), array.bytes().data(), out.size() * sizeof(int64_t));
  return out;
}

ArrayPtr splits_to_offsets(const std::vector<int64_t>& split_dims, int64_t common_dim) {
  std::vector<int64_t> out{0};
  for (int64_t d : split_dims) out.push_back(out.back() + d * common_dim);
  return int64_array(out);
}

std::vector<Field> GroupedTensor::buffers() {
  return {{"rowwise_data", &rowwise_data},
          {"columnwise_data", &columnwise_data},
          {"scale_inv", &scale_inv},
          {"columnwise_scale_inv", &columnwise_scale_inv},
          {"amax", &amax},
          {"columnwise_amax", &columnwise_amax},
          {"scale", &scale}};
}

Dims GroupedTensor::shape() const {
  if (!all_same_shape() || tensor_shapes.empty()) return {logical_shape.rows, logical_shape.cols};
  Dims out = tensor_shapes.front();
  out.insert(out.begin(), num_tensors);
  return out;
}

int64_t GroupedTensor::get_common_first_dim() const {
  if (first_dims || tensor_shapes.empty())
    raise(ErrorClass::runtime_error,
          "grouped tensor: members have no first dimension in common; look at tensor_shapes");
  return tensor_shapes.front().front();
}

int64_t GroupedTensor::get_common_last_dim() const {
  if (last_dims || tensor_shapes.empty())
    raise(ErrorClass::runtime_error,
          "grouped tensor: members have no last dimension in common; look at tensor_shapes");
  return tensor_shapes.front().back();
}

std::vector<Tensorlike> GroupedTensor::split_into_quantized_tensors(Session& session) {
  offsets = running(tensor_shapes);
  std::vector<Tensorlike> out;
  if (!quantizer) {
    for (size_t i = 0; i < tensor_shapes.size(); ++i)
      out.emplace_back(part_of(rowwise_data, (*offsets)[i], tensor_shapes[i]));
    return out;
  }
  const int64_t codes_in_a_byte = info(quantizer->line(Direction::row)->format).packed() ? 2 : 1;
  std::array<int64_t, kPlaces.size()> at{};
  for (size_t i = 0; i < tensor_shapes.size(); ++i) {
    const StoragePtr member =
        quantizer->make_empty(session, {0, 0}, fake_dtype);  // the class and its settings
    member->keep(quantizer);
    for (Field& f : member->fields()) *f.slot = nullptr;
    for (const BufferShape& field : member_fields(*quantizer, tensor_shapes[i])) {
      const Place& place = place_of(field.name);
      ArrayPtr buffer = this->*place.buffer;
      if (!buffer && place.otherwise) buffer = this->*place.otherwise;
      int64_t& from = at[static_cast<size_t>(&place - kPlaces.data())];
      const int64_t here = is_data(place) ? (*offsets)[i] / codes_in_a_byte : from;
      from += count_of(field.shape);
      if (!buffer) continue;
      for (Field& f : member->fields())
        if (f.name == field.name) *f.slot = part_of(buffer, here, field.shape);
    }
    if (auto* fp8 = dynamic_cast<Float8Storage*>(member.get())) fp8->transpose_invalid = !fp8->transpose;
    if (auto* blocks = dynamic_cast<BlockScaledStorage*>(member.get()))
      blocks->with_gemm_swizzled_scales = with_gemm_swizzled_scales;
    out.emplace_back(member);
  }
  return out;
}

const std::vector<Tensorlike>& GroupedTensor::quantize(Session& session, const std::vector<ArrayPtr>& tensors,
                                                       std::optional<F32Bits> noop) {
  if (!quantizer) raise(ErrorClass::value_error, "grouped quantize: expected a quantizer, found none");
  if (tensors.size() != tensor_shapes.size())
    raise(ErrorClass::value_error, "grouped quantize: expected " + std::to_string(tensor_shapes.size()) +
                                       " tensors, found " + std::to_string(tensors.size()));
  if (quantized_tensors.empty()) quantized_tensors = split_into_quantized_tensors(session);
  for (size_t i = 0; i < tensors.size(); ++i) {
    QuantizerPtr one = quantizer;
    if (dynamic_cast<const Float8Quantizer*>(one.get())) {
      one = quantizer->copy();
      static_cast<Float8Quantizer&>(*one).amax =
          slice(amax, 0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    }
    one->update_quantized(session, tensors[i], *std::get<StoragePtr>(quantized_tensors[i]), noop);
  }
  return quantized_tensors;
}

std::vector<ArrayPtr> GroupedTensor::dequantize(Session& session, std::optional<DType> to) {
  if (quantized_tensors.empty()) quantized_tensors = split_into_quantized_tensors(session);
  std::vector<ArrayPtr> out;
  for (const Tensorlike& member : quantized_tensors)
    out.push_back(plain(session, member, to.value_or(fake_dtype)));
  return out;
}

void GroupedTensor::update_in_place(Session& session,
                                    const std::function<ArrayPtr(const ArrayPtr&)>& compute) {
  if (!all_same_shape())
    raise(ErrorClass::not_implemented_error,
          "grouped tensor: arithmetic in place expects members of one shape, found several");
  std::vector<ArrayPtr> results;
  for (const ArrayPtr& member : dequantize(session)) results.push_back(compute(member));
  if (quantizer) {
    quantize(session, results);
    return;
  }
  for (size_t i = 0; i < results.size(); ++i)
    copy_into(*results[i], *std::get<ArrayPtr>(quantized_tensors[i]));
}

ArrayPtr GroupedTensor::view(const Dims& to) const {
  const int64_t elements = count_of(shape());
  if (to.size() != 1 || (to[0] != -1 && to[0] != elements))
    raise(ErrorClass::runtime_error, "grouped tensor: expected a view of one dimension, (-1), found one of " +
                                         std::to_string(to.size()) + "; take the members instead");
  const ArrayPtr& data = rowwise_data ? rowwise_data : columnwise_data;
  if (!data) raise(ErrorClass::runtime_error, "grouped tensor: expected data to view, found none");
  return training::view(data, {data->count()});
}

Saved GroupedTensor::prepare_for_saving() {
  Saved out;
  for (const auto slot : kSaved) out.push_back(std::exchange(this->*slot, nullptr));
  quantized_tensors.clear();
  return out;
}

size_t GroupedTensor::restore_from_saved(const Saved& saved, size_t from) {
  if (saved.size() - std::min(from, saved.size()) < kSaved.size())
    raise(ErrorClass::value_error, "grouped tensor: expected " + std::to_string(kSaved.size()) +
                                       " saved buffers, found " +
                                       std::to_string(saved.size() - std::min(from, saved.size())));
  for (const auto slot : kSaved) this->*slot = saved[from++];
  return from;
}

void GroupedTensor::clear() {
  for (const auto slot : kSaved) this->*slot = nullptr;
  num_tensors = 0;
  logical_shape = {};
  tensor_shapes.clear();
  quantizer = nullptr;
  quantized_tensors.clear();
  offsets = scale_inv_offsets = columnwise_scale_inv_offsets = std::nullopt;
}

GroupedLayout layout_of(const std::vector<Shape>& members) {
  GroupedLayout out;
  out.num_tensors = static_cast<int64_t>(members.size());
  if (members.empty()) return out;
  std::vector<int64_t> rows, cols;
  for (Shape m : members) rows.push_back(m.rows), cols.push_back(m.cols);
  const auto differs = [](const std::vector<int64_t>& v) {
    return std::any_of(v.begin(), v.end(), [&](int64_t d) { return d != v[0]; });
  };
  const int64_t all_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0}),
                all_cols = std::accumulate(cols.begin(), cols.end(), int64_t{0});
  if (differs(rows)) out.first_dims = rows;
  if (differs(cols)) out.last_dims = cols;
  if (out.first_dims && out.last_dims)
    out.logical = {1, std::inner_product(rows.begin(), rows.end(), cols.begin(), int64_t{0})};
  else out.logical = out.last_dims ? Shape{rows[0], all_cols} : Shape{all_rows, cols[0]};
  return out;
}

GroupedTensorPtr make_grouped_tensor(Session& session, const GroupedLayout& layout,
                                     const QuantizerPtr& quantizer, std::optional<DType> dtype,
                                     bool capturing) {
  const int64_t n = layout.num_tensors;
  if (quantizer) format_of(*quantizer);
  if (layout.logical.rows < 0 || layout.logical.cols <= 0)
    raise(ErrorClass::assertion_error,
          "grouped tensor: expected a logical shape with at least 0 rows and at least 1 column, found (" +
              std::to_string(layout.logical.rows) + ", " + std::to_string(layout.logical.cols) + ")");
  if (!quantizer && !dtype)
    raise(ErrorClass::assertion_error,
          "grouped tensor: expected a dtype for a group in high precision, found none");
  for (const auto& dims : {layout.first_dims, layout.last_dims}) {
    if (!dims) continue;
    if (capturing)
      raise(ErrorClass::value_error,
            "grouped tensor: sizes that vary are read by the host, which a stream being captured cannot wait "
            "for; make the group before the capture");
    if (static_cast<int64_t>(dims->size()) != n)
      raise(ErrorClass::value_error, "grouped tensor: expected " + std::to_string(n) + " sizes, found " +
                                         std::to_string(dims->size()));
  }
  auto out = std::make_shared<GroupedTensor>();
  out->num_tensors = n;
  out->logical_shape = layout.logical;
  out->tensor_shapes = shapes_of(layout);
  out->quantizer = quantizer;
  out->fake_dtype = dtype.value_or(DType::float32);
  out->is_tensor = !quantizer || !quantizer->internal;
  if (layout.first_dims) out->first_dims = int64_array(*layout.first_dims);
  if (layout.last_dims) out->last_dims = int64_array(*layout.last_dims);
  const Offsets offsets = running(out->tensor_shapes);
  if (!out->all_same_shape()) out->tensor_offsets = int64_array(*offsets);
  if (offsets->back() > layout.logical.count())
    raise(ErrorClass::value_error, "grouped tensor: expected members of at most " +
                                       std::to_string(layout.logical.count()) + " elements together, found " +
                                       std::to_string(offsets->back()));
  if (quantizer) allocate(session, *out, *quantizer);
  else out->rowwise_data = empty({layout.logical.count()}, *dtype, std::byte{session.environment.poison});
  out->quantized_tensors = out->split_into_quantized_tensors(session);
  return out;
}

GroupedTensorPtr make_grouped_tensor_with_shapes(Session& session, const std::vector<Shape>& members,
                                                 const QuantizerPtr& quantizer, std::optional<DType> dtype) {
  return make_grouped_tensor(session, layout_of(members), quantizer, dtype);
}

GroupedTensorPtr make_grouped_tensor_from_rowwise_data(int64_t num_tensors, const Dims& tensor_shape,
                                                       const ArrayPtr& rowwise_data, bool internal) {
  if (num_tensors <= 0)
    raise(ErrorClass::value_error,
          "grouped tensor: expected at least one member, found " + std::to_string(num_tensors));
  if (tensor_shape.empty() || tensor_shape.size() > 2)
    raise(ErrorClass::value_error, "grouped tensor: expected members of one dimension or two, found " +
                                       std::to_string(tensor_shape.size()));
  if (!rowwise_data) raise(ErrorClass::value_error, "grouped tensor: expected a buffer to wrap, found none");
  const int64_t each = count_of(tensor_shape);
  if (rowwise_data->count() != num_tensors * each)
    raise(ErrorClass::value_error, "grouped tensor: expected a buffer of " +
                                       std::to_string(num_tensors * each) + " elements, found " +
                                       std::to_string(rowwise_data->count()));
  auto out = std::make_shared<GroupedTensor>();
  out->num_tensors = num_tensors;
  out->logical_shape = {num_tensors * tensor_shape[0], tensor_shape.size() == 2 ? tensor_shape[1] : 1};
  out->tensor_shapes.assign(static_cast<size_t>(num_tensors), tensor_shape);
  out->fake_dtype = rowwise_data->dtype;
  out->is_tensor = !internal;
  out->rowwise_data = training::view(rowwise_data, {rowwise_data->count()});
  out->offsets = running(out->tensor_shapes);
  for (int64_t i = 0; i < num_tensors; ++i)
    out->quantized_tensors.emplace_back(part_of(out->rowwise_data, i * each, tensor_shape));
  return out;
}

}  // namespace assay::training

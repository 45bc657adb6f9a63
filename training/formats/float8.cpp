// Per-tensor FP8 (TE tensor/storage/float8_tensor_storage.py, tensor/float8_tensor.py).
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

// How a gather carries the bytes: as they are, or a transpose turned so that shards concatenate along dim 0.
constexpr std::string_view kNative = "native", kColumnwise = "columnwise_m_major";

[[noreturn]] void fail(const string& what) { throw SemanticError(ErrorClass::runtime_error, what); }

}  // namespace

std::vector<Field> Float8Storage::fields() { return {{"_data", &data}, {"_transpose", &transpose}, {"_scale_inv", &scale_inv}}; }

Dims Float8Storage::size() const {
  if (data) return data->shape;
  if (transpose) return turned_back(transpose->shape);
  throw SemanticError(ErrorClass::attribute_error, "size: expected a Float8Tensor with data or a transpose, found neither");
}

void Float8Storage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  bool needs_data = data != nullptr, needs_transpose = has_transpose();
  if (tn_only) {
    needs_data = rowwise.value_or(needs_data);
    needs_transpose = columnwise.value_or(needs_transpose);
  } else {   // GEMMs read the one plane either way
    needs_data |= rowwise.value_or(false) || columnwise.value_or(false);
    needs_transpose = false;
  }
  if (needs_data && !data) fail("update_usage: expected the FP8 data, found only what may be a transpose, which is never turned back; quantize again");
  if (needs_transpose && !has_transpose()) {
    if (!data) fail("update_usage: expected FP8 data to make the transpose from, found none; quantize again");
    const ArrayPtr made = last_to_front(data);
    if (transpose && transpose->shape == made->shape) copy_into(*made, *transpose);   // a plane that is held is refreshed in place
    else transpose = made;
    transpose_invalid = false;
  }
  if (!needs_data) data = nullptr;
  if (!needs_transpose) {
    transpose = nullptr;
    transpose_invalid = true;
  }
}

ArrayPtr Float8Storage::dequantize(Session& session, std::optional<DType> to) {
  if (!data && !has_transpose()) fail("dequantize: expected a Float8Tensor with data or a valid transpose, found neither");
  assay::Quantizer q;
  q.format = FormatId::fp8_current;
  q.element = fp8_dtype;
  return dequantized(session, q, data ? Direction::row : Direction::col, size(), to.value_or(dtype), {data ? data : transpose, scale_inv, nullptr});
}

StoragePtr Float8Storage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  if (!data && wanted != now)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "view: expected the shape of a Float8Tensor that holds only its transpose, found another; nothing to do but dequantize");
  auto out = another(*this);
  if (data) out->data = training::view(data, wanted);
  if (!has_transpose() || wanted != now) {
    out->transpose = nullptr;
    out->transpose_invalid = true;
  }
  return out;
}

void Float8Storage::clear() {
  const ArrayPtr shared = scale_inv;
  scale_inv = nullptr;
  Storage::clear();
  scale_inv = shared;
  transpose_invalid = true;
}

void Float8Storage::copy_from_storage(const Storage& from) {
  const auto* src = dynamic_cast<const Float8Storage*>(&from);
  if (!src) throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected a Float8TensorStorage, found a " + string(from.class_name()));
  expect_same(fp8_dtype == src->fp8_dtype, "Float8TensorStorage", "FP8 dtype");
  copy_optional(src->data, data);
  copy_optional(src->transpose, transpose);
  copy_optional(src->scale_inv, scale_inv);
}

std::vector<ArrayPtr> Float8Storage::get_data_tensors(bool rowwise, bool columnwise) {
  if (!rowwise && !columnwise) throw SemanticError(ErrorClass::value_error, "get_data_tensors: expected a direction, found neither asked for");
  if (rowwise && columnwise) return {data, transpose};
  return {rowwise ? data : transpose};
}

std::vector<string> Float8Storage::fsdp_buffer_fields() const { return {!data && transpose ? "_transpose" : "_data"}; }

// The scale is not gathered: shards share one, and a refresh writes it in place.
Extracted Float8Storage::fsdp_extract_buffers() {
  const std::vector<string> names = fsdp_buffer_fields();
  const bool columns = names[0] == "_transpose";
  if (columns && transpose_invalid) fail("fsdp: expected a valid transpose of a Float8Tensor without data, found a stale one; quantize again");
  Extracted out;
  out.buffers.push_back(columns ? front_to_last(transpose) : data);
  out.meta = json::object({{"field_names", names_as_json(names)}, {"transport_layout", columns ? kColumnwise : kNative}});
  return out;
}

void Float8Storage::fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) {
  const json::Value* names = meta.find("field_names");
  const bool names_transpose = names && names->array() && names->array()->size() == 1 && (*names->array())[0] == json::Value("_transpose");
  const std::string_view layout = meta.find("transport_layout") ? meta.text("transport_layout") : kNative;
  if (layout == kColumnwise) {
    if (!names_transpose || buffers.size() != 1 || !buffers[0])
      fail("fsdp: expected the one buffer _transpose in layout " + string(kColumnwise) + ", found something else");
    transpose = last_to_front(buffers[0]);
    data = nullptr;
    transpose_invalid = false;
    return;
  }
  if (layout != kNative) fail("fsdp: expected the layout " + string(kNative) + " or " + string(kColumnwise) + ", found " + string(layout));
  Storage::fsdp_assign_gathered(buffers, meta);
  if (names_transpose) transpose_invalid = false;
}

}  // namespace assay::training

// Per-tensor FP8 (TE tensor/storage/float8_tensor_storage.py, tensor/float8_tensor.py).
#include "training/formats/float8.h"

#include <bit>
#include <utility>

#include "training/base/f32.h"
#include "training/formats/describe.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

using namespace kernels;
using enum ErrorClass;
using assay::Direction;
using std::string;

namespace {

// How a gather carries the bytes: as they are, or a transpose turned so that shards concatenate along dim 0.
constexpr std::string_view kNative = "native", kColumnwise = "columnwise_m_major";

// The planes that exist: where GEMMs read either layout, the one of the rows serves both directions.
Usages planes_of(const Session& session, Usages u) { return session.tn_only() ? u : Usages{true, false}; }

void check_columns_alone(const Session& session, const Quantizer& q) {
  if (session.tn_only() && !session.stand_ins && q.columnwise_usage && !q.rowwise_usage)  // exclusion E8
    fail(not_implemented_error, q,
         "columns alone: per-tensor FP8 kernels write a transpose only together with the rows; turn rowwise "
         "usage "
         "on, or run on an architecture that needs no transpose");
}

void fill_per_tensor(Session& session, const Quantizer& q, const AmaxReduction* reduction,
                     const ArrayPtr& given, Float8Storage& s, std::optional<F32Bits> noop,
                     const ArrayPtr& amax) {
  check_columns_alone(session, q);
  const ArrayPtr x = contiguous(given);
  coerce(session, s, allocated(q, x->shape, q.usages(), x->dtype, session.tn_only()));
  s.transpose_invalid = !s.transpose;
  const Usages planes = planes_of(session, q.usages());
  if (!planes.rowwise && !planes.columnwise) return;
  Problem p =
      problem_of(*x, q.line(Direction::row), planes.columnwise ? q.line(Direction::col) : std::nullopt);
  if (reduction) reduce_amaxes(session, q, *reduction, p, *x);
  p.op = Quantize{noop};
  std::vector<PlaneData> keep;
  if (amax && noop)
    for (Direction d : kDirections)
      if (p.quantizer(d)) keep.push_back(plane(plane_name(d, "amax"), amax->bytes()));
  const std::vector<PlaneData> out = run_into(session, p, *x, s, std::move(keep));
  if (amax) write(amax, find_plane(out, "row.amax")->bytes);
}

json::Value shape_and_dtype(const Array& a) {
  json::Value shape = json::array();
  for (int64_t d : a.shape) shape.push(d);
  return json::object({{"tensor_shape", std::move(shape)}, {"dtype", name_of(a.dtype)}});
}

}  // namespace

// Float8Quantizer

Float8Quantizer::Float8Quantizer(ArrayPtr scale, ArrayPtr amax, Encoding dtype, bool rowwise, bool columnwise)
    : scale(std::move(scale)), amax(std::move(amax)), dtype(dtype) {
  set_usage(rowwise, columnwise);
}

json::Value Float8Quantizer::describe() const {
  return described(
      *this,
      {{"dtype", shown_dtype(dtype)}, {"scale", shape_and_dtype(*scale)}, {"amax", shape_and_dtype(*amax)}});
}

QuantizerPtr Float8Quantizer::copy() const {
  const QuantizerPtr out = QuantizerOf::copy();
  out->optimize_for_gemm = false;  // the original's copy forgets it, alone of all classes
  return out;
}

std::optional<assay::Quantizer> Float8Quantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::fp8_delayed;
  q.element = dtype;
  q.scale = bits_of(*scale);
  q.prior_amax = bits_of(*amax);
  return q;
}

void Float8Quantizer::fill(Session& session, const ArrayPtr& x, Float8Storage& s,
                           std::optional<F32Bits> noop) {
  fill_per_tensor(session, *this, nullptr, x, s, noop, amax);
}

// The larger of -min and max, which is not the amax that quantize records: NaN wins, and of a tensor of zeros
// it is -0. Written over, not accumulated.
void Float8Quantizer::calibrate(Session& session, const ArrayPtr& x) {
  constexpr F32Bits kNan = 0x7FC00000, kSign = 0x80000000;
  const std::vector<F32Bits> bits = f32_bits(*contiguous(cast(session, x, DType::float32)));
  if (bits.empty())
    throw SemanticError(ErrorClass::runtime_error, "calibrate: expected a tensor with elements, found none");
  F32Bits low = bits[0], high = bits[0];
  bool nan = false;
  for (const F32Bits b : bits) {
    const float v = std::bit_cast<float>(b);
    nan = nan || v != v;
    if (v < std::bit_cast<float>(low)) low = b;
    if (v > std::bit_cast<float>(high)) high = b;
  }
  low ^= kSign;
  const F32Bits found = nan ? kNan : std::bit_cast<float>(high) > std::bit_cast<float>(low) ? high : low;
  write(amax, std::as_bytes(std::span(&found, 1)));
}

// Float8CurrentScalingQuantizer

json::Value Float8CurrentScalingQuantizer::describe() const {
  return described(*this, {{"dtype", shown_dtype(dtype)},
                           {"amax_epsilon", shown_f32(amax_epsilon)},
                           {"force_pow_2_scales", force_pow_2_scales},
                           {"with_amax_reduction", reduction.enabled},
                           {"amax_reduction_group", shown_group(reduction.group)}});
}

std::optional<assay::Quantizer> Float8CurrentScalingQuantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::fp8_current;
  q.element = dtype;
  q.pow2 = force_pow_2_scales;
  q.eps = amax_epsilon;
  return q;
}

void Float8CurrentScalingQuantizer::fill(Session& session, const ArrayPtr& x, Float8Storage& s,
                                         std::optional<F32Bits> noop) {
  fill_per_tensor(session, *this, &reduction, x, s, noop, nullptr);
}

// Float8Storage

std::vector<Field> Float8Storage::fields() {
  return {{"_data", &data}, {"_transpose", &transpose}, {"_scale_inv", &scale_inv}};
}

Dims Float8Storage::size() const {
  if (data) return data->shape;
  if (transpose) return turned_back(transpose->shape);
  throw SemanticError(ErrorClass::attribute_error,
                      "size: expected a Float8Tensor with data or a transpose, found neither");
}

void Float8Storage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  bool needs_data = data != nullptr, needs_transpose = has_transpose();
  if (tn_only) {
    needs_data = rowwise.value_or(needs_data);
    needs_transpose = columnwise.value_or(needs_transpose);
  } else {  // GEMMs read the one plane either way
    needs_data |= rowwise.value_or(false) || columnwise.value_or(false);
    needs_transpose = false;
  }
  if (needs_data && !data)
    raise_runtime_error(
        "update_usage: expected the FP8 data, found only what may be a transpose, which is never turned "
        "back; quantize again");
  if (needs_transpose && !has_transpose()) {
    if (!data)
      raise_runtime_error(
          "update_usage: expected FP8 data to make the transpose from, found none; quantize again");
    const ArrayPtr made = last_to_front(data);
    if (transpose && transpose->shape == made->shape)
      copy_into(*made, *transpose);  // a plane that is held is refreshed in place
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
  if (!data && !has_transpose())
    raise_runtime_error("dequantize: expected a Float8Tensor with data or a valid transpose, found neither");
  assay::Quantizer q;
  q.format = FormatId::fp8_current;
  q.element = fp8_dtype;
  return dequantized(session, q, data ? Direction::row : Direction::col, size(), to.value_or(dtype),
                     {data ? data : transpose, scale_inv, nullptr});
}

StoragePtr Float8Storage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  if (!data && wanted != now)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "view: expected the shape of a Float8Tensor that holds only its transpose, found "
                        "another; nothing to do but dequantize");
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

void Float8Storage::expect_same_settings(const Storage& from) const {
  expect_same(fp8_dtype == static_cast<const Float8Storage&>(from).fp8_dtype, kNames.light, "FP8 dtype");
}

std::vector<ArrayPtr> Float8Storage::get_data_tensors(bool rowwise, bool columnwise) {
  return chosen(data, transpose, rowwise, columnwise);
}

std::vector<string> Float8Storage::fsdp_buffer_fields() const {
  return {!data && transpose ? "_transpose" : "_data"};
}

// The scale is not gathered: shards share one, and a refresh writes it in place.
Extracted Float8Storage::fsdp_extract_buffers() {
  const std::vector<string> names = fsdp_buffer_fields();
  const bool columns = names[0] == "_transpose";
  if (columns && transpose_invalid)
    raise_runtime_error(
        "fsdp: expected a valid transpose of a Float8Tensor without data, found a stale one; quantize again");
  Extracted out;
  out.buffers.push_back(columns ? front_to_last(transpose) : data);
  out.meta = json::object(
      {{"field_names", names_as_json(names)}, {"transport_layout", columns ? kColumnwise : kNative}});
  return out;
}

void Float8Storage::fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) {
  const json::Value* names = meta.find("field_names");
  const bool names_transpose = names && names->array() && names->array()->size() == 1 &&
                               (*names->array())[0] == json::Value("_transpose");
  const std::string_view layout = meta.find("transport_layout") ? meta.text("transport_layout") : kNative;
  if (layout == kColumnwise) {
    if (!names_transpose || buffers.size() != 1 || !buffers[0])
      raise_runtime_error("fsdp: expected the one buffer _transpose in layout " + string(kColumnwise) +
                          ", found something else");
    transpose = last_to_front(buffers[0]);
    data = nullptr;
    transpose_invalid = false;
    return;
  }
  if (layout != kNative)
    raise_runtime_error("fsdp: expected the layout " + string(kNative) + " or " + string(kColumnwise) +
                        ", found " + string(layout));
  Storage::fsdp_assign_gathered(buffers, meta);
  if (names_transpose) transpose_invalid = false;
}

}  // namespace assay::training

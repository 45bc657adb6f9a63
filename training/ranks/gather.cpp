#include "training/ranks/gather.h"

#include "training/dispatch/shapes.h"
#include "training/formats/formats.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

template <class S> std::shared_ptr<S> piece_as(const Piece& p) {
  const StoragePtr* s = std::get_if<StoragePtr>(&p);
  return s ? std::dynamic_pointer_cast<S>(*s) : nullptr;
}
template <class Q> bool is(const QuantizerPtr& q) { return dynamic_cast<const Q*>(q.get()) != nullptr; }
bool is_fp8(const QuantizerPtr& q) { return is<Float8Quantizer>(q) || is<Float8CurrentScalingQuantizer>(q); }

struct Call {
  Session& session;
  ProcessGroup& group;
  const QuantizerPtr& quantizer;
  bool async;
  const GatherLog& log;

  void note(std::string_view what, const Array* sent, bool asynchronous) const {
    if (log.collective) log.collective(what, sent, asynchronous);
  }
  // Every rank's `own`, concatenated along the first dimension.
  ArrayPtr gather(const ArrayPtr& own, bool asynchronous = false) const {
    const ArrayPtr sent = contiguous(own);
    note("all_gather", sent.get(), asynchronous);
    session.collectives.push_back({"all_gather", session.tensor_name, group.name});
    return concatenate(group.all_gather(sent));
  }
  StoragePtr quantize(const ArrayPtr& x) const {
    if (log.quantize) log.quantize(*quantizer, x->shape);
    return quantizer->quantize(session, x);
  }
  void warn(const char* text) const { session.warn("UserWarning", text); }
  // The whole tensor in high precision, quantized as a whole.
  Gathered high_precision(const ArrayPtr& own) const { return {quantize(gather(own)), ""}; }
};

constexpr const char* kCannotQuantize = "Cannot quantize the shard of a gather: it travels in high precision";
constexpr const char* kOtherUsages =
    "A shard and the quantizer of its gather do not have matching usages: dequantized and quantized anew";
constexpr const char* kUnsupported =
    "A gather of a quantized tensor that no gather supports: it travels in high precision";

// Rank-major [ranks * d0, ...] seen as [d0, ranks * ...]: what a transposed plane needs after a gather.
ArrayPtr deinterleaved(const ArrayPtr& gathered, int64_t ranks, const Dims& shape) {
  const int64_t d0 = gathered->shape[0] / ranks, rest = gathered->count() / gathered->shape[0];
  return view(clone(transpose(view(gathered, {ranks, d0, rest}), 0, 1)), shape);
}

// `gathered` rows in a buffer of `like`'s shape, whose further rows stay as they were allocated.
ArrayPtr with_padding(const ArrayPtr& gathered, const ArrayPtr& like) {
  if (gathered->shape == like->shape) return gathered;
  copy_into(*gathered, *slice(like, 0, 0, gathered->shape[0]));
  return like;
}

bool lacks_direction(const Quantizer& q, const Storage& s) {
  const Usages has = s.present();
  return (q.rowwise_usage && !has.rowwise) || (q.columnwise_usage && !has.columnwise);
}

Gathered gather_fp8(const Call& c, const Piece& shard, Dims whole) {
  if (c.quantizer && !is_fp8(c.quantizer))
    fail(ErrorClass::value_error,
         "gather: expected a quantizer of per-tensor FP8, found a " + string(c.quantizer->class_name()));
  auto own = piece_as<Float8Storage>(shard);
  if (!own) {
    if (std::holds_alternative<StoragePtr>(shard))
      fail(ErrorClass::type_error, "gather: expected a plain shard or one of per-tensor FP8, found another");
    const Usages usages = c.quantizer->usages();
    c.quantizer->set_usage(true, false);
    own = std::dynamic_pointer_cast<Float8Storage>(c.quantize(std::get<ArrayPtr>(shard)));
    c.quantizer->set_usage(usages.rowwise, usages.columnwise);
  }
  if (!c.quantizer && !own->is_tensor)
    fail(ErrorClass::runtime_error,
         "gather: expected a Float8Tensor or a quantizer, found the light storage without one");
  if (!own->data)
    fail(ErrorClass::attribute_error,
         "gather: expected the byte plane of a Float8Tensor, found its transpose alone");
  auto out = std::dynamic_pointer_cast<Float8Storage>(own->make_like());
  out->transpose = nullptr;
  out->transpose_invalid = true;
  if (c.quantizer) {
    out->keep(c.quantizer);
    out->is_tensor = !c.quantizer->internal;
    if (!own->is_tensor) out->dtype = DType::float32;  // a light storage has no dtype to hand on
  }
  out->scale_inv = own->scale_inv;
  out->data = view(c.gather(own->data, c.async), std::move(whole));
  const bool transposes = c.quantizer && c.quantizer->columnwise_usage && c.session.tn_only();
  if (transposes) {  // a gather under way is waited for first
    out->transpose = last_to_front(out->data);
    out->transpose_invalid = false;
  }
  return {StoragePtr(out), c.async && !transposes ? "Work" : ""};
}

Gathered gather_block(const Call& c, const Piece& shard, const Dims& part, const Dims& whole) {
  if (!c.quantizer)
    fail(ErrorClass::value_error, "gather: expected a quantizer for blockwise FP8, found none");
  const auto* q = dynamic_cast<const Float8BlockQuantizer*>(c.quantizer.get());
  if (!q)
    fail(ErrorClass::value_error,
         "gather: expected a Float8BlockQuantizer, found a " + string(c.quantizer->class_name()));
  const StoragePtr* quantized = std::get_if<StoragePtr>(&shard);
  const auto plain = [&] {
    return quantized ? (*quantized)->dequantize(c.session, (*quantized)->dtype) : std::get<ArrayPtr>(shard);
  };
  if (!q->is_quantizable(part) || q->block_scaling_dim != 1) {
    c.warn(kCannotQuantize);
    return c.high_precision(plain());
  }
  auto own = piece_as<Float8BlockwiseStorage>(shard);
  if (own && lacks_direction(*q, *own)) {
    c.warn(kOtherUsages);
    own = nullptr;
  }
  if (!own) own = std::dynamic_pointer_cast<Float8BlockwiseStorage>(c.quantize(plain()));
  const auto out = std::dynamic_pointer_cast<Float8BlockwiseStorage>(
      c.quantizer->make_empty(c.session, whole, own->dtype));
  c.note("coalesce_begin", nullptr, c.async);
  if (q->rowwise_usage) {
    out->rowwise_scale_inv =
        deinterleaved(c.gather(own->rowwise_scale_inv), c.group.size, out->rowwise_scale_inv->shape);
    out->rowwise_data = c.gather(own->rowwise_data);
  }
  if (q->columnwise_usage) {
    out->columnwise_scale_inv = c.gather(own->columnwise_scale_inv);
    out->columnwise_data =
        deinterleaved(c.gather(own->columnwise_data), c.group.size, out->columnwise_data->shape);
  }
  c.note("coalesce_end", nullptr, false);
  return {StoragePtr(out), c.async ? "_AsyncHandle" : ""};
}

// The shard as a storage of its format, or nothing where it must travel in high precision.
template <class S> std::shared_ptr<S> quantized_shard(const Call& c, const Piece& shard, const Dims& part) {
  auto own = piece_as<S>(shard);
  if (!own) {
    if (!c.quantizer->is_quantizable(part)) return nullptr;
    if (const StoragePtr* other = std::get_if<StoragePtr>(&shard))
      return std::dynamic_pointer_cast<S>(c.quantize((*other)->dequantize(c.session)));
    return std::dynamic_pointer_cast<S>(c.quantize(std::get<ArrayPtr>(shard)));
  }
  if (!lacks_direction(*c.quantizer, *own)) return own;
  c.warn(kOtherUsages);
  return std::dynamic_pointer_cast<S>(c.quantize(own->dequantize(c.session, own->dtype)));
}

Gathered in_high_precision(const Call& c, const Piece& shard) {
  c.warn(kCannotQuantize);
  const StoragePtr* s = std::get_if<StoragePtr>(&shard);
  return c.high_precision(s ? (*s)->dequantize(c.session) : std::get<ArrayPtr>(shard));
}

Gathered gather_mxfp8(const Call& c, const Piece& shard, const Dims& part, const Dims& whole) {
  if (!is<MXFP8Quantizer>(c.quantizer))
    fail(ErrorClass::type_error, "gather: expected an MXFP8Quantizer for MXFP8, found another or none");
  const auto own = quantized_shard<MXFP8Storage>(c, shard, part);
  if (!own) return in_high_precision(c, shard);
  const auto out =
      std::dynamic_pointer_cast<MXFP8Storage>(c.quantizer->make_empty(c.session, whole, own->dtype));
  const int64_t rows = flattened(part).rows;
  c.note("coalesce_begin", nullptr, c.async);
  if (c.quantizer->rowwise_usage) {
    out->rowwise_scale_inv =
        with_padding(c.gather(first_rows(own->rowwise_scale_inv, rows)), out->rowwise_scale_inv);
    out->rowwise_data = c.gather(own->rowwise_data);
  }
  if (c.quantizer->columnwise_usage) {
    out->columnwise_scale_inv =
        with_padding(c.gather(first_rows(own->columnwise_scale_inv, rows / 32)), out->columnwise_scale_inv);
    out->columnwise_data = c.gather(own->columnwise_data);
  }
  c.note("coalesce_end", nullptr, false);
  return {StoragePtr(out), c.async ? "CM" : ""};
}

Gathered gather_nvfp4(const Call& c, const Piece& shard, const Dims& part, const Dims& whole) {
  if (!is<NVFP4Quantizer>(c.quantizer))
    fail(ErrorClass::type_error, "gather: expected an NVFP4Quantizer for NVFP4, found another or none");
  const auto given = piece_as<NVFP4Storage>(shard);
  const bool knew_columns =
      !given || given->columnwise_data;  // shapes are taken before anything is made anew
  const auto own = quantized_shard<NVFP4Storage>(c, shard, part);
  if (!own) return in_high_precision(c, shard);
  const auto out =
      std::dynamic_pointer_cast<NVFP4Storage>(c.quantizer->make_empty(c.session, whole, own->dtype));
  const Shape m = flattened(part);
  c.note("coalesce_begin", nullptr, c.async);
  if (c.quantizer->rowwise_usage) {
    out->rowwise_scale_inv =
        with_padding(c.gather(first_rows(own->rowwise_scale_inv, m.rows)), out->rowwise_scale_inv);
    out->rowwise_data = c.gather(own->rowwise_data);
    out->amax_rowwise = own->amax_rowwise;
  }
  if (c.quantizer->columnwise_usage) {
    if (!knew_columns)
      fail(ErrorClass::type_error,
           "gather: expected the columns of an NVFP4 shard, found rows alone; quantize it with both usages");
    const ArrayPtr scale = slice(first_rows(own->columnwise_scale_inv, m.cols), 1, 0, m.rows / 16);
    const int64_t tiles = m.rows / 16 * c.group.size;
    out->columnwise_scale_inv =
        padded_with_zeros(deinterleaved(c.gather(scale), c.group.size, {m.cols, tiles}),
                          {round_up(m.cols, 128), round_up(tiles, 4)});
    out->columnwise_data =
        deinterleaved(c.gather(own->columnwise_data), c.group.size, {m.cols, m.rows / 2 * c.group.size});
    out->amax_columnwise = own->amax_columnwise;
  }
  c.note("coalesce_end", nullptr, false);
  const char* handle = c.quantizer->columnwise_usage ? "_NVFP4AllGatherAsyncHandle" : "CM";
  return {StoragePtr(out), c.async ? handle : ""};
}

}  // namespace

Gathered gather_along_first_dim(Session& session, const Piece& shard, ProcessGroup& group,
                                const QuantizerPtr& quantizer, bool async, const GatherLog& log) {
  const Call c{session, group, quantizer, async, log};
  const StoragePtr* quantized = std::get_if<StoragePtr>(&shard);
  if (group.size == 1) {
    if (quantizer && !quantized) return {c.quantize(std::get<ArrayPtr>(shard)), ""};
    return {shard, ""};
  }
  const Dims part = quantized ? dispatch::asked_size(session, **quantized) : std::get<ArrayPtr>(shard)->shape;
  Dims whole = part;
  if (!whole.empty()) whole[0] *= group.size;
  if (piece_as<Float8Storage>(shard) || is_fp8(quantizer)) return gather_fp8(c, shard, whole);
  if (piece_as<Float8BlockwiseStorage>(shard) || is<Float8BlockQuantizer>(quantizer))
    return gather_block(c, shard, part, whole);
  if (piece_as<MXFP8Storage>(shard) || is<MXFP8Quantizer>(quantizer))
    return gather_mxfp8(c, shard, part, whole);
  if (piece_as<NVFP4Storage>(shard) || is<NVFP4Quantizer>(quantizer))
    return gather_nvfp4(c, shard, part, whole);
  if (quantizer || quantized) c.warn(kUnsupported);
  const ArrayPtr plain = quantized ? (*quantized)->dequantize(session) : std::get<ArrayPtr>(shard);
  if (quantizer) return c.high_precision(plain);
  return {c.gather(plain, async), async ? "Work" : ""};
}

}  // namespace assay::training

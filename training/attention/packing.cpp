#include "training/attention/packing.h"

#include <algorithm>

#include "contract/problem.h"
#include "training/base/errors.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int64_t kBlock = 32, kSequenceGrain = 128;

string shape_text(const Dims& shape) {
  string out = "[";
  for (const int64_t d : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  return out + "]";
}

// A part of a layout: "bs2hd" has dimensions bshd and its 2 tensors at 2.
struct Part {
  string dims;
  size_t count = 1, at = 0;
};
std::vector<Part> parts_of(const string& layout) {
  std::vector<Part> parts(1);
  for (const char c : layout) {
    Part& part = parts.back();
    if (c == '_') parts.emplace_back();
    else if (c == '2' || c == '3') part.count = static_cast<size_t>(c - '0'), part.at = part.dims.size();
    else part.dims += c;
  }
  size_t tensors = 0;
  bool known = true;
  for (const Part& part : parts) {
    tensors += part.count;
    known &= part.dims == "bshd" || part.dims == "sbhd" || part.dims == "thd";
    known &= part.count == 1 || (part.at + 2 >= part.dims.size() && part.at < part.dims.size());
  }
  if (!known || tensors != 3 || (parts.size() == 2 && parts[0].count != 1))
    throw SemanticError(
        ErrorClass::value_error,
        "expected a layout of Q, K and V such as bs3hd, sbhd_sb2hd or thd_thd_thd, found '" + layout + "'");
  return parts;
}

void append_tensors(std::vector<ArrayPtr>& out, const Part& part, const ArrayPtr& buffer) {
  const size_t rank = part.dims.size() + (part.count > 1 ? 1 : 0);
  if (buffer->shape.size() != rank ||
      (part.count > 1 && buffer->shape[part.at] != static_cast<int64_t>(part.count)))
    throw SemanticError(ErrorClass::value_error, "expected a tensor of dimensions " + part.dims + " with " +
                                                     std::to_string(part.count) + " side by side, found " +
                                                     shape_text(buffer->shape));
  for (size_t i = 0; i < part.count; ++i) {
    if (part.count == 1) {
      out.push_back(buffer);
      continue;
    }
    const ArrayPtr one = slice(buffer, part.at, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    Dims shape = one->shape, strides = one->strides;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(part.at));
    strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(part.at));
    out.push_back(as_strided(one, std::move(shape), std::move(strides), one->offset));
  }
}

std::array<ArrayPtr, 3> split(const std::vector<Part>& parts, const std::vector<ArrayPtr>& buffers) {
  std::vector<ArrayPtr> out;
  for (size_t i = 0; i < parts.size(); ++i) append_tensors(out, parts[i], buffers.at(i));
  return {out[0], out[1], out[2]};
}

StoragePtr logged(Session& session, const ArrayPtr& x, const QuantizerPtr& q, const CastLog& log) {
  if (log) log(*q, x->shape);
  return q->quantize(session, x);
}

// One cast for all buffers; the tensors are views of its bytes and have its scale.
QuantizedQkv per_tensor(Session& session, const PlainQkv& x, const std::vector<Part>& parts,
                        const QuantizerPtr& q, const CastLog& log) {
  ArrayPtr whole = x.buffers.front();
  if (parts.size() > 1) {
    std::vector<ArrayPtr> flat;
    for (const ArrayPtr& b : x.buffers) flat.push_back(view(contiguous(b), {b->count()}));
    whole = concatenate(flat);
  }
  const auto cast = std::dynamic_pointer_cast<Float8Storage>(logged(session, whole, q, log));
  std::vector<ArrayPtr> bytes;
  int64_t from = 0;
  for (const ArrayPtr& b : x.buffers) {
    bytes.push_back(parts.size() == 1 ? cast->data
                                      : view(slice(cast->data, 0, from, from + b->count()), b->shape));
    from += b->count();
  }
  QuantizedQkv out{x.layout, {}, std::nullopt};
  const std::array<ArrayPtr, 3> data = split(parts, bytes);
  for (size_t i = 0; i < data.size(); ++i) {
    const auto one = std::make_shared<Float8Storage>(*cast);
    one->keep(q);
    one->data = data[i];
    one->transpose = nullptr;
    one->transpose_invalid = true;
    out.tensors[i] = one;
  }
  return out;
}

// ---- MXFP8

ArrayPtr permuted(const ArrayPtr& a, std::initializer_list<size_t> order) {
  Dims shape, strides;
  for (const size_t d : order) shape.push_back(a->shape[d]), strides.push_back(a->strides[d]);
  return contiguous(as_strided(a, std::move(shape), std::move(strides), a->offset));
}
// From bshd or sbhd to (b, h, s, last).
ArrayPtr to_bhsd(const ArrayPtr& a, bool batch_first) {
  return batch_first ? permuted(a, {0, 2, 1, 3}) : permuted(a, {1, 2, 0, 3});
}

// Compact scales of a matrix as GEMMs read them.
ArrayPtr swizzled(Session& session, const ArrayPtr& scales, Shape matrix, const assay::Quantizer& line,
                  Direction direction) {
  Problem p;
  p.op = Swizzle{};
  p.x.shape = matrix;
  p.x.source = Encoding::e8m0;
  p.quantizer(direction) = line;
  p.quantizer(direction)->scales = ScaleLayout::compact;
  const std::vector<PlaneData> moved =
      session.run(p, {{input_planes(p).front(), {scales->bytes().begin(), scales->bytes().end()}}});
  return from_bytes(scales->shape, DType::uint8, moved.front().bytes);
}

// Scales of the in-place cast, one row of blocks for all heads, as those of a matrix of (b h s) rows.
ArrayPtr scales_by_head(Session& session, const ArrayPtr& scales, const Dims& seen, bool batch_first,
                        const assay::Quantizer& line, Direction direction, Shape matrix) {
  if (count_of(seen) != scales->count())
    throw SemanticError(ErrorClass::runtime_error,
                        "view: shape " + shape_text(seen) + " is not that of " +
                            std::to_string(scales->count()) +
                            " scales, padding included: choose heads and a head size whose product fills "
                            "whole rows of four scales");
  const ArrayPtr ordered = to_bhsd(view(scales, seen), batch_first);
  const int64_t rows = ordered->shape[0] * ordered->shape[1] * ordered->shape[2];
  const Dims padded = scale_shape(line, {matrix.rows, matrix.cols}, direction);
  return swizzled(session, padded_with_zeros(view(ordered, {rows, ordered->shape[3]}), padded), matrix, line,
                  direction);
}

StoragePtr in_place(Session& session, const ArrayPtr& given, bool batch_first, const MXFP8Quantizer& settings,
                    const CastLog& log) {
  const ArrayPtr x = contiguous(given);
  const Dims m = x->shape;
  const int64_t b = m[batch_first ? 0 : 1], s = m[batch_first ? 1 : 0], h = m[2], d = m[3];
  const QuantizerPtr q = settings.copy();
  q->optimize_for_gemm = false;  // scales are reordered first
  const auto out = std::dynamic_pointer_cast<MXFP8Storage>(
      logged(session, view(x, batch_first ? Dims{b, s, h * d} : Dims{s, b * h * d}), q, log));
  const Shape matrix{b * h * s, d};
  const auto seen = [&](int64_t sequence, int64_t last) {
    return batch_first ? Dims{b, sequence, h, last} : Dims{sequence, b, h, last};
  };
  if (out->rowwise_data) {
    out->rowwise_data = view(out->rowwise_data, m);
    out->rowwise_scale_inv = scales_by_head(session, out->rowwise_scale_inv, seen(s, d / kBlock), batch_first,
                                            *q->line(Direction::row), Direction::row, matrix);
  }
  if (out->columnwise_data) {
    out->columnwise_data = view(out->columnwise_data, m);
    out->columnwise_scale_inv = scales_by_head(session, out->columnwise_scale_inv, seen(s / kBlock, d),
                                               batch_first, *q->line(Direction::col), Direction::col, matrix);
  }
  out->with_gemm_swizzled_scales = true;
  return out;
}

// Reordered to (b, h, s, d), then cast as a matrix.
StoragePtr reordered(Session& session, const ArrayPtr& x, bool batch_first, const MXFP8Quantizer& settings,
                     const CastLog& log) {
  const ArrayPtr heads = to_bhsd(x, batch_first);
  const QuantizerPtr q = settings.copy();
  q->optimize_for_gemm = true;
  const Dims m = heads->shape;
  return logged(session, view(heads, {m[0] * m[1] * m[2], m[3]}), q, log)->view(m);
}

QuantizedQkv mxfp8(Session& session, const PlainQkv& x, const std::vector<Part>& parts,
                   const MXFP8Quantizer& q, PackedFor used, const CastLog& log, bool slow) {
  const string& dims = parts.front().dims;  // the original takes the first for all three
  for (const Part& part : parts)
    if (part.dims == "thd")
      throw SemanticError(
          ErrorClass::assertion_error,
          "MXFP8 attention: expected dimensions bshd/sbhd, found the layout '" + x.layout + "'");
  const std::array<ArrayPtr, 3> tensors = split(parts, x.buffers);
  const bool batch_first = dims == "bshd";
  for (const ArrayPtr& t : tensors)
    if (t->shape[batch_first ? 1 : 0] % kSequenceGrain != 0 || t->shape[3] % kBlock != 0)
      throw SemanticError(ErrorClass::assertion_error,
                          "MXFP8 attention: expected sequences of a multiple of 128 and a head size of a "
                          "multiple of 32, found " +
                              shape_text(t->shape) + " in the order " + dims);
  const bool fast = !slow && parts.size() == 3 && x.layout == dims + "_" + dims + "_" + dims;
  QuantizedQkv out{fast ? x.layout : "bhsd_bhsd_bhsd", {}, "bhsd"};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const QuantizerPtr copy = q.copy();
    const bool v = i == 2;
    copy->set_usage(v ? used.backward : true, v ? used.forward : used.backward);
    const auto& settings = static_cast<const MXFP8Quantizer&>(*copy);
    out.tensors[i] = fast ? in_place(session, tensors[i], batch_first, settings, log)
                          : reordered(session, tensors[i], batch_first, settings, log);
  }
  return out;
}

}  // namespace

std::array<ArrayPtr, 3> split_qkv(const PlainQkv& x) { return split(parts_of(x.layout), x.buffers); }

std::vector<ArrayPtr> pack_qkv(const string& layout, const std::array<ArrayPtr, 3>& tensors) {
  const std::vector<Part> parts = parts_of(layout);
  std::vector<ArrayPtr> buffers;
  size_t next = 0;
  for (const Part& part : parts) {
    Dims shape = tensors.at(next)->shape;
    if (part.count > 1)
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(part.at), static_cast<int64_t>(part.count));
    buffers.push_back(zeros(std::move(shape), tensors[next]->dtype));
    next += part.count;
  }
  const std::array<ArrayPtr, 3> places = split(parts, buffers);
  for (size_t i = 0; i < places.size(); ++i) copy_into(*tensors[i], *places[i]);
  return buffers;
}

QuantizedQkv quantize_qkv(Session& session, const PlainQkv& x, const QuantizerPtr& q, PackedFor used,
                          const CastLog& log, bool slow) {
  const std::vector<Part> parts = parts_of(x.layout);
  if (const auto* m = dynamic_cast<const MXFP8Quantizer*>(q.get()))
    return mxfp8(session, x, parts, *m, used, log, slow);
  return per_tensor(session, x, parts, q, log);
}

StoragePtr quantize_mxfp8_in_place(Session& session, const ArrayPtr& x, std::string_view dims,
                                   const QuantizerPtr& q, const CastLog& log) {
  return in_place(session, x, dims == "bshd", dynamic_cast<const MXFP8Quantizer&>(*q), log);
}

}  // namespace assay::training

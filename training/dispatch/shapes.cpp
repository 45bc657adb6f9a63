#include "training/dispatch/shapes.h"

#include <algorithm>

#include "training/formats/formats.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training::dispatch {

namespace {

using std::string;

ArrayPtr plain_view(Session& session, const StoragePtr& s, const Dims& shape) {
  return training::view(s->dequantize(session), shape);
}

size_t dimension(const Dims& shape, int64_t dim) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (dim < -rank || dim >= rank)
    fail(ErrorClass::value_error,
         "expected a dimension of " + std::to_string(rank) + ", found " + std::to_string(dim));
  return static_cast<size_t>((dim + rank) % rank);
}

bool columns_alone(const Storage& s) {
  const auto* fp4 = dynamic_cast<const NVFP4Storage*>(&s);
  return fp4 && !fp4->rowwise_data && fp4->columnwise_data;
}

bool keeps_last(const Dims& now, const Dims& wanted, size_t count) {
  return wanted.size() >= count && now.size() >= count &&
         std::equal(now.end() - static_cast<std::ptrdiff_t>(count), now.end(),
                    wanted.end() - static_cast<std::ptrdiff_t>(count));
}

StoragePtr child_view(Session& session, const StoragePtr& child, const Dims& shape) {
  if (!child) return nullptr;
  const Piece p = method_view(session, child, shape);
  if (const StoragePtr* s = std::get_if<StoragePtr>(&p)) return *s;
  fail(ErrorClass::attribute_error, "view: expected a quantized view of a " + string(child->class_name()) +
                                        " inside a hybrid, found a plain tensor, which has no storage");
}

// A hybrid over given children; `light` gives the storage class.
StoragePtr hybrid_of(const HybridStorage& h, StoragePtr row, StoragePtr col, bool light) {
  const auto out = std::make_shared<HybridStorage>(std::move(row), std::move(col), h.quantizer, h.dtype);
  out->is_tensor = !light;
  return out;
}

// A hybrid of what `act` gives of each child, or nothing where one gave a plain tensor or none is there.
template <class Act> StoragePtr delegated(const HybridStorage& h, Act act) {
  const auto of = [&](const StoragePtr& child) { return child ? std::optional(act(child)) : std::nullopt; };
  const std::optional<Piece> row = of(h.rowwise_storage), col = of(h.columnwise_storage);
  for (const auto* p : {&row, &col})
    if (*p && !std::holds_alternative<StoragePtr>(**p)) return nullptr;
  if (!row && !col) return nullptr;
  return hybrid_of(h, row ? std::get<StoragePtr>(*row) : nullptr, col ? std::get<StoragePtr>(*col) : nullptr,
                   false);
}

// Both planes of per-tensor FP8 at one element of dimension `d`.
StoragePtr selected(const Float8Storage& s, size_t d, int64_t index) {
  const auto at = [&](const ArrayPtr& a, size_t dim) {
    const ArrayPtr one = training::slice(a, dim, index, index + 1);
    Dims shape = one->shape, strides = one->strides;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
    strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
    return training::as_strided(one, shape, strides, one->offset);
  };
  const size_t rank = s.size().size();
  const bool last = d + 1 == rank;
  auto out = std::dynamic_pointer_cast<Float8Storage>(s.make_like());
  out->transpose = nullptr;
  if (s.data) out->data = at(s.data, d);
  if (s.has_transpose()) {
    out->transpose = at(s.transpose, last ? 0 : d + 1);
    if (last && out->transpose->shape.size() > 1) out->transpose = last_to_front(out->transpose);
  }
  out->transpose_invalid = !out->transpose;
  return out;
}

}  // namespace

Dims asked_size(Session& session, const Storage& s) {
  const auto* h = dynamic_cast<const HybridStorage*>(&s);
  const Storage* asked = !h                      ? &s
                         : h->rowwise_storage    ? h->rowwise_storage.get()
                         : h->columnwise_storage ? h->columnwise_storage.get()
                                                 : nullptr;
  if (asked && columns_alone(*asked))
    session.warn("UserWarning", "Attempting to get the shape of an NVFP4 tensor with columns alone");
  return s.size();
}

Piece view(Session& session, const StoragePtr& s, const Dims& shape) {
  if (const auto* h = storage_as<HybridStorage>(s)) {
    if (shape == h->size()) return h->make_like();
    return hybrid_of(*h, child_view(session, h->rowwise_storage, shape),
                     child_view(session, h->columnwise_storage, shape), false);
  }
  if (storage_as<MXFP8Storage>(s) && (shape.size() < 2 || shape.back() != s->size().back()))
    fail(ErrorClass::value_error,
         "view: expected two dimensions or more with the last one of an MXFP8Tensor, found others");
  if (const auto* block = storage_as<Float8BlockwiseStorage>(s)) {
    if (!block->rowwise_data)
      fail(ErrorClass::not_implemented_error,
           "view: expected a Float8BlockwiseQTensor with its rows, found columns alone");
    if (shape != s->size())
      fail(ErrorClass::not_implemented_error,
           "view: expected the shape of a Float8BlockwiseQTensor, found another");
    return s->make_like();
  }
  if (storage_as<NVFP4Storage>(s))
    return shape == asked_size(session, *s) ? Piece(s->make_like()) : method_view(session, s, shape);
  return s->view(shape);
}

Piece method_view(Session& session, const StoragePtr& s, const Dims& wanted) {
  if (const auto* h = storage_as<HybridStorage>(s)) {
    if (wanted == asked_size(session, *s))
      return hybrid_of(*h, h->rowwise_storage, h->columnwise_storage, true);
    return hybrid_of(*h, child_view(session, h->rowwise_storage, wanted),
                     child_view(session, h->columnwise_storage, wanted), true);
  }
  const Dims now = s->size(), shape = resolved(wanted, count_of(now));
  const auto* block = storage_as<Float8BlockwiseStorage>(s);
  const size_t kept = block                                                        ? (block->is_2d ? 2 : 1)
                      : storage_as<MXFP8Storage>(s) || storage_as<NVFP4Storage>(s) ? 1
                                                                                   : 0;
  if (!keeps_last(now, shape, kept)) {
    session.warn("UserWarning", string(s->class_name()) + " does not show another inner dimension");
    return plain_view(session, s, shape);
  }
  if (block && shape == now) return view(session, s, shape);  // the tensor itself, which the framework views
  return s->view(shape);
}

Piece method_reshape(Session& session, const StoragePtr& s, const Dims& wanted) {
  if (const auto* fp8 = storage_as<Float8Storage>(s); fp8 && !fp8->data)
    fail(ErrorClass::attribute_error,
         "reshape: expected the byte plane of a Float8Tensor, found its transpose alone");
  if (storage_as<HybridStorage>(s) || storage_as<IdentityStorage>(s))
    return view(session, s, resolved(wanted, count_of(s->size())));
  return method_view(session, s, wanted);
}

Piece slice(Session& session, const StoragePtr& s, int64_t dim, int64_t start, int64_t end) {
  const Dims now = s->size();
  const size_t d = dimension(now, dim);
  const int64_t stop = std::min(end, now[d]);
  if (storage_as<NVFP4Storage>(s)) {
    asked_size(session, *s);
    if (start == 0 && end >= now[d]) return s->make_like();
    fail(ErrorClass::not_implemented_error,
         "slice: expected the whole of an NVFP4Tensor, found a part; dequantize it first");
  }
  if (storage_as<Float8Storage>(s) || storage_as<IdentityStorage>(s))
    return training::slice(session, *s, dim, start, stop);
  if (const auto* h = storage_as<HybridStorage>(s)) {
    if (start == 0) asked_size(session, *s);
    if (start == 0 && end == now[d]) return s->make_like();
    if (const StoragePtr both =
            delegated(*h, [&](const StoragePtr& c) { return slice(session, c, dim, start, end); }))
      return both;
  } else if (start == 0 && end == now[d]) {
    return s->make_like();
  }
  return training::slice(s->dequantize(session), d, start, stop);
}

Piece select(Session& session, const StoragePtr& s, int64_t dim, int64_t index) {
  const size_t d = dimension(s->size(), dim);
  if (const auto* fp8 = storage_as<Float8Storage>(s)) return selected(*fp8, d, index);
  const ArrayPtr one = training::slice(s->dequantize(session), d, index, index + 1);
  Dims shape = one->shape, strides = one->strides;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(d));
  return training::as_strided(one, shape, strides, one->offset);
}

std::vector<Piece> split(Session& session, const StoragePtr& s, int64_t size, int64_t dim) {
  return training::split(session, *s, size, dim);
}

Piece as_strided(Session& session, const StoragePtr& s, const Dims& shape, const Dims& strides,
                 int64_t offset) {
  const Dims now = s->size();
  const Dims own = empty(now, DType::uint8)->strides;
  if (storage_as<NVFP4Storage>(s)) {
    asked_size(session, *s);
    if (shape == now && strides == own && offset == 0) return s->make_like();
    fail(ErrorClass::not_implemented_error,
         "as_strided: expected an NVFP4Tensor's own geometry, found another; dequantize it first");
  }
  if (const auto* fp8 = storage_as<Float8Storage>(s); fp8 && fp8->data) {
    auto out = std::dynamic_pointer_cast<Float8Storage>(s->make_like());
    out->data = training::as_strided(fp8->data, shape, strides, offset);
    if (fp8->has_transpose())
      out->transpose = training::as_strided(fp8->transpose, turned(shape), turned(strides), offset);
    return out;
  }
  if (const auto* h = storage_as<HybridStorage>(s)) {
    if (shape == asked_size(session, *s) && strides == own && offset == 0) return s->make_like();
    if (const StoragePtr both = delegated(
            *h, [&](const StoragePtr& c) { return as_strided(session, c, shape, strides, offset); }))
      return both;
    return training::as_strided(s->dequantize(session), shape, strides, offset);
  }
  return training::as_strided(session, *s, shape, strides, offset);
}

}  // namespace assay::training::dispatch

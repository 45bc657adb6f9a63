#include "training/base/array.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "training/base/errors.h"

namespace assay::training {

namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  std::optional<Encoding> encoding;
};
constexpr std::array kDTypes = {
    DTypeInfo{DType::uint8, "uint8", 1, Encoding::u8},
    DTypeInfo{DType::boolean, "bool", 1, std::nullopt},
    DTypeInfo{DType::int16, "int16", 2, std::nullopt},
    DTypeInfo{DType::int32, "int32", 4, std::nullopt},
    DTypeInfo{DType::int64, "int64", 8, std::nullopt},
    DTypeInfo{DType::float16, "float16", 2, Encoding::f16},
    DTypeInfo{DType::bfloat16, "bfloat16", 2, Encoding::bf16},
    DTypeInfo{DType::float32, "float32", 4, Encoding::f32},
};
constexpr const DTypeInfo& info_of(DType t) { return kDTypes[static_cast<size_t>(t)]; }

std::string text(const Dims& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

Dims row_major(const Dims& shape) {
  Dims strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= std::max<int64_t>(shape[i], 1)) strides[i] = step;
  return strides;
}

ArrayPtr fresh(Dims shape, DType dtype, std::byte value) {
  auto out = std::make_shared<Array>();
  out->dtype = dtype;
  out->strides = row_major(shape);
  out->memory =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count_of(shape) * bytes_of(dtype)), value);
  out->shape = std::move(shape);
  return out;
}

ArrayPtr alias(const Array& of, Dims shape, Dims strides, int64_t offset) {
  auto out = std::make_shared<Array>(of);
  out->shape = std::move(shape);
  out->strides = std::move(strides);
  out->offset = offset;
  return out;
}

// The strides with which `shape` shows the elements of `a` in row-major order, or nothing where no strides
// do: dimensions that lie without gaps are merged and cut anew.
std::optional<Dims> view_strides(const Array& a, const Dims& shape) {
  if (a.count() == 0) return row_major(shape);
  Dims strides(shape.size());
  size_t to = shape.size();
  int64_t step = a.strides.empty() ? 1 : a.strides.back(), chunk = 1, cut = 1;
  if (a.shape.empty()) return row_major(shape);
  for (size_t from = a.shape.size(); from-- > 0;) {
    chunk *= a.shape[from];
    if (from > 0 && (a.shape[from - 1] == 1 || a.strides[from - 1] == chunk * step)) continue;
    for (; to > 0 && (cut < chunk || shape[to - 1] == 1); --to) {
      strides[to - 1] = cut * step;
      cut *= shape[to - 1];
    }
    if (cut != chunk) return std::nullopt;
    if (from > 0) step = a.strides[from - 1], chunk = cut = 1;
  }
  return to == 0 ? std::optional(strides) : std::nullopt;
}

// Calls visit(offset in elements) for the first element of every run of the last dimension, in row-major
// order.
template <class Visit> void each_run(const Array& a, Visit visit) {
  if (a.count() == 0) return;
  Dims at(a.shape.size());
  int64_t offset = a.offset;
  for (;;) {
    visit(offset);
    size_t d = a.shape.size() - (a.shape.empty() ? 0 : 1);
    for (;;) {
      if (d == 0) return;
      --d;
      offset += a.strides[d];
      if (++at[d] < a.shape[d]) break;
      offset -= at[d] * a.strides[d];
      at[d] = 0;
    }
  }
}

}  // namespace

std::string_view name_of(DType t) { return info_of(t).name; }

std::optional<DType> dtype_named(std::string_view name) {
  const auto at =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& t) { return t.name == name; });
  return at == kDTypes.end() ? std::nullopt : std::optional(at->dtype);
}

int64_t bytes_of(DType t) { return info_of(t).bytes; }

Encoding encoding_of(DType t) {
  if (!info_of(t).encoding)
    throw SemanticError(ErrorClass::type_error,
                        "expected a floating-point dtype or uint8, found " + std::string(name_of(t)));
  return *info_of(t).encoding;
}

DType dtype_of(Encoding e) {
  if (info(e).bits <= 8) return DType::uint8;
  const auto at =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& t) { return t.encoding == e; });
  if (at == kDTypes.end())
    throw SemanticError(ErrorClass::type_error,
                        "expected an encoding that has a dtype, found " + std::string(info(e).name));
  return at->dtype;
}

int64_t count_of(const Dims& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Shape flattened(const Dims& shape) {
  if (shape.empty()) return {1, 1};
  return {count_of(Dims(shape.begin(), shape.end() - 1)), shape.back()};
}

bool Array::contiguous() const {
  if (count() == 0) return true;
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i])
    if (shape[i] != 1 && strides[i] != step) return false;
  return true;
}

std::span<std::byte> Array::bytes() {
  if (!contiguous())
    throw std::logic_error("Array::bytes: expected a contiguous array, found shape " + text(shape) +
                           " with strides " + text(strides) + "; call contiguous() first");
  return {memory->data() + offset * bytes_of(dtype), static_cast<size_t>(count() * bytes_of(dtype))};
}
std::span<const std::byte> Array::bytes() const { return const_cast<Array*>(this)->bytes(); }

ArrayPtr empty(Dims shape, DType dtype, std::byte poison) { return fresh(std::move(shape), dtype, poison); }
ArrayPtr zeros(Dims shape, DType dtype) { return fresh(std::move(shape), dtype, std::byte{0}); }

ArrayPtr from_bytes(Dims shape, DType dtype, std::span<const std::byte> bytes) {
  ArrayPtr out = fresh(std::move(shape), dtype, std::byte{0});
  if (bytes.size() != out->memory->size())
    throw std::logic_error("from_bytes: expected " + std::to_string(out->memory->size()) +
                           " bytes for shape " + text(out->shape) + ", found " +
                           std::to_string(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), out->memory->begin());
  return out;
}

ArrayPtr view(const ArrayPtr& a, Dims shape) {
  if (count_of(shape) != a->count())
    throw SemanticError(ErrorClass::runtime_error, "view: expected a shape of " + std::to_string(a->count()) +
                                                       " elements, found " + text(shape));
  auto strides = view_strides(*a, shape);
  if (!strides)
    throw SemanticError(ErrorClass::runtime_error,
                        "view: shape " + text(a->shape) + " with strides " + text(a->strides) +
                            " cannot be seen as " + text(shape) + " without a copy; call contiguous() first");
  return alias(*a, std::move(shape), std::move(*strides), a->offset);
}

ArrayPtr as_strided(const ArrayPtr& a, Dims shape, Dims strides, std::optional<int64_t> offset) {
  const int64_t first = offset.value_or(a->offset);
  int64_t last = first;
  for (size_t i = 0; i < shape.size() && i < strides.size(); ++i) last += (shape[i] - 1) * strides[i];
  const int64_t room = static_cast<int64_t>(a->memory->size()) / bytes_of(a->dtype);
  if (shape.size() != strides.size() || first < 0 || (count_of(shape) > 0 && last >= room))
    throw SemanticError(ErrorClass::runtime_error, "as_strided: shape " + text(shape) + " with strides " +
                                                       text(strides) + " from element " +
                                                       std::to_string(first) + " does not lie within " +
                                                       std::to_string(room) + " elements");
  return alias(*a, std::move(shape), std::move(strides), first);
}

ArrayPtr slice(const ArrayPtr& a, size_t dim, int64_t start, int64_t end) {
  if (dim >= a->shape.size() || start < 0 || end < start || end > a->shape[dim])
    throw SemanticError(ErrorClass::runtime_error, "slice: elements " + std::to_string(start) + " to " +
                                                       std::to_string(end) + " of dimension " +
                                                       std::to_string(dim) + " do not lie within shape " +
                                                       text(a->shape));
  Dims shape = a->shape;
  shape[dim] = end - start;
  return alias(*a, std::move(shape), a->strides, a->offset + start * a->strides[dim]);
}

ArrayPtr transpose(const ArrayPtr& a, size_t i, size_t j) {
  if (i >= a->shape.size() || j >= a->shape.size())
    throw SemanticError(ErrorClass::runtime_error, "transpose: shape " + text(a->shape) +
                                                       " has no dimensions " + std::to_string(i) + " and " +
                                                       std::to_string(j));
  Dims shape = a->shape, strides = a->strides;
  std::swap(shape[i], shape[j]);
  std::swap(strides[i], strides[j]);
  return alias(*a, std::move(shape), std::move(strides), a->offset);
}

ArrayPtr contiguous(const ArrayPtr& a) { return a->contiguous() ? a : clone(a); }

ArrayPtr clone(const ArrayPtr& a) {
  ArrayPtr out = fresh(a->shape, a->dtype, std::byte{0});
  copy_into(*a, *out);
  return out;
}

void copy_into(const Array& from, Array& to) {
  if (from.dtype != to.dtype || from.shape != to.shape)
    throw SemanticError(ErrorClass::runtime_error,
                        "copy: expected " + std::string(name_of(to.dtype)) + " " + text(to.shape) +
                            ", found " + std::string(name_of(from.dtype)) + " " + text(from.shape));
  const int64_t bytes = bytes_of(from.dtype), run = from.shape.empty() ? 1 : from.shape.back();
  const int64_t from_step = from.shape.empty() ? 1 : from.strides.back(),
                to_step = to.shape.empty() ? 1 : to.strides.back();
  std::vector<int64_t> starts;
  each_run(to, [&](int64_t offset) { starts.push_back(offset); });
  size_t at = 0;
  each_run(from, [&](int64_t offset) {
    const std::byte* source = from.memory->data() + offset * bytes;
    std::byte* target = to.memory->data() + starts[at++] * bytes;
    if (from_step == 1 && to_step == 1) {
      std::memmove(target, source, static_cast<size_t>(run * bytes));
      return;
    }
    for (int64_t i = 0; i < run; ++i)
      std::memcpy(target + i * to_step * bytes, source + i * from_step * bytes, static_cast<size_t>(bytes));
  });
}

ArrayPtr concatenate(std::span<const ArrayPtr> parts) {
  if (parts.empty())
    throw SemanticError(ErrorClass::runtime_error, "concatenate: expected at least one array, found none");
  Dims shape = parts[0]->shape;
  if (shape.empty())
    throw SemanticError(ErrorClass::runtime_error,
                        "concatenate: expected arrays of one dimension or more, found a scalar");
  shape[0] = 0;
  for (const ArrayPtr& p : parts) {
    if (p->dtype != parts[0]->dtype || p->shape.size() != shape.size() ||
        !std::equal(shape.begin() + 1, shape.end(), p->shape.begin() + 1))
      throw SemanticError(ErrorClass::runtime_error,
                          "concatenate: expected arrays of " + std::string(name_of(parts[0]->dtype)) +
                              " like " + text(parts[0]->shape) + " except in the first dimension, found " +
                              std::string(name_of(p->dtype)) + " " + text(p->shape));
    shape[0] += p->shape[0];
  }
  ArrayPtr out = fresh(shape, parts[0]->dtype, std::byte{0});
  int64_t row = 0;
  for (const ArrayPtr& p : parts) {
    copy_into(*p, *slice(out, 0, row, row + p->shape[0]));
    row += p->shape[0];
  }
  return out;
}

bool equal_bytes(const Array& a, const Array& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  const ArrayPtr x = contiguous(std::make_shared<Array>(a)), y = contiguous(std::make_shared<Array>(b));
  return std::ranges::equal(x->bytes(), y->bytes());
}

bool share_memory(const Array& a, const Array& b) { return a.memory == b.memory; }

}  // namespace assay::training

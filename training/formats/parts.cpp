#include "training/formats/parts.h"

#include <algorithm>
#include <cstring>

#include "fixtures/inputs.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

// What a plane is made of: its stem behind the direction says which buffer.
const ArrayPtr& buffer_of(const Codes& codes, const Plane& plane) {
  const string stem = plane.name.substr(plane.name.find('.') + 1);
  return stem == "data" ? codes.data : stem == "amax" ? codes.amax : codes.scale;
}

// The bytes of `a` as the plane lays them out: its own where they fill the plane, else the rectangle that
// both have, in zeros.
std::vector<std::byte> fitted(const Plane& plane, const ArrayPtr& a) {
  if (!a)
    raise_runtime_error("dequantize: expected the buffer behind " + plane.name +
                        ", found none; quantize in that direction first");
  if (a->dtype != dtype_of(plane.encoding))
    raise_runtime_error("dequantize: expected " + string(name_of(dtype_of(plane.encoding))) + " behind " +
                        plane.name + ", found " + string(name_of(a->dtype)));
  const ArrayPtr flat = contiguous(a);
  std::vector<std::byte> out(plane.bytes());
  if (flat->bytes().size() == out.size()) {
    std::copy(flat->bytes().begin(), flat->bytes().end(), out.begin());
    return out;
  }
  if (plane.name.ends_with(".data") || flat->shape.size() != 2)
    raise_runtime_error("dequantize: expected " + std::to_string(out.size()) + " bytes behind " + plane.name +
                        ", found " + std::to_string(flat->bytes().size()));
  const size_t element = static_cast<size_t>(bytes_of(flat->dtype));
  const size_t from = static_cast<size_t>(flat->shape[1]) * element,
               to = static_cast<size_t>(plane.padded.cols) * element;
  for (int64_t r = 0; r < std::min(plane.padded.rows, flat->shape[0]); ++r)
    std::memcpy(out.data() + static_cast<size_t>(r) * to,
                flat->bytes().data() + static_cast<size_t>(r) * from, std::min(from, to));
  return out;
}

ArrayPtr moved(const ArrayPtr& a, int64_t rows, int64_t cols, Dims shape) {
  return view(swapped(view(contiguous(a), {rows, cols})), std::move(shape));
}

}  // namespace

ArrayPtr swapped(const ArrayPtr& a) { return clone(transpose(a, 0, 1)); }

ArrayPtr last_to_front(const ArrayPtr& a) {
  if (a->shape.size() < 2) return clone(a);
  return moved(a, count_of(Dims(a->shape.begin(), a->shape.end() - 1)), a->shape.back(), turned(a->shape));
}

ArrayPtr front_to_last(const ArrayPtr& a) {
  if (a->shape.size() < 2) return clone(a);
  return moved(a, a->shape.front(), count_of(Dims(a->shape.begin() + 1, a->shape.end())),
               turned_back(a->shape));
}

ArrayPtr padded_with_zeros(const ArrayPtr& a, const Dims& padded) {
  const ArrayPtr out = zeros(padded, a->dtype);
  const int64_t rows = std::min(a->shape[0], padded[0]), cols = std::min(a->shape[1], padded[1]);
  copy_into(*slice(slice(a, 0, 0, rows), 1, 0, cols), *slice(slice(out, 0, 0, rows), 1, 0, cols));
  return out;
}

ArrayPtr first_rows(const ArrayPtr& a, int64_t rows) {
  return a->shape[0] == rows ? a : slice(a, 0, 0, rows);
}

Dims resolved(const Dims& wanted, int64_t count) {
  Dims out = wanted;
  const auto open = std::find(out.begin(), out.end(), -1);
  if (open != out.end()) {
    *open = 1;
    const int64_t rest = count_of(out);
    if (rest == 0 || count % rest != 0 || std::find(out.begin(), out.end(), -1) != out.end())
      raise_runtime_error("view: expected a shape whose -1 divides " + std::to_string(count) +
                          " elements, found none");
    *open = count / rest;
  }
  if (count_of(out) != count)
    raise_runtime_error("view: expected a shape of " + std::to_string(count) + " elements, found one of " +
                        std::to_string(count_of(out)));
  return out;
}

void copy_optional(const ArrayPtr& from, const ArrayPtr& to) {
  if (from && to) copy_into(*from, *to);
}

void expect_same(bool same, std::string_view storage, std::string_view what) {
  if (!same)
    raise_runtime_error("copy_from_storage: expected a " + string(storage) + " of the same " + string(what) +
                        ", found another");
}

std::vector<ArrayPtr> chosen(const ArrayPtr& rows, const ArrayPtr& columns, bool rowwise, bool columnwise) {
  if (!rowwise && !columnwise)
    throw SemanticError(ErrorClass::value_error,
                        "get_data_tensors: expected a direction, found neither asked for");
  if (rowwise && columnwise) return {rows, columns};
  return {rowwise ? rows : columns};
}

void raise_runtime_error(const string& what) { throw SemanticError(ErrorClass::runtime_error, what); }

string with_article(std::string_view class_name) {
  const bool vowel = std::string_view("IMN").find(class_name.front()) !=
                     std::string_view::npos;  // as one says Identity, MXFP8, NVFP4
  return (vowel ? "an " : "a ") + string(class_name);
}

ArrayPtr dequantized(Session& session, const assay::Quantizer& settings, Direction direction,
                     const Dims& logical, DType to, const Codes& codes) {
  Problem p;
  p.op = Dequantize{encoding_of(to), CodesFrom::codes};
  p.x.shape = flattened(logical);
  p.x.source = encoding_of(to);
  p.quantizer(direction) = settings;
  if (p.x.shape.count() == 0) return zeros(logical, to);  // the contract has no empty tensors outside a split
  std::vector<PlaneData> inputs;
  for (const Plane& plane : input_planes(p))
    inputs.push_back({plane, fitted(plane, buffer_of(codes, plane))});
  return from_bytes(logical, to, session.run(p, inputs).at(0).bytes);
}

json::Value names_as_json(const std::vector<string>& names) {
  json::Value out = json::array();
  for (const string& name : names) out.push(name);
  return out;
}

}  // namespace assay::training

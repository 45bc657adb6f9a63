#include "compare/witness/vectors/training.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "training/base/padding.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"
#include "training/groups/split_quantize.h"

namespace assay {

namespace {

using std::string;
using std::string_view;
using namespace training;

constexpr string_view kMxfp8Bias = "mxfp8_dbias", kDelayedBias = "fp8_delayed_dbias",
                      kPadding = "multi_padding";
constexpr string_view kPadded = ".padded";

Error wrong(string message) { return {std::move(message), 0, ""}; }

// A tensor of binary32, binary16 or bfloat16 as an Array; throws what the caller says back.
ArrayPtr array_of(const safetensors::File& file, const string& name) {
  const safetensors::Tensor* t = file.find(name);
  if (!t) throw std::runtime_error(fmt::format("the file has no tensor '{}'", name));
  if (t->dtype == safetensors::Dtype::F32) return from_bytes(t->shape, DType::float32, t->bytes);
  if (t->dtype == safetensors::Dtype::BF16) return from_bytes(t->shape, DType::bfloat16, t->bytes);
  if (t->dtype == safetensors::Dtype::F16) return from_bytes(t->shape, DType::float16, t->bytes);
  throw std::runtime_error(
      fmt::format("tensor '{}' is {}, expected F32, BF16 or F16", name, safetensors::name(t->dtype)));
}

ArrayPtr matrix_of(const safetensors::File& file, const string& name) {
  ArrayPtr x = array_of(file, name);
  if (x->shape.size() != 2)
    throw std::runtime_error(
        fmt::format("tensor '{}' has {} dimensions, expected a matrix", name, x->shape.size()));
  return x;
}

Encoding element_of(const json::Value& params) {
  const string_view format = params.text("format");
  if (format == "e4m3") return Encoding::e4m3;
  if (format == "e5m2") return Encoding::e5m2;
  throw std::runtime_error(fmt::format("params.format is '{}', expected e4m3 or e5m2", format));
}

// The sum over rows that the quantizing entry makes, of any size: of MXFP8 in both directions, of delayed
// scaling in rows, as the files hold their codes.
ArrayPtr bias_gradient(string_view family, const safetensors::File& file, const json::Value& params,
                       Subject& subject) {
  Session session(subject);
  QuantizerPtr quantizer;
  if (family == kMxfp8Bias) {
    quantizer = std::make_shared<MXFP8Quantizer>(element_of(params));
  } else {
    const ArrayPtr scale = array_of(file, "scale");
    if (scale->count() != 1)
      throw std::runtime_error(fmt::format("tensor 'scale' has {} elements, expected 1", scale->count()));
    quantizer = std::make_shared<Float8Quantizer>(view(scale, {}), zeros({1}, DType::float32),
                                                  element_of(params), true, false);
  }
  return fused_bias_gradient(session, matrix_of(file, "grad"), *quantizer);
}

// Rows of +0 behind the matrix; what removes them again must give the matrix back.
ArrayPtr padded(const safetensors::File& file, const json::Value& params, const string& input) {
  const auto align = params.find("align") ? params.find("align")->to_double() : std::nullopt;
  if (!align || *align < 1 || *align != static_cast<double>(static_cast<int64_t>(*align)))
    throw std::runtime_error("params lack 'align', a positive number of rows");
  const ArrayPtr x = matrix_of(file, input);
  const ArrayPtr out = pad_rows(x, {x->shape[0]}, static_cast<int64_t>(*align));
  if (!equal_bytes(*unpad_rows(out, {x->shape[0]}, static_cast<int64_t>(*align)), *x))
    throw std::logic_error("unpad_rows does not undo pad_rows");
  return out;
}

string difference(const Array& got, const Array& want) {
  if (got.dtype != want.dtype)
    return fmt::format("dtype: {}, expected {}", name_of(got.dtype), name_of(want.dtype));
  if (got.shape != want.shape)
    return fmt::format("shape: [{}], expected [{}]", fmt::join(got.shape, ", "), fmt::join(want.shape, ", "));
  const auto a = got.bytes(), b = want.bytes();
  const auto at = static_cast<int64_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  if (at == static_cast<int64_t>(a.size())) return {};
  const Encoding e = encoding_of(got.dtype);
  const int64_t i = at / bytes_of(got.dtype), columns = got.shape.back();
  return fmt::format("row {}, column {}: {}, expected {}", i / columns, i % columns,
                     code_hex(e, code_at(e, a, i)), code_hex(e, code_at(e, b, i)));
}

}  // namespace

bool is_training_family(string_view family) {
  return family == kMxfp8Bias || family == kDelayedBias || family == kPadding;
}

bool is_training_tensor(string_view family, string_view tensor) {
  if (family == kPadding) return tensor.starts_with("t") && tensor.ends_with(kPadded);
  return is_training_family(family) && tensor == "dbias";
}

Result<string> training_difference(string_view family, const safetensors::File& file,
                                   const json::Value& params, string_view tensor, Subject& subject) {
  try {
    const ArrayPtr want = array_of(file, string(tensor));
    if (family == kPadding) {
      const string input = string(tensor.substr(0, tensor.size() - kPadded.size())) + ".input";
      return difference(*padded(file, params, input), *want);
    }
    return difference(*bias_gradient(family, file, params, subject), *want);
  } catch (const std::exception& e) {
    return wrong(e.what());
  }
}

}  // namespace assay

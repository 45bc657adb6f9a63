#include "compare/packs/checkpoint_layers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "compare/packs/dump.h"
#include "compare/text/printable.h"

namespace assay {

namespace {

using std::string;

constexpr double kNvfp4Range = 6.0 * 448.0;  // N10.2

bool is_fp8(const string& word) { return word == "F8_E4M3" || word == "F8_E5M2"; }
bool is_gguf_fp4(const string& word) { return word == "MXFP4" || word == "NVFP4"; }
bool is_byte(const string& word) { return word == "U8" || word == "F8_E8M0"; }

// The values of a scale tensor of any type that scales are stored in. Empty: another type.
std::vector<float> values_of(const StoredTensor& t) {
  if (t.word != "F32" && t.word != "BF16" && t.word != "F16" && t.word != "F8_E8M0") return {};
  std::vector<float> out(static_cast<size_t>(t.count()));
  const auto* bytes = reinterpret_cast<const unsigned char*>(t.bytes.data());
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    if (t.word == "F32") {
      std::memcpy(&out[i], bytes + 4 * i, 4);
    } else if (t.word == "BF16") {
      std::memcpy(&half, bytes + 2 * i, 2);
      out[i] = std::bit_cast<float>(uint32_t{half} << 16);
    } else if (t.word == "F16") {
      std::memcpy(&half, bytes + 2 * i, 2);
      const int exponent = half >> 10 & 31;
      const float fraction = static_cast<float>(half & 1023);
      const float size = exponent == 31 ? INFINITY
                         : exponent     ? std::ldexp(fraction + 1024, exponent - 25)
                                        : std::ldexp(fraction, -24);
      out[i] = half >> 15 ? -size : size;
    } else {
      out[i] = std::ldexp(1.0f, bytes[i] - 127);
    }
  }
  return out;
}

bool all_powers_of_two(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float v) {
    int exponent = 0;
    return std::frexp(v, &exponent) == 0.5f;
  });
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

// ---- what a layer is --------------------------------------------------------------------------------------

// E4M3 or E5M2 codes with scales in blocks, for each row, or one.
void read_fp8(CheckpointLayer& layer, const StoredTensor& codes, const StoredTensor& scales) {
  const Shape w = codes.matrix(), s = scales.matrix();
  const string element = codes.word == "F8_E5M2" ? "element=e5m2" : "element=e4m3";
  const auto blocks = [](int64_t n) { return (n + 127) / 128; };
  if (is_byte(scales.word) && s.rows == w.rows && s.cols == (w.cols + 31) / 32) {
    layer.format = "mxfp8";
    layer.keys = element;
  } else if (scales.word == "U8" || values_of(scales).empty()) {
    layer.why_not = fmt::format("scales of {} and shape {}x{}", scales.word, s.rows, s.cols);
  } else if (scales.count() == 1) {
    layer.format = "fp8_current";
    layer.keys = element;
  } else if (scales.count() == w.rows && (s.cols == 1 || s.rows == 1)) {
    layer.format = "fp8_current";
    layer.keys = element + " row_scaled=1";
  } else if (s.rows == blocks(w.rows) && s.cols == blocks(w.cols)) {
    layer.format = "fp8_block";
    layer.keys = element + " block=128x128 pow2=" + (all_powers_of_two(values_of(scales)) ? "1" : "0");
  } else {
    layer.why_not = fmt::format(
        "{}x{} scales for {}x{} codes; tiles of 128x128, rows, a tensor and blocks of 32 are read", s.rows,
        s.cols, w.rows, w.cols);
  }
}

// Two codes to a byte, with a byte for each block of scales.
void read_fp4(CheckpointLayer& layer, const Checkpoint& c, const StoredTensor& codes,
              const StoredTensor& scales, const string& global, const string& second) {
  const int64_t cols = 2 * codes.matrix().cols, blocks = scales.matrix().cols;
  if (scales.word == "F8_E4M3" && blocks == (cols + 15) / 16) {
    layer.format = "nvfp4";
    layer.divides = c.find(global) != nullptr;
    layer.tensor_scale = layer.divides ? global : c.find(second) ? second : "";
    if (layer.tensor_scale.empty()) layer.why_not = "NVFP4 without " + global + " or " + second;
    else if (c.find(layer.tensor_scale)->count() != 1 || values_of(*c.find(layer.tensor_scale)).empty())
      layer.why_not = layer.tensor_scale + ": expected one scale of the tensor";
  } else if (is_byte(scales.word) && blocks == (cols + 31) / 32) {
    layer.format = "mxfp4";
  } else {
    layer.why_not =
        fmt::format("packed codes with {} scales of {} for a row of {}", blocks, scales.word, cols);
  }
}

// The layer whose codes a tensor holds, or one without a name.
CheckpointLayer layer_at(const Checkpoint& c, const string& name, const StoredTensor& t) {
  CheckpointLayer out;
  const bool packed = name.ends_with(".weight_packed");
  if (is_gguf_fp4(t.word) || t.word.starts_with("ggml type")) {
    out.name = name;
    out.original = out.codes = name;
    const string scale = name.substr(0, name.rfind('.')) + ".scale";  // that of a repacked NVFP4 checkpoint
    if (t.word == "MXFP4") out.format = "mxfp4";
    else if (t.word == "NVFP4") out.format = "nvfp4";
    if (const StoredTensor* s = t.word == "NVFP4" ? c.find(scale) : nullptr;
        s && s->count() == 1 && !values_of(*s).empty())
      out.tensor_scale = scale;
    if (out.format.empty()) out.why_not = t.word + " is no format that is judged";
    return out;
  }
  if (!packed && !name.ends_with(".weight")) return out;
  const string base = name.substr(0, name.rfind('.'));
  const string scale = c.find(base + ".weight_scale") ? base + ".weight_scale" : base + ".weight_scale_inv";
  const StoredTensor* scales = c.find(scale);
  if (!packed && !is_fp8(t.word) && t.word != "U8" && t.word != "I8") return out;
  out.name = base;
  out.original = base + ".weight";
  out.codes = name;
  out.scales = scale;
  if (!scales) out.why_not = "no " + base + ".weight_scale and no " + base + ".weight_scale_inv";
  else if (t.count() == 0 || scales->count() == 0) out.why_not = "codes or scales without an element";
  else if (is_fp8(t.word)) read_fp8(out, t, *scales);
  else if (t.word == "U8" || t.word == "I8")
    read_fp4(out, c, t, *scales, base + ".weight_global_scale", base + ".weight_scale_2");
  else out.why_not = "codes of " + t.word + " are no format that is judged";
  if (!out.why_not.empty()) out.format.clear();
  return out;
}

// ---- planes -----------------------------------------------------------------------------------------------

// An amax as the key writes it: the bits of the nearest value that a weight of `word` can hold.
string amax_key(double amax, const string& word) {
  float value = static_cast<float>(amax);
  if (word == "BF16") value = std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x8000u) & 0xFFFF0000u);
  if (word == "F16") {  // f16 has 11 bits of precision, or steps of 2^-24
    int exponent = 0;
    std::frexp(value, &exponent);
    const int step = std::max(exponent - 11, -24);
    value = std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
  }
  return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(value));
}

// max |x| of a tensor of 16 or 32 bits, as a double.
double amax_of(const StoredTensor& t) {
  uint32_t most = 0;
  const size_t width = t.word == "F32" ? 4 : 2;
  for (size_t at = 0; at + width <= t.bytes.size(); at += width) {
    uint32_t bits = 0;
    std::memcpy(&bits, t.bytes.data() + at, width);
    most = std::max(most, bits & (width == 4 ? 0x7FFFFFFFu : 0x7FFFu));
  }
  StoredTensor one{t.word, {}, {reinterpret_cast<const std::byte*>(&most), width}};
  return values_of(one).front();
}

// Puts a plane into the case. Its bytes are the checkpoint's, or owned.
void add_plane(LayerCase& out, string name, safetensors::Dtype dtype, Shape shape,
               std::span<const std::byte> bytes) {
  safetensors::Tensor tensor{out.recorded.id + "/" + name, dtype, {shape.rows, shape.cols}, bytes};
  out.recorded.planes.push_back({std::move(name), std::move(tensor), ""});
}

// Codes and scales of GGUF's blocks, in the order of their elements. A block holds the scales of its parts, 1
// of 32 elements (MXFP4) or 4 of 16 (NVFP4), and then the parts' codes: a byte holds an element of a part's
// first half and one of its second.
void add_gguf_planes(LayerCase& out, const string& word, std::span<const std::byte> blocks, Shape x) {
  const bool nvfp4 = word == "NVFP4";
  const size_t parts = nvfp4 ? 4 : 1, half = nvfp4 ? 8 : 16, size = parts + parts * half,
               n = blocks.size() / size;
  std::vector<std::byte> scales(n * parts), codes(n * parts * half);
  for (size_t part = 0; part < n * parts; ++part) {
    const std::byte* block = blocks.data() + size * (part / parts);
    const std::byte* in = block + parts + half * (part % parts);
    scales[part] = block[part % parts];
    for (size_t i = 0; i < half; ++i) {
      const size_t first = 2 * (i % (half / 2));
      const auto nibble = [&](size_t at) { return i < half / 2 ? in[at] & std::byte{15} : in[at] >> 4; };
      codes[half * part + i] = nibble(first) | nibble(first + 1) << 4;
    }
  }
  out.owned.push_back(std::move(scales));
  out.owned.push_back(std::move(codes));
  add_plane(out, "row.scale_inv", nvfp4 ? safetensors::Dtype::F8_E4M3 : safetensors::Dtype::F8_E8M0,
            {x.rows, x.cols / static_cast<int64_t>(2 * half)}, out.owned[0]);
  add_plane(out, "row.data", safetensors::Dtype::U8, {x.rows, x.cols / 2}, out.owned[1]);
}

// Bytes of the first rows of a tensor of `of` rows.
std::span<const std::byte> first_rows(const StoredTensor& t, int64_t rows, int64_t of) {
  return of ? t.bytes.first(t.bytes.size() / static_cast<size_t>(of) * static_cast<size_t>(rows)) : t.bytes;
}

void add_safetensors_planes(LayerCase& out, const CheckpointLayer& layer, const StoredTensor& codes,
                            const StoredTensor& scales, Shape x, int64_t rows) {
  const bool fp4 = layer.format == "nvfp4" || layer.format == "mxfp4";
  const Shape s = scales.matrix();
  if (layer.format.starts_with("mx") || fp4) {
    add_plane(out, "row.scale_inv",
              layer.format == "nvfp4" ? safetensors::Dtype::F8_E4M3 : safetensors::Dtype::F8_E8M0,
              {rows, s.cols}, first_rows(scales, rows, x.rows));
  } else {
    std::vector<float> values = values_of(scales);
    const int64_t kept = layer.format == "fp8_block" ? (rows + 127) / 128 * s.cols
                         : values.size() == 1        ? 1
                                                     : rows;
    values.resize(static_cast<size_t>(kept));
    const Shape shape = layer.format == "fp8_block" ? Shape{kept / s.cols, s.cols} : Shape{kept, 1};
    out.owned.push_back(bytes_of(values));
    add_plane(out, "row.scale_inv", safetensors::Dtype::F32, shape, out.owned.back());
  }
  add_plane(out, "row.data", fp4 ? safetensors::Dtype::U8 : *safetensors::dtype_named(codes.word),
            {rows, fp4 ? x.cols / 2 : x.cols}, first_rows(codes, rows, x.rows));
}

// The key that says the amax of the tensor, and a note where the weight has another one.
string tensor_amax(LayerCase& out, const CheckpointLayer& layer, const Checkpoint& quantized,
                   const StoredTensor& x, bool part) {
  if (layer.format == "nvfp4" && layer.tensor_scale.empty()) return {};  // GGUF's own has none
  if (layer.format == "nvfp4") {
    const double stored = values_of(*quantized.find(layer.tensor_scale)).front();
    const double amax = layer.divides ? kNvfp4Range / stored : stored * kNvfp4Range;
    const double own = amax_of(x);
    const bool same = std::abs(amax - own) <= own / 64;  // a scale in bf16 does not tell its amax to the bit
    if (!same)
      out.notes.push_back(
          fmt::format("{} is that of an amax of {:g}, and the weight's is {:g}: it is shared with another "
                      "layer, or it is of another weight",
                      layer.tensor_scale, amax, own));
    if (!same || part) return " amax=" + amax_key(same ? own : amax, x.word);
    return {};
  }
  if (layer.format == "fp8_current" && part && layer.keys.find("row_scaled") == string::npos)
    return " amax=" + amax_key(amax_of(x), "F32");
  return {};
}

}  // namespace

std::vector<CheckpointLayer> layers_of(const Checkpoint& quantized) {
  std::vector<CheckpointLayer> out;
  for (const auto& [name, tensor] : quantized.tensors) {
    CheckpointLayer layer = layer_at(quantized, name, tensor);
    if (!layer.name.empty()) out.push_back(std::move(layer));
  }
  std::ranges::sort(out, [](const auto& a, const auto& b) { return dump_order(a.name, b.name); });
  return out;
}

Result<LayerCase> case_of_layer(const CheckpointLayer& layer, const Checkpoint& quantized,
                                const Checkpoint& originals, int64_t rows) {
  LayerCase out;
  const StoredTensor* x = originals.find(layer.original);
  if (!x) return Error{"the originals have no " + printable(layer.original), 0, ""};
  const string source = x->word == "BF16" ? "bf16" : x->word == "F16" ? "f16" : x->word == "F32" ? "f32" : "";
  if (source.empty())
    return Error{fmt::format("{}: expected an original of BF16, F16 or F32, found {}",
                             printable(layer.original), x->word),
                 0, ""};
  const StoredTensor& codes = *quantized.find(layer.codes);
  Shape shape = x->matrix();
  const int64_t stored = codes.count() * (layer.format.ends_with("fp4") && !is_gguf_fp4(codes.word) ? 2 : 1);
  if (stored != shape.count())
    return Error{fmt::format("{}: expected {} codes, as many as {} has elements, found {}",
                             printable(layer.codes), shape.count(), printable(layer.original), stored),
                 0, ""};
  const bool part = rows && rows < shape.rows;
  if (!part) rows = shape.rows;
  const string amax = tensor_amax(out, layer, quantized, *x, part);
  out.recorded.id = layer.name;
  out.recorded.line = fmt::format("quantize {} {}x{} {} dir=row {}{}", layer.format, rows, shape.cols, source,
                                  layer.keys, amax);
  out.owned.reserve(2);
  if (is_gguf_fp4(codes.word))
    add_gguf_planes(out, codes.word, first_rows(codes, rows, shape.rows), {rows, shape.cols});
  else add_safetensors_planes(out, layer, codes, *quantized.find(layer.scales), shape, rows);
  add_plane(out, "x", *safetensors::dtype_named(x->word), {rows, shape.cols},
            first_rows(*x, rows, shape.rows));
  std::ranges::sort(out.recorded.planes, {}, &PackPlane::name);
  return out;
}

}  // namespace assay

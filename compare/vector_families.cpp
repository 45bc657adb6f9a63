#include "compare/vector_families.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "contract/f32_text.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

constexpr VectorRow kRows[] = {
    // casts, every code of a 16-bit source or a choice of binary32 values
    {"table_from16", "{to:e4m3|e5m2}.{overflow:satfinite|nosat}", "cast {to} {shape:input} {source:input} overflow={overflow}", "x=input", "y"},
    {"table_from16", "{to:e2m1|e2m3|e3m2}.{round:rn|rz}", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y"},
    {"table_from16", "{to:e2m1}.{round:rn|rz}.packed", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y"},
    {"table_from16", "e8m0.{round:rz|rp}.{overflow:satfinite|nosat}", "cast e8m0 {shape:input} {source:input} round={round} overflow={overflow}", "x=input", "y"},
    {"table_from_f32", "{to:e4m3|e5m2}.{overflow:satfinite|nosat}", "cast {to} {shape:input} {source:input} overflow={overflow}", "x=input", "y"},
    {"table_from_f32", "{to:e2m1|e2m3|e3m2}.{round:rn|rz}", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y"},
    {"table_from_f32", "{to:e2m1}.{round:rn|rz}.packed", "cast {to} {shape:input} {source:input} round={round}", "x=input", "y"},
    {"table_from_f32", "e8m0.{round:rz|rp}.{overflow:satfinite|nosat}", "cast e8m0 {shape:input} {source:input} round={round} overflow={overflow}", "x=input", "y"},
    {"table_from_f32", "te_float_to_e8m0", "cast e8m0 {shape:input} {source:input} round=rp overflow=sat", "x=input", "y"},
    {"table_from_f32", "{to:bf16|f16}.rn", "cast {to} {shape:input} {source:input}", "x=input", "y"},

    // decoding, entry i is code i
    {"table_decode", "{from:e4m3|e5m2|e2m1|e2m3|e3m2|e8m0}.{to:f16|bf16|f32}", "cast {to} {count:{from}.{to}} {from} fill=every_code", "x=@codes", "y"},
    {"table_decode", "e8m0.te_exp2f_rcp.f32", "scale_chain mxfp8 {count:e8m0.te_exp2f_rcp.f32} e8m0 fill=every_code", "x=@codes", "multiplier"},
    {"table_decode", "e8m0.te_kernel_exp2f.f32", "scale_chain mxfp8 {count:e8m0.te_kernel_exp2f.f32} e8m0 fill=every_code", "x=@codes", "decoded"},

    // MXFP8: both directions in one launch, and each alone
    {"mxfp8_1d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format}", "x=input", "{dir}.data"},
    {"mxfp8_1d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format}", "x=input", "{dir}.data"},
    {"mxfp8_1d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format}", "x=input", "{dir}.scale_inv"},
    {"mxfp8_1d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format}", "x=input", "{dir}.scale_inv"},
    {"mxfp8_1d", "scale_{dir:rowwise|colwise}_swizzled", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} scales=gemm", "x=input", "{dir}.scale_gemm"},
    {"mxfp8_2d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} block=32x32", "x=input", "{dir}.data"},
    {"mxfp8_2d", "data_{dir}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format} block=32x32", "x=input", "{dir}.data"},
    {"mxfp8_2d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} block=32x32", "x=input", "{dir}.scale_inv"},
    {"mxfp8_2d", "scale_{dir:rowwise|colwise}", "quantize mxfp8 {shape:input} {source:input} dir={dir} element={format} block=32x32", "x=input", "{dir}.scale_inv"},
    {"mxfp8_2d", "scale_{dir:rowwise|colwise}_swizzled", "quantize mxfp8 {shape:input} {source:input} dir=both element={format} block=32x32 scales=gemm", "x=input", "{dir}.scale_gemm"},
    {"mxfp8_dequantize", "{dir:rowwise|colwise}.{out}", "dequantize mxfp8 {shape:data} f32 dir={dir} element={format} out={out} input=codes", "{dir}.scale_inv=scale_{dir} {dir}.data=data", "y"},

    // per-tensor FP8
    {"fp8_current_scaling", "{c}.{what:amax|scale|scale_inv|data}", "quantize fp8_current {shape:input} {source:input} dir=row element={format} eps={f32:amax_epsilon} pow2={force_pow_2_scales}", "x=input", "row.{what}"},
    {"fp8_current_scaling", "{c}.{what:amax|scale|scale_inv|data}", "quantize fp8_current {shape:input} {source:input} dir=both element={format} eps={f32:amax_epsilon} pow2={force_pow_2_scales}", "x=input", "row.{what}"},
    {"fp8_current_scaling", "{c}.data_t", "quantize fp8_current {shape:input} {source:input} dir=both element={format} eps={f32:amax_epsilon} pow2={force_pow_2_scales}", "x=input", "col.data"},
    {"fp8_current_scaling", "{c}.dequant_{out}", "dequantize fp8_current {shape:input} {source:input} dir=row element={format} out={out} input=codes", "row.scale_inv={c}.scale_inv row.data={c}.data", "y"},
    {"fp8_current_scaling_disputed", "{c}.{source_name:te_host|te_python|kernel_helper}.{what:amax|scale|scale_inv|data}", "quantize fp8_current {shape:{c}.input} {source:{c}.input} dir=row element={format}", "x={c}.input", "row.{what}"},
    {"fp8_delayed_scaling", "{c}.{what:amax|scale_inv|data}", "quantize fp8_delayed {shape:input} {source:input} dir=row element={format} scale={bits:{c}.scale}", "x=input", "row.{what}"},
    {"fp8_delayed_scaling", "{c}.{what:amax|scale_inv|data}", "quantize fp8_delayed {shape:input} {source:input} dir=both element={format} scale={bits:{c}.scale}", "x=input", "row.{what}"},
    {"fp8_delayed_scaling", "{c}.data_t", "quantize fp8_delayed {shape:input} {source:input} dir=both element={format} scale={bits:{c}.scale}", "x=input", "col.data"},
    {"fp8_tensor_dequantize", "{element:e4m3|e5m2}.{c}.{out}", "dequantize fp8_delayed {count:{element}.codes} f32 dir=row element={element} out={out} input=codes", "row.scale_inv={c}.scale_inv row.data={element}.codes", "y"},
    {"multi_cast_transpose", "amax[{i}]", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "row.amax"},
    {"multi_cast_transpose", "scale_inv[{i}]", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "row.scale_inv"},
    {"multi_cast_transpose", "t{i}.data", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "row.data"},
    {"multi_cast_transpose", "t{i}.data_t", "quantize fp8_delayed {shape:t{i}.input} {source:t{i}.input} dir=both element={format} scale={bits:scale[{i}]}", "x=t{i}.input", "col.data"},

    // layout
    {"scale_swizzle", "{c}.swizzled", "swizzle mxfp8 {blocks_of_32:direction} e8m0 dir={direction}", "{direction}.scale_inv={c}.scale", "{direction}.scale_gemm"},
    {"scale_swizzle", "{c}.unswizzled", "swizzle mxfp8 {blocks_of_32:direction} e8m0 dir={direction} inverse=1", "{direction}.scale_gemm={c}.unswizzle_input", "{direction}.scale_inv"},
};

using Captures = std::map<string, string, std::less<>>;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// Matches text against a pattern, longest captures first.
bool match(string_view pattern, string_view text, Captures& captures) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '{') return !text.empty() && pattern[0] == text[0] && match(pattern.substr(1), text.substr(1), captures);
  const size_t close = pattern.find('}');
  const string_view inside = pattern.substr(1, close - 1), rest = pattern.substr(close + 1);
  const size_t colon = inside.find(':');
  const string name(inside.substr(0, colon));
  string_view choices = colon == string_view::npos ? string_view{} : inside.substr(colon + 1);
  auto take = [&](string_view word) {
    if (word.empty() || !text.starts_with(word) || !match(rest, text.substr(word.size()), captures)) return false;
    captures[name] = string(word);
    return true;
  };
  if (!choices.empty()) {
    for (; !choices.empty(); choices.remove_prefix(std::min(choices.find('|') + 1, choices.size()))) {
      if (take(choices.substr(0, choices.find('|')))) return true;
      if (choices.find('|') == string_view::npos) return false;
    }
    return false;
  }
  size_t n = 0;
  while (n < text.size() && is_word(text[n])) ++n;
  for (; n > 0; --n)
    if (take(text.substr(0, n))) return true;
  return false;
}

string line_word(string_view word) {
  static constexpr std::pair<string_view, string_view> kWords[] = {
      {"rn", "rne"}, {"satfinite", "sat"}, {"rowwise", "row"}, {"colwise", "col"}, {"columnwise", "col"}, {"true", "1"}, {"false", "0"},
  };
  for (const auto& [from, to] : kWords)
    if (word == from) return string(to);
  return string(word);
}

Error wrong(string message) { return {std::move(message), 0, ""}; }

// What an element of a tensor is as an element of a plane.
std::optional<Encoding> encoding_of(safetensors::Dtype dtype) {
  using enum safetensors::Dtype;
  switch (dtype) {
    case F32: return Encoding::f32;
    case BF16: return Encoding::bf16;
    case F16: return Encoding::f16;
    case F8_E4M3: return Encoding::e4m3;
    case F8_E5M2: return Encoding::e5m2;
    case F8_E8M0: return Encoding::e8m0;
    default: return std::nullopt;
  }
}

// Ranks other than 2 are flattened: leading dimensions are rows, a vector is one row.
Shape shape_of(const safetensors::Tensor& t) {
  const int64_t cols = t.shape.empty() ? 1 : t.shape.back();
  return {t.shape.size() < 2 ? 1 : cols ? t.count() / cols : t.shape.front(), cols};
}

class Expander {
 public:
  Expander(const safetensors::File& file, const json::Value& params, const Captures& captures) : file_(file), params_(params), captures_(captures) {
    const auto c = captures.find("c");
    for (const char* list : {"cases", "configs"})
      if (const json::Value* cases = params.find(list); cases && cases->array() && c != captures.end())
        for (const json::Value& one : *cases->array())
          if (one.text("prefix") == c->second + ".") case_ = &one;
  }

  // Replaces every {...}; `as_line`: words become the line's words.
  Result<string> expand(string_view text, bool as_line) const {
    string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '{') {
        out += text[at++];
        continue;
      }
      size_t end = at, depth = 0;
      do {
        depth += text[end] == '{';
        depth -= text[end] == '}';
        ++end;
      } while (depth > 0);
      auto value = replace(text.substr(at + 1, end - at - 2));
      if (!value) return value.error();
      out += as_line ? line_word(*value) : *value;
      at = end;
    }
    return out;
  }

  Result<const safetensors::Tensor*> tensor(string_view name) const {
    const safetensors::Tensor* t = file_.find(name);
    if (!t) return wrong(fmt::format("no tensor '{}' in the file", name));
    return t;
  }

 private:
  const json::Value* field(string_view name) const {
    const json::Value* v = case_ ? case_->find(name) : nullptr;
    return v ? v : params_.find(name);
  }

  Result<string> replace(string_view inside) const {
    const size_t colon = inside.find(':');
    if (colon == string_view::npos) {
      if (const auto c = captures_.find(inside); c != captures_.end()) return c->second;
      const json::Value* v = field(inside);
      if (!v) return wrong(fmt::format("params lack '{}'", inside));
      if (v->string()) return *v->string();
      if (const auto i = v->to_int()) return std::to_string(*i);
      if (const auto b = v->to_bool()) return string(*b ? "1" : "0");
      return wrong(fmt::format("params.{} is {}, expected a word or an integer", inside, v->describe()));
    }
    const string_view what = inside.substr(0, colon);
    const auto argument = expand(inside.substr(colon + 1), false);
    if (!argument) return argument.error();
    if (what == "f32") {
      const json::Value* v = field(*argument);
      const auto number = v ? v->to_double() : std::nullopt;
      if (!number) return wrong(fmt::format("params lack the number '{}'", *argument));
      const float narrow = static_cast<float>(*number);   // a file's parameter, not a normative step
      uint32_t bits;
      std::memcpy(&bits, &narrow, 4);
      return fmt::format("0x{:08X}", bits);
    }
    if (what == "blocks_of_32") return scaled_shape(*argument);
    string name = *argument;
    int64_t element = 0;
    if (const size_t open = name.find('['); what == "bits" && open != string::npos) {
      element = std::atoll(name.c_str() + open + 1);
      name.resize(open);
    }
    const auto found = tensor(name);
    if (!found) return found.error();
    const safetensors::Tensor& t = **found;
    if (what == "shape") return fmt::format("{}x{}", shape_of(t).rows, shape_of(t).cols);
    if (what == "count") return fmt::format("1x{}", t.count());
    if (what == "source") {
      const auto e = encoding_of(t.dtype);
      if (!e) return wrong(fmt::format("tensor '{}' is {}, which is no source encoding", name, safetensors::name(t.dtype)));
      return string(info(*e).name);
    }
    if (t.dtype != safetensors::Dtype::F32 || element < 0 || element >= t.count())
      return wrong(fmt::format("tensor '{}' has no F32 element {}: it is {} with {} elements", name, element, safetensors::name(t.dtype), t.count()));
    uint32_t bits;
    std::memcpy(&bits, t.bytes.data() + 4 * element, 4);
    return fmt::format("0x{:08X}", bits);
  }

  // The shape of x from the logical sizes of its MXFP8 scales.
  Result<string> scaled_shape(string_view direction_field) const {
    const json::Value *dims = field("logical_dims"), *direction = field(direction_field);
    const auto* sizes = dims ? dims->array() : nullptr;
    if (!sizes || sizes->size() != 2 || !(*sizes)[0].to_int() || !(*sizes)[1].to_int() || !direction || !direction->string())
      return wrong("the case lacks logical_dims of two integers, or a direction");
    const int64_t a = *(*sizes)[0].to_int(), b = *(*sizes)[1].to_int();
    if (a < 0 || b < 0 || a > kMaxElements / 32 || b > kMaxElements / 32) return wrong("logical_dims are out of range");
    return line_word(*direction->string()) == "row" ? fmt::format("{}x{}", a, b * 32) : fmt::format("{}x{}", a * 32, b);
  }

  const safetensors::File& file_;
  const json::Value& params_;
  const Captures& captures_;
  const json::Value* case_ = nullptr;
};

// Rows of `from` columns into rows of `to` columns, zeros elsewhere.
std::vector<std::byte> pad(std::span<const std::byte> bytes, Shape from, Shape to, size_t element) {
  std::vector<std::byte> out(static_cast<size_t>(to.count()) * element);
  const size_t row = static_cast<size_t>(from.cols) * element;
  if (row == 0) return out;
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(out.data() + static_cast<size_t>(r * to.cols) * element, bytes.data() + static_cast<size_t>(r) * row, row);
  return out;
}

Error misfit(string_view tensor, const safetensors::Tensor& t, const Plane& plane) {
  return wrong(fmt::format("tensor '{}' ({}, {} elements) does not fit plane {} ({}, {}x{}, padded {}x{})", tensor, safetensors::name(t.dtype), t.count(), plane.name,
                           info(plane.encoding).name, plane.logical.rows, plane.logical.cols, plane.padded.rows, plane.padded.cols));
}

// 0: does not fit; 1: the meaningful elements, row by row; 2: all padded ones in the stored order, which is what a GEMM layout always is.
int fit(Shape shape, int64_t count, const Plane& plane) {
  auto same = [&](Shape s) { return shape == s || (count == s.count() && (shape.rows == 1 || s.rows == 1 || shape.cols == 1)); };
  if (plane.layout == ScaleLayout::gemm) return same(plane.padded) ? 2 : 0;
  return same(plane.logical) ? 1 : same(plane.padded) ? 2 : 0;
}

bool fits_encoding(const safetensors::Tensor& t, const Plane& plane) {
  const auto e = encoding_of(t.dtype);
  return e ? *e == plane.encoding : t.dtype == safetensors::Dtype::U8 && info(plane.encoding).bytes() == 1;   // codes are often kept as raw bytes
}

const Plane* plane_named(const std::vector<Plane>& planes, string_view name) {
  for (const Plane& p : planes)
    if (p.name == name) return &p;
  return nullptr;
}

Result<VectorCheck> check_of(const VectorRow& row, const safetensors::File& file, const json::Value& params, const safetensors::Tensor& expected,
                             const Captures& captures, const string& path, const string& sha256) {
  const Expander expander(file, params, captures);
  VectorCheck check;
  check.tensor = expected.name;
  if (const auto s = captures.find("source_name"); s != captures.end()) check.source = s->second;

  const auto line = expander.expand(row.line, true);
  if (!line) return line.error();
  auto problem = parse_line(*line);
  if (!problem) return wrong(fmt::format("'{}': {}", *line, problem.error().text()));
  check.problem = *problem;

  const std::vector<Plane> in = input_planes(check.problem);
  for (string_view rest = row.inputs; !rest.empty();) {
    const string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const auto name = expander.expand(item.substr(0, item.find('=')), true);
    if (!name) return name.error();
    const string_view from = item.substr(item.find('=') + 1);
    const Plane* plane = plane_named(in, *name);
    if (!plane) return wrong(fmt::format("'{}' has no input plane {}", *line, *name));
    PlaneData data{*plane, {}};
    if (from == "@codes") {
      data.bytes.resize(plane->bytes());
      for (size_t i = 0; i < data.bytes.size(); ++i) data.bytes[i] = static_cast<std::byte>(i);
    } else {
      const auto tensor_name = expander.expand(from, false);
      if (!tensor_name) return tensor_name.error();
      const auto t = expander.tensor(*tensor_name);
      if (!t) return t.error();
      const int how = fit(shape_of(**t), (*t)->count(), *plane);
      if (!how || !fits_encoding(**t, *plane)) return misfit(*tensor_name, **t, *plane);
      data.bytes = how == 2 ? std::vector<std::byte>((*t)->bytes.begin(), (*t)->bytes.end())
                            : pad((*t)->bytes, plane->logical, plane->padded, static_cast<size_t>(info(plane->encoding).bytes()));
      if (*name == "x") {
        check.problem.x.fill.kind = FillKind::pack;
        check.problem.x.fill.payload = path + "#" + *tensor_name + "@" + sha256;
      }
    }
    check.inputs.push_back(std::move(data));
  }

  const auto name = expander.expand(row.plane, true);
  if (!name) return name.error();
  check.plane = *name;
  const std::vector<Plane> out = output_planes(check.problem);
  const Plane* plane = plane_named(out, check.plane);
  if (!plane) return wrong(fmt::format("'{}' has no output plane {}", *line, check.plane));
  if (const auto i = captures.find("i"); i != captures.end() && row.tensor.ends_with("[{i}]")) {
    const size_t element = static_cast<size_t>(std::atoll(i->second.c_str())), size = static_cast<size_t>(info(plane->encoding).bytes());
    if (plane->logical.count() != 1 || !fits_encoding(expected, *plane)) return misfit(expected.name, expected, *plane);
    check.tensor += fmt::format("[{}]", element);
    check.want.assign(expected.bytes.begin() + static_cast<std::ptrdiff_t>(element * size), expected.bytes.begin() + static_cast<std::ptrdiff_t>((element + 1) * size));
    return check;
  }
  if (row.tensor.ends_with(".packed")) {   // element 2i in the low nibble of byte i
    if (static_cast<int64_t>(expected.bytes.size()) != (plane->logical.count() + 1) / 2) return misfit(expected.name, expected, *plane);
    for (int64_t i = 0; i < plane->logical.count(); ++i)
      check.want.push_back(expected.bytes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & std::byte{15});
    return check;
  }
  const int how = fit(shape_of(expected), expected.count(), *plane);
  if (!how || !fits_encoding(expected, *plane)) return misfit(expected.name, expected, *plane);
  check.padded = how == 2;
  check.want.assign(expected.bytes.begin(), expected.bytes.end());
  return check;
}

}  // namespace

std::span<const VectorRow> vector_rows() { return kRows; }

bool known_family(string_view family) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const VectorRow& r) { return r.family == family; });
}

Result<std::vector<VectorCheck>> checks_of(string_view family, const safetensors::File& file, const json::Value& params, string_view tensor, const string& path,
                                           const string& sha256) {
  const safetensors::Tensor* expected = file.find(tensor);
  if (!expected) return wrong(fmt::format("no tensor '{}' in the file", tensor));
  std::vector<VectorCheck> out;
  bool fits = false;
  for (const VectorRow& row : kRows) {
    if (row.family != family) continue;
    const bool each = row.tensor.ends_with("[{i}]");
    Captures captures;
    if (!match(each ? row.tensor.substr(0, row.tensor.size() - 5) : row.tensor, tensor, captures)) continue;
    fits = true;
    for (int64_t i = 0, n = each ? expected->count() : 1; i < n; ++i) {
      if (each) captures["i"] = std::to_string(i);
      auto check = check_of(row, file, params, *expected, captures, path, sha256);
      if (!check) return check.error();
      out.push_back(std::move(*check));
    }
  }
  if (!fits) return wrong(fmt::format("family {} has no row for a tensor called '{}'", family, tensor));
  return out;
}

}  // namespace assay

#include "compare/witness/vectors/source.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"

namespace assay {

namespace {

using safetensors::Dtype;
using std::string;
using std::string_view;

Error wrong(string message) { return {std::move(message), 0, ""}; }

string hex(uint32_t bits) { return fmt::format("0x{:08X}", bits); }

// {name}: a capture, or a field.
Result<string> plain_word(const VectorSource& from, string_view name) {
  const json::Value* v = from.field(name);
  if (!v) return wrong(fmt::format("params lack '{}'", name));
  if (v->string()) return *v->string();
  if (const auto i = v->to_int()) return std::to_string(*i);
  if (const auto b = v->to_bool()) return string(*b ? "1" : "0");
  return wrong(fmt::format("params.{} is {}, expected a word or an integer", name, v->describe()));
}

// {f32:name}
Result<string> binary32(const VectorSource& from, string_view name) {
  const json::Value* v = from.field(name);
  const auto number = v ? v->to_double() : std::nullopt;
  if (!number) return wrong(fmt::format("params lack the number '{}'", name));
  const float narrow = static_cast<float>(*number);  // a file's parameter, not a normative step
  uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  return hex(bits);
}

// {signs:name}: a mask in hexadecimal, or whether TransformerEngine's is used.
Result<string> signs(const VectorSource& from, string_view name) {
  const json::Value* v = from.field(name);
  if (v && v->string()) return *v->string();
  if (v && v->to_bool()) return fmt::format("0x{:04X}", *v->to_bool() ? kRhtSignMask : 0);
  return wrong(fmt::format("params lack '{}': a mask, or true or false", name));
}

// {total:t#} and {sizes:t#}
Result<string> members(const VectorSource& from, string_view what, string_view name) {
  int64_t total = 0;
  string sizes;
  for (const safetensors::Tensor& t : from.series(name)) {
    total += t.count();
    sizes += fmt::format("{}{}x{}", sizes.empty() ? "" : ",", shape_of(t).rows, shape_of(t).cols);
  }
  if (sizes.empty()) return wrong(fmt::format("no tensor '{}' in the file", name));
  return what == "total" ? std::to_string(total) : sizes;
}

// {blocks:n,dir}: the shape of x from the logical sizes of its scales. `direction` is a word, or the field
// that has it. Column scales of MXFP8 (colwise) lie as x does, of the others as its transpose.
Result<string> scaled_shape(const VectorSource& from, int64_t block, string_view direction) {
  const json::Value *dims = from.field("logical_dims"), *named = from.field(direction);
  if (named && named->string()) direction = *named->string();
  const auto* sizes = dims ? dims->array() : nullptr;
  if (!sizes || sizes->size() != 2 || !(*sizes)[0].to_int() || !(*sizes)[1].to_int())
    return wrong("the case lacks logical_dims of two integers");
  const int64_t a = *(*sizes)[0].to_int(), b = *(*sizes)[1].to_int();
  if (a < 0 || b < 0 || a > kMaxElements / block || b > kMaxElements / block)
    return wrong("logical_dims are out of range");
  if (direction == "rowwise" || direction == "row") return fmt::format("{}x{}", a, b * block);
  return direction == "col" ? fmt::format("{}x{}", b * block, a) : fmt::format("{}x{}", a * block, b);
}

// The largest magnitude of a tensor; NaN where it has none.
double largest(const VectorSource& from, string_view name) {
  const auto t = from.tensor(name);
  const auto e = t ? encoding_of(t->dtype) : std::nullopt;
  double most = e ? 0 : std::numeric_limits<double>::quiet_NaN();
  for (int64_t i = 0; e && i < t->count(); ++i)
    if (const double v = std::fabs(value_of(*e, code_at(*e, t->bytes, i))); v > most) most = v;
  return most;
}

// What is said of the sizes of a tensor: {shape:t} and the like. Nothing for another word.
std::optional<string> size_text(string_view what, const safetensors::Tensor& t) {
  const Shape shape = shape_of(t);
  if (what == "shape") return fmt::format("{}x{}", shape.rows, shape.cols);
  if (what == "unpacked") return fmt::format("{}x{}", shape.rows, shape.cols * 2);
  if (what == "rows") return std::to_string(t.shape.empty() ? 1 : t.shape[0]);
  if (what == "count") return fmt::format("1x{}", t.count());
  return std::nullopt;
}

// {source:t}, {word:t}, {bits:t}, {amax:t,x} and the sizes of a tensor.
Result<string> of_tensor(const VectorSource& from, string_view what, string_view argument) {
  const size_t comma = argument.find(',');
  const string_view name = argument.substr(0, comma);
  const auto found = from.tensor(name);
  if (!found) return found.error();
  const safetensors::Tensor& t = *found;
  if (const auto size = size_text(what, t)) return *size;
  if (what == "source") {
    const auto e = encoding_of(t.dtype);
    if (e) return string(info(*e).name);
    return wrong(
        fmt::format("tensor '{}' is {}, which is not a source encoding", name, safetensors::name(t.dtype)));
  }
  const Dtype dtype = what == "word" ? Dtype::U32 : Dtype::F32;
  if (t.dtype != dtype || t.count() < 1)
    return wrong(fmt::format("tensor '{}' has no {} element: it is {} with {} elements", name,
                             safetensors::name(dtype), safetensors::name(t.dtype), t.count()));
  const uint32_t bits = code_at(Encoding::f32, t.bytes, 0);
  if (what == "word") return std::to_string(bits);
  if (what == "amax" && value_of(Encoding::f32, bits) == largest(from, argument.substr(comma + 1)))
    return string("computed");
  return hex(bits);
}

}  // namespace

std::optional<Encoding> encoding_of(Dtype dtype) {
  using enum Dtype;
  switch (dtype) {
    case F32: return Encoding::f32;
    case BF16: return Encoding::bf16;
    case F16: return Encoding::f16;
    case F8_E4M3: return Encoding::e4m3;
    case F8_E5M2: return Encoding::e5m2;
    case F8_E8M0: return Encoding::e8m0;
    case U32: return Encoding::u32;
    default: return std::nullopt;
  }
}

Shape shape_of(const safetensors::Tensor& t) {
  const int64_t cols = t.shape.empty() ? 1 : t.shape.back();
  return {t.shape.size() < 2 ? 1 : cols ? t.count() / cols : t.shape.front(), cols};
}

std::optional<safetensors::Tensor> row_of(const safetensors::Tensor& t, int64_t row) {
  if (t.shape.empty() || row < 0 || row >= t.shape[0]) return {};
  safetensors::Tensor out = t;
  const size_t size = t.bytes.size() / static_cast<size_t>(t.shape[0]);
  out.bytes = t.bytes.subspan(static_cast<size_t>(row) * size, size);
  out.shape[0] = 1;
  return out;
}

VectorSource::VectorSource(const safetensors::File& file, const json::Value& params, const Captures& captures)
    : file_(file), params_(params), captures_(captures) {
  const auto c = captures.find("c");
  if (c == captures.end()) return;
  for (const char* list : {"cases", "configs"})
    if (const json::Value* cases = params.find(list); cases && cases->array())
      for (const json::Value& one : *cases->array())
        if (one.text("prefix") == c->second + ".") case_ = &one;
}

Result<string> VectorSource::expand(string_view text, bool as_line) const {
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

Result<string> VectorSource::replace(string_view inside) const {
  const size_t colon = inside.find(':');
  if (colon == string_view::npos) {
    if (const auto c = captures_.find(inside); c != captures_.end()) return c->second;
    return plain_word(*this, inside);
  }
  const string_view what = inside.substr(0, colon);
  const auto argument = expand(inside.substr(colon + 1), false);
  if (!argument) return argument.error();
  if (what == "f32") return binary32(*this, *argument);
  if (what == "blocks")
    return scaled_shape(*this, std::atoll(argument->c_str()), argument->substr(argument->find(',') + 1));
  if (what == "signs") return signs(*this, *argument);
  if (what == "total" || what == "sizes") return members(*this, what, *argument);
  return of_tensor(*this, what, *argument);
}

bool VectorSource::holds(string_view condition) const {
  if (condition.empty()) return true;
  const size_t equals = condition.find('=');
  const bool negated = condition[equals - 1] == '!';
  const auto value = expand("{" + string(condition.substr(0, equals - negated)) + "}", false);
  return (value && *value == condition.substr(equals + 1)) != negated;
}

const json::Value* VectorSource::field(string_view name) const {
  const json::Value* v = case_ ? case_->find(name) : nullptr;
  return v ? v : params_.find(name);
}

Result<safetensors::Tensor> VectorSource::tensor(string_view name) const {
  const size_t open = name.find('[');
  const string plain = own(name.substr(0, open));
  const safetensors::Tensor* t = file_.find(plain);
  if (!t) return wrong(fmt::format("no tensor '{}' in the file", plain));
  if (open == string_view::npos) return *t;
  auto row = row_of(*t, std::atoll(string(name.substr(open + 1)).c_str()));
  if (!row) return wrong(fmt::format("tensor '{}' has no row {}", plain, name.substr(open)));
  return *row;
}

string VectorSource::own(string_view name) const {
  if (!name.starts_with('~')) return string(name);
  const auto c = captures_.find("c");
  const string mine = c == captures_.end() ? "" : c->second + "." + string(name.substr(1));
  return file_.find(mine) ? mine : string(name.substr(1));
}

std::vector<safetensors::Tensor> VectorSource::series(string_view name) const {
  std::vector<safetensors::Tensor> out;
  const size_t mark = name.find('#');
  for (int i = 0;; ++i) {
    const safetensors::Tensor* t =
        file_.find(fmt::format("{}{}{}", name.substr(0, mark), i, name.substr(mark + 1)));
    if (!t) return out;
    out.push_back(*t);
  }
}

}  // namespace assay

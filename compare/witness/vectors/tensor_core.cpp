#include "compare/witness/vectors/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "contract/line.h"

namespace assay {

namespace {

using safetensors::Dtype;

constexpr int64_t kRowsOfAGemm = 50;

// What multiplies one element type.
struct Core {
  Dtype dtype;
  Encoding element;
  int bits;        // of a significand, the hidden one included
  int64_t length;  // of a step
  int cut;         // low bits of binary32 that the result of a step has not
  std::vector<std::string_view> sums;
  std::string_view format;
};
const std::vector<Core>& cores() {
  static const std::vector<Core> all = {
      {Dtype::F8_E4M3, Encoding::e4m3, 4, 32, 10, {"hopper_fp8_fast", "hopper_fp8_split"}, "fp8_delayed"},
      {Dtype::F8_E5M2, Encoding::e5m2, 3, 32, 10, {"hopper_fp8_fast", "hopper_fp8_split"}, "fp8_delayed"},
      {Dtype::BF16, Encoding::bf16, 8, 16, 0, {"hopper_f16"}, "identity"},
      {Dtype::F16, Encoding::f16, 11, 16, 0, {"hopper_f16"}, "identity"},
      {Dtype::F32, Encoding::f32, 11, 8, 0, {"hopper_tf32"}, "identity"},
  };
  return all;
}
const Core* core_of(Dtype dtype) {
  for (const Core& c : cores())
    if (c.dtype == dtype) return &c;
  return nullptr;
}

Error wrong(std::string message) { return {std::move(message), 0, ""}; }

// The code whose value is v, or nothing.
std::optional<uint32_t> code_of(Encoding e, double v) {
  const EncodingInfo& i = info(e);
  if (e == Encoding::f32) return std::bit_cast<uint32_t>(static_cast<float>(v));
  const uint32_t sign = std::signbit(v) ? 1u << (i.bits - 1) : 0;
  const double magnitude = std::fabs(v);
  for (int exponent = 1; exponent < 1 << i.exponent_bits; ++exponent) {
    const double n =
        std::ldexp(magnitude, i.mantissa_bits + i.bias - exponent);  // in units of this binade's last place
    if (n >= std::ldexp(2.0, i.mantissa_bits)) continue;
    if (n != std::trunc(n)) return std::nullopt;
    const uint32_t code =
        static_cast<uint32_t>(n) +
        (static_cast<uint32_t>(exponent - 1) << i.mantissa_bits);  // a subnormal lacks the hidden bit
    if (code > i.max_finite) return std::nullopt;
    return sign | code;
  }
  return std::nullopt;
}

// Factors a[i], b[i] whose products are pieces of c from its highest bits down.
struct Pieces {
  std::vector<uint32_t> a, b;
};
std::optional<Pieces> pieces_of(const Core& core, uint32_t c) {
  if (c & ((1u << core.cut) - 1)) return std::nullopt;
  Pieces out;
  double rest = assay::value_of(Encoding::f32, c);
  while (rest != 0) {
    int exponent;
    std::frexp(rest, &exponent);
    const int last = exponent - core.bits,
              half = last / 2;  // weight of the piece's last bit; half of it to each factor
    const double piece = std::ldexp(std::trunc(std::ldexp(rest, -last)), last);
    const auto a = code_of(core.element, std::ldexp(piece, -half)),
               b = code_of(core.element, std::ldexp(1.0, half));
    if (!a || !b) return std::nullopt;
    out.a.push_back(*a);
    out.b.push_back(*b);
    rest -= piece;
  }
  if (out.a.size() > static_cast<size_t>(core.length)) return std::nullopt;
  return out;
}

}  // namespace

Result<std::vector<VectorCheck>> tensor_core_checks(const safetensors::File& file) {
  const safetensors::Tensor *a = file.find("a"), *b = file.find("b"), *c = file.find("c"),
                            *d = file.find("d");
  if (!a || !b || !c || !d) return wrong("a recording of a tensor core has tensors a, b, c and d");
  const Core *of_a = core_of(a->dtype), *of_b = core_of(b->dtype);
  if (!of_a || !of_b || of_a->sums != of_b->sums)
    return wrong(fmt::format("no tensor core multiplies {} and {}", safetensors::name(a->dtype),
                             safetensors::name(b->dtype)));
  const int64_t rows = d->count();
  if (a->shape.size() != 2 || a->shape != b->shape || a->shape[0] != rows || c->count() != rows ||
      c->dtype != Dtype::F32 || d->dtype != Dtype::F32)
    return wrong("a and b are [rows, k], c and d [rows] of F32");
  const int64_t k = a->shape[1];
  if (k > of_a->length)
    return wrong(fmt::format("a step takes at most {} products, found {}", of_a->length, k));

  bool from_zero = true;
  for (int64_t r = 0; r < rows; ++r)
    from_zero &= assay::value_of(Encoding::f32, code_at(Encoding::f32, c->bytes, r)) == 0;
  const int64_t before = from_zero ? 0 : of_a->length;  // products of the step that makes c
  std::vector<VectorCheck> out;
  for (int64_t first = 0; first < rows; first += kRowsOfAGemm) {
    const int64_t n = std::min(kRowsOfAGemm, rows - first);
    for (const std::string_view sum : of_a->sums) {
      const auto keys = [&](std::string_view side, const Core& core) {
        return core.format == "identity" ? fmt::format(" {}.source={}", side, info(core.element).name)
                                         : fmt::format(" {}.element={}", side, info(core.element).name);
      };
      const auto problem =
          parse_line(fmt::format("gemm a={} b={} {}x{}x{} sum={} out=f32{}{}", of_a->format, of_b->format, n,
                                 n, before + k, sum, keys("a", *of_a), keys("b", *of_b)));
      if (!problem) return problem.error();
      VectorCheck check;
      check.tensor = fmt::format("d[{}..{}]", first, first + n - 1);
      check.problem = *problem;
      check.plane.assign(1, 'd');  // assigned as a literal it meets a false -Wrestrict of g++ 12
      for (const Plane& plane : input_planes(*problem)) {
        if (!plane.name.ends_with(".data")) continue;  // a scale of 1 is the line's
        const safetensors::Tensor& from = plane.name == "a.data" ? *a : *b;
        PlaneData data{plane, std::vector<std::byte>(plane.bytes())};
        for (int64_t r = 0; r < n; ++r) {
          const auto pieces = pieces_of(*of_a, code_at(Encoding::f32, c->bytes, first + r));
          if (!pieces || (before == 0 && !pieces->a.empty()))
            return wrong(
                fmt::format("c[{}] is not a sum of products of {}", first + r, info(of_a->element).name));
          const std::vector<uint32_t>& factors = plane.name == "a.data" ? pieces->a : pieces->b;
          for (size_t i = 0; i < factors.size(); ++i)
            set_code(plane, data.bytes, r * (before + k) + static_cast<int64_t>(i), factors[i]);
          for (int64_t i = 0; i < k; ++i)
            set_code(plane, data.bytes, r * (before + k) + before + i,
                     code_at(plane.encoding, from.bytes, (first + r) * k + i));
        }
        check.inputs.push_back(std::move(data));
      }
      for (int64_t r = 0; r < n; ++r) check.at.push_back(r * n + r);
      const auto wanted = d->bytes.subspan(static_cast<size_t>(4 * first), static_cast<size_t>(4 * n));
      check.want.assign(wanted.begin(), wanted.end());
      out.push_back(std::move(check));
    }
  }
  return out;
}

}  // namespace assay

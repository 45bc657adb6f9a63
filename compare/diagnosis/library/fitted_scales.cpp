// Rows about scales that are not the ones that are stored, with the number that search fits to the codes or
// to the scales of blocks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/fitted_forms.h"

namespace assay::fitted {

namespace {

using std::string;
using enum Stage;

constexpr const char* kWhose = "another step's, another tensor's or another rank's";

// The factor of an id, as bits of binary64; the number of one, as bits of binary32.
double factor_of(const string& id) {
  return std::bit_cast<double>(uint64_t{std::strtoull(id.c_str() + id.find('=') + 1, nullptr, 16)});
}
double number_of(const string& id) {
  const auto bits = static_cast<uint32_t>(std::strtoul(id.c_str() + id.find('=') + 1, nullptr, 16));
  return value_of(Encoding::f32, bits);
}

// "scaled.times=<factor>", "scaled.by=<number>".
std::optional<Hypothesis> scaled_times(const string& id, const Problem&, Direction) {
  const double times = factor_of(id);
  Hypothesis h = row_of(id, scaled_value, "N5.4",
                        fmt::format("elements are scaled by {} times what is stored: the scale that is used "
                                    "is {}",
                                    number_text(times), kWhose));
  h.scaled = [=](const CodeView& c) {
    return c.divides ? c.x / f32_of(c.factor / times) : c.x * f32_of(c.factor * times);
  };
  return h;
}
std::optional<Hypothesis> scaled_by(const string& id, const Problem&, Direction) {
  const double by = number_of(id);
  Hypothesis h =
      row_of(id, scaled_value, "N5.4",
             fmt::format("elements are scaled by {}, whatever is stored: the scale that is used is {}",
                         number_text(by), kWhose));
  h.scaled = [=](const CodeView& c) { return c.x * by; };
  return h;
}

// ---- NVFP4: the tensor scale ----

bool plain_nvfp4(const Problem& lane, Direction d) {
  const Quantizer& q = *lane.quantizer(d);
  return q.format == FormatId::nvfp4 && !q.row_scaled && q.four_over_six == FourOverSix::off;
}

// A tensor scale of another amax, or a multiple of the right one.
struct OtherScale {
  double amax = 0, times = 0;
  double of(double right) const { return amax > 0 ? f32_of(2688 / amax) : f32_of(right * times); }
  string text() const {
    return amax > 0 ? fmt::format("of an amax of {}", number_text(amax))
                    : fmt::format("{} times what it should be", number_text(times));
  }
};
OtherScale other_scale(const string& id) {
  return id.find("times=") == string::npos ? OtherScale{number_of(id), 0} : OtherScale{0, factor_of(id)};
}

constexpr double kMost = std::numeric_limits<float>::max();

// "tensor_scale.codes_of_amax=", "tensor_scale.codes_times=": block scales are right.
std::optional<Hypothesis> codes_of(const string& id, const Problem& lane, Direction d) {
  if (!plain_nvfp4(lane, d)) return {};
  const OtherScale other = other_scale(id);
  Hypothesis h = row_of(id, scaled_value, "N10.7",
                        fmt::format("elements are scaled by a tensor scale {}, {}; block scales are right",
                                    other.text(), kWhose));
  h.scaled = [other](const CodeView& c) {
    const double decode = f32_of(1 / other.of(c.encode_scale));
    return c.x * std::min(f32_of(1 / f32_of(c.scale * decode)), kMost);
  };
  return h;
}

// "tensor_scale.blocks_of_amax=", "tensor_scale.blocks_times=": the multiplier takes the right one.
std::optional<Hypothesis> blocks_of(const string& id, const Problem& lane, Direction d) {
  if (!plain_nvfp4(lane, d)) return {};
  const OtherScale other = other_scale(id);
  Hypothesis h = row_of(id, block_scale, "N10.5",
                        fmt::format("block scales are made with a tensor scale {}, {}; the multiplier takes "
                                    "the right one",
                                    other.text(), kWhose));
  h.scale = [other](const ScaleGrid& s, int64_t i, int64_t b) {
    const double sixth = f32_of(1.0 / 6);
    return element_code(Encoding::e4m3,
                        std::min(f32_of(s.amax(i, b) * f32_of(other.of(s.encode_scale) * sixth)), kMost));
  };
  return h;
}

// "tensor_scale.of_amax=", "tensor_scale.of_times=": codes and block scales follow it.
std::optional<Hypothesis> tensor_of(const string& id, const Problem& lane, Direction d) {
  const FormatId format = lane.quantizer(d)->format;
  if (format != FormatId::nvfp4 && format != FormatId::fp8_current) return {};
  const OtherScale other = other_scale(id);
  Hypothesis h = row_of(id, tensor_scale, "N10.2",
                        fmt::format("the tensor scale is {}, {}, and everything but the amax follows it",
                                    other.text(), kWhose));
  h.tensor_amax = [other](const Matrix& x, const Matrix&) {
    return other.amax > 0 ? other.amax : f32_of(x.amax() / other.times);
  };
  h.amax_shown = false;
  return h;
}

// "tensor_scale.scale_inv_is=<number>", "tensor_scale.scale_inv_times=<factor>": the codes do not follow.
std::optional<Hypothesis> inverse_is(const string& id, const Problem& lane, Direction d) {
  if (!info(lane.quantizer(d)->format).per_tensor_fp8()) return {};
  const double is = number_of(id);
  Hypothesis h = row_of(
      id, tensor_scale, "N3.7",
      fmt::format("scale_inv is {}, {}; elements are scaled as they should be", number_text(is), kWhose));
  h.scalars = [is](TensorScalars& s) { s.scale_inv = static_cast<float>(is); };
  return h;
}
std::optional<Hypothesis> inverse_times(const string& id, const Problem& lane, Direction d) {
  if (!info(lane.quantizer(d)->format).per_tensor_fp8()) return {};
  const double times = factor_of(id);
  Hypothesis h =
      row_of(id, tensor_scale, "N3.7",
             fmt::format("scale_inv is {} times what it should be; elements are scaled as they should be",
                         number_text(times)));
  h.scalars = [times](TensorScalars& s) {
    s.scale_inv = static_cast<float>(static_cast<double>(s.scale_inv) * times);
  };
  return h;
}

// ---- bounds of amaxes ----

// "amax.at_most=<number>", "amax.at_least=<number>".
std::optional<Hypothesis> amax_within(const string& id, const Problem&, Direction) {
  const double bound = number_of(id);
  const bool most = id.starts_with("amax.at_most");
  Hypothesis h = row_of(id, amax, "N3.1",
                        fmt::format("the amax of a block is at {} {}{}", most ? "most" : "least",
                                    number_text(bound), most ? " (an upper bound of scales)" : ""));
  h.amax = [=](const BlockView& b) { return most ? std::min(b.amax(), bound) : std::max(b.amax(), bound); };
  return h;
}

}  // namespace

const std::vector<Form>& scale_forms() {
  static const std::vector<Form> kForms = {
      {"scaled.times=", scaled_times},
      {"scaled.by=", scaled_by},
      {"tensor_scale.codes_of_amax=", codes_of},
      {"tensor_scale.codes_times=", codes_of},
      {"tensor_scale.blocks_of_amax=", blocks_of},
      {"tensor_scale.blocks_times=", blocks_of},
      {"tensor_scale.of_amax=", tensor_of},
      {"tensor_scale.of_times=", tensor_of},
      {"tensor_scale.scale_inv_is=", inverse_is},
      {"tensor_scale.scale_inv_times=", inverse_times},
      {"amax.at_most=", amax_within},
      {"amax.at_least=", amax_within},
  };
  return kForms;
}

}  // namespace assay::fitted

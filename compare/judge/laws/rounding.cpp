#include "compare/judge/laws/rounding.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"

namespace assay {

Rounding rounding_of(const Quantizer& q) {
  const bool saturates =
      q.numerics.element_overflow == ElementOverflow::saturate || info(q.element).bits < 8;  // N17.2
  return {saturates, q.numerics.element_ties, q.numerics.neg_zero, q.numerics.nan_code};
}

bool saturates(Encoding to, Overflow overflow) {
  const EncodingInfo& e = info(to);
  if (e.bits > 8) return false;
  return overflow == Overflow::sat || (e.infinity == kNoCode && e.nan == e.max_finite);
}

std::string nearest(Encoding e, uint32_t got, double v, double slack, const Rounding& rule) {
  const EncodingInfo& to = info(e);
  const double q = value_of(e, got), most = value_of(e, to.max_finite);
  auto text = [&](const std::string& expected) {
    return fmt::format("{} gave {}, expected {}", number_text(v), value_text(e, got), expected);
  };
  if (std::isnan(v)) {
    const bool narrow = to.bits <= 8;
    const uint32_t nan =
        rule.nan == NanCode::minus_zero && to.bits == 4
            ? sign_bit(e)
            : to.nan | (rule.nan == NanCode::negative && to.bits == 8 ? sign_bit(e) : 0);  // N17.16
    return (narrow ? got == nan : is_nan(e, got)) ? "" : text("the NaN code " + code_hex(e, nan));
  }
  const bool exact = slack == 0;
  // Where nearest even leaves the finite values; a tie there stays when the largest code is even (464 gives
  // 448 in E4M3, N2.2).
  const double beyond = most + step_at(e, most) / 2;
  const double a = std::fabs(v);
  const bool tie_stays =
      rule.ties == ElementTies::even ? (to.max_finite & 1) == 0 : rule.ties == ElementTies::zero;
  const bool over = a > beyond || (a == beyond && !tie_stays);
  const bool unsure = !exact && std::fabs(a - beyond) <= slack;
  if (over || unsure) {
    if (!std::isnan(q) && std::signbit(q) != std::signbit(v)) return text("its sign");
    const bool clamped = std::fabs(q) == most, gone = std::isnan(q) || std::isinf(q);
    if (rule.saturates || unsure ? clamped : gone) return "";
    if (unsure && !rule.saturates && gone) return "";
    return text(rule.saturates ? "the largest finite value" : "an infinity, or NaN if the encoding has none");
  }
  if (a > most)
    return std::fabs(q) == most && std::signbit(q) == std::signbit(v) ? "" : text("the largest finite value");
  if (std::isnan(q) || std::isinf(q)) return text("a finite value");
  if (v == 0 && q != 0) return text("zero");
  if (q == 0 && rule.zeros == NegZero::drop) {
    if (std::signbit(q)) return text("no sign (N17.4)");
  } else if (v == 0) {
    if (rule.zeros == NegZero::minus && !std::signbit(q)) return text("-0 (N17.4)");
    if (rule.zeros == NegZero::plus && std::signbit(q)) return text("+0 (N5.6)");
  } else if (std::signbit(q) != std::signbit(v)) {
    return text("its sign");
  }
  const double error = std::fabs(q - v), half = step_at(e, v) / 2;
  if (error > half + slack) return text(fmt::format("a code within half a step, {}", number_text(half)));
  if (!exact || error != half) return "";
  if (rule.ties == ElementTies::even)
    return (got & 1) == 0 ? "" : text("the even code of the two at the same distance");
  const bool below = std::fabs(q) < a;
  if (below != (rule.ties == ElementTies::zero))
    return text(rule.ties == ElementTies::zero ? "the smaller of the two at the same distance (N17.1)"
                                               : "the larger of the two at the same distance (N17.1)");
  return "";
}

std::string directed(Encoding e, uint32_t got, double v, Round round, bool saturate) {
  const EncodingInfo& to = info(e);
  auto text = [&](const std::string& expected) {
    return fmt::format("{} gave {}, expected {}", number_text(v), value_text(e, got), expected);
  };
  if (std::isnan(v)) return got == to.nan || (to.bits > 8 && is_nan(e, got)) ? "" : text("the NaN code");
  const double a = std::fabs(v), q = std::fabs(value_of(e, got)), most = value_of(e, to.max_finite);
  if (e == Encoding::e8m0) {  // N2.7
    if (a <= 0x1p-127) return got == 0 ? "" : text("2^-127");
    const bool over = round == Round::rp ? a > most : std::isinf(a);
    if (over) return got == (saturate ? 0xFEu : 0xFFu) ? "" : text(saturate ? "2^127" : "NaN");
    const bool fits = round == Round::rp ? (q >= a && q / 2 < a) : (q <= a && q * 2 > a);
    return fits ? ""
                : text(round == Round::rp ? "the least power of two not below"
                                          : "the greatest power of two not above");
  }
  if (a > most) {  // N2.6
    const bool gone = std::isnan(q) || std::isinf(q);
    return q == most || (gone && std::isinf(a) && !saturate) ? "" : text("the largest finite value");
  }
  if (v == 0) return q == 0 ? "" : text("zero");
  if (std::signbit(value_of(e, got)) != std::signbit(v)) return text("its sign");
  return q <= a && a - q < step_at(e, v) ? "" : text("the neighbour toward zero");
}

std::string between(Encoding e, uint32_t got, double v, double slack, NegZero zeros) {
  const EncodingInfo& to = info(e);
  const double q = value_of(e, got), most = value_of(e, to.max_finite), a = std::fabs(v), m = std::fabs(q);
  auto text = [&](const char* expected) {
    return fmt::format("{} gave {}, expected {}", number_text(v), value_text(e, got), expected);
  };
  if (std::isnan(v)) return got == to.nan ? "" : text("the NaN code");
  if (q == 0 && zeros == NegZero::drop) {
    if (std::signbit(q)) return text("no sign (N17.4)");
  } else if (a > slack && std::signbit(q) != std::signbit(v)) {
    return text("its sign");
  }
  if (a - slack >= most) return m == most ? "" : text("the largest finite value");
  const double low =
      std::floor((a - slack) / step_at(e, std::max(a - slack, 0.0))) * step_at(e, std::max(a - slack, 0.0));
  const double step = step_at(e, a + slack), high = std::min(std::ceil((a + slack) / step) * step, most);
  return m >= low && m <= high ? "" : text("one of the two neighbouring codes");
}

}  // namespace assay

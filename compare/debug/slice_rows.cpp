#include "compare/debug/slice_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "fixtures/json.h"

namespace assay {

namespace {

bool is_float(const SliceStep& s) { return s.type == "f32"; }
unsigned bits_of(const SliceStep& s) {
  const size_t digits = s.type.find_first_of("0123456789");
  if (s.type == "pred" || digits == std::string::npos) return 1;
  if (s.type.find("x2") != std::string::npos)
    return s.type.starts_with("f16") || s.type.starts_with("bf16") || s.type[1] == '1' ? 32 : 16;
  return s.type.find('x') != std::string::npos ? 32
                                               : static_cast<unsigned>(std::atoi(s.type.c_str() + digits));
}

// The number that an instruction's value stands for where a scale of E8M0 is meant: its code. A float may
// hold the power of two itself, the code or the exponent; an integer the last two.
std::vector<int64_t> scale_codes(const SliceStep& s) {
  std::vector<int64_t> out;
  if (s.type == "pred") return out;
  const auto word = static_cast<uint32_t>(s.bits);
  const auto whole = [&](int64_t v) {
    if (v >= 0 && v <= 255) out.push_back(v);
    if (v + 127 >= 0 && v <= 128) out.push_back(v + 127);
  };
  const unsigned bits = bits_of(s);
  if (bits <= 8) out.push_back(static_cast<int64_t>(s.bits & 0xFF));
  if (bits > 8 && bits <= 32 && !is_float(s))
    whole(bits == 16 ? static_cast<int16_t>(word) : static_cast<int32_t>(word));
  if (bits == 32) {
    if ((word & 0x807FFFFFu) == 0 && word) out.push_back(word >> 23);
    const auto v = std::bit_cast<float>(word);
    if (is_float(s) && std::fabs(v) <= 255 && v == std::trunc(v) && v != 0) whole(static_cast<int64_t>(v));
  }
  return out;
}

// A value as binary32, where an instruction may hold one.
std::optional<uint32_t> as_f32(const SliceStep& s) {
  const unsigned bits = bits_of(s);
  if (s.type == "pred" || bits < 16) return {};
  if (s.type == "f16" || s.type == "f16x2") return {};
  if (bits == 16) return static_cast<uint32_t>(s.bits) << 16;
  return static_cast<uint32_t>(s.bits);
}

bool names_constant(const SliceStep& s, uint32_t bits) {
  return s.instruction.find(fmt::format("0f{:08X}", bits)) != std::string::npos ||
         s.instruction.find(fmt::format("0f{:08x}", bits)) != std::string::npos;
}

// Whether the instruction gave the step's value.
bool gives(const SliceStep& s, const TraceStep& t) {
  const int width = info(t.encoding).bits;
  if (t.encoding == Encoding::f32) {
    const auto v = as_f32(s);
    return (v && *v == t.bits) || (bits_of(s) == 64 && (s.bits >> 32) == t.bits);
  }
  if (t.encoding == Encoding::u32) return bits_of(s) == 32 && s.bits == t.bits;
  if (t.encoding == Encoding::e8m0) {
    const auto codes = scale_codes(s);
    return std::find(codes.begin(), codes.end(), static_cast<int64_t>(t.bits)) != codes.end();
  }
  if (s.type == "pred") return false;
  if (width == 16) return bits_of(s) == 16 && s.bits == t.bits;
  // Narrow codes: in a part of what a conversion packed, or alone in a register.
  if (s.bits == t.bits && bits_of(s) <= 32 && !is_float(s)) return true;
  if (s.type.find('x') == std::string::npos && bits_of(s) > 16) return false;
  const unsigned step = width > 4 ? 8 : 4;
  for (unsigned at = 0; at < bits_of(s); at += step)
    if ((s.bits >> at & ((1u << width) - 1)) == t.bits) return true;
  return false;
}

// Whether it gave a value beside the step's: one code or few units away.
bool gives_nearly(const SliceStep& s, const TraceStep& t) {
  if (t.encoding == Encoding::e8m0) {
    const auto codes = scale_codes(s);
    return std::any_of(codes.begin(), codes.end(),
                       [&](int64_t c) { return std::abs(c - static_cast<int64_t>(t.bits)) == 1; });
  }
  if (t.encoding == Encoding::f32) {
    const auto v = as_f32(s);
    if (!v || *v == t.bits) return false;
    const double a = std::bit_cast<float>(*v), b = std::bit_cast<float>(t.bits);
    return std::isfinite(a) && std::isfinite(b) && b != 0 && std::fabs(a - b) <= std::fabs(b) / 16;
  }
  return false;
}

// Steps up to the one that gives the output.
void cut(std::vector<TraceStep>& steps, const TraceRow& output) {
  if (!output.left) return;
  for (size_t n = steps.size(); n > 0; --n)
    if (steps[n - 1].encoding == output.left->first && steps[n - 1].bits == output.left->second)
      return steps.resize(n);
}

}  // namespace

std::string to_json(const std::vector<SliceStep>& steps) {
  json::Value list = json::array();
  for (const SliceStep& s : steps)
    list.push(json::object({{"instruction", s.instruction},
                            {"line", s.line},
                            {"source", s.source},
                            {"who", s.who},
                            {"thread", s.thread},
                            {"memory", s.memory},
                            {"offset", std::to_string(s.offset)},
                            {"type", s.type},
                            {"bits", std::to_string(s.bits)}}));
  return json::dump(list);
}

Result<std::vector<SliceStep>> slice_steps_of(const std::string& text) {
  const auto list = json::parse(text);
  if (!list || !list->array()) return Error{"the slice is no list", 0, ""};
  std::vector<SliceStep> out;
  for (const json::Value& v : *list->array()) {
    SliceStep s;
    s.instruction = v.text("instruction"), s.source = v.text("source"), s.who = v.text("who");
    s.memory = v.text("memory"), s.type = v.text("type");
    s.line = static_cast<uint32_t>(v.find("line")->to_int().value_or(0));
    s.thread = static_cast<uint32_t>(v.find("thread")->to_int().value_or(0));
    s.offset = std::strtoull(std::string(v.text("offset")).c_str(), nullptr, 10);
    s.bits = std::strtoull(std::string(v.text("bits")).c_str(), nullptr, 10);
    out.push_back(std::move(s));
  }
  return out;
}

Slice beside(std::vector<SliceStep> slice, std::vector<TraceStep> steps, const TraceRow& output) {
  Slice out;
  for (SliceStep& s : slice) out.rows.push_back({std::move(s), {}});
  cut(steps, output);
  std::optional<size_t> last_step;
  size_t after = 0;  // where instructions behind the last step in common begin
  std::optional<size_t> agreed;
  for (size_t t = 0; t < steps.size(); ++t) {
    for (size_t n = out.rows.size(); n > 0; --n) {
      SliceRow& row = out.rows[n - 1];
      // The output itself differs: no earlier byte of its value is the output.
      const bool final_step = output.differs() && t + 1 == steps.size();
      const bool constant = steps[t].encoding == Encoding::f32 && names_constant(row.step, steps[t].bits);
      if (final_step || (!gives(row.step, steps[t]) && !constant)) continue;
      if (!row.same && !constant) row.same = steps[t];
      last_step = t;
      if (!constant) agreed = n - 1, after = std::max(after, n);
      break;
    }
  }
  if (!output.differs() || out.rows.empty() || steps.empty()) return out;
  const size_t first = last_step ? *last_step + 1 : 0;
  Parting parting{out.rows.size() - 1, steps.back(), agreed};
  for (size_t t = first; t < steps.size(); ++t)
    for (size_t n = after; n < out.rows.size(); ++n)
      if (gives_nearly(out.rows[n].step, steps[t])) {
        parting.row = n, parting.step = steps[t];
        return out.parting = parting, out;
      }
  return out.parting = parting, out;
}

std::string slice_value_text(const SliceStep& s) {
  if (s.type == "pred") return s.bits ? "true" : "false";
  const unsigned bits = bits_of(s);
  const std::string hex = fmt::format("{:0{}X}", s.bits, std::max(bits, 8u) / 4);
  const auto word = static_cast<uint32_t>(s.bits);
  if (s.type == "f32") return hex + "  " + value_text(Encoding::f32, word);
  if (s.type == "bf16") return hex + "  " + value_text(Encoding::bf16, word);
  if (s.type == "f16") return hex + "  " + value_text(Encoding::f16, word);
  if (s.type.front() == 's' || s.type.front() == 'u') {
    const auto v = static_cast<int64_t>(s.bits << (64 - bits)) >> (64 - bits);
    return hex + "  " + (s.type.front() == 's' ? std::to_string(v) : std::to_string(s.bits));
  }
  return hex;
}

}  // namespace assay

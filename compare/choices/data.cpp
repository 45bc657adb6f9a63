#include "compare/choices/data.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "fixtures/fill.h"

namespace assay::choices {

namespace {

using Codes = std::vector<uint32_t>;

constexpr int64_t kMostFilled = int64_t{1}
                                << 22;  // elements of a tensor that is filled to see whether that works

uint32_t all_bits(const EncodingInfo& e) { return e.bits == 32 ? ~0u : (1u << e.bits) - 1; }
uint32_t sign_bit(const EncodingInfo& e) { return e.has_sign() ? 1u << (e.bits - 1) : 0; }

// The bytes of a tensor as its fill draws them; nothing where it cannot.
std::optional<std::vector<std::byte>> drawn(const Tensor& t) {
  std::vector<std::byte> out(static_cast<size_t>(t.shape.count() * info(t.source).bytes()));
  if (fill_tensor(t.fill, t.source, t.shape, out)) return {};
  return out;
}

// The codes of the tensor. Of a split each member is drawn as its own line is (N14.1).
std::optional<Codes> codes_of(const Problem& p, const Tensor& t) {
  std::vector<std::byte> bytes;
  if (p.as<Split>() && t.fill.kind != FillKind::literal) {
    for (const Problem& member : member_problems(p)) {
      const auto own = drawn(member.x);
      if (!own) return {};
      bytes.insert(bytes.end(), own->begin(), own->end());
    }
  } else if (auto own = drawn(t)) {
    bytes = std::move(*own);
  }
  const size_t count = static_cast<size_t>(t.shape.count());
  if (bytes.size() != count * static_cast<size_t>(info(t.source).bytes())) return {};
  Codes out(count);
  for (size_t i = 0; i < count; ++i) out[i] = code_at(t.source, bytes, static_cast<int64_t>(i));
  return out;
}

uint32_t special(const EncodingInfo& e, Dice& dice) {
  if (!e.is_float()) return dice.pick(std::to_array<uint32_t>({0, 1, all_bits(e), all_bits(e) >> 1}));
  const uint32_t normal = 1u << e.mantissa_bits;
  Codes values = {0, 1, normal, e.max_finite};
  if (normal > 1) values.push_back(normal - 1);  // the largest subnormal
  for (uint32_t code : {e.nan, e.infinity})
    if (code != kNoCode) values.push_back(code);
  return dice.pick(values) ^ (dice.chance(1, 2) ? sign_bit(e) : 0);
}

// The code with a significand halfway between two of fewer bits, or one code beside that.
uint32_t halfway(const EncodingInfo& e, uint32_t code, Dice& dice) {
  constexpr int kNarrow[] = {1, 2, 3, 7, 10};  // bits of significands of narrower encodings
  const int kept = kNarrow[dice.below(std::size(kNarrow))];
  const uint32_t beside = static_cast<uint32_t>(dice.below(3)) - 1;
  if (kept >= e.mantissa_bits) return code + beside;
  const int rest = e.mantissa_bits - kept;
  return (code >> rest << rest | 1u << (rest - 1)) + beside;
}

void change(Codes& codes, const EncodingInfo& e, Dice& dice) {
  uint32_t& code = codes[dice.below(codes.size())];
  const uint32_t before = code;
  switch (dice.below(7)) {
    case 0: code ^= 1u << dice.below(static_cast<size_t>(e.bits)); break;
    case 1: ++code; break;
    case 2: --code; break;
    case 3: code ^= sign_bit(e); break;
    case 4: code = special(e, dice); break;
    case 5: code = codes[dice.below(codes.size())]; break;
    default: code = halfway(e, code, dice);
  }
  if ((code & all_bits(e)) == before) code = special(e, dice);
  code &= all_bits(e);
}

// What stands behind "literal:".
std::string payload_of(const Tensor& t, const Codes& codes, Dice& dice) {
  const int digits = 2 * info(t.source).bytes();
  std::string out;
  if (codes.size() <= kMaxLiteral) {
    for (uint32_t code : codes) out += fmt::format("{:0{}x}", code, digits);
    return out;
  }
  std::vector<size_t> live;
  for (size_t i = 0; i < codes.size(); ++i)
    if (codes[i]) live.push_back(i);
  if (live.size() > kMaxLiteral) {  // those that follow one another from somewhere on
    const auto first = live.begin() + static_cast<std::ptrdiff_t>(dice.below(live.size() - kMaxLiteral + 1));
    live = {first, first + static_cast<std::ptrdiff_t>(kMaxLiteral)};
  }
  const size_t cols = static_cast<size_t>(t.shape.cols);
  for (size_t i : live)
    out += fmt::format("{}{:0{}x}@{}.{}", out.empty() ? "" : "+", codes[i], digits, i / cols, i % cols);
  return out.empty() ? fmt::format("{:0{}x}", 0, digits) : out;
}

// Whether the fill of x is that of this plane, and of which source its codes are.
std::optional<Encoding> filled_like_x(const Problem& p, const Plane& plane) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), plane.name) != names.end();
  };
  // Codes of an attention are cast from a tensor of the source (N20.17).
  if (p.as<Attention>() && is({"q", "k", "v", "kv", "qkv", "bias", "do"}))
    return info(plane.encoding).bits == 8 ? p.x.source : plane.encoding;
  if (is({"x", "history", "p", "m", "v", "c", "bias"}) && !p.as<Attention>()) return plane.encoding;
  return {};
}

}  // namespace

bool data_fit(const Problem& p) {
  const auto fits = [](const Tensor& t) {
    return t.fill.kind != FillKind::literal || (t.shape.count() <= kMostFilled && drawn(t));
  };
  if (const Gemm* gemm = p.as<Gemm>())
    for (Side side : kSides)
      if (gemm->operand(side).fill.kind == FillKind::literal && !fits(operand_problem(p, side).x))
        return false;
  if (p.x.fill.kind != FillKind::literal) return true;
  if (!p.as<Gemm>() && !fits(p.x)) return false;
  for (const Plane& plane : input_planes(p))
    if (const auto source = filled_like_x(p, plane); source && !p.as<Split>())
      if (!fits({plane.logical, *source, p.x.fill})) return false;
  return true;
}

std::optional<Problem> with_other_data(const Problem& p, Dice& dice) {
  Problem out = p;
  Gemm* gemm = out.as<Gemm>();
  const Side side = kSides[dice.below(std::size(kSides))];
  const Tensor t = gemm ? operand_problem(p, side).x : p.x;
  if (t.shape.count() == 0 || t.shape.count() > kMostChanged || t.fill.kind == FillKind::pack) return {};
  std::optional<Codes> codes = codes_of(p, t);
  if (!codes) return {};
  for (size_t changes = 1 + dice.below(4); changes > 0; --changes) change(*codes, info(t.source), dice);
  // The seed stays: other tensors of the line are drawn from it.
  Fill& fill = gemm ? gemm->operand(side).fill : out.x.fill;
  fill.kind = FillKind::literal;
  fill.payload = payload_of(t, *codes, dice);
  fill.at_row = fill.at_col = 0;
  const Result<Problem> again = parse_line(to_line(out));
  if (!again || *again != out || !data_fit(out)) return {};
  return out;
}

}  // namespace assay::choices

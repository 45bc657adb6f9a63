// What makes a Problem impossible, op by op.
#include <algorithm>
#include <string>
#include <string_view>

#include "contract/attention.h"
#include "contract/dispatch.h"
#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/line/error.h"
#include "contract/planes.h"
#include "contract/words.h"

namespace assay {

namespace {

using namespace line;

bool is_small_float(Encoding e) { return info(e).is_float() && info(e).bits < 8; }

bool in_range(Shape s) {
  const bool each = s.rows >= 0 && s.cols >= 0 && s.rows <= kMaxElements && s.cols <= kMaxElements;
  return each && (s.cols == 0 || s.rows <= kMaxElements / s.cols);
}

std::string size_text(Shape s) { return concat({std::to_string(s.rows), "x", std::to_string(s.cols)}); }

MaybeError validate_cast(const Problem& p) {
  const Cast& c = *p.as<Cast>();
  const Encoding source = p.x.source;
  const std::string_view to = info(c.to).name;
  if (!info(source).is_float() || !info(c.to).is_float())
    return fail("cast is between floating-point encodings");
  if (source == c.to)
    return fail(concat({"cast from ", info(source).name, " to itself"}), "name another target");
  if (!is_wide_float(source) && !is_wide_float(c.to))
    return fail(concat({"cast from a code decodes to f32, bf16 or f16, found ", to}));
  if (c.round == Round::rp && c.to != Encoding::e8m0) return fail("round=rp is for e8m0 only");
  if (c.round == Round::rne && c.to == Encoding::e8m0)
    return fail("a cast to e8m0 takes round=rp or round=rz");
  if (c.round == Round::sr && (c.to != Encoding::e2m1 || source != Encoding::f32))
    return fail("round=sr is for casts from f32 to e2m1 only");
  if (is_small_float(c.to) && c.overflow == Overflow::nosat)
    return fail(concat({to, " always saturates (N2.3)"}), "overflow=sat");
  if (is_wide_float(c.to) && c.overflow == Overflow::sat)
    return fail(concat({to, " overflows to infinity (N2.3)"}), "overflow=nosat");
  if (p.row || p.col) return fail("cast has no quantizer");
  return {};
}

// What NVFP4's modes exclude of each other.
MaybeError validate_nvfp4(const Problem& p, const Quantizer& q, Direction d) {
  const Shape s = p.x.shape;
  const bool sr = q.round == Round::sr, both_sizes_32 = s.rows % 32 == 0 && s.cols % 32 == 0;
  if (q.rht) {
    if (d != Direction::col) return fail("rht=1 is for columns only (N11.2)", "col.rht=1");
    if (p.x.source != Encoding::bf16)
      return fail(concat({"rht=1 rotates bf16, found ", info(p.x.source).name}));
    if (s.rows % 16 != 0)
      return fail(concat({"rht=1 needs a multiple of 16 rows, found ", std::to_string(s.rows)}));
  }
  if (q.row_scaled && (is_square(q.block) || q.rht || sr || q.amax))
    return fail(
        "row_scaled=1 needs computed amaxes and blocks of 1x16, without rht and stochastic rounding (N10.9)");
  if (q.four_over_six != FourOverSix::off && (q.rht || sr || q.numerics.multiplier != Multiplier::reciprocal))
    return fail("four_over_six takes round=rne, no rht and multiplier=reciprocal (N10.10)");
  if (q.e4m3_max == E4m3Max::m256 && q.four_over_six == FourOverSix::off && !p.as<ScaleChain>())
    return fail("e4m3_max=256 is for four_over_six only (N10.1)");
  if (!sr) return {};
  switch (q.numerics.draw) {  // the shapes that these kernels accept (N12.4)
    case Draw::logical:
    case Draw::te_fb: break;
    case Draw::te_t1d:
    case Draw::te_q2d:
      if (!both_sizes_32) return fail("draw=te_t1d and draw=te_q2d need sizes that are multiples of 32");
      break;
    case Draw::te_rhtrc:
      if (s.rows % 64 != 0 || s.cols % 128 != 0)
        return fail("draw=te_rhtrc needs a multiple of 64 rows and 128 columns");
      break;
  }
  if (p.rng.member >= 1u << 17) return fail("rng: a member is below 131072");
  return {};
}

MaybeError validate_quantizer(const Problem& p, const Quantizer& q, Direction d) {
  const Encoding source = p.x.source;
  const FormatInfo& f = info(q.format);
  const std::string_view name = f.name;
  if (!f.has_element(q.element, source))
    return fail(
        concat({name, " data cannot be ", info(q.element).name}),
        has_several(f.elements) ? concat({"element=", join(words_of(f.elements, '|'), " or element=")}) : "");
  if (!contains(words_of(f.blocks, '|'), word_of(q.block)))
    return fail(concat({"block does not fit ", name}), concat({"allowed: ", f.blocks}));
  if (q.packing != Packing::bytes && !has_several(f.packings))
    return fail(concat({"packing is of formats that leave a choice, found ", name}));
  const bool makes = p.as<Quantize>() || p.as<Split>();
  if ((makes || p.as<Dequantize>()) && !is_wide_float(source))
    return fail(concat({"source must be f32, bf16 or f16, found ", info(source).name}));
  if (q.scales == ScaleLayout::gemm && q.format == FormatId::fp8_block && makes && !q.pow2)
    return fail("scales=gemm of fp8_block needs pow2=1 (N9.6)");
  if (q.scale_from != ScaleFrom::x) {
    if (!p.as<Quantize>() || !f.has_blocks())
      return fail("scale_from is for quantizes of formats with blocks");
    if (q.four_over_six != FourOverSix::off) return fail("four_over_six chooses its scales: scale_from=x");
    if (q.scale_from == ScaleFrom::scale && q.format == FormatId::fp8_block &&
        q.numerics.scale_order == ScaleOrder::encode_first)
      return fail(
          "scale_from=scale of fp8_block needs scale_order=decode_first or decode_divide: the encode scale "
          "is not a function of the decode scale (N17.12)",
          "scale_from=amax");
  }
  if (q.format != FormatId::nvfp4 && (q.round == Round::sr || q.rht || q.four_over_six != FourOverSix::off))
    return fail("round, rht and four_over_six are for nvfp4");
  const bool narrow = info(q.element).bits < 8;
  if (q.numerics.nan_code == (narrow ? NanCode::negative : NanCode::minus_zero))
    return fail("nan_code=negative is for elements of 8 bits, nan_code=minus_zero for E2M1 (N17.16)");
  if (q.numerics.zero_amax == ZeroAmax::epsilon && !f.per_tensor_fp8() && q.format != FormatId::fp8_block)
    return fail("zero_amax=epsilon is for fp8_current and fp8_block (N17.15)", "zero_amax=divided");
  if (q.row_scaled && q.format != FormatId::nvfp4) {
    if (!info(q.format).per_tensor_fp8()) return fail("row_scaled is for fp8_current, fp8_delayed and nvfp4");
    if (q.amax)
      return fail("row_scaled=1 computes the amax of each stored row, so no amax may be given (N3.12)",
                  "leave amax out");
  }
  return q.format == FormatId::nvfp4 ? validate_nvfp4(p, q, d) : MaybeError{};
}

MaybeError validate_split(const Problem& p) {
  const Split& op = *p.as<Split>();
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->format == FormatId::fp8_delayed && p.quantizer(d)->row_scaled)
      return fail("members of a split are given one scale each, not one for each row (N14.4)",
                  "split fp8_current 192x48 bf16 groups=64,128 row_scaled=1");
  if (op.members.empty()) return fail("a split has at least one member", "groups=32,0,64");
  int64_t rows = 0, cols = 0, count = 0;
  for (Shape m : op.members) {
    if (!in_range(m)) return fail("a member's sizes are out of range");
    if (op.vary == Vary::none && !(m == op.members[0]))
      return fail("vary=none has members of one size", "vary=first");
    rows += m.rows;
    cols += m.cols;
    count += m.count();
  }
  const Shape whole = op.vary == Vary::both   ? Shape{1, count}
                      : op.vary == Vary::last ? Shape{op.members[0].rows, cols}
                                              : Shape{rows, op.members[0].cols};
  if (!(whole == p.x.shape))
    return fail(concat({"the members make ", size_text(whole), ", the shape is ", size_text(p.x.shape)}),
                op.vary == Vary::both ? "vary=both has shape 1x<elements of all members> (N14.1)" : "");
  if (op.capacity < count || op.capacity > kMaxElements)
    return fail(concat(
        {"capacity is at least the ", std::to_string(count), " elements of the members, and at most 2^31"}));
  if (op.members.size() >= 1u << 17) return fail("a split has fewer than 131072 members");
  if (draws(p) && p.rng.member != 0)
    return fail("the members of a split have the numbers 0, 1, ...: rng ends in 0");
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->round == Round::sr &&
        p.quantizer(d)->numerics.draw != Draw::logical)
      return fail("a split draws by the logical mapping (N14.5)");
  for (const Problem& m : member_problems(p))
    for (Direction d : kDirections)
      if (m.quantizer(d))
        if (auto error = validate_quantizer(m, *m.quantizer(d), d)) return error;
  return {};
}

MaybeError validate_flavour(const Problem& p) {
  const FlavourInfo* flavour = info(p.flavour);
  if (!flavour) {
    if (p.flavour == Flavour::te && p.as<ScaleChain>())
      return fail("flavour=te is for quantize, split and swizzle");
    return {};
  }
  for (Direction d : kDirections)
    if (p.quantizer(d) && flavour->is_of(p.quantizer(d)->format)) return {};
  return fail(concat({"flavour=", flavour->name, " is of ", flavour->formats}),
              "`assay flavours` lists those of each format");
}

// What each sum multiplies (N16.5): the operands' formats, and the encoding of their elements where that is
// one.
MaybeError validate_sum(const Gemm& g) {
  using F = FormatId;
  const auto both = [&](auto&& fits) { return fits(g.a) && fits(g.b); };
  const auto per_tensor = [](const Operand& o) { return info(o.quantizer.format).per_tensor_fp8(); };
  const auto blockwise = [](const Operand& o) { return o.quantizer.format == F::fp8_block; };
  const auto plain = [](const Operand& o) { return o.quantizer.format == F::identity; };
  switch (g.sum) {
    case GemmSum::f32_sequential:
    case GemmSum::exact: return {};
    case GemmSum::hopper_fp8_fast:
      return both(per_tensor) ? MaybeError{}
                              : fail("sum=hopper_fp8_fast takes per-tensor FP8 operands (N16.5)",
                                     "a=fp8_current b=fp8_current");
    case GemmSum::hopper_fp8_split:
      if (!both(per_tensor) && !both(blockwise))
        return fail("sum=hopper_fp8_split takes two operands of per-tensor FP8, or two of fp8_block (N16.5)",
                    "a=fp8_current b=fp8_current");
      if (both(blockwise) && is_square(g.a.quantizer.block) && is_square(g.b.quantizer.block))
        return fail("sum=hopper_fp8_split does not take two operands of 128x128 blocks (N16.7)",
                    "a.block=128x128 b.block=1x128");
      return {};
    case GemmSum::hopper_f16: {
      const bool halves = both(plain) && g.a.source == g.b.source && g.a.source != Encoding::f32;
      const bool brains = both([&](const Operand& o) {
        return through_bf16(o.quantizer) || (plain(o) && o.source == Encoding::bf16);
      });  // N16.12
      return halves || brains
                 ? MaybeError{}
                 : fail(
                       "sum=hopper_f16 takes operands of identity bf16, mxfp8, mxfp6, mxfp4 and nvfp4, "
                       "or two of identity f16 (N16.5, N16.12)",
                       "a=identity b=identity");
    }
    case GemmSum::hopper_tf32:
      return both(plain) && both([](const Operand& o) { return o.source == Encoding::f32; })
                 ? MaybeError{}
                 : fail("sum=hopper_tf32 takes two identity operands of f32 (N16.5)",
                        "a=identity b=identity");
  }
  return {};
}

MaybeError validate_gemm(const Problem& p) {
  const Gemm& g = *p.as<Gemm>();
  const Encoding out = p.x.source;
  const bool fp8_out = out == Encoding::e4m3 || out == Encoding::e5m2;
  if (p.row || p.col) return fail("gemm has quantizers in its operands only");
  if (!is_wide_float(out) && !fp8_out)
    return fail(concat({"out must be f32, bf16, f16, e4m3 or e5m2, found ", info(out).name}));
  if (fp8_out && g.reads_c()) return fail(concat({"out=", info(out).name, " takes no c (N16.8)"}), "beta=0");
  if (g.bias && !is_wide_float(*g.bias)) return fail("bias must be f32, bf16 or f16");
  for (Side side : kSides) {
    const Quantizer& q = g.operand(side).quantizer;
    auto error = g.k < 0 || g.k > kMaxElements ? fail("the sizes are out of range")
                                               : validate(operand_problem(p, side));
    if (!error && q.scales != ScaleLayout::compact) error = fail("a gemm reads compact scales");
    if (error) return Error{concat({name_of(side), ": ", error->message}), 0, error->hint};
    if (q.row_scaled && q.format == FormatId::nvfp4 &&
        g.operand(side == Side::a ? Side::b : Side::a).quantizer.format != FormatId::nvfp4)
      return fail("an operand of row_scaled=1 takes an nvfp4 partner (N16.9)", "a=nvfp4 b=nvfp4");
  }
  return validate_sum(g);
}

MaybeError validate_adam(const Problem& p) {
  const Adam& a = *p.as<Adam>();
  if (!is_wide_float(p.x.source) || !is_wide_float(a.parameter))
    return fail("adam has a gradient and a parameter of f32, bf16 or f16", "adam f32 64x256 bf16");
  if (a.moments != Encoding::f32 && a.moments != Encoding::bf16)
    return fail(concat({"moments must be f32 or bf16, found ", info(a.moments).name}));
  constexpr F32Bits kOne = 0x3F800000, kInfinity = 0x7F800000, kMagnitude = 0x7FFFFFFF;
  for (F32Bits beta : {a.beta1, a.beta2})
    if (beta >= kOne) return fail("beta1 and beta2 are from 0 to below 1 (N19.1)", "beta1=0.9 beta2=0.999");
  for (F32Bits number : {a.lr, a.eps, a.decay})
    if ((number & kMagnitude) >= kInfinity) return fail("lr, eps and decay are finite (N19.1)");
  if (p.row || p.col) return fail("adam has no quantizer");
  return {};
}

MaybeError validate_scale_state(const Problem& p) {
  const ScaleState& s = *p.as<ScaleState>();
  if (s.to != Encoding::f16 && s.to != Encoding::e4m3)
    return fail(concat({"scale_state stores f16 or e4m3, found ", info(s.to).name}),
                "scale_state f16 64x256 f32");
  const Encoding from = s.inverse ? s.to : Encoding::f32;
  if (p.x.source != from)
    return fail(concat({"scale_state reads ", info(from).name, s.inverse ? " with inverse=1" : "", ", found ",
                        info(p.x.source).name}));
  if (p.row || p.col) return fail("scale_state has no quantizer");
  return {};
}

MaybeError validate_lengths(const Problem& p) {
  const Attention& a = *p.as<Attention>();
  const AttentionSizes n = attention_sizes(p);
  const bool ragged = token_order(a.layout) == TokenOrder::ragged;
  if (a.lengths.empty() != a.kv_lengths.empty())
    return fail("lengths and kv_lengths are given together", "lengths=5,3 kv_lengths=8,8");
  if (ragged && a.lengths.empty())
    return fail(concat({"layout=", word_of(a.layout), " needs the tokens of each sequence (N20.1)"}),
                "lengths=5,3,8");
  const size_t batch = static_cast<size_t>(a.batch);
  if (!a.lengths.empty() && (a.lengths.size() != batch || a.kv_lengths.size() != batch))
    return fail(concat({"lengths has ", std::to_string(a.lengths.size()), " sequences and kv_lengths ",
                        std::to_string(a.kv_lengths.size()), ", batch is ", std::to_string(a.batch)}));
  int64_t tokens = 0, keys = 0;
  for (int64_t one : a.lengths) tokens += one;
  for (int64_t one : a.kv_lengths) keys += one;
  if (!in_range({tokens, 1}) || !in_range({keys, n.kv_heads * n.depth}))
    return fail("the lengths are out of range");
  if (ragged)
    return tokens == p.x.shape.rows
               ? MaybeError{}
               : fail(concat({"the lengths make ", std::to_string(tokens), " tokens, the shape has ",
                              std::to_string(p.x.shape.rows)}));
  for (size_t b = 0; b < a.lengths.size(); ++b)
    if (a.lengths[b] > n.q || a.kv_lengths[b] > n.kv)
      return fail(concat(
          {"a sequence has at most ", std::to_string(n.q), " queries and ", std::to_string(n.kv), " keys"}));
  return {};
}

MaybeError validate_slots(const Problem& p) {
  const Attention& a = *p.as<Attention>();
  const AttentionSizes n = attention_sizes(p);
  for (AttentionSlot slot : kAttentionSlots) {
    const Quantizer& q = a.slot(slot);
    const bool inner = slot == AttentionSlot::s || slot == AttentionSlot::dp;
    const bool known = info(q.format).per_tensor_fp8() || q.format == FormatId::identity ||
                       (q.format == FormatId::mxfp8 && !inner);
    if (!known)
      return fail(concat({"attention casts by fp8_delayed, fp8_current or mxfp8, S and dP by fp8_delayed or "
                          "fp8_current; "
                          "identity leaves them as they are; found ",
                          info(q.format).name}),
                  "attention fp8_current 64x32 bf16");
    if (q.row_scaled || q.amax || q.block != info(q.format).block || q.scales != ScaleLayout::compact)
      return fail("a slot of an attention has one computed or given scale, or blocks of 1x32 (N20.3)");
    if (q.format == FormatId::fp8_delayed && q.numerics.scale_order != ScaleOrder::encode_first)
      return fail("a slot of an attention is given an encode scale: scale_order=encode_first (N20.3)",
                  concat({name_of(slot), ".scale=64"}));
    if (!has_slot(a, slot)) continue;
    if (auto error = validate_quantizer(slot_problem(p, slot), q, Direction::row))
      return Error{concat({name_of(slot), ": ", error->message}), 0, error->hint};
  }
  if (a.codes != AttentionCodes::none && a.slot(AttentionSlot::qkv).format != FormatId::identity)
    return fail(concat({"codes=", word_of(a.codes),
                        ": Q, K and V have been cast, so the slot qkv casts nothing (N20.17)"}),
                "attention identity/fp8_delayed 64x32 bf16 codes=e4m3");
  if (a.slot(AttentionSlot::qkv).format != FormatId::mxfp8) return {};
  if (n.q % 128 != 0 || n.kv % 128 != 0 || n.depth % 32 != 0)
    return fail(
        "attention by mxfp8 needs multiples of 128 queries and keys, and of 32 elements of a head (N20.3)");
  return token_order(a.layout) == TokenOrder::ragged
             ? fail("attention by mxfp8 takes no ragged layout (N20.3)")
             : MaybeError{};
}

MaybeError validate_attention(const Problem& p) {
  const Attention& a = *p.as<Attention>();
  constexpr F32Bits kOne = 0x3F800000;
  if (p.row || p.col) return fail("attention has quantizers in its slots only");
  if (p.x.source != Encoding::bf16 && p.x.source != Encoding::f16)
    return fail(concat({"attention is of bf16 or f16, found ", info(p.x.source).name}));
  if (a.batch < 1 || a.heads < 1 || a.kv_heads < 1) return fail("batch, heads and kv_heads are at least 1");
  if (p.x.shape.cols == 0 || p.x.shape.cols % a.heads != 0)
    return fail(concat({"the ", std::to_string(p.x.shape.cols), " columns of Q are not ",
                        std::to_string(a.heads), " heads of one size"}),
                "heads=4");
  if (a.heads % a.kv_heads != 0) return fail("heads is a multiple of kv_heads (N20.1)", "heads=8 kv_heads=2");
  const bool ragged = token_order(a.layout) == TokenOrder::ragged;
  if (!ragged && p.x.shape.rows % a.batch != 0)
    return fail(concat({"the ", std::to_string(p.x.shape.rows), " tokens are not ", std::to_string(a.batch),
                        " sequences of one length"}),
                "batch=2, or layout=thd with lengths");
  if (auto error = validate_lengths(p)) return error;
  const AttentionSizes n = attention_sizes(p);
  const AttentionPart k = part_of(a.layout, AttentionTensor::k);
  if (k.tensors == 3 && (a.heads != a.kv_heads || n.q != n.kv || a.lengths != a.kv_lengths))
    return fail(concat({"layout=", word_of(a.layout), " packs Q, K and V of one shape (N20.1)"}),
                "a layout that packs K and V only, such as bshd_bs2hd");
  if (n.batch > kMaxElements / n.heads || !in_range({n.batch * n.heads, std::max<int64_t>(n.q, n.kv)}) ||
      !in_range({n.rows(), n.kv}) || !in_range({n.rows() + 2 * n.repeated_rows(), n.depth}))
    return fail("the logits or the gradients have more than 2^31 elements");
  if (a.window_left < -1 || a.window_right < -1)
    return fail("window has integers of -1 and up", "window=128,0");
  if (a.dropout >= kOne) return fail("dropout is from 0 to below 1 (N20.10)", "dropout=0.1");
  return validate_slots(p);
}

MaybeError validate_dequantize(const Problem& p, const Quantizer& q) {
  const Encoding out = p.as<Dequantize>()->out;
  if (!is_wide_float(out)) return fail("out must be f32, bf16 or f16");
  if (q.format == FormatId::identity && out != p.x.source)
    return fail("identity dequantizes to its own encoding");
  return {};
}

MaybeError validate_update(const Problem& p, const Quantizer& q) {
  if (q.format != FormatId::fp8_delayed)
    return fail(concat({"update is for fp8_delayed, found ", info(q.format).name}));
  if (p.x.source != Encoding::f32)
    return fail(concat({"an amax history is f32, found ", info(p.x.source).name}));
  if (p.x.shape.rows < 1) return fail("an amax history has at least 1 row");
  return {};
}

MaybeError validate_swizzle(const Problem& p, const Quantizer& q) {
  const FormatInfo& f = info(q.format);
  const std::string_view name = f.name;
  if (!f.has_blocks())
    return fail(concat({"swizzle permutes scales of blocks; ", name, " has none"}), "swizzle mxfp8 ...");
  if (p.x.source == f.scale) return {};
  const std::string_view scale = info(*f.scale).name;
  return fail(
      concat({"swizzle of ", name, " moves ", scale, " scales, found source ", info(p.x.source).name}),
      concat({"swizzle ", name, " 64x256 ", scale}));
}

MaybeError validate_scale_chain(const Problem& p, const Quantizer& q) {
  const FormatInfo& f = info(q.format);
  const Encoding source = p.x.source;
  const bool e8m0 = f.scale == Encoding::e8m0,
             divided = q.format == FormatId::fp8_current || q.format == FormatId::fp8_block;
  if (!e8m0 && !divided && q.format != FormatId::nvfp4)
    return fail(concat({"scale_chain is for formats that compute scales, found ", f.name}));
  if (source != Encoding::f32 && !(e8m0 && source == Encoding::e8m0))
    return fail(concat({"scale_chain takes f32 amaxes", e8m0 ? " or e8m0 codes" : ""}));
  if (q.format == FormatId::nvfp4 && p.x.shape.cols != 2)
    return fail("scale_chain of nvfp4 takes pairs, tensor amax and block amax", "scale_chain nvfp4 64x2 f32");
  return {};
}

// One direction of an op that has Quantizers.
MaybeError validate_direction(const Problem& p, const Quantizer& q, Direction d) {
  if (auto error = validate_quantizer(p, q, d)) return error;
  if (p.as<Dequantize>()) return validate_dequantize(p, q);
  if (p.as<Update>()) return validate_update(p, q);
  if (p.as<Swizzle>()) return validate_swizzle(p, q);
  if (p.as<ScaleChain>()) return validate_scale_chain(p, q);
  if (p.as<Hadamard>() && (q.format != FormatId::nvfp4 || d != Direction::col || !q.rht))
    return fail("hadamard is the rotation of nvfp4 columns", "hadamard nvfp4 64x256 bf16");
  return {};
}

}  // namespace

std::optional<Error> validate(const Problem& p) {
  const Encoding source = p.x.source;
  const Shape s = p.x.shape;
  if (!in_range(s)) return fail("the shape must have sizes of 0 and up and at most 2^31 elements");
  if (p.as<Cast>()) return validate_cast(p);
  if (p.as<Philox>()) {
    if (source != Encoding::u32 || s.cols != 4)
      return fail("philox takes counters of 4 u32", "philox u32 8x4 u32");
    return {};
  }
  if (p.as<Gemm>()) return validate_gemm(p);
  if (p.as<Adam>()) return validate_adam(p);
  if (p.as<ScaleState>()) return validate_scale_state(p);
  if (p.as<Attention>()) return validate_attention(p);
  if (!p.row && !p.col)
    return fail(concat({"a ", op_name(p), " needs a quantizer in at least one direction"}));
  if ((p.as<Dequantize>() || p.as<Swizzle>()) && p.row && p.col)
    return fail(concat({op_name(p), " works in one direction"}), "dir=row or dir=col");
  if ((p.as<Update>() || p.as<ScaleChain>()) && (!p.row || p.col))
    return fail(concat({op_name(p), " has no directions"}));
  if (auto error = validate_flavour(p)) return error;
  if (p.as<Split>()) return validate_split(p);
  for (Direction d : kDirections)
    if (p.quantizer(d))
      if (auto error = validate_direction(p, *p.quantizer(d), d)) return error;
  return {};
}

}  // namespace assay

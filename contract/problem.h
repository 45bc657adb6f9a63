// The Problem: everything that decides the bits of one case, and nothing else.
// Equal Problems give equal bytes on a side, whatever the thread count, launch shape, order, poison or
// alignment (those are the Environment, contract/subject.h). A Problem prints as one line and parses back
// (contract/line.h). Round, FillKind, Arch and the other enums whose values are words of a line are rows of
// contract/choices.def.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/choices.h"
#include "contract/encoding.h"
#include "contract/format.h"
#include "contract/numerics.h"

namespace assay {

// Logical sizes; ranks above two are flattened to [product of leading dimensions, last dimension]. Zero is
// legal.
struct Shape {
  int64_t rows = 0, cols = 0;
  int64_t count() const { return rows * cols; }
  bool operator==(const Shape&) const = default;
};
inline constexpr int64_t kMaxElements = int64_t{1} << 31;

enum class Direction : uint8_t { row, col };
inline constexpr Direction kDirections[] = {Direction::row, Direction::col};
constexpr std::string_view name_of(Direction d) { return d == Direction::row ? "row" : "col"; }

struct Fill {
  FillKind kind = FillKind::normal;
  uint64_t seed = 0;
  int64_t at_row = 0, at_col = 0;  // origin: element (r, c) is drawn as (at_row + r, at_col + c)
  std::string payload;             // what follows "literal:" or "pack:"
  bool operator==(const Fill&) const = default;
};

// The high-precision operand: what is quantized, cast, or (update) the amax history [length, slots].
struct Tensor {
  Shape shape;
  Encoding source = Encoding::bf16;
  Fill fill;
  bool operator==(const Tensor&) const = default;
};

inline constexpr uint16_t kRhtSignMask = 0xD7E8;  // N11.1: TransformerEngine's fixed signs

// How one direction is quantized.
struct Quantizer {
  FormatId format = FormatId::identity;
  Encoding element = Encoding::e4m3;  // of the data; identity: the source's
  Block block = Block::tensor;
  Packing packing = Packing::bytes;  // formats that have a choice; is_packed() knows the others
  bool pow2 = false;                 // fp8_current, fp8_block: scale floored to a power of two (N3.6)
  F32Bits eps = 0;                   // fp8_current, fp8_block: least amax (N3.2)
  std::optional<F32Bits> amax;  // fp8_current, nvfp4: given; nothing: computed from the tensor (N3.1, N10.1)
  F32Bits scale = 0x3F800000;   // fp8_delayed: the given scale (N3.11), or decode scale (N17.5)
  F32Bits prior_amax = 0;       // fp8_delayed: the previous value of the amax slot (N3.1)
  Round round = Round::rne;     // nvfp4: rne or sr
  bool rht = false;             // nvfp4 columns: of the rotated tensor (N11)
  uint16_t sign_mask = kRhtSignMask;  // rht: bit i set negates element i of each 16 (N11.1)
  FourOverSix four_over_six = FourOverSix::off;
  E4m3Max e4m3_max = E4m3Max::m448;  // nvfp4 under four_over_six
  bool row_scaled = false;           // fp8_current, fp8_delayed, nvfp4: of each stored row (N3.12, N10.9)
  ScaleLayout scales = ScaleLayout::compact;
  ScaleFrom scale_from = ScaleFrom::x;  // formats with blocks
  Numerics numerics;
  bool operator==(const Quantizer&) const = default;
};

// Whether codes of the data stand one after another without a gap (N6.8).
constexpr bool is_packed(const Quantizer& q) {
  const FormatInfo& f = info(q.format);
  return has_several(f.packings) ? q.packing == Packing::packed : f.packed();
}

// Whose kernel selection decides the Numerics that are not given (contract/dispatch.h).
// te is a function of the Problem; the others are sets of choices (contract/flavours.def).
enum class Flavour : uint8_t {
  assay,
  te,
#define FLAVOUR(id, ...) id,
#include "contract/flavours.def"
#undef FLAVOUR
};

// Where the random bytes of round=sr come from (N12.2).
struct Rng {
  uint64_t seed = 0, offset = 0;
  uint32_t member = 0;  // below 2^17
  bool operator==(const Rng&) const = default;
};

// Convert every element of x to another encoding.
struct Cast {
  Encoding to = Encoding::e4m3;
  Round round = Round::rne;
  Overflow overflow = Overflow::sat;
  SrRule sr_rule = SrRule::integer;  // round=sr
  bool operator==(const Cast&) const = default;
};
// Quantize x in each direction that has a Quantizer.
struct Quantize {
  std::optional<F32Bits> noop;  // the flag; exactly 1.0 leaves every output untouched (N6.7)
  bool operator==(const Quantize&) const = default;
};
// Dequantize one direction of the quantized x (made by the reference), or of arbitrary codes.
struct Dequantize {
  Encoding out = Encoding::bf16;
  CodesFrom input = CodesFrom::quantized;
  bool operator==(const Dequantize&) const = default;
};
// One delayed-scaling update of `cols` slots with a history of `rows` amaxes each.
struct Update {
  AmaxAlgo algo = AmaxAlgo::max;
  UpdateRule rule = UpdateRule::bulk;
  int margin = 0;
  bool reduction = false;  // a reduction buffer is given (N4.1)
  bool operator==(const Update&) const = default;
};
// Permute the scales of an x-shaped tensor from compact to GEMM layout, or back.
struct Swizzle {
  bool inverse = false;
  bool operator==(const Swizzle&) const = default;
};
// The scalar chain from amax to scales, element by element: x holds amaxes (f32) or stored scale codes
// (e8m0).
struct ScaleChain {
  bool operator==(const ScaleChain&) const = default;
};

// Rotate every 16 rows of each column of x (bf16) and take the amax: the transform that nvfp4 columns with
// rht=1 begin with (N11).
struct Hadamard {
  bool operator==(const Hadamard&) const = default;
};
// Quantize every member of a grouped tensor. Members lie one after the other in x, each a contiguous matrix
// (N14.1).
struct Split {
  Vary vary = Vary::first;
  std::vector<Shape> members;  // none of them: x is one empty group
  int64_t capacity = 0;        // elements allocated in x and in data planes; at least those of the members
  std::optional<F32Bits> noop;
  bool operator==(const Split&) const = default;
};
// Philox4x32: x holds counters [n, 4].
struct Philox {
  int rounds = 10;
  bool operator==(const Philox&) const = default;
};

// Multiply two quantized operands: d[n, m] is the sum over k of a(m, k) b(n, k), then the epilogue (N16). x
// is C: shape [N, M], the encoding of d too, read only where beta is not zero.
enum class Side : uint8_t { a, b };
inline constexpr Side kSides[] = {Side::a, Side::b};
constexpr std::string_view name_of(Side s) { return s == Side::a ? "a" : "b"; }
// One operand: a tensor, and how the one direction that is read of it was quantized. operand_problem
// (contract/planes.h) is its line.
struct Operand {
  Quantizer quantizer;
  Encoding source = Encoding::bf16;
  Fill fill;
  bool operator==(const Operand&) const = default;
};
struct Gemm {
  int64_t k = 0;
  Operand a, b;
  GemmOp op = GemmOp::TN;
  GemmSum sum = GemmSum::f32_sequential;
  F32Bits alpha = 0x3F800000, beta = 0;  // N16.8
  std::optional<Encoding> bias;          // of the plane `bias`, one value for each m; nothing: no bias
  bool operator==(const Gemm&) const = default;
  const Operand& operand(Side s) const { return s == Side::a ? a : b; }
  Operand& operand(Side s) { return s == Side::a ? a : b; }
  // The one that is read.
  Direction direction(Side s) const {
    const bool rows = s == Side::a ? op == GemmOp::TN : op != GemmOp::NT;
    return rows ? Direction::row : Direction::col;
  }
  bool multiplies() const { return alpha != 0x3F800000; }
  bool reads_c() const { return (beta & 0x7FFFFFFF) != 0; }
};

// One step of Adam (N19.1 to N19.5, N19.8): x is the gradient; p, m and v are planes beside it.
struct Adam {
  Encoding parameter = Encoding::f32, moments = Encoding::f32;
  AdamRounding adam = AdamRounding::plain;
  WeightDecay decoupling = WeightDecay::adamw;
  bool bias_correction = true;
  int step = 1;
  F32Bits lr = 0x3A83126F, beta1 = 0x3F666666, beta2 = 0x3F7FBE77, eps = 0x322BCC77, decay = 0;
  bool operator==(const Adam&) const = default;
};
// Store a state of an optimizer beside one scale (N19.6), or read it back (N19.7).
struct ScaleState {
  Encoding to = Encoding::f16;  // f16 or e4m3
  bool inverse = false;
  bool operator==(const ScaleState&) const = default;
};

// Attention's core by emulation E (N20): O = softmax(scale Q K^T + mask) V, and its gradients. x is Q, whose
// rows are tokens and whose columns are heads.
enum class AttentionSlot : uint8_t { qkv, s, o, d_o, dp, dqkv };
inline constexpr std::array kAttentionSlots = {AttentionSlot::qkv, AttentionSlot::s,  AttentionSlot::o,
                                               AttentionSlot::d_o, AttentionSlot::dp, AttentionSlot::dqkv};
inline constexpr std::string_view kSlotNames[] = {"qkv", "s", "o", "do", "dp", "dqkv"};
constexpr std::string_view name_of(AttentionSlot s) { return kSlotNames[static_cast<size_t>(s)]; }
struct Attention {
  int64_t batch = 1, heads = 1, kv_heads = 1;
  int64_t kv = 0;  // keys of a sequence
  AttentionLayout layout = AttentionLayout::bshd;
  std::vector<int64_t> lengths, kv_lengths;  // tokens of each sequence; empty: all have the same number
  AttentionMask mask = AttentionMask::none;
  int64_t window_left = -1, window_right = -1;  // keys before and after the query's own; -1: all
  AttentionBias bias = AttentionBias::none;
  std::optional<F32Bits> softmax_scale;  // nothing: 1 / sqrt(depth)
  F32Bits dropout = 0;                   // the share that is dropped; 0: no plane `keep`
  ExpRule exp = ExpRule::exact;
  AttentionSums sums = AttentionSums::ascending;
  AttentionCodes codes = AttentionCodes::none;  // N20.17: of Q, K and V
  bool backward = false;
  std::array<Quantizer, kAttentionSlots.size()> slots;
  bool operator==(const Attention&) const = default;
  const Quantizer& slot(AttentionSlot s) const { return slots[static_cast<size_t>(s)]; }
  Quantizer& slot(AttentionSlot s) { return slots[static_cast<size_t>(s)]; }
};
// Whether the slot takes part: those of gradients do so in the backward pass alone.
constexpr bool has_slot(const Attention& a, AttentionSlot s) { return a.backward || s <= AttentionSlot::o; }

struct Problem {
  Tensor x;
  std::optional<Quantizer> row, col;  // absent directions are not produced; cast and gemm have neither
  Flavour flavour = Flavour::assay;
  Arch arch = Arch::sm100;
  Dispatch dispatch = Dispatch::automatic;
  ColSource col_source = ColSource::original;  // quantize and split with both directions
  Rng rng;                                     // quantize, split and gemm with a direction of round=sr
  std::variant<Cast, Quantize, Dequantize, Update, Swizzle, ScaleChain, Hadamard, Split, Philox, Gemm, Adam,
               ScaleState, Attention>
      op;

  bool operator==(const Problem&) const = default;
  const std::optional<Quantizer>& quantizer(Direction d) const { return d == Direction::row ? row : col; }
  std::optional<Quantizer>& quantizer(Direction d) { return d == Direction::row ? row : col; }
  // The op's own keys, or null when this Problem is another op.
  template <class T> const T* as() const { return std::get_if<T>(&op); }
  template <class T> T* as() { return std::get_if<T>(&op); }
};

// "cast", "quantize", ... in the order of Problem::op.
inline constexpr std::string_view kOps[] = {"cast",        "quantize",    "dequantize", "update", "swizzle",
                                            "scale_chain", "hadamard",    "split",      "philox", "gemm",
                                            "adam",        "scale_state", "attention"};
inline std::string_view op_name(const Problem& p) { return kOps[p.op.index()]; }

// The noop flag of a quantize or a split, where one is given (N6.7).
inline std::optional<F32Bits> noop_of(const Problem& p) {
  if (const Quantize* q = p.as<Quantize>()) return q->noop;
  if (const Split* s = p.as<Split>()) return s->noop;
  return std::nullopt;
}
// Whether a direction, or an operand of a gemm, rounds stochastically.
inline bool draws(const Problem& p) {
  if (const Gemm* g = p.as<Gemm>())
    return g->a.quantizer.round == Round::sr || g->b.quantizer.round == Round::sr;
  return (p.row && p.row->round == Round::sr) || (p.col && p.col->round == Round::sr);
}

}  // namespace assay

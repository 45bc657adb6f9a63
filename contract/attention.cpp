#include "contract/attention.h"

#include <algorithm>
#include <numeric>

namespace assay {

namespace {

const Attention& op_of(const Problem& p) { return *p.as<Attention>(); }

Plane matrix(std::string name, Part part, Encoding encoding, Shape shape) {
  Plane p;
  p.name = std::move(name);
  p.part = part;
  p.encoding = encoding;
  p.logical = p.padded = shape;
  return p;
}

int64_t longest(const std::vector<int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}
int64_t total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}
bool is_ragged(const Problem& p) { return token_order(op_of(p).layout) == TokenOrder::ragged; }

// Tokens of all sequences, as the planes have them.
int64_t tokens_of(const Problem& p, AttentionTensor t) {
  const Attention& a = op_of(p);
  if (t == AttentionTensor::q) return p.x.shape.rows;
  return is_ragged(p) ? total(a.kv_lengths) : a.batch * a.kv;
}

// Q, K and V, or their gradients, as the layout packs them.
void add_packed(std::vector<Plane>& out, const Problem& p, Part part, const std::string& prefix) {
  const AttentionSizes n = attention_sizes(p);
  std::string last;
  for (AttentionTensor t : {AttentionTensor::q, AttentionTensor::k, AttentionTensor::v}) {
    const AttentionPart held = part_of(op_of(p).layout, t);
    if (held.plane == last) continue;
    last = held.plane;
    const int64_t heads = t == AttentionTensor::q ? n.heads : n.kv_heads;
    out.push_back(matrix(prefix + held.plane, part, part == Part::input ? input_encoding(p) : p.x.source,
                         {tokens_of(p, t), held.tensors * heads * n.depth}));
  }
}

AttentionCast cast_of(const Problem& p, AttentionSlot slot, std::string name, Shape shape, Direction d) {
  AttentionCast out{std::move(name), slot, {}};
  out.line.op = Quantize{};
  out.line.x = {shape, p.x.source, {}};
  out.line.quantizer(d) = op_of(p).slot(slot);
  return out;
}

// A plane of a cast's own line, by its name in the attention.
void add_cast(std::vector<Plane>& out, const Problem& p, AttentionSlot slot, Part part) {
  for (const AttentionCast& cast : attention_casts(p, slot))
    for (Plane plane : part == Part::input ? input_planes(cast.line) : output_planes(cast.line)) {
      if (plane.name == "x") continue;
      plane.name = plane_of_cast(cast, plane.name);
      out.push_back(std::move(plane));
    }
}

}  // namespace

AttentionSizes attention_sizes(const Problem& p) {
  const Attention& a = op_of(p);
  AttentionSizes n{a.batch, a.heads, a.kv_heads, 0, a.kv, p.x.shape.cols / std::max<int64_t>(a.heads, 1)};
  n.q = is_ragged(p) ? longest(a.lengths) : p.x.shape.rows / std::max<int64_t>(a.batch, 1);
  if (is_ragged(p)) n.kv = longest(a.kv_lengths);
  return n;
}

Encoding input_encoding(const Problem& p) {
  switch (op_of(p).codes) {
    case AttentionCodes::none: break;
    case AttentionCodes::e4m3: return Encoding::e4m3;
    case AttentionCodes::e5m2: return Encoding::e5m2;
  }
  return p.x.source;
}

int64_t q_length(const Problem& p, int64_t b) {
  const Attention& a = op_of(p);
  return a.lengths.empty() ? attention_sizes(p).q : a.lengths[static_cast<size_t>(b)];
}
int64_t kv_length(const Problem& p, int64_t b) {
  const Attention& a = op_of(p);
  return a.kv_lengths.empty() ? attention_sizes(p).kv : a.kv_lengths[static_cast<size_t>(b)];
}

AttentionPart part_of(AttentionLayout layout, AttentionTensor t) {
  using L = AttentionLayout;
  const int64_t which = static_cast<int64_t>(t);
  static constexpr const char* kAlone[] = {"q", "k", "v"};
  switch (layout) {
    case L::sbhd:
    case L::bshd:
    case L::thd: return {kAlone[which], 1, 0, false};
    case L::sb3hd:
    case L::bs3hd:
    case L::t3hd: return {"qkv", 3, which, false};
    case L::sbh3d:
    case L::bsh3d:
    case L::th3d: return {"qkv", 3, which, true};
    case L::sbhd_sb2hd:
    case L::bshd_bs2hd:
    case L::thd_t2hd:
      return which == 0 ? AttentionPart{"q", 1, 0, false} : AttentionPart{"kv", 2, which - 1, false};
    case L::sbhd_sbh2d:
    case L::bshd_bsh2d:
    case L::thd_th2d:
      return which == 0 ? AttentionPart{"q", 1, 0, false} : AttentionPart{"kv", 2, which - 1, true};
  }
  return {};
}

TokenOrder token_order(AttentionLayout layout) {
  using L = AttentionLayout;
  switch (layout) {
    case L::sbhd:
    case L::sb3hd:
    case L::sbh3d:
    case L::sbhd_sb2hd:
    case L::sbhd_sbh2d: return TokenOrder::sequence_first;
    case L::bshd:
    case L::bs3hd:
    case L::bsh3d:
    case L::bshd_bs2hd:
    case L::bshd_bsh2d: return TokenOrder::batch_first;
    case L::thd:
    case L::t3hd:
    case L::th3d:
    case L::thd_t2hd:
    case L::thd_th2d: return TokenOrder::ragged;
  }
  return TokenOrder::batch_first;
}

std::vector<AttentionCast> attention_casts(const Problem& p, AttentionSlot slot) {
  const FormatId format = op_of(p).slot(slot).format;
  if (format == FormatId::identity) return {};
  const AttentionSizes n = attention_sizes(p);
  const bool gradient = slot == AttentionSlot::dqkv;
  if (slot == AttentionSlot::s || slot == AttentionSlot::dp)
    return {cast_of(p, slot, std::string(name_of(slot)), {n.rows(), n.kv}, Direction::row)};
  if (slot == AttentionSlot::o || slot == AttentionSlot::d_o)
    return {cast_of(p, slot, std::string(name_of(slot)), {n.q * n.batch, n.heads * n.depth}, Direction::row)};
  const int64_t kv_rows = gradient ? n.repeated_rows() : n.kv_rows();
  if (!info(format).has_blocks())
    return {cast_of(p, slot, std::string(name_of(slot)), {n.rows() + 2 * kv_rows, n.depth}, Direction::row)};
  const std::string prefix = gradient ? "d" : "";
  return {cast_of(p, slot, prefix + "q", {n.rows(), n.depth}, Direction::row),
          cast_of(p, slot, prefix + "k", {kv_rows, n.depth}, Direction::row),
          cast_of(p, slot, prefix + "v", {kv_rows, n.depth}, Direction::col)};
}

std::string plane_of_cast(const AttentionCast& cast, std::string_view own) {
  return cast.name + std::string(own.substr(own.find('.')));
}

Problem slot_problem(const Problem& p, AttentionSlot slot) {
  Problem out;
  out.op = Quantize{};
  const AttentionSizes n = attention_sizes(p);
  out.x = {{n.rows(), n.depth}, p.x.source, {}};
  out.row = op_of(p).slot(slot);
  return out;
}

std::vector<Plane> attention_inputs(const Problem& p) {
  const Attention& a = op_of(p);
  const AttentionSizes n = attention_sizes(p);
  std::vector<Plane> out;
  add_packed(out, p, Part::input, "");
  if (a.codes != AttentionCodes::none)
    for (const char* name : {"q.descale", "k.descale", "v.descale"})
      out.push_back(matrix(name, Part::input, Encoding::f32, {n.batch, n.kv_heads}));
  if (!a.lengths.empty()) {
    out.push_back(matrix("cu_seqlens_q", Part::input, Encoding::u32, {1, n.batch + 1}));
    out.push_back(matrix("cu_seqlens_kv", Part::input, Encoding::u32, {1, n.batch + 1}));
  }
  if (a.bias != AttentionBias::none)
    out.push_back(matrix("bias", Part::input, p.x.source, {n.heads * n.q, n.kv}));
  if (a.dropout != 0) out.push_back(matrix("keep", Part::input, Encoding::u8, {n.rows(), n.kv}));
  if (a.backward) out.push_back(matrix("do", Part::input, p.x.source, p.x.shape));
  for (AttentionSlot slot : kAttentionSlots)
    if (has_slot(a, slot)) add_cast(out, p, slot, Part::input);
  return out;
}

// In causal order, in which those of a kernel whose bits are not pinned are judged one after the other
// (N20.18, with the bounds of N20.20, N20.21, N20.22 and N20.23).
std::vector<Plane> attention_outputs(const Problem& p) {
  const Attention& a = op_of(p);
  const AttentionSizes n = attention_sizes(p);
  const Shape logits = {n.rows(), n.kv}, result = {n.q * n.batch, n.heads * n.depth};
  std::vector<Plane> out;
  const auto add = [&](const char* name, Shape shape) {
    out.push_back(matrix(name, Part::output, p.x.source, shape));
  };
  add_cast(out, p, AttentionSlot::qkv, Part::output);
  add("p", logits);
  add("s", logits);
  add_cast(out, p, AttentionSlot::s, Part::output);
  add("o", result);
  add_cast(out, p, AttentionSlot::o, Part::output);
  add("out", p.x.shape);
  if (!a.backward) return out;
  add_cast(out, p, AttentionSlot::d_o, Part::output);
  add("dv", {n.repeated_rows(), n.depth});
  add("ds", logits);
  add("dp", logits);
  add_cast(out, p, AttentionSlot::dp, Part::output);
  add("dq", {n.rows(), n.depth});
  add("dk", {n.repeated_rows(), n.depth});
  add_cast(out, p, AttentionSlot::dqkv, Part::output);
  add_packed(out, p, Part::output, "grad.");
  return out;
}

}  // namespace assay

// Predicates of a lane: what follows from sizes and keys alone, and what its inputs hold.
#include <algorithm>
#include <cmath>

#include "compare/arithmetic/codes.h"
#include "compare/rounding/predicates.h"
#include "contract/planes.h"

namespace assay::rounding::predicates {

namespace {

// Whether `f(shape)` holds for what is quantized: x, or a member of a split.
template <class F> bool some_tensor(const Lane& lane, F f) {
  if (const Split* split = lane.problem.as<Split>())
    return std::any_of(split->members.begin(), split->members.end(), f);
  return f(lane.problem.x.shape);
}

// The extents along which a block lies, and across.
struct Extents {
  int64_t along, across;
};
Extents extents(const Lane& lane, Shape s) {
  return lane.direction == Direction::row ? Extents{s.cols, s.rows} : Extents{s.rows, s.cols};
}

template <class F> bool some_geometry(const Lane& lane, F f) {
  return lane.directed && some_tensor(lane, [&](Shape s) {
           return s.count() > 0 && f(geometry(lane.quantizer(), s, lane.direction), extents(lane, s));
         });
}

int64_t block(const Lane& lane) { return length_of(lane.quantizer().block); }

template <class F> bool some_input(const Lane& lane, std::string_view name, F f) {
  const PlaneData* p = find_plane(lane.inputs, name);
  if (!p) return false;
  for (int64_t i = 0; i < p->plane.logical.count(); ++i)
    if (f(code_at(p->plane, p->bytes, i))) return true;
  return false;
}

}  // namespace

bool no_elements(const Lane& l) {
  return some_tensor(l, [](Shape s) { return s.count() == 0; });
}
bool one_element(const Lane& l) {
  return some_tensor(l, [](Shape s) { return s.count() == 1; });
}
bool tail_block(const Lane& l) {
  return some_geometry(l, [&](const Geometry&, Extents e) { return block(l) && e.along % block(l) != 0; });
}
bool tail_tile(const Lane& l) {
  return some_geometry(l, [&](const Geometry&, Extents e) { return block(l) && e.across % block(l) != 0; });
}
bool one_element_block(const Lane& l) {
  return some_geometry(l, [&](const Geometry&, Extents e) { return block(l) && e.along % block(l) == 1; });
}
bool scales_padded(const Lane& l) {
  return some_geometry(l, [](const Geometry& g, Extents) { return !(g.scale == g.scale_padded); });
}
bool scales_unpadded(const Lane& l) {
  return some_geometry(l, [](const Geometry& g, Extents) { return g.scale == g.scale_padded; });
}
bool several_scale_tiles(const Lane& l) {
  return some_geometry(l, [](const Geometry& g, Extents) {
    return std::min(g.scale_padded.rows, g.scale_padded.cols) > 4 &&
           std::max(g.scale_padded.rows, g.scale_padded.cols) > 128;
  });
}
bool data_padded(const Lane& l) {
  return some_geometry(l, [](const Geometry& g, Extents) { return !(g.data == g.data_padded); });
}

bool flag_of_one(const Lane& l) { return noop_of(l.problem) == F32Bits{0x3F800000}; }
bool flag_of_another(const Lane& l) {
  const auto flag = noop_of(l.problem);
  return flag && *flag != 0x3F800000 && !is_nan(Encoding::f32, *flag);
}
bool flag_nan(const Lane& l) {
  const auto flag = noop_of(l.problem);
  return flag && is_nan(Encoding::f32, *flag);
}

bool offset_beyond_word(const Lane& l) { return l.problem.rng.offset >> 32 != 0; }
bool offset_greatest(const Lane& l) { return l.problem.rng.offset >= ~uint64_t{0} - 1024; }
bool member_set(const Lane& l) { return l.problem.rng.member != 0; }
bool member_greatest(const Lane& l) { return l.problem.rng.member == (1u << 17) - 1; }
bool seed_beyond_word(const Lane& l) { return l.problem.rng.seed >> 32 != 0; }
bool counter_greatest(const Lane& l) {
  return some_input(l, "x", [](uint32_t c) { return c == 0xFFFFFFFF; });
}
bool counter_zero(const Lane& l) {
  return some_input(l, "x", [](uint32_t c) { return c == 0; });
}
bool any_lane(const Lane& l) { return l.problem.x.shape.count() > 0; }

bool empty_member(const Lane& l) {
  const Split* s = l.problem.as<Split>();
  return s && s->members.size() > 1 && any_lane(l) && no_elements(l);
}
bool spare_capacity(const Lane& l) {
  const Split* s = l.problem.as<Split>();
  int64_t elements = 0;
  for (size_t m = 0; s && m < s->members.size(); ++m) elements += s->members[m].count();
  return s && s->capacity > elements;
}
bool given_values_differ(const Lane& l) {
  const Split* s = l.problem.as<Split>();
  return s && s->members.size() > 1 && l.directed &&
         member_problems(l.problem)[1].quantizer(l.direction)->scale != l.quantizer().scale;
}
bool given_amax_differs(const Lane& l) {
  const Split* s = l.problem.as<Split>();
  return s && s->members.size() > 1 && l.directed && l.quantizer().amax &&
         member_problems(l.problem)[1].quantizer(l.direction)->amax != l.quantizer().amax;
}

bool splits(const Lane& l) { return l.problem.as<Split>() && any_lane(l); }
bool split_tail(const Lane& l) { return splits(l) && tail_block(l); }
bool two_formats(const Lane& l) {
  return l.problem.row && l.problem.col && l.problem.row->format != l.problem.col->format;
}
bool two_slot_formats(const Lane& l) {
  const Attention* a = l.problem.as<Attention>();
  return a && a->slot(AttentionSlot::s).format != a->slot(AttentionSlot::qkv).format;
}
bool repeated_heads(const Lane& l) {
  const Attention* a = l.problem.as<Attention>();
  return a && a->heads != a->kv_heads;
}

namespace {
bool some_state(const Lane& l, bool (*f)(double)) {
  return some_input(l, "x", [&](uint32_t bits) { return f(value_of(l.problem.x.source, bits)); });
}
}  // namespace
bool state_of_zeros(const Lane& l) {
  return l.problem.x.shape.count() > 0 && !some_state(l, [](double v) { return v != 0; });
}
bool state_with_nan(const Lane& l) {
  return some_state(l, [](double v) { return std::isnan(v); });
}
bool state_with_infinity(const Lane& l) {
  return some_state(l, [](double v) { return std::isinf(v); });
}

bool k_zero(const Lane& l) {
  const Gemm* g = l.problem.as<Gemm>();
  return g && g->k == 0;
}
bool k_beyond_chain(const Lane& l) {
  const Gemm* g = l.problem.as<Gemm>();
  return g && g->k > 128;
}
bool k_short_step(const Lane& l) {
  const Gemm* g = l.problem.as<Gemm>();
  if (!g) return false;
  const int64_t step = g->sum == GemmSum::hopper_tf32 ? 8 : g->sum == GemmSum::hopper_f16 ? 16 : 32;  // N16.5
  return g->k % step != 0;
}
bool operand_with_blocks(const Lane& l) {
  const Gemm* g = l.problem.as<Gemm>();
  return g && std::any_of(std::begin(kSides), std::end(kSides),
                          [&](Side side) { return info(g->operand(side).quantizer.format).has_blocks(); });
}
bool history_of_one(const Lane& l) { return l.problem.as<Update>() && l.problem.x.shape.rows == 1; }

}  // namespace assay::rounding::predicates

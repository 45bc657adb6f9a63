#include "compare/diagnosis/replay/replay.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "compare/arithmetic/expected_values.h"
#include "contract/line.h"

namespace assay {

namespace {

F32Bits bits_of(double v) { return std::isnan(v) ? info(Encoding::f32).nan : std::bit_cast<uint32_t>(static_cast<float>(v)); }

const PlaneData* scalar_plane(const std::vector<PlaneData>& planes, Direction d, std::string_view stem) {
  const PlaneData* p = find_plane(planes, plane_name(d, stem));
  return p && p->plane.padded == Shape{1, 1} && p->plane.encoding == Encoding::f32 ? p : nullptr;
}
float scalar_of(const PlaneData& p) { return std::bit_cast<float>(code_at(Encoding::f32, p.bytes, 0)); }

PlaneData scalar(std::string name, Direction d, F32Bits bits) {
  PlaneData out;
  out.plane.name = std::move(name);
  out.plane.logical = out.plane.padded = {1, 1};
  out.plane.direction = d;
  out.bytes.resize(4);
  set_code(Encoding::f32, out.bytes, 0, bits);
  return out;
}

// The scale plane of a direction in compact layout without padding, for scale_index.
Plane bare_scales(const Quantizer& q, Shape shape, Direction d) {
  const Geometry g = geometry(q, shape, d, ScaleLayout::compact);
  Plane p;
  p.encoding = g.scale_encoding;
  p.logical = p.padded = g.scale;
  p.direction = d;
  p.transposed = g.transposed;
  return p;
}

// What elements are multiplied by, or divided by.
struct Factor {
  double value = 1;
  bool divides = false;
};

// N10.2: S of a tensor's amax.
float encode_scale(const Quantizer& q, float a, Encoding source) {
  const Numerics& n = q.numerics;
  constexpr float kMost = std::numeric_limits<float>::max();
  if (n.nvfp4_scale == Nvfp4Scale::unit || (std::isnan(a) && n.nan_tensor_amax == NanTensorAmax::unit)) return 1;
  const float s = static_cast<float>(Division(q, source).encode(q.e4m3_max == E4m3Max::m256 ? 1536 : 2688, a));   // N17.14
  const float limited = std::isnan(s) ? (n.nan_clamp == NanClamp::propagate ? s : kMost) : std::min(s, kMost);
  return !(std::isinf(a) && n.inf_amax == InfAmax::zero) && (a == 0 || limited == 0) ? 1 : limited;
}

// The multiplier of a block from what is stored of its scale, in the judge's own steps (N3.8, N5.4, N9.2, N10.8, N17.5, N17.10).
class Factors {
 public:
  Factors(const Quantizer& q, Encoding source) : q_(q), source_(source) {}

  // `amax` and `tensor_amax` are read where the format needs them; `scale`: of a per-tensor format.
  Factor of(uint32_t scale_code, Encoding scales, double amax, double tensor_amax, double scale) const {
    switch (q_.format) {
      case FormatId::fp8_delayed: return {scale};
      case FormatId::fp8_current: return q_.numerics.scale_order == ScaleOrder::decode_divide ? Factor{value_of(scales, scale_code), true} : Factor{scale};
      case FormatId::mxfp8: case FormatId::mxfp4: return {scale_code == 255 ? std::nan("") : std::ldexp(1.0, 127 - static_cast<int>(scale_code))};
      case FormatId::fp8_block: return block(value_of(scales, scale_code), amax);
      case FormatId::nvfp4: return nvfp4(static_cast<float>(value_of(scales, scale_code)), static_cast<float>(tensor_amax));
      default: return {1};
    }
  }

  // What is cast: once narrowed, perhaps rounded again (N17.3).
  double scaled(double x, const Factor& f) const {
    const double exact = f.divides ? x / f.value : x * f.value;            // of two binary32 values: narrowing a binary64 quotient is exact too
    const double y = static_cast<float>(exact);
    if (q_.numerics.pre_round == PreRound::bf16) return value_of(Encoding::bf16, nearest_code(Encoding::bf16, y));
    if (q_.numerics.pre_round == PreRound::f16_rz && std::isfinite(y)) return value_of(Encoding::f16, truncated_code(Encoding::f16, y));
    return y;
  }

 private:
  Factor block(double scale_inv, double amax) const {
    if (q_.numerics.scale_order == ScaleOrder::decode_divide) return {scale_inv, true};
    if (q_.numerics.scale_order == ScaleOrder::decode_first) return {Division(q_, source_).rounded(1 / scale_inv)};
    const double least = std::max(amax, value_of(Encoding::f32, q_.eps));
    if (least == 0 || std::isnan(amax) || (std::isinf(least) && q_.numerics.inf_amax == InfAmax::unit)) return {1};
    double scale = Division(q_, source_).encode(value_of(q_.element, info(q_.element).max_finite), least);
    if (std::isinf(scale)) scale = value_of(q_.numerics.scale_limit == ScaleLimit::source_max ? source_ : Encoding::f32, info(q_.numerics.scale_limit == ScaleLimit::source_max ? source_ : Encoding::f32).max_finite);
    return {q_.pow2 && scale > 0 ? std::exp2(std::ilogb(scale)) : scale};
  }

  static float at_most(float v, float limit, NanClamp clamp) { return std::isnan(v) ? (clamp == NanClamp::propagate ? v : limit) : std::min(v, limit); }

  Factor nvfp4(float s, float a) const {
    const Numerics& n = q_.numerics;
    constexpr float kMost = std::numeric_limits<float>::max();
    const float range = q_.e4m3_max == E4m3Max::m256 ? 1536.0f : 2688.0f;
    const bool unit = n.nvfp4_scale == Nvfp4Scale::unit;
    const float encode = encode_scale(q_, a, source_);
    const float p = unit ? 1 : static_cast<float>(Division(q_, source_).decode(a, range));
    if (s == 0 && n.zero_multiplier == ZeroMultiplier::zero) return {0};
    switch (n.multiplier) {
      case Multiplier::divide_product: return {s * p, true};
      case Multiplier::divide_quotient: return {s / encode, true};
      case Multiplier::quotient: return {at_most(encode / s, kMost, n.nan_clamp)};
      case Multiplier::decode_reciprocal: return {at_most(1.0f / p / s, kMost, n.nan_clamp)};
      case Multiplier::bf16_quotient: return {value_of(Encoding::bf16, nearest_code(Encoding::bf16, at_most(encode / s, static_cast<float>(value_of(Encoding::bf16, 0x7F7F)), n.nan_clamp)))};
      case Multiplier::reciprocal: break;
    }
    return {at_most(1.0f / (s * (1.0f / encode)), kMost, n.nan_clamp)};
  }

  const Quantizer& q_;
  Encoding source_;
};

Selection whole(const Matrix& x) {
  Selection s;
  s.lines.resize(static_cast<size_t>(x.lines()));
  s.places.resize(static_cast<size_t>(x.length()));
  std::iota(s.lines.begin(), s.lines.end(), 0);
  std::iota(s.places.begin(), s.places.end(), 0);
  return s;
}

}  // namespace

// ---- lanes -----------------------------------------------------------------------------------------------------------------

std::string name_in_case(const Lane& lane, const std::string& plane) { return lane.member ? fmt::format("{}[{}]", plane, *lane.member) : plane; }

namespace {

// x of columns that are made of the dequantized rows (N13.1).
Result<PlaneData> dequantized_rows(const Problem& p, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& rows, Subject& reference) {
  Problem back = p;
  back.op = Dequantize{.out = p.x.source};
  back.col.reset();
  back.col_source = ColSource::original;
  back.flavour = Flavour::assay;
  if (const auto error = validate(back)) return *error;
  const std::vector<Plane> read = input_planes(back), written = output_planes(back);
  std::vector<ConstBuffer> in;
  for (const Plane& plane : read) {
    const PlaneData* data = find_plane(rows, plane.name);
    if (!data) data = find_plane(inputs, plane_name(Direction::row, "given.amax"));
    if (!data) return Error{"the rows hold no plane " + plane.name, 0, ""};
    in.push_back({&plane, data->bytes});
  }
  PlaneData x{written.at(0), std::vector<std::byte>(written[0].bytes())};
  const Buffer out[] = {{&written[0], x.bytes}};
  try {
    reference.run(back, in, out, Environment{});
  } catch (const std::exception& e) {
    return Error{e.what(), 0, ""};
  }
  x.plane = input_planes(p).front();
  return x;
}

std::optional<Error> add_lanes(std::vector<Lane>& out, const Problem& p, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& made, std::optional<size_t> member, Subject& reference) {
  for (const Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const Direction other = d == Direction::row ? Direction::col : Direction::row;
    Lane lane{p, d, member, {}, {}, inputs};
    lane.problem.flavour = Flavour::assay;                                  // it has set the Numerics
    lane.problem.arch = Arch::sm100;
    lane.problem.dispatch = Dispatch::automatic;
    lane.problem.op = Quantize{};
    lane.problem.col_source = ColSource::original;
    lane.problem.quantizer(other).reset();
    lane.problem.quantizer(d)->scale_from = p.quantizer(d)->scale_from;
    const bool made_of_rows = d == Direction::col && p.row && p.col_source == ColSource::row_dequantized;
    if (made_of_rows) {
      std::vector<PlaneData> rows = made;
      const bool complete = [&] {
        for (const Plane& plane : output_planes(p))
          if (plane.direction == Direction::row && !find_plane(rows, plane.name)) return false;
        return true;
      }();
      if (!complete) {
        const auto planes = Replay(out.back(), reference).run({}, {});
        if (!planes) return Error{"the reference does not make the rows", 0, ""};
        rows = *planes;
      }
      auto x = dequantized_rows(p, inputs, rows, reference);
      if (!x) return x.error();
      *std::find_if(lane.inputs.begin(), lane.inputs.end(), [](const PlaneData& data) { return data.plane.name == "x"; }) = std::move(*x);
    } else if (p.quantizer(other) && p.quantizer(other)->round == Round::sr) {
      lane.partner = p.quantizer(other);
    }
    if (p.col_source == ColSource::original) lane.other = p.quantizer(other);
    out.push_back(std::move(lane));
  }
  return {};
}

}  // namespace

Result<std::vector<Lane>> lanes_of(const Problem& problem, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& made, Subject& reference) {
  std::vector<Lane> out;
  if (problem.as<Quantize>()) {
    if (auto error = add_lanes(out, problem, inputs, made, {}, reference)) return *error;
  } else if (problem.as<Split>()) {
    const std::vector<Problem> members = member_problems(problem);
    for (size_t m = 0; m < members.size(); ++m)
      if (auto error = add_lanes(out, members[m], planes_of_member(inputs, m), planes_of_member(made, m), m, reference)) return *error;
  } else {
    out.push_back({problem, {}, {}, {}, {}, inputs});
  }
  return out;
}

// ---- the run ---------------------------------------------------------------------------------------------------------------

Replay::Replay(Lane lane, Subject& reference) : lane_(std::move(lane)), reference_(reference) {}

std::optional<std::vector<PlaneData>> Replay::execute(const Problem& p, const std::vector<PlaneData>& inputs) const {
  if (validate(p)) return {};
  ++runs_;
  const std::vector<Plane> read = input_planes(p);
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(p)) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  std::vector<ConstBuffer> in;
  for (const Plane& plane : read) {
    const PlaneData* data = find_plane(inputs, plane.name);
    if (!data || data->bytes.size() != plane.bytes()) return {};
    in.push_back({&plane, data->bytes});
  }
  std::vector<Buffer> buffers;
  for (PlaneData& data : out) buffers.push_back({&data.plane, data.bytes});
  try {
    reference_.run(p, in, buffers, Environment{});
  } catch (const std::exception&) {
    return {};
  }
  return out;
}

const PlaneData& Replay::rotated() const {
  std::call_once(rotated_once_, [&] {
    Problem p = lane_.problem;
    p.row.reset();
    p.op = Hadamard{};
    const auto planes = execute(p, lane_.inputs);
    if (planes) rotated_ = planes->front();
  });
  return rotated_;
}

namespace {

// Codes of a plane in the order of another's.
bool take_codes(const PlaneData& from, PlaneData& to, bool turned) {
  const Shape a = from.plane.logical, b = to.plane.logical;
  if (a.count() != b.count() || from.plane.encoding != to.plane.encoding) return false;
  for (int64_t k = 0; k < a.count(); ++k)
    set_code(to.plane, to.bytes, index_of(to.plane, k / b.cols, k % b.cols), code_at(from.plane, from.bytes, turned ? index_of(from.plane, k % a.rows, k / a.rows) : index_of(from.plane, k / a.cols, k % a.cols)));
  return true;
}

}  // namespace

// Planes of this lane as blocks along the other axis make them, in the places of this one's.
bool Replay::take_blocks_across(const Hypothesis& h, std::vector<PlaneData>& planes) const {
  const Direction d = *lane_.direction, other = d == Direction::row ? Direction::col : Direction::row;
  std::call_once(across_once_, [&] {
    Problem p = lane_.problem;
    p.quantizer(other) = p.quantizer(d);
    p.quantizer(d).reset();
    std::vector<PlaneData> inputs;
    for (PlaneData data : lane_.inputs) {
      if (data.plane.direction == d) data.plane.name = plane_name(other, data.plane.name.substr(data.plane.name.find('.') + 1));
      inputs.push_back(std::move(data));
    }
    across_ = execute(p, inputs);
  });
  if (!across_) return false;
  const auto of = [&](std::vector<PlaneData>& among, Direction where, std::string_view stem) {
    return std::find_if(among.begin(), among.end(), [&](const PlaneData& data) { return data.plane.name == plane_name(where, stem); });
  };
  const std::string_view scales = scale_stem(lane_.problem.quantizer(d)->scales);
  const auto from = of(*across_, other, "data"), to = of(planes, d, "data"), from_scales = of(*across_, other, scales), to_scales = of(planes, d, scales);
  if (from == across_->end() || to == planes.end() || from->plane.logical.count() != to->plane.logical.count()) return false;
  if (!take_codes(*from, *to, from->plane.transposed != to->plane.transposed)) return false;
  if (h.of_other == "blocks:codes") return true;
  return from_scales != across_->end() && to_scales != planes.end() && take_codes(*from_scales, *to_scales, h.of_other.ends_with(":transposed"));
}

// A plane of this lane written with what the other direction has for it. False where there is none of the kind.
bool Replay::take_from_other(const Hypothesis& h, std::vector<PlaneData>& planes) const {
  if (h.of_other.starts_with("blocks:")) return take_blocks_across(h, planes);
  if (!lane_.other) return false;
  const Direction d = *lane_.direction, other = d == Direction::row ? Direction::col : Direction::row;
  Problem p = lane_.problem;
  p.quantizer(d).reset();
  p.quantizer(other) = lane_.other;
  std::call_once(other_once_, [&] { of_other_ = execute(p, lane_.inputs); });
  const auto& made = of_other_;
  if (!made) return false;
  const bool data = h.of_other == "data", turned = h.of_other.ends_with(":transposed");
  const PlaneData* from = find_plane(*made, plane_name(other, data ? "data" : scale_stem(lane_.other->scales)));
  const auto to = std::find_if(planes.begin(), planes.end(), [&](const PlaneData& q) { return q.plane.name == plane_name(d, data ? "data" : scale_stem(lane_.problem.quantizer(d)->scales)); });
  if (!from || to == planes.end() || from->plane.encoding != to->plane.encoding || from->plane.packed != to->plane.packed) return false;
  if (h.of_other.find(':') == std::string::npos) {
    if (from->bytes.size() != to->bytes.size()) return false;
    to->bytes = from->bytes;
    return true;
  }
  return (!turned || from->plane.logical.rows == to->plane.logical.cols) && take_codes(*from, *to, turned);
}

double Replay::tensor_amax() const {
  std::call_once(amax_once_, [&] {
    const Direction d = *lane_.direction;
    const PlaneData& x = *find_plane(lane_.inputs, "x");
    amax_ = lane_.problem.quantizer(d)->rht ? Matrix(rotated(), Direction::row).amax() : Matrix(x, d).amax();
  });
  return amax_;
}

// The largest elements stand in a list, so that most parts of a tensor are known without looking at all of it.
double Replay::amax_of_part(const Matrix& x, const std::function<bool(int64_t, int64_t, Shape)>& in, bool edited) const {
  const Shape shape = lane_.problem.x.shape;
  const bool rows = *lane_.direction == Direction::row;
  const auto inside = [&](int64_t i, int64_t j) { return rows ? in(i, j, shape) : in(j, i, shape); };
  constexpr size_t kLargest = 256;
  if (!edited) {
    std::call_once(largest_once_, [&] {
      std::vector<std::pair<double, std::pair<int64_t, int64_t>>> heap;       // the least on top
      const auto above = [](const auto& a, const auto& b) { return a.first > b.first; };
      for (int64_t i = 0; i < x.lines(); ++i)
        for (int64_t j = 0; j < x.length(); ++j) {
          const double v = std::fabs(x.value(i, j));
          if (std::isnan(v) || (heap.size() == kLargest && v <= heap.front().first)) continue;
          if (heap.size() == kLargest) std::pop_heap(heap.begin(), heap.end(), above), heap.pop_back();
          heap.push_back({v, {i, j}});
          std::push_heap(heap.begin(), heap.end(), above);
        }
      std::sort_heap(heap.begin(), heap.end(), above);
      largest_ = std::move(heap);
    });
    for (const auto& [v, at] : largest_)
      if (inside(at.first, at.second)) return v;
  }
  double out = 0;
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j)
      if (const double v = std::fabs(x.value(i, j)); v > out && inside(i, j)) out = v;
  return out;
}

// The lane's problem with the keys of these, of any part.
std::optional<Problem> Replay::keyed(Hypotheses hypotheses) const {
  std::string all;
  for (const Hypothesis* h : hypotheses)
    if (!h->keys.empty()) all += h->keys + ";";
  if (all.empty()) return lane_.problem;
  {
    const std::lock_guard lock(keyed_mutex_);
    if (const auto known = keyed_.find(all); known != keyed_.end()) return known->second;
  }
  std::optional<Problem> p = lane_.problem;
  for (const Hypothesis* h : hypotheses)
    if (p && !h->keys.empty()) p = with_keys(*p, h->keys);
  const std::lock_guard lock(keyed_mutex_);
  keyed_.emplace(all, p);
  return p;
}

Problem Replay::part_of(const Selection& s) const {
  Problem p = lane_.problem;
  if (s.everything) return p;
  const int64_t lines = static_cast<int64_t>(s.lines.size()), places = static_cast<int64_t>(s.places.size());
  p.x.shape = lane_.direction == Direction::row ? Shape{lines, places} : Shape{places, lines};
  return p;
}

// One replay under way.
struct Replay::Step {
  const Replay& replay;
  const Selection& selection;
  Problem p;                                 // of the selection, with the hypotheses' keys
  Direction d;
  std::vector<PlaneData> inputs;             // as far as they are made
  const Matrix* x;                           // all of it, as it is read
  const Matrix* quantized;                   // the same, rotated where the line rotates
  std::optional<double> tensor_amax;         // of the tensor, where it is not left to the reference

  const Quantizer& q() const { return *p.quantizer(d); }
  Quantizer& q() { return *p.quantizer(d); }
  int64_t lines() const { return static_cast<int64_t>(selection.lines.size()); }
  int64_t places() const { return static_cast<int64_t>(selection.places.size()); }
  bool transposed() const { return geometry(q(), p.x.shape, d).transposed; }
  int64_t block_length() const { return length_of(q().block); }
  int64_t blocks() const { return ceil_div(places(), block_length()); }

  // The scale of selected line i and block b in a scale plane; of fp8_block's GEMM layout the first of its four copies.
  int64_t index(const Plane& scales, int64_t i, int64_t j) const {
    const bool stored_as_seen = d == Direction::row || transposed();
    return stored_as_seen ? scale_index(q(), scales, i, j) : scale_index(q(), scales, j, i);
  }

  BlockView block(const Matrix& unrotated, int64_t i, int64_t b) const {
    const int64_t n = block_length(), height = is_square(q().block) ? n : 1;
    const int64_t i0 = selection.lines[static_cast<size_t>(i / height * height)], j0 = selection.places[static_cast<size_t>(b * n)];
    return {*quantized, unrotated, i0, std::min(i0 + height, quantized->lines()), j0, std::min(j0 + n, quantized->length()), height, n};
  }

  // A block of the lane's own shape and elements, whose amax is known.
  bool own_blocks() const {
    const Quantizer& own = *replay.lane_.problem.quantizer(d);
    return x == &x->source() && q().block == own.block && q().rht == own.rht && q().sign_mask == own.sign_mask;
  }
  double plain_amax(int64_t i, int64_t b) const {
    if (!own_blocks()) return block(*x, i, b).amax();
    const int64_t n = block_length(), height = is_square(q().block) ? n : 1;
    return replay.block_amaxes()[static_cast<size_t>(selection.lines[static_cast<size_t>(i)] / height * ceil_div(quantized->length(), n) + selection.places[static_cast<size_t>(b * n)] / n)];
  }

  bool spreads_nan(const BlockView& b) const {
    if (q().numerics.nan_amax != NanAmax::propagate || q().format == FormatId::fp8_block) return false;
    for (int64_t i = b.i0; i < b.i1; ++i)
      for (int64_t j = b.j0; j < b.j1; ++j)
        if (std::isnan(b.x.value(i, j))) return true;
    return false;
  }

  ScaleGrid grid_of_amaxes(const std::vector<const std::function<double(const BlockView&)>*>& edits, const Matrix& unrotated) const {
    ScaleGrid g{Encoding::f32, lines(), blocks(), {}, {}, 1};
    g.codes.resize(static_cast<size_t>(g.lines * g.blocks));
    const int64_t height = is_square(q().block) ? block_length() : 1;
    for (int64_t i = 0; i < g.lines; ++i)
      for (int64_t b = 0; b < g.blocks; ++b) {
        uint32_t& code = g.codes[static_cast<size_t>(i * g.blocks + b)];
        if (i % height != 0) {
          code = g.at(i / height * height, b);
          continue;
        }
        const BlockView view = block(unrotated, i, b);
        const double amax = spreads_nan(view) ? std::nan("") : edits.empty() ? plain_amax(i, b) : (*edits.back())(view);
        code = bits_of(amax);
      }
    for (const uint32_t code : g.codes) g.amaxes.push_back(value_of(Encoding::f32, code));
    return g;
  }

  ScaleGrid grid_of(const PlaneData& scales) const {
    ScaleGrid g{scales.plane.encoding, lines(), blocks(), {}, {}, 1};
    g.codes.reserve(static_cast<size_t>(g.lines * g.blocks));
    for (int64_t i = 0; i < g.lines; ++i)
      for (int64_t b = 0; b < g.blocks; ++b) g.codes.push_back(code_at(scales.plane, scales.bytes, index(scales.plane, i, b * block_length())));
    return g;
  }

  // The scales of the selection as a hypothesis has them. One that looks at other blocks sees them all where `of_whole` holds them.
  void edit(ScaleGrid& grid, const Hypothesis& h, const ScaleGrid* of_whole) const {
    const ScaleGrid before = of_whole ? ScaleGrid{} : grid;
    for (int64_t i = 0; i < grid.lines; ++i)
      for (int64_t b = 0; b < grid.blocks; ++b)
        grid.codes[static_cast<size_t>(i * grid.blocks + b)] =
            of_whole ? h.scale(*of_whole, selection.lines[static_cast<size_t>(i)], selection.places[static_cast<size_t>(b * block_length())] / block_length()) : h.scale(before, i, b);
  }

  void write(const ScaleGrid& g, const Plane& plane, std::vector<std::byte>& bytes) const {
    const int64_t copy = std::min<int64_t>(block_length(), 32);             // N9.6: a copy for each 32 elements
    for (int64_t i = 0; i < g.lines; ++i)
      for (int64_t j = 0; j < places(); j += copy) set_code(plane, bytes, index(plane, i, j), g.at(i, j / block_length()));
    if (q().format == FormatId::fp8_block && plane.layout == ScaleLayout::gemm)
      for (int64_t i = 0; i < g.lines; ++i)                                 // also of a partial block
        for (int64_t b = 0; b < g.blocks; ++b)
          for (int64_t k = 0; k < 4; ++k) set_code(plane, bytes, index_of(plane, i, 4 * b + k), g.at(i, b));
  }

  // Has the scales made of `g`: amaxes, or scales.
  void give(const ScaleGrid& g, ScaleFrom from) {
    q().scale_from = from;
    const Plane bare = bare_scales(q(), p.x.shape, d);
    for (const Plane& plane : input_planes(p))
      if (plane.name == plane_name(d, from == ScaleFrom::amax ? "given.block_amax" : "given.scale_inv")) {
        PlaneData data{plane, std::vector<std::byte>(plane.bytes())};
        Plane shape = bare;
        shape.encoding = plane.encoding;
        write(g, shape, data.bytes);
        std::erase_if(inputs, [&](const PlaneData& old) { return old.plane.name == plane.name; });
        inputs.push_back(std::move(data));
      }
  }

  PlaneData* scales_in(std::vector<PlaneData>& planes) const {
    for (PlaneData& data : planes)
      if (data.plane.name == plane_name(d, scale_stem(q().scales))) return &data;
    return nullptr;
  }
};

// The amax of every block of the tensor, line of blocks by line of blocks.
const std::vector<double>& Replay::block_amaxes() const {
  std::call_once(blocks_once_, [&] {
    const Direction d = *lane_.direction;
    const Quantizer& q = *lane_.problem.quantizer(d);
    const Matrix x(*find_plane(lane_.inputs, "x"), d);
    const std::optional<Matrix> turned = q.rht ? std::optional<Matrix>(std::in_place, rotated(), Direction::row) : std::nullopt;
    const Matrix& of = turned ? *turned : x;
    const int64_t n = length_of(q.block), height = is_square(q.block) ? n : 1;
    for (int64_t i = 0; i < of.lines(); i += height)
      for (int64_t j = 0; j < of.length(); j += n) block_amaxes_.push_back(of.amax(i, i + height, j, j + n));
  });
  return block_amaxes_;
}

// The scales of the whole tensor, as the lane's own line makes them, or the amaxes that they are made of. Empty where there are none.
const ScaleGrid& Replay::own_scales(bool amaxes) const {
  std::call_once(scales_once_, [&] {
    const Direction d = *lane_.direction;
    const PlaneData& source = *find_plane(lane_.inputs, "x");
    const Matrix x(source, d);
    const std::optional<Matrix> turned = lane_.problem.quantizer(d)->rht ? std::optional<Matrix>(std::in_place, rotated(), Direction::row) : std::nullopt;
    const Selection all = whole(x);
    const Step s{*this, all, lane_.problem, d, {}, &x, turned ? &*turned : &x, {}};
    auto planes = execute(lane_.problem, lane_.inputs);
    const PlaneData* plane = planes ? s.scales_in(*planes) : nullptr;
    if (!plane || !info(s.q().format).has_blocks()) return;
    own_amaxes_ = s.grid_of_amaxes({}, x);
    own_scales_ = s.grid_of(*plane);
    own_scales_.amaxes = own_amaxes_.amaxes;
    if (s.q().format == FormatId::nvfp4 && !s.q().row_scaled) {
      const PlaneData* given = find_plane(lane_.inputs, plane_name(d, "given.amax"));
      own_scales_.tensor_amax = given ? static_cast<double>(scalar_of(*given)) : tensor_amax();
      own_scales_.encode_scale = encode_scale(s.q(), static_cast<float>(own_scales_.tensor_amax), lane_.problem.x.source);
    }
  });
  return amaxes ? own_amaxes_ : own_scales_;
}

// N3.12 under other amaxes: each row is a tensor of its own, whose amax is given.
std::optional<std::vector<PlaneData>> Replay::run_rows(const Step& s, const Matrix& x, const Hypothesis& h) const {
  const int64_t lines = s.lines(), places = s.places();
  const PlaneData& part = *find_plane(s.inputs, "x");
  if (places == 0) return {};
  const bool rows = s.d == Direction::row;
  std::optional<double> of_tensor;
  if (h.tensor_amax) of_tensor = h.tensor_amax(x, x);
  Problem one = s.p;
  one.x.shape = rows ? Shape{1, places} : Shape{places, 1};
  one.quantizer(s.d)->row_scaled = false;
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(s.p)) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (int64_t i = 0; i < lines; ++i) {
    const int64_t line = s.selection.lines[static_cast<size_t>(i)];
    const BlockView view{x, x, line, line + 1, 0, x.length(), 1, x.length()};
    const F32Bits amax = bits_of(of_tensor ? *of_tensor : h.amax(view));
    one.quantizer(s.d)->amax = amax;
    std::vector<PlaneData> inputs = {scalar(plane_name(s.d, "given.amax"), s.d, amax)};
    PlaneData& row = inputs.emplace_back(PlaneData{input_planes(one).front(), {}});
    row.bytes.resize(row.plane.bytes());
    for (int64_t j = 0; j < places; ++j) set_code(row.plane.encoding, row.bytes, j, code_at(part.plane.encoding, part.bytes, rows ? i * places + j : j * lines + i));
    const auto made = execute(one, inputs);
    if (!made) return {};
    for (PlaneData& whole : out) {
      if (whole.plane.name == plane_name(s.d, "amax")) {
        set_code(Encoding::f32, whole.bytes, i, h.amax_shown ? amax : bits_of(view.amax()));
        continue;
      }
      const PlaneData* from = find_plane(*made, whole.plane.name);
      if (!from || static_cast<int64_t>(from->bytes.size()) * lines != static_cast<int64_t>(whole.bytes.size())) return {};
      std::copy(from->bytes.begin(), from->bytes.end(), whole.bytes.begin() + i * static_cast<int64_t>(from->bytes.size()));
    }
  }
  if (h.use != Hypothesis::Use::codes) return out;
  auto right = execute(s.p, s.inputs);                                      // what is stored is each row's own
  if (!right) return {};
  for (size_t n = 0; n < out.size(); ++n)
    if (out[n].plane.name == plane_name(s.d, "data")) (*right)[n] = std::move(out[n]);
  return right;
}

std::optional<std::vector<PlaneData>> Replay::run(const Selection& chosen, Hypotheses hypotheses) const {
  std::optional<Problem> changed = keyed(hypotheses);
  if (!changed) return {};
  Problem p = std::move(*changed);
  p.x.shape = part_of(chosen).x.shape;
  if (!lane_.direction) {                                                   // another op: its line, and what is done to codes
    const std::vector<Plane> before = output_planes(lane_.problem), after = output_planes(p);
    if (before.size() != after.size()) return {};
    for (size_t i = 0; i < before.size(); ++i)
      if (before[i].bytes() != after[i].bytes()) return {};
    for (const Hypothesis* h : hypotheses)
      if (h->keys.empty() && h->layout.empty()) return {};
    return execute(p, lane_.inputs);
  }

  const Direction d = *lane_.direction;
  const PlaneData& source = *find_plane(lane_.inputs, "x");
  std::deque<Matrix> matrices;
  matrices.emplace_back(source, d);
  bool edited = false;
  for (const Hypothesis* h : hypotheses)
    if (h->element) {
      matrices.emplace_back(Matrix(matrices.back(), h->element, h->widened ? Encoding::f32 : matrices.back().encoding()));
      edited = true;
    }
  const Matrix& x = matrices.back();
  p.x.source = x.encoding();
  const Selection all = chosen.everything ? whole(x) : Selection{};
  Step s{*this, chosen.everything ? all : chosen, std::move(p), d, {}, &x, &x, {}};
  const FormatInfo& format = info(s.q().format);

  // What is quantized, where it is not x: only looked at by hypotheses about amaxes.
  std::optional<Matrix> turned;
  const auto rotate = [&] {
    if (!s.q().rht || turned) return true;
    if (edited || rotated().bytes.empty()) return false;
    turned.emplace(rotated(), Direction::row);
    s.quantized = &*turned;
    return true;
  };

  // N3.1, N10.1: the amax of the tensor.
  const bool has_tensor_amax = s.q().format == FormatId::fp8_current || s.q().format == FormatId::fp8_delayed || s.q().format == FormatId::nvfp4;
  std::optional<double> shown;
  const bool given = s.q().amax.has_value();
  if (has_tensor_amax && !s.q().row_scaled) {
    const auto edit = std::find_if(hypotheses.begin(), hypotheses.end(), [](const Hypothesis* h) { return h->tensor_amax || h->tensor_part; });
    if (edit != hypotheses.end()) {
      if (!rotate()) return {};
      s.tensor_amax = static_cast<float>((*edit)->tensor_part ? amax_of_part(*s.quantized, (*edit)->tensor_part, edited) : (*edit)->tensor_amax(*s.quantized, x));
      shown = (*edit)->amax_shown ? *s.tensor_amax : edited ? x.amax() : tensor_amax();
    } else if (!chosen.everything && !given) {
      const bool other = edited || s.q().rht != lane_.problem.quantizer(d)->rht || s.q().sign_mask != lane_.problem.quantizer(d)->sign_mask;
      if (other && observed_amax_) {
        s.tensor_amax = *observed_amax_;
      } else if (s.q().rht && other) {                                      // of the rotated whole
        Problem turn = lane_.problem;
        turn.col = s.q();
        turn.op = Hadamard{};
        PlaneData changed = source;
        for (int64_t i = 0; i < x.lines(); ++i)
          for (int64_t j = 0; j < x.length(); ++j) set_code(source.plane.encoding, changed.bytes, d == Direction::row ? i * x.length() + j : j * x.lines() + i, x.code(i, j));
        const auto made = edited && changed.bytes == source.bytes ? std::nullopt : execute(turn, {changed});
        s.tensor_amax = made ? Matrix(made->front(), Direction::row).amax() : tensor_amax();
      } else {
        s.tensor_amax = other ? x.amax() : tensor_amax();
      }
      shown = s.tensor_amax;
    }
    if (s.tensor_amax && s.q().format != FormatId::fp8_delayed) s.q().amax = bits_of(*s.tensor_amax);
  }
  // Draws that count the other direction too (N12.4).
  const bool coupled = lane_.partner && s.q().round == Round::sr && s.q().numerics.draw != Draw::logical && !lane_.partner->rht && !(d == Direction::col && s.q().rht);
  if (s.q().round == Round::sr && !chosen.everything && (s.q().numerics.draw != Draw::logical || lane_.problem.quantizer(d)->round != Round::sr)) return {};   // its lines are not the leading ones
  if (coupled) {
    Quantizer partner = *lane_.partner;
    partner.numerics.draw = s.q().numerics.draw;
    s.p.quantizer(d == Direction::row ? Direction::col : Direction::row) = partner;
  }

  // x as it is read.
  for (const PlaneData& data : lane_.inputs)
    if (data.plane.name != "x") s.inputs.push_back(data);
  if (chosen.everything && !edited) {
    s.inputs.push_back(source);
  } else {
    PlaneData part{input_planes(s.p).front(), {}};
    part.bytes.resize(part.plane.bytes());
    const int64_t lines = s.lines(), places = s.places();
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t j = 0; j < places; ++j)
        set_code(part.plane.encoding, part.bytes, d == Direction::row ? i * places + j : j * lines + i, x.code(s.selection.lines[static_cast<size_t>(i)], s.selection.places[static_cast<size_t>(j)]));
    s.inputs.push_back(std::move(part));
  }
  if (given && s.tensor_amax) std::erase_if(s.inputs, [&](const PlaneData& data) { return data.plane.name == plane_name(d, "given.amax"); });
  if (s.q().amax && s.tensor_amax) s.inputs.push_back(scalar(plane_name(d, "given.amax"), d, *s.q().amax));

  // Amaxes of blocks.
  std::vector<const std::function<double(const BlockView&)>*> amaxes;
  bool scales = false, codes = false, stored = false, coded = false;
  for (const Hypothesis* h : hypotheses) {
    if (h->amax) amaxes.push_back(&h->amax);
    scales |= h->scale && h->use != Hypothesis::Use::stored;
    codes |= h->scale && h->use == Hypothesis::Use::codes;
    stored |= h->scale && h->use == Hypothesis::Use::stored;
    coded |= h->code || h->scaled;
  }
  if (amaxes.size() > 1) return {};
  const bool of_rows = s.q().row_scaled && !format.has_blocks();
  const auto of_row = std::find_if(hypotheses.begin(), hypotheses.end(), [](const Hypothesis* h) { return h->amax || h->tensor_amax || h->tensor_part; });
  if (of_rows && of_row != hypotheses.end() && ((*of_row)->tensor_part || s.q().round == Round::sr)) return {};
  const bool of_amaxes = s.q().format == FormatId::fp8_block;               // whose scales are edited through the amaxes that they are made of
  // Scales of blocks outside a part: those of the lane's own line, where nothing else would change them.
  const ScaleGrid* of_whole = nullptr;
  if (!chosen.everything && std::any_of(hypotheses.begin(), hypotheses.end(), [](const Hypothesis* h) { return h->scale && h->wide; })) {
    const bool alone = std::all_of(hypotheses.begin(), hypotheses.end(), [](const Hypothesis* h) { return h->scale ? h->wide : (h->keys.empty() || h->stage >= Stage::scaled_value) && !h->element && !h->amax && !h->tensor_amax && !h->tensor_part; });
    of_whole = &own_scales(of_amaxes && !stored);
    if (!alone || std::count_if(hypotheses.begin(), hypotheses.end(), [](const Hypothesis* h) { return h->scale != nullptr; }) > 1 || of_whole->codes.empty()) return {};
  }
  if ((!amaxes.empty() && !of_rows) || (scales && of_amaxes)) {
    if (!format.has_blocks() || s.q().scale_from != ScaleFrom::x || !rotate()) return {};
    s.give(s.grid_of_amaxes(amaxes, x), ScaleFrom::amax);
  }
  auto planes = of_rows && of_row != hypotheses.end() ? run_rows(s, x, **of_row) : execute(s.p, s.inputs);
  if (!planes) return {};

  // Scales before codes.
  if (scales) {
    PlaneData* plane = s.scales_in(*planes);
    if (!plane || !format.has_blocks()) return {};
    const ScaleGrid made_of = rotate() ? s.grid_of_amaxes(amaxes, x) : ScaleGrid{};
    if (made_of.codes.empty()) return {};
    ScaleGrid shown_scales = of_amaxes ? made_of : s.grid_of(*plane);
    shown_scales.amaxes = made_of.amaxes;
    if (s.q().format == FormatId::nvfp4 && !s.q().row_scaled) {
      const PlaneData* given = find_plane(lane_.inputs, plane_name(d, "given.amax"));
      const double a = s.tensor_amax ? *s.tensor_amax : given ? scalar_of(*given) : edited ? s.quantized->amax() : tensor_amax();
      shown_scales.tensor_amax = a;
      shown_scales.encode_scale = encode_scale(s.q(), static_cast<float>(a), lane_.problem.x.source);
    }
    const auto edit = [&](ScaleGrid& grid, Hypothesis::Use use) {
      for (const Hypothesis* h : hypotheses)
        if (h->scale && h->use == use) s.edit(grid, *h, of_whole);
    };
    edit(shown_scales, Hypothesis::Use::both);
    ScaleGrid used = shown_scales;
    edit(used, Hypothesis::Use::codes);
    s.give(used, of_amaxes ? ScaleFrom::amax : ScaleFrom::scale);
    auto second = execute(s.p, s.inputs);
    if (!second) return {};
    if (codes) {                                                            // what is stored follows the scales that are shown
      Step show = s;
      show.give(shown_scales, of_amaxes ? ScaleFrom::amax : ScaleFrom::scale);
      auto right = execute(show.p, show.inputs);
      if (!right) return {};
      PlaneData* data = nullptr;
      for (PlaneData& candidate : *second)
        if (candidate.plane.name == plane_name(d, "data")) data = &candidate;
      for (PlaneData& candidate : *right)
        if (candidate.plane.name == plane_name(d, "data")) candidate = *data;
      second = std::move(right);
    }
    planes = std::move(second);
  }

  // Codes of another line.
  for (const Hypothesis* h : hypotheses)
    if (!h->code_keys.empty()) {
      Problem other = s.p;
      other.quantizer(d)->scale_from = ScaleFrom::x;
      const auto changed = with_keys(other, h->code_keys);
      const auto made = changed ? execute(*changed, s.inputs) : std::nullopt;
      if (!made) return {};
      const PlaneData* from = find_plane(*made, plane_name(d, "data"));
      for (PlaneData& to : *planes)
        if (to.plane.name == from->plane.name) {
          if (from->bytes.size() != to.bytes.size() || from->plane.transposed != to.plane.transposed) return {};
          to.bytes = from->bytes;
        }
    }

  // Codes.
  if (coded) {
    PlaneData* data = nullptr;
    for (PlaneData& candidate : *planes)
      if (candidate.plane.name == plane_name(d, "data")) data = &candidate;
    if (!rotate()) return {};
    const bool blocked = format.has_blocks();
    const PlaneData* scale_plane = s.scales_in(*planes);
    const PlaneData* row_amax = s.q().row_scaled ? find_plane(*planes, plane_name(d, "amax")) : nullptr;
    const PlaneData* given_amax = find_plane(lane_.inputs, plane_name(d, "given.amax"));
    const double whole_amax = s.tensor_amax ? *s.tensor_amax : given_amax ? scalar_of(*given_amax) : has_tensor_amax ? (edited ? s.quantized->amax() : tensor_amax()) : 0;
    const PlaneData* tensor_scale = s.q().format == FormatId::fp8_delayed ? find_plane(s.inputs, plane_name(d, "given.scale")) : of_rows ? find_plane(*planes, plane_name(d, "scale")) : scalar_plane(*planes, d, "scale");
    const Factors factors(s.q(), x.encoding());
    const double encode = s.q().format == FormatId::nvfp4 ? encode_scale(s.q(), static_cast<float>(whole_amax), lane_.problem.x.source) : 1;
    const int64_t n = blocked ? s.block_length() : std::max<int64_t>(s.places(), 1);
    const bool as_seen = d == Direction::row || s.transposed();
    // A block's amax is asked for by each of its elements.
    const int64_t height = blocked && is_square(s.q().block) ? s.block_length() : 1, across = ceil_div(s.places(), n);
    std::vector<std::optional<double>> known(blocked ? static_cast<size_t>(ceil_div(s.lines(), height) * across) : 0);
    const auto amax_of_block = [&](int64_t i, int64_t b) {
      std::optional<double>& a = known[static_cast<size_t>(i / height * across + b)];
      if (!a) a = amaxes.empty() ? s.plain_amax(i, b) : (*amaxes[0])(s.block(x, i, b));
      return *a;
    };
    for (int64_t i = 0; i < s.lines(); ++i) {
      Factor factor;
      double of_scale = 1, of_tensor = whole_amax;
      for (int64_t j = 0; j < s.places(); ++j) {
        if (j % n == 0 && (scale_plane || tensor_scale)) {
          const bool needs_amax = s.q().format == FormatId::fp8_block && s.q().numerics.scale_order == ScaleOrder::encode_first;
          const double amax = needs_amax ? amax_of_block(i, j / n) : 0;
          of_tensor = row_amax ? value_of(Encoding::f32, code_at(Encoding::f32, row_amax->bytes, i)) : whole_amax;
          const int64_t at = blocked ? s.index(scale_plane->plane, i, j) : of_rows ? i : 0;
          const uint32_t code = scale_plane ? code_at(scale_plane->plane, scale_plane->bytes, at) : 0;
          of_scale = scale_plane ? value_of(scale_plane->plane.encoding, code) : 1;
          factor = factors.of(code, scale_plane ? scale_plane->plane.encoding : Encoding::f32, amax, of_tensor, tensor_scale ? value_of(Encoding::f32, code_at(Encoding::f32, tensor_scale->bytes, of_rows ? i : 0)) : 1);
        }
        const int64_t fi = s.selection.lines[static_cast<size_t>(i)], fj = s.selection.places[static_cast<size_t>(j)];
        const double v = s.quantized->value(fi, fj);
        std::optional<double> otherwise;                                    // the value that is scaled another way
        const auto scaled = [&] { return otherwise ? *otherwise : factors.scaled(v, factor); };
        const auto block_amax = [&] { return blocked ? amax_of_block(i, j / n) : 0; };
        const int64_t at = as_seen ? index_of(data->plane, i, j) : index_of(data->plane, j, i);
        uint32_t code = code_at(data->plane, data->bytes, at);
        for (const bool values : {true, false})                             // values before codes
          for (const Hypothesis* h : hypotheses) {
            if (values ? !h->scaled : !h->code) continue;
            const CodeView view{code, data->plane.encoding, fi, fj, s.quantized->lines(), s.quantized->length(), v, scaled, factor.value, factor.divides, of_scale, of_tensor, block_amax, encode};
            if (values) {
              otherwise = static_cast<float>(h->scaled(view));
              code = element_code(data->plane.encoding, *otherwise);
            } else {
              code = h->code(view);
            }
          }
        set_code(data->plane, data->bytes, at, code);
      }
    }
  }

  // Codes that stand in each other's place.
  for (const Hypothesis* h : hypotheses)
    if (h->code_place) {
      if (!chosen.everything) return {};
      const bool as_seen = d == Direction::row || s.transposed();
      for (PlaneData& data : *planes) {
        if (data.plane.name != plane_name(d, "data")) continue;
        const PlaneData before = data;
        for (int64_t i = 0; i < s.lines(); ++i)
          for (int64_t j = 0; j < s.places(); ++j) {
            const auto [a, b] = h->code_place(i, j, s.lines(), s.places());
            set_code(data.plane, data.bytes, as_seen ? index_of(data.plane, i, j) : index_of(data.plane, j, i),
                     code_at(before.plane, before.bytes, as_seen ? index_of(data.plane, a, b) : index_of(data.plane, b, a)));
          }
      }
    }

  // Scales as they are stored.
  if (stored) {
    PlaneData* plane = s.scales_in(*planes);
    if (!plane || !format.has_blocks()) return {};
    for (const Hypothesis* h : hypotheses)
      if (h->scale && h->use == Hypothesis::Use::stored) {
        ScaleGrid grid = s.grid_of(*plane);
        if (!rotate()) return {};
        grid.amaxes = s.grid_of_amaxes(amaxes, x).amaxes;
        s.edit(grid, *h, of_whole);
        s.write(grid, plane->plane, plane->bytes);
      }
  }

  // The planes of the lane's own line, the amax among them where the run had it given.
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(part_of(chosen))) {
    const PlaneData* made = find_plane(*planes, plane.name);
    if (plane.name == plane_name(d, "amax") && shown) {
      double amax = *shown;
      if (const PlaneData* prior = find_plane(lane_.inputs, plane_name(d, "prior.amax")))
        if (const double slot = scalar_of(*prior); slot > amax || std::isnan(slot)) amax = slot;
      out.push_back(scalar(plane.name, d, bits_of(amax)));
    } else if (made && made->plane.bytes() == plane.bytes()) {
      out.push_back(*made);
    } else {
      return {};
    }
    out.back().plane = plane;
  }
  for (const Hypothesis* h : hypotheses)
    if (!h->of_other.empty() && (!chosen.everything || !take_from_other(*h, out))) return {};
  for (const Hypothesis* h : hypotheses)
    for (int64_t row = 0; h->scalars && row < (of_rows ? s.lines() : 1); ++row) {
      TensorScalars t;
      const std::pair<const char*, float*> fields[] = {{"amax", &t.amax}, {"scale", &t.scale}, {"scale_inv", &t.scale_inv}};
      const auto holds = [&](const PlaneData& plane, const char* stem) { return plane.plane.name == plane_name(d, stem) && plane.plane.encoding == Encoding::f32 && (of_rows || plane.plane.padded == Shape{1, 1}); };
      for (const auto& [stem, field] : fields)
        for (const PlaneData& plane : out)
          if (holds(plane, stem)) *field = std::bit_cast<float>(code_at(Encoding::f32, plane.bytes, row));
      if (const PlaneData* given = find_plane(lane_.inputs, plane_name(d, "given.scale"))) t.scale = scalar_of(*given);
      h->scalars(t);
      for (const auto& [stem, field] : fields)
        for (PlaneData& plane : out)
          if (holds(plane, stem)) set_code(Encoding::f32, plane.bytes, row, std::bit_cast<uint32_t>(*field));
    }
  return out;
}

bool lay_out(const Hypothesis& hypothesis, std::vector<PlaneData>& planes) {
  const size_t colon = hypothesis.layout.find(':');
  if (colon == std::string::npos) return false;
  for (PlaneData& data : planes) {
    if (!data.plane.name.ends_with("." + hypothesis.layout.substr(0, colon))) continue;
    const auto fit = layout_named(hypothesis.layout.substr(colon + 1), data.plane);
    if (!fit || static_cast<int64_t>(fit->source.size()) != data.plane.padded.count()) return false;
    std::vector<std::byte> moved(data.bytes.size());
    for (size_t i = 0; i < fit->source.size(); ++i)
      if (fit->source[i] >= 0) set_code(data.plane, moved, static_cast<int64_t>(i), code_at(data.plane, data.bytes, fit->source[i]));
    data.bytes = std::move(moved);
    return true;
  }
  return false;
}

}  // namespace assay

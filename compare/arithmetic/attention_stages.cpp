#include "compare/arithmetic/attention_stages.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"

namespace assay {

namespace {

using std::string;
using Descale = AttentionChange::Descale;

constexpr AttentionTensor kTensors[] = {AttentionTensor::q, AttentionTensor::k, AttentionTensor::v};

double scalar(const PlaneData& p) { return value_of(p.plane.encoding, code_at(p.plane, p.bytes, 0)); }
double element(const PlaneData& p, int64_t i) {
  return value_of(p.plane.encoding, code_at(p.plane, p.bytes, i));
}
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool within(double a, double b, double off) {
  return std::isinf(off) || same(a, b) || std::fabs(a - b) <= off;
}

// N20.22: half a step of a block's codes, and what their least step is of the tensor's largest element.
double half_step(Encoding e) { return e == Encoding::e5m2 ? 0x1p-3 : 0x1p-4; }
constexpr double kOfLargest = 0x1p-15;

}  // namespace

void Values::append(const Values& more) {
  values_.insert(values_.end(), more.values_.begin(), more.values_.end());
  off_.insert(off_.end(), more.off_.begin(), more.off_.end());
}
Values Values::part(size_t first, size_t count) const {
  Values out;
  const auto cut = [&](const std::vector<double>& from, std::vector<double>& to) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
    to.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  cut(values_, out.values_), cut(off_, out.off_);
  return out;
}
bool Values::known() const {
  return std::all_of(off_.begin(), off_.end(), [](double o) { return o == 0; });
}

AttentionStages::AttentionStages(const Problem& p, const std::vector<PlaneData>& inputs,
                                 const AttentionChange& change, const RunLine& run,
                                 const std::vector<PlaneData>* observed)
    : p_(p),
      op_(*p.as<Attention>()),
      n_(attention_sizes(p)),
      inputs_(inputs),
      change_(change),
      run_(run),
      observed_(observed),
      rounding_(p.x.source) {
  for (const Plane& plane : output_planes(p))
    planes_.push_back({plane, std::vector<std::byte>(plane.bytes())});
}

double AttentionStages::nominal(double v) const {
  return value_of(p_.x.source, nearest_code(p_.x.source, v));
}

const PlaneData& AttentionStages::input(std::string_view name) const { return *find_plane(inputs_, name); }
const PlaneData* AttentionStages::observed(std::string_view name) const {
  return observed_ ? find_plane(*observed_, name) : nullptr;
}
PlaneData* AttentionStages::plane(std::string_view name) {
  return const_cast<PlaneData*>(find_plane(planes_, name));
}

// ---- elements in the line's layout (N20.1) ----

int64_t AttentionStages::row_of(AttentionTensor t, int64_t b, int64_t i) const {
  const bool q = t == AttentionTensor::q;
  const auto length = [&](int64_t s) { return q ? q_length(p_, s) : kv_length(p_, s); };
  switch (token_order(op_.layout)) {
    case TokenOrder::sequence_first: return i * n_.batch + b;
    case TokenOrder::batch_first: return b * (q ? n_.q : n_.kv) + i;
    case TokenOrder::ragged: break;
  }
  int64_t before = 0;
  for (int64_t s = 0; s < b; ++s) before += length(s);
  return i < length(b) ? before + i : -1;
}

// N20.17.
double AttentionStages::descale(AttentionTensor t, int64_t b, int64_t head) const {
  if (op_.codes == AttentionCodes::none) return 1;
  const char* name = t == AttentionTensor::q   ? "q.descale"
                     : t == AttentionTensor::k ? "k.descale"
                                               : "v.descale";
  int64_t at = b * n_.kv_heads + head;
  if (t == AttentionTensor::v) switch (change_.v_descale) {
      case Descale::own: break;
      case Descale::next_head: at = b * n_.kv_heads + (head + 1) % n_.kv_heads; break;
      case Descale::reversed_heads: at = b * n_.kv_heads + n_.kv_heads - 1 - head; break;
      case Descale::heads_first: at = head * n_.batch + b; break;
      case Descale::first_head: at = b * n_.kv_heads; break;
      case Descale::first: at = 0; break;
      case Descale::of_k: name = "k.descale"; break;
      case Descale::of_q: name = "q.descale"; break;
    }
  return element(input(name), at);
}

Values AttentionStages::gathered(AttentionTensor t) const {
  const AttentionPart held = part_of(op_.layout, t);
  const PlaneData& from = input(held.plane);
  const bool q = t == AttentionTensor::q, codes = op_.codes != AttentionCodes::none;
  const int64_t heads = q ? n_.heads : n_.kv_heads, tokens = q ? n_.q : n_.kv;
  Values out;
  out.resize(static_cast<size_t>(n_.batch * heads * tokens * n_.depth));
  for (int64_t row = 0; row < n_.batch * heads * tokens; ++row) {
    const int64_t b = row / (heads * tokens), h = row / tokens % heads, at = row_of(t, b, row % tokens);
    if (at < 0) continue;
    const int64_t head = held.within_heads ? h * held.tensors + held.which : held.which * heads + h;
    const double scale = descale(t, b, q ? h / n_.repeats() : h);
    for (int64_t e = 0; e < n_.depth; ++e) {
      const double v = element(from, (at * held.tensors * heads + head) * n_.depth + e);
      out.put(row * n_.depth + e, codes ? nominal(f32_of(v * scale)) : v, 0);
    }
  }
  return out;
}

bool AttentionStages::take_inputs(Values& q, Values& k, Values& v) {
  q = gathered(AttentionTensor::q), k = gathered(AttentionTensor::k), v = gathered(AttentionTensor::v);
  return cast_three(AttentionSlot::qkv, q, k, v);
}

std::optional<Values> AttentionStages::take_gradient() {
  const PlaneData& from = input("do");
  Values x;
  const int64_t width = n_.heads * n_.depth;
  x.resize(static_cast<size_t>(n_.q * n_.batch * width));
  for (int64_t row = 0; row < n_.q * n_.batch; ++row) {
    const int64_t at = row_of(AttentionTensor::q, row % n_.batch, row / n_.batch);
    for (int64_t c = 0; at >= 0 && c < width; ++c) x.put(row * width + c, element(from, at * width + c), 0);
  }
  for (const AttentionCast& c : attention_casts(p_, AttentionSlot::d_o))
    if (const auto& row = c.line.row; row && row->format == FormatId::mxfp8) gradient_ = x;
  return cast(AttentionSlot::d_o, x);
}

// ---- planes ----

double AttentionStages::store(PlaneData& to, const PlaneData* seen, int64_t at, double value,
                              double off) const {
  uint32_t code = nearest_code(to.plane.encoding, value);
  double now = value;
  if (seen) {
    const uint32_t other = code_at(to.plane, seen->bytes, at);
    now = value_of(to.plane.encoding, other);
    if (within(now, value, off)) code = other;
  }
  set_code(to.plane, to.bytes, at, code);
  return now;
}

void AttentionStages::put(std::string_view name, Values& x) {
  PlaneData& to = *plane(name);
  const PlaneData* const seen = observed(name);
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const double now = store(to, seen, i, x.at(i), x.off(i));
    if (seen) x.observe(i, now);
  }
  x.observed = seen != nullptr;
}

// ---- casts (N20.3) ----

// What a mistake changes of a cast. False: nothing.
bool AttentionStages::change_cast(const AttentionCast& cast, Problem& line,
                                  std::vector<PlaneData>& in) const {
  const bool unscaled = cast.slot == AttentionSlot::s && change_.s_not_scaled,
             by_o = cast.slot == AttentionSlot::d_o && change_.do_by_o;
  if (!unscaled && !by_o) return false;
  Quantizer& q = *line.quantizer(cast.direction());
  if (!info(q.format).per_tensor_fp8()) return false;
  uint32_t scale = nearest_code(Encoding::f32, 1);
  if (by_o) {
    const PlaneData* of_o = find_plane(planes_, "o.scale");
    if (!of_o) of_o = find_plane(inputs_, "o.given.scale");
    if (!of_o) return false;
    scale = code_at(of_o->plane, of_o->bytes, 0);
  }
  q.format = FormatId::fp8_delayed;
  q.scale = scale;
  PlaneData x = *find_plane(in, "x");
  in.clear();
  for (Plane& plane : input_planes(line)) {
    PlaneData data{std::move(plane), {}};
    data.bytes.resize(data.plane.bytes());
    if (data.plane.name == "x") data.bytes = x.bytes;
    else if (data.plane.name.ends_with("given.scale")) set_code(data.plane, data.bytes, 0, scale);
    in.push_back(std::move(data));
  }
  return true;
}

std::optional<AttentionStages::Made> AttentionStages::made_by(const AttentionCast& cast,
                                                              const Values& x) const {
  Problem line = cast.line;
  if (cast.slot == AttentionSlot::s && change_.normalised == AttentionChange::Normalised::after_product)
    line.x.source = Encoding::f32;
  std::vector<PlaneData> in;
  for (Plane& plane : input_planes(line)) {
    PlaneData data{std::move(plane), {}};
    if (data.plane.name == "x") {
      data.bytes.resize(data.plane.bytes());
      for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
        set_code(data.plane, data.bytes, i, nearest_code(data.plane.encoding, x.at(i)));
    } else {
      data.bytes = input(plane_of_cast(cast, data.plane.name)).bytes;
    }
    in.push_back(std::move(data));
  }
  auto planes = run_(line, in);
  if (!planes) return {};
  Problem changed = line;
  if (change_cast(cast, changed, in)) {
    const auto other = run_(changed, in);
    if (!other) return {};
    for (PlaneData& data : *planes) {
      const PlaneData* now = find_plane(*other, data.plane.name);
      const bool codes = data.plane.name.ends_with("data");
      if (now && (codes || cast.slot == AttentionSlot::d_o)) data.bytes = now->bytes;
      else if (!now && data.plane.name.ends_with(".scale"))
        data.bytes = find_plane(in, plane_name(cast.direction(), "given.scale"))->bytes;
    }
  }
  Problem back = line;
  back.op = Dequantize{p_.x.source, CodesFrom::quantized};
  const auto y = run_(back, *planes);
  if (!y) return {};
  Made out{std::move(*planes), {}};
  out.back.resize(x.size());
  const PlaneData* data = find_plane(out.planes, plane_name(cast.direction(), "data"));
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
    out.back.put(i, bare(cast) ? nominal(element(*data, i)) : element((*y)[0], i), 0);
  return out;
}

double AttentionStages::scale_inverse(const string& slot) const {
  const PlaneData* inverse = find_plane(planes_, slot + ".scale_inv");
  return inverse && inverse->plane.padded == Shape{1, 1} ? scalar(*inverse) : 1;
}
double AttentionStages::largest_code(AttentionSlot slot) const {
  const auto casts = attention_casts(p_, slot);
  if (casts.empty()) return 1;
  const Quantizer& q = *casts[0].line.quantizer(casts[0].direction());
  return info(q.format).per_tensor_fp8() ? value_of(q.element, info(q.element).max_finite) : 1;
}

// Amax and scales of a tensor of which elements may be off.
void AttentionStages::settle_scalars(const AttentionCast& cast, const Values& x, Made& made) const {
  double most = 0, off = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
    if (std::isfinite(x.at(i))) most = std::max(most, std::fabs(x.at(i))), off = std::max(off, x.off(i));
  const double share = std::isinf(off) ? off : most > 0 ? off / most + 0x1p-7 : 0;
  for (PlaneData& data : made.planes) {
    const string& name = data.plane.name;
    const bool amax = name.ends_with("amax"), scale = name.ends_with(".scale") || name.ends_with("scale_inv");
    if (data.plane.padded != Shape{1, 1} || (!amax && !scale)) continue;
    if (scale && cast.line.quantizer(cast.direction())->format == FormatId::fp8_delayed) continue;  // given
    const PlaneData* const seen = observed(plane_of_cast(cast, name));
    const double off_here =
        std::isinf(share) ? share : share / (1 - std::min(share, 0.5)) * std::fabs(scalar(data));
    if (seen && (std::isinf(off_here) || std::fabs(scalar(*seen) - scalar(data)) <= off_here))
      data.bytes = seen->bytes;
  }
}

// Codes of a tensor of which elements may be off, and what they stand for.
void AttentionStages::settle_data(const AttentionCast& cast, const Values& x, Made& made) const {
  const Direction d = cast.direction();
  PlaneData& data = const_cast<PlaneData&>(*find_plane(made.planes, plane_name(d, "data")));
  const PlaneData* const seen = observed(plane_of_cast(cast, data.plane.name));
  const Quantizer& q = *cast.line.quantizer(d);
  if (!info(q.format).per_tensor_fp8()) {  // scales of blocks that may be another power of two
    for (PlaneData& one : made.planes)
      if (const PlaneData* other = observed(plane_of_cast(cast, one.plane.name))) one.bytes = other->bytes;
    double most = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) most = std::max(most, std::fabs(x.at(i)));
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      const double now = made.back.at(i);
      made.back.put(i, now,
                    std::fabs(now - x.at(i)) + x.off(i) +
                        half_step(q.element) * (std::fabs(x.at(i)) + x.off(i)) + kOfLargest * most);
    }
    return;
  }
  const KernelCast kernel = kernel_cast(cast, scalar(*find_plane(made.planes, plane_name(d, "scale_inv"))));
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const double now = made.back.at(i), off = cast_off(cast, kernel, x.at(i), x.off(i), now);
    if (!seen) {
      if (std::isinf(off)) made.back.put_open(i);
      else made.back.put(i, now, off);
      continue;
    }
    const uint32_t other = code_at(data.plane, seen->bytes, i);
    const double there = value_of(data.plane.encoding, other) * (bare(cast) ? 1 : kernel.inverse);
    if (within(there, now, off)) set_code(data.plane, data.bytes, i, other);
    made.back.put(i, nominal(f32_of(there)), 0);
  }
}

// N20.22. A mistake that takes the codes of S for its values has both in units of the scale.
double AttentionStages::cast_off(const AttentionCast& cast, const KernelCast& kernel, double x, double off,
                                 double now) const {
  const double unit = bare(cast) ? 1 / kernel.inverse : 1;
  return kernel.off(x, off, now / unit, rounding_) * std::fabs(unit);
}

KernelCast AttentionStages::kernel_cast(const AttentionCast& cast, double inverse) const {
  const Quantizer& q = *cast.line.quantizer(cast.direction());
  KernelCast out{.element = q.element, .inverse = inverse};
  out.exponentials = cast.slot == AttentionSlot::s, out.computed = q.format == FormatId::fp8_current;
  return out;
}

std::optional<Values> AttentionStages::cast_one(const AttentionCast& cast, const Values& x) {
  auto made = made_by(cast, x);
  if (!made) return {};
  const bool pinned = !observed_ || x.observed || (cast.slot != AttentionSlot::s && x.known());
  if (!pinned) {
    settle_scalars(cast, x, *made);
    settle_data(cast, x, *made);
  }
  for (PlaneData& data : made->planes)
    if (PlaneData* to = plane(plane_of_cast(cast, data.plane.name))) to->bytes = data.bytes;
  return std::move(made->back);
}

std::optional<Values> AttentionStages::cast(AttentionSlot slot, const Values& x) {
  const auto casts = attention_casts(p_, slot);
  return casts.empty() ? std::optional(x) : cast_one(casts[0], x);
}

std::optional<Values> AttentionStages::cast_probabilities(const Values& s, const Exponentials& e) {
  auto out = cast(AttentionSlot::s, s);
  if (!out || !observed_) return out;
  const auto casts = attention_casts(p_, AttentionSlot::s);
  KernelCast kernel;
  if (!casts.empty()) kernel = kernel_cast(casts[0], scale_inverse("s"));
  kernel.keep_factor = e.keep_factor;
  for (int64_t i = 0; i < static_cast<int64_t>(s.size()); ++i) {
    const double now = out->at(i), off = std::max(s.off(i), e.off[static_cast<size_t>(i)]);
    kernel.total = e.totals[static_cast<size_t>(i / n_.kv)];
    const double all = casts.empty() ? off : cast_off(casts[0], kernel, s.at(i), off, now);
    if (std::isinf(all)) out->put_open(i);
    else out->put(i, now, std::max(out->off(i), all));
  }
  return out;
}

bool AttentionStages::cast_three(AttentionSlot slot, Values& q, Values& k, Values& v) {
  const auto casts = attention_casts(p_, slot);
  if (casts.empty()) return true;
  if (casts.size() == 1) {
    Values all = q;
    all.append(k), all.append(v);
    const auto back = cast_one(casts[0], all);
    if (!back) return false;
    const size_t first = q.size(), second = k.size(), third = v.size();
    q = back->part(0, first), k = back->part(first, second), v = back->part(first + second, third);
    return true;
  }
  std::array<Values*, 3> each = {&q, &k, &v};
  for (size_t i = 0; i < each.size(); ++i) {
    auto back = cast_one(casts[i], *each[i]);
    if (!back) return false;
    *each[i] = std::move(*back);
  }
  return true;
}

// ---- results ----

bool AttentionStages::put_result(const Values& o) {
  auto back = cast(AttentionSlot::o, o);
  if (!back) return false;
  result_ = std::move(*back);
  PlaneData& to = *plane("out");
  const PlaneData* const seen = observed("out");
  const int64_t width = n_.heads * n_.depth;
  for (int64_t row = 0; row < n_.q * n_.batch; ++row) {
    const int64_t at = row_of(AttentionTensor::q, row % n_.batch, row / n_.batch);
    for (int64_t c = 0; at >= 0 && c < width; ++c)
      store(to, seen, at * width + c, result_.at(row * width + c), result_.off(row * width + c));
  }
  return true;
}

// N20.16: over the heads that read one head of keys, in ascending order.
Values AttentionStages::as_wide(const Values& heads) const {
  if (n_.repeats() == 1) return heads;
  Values out;
  const int64_t size = n_.kv * n_.depth;
  out.resize(static_cast<size_t>(n_.kv_rows() * n_.depth));
  for (int64_t b = 0; b < n_.batch; ++b)
    for (int64_t head = 0; head < n_.kv_heads; ++head)
      for (int64_t k = 0; k < size; ++k) {
        double sum = 0, off = 0;
        for (int64_t h = 0; h < n_.heads; ++h) {
          if (change_.kv_head(h, n_.repeats()) != head) continue;
          sum = f32_of(sum + heads.at((b * n_.heads + h) * size + k));
          off += heads.off((b * n_.heads + h) * size + k);
        }
        out.put((b * n_.kv_heads + head) * size + k, nominal(sum),
                off > 0 ? rounding_.after(sum, off, nominal(sum)) : 0);
      }
  return out;
}

bool AttentionStages::put_gradients(const Values& dq, const Values& dk, const Values& dv) {
  Values q = dq, k = dk, v = dv;
  if (!cast_three(AttentionSlot::dqkv, q, k, v)) return false;
  k = as_wide(k), v = as_wide(v);
  for (AttentionTensor t : kTensors) {
    const AttentionPart held = part_of(op_.layout, t);
    const bool of_q = t == AttentionTensor::q;
    const Values& x = of_q ? q : t == AttentionTensor::k ? k : v;
    const int64_t heads = of_q ? n_.heads : n_.kv_heads, tokens = of_q ? n_.q : n_.kv;
    PlaneData& to = *plane("grad." + held.plane);
    const PlaneData* const seen = observed("grad." + held.plane);
    for (int64_t row = 0; row < n_.batch * heads * tokens; ++row) {
      const int64_t b = row / (heads * tokens), h = row / tokens % heads, at = row_of(t, b, row % tokens);
      const int64_t head = held.within_heads ? h * held.tensors + held.which : held.which * heads + h;
      for (int64_t e = 0; at >= 0 && e < n_.depth; ++e)
        store(to, seen, (at * held.tensors * heads + head) * n_.depth + e, x.at(row * n_.depth + e),
              x.off(row * n_.depth + e));
    }
  }
  return true;
}

}  // namespace assay

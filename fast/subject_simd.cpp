#include "fast/subject_simd.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "contract/acceptor.h"
#include "fast/simd/simd.h"

namespace assay {
namespace {

static_assert(simd::kPiece == kAcceptedPiece);

std::optional<simd::Source> source_of(Encoding e) {
  if (e == Encoding::bf16) return simd::Source::bf16;
  if (e == Encoding::f16) return simd::Source::f16;
  if (e == Encoding::f32) return simd::Source::f32;
  return {};
}
std::optional<simd::Element> element_of(Encoding e) {
  if (e == Encoding::e4m3) return simd::Element::e4m3;
  if (e == Encoding::e5m2) return simd::Element::e5m2;
  if (e == Encoding::e2m1) return simd::Element::e2m1;
  return {};
}

bool is_mx(FormatId f) { return f == FormatId::mxfp8 || f == FormatId::mxfp4; }
bool is_no_amax(F32Bits bits) { return bits > 0x7F800000; }  // a NaN, or a negative number
bool is_negative(F32Bits bits) { return bits >> 31 != 0; }

// A quantizer that differs in nothing from that of a line that names format and element alone, with a given
// amax (fp8_current, nvfp4), scale and prior amax (fp8_delayed), and with scales of powers of two or not: a
// key that is added to the Quantizer later is seen here by itself. Magnitudes that are negative take paths of
// their own (N3.1, N3.2), which only the reference has.
bool is_plain_quantizer(const Quantizer& q) {
  Quantizer plain;
  plain.format = q.format;
  plain.element = q.element;
  plain.pow2 = q.pow2;
  if (is_mx(q.format)) plain.block = Block::b1x32, plain.pow2 = false;
  else if (q.format == FormatId::fp8_block) plain.block = Block::b1x128;
  else if (q.format == FormatId::fp8_current) {
    if (q.amax && is_negative(*q.amax)) return false;
    plain.amax = q.amax;
  } else if (q.format == FormatId::nvfp4) {
    if (q.amax && is_no_amax(*q.amax)) return false;
    plain.amax = q.amax, plain.block = Block::b1x16, plain.pow2 = false;
  } else if (q.format == FormatId::fp8_delayed) {
    if (is_negative(q.prior_amax)) return false;
    plain.scale = q.scale, plain.prior_amax = q.prior_amax, plain.pow2 = false;
  } else return false;
  return q == plain && element_of(q.element);
}

// The same for a whole line, but for how x is filled and which kernels would be selected.
bool is_plain_quantize(const Problem& p) {
  Problem plain;
  plain.x = p.x;
  plain.row = p.row;
  plain.col = p.col;
  plain.flavour = p.flavour;
  plain.arch = p.arch;
  plain.dispatch = p.dispatch;
  plain.op = Quantize{};
  return p == plain && source_of(p.x.source) && (p.row || p.col);
}

bool is_plain_cast(const Problem& p) {
  Problem plain;
  plain.x = p.x;
  Cast cast;
  if (const Cast* c = p.as<Cast>()) cast.to = c->to;
  plain.op = cast;
  return p == plain && source_of(p.x.source) && element_of(cast.to);
}

bool is_plain_chain(const Problem& p) {
  Problem plain;
  plain.x = p.x;
  plain.row = p.row;
  plain.op = ScaleChain{};
  return p == plain && p.x.source == Encoding::f32 && p.row && is_plain_quantizer(*p.row) && !p.row->amax;
}

// A plane that the line does not have is left out: a given amax is no output.
void put_bits(const Buffer* plane, int64_t i, uint32_t bits) {
  if (plane) std::memcpy(plane->bytes.data() + 4 * i, &bits, 4);
}

simd::Bytes rows_of(const Buffer& b) { return {b.bytes.data(), b.plane->bytes_of(b.plane->padded.cols)}; }

void clear_padding(const Buffer& scales) {
  const Plane& p = *scales.plane;
  for (int64_t r = 0; r < p.padded.rows; ++r) {
    const int64_t used = r < p.logical.rows ? p.logical.cols : 0;
    std::fill_n(scales.bytes.data() + p.bytes_of(r * p.padded.cols + used), p.bytes_of(p.padded.cols - used),
                std::byte{0});  // N6.4
  }
}

// Calls body(part) for every part, on this thread and others.
template <class Body> void on_threads(int threads, int64_t parts, Body body) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t part = next++; part < parts; part = next++) body(part);
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, parts); ++i) others.emplace_back(work);
  work();
}

// Consecutive rows that one thread quantizes at once. No block lies in two of them.
struct Rows {
  int64_t first = 0, count = 0;
};
constexpr int64_t kStripElements = 1 << 17;  // what a core's own cache holds
constexpr int64_t kTallestBlock = 128;       // N9.1
int64_t strip_height(const Problem& p) {
  const int64_t rows = kStripElements / std::max<int64_t>(p.x.shape.cols, 1);
  return p.col ? std::max(rows / kTallestBlock, int64_t{1}) * kTallestBlock : std::max<int64_t>(rows, 1);
}

// The strip of an output plane that belongs to these rows of x, of which `of` share an element (1 of the
// codes of an FP8 tensor, 32 of the scales of MXFP8 columns). `down`: rows of x are columns of the plane.
simd::Bytes strip_of(const Buffer& b, int64_t first_row, int64_t of, bool down) {
  simd::Bytes out = rows_of(b);
  const int64_t at = first_row / of;
  out.first += down ? b.plane->bytes_of(at) : static_cast<size_t>(at) * out.stride;
  return out;
}

class SimdSubject final : public Subject, public Acceptor {
 public:
  std::string_view name() const override { return "simd"; }
  Support present() const override {
    if (simd::target_in_use().empty()) return {false, "this processor has none of AVX2, AVX-512 and NEON"};
    return {true, "sources " + std::string(simd::sources())};  // a certificate names these
  }

  Support supports(const Problem& p) const override {
    if (!present().yes) return present();
    if (is_plain_cast(p) || is_plain_chain(p) || quantizes(p).yes) return {};
    return {false,
            "the vectorised method has casts to e4m3, e5m2 and e2m1, mxfp8, mxfp4, fp8_delayed, fp8_current, "
            "fp8_block with 1x128 blocks and nvfp4 with 1x16 blocks, and their scale_chain, without other "
            "keys"};
  }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    const ConstBuffer* x = find(inputs, "x");
    if (!supports(p).yes || !x) throw std::invalid_argument("the vectorised method does not run this line");
    if (p.as<Cast>()) cast(p, *x, outputs, env.threads);
    else if (p.as<ScaleChain>()) chain(p, *x, outputs);
    else quantize(p, *x, outputs, env.threads);
    return {"simd " + std::string(simd::target_in_use()), 0};
  }

  std::string_view target() const override { return simd::target_in_use(); }
  std::string_view sources() const override { return simd::sources(); }
  std::vector<std::string_view> uncertified() const override {
    std::vector<std::string_view> out = simd::targets();
    std::erase_if(out, [](std::string_view t) { return !simd::needs_certificate(t); });
    return out;
  }
  void use_certified(const std::set<std::string, std::less<>>& certified) override {
    for (const std::string_view t : simd::targets())
      if (!simd::needs_certificate(t) || certified.contains(t)) {
        simd::use_target(t);
        return;
      }
  }

  Support accepts(const Problem& p) const override {
    if (const Support able = quantizes(p); !able.yes) return able;
    for (const Direction d : kDirections)
      if (const auto& q = p.quantizer(d);
          q && (q->format == FormatId::fp8_current || q->format == FormatId::nvfp4) && !q->amax)
        return {false, "the amax of the tensor is not given"};
      else if (q && q->format == FormatId::fp8_delayed && is_no_amax(q->prior_amax))
        return {false, "the slot held no magnitude"};
    return {};
  }

  Support quantizes(const Problem& p) const {
    if (!present().yes) return present();
    for (const Direction d : kDirections)
      if (const auto& q = p.quantizer(d); q && !is_plain_quantizer(*q))
        return {false, "it has keys that the vectorised method does not know"};
    if (!is_plain_quantize(p)) return {false, "the vectorised method quantizes bf16, f16 and f32"};
    return {};
  }

  std::vector<DoubtfulBlock> unknown(const Problem& p, Direction d, StridedBytes x, StridedBytes data,
                                     StridedBytes scales) override {
    std::vector<simd::Block> found;
    const simd::ConstBytes codes{data.first, data.stride}, stored{scales.first, scales.stride};
    const simd::Rectangle from = rectangle_of(p, x);
    const FormatId format = p.quantizer(d)->format;
    const uint32_t amax = given_amax(p, d);
    if (is_mx(format)) simd::accept(mx_of(p, d), from, codes, stored, found);
    else if (format == FormatId::nvfp4) simd::accept(nvfp4_of(d, amax), from, codes, stored, found);
    else simd::accept(fp8_of(p, d, amax), from, codes, stored, found);
    std::vector<DoubtfulBlock> out;
    out.reserve(found.size());
    for (const simd::Block& b : found) out.push_back({{b.row, b.col}, b.special, b.scale, b.differ, b.first});
    return out;
  }

 private:
  static simd::Mx mx_of(const Problem& p, Direction d) {
    return {*element_of(p.quantizer(d)->element), d == Direction::col};
  }
  // Of a tensor scale: with the factor of its amax.
  static simd::Fp8 fp8_of(const Problem& p, Direction d, uint32_t amax) {
    const Quantizer& q = *p.quantizer(d);
    simd::Fp8 out{*element_of(q.element), d == Direction::col, q.format == FormatId::fp8_block, q.pow2, 0};
    uint32_t inverse = 0;
    if (q.format == FormatId::fp8_delayed) out.scale = q.scale;  // N3.11
    else simd::fp8_scales(out.element, q.pow2, &amax, &out.scale, &inverse, 1);
    return out;
  }
  static simd::Nvfp4 nvfp4_of(Direction d, uint32_t amax) { return {d == Direction::col, amax}; }
  static uint32_t given_amax(const Problem& p, Direction d) { return p.quantizer(d)->amax.value_or(0); }
  static simd::Rectangle rectangle_of(const Problem& p, StridedBytes x) {
    return {*source_of(p.x.source), {x.first, x.stride}, p.x.shape.rows, p.x.shape.cols};
  }

  static void cast(const Problem& p, const ConstBuffer& x, std::span<const Buffer> outputs, int threads) {
    const int64_t count = p.x.shape.count();
    std::byte* const y = find(outputs, "y")->bytes.data();
    on_threads(threads, ceil_div(count, kStripElements), [&](int64_t strip) {
      const int64_t first = strip * kStripElements;
      simd::cast(*source_of(p.x.source), *element_of(p.as<Cast>()->to),
                 x.bytes.data() + info(p.x.source).bytes() * first, y + first,
                 std::min(kStripElements, count - first));
    });
  }

  static uint32_t computed_amax(const Problem& p, const ConstBuffer& x, int threads) {
    const int64_t count = p.x.shape.count();
    std::atomic<uint32_t> most = 0;
    on_threads(threads, ceil_div(count, kStripElements), [&](int64_t strip) {
      const int64_t first = strip * kStripElements;
      const uint32_t found =
          simd::amax(*source_of(p.x.source), x.bytes.data() + info(p.x.source).bytes() * first,
                     std::min(kStripElements, count - first));
      uint32_t before = most;
      while (before < found && !most.compare_exchange_weak(before, found)) {}
    });
    return most;
  }

  static bool has_tensor_amax(const Quantizer& q) {
    return q.format == FormatId::fp8_current || q.format == FormatId::fp8_delayed ||
           q.format == FormatId::nvfp4;
  }
  static uint32_t amax_of(const Quantizer& q, uint32_t computed) {
    if (q.format == FormatId::fp8_delayed)
      return is_no_amax(q.prior_amax) ? 0x7FFFFFFF : std::max(q.prior_amax, computed);  // N3.1, N1.3
    return q.amax.value_or(computed);
  }

  // Strip by strip, so that the columns find in the cache what the rows have read.
  static void quantize(const Problem& p, const ConstBuffer& x, std::span<const Buffer> outputs, int threads) {
    bool amax_is_needed = false;
    for (const Direction d : kDirections)
      if (const auto& q = p.quantizer(d)) amax_is_needed |= has_tensor_amax(*q) && !q->amax;
    const uint32_t computed = amax_is_needed ? computed_amax(p, x, threads) : 0;
    const int64_t height = strip_height(p);
    on_threads(threads, ceil_div(p.x.shape.rows, height), [&](int64_t strip) {
      const int64_t first = strip * height;
      for (const Direction d : kDirections)
        if (p.quantizer(d))
          quantize_strip(p, d, computed, {first, std::min(height, p.x.shape.rows - first)}, x, outputs);
    });
    for (const Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Quantizer& q = *p.quantizer(d);
      if (q.format == FormatId::fp8_current || q.format == FormatId::fp8_delayed) {
        const uint32_t amax = amax_of(q, computed);
        put_tensor_scales(fp8_of(p, d, amax), amax, d, outputs);
        continue;
      }
      clear_padding(*find(outputs, plane_name(d, "scale_inv")));
      if (q.format == FormatId::nvfp4)
        put_bits(find(outputs, plane_name(d, "amax")), 0, amax_of(q, computed));
    }
  }

  static void quantize_strip(const Problem& p, Direction d, uint32_t computed, Rows rows,
                             const ConstBuffer& x, std::span<const Buffer> outputs) {
    const auto stride = static_cast<size_t>(p.x.shape.cols * info(p.x.source).bytes());
    simd::Rectangle from =
        rectangle_of(p, {x.bytes.data() + static_cast<size_t>(rows.first) * stride, stride});
    from.rows = rows.count;
    const Quantizer& q = *p.quantizer(d);
    const Buffer &data = *find(outputs, plane_name(d, "data")),
                 &scales = *find(outputs, plane_name(d, "scale_inv"));
    const bool columns = d == Direction::col;
    if (is_mx(q.format)) {
      const bool transposed = columns && q.format == FormatId::mxfp4;  // N6.1
      simd::quantize(mx_of(p, d), from, strip_of(data, rows.first, 1, transposed),
                     strip_of(scales, rows.first, columns ? 32 : 1, transposed));
      return;
    }
    const simd::Bytes codes = strip_of(data, rows.first, 1, columns);  // stored transposed
    if (q.format == FormatId::fp8_block)
      simd::quantize(fp8_of(p, d, 0), from, codes,
                     strip_of(scales, rows.first, columns ? 128 : 1, !columns));  // N9.4
    else if (q.format == FormatId::nvfp4)
      simd::quantize(nvfp4_of(d, amax_of(q, computed)), from, codes,
                     strip_of(scales, rows.first, columns ? 16 : 1, columns));
    else simd::quantize(fp8_of(p, d, amax_of(q, computed)), from, codes, {});
  }

  static void put_tensor_scales(const simd::Fp8& format, uint32_t amax, Direction d,
                                std::span<const Buffer> outputs) {
    put_bits(find(outputs, plane_name(d, "amax")), 0, amax);
    put_bits(find(outputs, plane_name(d, "scale")), 0, format.scale);
    put_bits(find(outputs, plane_name(d, "scale_inv")), 0, simd::reciprocal(format.scale));
  }

  static void fp8_chain(const Problem& p, const std::vector<uint32_t>& amaxes,
                        std::span<const Buffer> outputs) {
    auto* const factors = reinterpret_cast<uint32_t*>(find(outputs, "scale")->bytes.data());
    auto* const inverses = reinterpret_cast<uint32_t*>(find(outputs, "scale_inv")->bytes.data());
    simd::fp8_scales(*element_of(p.row->element), p.row->pow2, amaxes.data(), factors, inverses,
                     p.x.shape.count());
  }

  static void nvfp4_chain(const std::vector<uint32_t>& amaxes, std::span<const Buffer> outputs) {
    std::vector<simd::Nvfp4Chain> made(amaxes.size() / 2);
    simd::nvfp4_chain(amaxes.data(), made.data(), static_cast<int64_t>(made.size()));
    for (size_t i = 0; i < made.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      put_bits(find(outputs, "encode_scale"), at, made[i].encode_scale);
      put_bits(find(outputs, "multiplier"), at, made[i].multiplier);
      find(outputs, "scale_inv")->bytes[i] = static_cast<std::byte>(made[i].scale);
    }
  }

  // The scale, and as bits what N5.4 and N5.9 make of it.
  static void chain(const Problem& p, const ConstBuffer& x, std::span<const Buffer> outputs) {
    const int64_t count = p.x.shape.count();
    std::vector<uint32_t> amaxes(static_cast<size_t>(count));
    if (count) std::memcpy(amaxes.data(), x.bytes.data(), x.bytes.size());
    if (p.row->format == FormatId::nvfp4) return nvfp4_chain(amaxes, outputs);
    if (!is_mx(p.row->format)) return fp8_chain(p, amaxes, outputs);
    auto* const scales = reinterpret_cast<uint8_t*>(find(outputs, "scale_inv")->bytes.data());
    simd::mx_scales(*element_of(p.row->element), amaxes.data(), scales, count);
    constexpr uint32_t kLeast = 0x00400000, kNan = 0x7FFFFFFF;  // 2^-127; N1.3
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t k = scales[i];
      put_bits(find(outputs, "multiplier"), i, k == 255 ? kNan : k == 254 ? kLeast : (254 - k) << 23);
      put_bits(find(outputs, "decoded"), i, k == 255 ? kNan : k == 0 ? kLeast : k << 23);
    }
  }
};

}  // namespace

std::unique_ptr<Subject> make_simd_subject() { return std::make_unique<SimdSubject>(); }

}  // namespace assay

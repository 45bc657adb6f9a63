// The step of a replay that changes codes one by one.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/arithmetic/factors.h"
#include "compare/diagnosis/replay/planes.h"
#include "compare/diagnosis/replay/steps.h"

namespace assay {

namespace {

// The amaxes of a part's blocks. Each is asked for by every element of its block, and computed once.
class BlockAmaxes {
 public:
  explicit BlockAmaxes(const Run& run) : run_(run) {
    if (!run.format.has_blocks()) return;
    height_ = run.window.block_height();
    across_ = run.window.blocks();
    known_.resize(static_cast<size_t>(ceil_div(run.window.lines(), height_) * across_));
  }
  // 0 of a format without blocks.
  double at(int64_t i, int64_t b) {
    if (known_.empty()) return 0;
    std::optional<double>& a = known_[static_cast<size_t>(i / height_ * across_ + b)];
    if (!a)
      a = run_.block_amax ? (*run_.block_amax)(run_.window.block(run_.x(), i, b))
                          : run_.window.plain_amax(i, b);
    return *a;
  }

 private:
  const Run& run_;
  int64_t height_ = 1, across_ = 1;
  std::vector<std::optional<double>> known_;
};

// A value that a hypothesis scales, rounded before the cast as the line says (N17.3).
double before_cast(const Numerics& n, double v) {
  const double y = static_cast<float>(v);
  if (n.pre_round == PreRound::bf16) return value_of(Encoding::bf16, nearest_code(Encoding::bf16, y));
  if (n.pre_round == PreRound::f16) return value_of(Encoding::f16, nearest_code(Encoding::f16, y));
  if (n.pre_round == PreRound::f16_rz && std::isfinite(y))
    return value_of(Encoding::f16, truncated_code(Encoding::f16, y));
  return y;
}

// ... and its code, with the ties and the overflow of the line (N17.1, N17.2).
uint32_t cast_by_line(const Numerics& n, Encoding e, double v) {
  const uint32_t c = element_code(e, v), sign = c & sign_bit(e), m = c ^ sign, most = info(e).max_finite;
  if (std::isnan(v) && n.nan_code == NanCode::negative && info(e).bits == 8)
    return c | sign_bit(e);                                                                         // N17.16
  if (std::isnan(v) && n.nan_code == NanCode::minus_zero && info(e).bits == 4) return sign_bit(e);  // N17.16
  if (!std::isfinite(v) || m > most) return c;
  const double a = std::fabs(v), near = value_of(e, m), largest = value_of(e, most);
  if (n.element_overflow == ElementOverflow::nan && info(e).bits == 8 &&
      a > largest + step_at(e, largest) / 2)
    return sign | (e == Encoding::e5m2 ? info(e).infinity : info(e).nan);
  if (n.element_ties == ElementTies::even || a == near || a > largest) return c;
  const uint32_t other = near > a ? m - 1 : m + 1;
  if (other > most || std::fabs(value_of(e, other) - a) != std::fabs(near - a)) return c;
  return (n.element_ties == ElementTies::away) == (other > m) ? sign | other : c;
}

// What the elements of a block are scaled by.
struct BlockScale {
  Factor factor;
  double scale = 1;  // the value of the stored scale
  double tensor_amax = 0;
};

class CodeStep {
 public:
  explicit CodeStep(Run& run)
      : run_(run),
        w_(run.window),
        factors_(run.q(), run.x().encoding()),
        amaxes_(run),
        data_(*w_.data_in(run.planes)),
        scales_(w_.scales_in(run.planes)),
        row_amax_(run.q().row_scaled ? find_plane(run.planes, w_.name("amax")) : nullptr),
        tensor_scale_(tensor_scale()),
        row_scales_(run_.q().format == FormatId::fp8_delayed && run_.of_rows
                        ? find_plane(run_.whole.lane().inputs, w_.name("given.scale"))
                        : nullptr),
        whole_amax_(run.whole_amax()),
        encode_(tensor_encode_scale()),
        as_seen_(w_.stored_as_seen()),
        length_(run.format.has_blocks() ? w_.block_length() : std::max<int64_t>(w_.places(), 1)) {}

  void run() {
    for (int64_t i = 0; i < w_.lines(); ++i) {
      BlockScale s{{}, 1, whole_amax_};
      for (int64_t j = 0; j < w_.places(); ++j) {
        if (j % length_ == 0 && (scales_ || tensor_scale_)) s = block_scale(i, j);
        const int64_t at = as_seen_ ? index_of(data_.plane, i, j) : index_of(data_.plane, j, i);
        set_code(data_.plane, data_.bytes, at, changed(i, j, s, code_at(data_.plane, data_.bytes, at)));
      }
    }
  }

 private:
  // The plane of a per-tensor format's scale, or null.
  const PlaneData* tensor_scale() const {
    if (run_.q().format == FormatId::fp8_delayed) return find_plane(w_.inputs, w_.name("given.scale"));
    const PlaneData* p = find_plane(run_.planes, w_.name("scale"));
    if (run_.of_rows) return p;
    return p && p->plane.padded == Shape{1, 1} && p->plane.encoding == Encoding::f32 ? p : nullptr;
  }

  double tensor_encode_scale() const {
    if (run_.q().format != FormatId::nvfp4) return 1;
    const Encoding source = run_.whole.lane().problem.x.source;
    return static_cast<double>(encode_scale(run_.q(), static_cast<float>(whole_amax_), source));
  }

  // Of the block that begins at (i, j).
  BlockScale block_scale(int64_t i, int64_t j) {
    BlockScale out;
    out.tensor_amax =
        row_amax_ ? value_of(Encoding::f32, code_at(Encoding::f32, row_amax_->bytes, i)) : whole_amax_;
    const Encoding encoding = scales_ ? scales_->plane.encoding : Encoding::f32;
    uint32_t code = 0;
    if (scales_) {
      const int64_t at = run_.format.has_blocks() ? w_.scale_index_of(scales_->plane, i, j)
                         : run_.of_rows           ? i
                                                  : 0;
      code = code_at(scales_->plane, scales_->bytes, at);
      out.scale = value_of(encoding, code);
    }
    const bool needs_amax = run_.of_amaxes && run_.q().numerics.scale_order == ScaleOrder::encode_first;
    const double amax = needs_amax ? amaxes_.at(i, j / length_) : 0;
    const double scale =
        tensor_scale_
            ? value_of(Encoding::f32, code_at(Encoding::f32, tensor_scale_->bytes, run_.of_rows ? i : 0))
            : 1;
    out.factor = factors_.of(code, encoding, amax, out.tensor_amax, scale);
    return out;
  }

  // The code of element (i, j), values before codes.
  uint32_t changed(int64_t i, int64_t j, const BlockScale& s, uint32_t code) {
    const Matrix& x = *w_.quantized;
    const Encoding encoding = data_.plane.encoding;
    const int64_t line = w_.line(i), place = w_.place(j);
    const double v = x.value(line, place);
    std::optional<double> otherwise;  // the value that is scaled another way
    const auto scaled = [&] { return otherwise ? *otherwise : factors_.scaled(v, s.factor); };
    const auto block_amax = [&] { return amaxes_.at(i, j / length_); };
    const auto own_amax = [&] {
      if (!own_amax_) own_amax_ = run_.edited ? w_.quantized->amax() : run_.whole.amax();
      return *own_amax_;
    };
    const auto view = [&] {
      return CodeView{code,           encoding,         line,     place,
                      x.lines(),      x.length(),       v,        scaled,
                      s.factor.value, s.factor.divides, s.scale,  s.tensor_amax,
                      block_amax,     encode_,          own_amax, row_scales_};
    };
    for (const Hypothesis* h : run_.hypotheses)
      if (h->scaled) {
        otherwise = before_cast(run_.q().numerics, h->scaled(view()));
        code = cast_by_line(run_.q().numerics, encoding, *otherwise);
      }
    for (const Hypothesis* h : run_.hypotheses)
      if (h->code) code = h->code(view());
    return code;
  }

  Run& run_;
  const Window& w_;
  Factors factors_;
  BlockAmaxes amaxes_;
  PlaneData& data_;
  const PlaneData *scales_, *row_amax_, *tensor_scale_, *row_scales_;
  double whole_amax_, encode_;
  std::optional<double> own_amax_;
  bool as_seen_;
  int64_t length_;  // of a block, or of a line
};

}  // namespace

bool change_codes(Run& run) {
  if (!run.first([](const Hypothesis& h) { return h.code || h.scaled; })) return true;
  if (!rotate(run)) return false;
  CodeStep(run).run();
  return true;
}

}  // namespace assay

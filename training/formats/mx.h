// MXFP6, MXFP4, and every further row of the family `mx` in contract/formats.def. The original has no
// quantizer for them. A user brings one, by the factory of a CustomRecipe, and so they behave as the
// original's own user quantizers do (Quantizer::custom): values are rounded before they are quantized, ranks
// exchange them in high precision, and what needs a kernel of the original refuses them. Elements, block,
// packing and column layout are the row's. MXFP8, which the original has, is in mxfp8.h.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "contract/format.h"
#include "contract/problem.h"
#include "fixtures/json.h"
#include "training/formats/block_scaled.h"
#include "training/formats/describe.h"
#include "training/formats/kernel_quantizer.h"

namespace assay::training {

constexpr bool is_mx_row(const FormatInfo& f) { return f.family == Family::mx && f.id != FormatId::mxfp8; }
inline constexpr auto kMxFormats = [] {
  std::array<FormatId, static_cast<size_t>(std::ranges::count_if(assay::kFormats, is_mx_row))> out{};
  size_t n = 0;
  for (const FormatInfo& f : assay::kFormats)
    if (is_mx_row(f)) out[n++] = f.id;
  return out;
}();

// Calls visit.operator()<F>() for each of kMxFormats.
template <class Visit> void for_each_mx_format(Visit visit) {
  [&]<size_t... I>(std::index_sequence<I...>) { (visit.template operator()<kMxFormats[I]>(), ...); }
  (std::make_index_sequence<kMxFormats.size()>{});
}

// "MXFP6Quantizer", and the others, from the row's name.
template <FormatId F> class MxNames {
  template <size_t N> static constexpr auto joined(const char (&end)[N], bool upper) {
    constexpr std::string_view kName = info(F).name;
    std::array<char, kName.size() + N - 1> out{};
    for (size_t i = 0; i < kName.size(); ++i)
      out[i] = upper && kName[i] >= 'a' ? static_cast<char>(kName[i] - 'a' + 'A') : kName[i];
    for (size_t i = 0; i + 1 < N; ++i) out[kName.size() + i] = end[i];
    return out;
  }
  static constexpr auto quantizer_ = joined("Quantizer", true), tensor_ = joined("Tensor", true),
                        light_ = joined("TensorStorage", true), factory_ = joined("_factory", false);
  template <class Text> static constexpr std::string_view view(const Text& t) { return {t.data(), t.size()}; }

 public:
  static constexpr std::string_view kQuantizer = view(quantizer_), kFactory = view(factory_);
  static constexpr ClassNames kTensor{view(tensor_), view(light_)};
};

// What a line says of one direction: the row's block, compact scales whatever optimize_for_gemm says.
struct MxSettings {
  FormatId format;
  Encoding dtype = *info(format).element;
  // Of formats that have a choice; is_packed() of the line knows the others.
  Packing packing = info(format).packed() ? Packing::packed : Packing::bytes;
  assay::Quantizer line() const;
  bool operator==(const MxSettings&) const = default;
};

class MxStorage : public BlockScaledStorage {
 public:
  explicit MxStorage(FormatId format) : settings{format} { element = settings.dtype; }
  MxSettings settings;
  Dims size() const override;
  void update_usage(
      std::optional<bool> rowwise,
      std::optional<bool> columnwise) override;  // atomic; RuntimeError for buffers that are gone
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;  // rows first
  // Keeps the last dimension, along which rows are packed and scaled; RuntimeError otherwise.
  StoragePtr view(const Dims& shape) override;
  std::vector<std::string> fsdp_buffer_fields() const override;  // NotImplementedError

 protected:
  void expect_same_settings(const Storage& from) const override;
};

template <FormatId F> class MxTensor final : public MxStorage {
 public:
  MxTensor() : MxStorage(F) {}
  static constexpr ClassNames kNames = MxNames<F>::kTensor;
  ClassNames names() const override { return kNames; }
  StoragePtr make_like() const override { return another(*this); }
};

template <FormatId F> class MxQuantizer final : public KernelQuantizer<MxQuantizer<F>, MxTensor<F>> {
 public:
  static constexpr std::string_view kClass = MxNames<F>::kQuantizer, kRecipe = "CustomRecipe";
  explicit MxQuantizer(Encoding dtype = *info(F).element) { settings.dtype = dtype; }
  MxSettings settings{F};
  json::Value describe() const override {
    return described(*this, {{"dtype", shown_dtype(settings.dtype)}, {"packing", word_of(settings.packing)}});
  }
  bool custom() const override { return true; }
  bool is_requantization_safe() const override { return true; }
  bool is_quantizable(const Dims& shape) const override {
    return multiples_of(shape, length_of(info(F).block));
  }
  std::optional<assay::Quantizer> line(Direction) const override { return settings.line(); }
  bool compared_by_value() const override { return true; }

 private:
  friend KernelQuantizer<MxQuantizer<F>, MxTensor<F>>;
  void stamp(MxTensor<F>& s) const { s.settings = settings, s.element = settings.dtype; }
  void fill(Session& session, const ArrayPtr& x, MxTensor<F>& s, std::optional<F32Bits> noop) {
    if (!is_quantizable(x->shape))
      kernels::fail(ErrorClass::runtime_error, *this,
                    "expected multiples of " + std::to_string(length_of(info(F).block)) +
                        " rows and columns, found " + kernels::text(x->shape) + "; pad the tensor");
    kernels::fill_blocks(session, *this, x, s, noop);
  }
};

using MXFP6Quantizer = MxQuantizer<FormatId::mxfp6>;
using MXFP6Storage = MxTensor<FormatId::mxfp6>;
using MXFP4Quantizer = MxQuantizer<FormatId::mxfp4>;
using MXFP4Storage = MxTensor<FormatId::mxfp4>;

}  // namespace assay::training

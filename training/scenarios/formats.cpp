#include "training/scenarios/formats.h"

#include <bit>
#include <span>
#include <stdexcept>

#include "training/formats/formats.h"

namespace assay::training {

namespace {

using std::string_view;

ArrayPtr f32_scalar(Dims shape, float value) {
  return from_bytes(std::move(shape), DType::float32, std::as_bytes(std::span(&value, 1)));
}

struct Fp4Settings {
  string_view name;
  bool square = false, rht = false, stochastic = false, row_scaled = false;
};
constexpr Fp4Settings kFp4[] = {{.name = "FP4p"},
                                {.name = "FP4w", .square = true},
                                {.name = "FP4i", .rht = true},
                                {.name = "FP4g", .rht = true, .stochastic = true},
                                {.name = "FP4rs", .row_scaled = true}};

QuantizerPtr native(string_view name) {
  if (name == "CS") return std::make_shared<Float8CurrentScalingQuantizer>();
  if (name == "DS")
    return std::make_shared<Float8Quantizer>(f32_scalar({}, 3), f32_scalar({1}, 0), Encoding::e4m3);
  if (name == "MX") return std::make_shared<MXFP8Quantizer>();
  if (name == "MX4") return std::make_shared<MXFP4Quantizer>();
  if (name == "MX6") return std::make_shared<MXFP6Quantizer>();
  if (name == "MX6P") {
    auto q = std::make_shared<MXFP6Quantizer>(Encoding::e3m2);
    q->settings.packing = Packing::packed;
    return q;
  }
  if (name == "BLK1") return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 1);
  if (name == "BLK2") return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2);
  if (name == "ID") return std::make_shared<IdentityQuantizer>();
  for (const Fp4Settings& s : kFp4) {
    if (name != s.name) continue;
    auto q = std::make_shared<NVFP4Quantizer>();
    q->with_2d_quantization = s.square;
    q->with_rht = q->with_post_rht_amax = s.rht;
    q->stochastic_rounding = s.stochastic;
    q->row_scaled_nvfp4 = s.row_scaled;
    return q;
  }
  throw std::logic_error("no quantizer is called " + std::string(name));
}

}  // namespace

QuantizerPtr quantizer_named(string_view name, Usages usages) {
  if (name.starts_with("H(")) return hybrid_named(name, usages);
  const QuantizerPtr q = native(name);
  q->set_usage(usages.rowwise, usages.columnwise);
  return q;
}

std::shared_ptr<HybridQuantizer> hybrid_named(string_view name, Usages usages) {
  const size_t bar = name.find('|'), end = name.find_first_of(";)");
  if (!name.starts_with("H(") || bar == string_view::npos || end == string_view::npos)
    throw std::logic_error("no hybrid is called " + std::string(name));
  const std::string source = name.substr(end) == ";rwdq)" ? "rowwise_dequantized" : "original";
  auto q = std::make_shared<HybridQuantizer>(native(name.substr(2, bar - 2)),
                                             native(name.substr(bar + 1, end - bar - 1)), source);
  q->set_usage(usages.rowwise, usages.columnwise);
  return q;
}

Usages usages_of(string_view text) { return {text.at(0) == 'T', text.at(1) == 'T'}; }

ArrayPtr buffer(Storage& storage, string_view name) {
  for (const Field& f : storage.fields())
    if (f.name == name) return *f.slot;
  return nullptr;
}

std::vector<std::string> buffer_names(Storage& storage) {
  std::vector<std::string> out;
  for (const Field& f : storage.fields())
    if (*f.slot) out.push_back(f.name);
  return out;
}

bool expect_part(ScenarioRun& run, Storage& part, Storage& whole, string_view what) {
  bool holds = run.expect(!buffer_names(part).empty(), std::string(what) + ": buffers", "some", "none");
  for (const std::string& name : buffer_names(part))
    holds &= run.expect_equal(buffer(part, name), buffer(whole, name), std::string(what) + ": " + name);
  return holds;
}

}  // namespace assay::training

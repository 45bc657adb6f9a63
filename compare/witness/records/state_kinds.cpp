#include "compare/witness/records/state_kinds.h"

#include "compare/witness/records/shown.h"
#include "training/formats/formats.h"

namespace assay {

namespace {

using namespace training;
using std::string;

QuantizerPtr delayed() {
  const ArrayPtr scale = from_bytes({1}, DType::float32, std::as_bytes(std::span<const float>({1.0f})));
  return std::make_shared<Float8Quantizer>(scale, zeros({1}, DType::float32), Encoding::e4m3);
}

template <bool two_dimensional, bool row_scaled> QuantizerPtr nvfp4() {
  auto q = std::make_shared<NVFP4Quantizer>();
  q->with_2d_quantization = two_dimensional;
  q->row_scaled_nvfp4 = row_scaled;
  return q;
}

struct Kind {
  std::string_view name;
  QuantizerPtr (*make)();
};
const Kind kKinds[] = {
    {"CS", [] { return QuantizerPtr(std::make_shared<Float8CurrentScalingQuantizer>()); }},
    {"CS5", [] { return QuantizerPtr(std::make_shared<Float8CurrentScalingQuantizer>(Encoding::e5m2)); }},
    {"DS", delayed},
    {"MX", [] { return QuantizerPtr(std::make_shared<MXFP8Quantizer>()); }},
    {"BLK1", [] { return QuantizerPtr(std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 1)); }},
    {"BLK2", [] { return QuantizerPtr(std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2)); }},
    {"FP4p", nvfp4<false, false>},
    {"FP4w", nvfp4<true, false>},
    {"FP4rs", nvfp4<false, true>},
    {"ID", [] { return QuantizerPtr(std::make_shared<IdentityQuantizer>()); }},
};

}  // namespace

QuantizerPtr quantizer_of_kind(std::string_view kind, const string& where) {
  if (!kind.starts_with("H(")) return row_called(kKinds, kind, where)->make();
  const size_t bar = kind.find('|'), semicolon = std::min(kind.find(';'), kind.size() - 1);
  if (bar == kind.npos || !kind.ends_with(')') || bar > semicolon)
    refuse_word(where, kind, {"H(rows|columns)", "H(rows|columns;rwdq)"});
  const std::string_view source = kind.substr(semicolon, kind.size() - 1 - semicolon);
  if (!source.empty() && source != ";rwdq") refuse_word(where, source, {";rwdq"});
  return std::make_shared<HybridQuantizer>(
      quantizer_of_kind(kind.substr(2, bar - 2), where),
      quantizer_of_kind(kind.substr(bar + 1, semicolon - bar - 1), where),
      source.empty() ? "original" : "rowwise_dequantized");
}

QuantizerPtr quantizer_of_kind(const Given& kind) { return quantizer_of_kind(kind.text(), kind.path()); }

Usages usages_in(const Given& given, std::string_view key) {
  const std::string_view present = given.word(key, {"rc", "r", "c"});
  return {present.find('r') != present.npos, present.find('c') != present.npos};
}

Session session_of(const Given& given, Subject& subject) {
  Session out(subject);
  out.arch =
      given.has("arch") && given.word("arch", {"TN_only", "non_TN"}) == "TN_only" ? Arch::sm90 : Arch::sm100;
  out.stand_ins = true;
  return out;
}

json::Value buffers_shown(const StoragePtr& s) {
  if (!s) return {};
  json::Value out = json::object({{"class", s->class_name()}});
  if (const auto* h = dynamic_cast<const HybridStorage*>(s.get())) {
    out.set("row", buffers_shown(h->rowwise_storage));
    out.set("col", buffers_shown(h->columnwise_storage));
    return out;
  }
  for (const Field& f : s->fields()) {
    const ArrayPtr& a = *f.slot;
    out.set(f.name,
            a ? json::object({{"shape", shown(a->shape)}, {"dtype", name_of(a->dtype)}}) : json::Value());
  }
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get()))
    out.set("_transpose_invalid", fp8->transpose_invalid);
  return out;
}

std::vector<std::pair<string, ArrayPtr>> named_buffers(Storage& s) {
  constexpr std::pair<std::string_view, std::string_view> kChildren[] = {{"_rowwise_storage.", "row."},
                                                                         {"_columnwise_storage.", "col."}};
  std::vector<std::pair<string, ArrayPtr>> out;
  for (const Field& f : s.fields()) {
    if (!*f.slot) continue;
    string name = f.name;
    for (const auto& [from, to] : kChildren)
      if (name.starts_with(from)) name = string(to) + name.substr(from.size());
    out.emplace_back(std::move(name), *f.slot);
  }
  return out;
}

}  // namespace assay

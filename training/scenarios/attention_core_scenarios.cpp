// Attention's core as the subject computes it (N20): rows that are exact whatever the order of their sums.
#include <bit>
#include <cstring>
#include <string>

#include "contract/line.h"
#include "training/scenarios/common.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;

constexpr int64_t kDepth = 2;

uint16_t bf16_of(float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); }
float float_of(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }

// One head: q of one query, k and v of some keys, of bf16; the outputs of the line.
std::vector<PlaneData> attended(Session& session, const string& keys, const std::vector<float>& q,
                                const std::vector<float>& k, const std::vector<float>& v) {
  const Result<Problem> p = parse_line("attention fp8_delayed 1x" + std::to_string(kDepth) +
                                       " bf16 kv=" + std::to_string(k.size() / kDepth) + " " + keys);
  if (!p) throw std::logic_error(p.error().text());
  std::vector<PlaneData> inputs;
  for (Plane& plane : input_planes(*p)) {
    PlaneData data{std::move(plane), {}};
    data.bytes.resize(data.plane.bytes());
    const std::vector<float>* of = data.plane.name == "q"   ? &q
                                   : data.plane.name == "k" ? &k
                                   : data.plane.name == "v" ? &v
                                                            : nullptr;
    for (size_t i = 0; of && i < of->size(); ++i) {
      const uint16_t code = bf16_of((*of)[i]);
      std::memcpy(data.bytes.data() + 2 * i, &code, sizeof code);
    }
    if (data.plane.name.ends_with("given.scale")) {
      const assay::AttentionSlot slot =
          data.plane.name.starts_with("s.") ? assay::AttentionSlot::s : assay::AttentionSlot::qkv;
      std::memcpy(data.bytes.data(), &p->as<Attention>()->slot(slot).scale, sizeof(F32Bits));
    }
    inputs.push_back(std::move(data));
  }
  return session.run(*p, inputs);
}

// The values of a plane of bf16 as text.
string values_text(const std::vector<PlaneData>& planes, std::string_view name) {
  string out;
  const PlaneData& data = *find_plane(planes, name);
  for (size_t at = 0; at < data.bytes.size(); at += 2) {
    uint16_t code;
    std::memcpy(&code, data.bytes.data() + at, sizeof code);
    out += (out.empty() ? "" : " ") + std::to_string(float_of(code));
  }
  return out;
}
string repeated(float v, size_t count) {
  string out;
  for (size_t i = 0; i < count; ++i) out += (out.empty() ? "" : " ") + std::to_string(v);
  return out;
}

// Q = 0 over 2^k keys; then one key of logit 64 beside zeros.
void s116(ScenarioRun& run) {
  Session session = run.session();
  for (size_t keys = 1; keys <= 64; keys *= 2) {
    std::vector<float> k(keys * kDepth, 1), v;
    float mean = 0;
    for (size_t j = 0; j < keys; ++j) {
      const float value = static_cast<float>(j % 8) / 16;
      v.insert(v.end(), {value, -value});
      mean += value / static_cast<float>(keys);
    }
    const auto y = attended(session, "s.scale=256 qkv.scale=16", {0, 0}, k, v);
    run.about(std::to_string(keys) + " keys");
    run.expect_equal(values_text(y, "s"), repeated(1 / static_cast<float>(keys), keys), "probabilities");
    run.expect_equal(values_text(y, "o"), std::to_string(mean) + " " + std::to_string(0 - mean),
                     "O before its cast");
  }
  const auto y = attended(session, "softmax_scale=1", {8, 0}, {8, 0, 0, 0, 0, 0}, {0.5F, 1, 2, 3, 4, 5});
  run.about("one key of logit 64");
  run.expect_equal(values_text(y, "s"), repeated(1, 1) + " " + repeated(0, 2), "probabilities");
  run.expect_equal(values_text(y, "out"), std::to_string(0.5F) + " " + std::to_string(1.0F), "O");
}

const Scenario kScenarios[] = {
    {"S-116",
     "Exact rows",
     "Q = 0 over 2^k keys and a scale of S that is a power of two; one key of logit 64",
     "attention runs",
     "probabilities are 2^-k, or one-hot, and O is exact",
     s116,
     {}},
};

}  // namespace

std::span<const Scenario> attention_core_scenarios() { return kScenarios; }

}  // namespace assay::training

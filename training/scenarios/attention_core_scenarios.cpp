// Attention's core as the subject computes it (N20): rows that are exact whatever the order of their sums,
// and a fused kernel beside it.
#include <algorithm>
#include <bit>
#include <cmath>
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

// ---- S-127

// What a fused kernel makes of one query: keys two at a time, a running maximum, exponentials cast by the
// scale of S before they are divided by their sum; `forgets` that scale at the end.
std::vector<double> fused_row(const std::vector<double>& logits, const std::vector<float>& v, double scale,
                              bool forgets) {
  double most = -HUGE_VAL, total = 0;
  std::vector<double> acc(kDepth, 0);
  for (size_t first = 0; first < logits.size(); first += 2) {
    const size_t end = std::min(first + 2, logits.size());
    const double now = std::max(most, *std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(first),
                                                        logits.begin() + static_cast<std::ptrdiff_t>(end)));
    const double less = std::exp(most - now);
    total *= less;
    for (double& a : acc) a *= less;
    for (size_t j = first; j < end; ++j) {
      const double e = std::exp(logits[j] - now), step = std::ldexp(1.0, std::ilogb(e * scale) - 3);
      const double cast = std::nearbyint(e * scale / step) * step;
      total += e;
      for (size_t c = 0; c < acc.size(); ++c) acc[c] += cast * static_cast<double>(v[j * kDepth + c]);
    }
    most = now;
  }
  for (double& a : acc) a /= total * (forgets ? 1 : scale);
  return acc;
}

// The planes of the emulation beside a fused kernel's O: |O - O_E| <= 2 (2^-4 + 2^-8) sum S |V| + keys 2^-10
// max |V| / scale
// + 2^-8 |O|, with values of Q, K and V that their cast keeps.
bool inside(const std::vector<double>& fused, const std::vector<PlaneData>& planes,
            const std::vector<float>& v, double scale) {
  const PlaneData &o = *find_plane(planes, "o"), &s = *find_plane(planes, "s");
  const auto at = [](const PlaneData& p, size_t i) {
    uint16_t code;
    std::memcpy(&code, p.bytes.data() + 2 * i, sizeof code);
    return static_cast<double>(float_of(code));
  };
  const size_t keys = v.size() / kDepth;
  for (size_t c = 0; c < kDepth; ++c) {
    double weighted = 0, most = 0;
    for (size_t j = 0; j < keys; ++j) {
      const double x = std::fabs(static_cast<double>(v[j * kDepth + c]));
      weighted += at(s, j) * x, most = std::max(most, x);
    }
    const double bound = 2 * (0x1p-4 + 0x1p-8) * weighted +
                         static_cast<double>(keys) * 0x1p-10 / scale * most + 0x1p-8 * std::fabs(at(o, c));
    if (std::fabs(fused[c] - at(o, c)) > bound) return false;
  }
  return true;
}

void s127(ScenarioRun& run) {
  Session session = run.session();
  constexpr double kScale = 256;
  for (const size_t keys : {2, 5, 16, 33}) {
    run.about(std::to_string(keys) + " keys");
    const std::vector<float> q = {1, 0.5F};
    std::vector<float> k, v;
    std::vector<double> logits;
    for (size_t j = 0; j < keys; ++j) {  // eighths, which E4M3 has
      const float a = static_cast<float>(j * 7 % 9) / 4 - 1, b = static_cast<float>(j * 5 % 8) / 8;
      k.insert(k.end(), {a, b});
      v.insert(v.end(), {1 + b, 2 - b});
      logits.push_back(static_cast<double>(a + b / 2));
    }
    const auto y = attended(session, "softmax_scale=1 qkv.scale=8 s.scale=256 o.scale=16", q, k, v);
    const Result<Problem> cast =
        parse_line("quantize fp8_delayed " + std::to_string(1 + 2 * keys) + "x2 bf16 dir=row row.scale=8");
    if (!cast) throw std::logic_error(cast.error().text());
    std::vector<PlaneData> inputs;
    for (Plane& plane : input_planes(*cast)) {
      PlaneData data{std::move(plane), {}};
      data.bytes.resize(data.plane.bytes());
      if (data.plane.name == "x") {
        std::vector<float> all = q;
        all.insert(all.end(), k.begin(), k.end());
        all.insert(all.end(), v.begin(), v.end());
        for (size_t i = 0; i < all.size(); ++i) {
          const uint16_t code = bf16_of(all[i]);
          std::memcpy(data.bytes.data() + 2 * i, &code, sizeof code);
        }
      } else if (data.plane.name.ends_with("given.scale")) {
        std::memcpy(data.bytes.data(), &cast->row->scale, sizeof(F32Bits));
      }
      inputs.push_back(std::move(data));
    }
    run.expect(find_plane(session.run(*cast, inputs), "row.data")->bytes == find_plane(y, "qkv.data")->bytes,
               "the cast of Q, K and V is that of the quantizer, bit for bit");
    run.expect(inside(fused_row(logits, v, kScale, false), y, v, kScale), "a fused O lies inside the bound");
    run.expect(!inside(fused_row(logits, v, kScale, true), y, v, kScale),
               "one that forgot the scale of S lies outside");
  }
}

const Scenario kScenarios[] = {
    {"S-127",
     "A fused kernel beside the emulation",
     "one query over 2 to 33 keys, and O by tiles with a running maximum and exponentials cast before their "
     "division",
     "attention runs",
     "Q, K and V are cast bit for bit, and O of the fused kernel lies inside the bound; without the scale of "
     "S it does "
     "not",
     s127,
     {}},
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

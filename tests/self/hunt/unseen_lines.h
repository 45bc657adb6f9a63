// The lines that unseen_plugin.cpp runs: their words, and which values it knows.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/self/hunt/unseen_codes.h"

namespace unseen {

using Words = std::map<std::string, std::string>;

struct Line {
  std::string op, format, source;
  Words words;
  explicit Line(const char* text) {
    std::vector<std::string> all;
    for (const char* at = text; *at;) {
      const size_t n = std::strcspn(at, " ");
      if (n) all.emplace_back(at, n);
      at += n;
      at += std::strspn(at, " ");
    }
    if (all.size() > 0) op = all[0];
    if (all.size() > 1) format = all[1];
    if (all.size() > 3) source = all[3];
    for (size_t i = 4; i < all.size(); ++i) {
      const size_t eq = all[i].find('=');
      words[all[i].substr(0, eq)] = eq == std::string::npos ? "" : all[i].substr(eq + 1);
    }
  }
  std::string get(const std::string& key, const std::string& direction = "row") const {
    auto it = words.find(direction + "." + key);
    if (it == words.end()) it = words.find(key);
    return it == words.end() ? "" : it->second;
  }
  bool has(const std::string& direction) const { return get("dir") == "both" || get("dir") == direction; }
  float real(const std::string& key, const std::string& direction) const {
    const std::string word = get(key, direction);
    if (word.rfind("0x", 0) == 0) {
      return number(static_cast<u32>(std::strtoul(word.c_str(), nullptr, 16)));
    }
    return std::strtof(word.c_str(), nullptr);
  }
};

inline const std::map<std::string, std::set<std::string>>* known(const std::string& op,
                                                                 const std::string& format) {
  using T = std::map<std::string, std::set<std::string>>;
  // An empty set: any value.
  static const T common{{"dir", {}},
                        {"flavour", {}},
                        {"arch", {}},
                        {"dispatch", {}},
                        {"fill", {}},
                        {"seed", {}},
                        {"at", {}},
                        {"col_source", {"original"}},
                        {"noop", {"none"}},
                        {"scale_from", {"x"}},
                        {"element", {"e4m3", "e5m2"}},
                        {"element_ties", {"even"}},
                        {"pre_round", {"none"}},
                        {"element_overflow", {"saturate"}},
                        {"zero_amax", {"guarded"}},
                        {"nan_code", {"positive"}},
                        {"scales", {"compact", "gemm"}},
                        {"neg_zero", {"keep", "plus"}},
                        {"role", {}},
                        {"recipe", {}}};
  auto with = [&](T more) {
    more.insert(common.begin(), common.end());
    return more;
  };
  static const std::map<std::string, T> tables{
      {"quantize mxfp8", with({{"block", {"1x32", "32x32"}},
                               {"nan_amax", {"ignore", "propagate"}},
                               {"mx_scale", {"up", "floor"}},
                               {"mx_inf", {"max", "nan"}}})},
      {"quantize fp8_current", with({{"row_scaled", {"0", "1"}},
                                     {"pow2", {"0", "1"}},
                                     {"eps", {}},
                                     {"amax", {}},
                                     {"inf_amax", {"unit", "zero"}},
                                     {"scale_limit", {"f32_max", "source_max"}},
                                     {"scale_order", {"encode_first"}},
                                     {"scale_division", {"divide"}}})},
      {"quantize fp8_block", with({{"block", {"1x128", "128x128"}},
                                   {"pow2", {"0", "1"}},
                                   {"eps", {}},
                                   {"inf_amax", {"unit", "zero"}},
                                   {"scale_limit", {"f32_max", "source_max"}},
                                   {"scale_order", {"encode_first"}},
                                   {"scale_division", {"divide"}}})},
      {"quantize nvfp4", with({{"block", {"1x16", "16x16"}},
                               {"round", {"rne", "sr"}},
                               {"rht", {"0", "1"}},
                               {"sign_mask", {}},
                               {"rht_sum", {"butterfly"}},
                               {"row_scaled", {"0", "1"}},
                               {"four_over_six", {"off"}},
                               {"amax", {}},
                               {"nan_amax", {"ignore", "propagate"}},
                               {"inf_amax", {"unit", "zero"}},
                               {"nan_tensor_amax", {"clamp", "unit"}},
                               {"nan_clamp", {"drop"}},
                               {"multiplier", {"reciprocal"}},
                               {"scale_division", {"divide"}},
                               {"nvfp4_scale", {"folded"}},
                               {"nvfp4_floor", {"none"}},
                               {"zero_multiplier", {"limit"}},
                               {"scale_round", {"rne"}},
                               {"sr_rule", {"integer"}},
                               {"sr_bytes", {"ascending"}},
                               {"draw", {"logical"}},
                               {"rng", {}}})},
      {"dequantize mxfp8", with({{"out", {}}, {"input", {}}, {"block", {}}})},
      {"dequantize fp8_current", with({{"out", {}}, {"input", {}}, {"row_scaled", {}}})},
      {"dequantize fp8_block", with({{"out", {}}, {"input", {}}, {"block", {}}})},
      {"dequantize nvfp4",
       with({{"out", {}}, {"input", {}}, {"block", {}}, {"row_scaled", {}}, {"four_over_six", {"off"}}})},
  };
  const auto it = tables.find(op + " " + format);
  return it == tables.end() ? nullptr : &it->second;
}

}  // namespace unseen

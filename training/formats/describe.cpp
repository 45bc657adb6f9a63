#include "training/formats/describe.h"

#include <algorithm>
#include <bit>
#include <cctype>

namespace assay::training {

json::Value described(const Quantizer& q,
                      std::initializer_list<std::pair<std::string_view, json::Value>> own) {
  json::Value out = json::object({{"class", q.class_name()},
                                  {"columnwise_usage", q.columnwise_usage},
                                  {"internal", q.internal},
                                  {"optimize_for_gemm", q.optimize_for_gemm},
                                  {"rowwise_usage", q.rowwise_usage}});
  for (const auto& [name, value] : own) out.set(name, value);
  return out;
}

json::Value shown_f32(F32Bits bits) { return static_cast<double>(std::bit_cast<float>(bits)); }
json::Value shown_dtype(Encoding e) { return upper(info(e).name); }
json::Value shown_group(const GroupPtr& group) { return group ? json::Value(group->name) : json::Value(); }

std::string upper(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

}  // namespace assay::training

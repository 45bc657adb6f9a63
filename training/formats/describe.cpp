#include "training/formats/describe.h"

#include <bit>

#include "contract/words.h"

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

}  // namespace assay::training

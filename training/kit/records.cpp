#include "training/kit/records.h"

namespace assay::training {

std::vector<const GemmRecord*> gemms_of(const StepRecord& r, std::string_view kind) {
  std::vector<const GemmRecord*> out;
  for (const GemmRecord& g : r.gemms)
    if (g.name.find(kind) != std::string::npos) out.push_back(&g);
  return out;
}

ArrayPtr output_of(const StepRecord& r, std::string_view name) {
  for (const NamedArray& o : r.outputs)
    if (o.name == name) return o.array;
  return nullptr;
}

ArrayPtr result_of(const StepRecord& r, std::string_view gemm) {
  for (const GemmRecord& g : r.gemms)
    if (g.name == gemm) return g.out;
  return nullptr;
}

std::string to_text(const Collective& c) { return c.what + " of " + c.who + " over " + c.group; }

std::string to_text(const CacheEvent& e) { return e.weight + " " + e.what; }

}  // namespace assay::training

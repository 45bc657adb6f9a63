#include <stdexcept>

#include "fast/subject_gpu.h"

namespace assay {
namespace {

class AbsentGpu final : public Subject {
 public:
  std::string_view name() const override { return "gpu"; }
  Support present() const override { return {false, "this program was built without CUDA"}; }
  Support supports(const Problem&) const override { return present(); }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer>,
             const Environment&) override {
    throw std::runtime_error(present().why);
  }
};

}  // namespace

std::unique_ptr<Subject> make_gpu_subject() { return std::make_unique<AbsentGpu>(); }

}  // namespace assay

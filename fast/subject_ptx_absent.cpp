#include <stdexcept>

#include "fast/subject_ptx.h"

namespace assay {
namespace {

class AbsentPtx final : public Subject {
 public:
  std::string_view name() const override { return "ptx"; }
  Support present() const override {
    return {false,
            "this program was built without nvcc, which makes the PTX of the kernels: build the preset cuda"};
  }
  Support supports(const Problem&) const override { return present(); }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer>,
             const Environment&) override {
    throw std::runtime_error(present().why);
  }
};

}  // namespace

std::unique_ptr<Subject> make_ptx_subject() { return std::make_unique<AbsentPtx>(); }

}  // namespace assay

#include <stdexcept>

#include "fast/subject_cublaslt.h"

namespace assay {
namespace {

class AbsentCublasLt final : public Subject {
 public:
  std::string_view name() const override { return "cublaslt"; }
  Support present() const override { return {false, "this program was built without cuBLASLt"}; }
  Support supports(const Problem&) const override { return present(); }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer>,
             const Environment&) override {
    throw std::runtime_error(present().why);
  }
};

}  // namespace

std::unique_ptr<Subject> make_cublaslt_subject() { return std::make_unique<AbsentCublasLt>(); }

}  // namespace assay

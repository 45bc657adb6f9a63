// A subject that this program was built without. It supports no line, and says what was missing at the build.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "contract/subject.h"

namespace assay {

class AbsentSubject final : public Subject {
 public:
  AbsentSubject(std::string name, std::string why) : name_(std::move(name)), why_(std::move(why)) {}

  std::string_view name() const override { return name_; }
  Support present() const override { return {false, why_}; }
  Support supports(const Problem&) const override { return present(); }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer>,
             const Environment&) override {
    throw std::runtime_error(why_);
  }

 private:
  std::string name_, why_;
};

}  // namespace assay

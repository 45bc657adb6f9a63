// A subject that counts what ran on it, for the statistics of a training case.
#pragma once
#include <atomic>

#include <fmt/format.h>

#include "compare/judge/verdict.h"
#include "compare/subjects/forwarding.h"

namespace assay {

class CountingSubject final : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& environment) override {
    const Served served = ForwardingSubject::run(p, inputs, outputs, environment);
    ++problems_;
    launches_ += served.launches;
    return served;
  }
  // Into the verdict's statistics.
  void report(Verdict& v) const {
    v.launches = launches_.load();
    v.witness += fmt::format(", {} Problems", problems_.load());
  }

 private:
  std::atomic<int> problems_ = 0, launches_ = 0;  // ranks run in threads
};

}  // namespace assay

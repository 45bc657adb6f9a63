// A subject that is the reference but for one fault, for tests of what looks at failures.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "compare/process/guarded_run.h"
#include "contract/line.h"
#include "fast/subject_host.h"
#include "reference/subject.h"

namespace assay {

// What the fault does to the outputs of a right run.
using Fault = std::function<void(const Problem&, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs)>;

class FaultySubject : public Subject {
 public:
  explicit FaultySubject(Fault fault) : right_(make_reference_subject()), fault_(std::move(fault)) {}
  std::string_view name() const override { return "faulty"; }
  Support supports(const Problem& p) const override { return right_->supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment& env) override {
    const Served served = right_->run(p, inputs, outputs, env);
    fault_(p, inputs, outputs);
    return served;
  }
  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d, int64_t r, int64_t c) override { return right_->trace(p, inputs, d, r, c); }

 private:
  std::unique_ptr<Subject> right_;
  Fault fault_;
};

// reference, host, and "faulty".
inline Subjects with_fault(Fault fault) {
  Subjects s;
  s.owned.push_back(make_reference_subject());
  s.owned.push_back(make_host_subject());
  s.owned.push_back(std::make_unique<FaultySubject>(std::move(fault)));
  return s;
}
inline void no_fault(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer>) {}

inline Problem line(const std::string& text) {
  auto p = parse_line(text);
  if (!p) throw std::runtime_error(text + ": " + p.error().text());
  return *p;
}

}  // namespace assay

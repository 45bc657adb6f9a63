// A subject that is the reference but for one fault, for tests of what looks at failures.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "compare/process/guarded_run.h"
#include "compare/subjects/forwarding.h"
#include "contract/line.h"
#include "fast/subject_host.h"
#include "reference/subject.h"

namespace assay {

// What the fault does to the outputs of a right run.
using Fault =
    std::function<void(const Problem&, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs)>;

class FaultySubject : public ForwardingSubject {
 public:
  explicit FaultySubject(Fault fault)
      : ForwardingSubject(make_reference_subject(), "faulty"), fault_(std::move(fault)) {}
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    const Served served = ForwardingSubject::run(p, inputs, outputs, env);
    fault_(p, inputs, outputs);
    return served;
  }

 private:
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

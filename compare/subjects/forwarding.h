// A Subject that asks another one: the base of those that count, change or lend what the other does.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/subject.h"

namespace assay {

// Passes every call on; a class made from it overrides what it does differently. It has the other's name
// where none is given.
class ForwardingSubject : public Subject {
 public:
  // `subject` must outlive this.
  explicit ForwardingSubject(Subject& subject) : subject_(subject) {}
  ForwardingSubject(std::unique_ptr<Subject> subject, std::string name)
      : owned_(std::move(subject)), subject_(*owned_), name_(std::move(name)) {}

  std::string_view name() const override { return name_.empty() ? subject_.name() : std::string_view(name_); }
  std::string argument() const override { return name_.empty() ? subject_.argument() : Subject::argument(); }
  Support present() const override { return subject_.present(); }
  Support supports(const Problem& p) const override { return subject_.supports(p); }
  std::string own_words() const override { return subject_.own_words(); }
  std::optional<std::string> unpinned(const Problem& p) const override { return subject_.unpinned(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& environment) override {
    return subject_.run(p, inputs, outputs, environment);
  }
  void prepare(const Problem& p, std::span<const ConstBuffer> inputs, std::span<std::byte> x) override {
    subject_.prepare(p, inputs, x);
  }
  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d,
                               int64_t row, int64_t col) override {
    return subject_.trace(p, inputs, d, row, col);
  }
  std::vector<SliceStep> slice(const Problem& p, std::span<const ConstBuffer> inputs, std::string_view plane,
                               size_t bit, size_t bits, const Environment& environment) override {
    return subject_.slice(p, inputs, plane, bit, bits, environment);
  }
  bool interprets() const override { return subject_.interprets(); }
  std::vector<LaunchCounts> count(const Problem& p, std::span<const ConstBuffer> inputs,
                                  const Environment& environment) override {
    return subject_.count(p, inputs, environment);
  }
  std::vector<std::chrono::nanoseconds> time(const Problem& p, std::span<const ConstBuffer> inputs,
                                             int repeats, bool cold) override {
    return subject_.time(p, inputs, repeats, cold);
  }

 private:
  std::unique_ptr<Subject> owned_;
  Subject& subject_;
  std::string name_;
};

}  // namespace assay

// Subjects that misbehave in one known way each; for what they do not spoil they ask the reference. All run
// on one OS thread: these tests fork workers out of a process that has run subjects itself, and OpenMP's
// threads do not survive a fork.
#pragma once
#include <unistd.h>
#include <csignal>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "compare/process/guarded_run.h"
#include "compare/subjects/forwarding.h"
#include "contract/line.h"
#include "reference/subject.h"

namespace assay::fakes {

// Runs the reference, then `spoil` on the outputs.
class Spoiled final : public ForwardingSubject {
 public:
  using Spoil = std::function<void(const Problem&, std::span<const Buffer>, const Environment&)>;
  Spoiled(std::string name, Spoil spoil)
      : ForwardingSubject(make_reference_subject(), std::move(name)), spoil_(std::move(spoil)) {}
  Support present() const override { return present_; }
  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out,
             const Environment& env) override {
    Environment alone = env;
    alone.threads = 1;
    ForwardingSubject::run(p, in, out, alone);
    if (spoil_) spoil_(p, out, env);
    return {"fake", 1};
  }
  Support present_;

 private:
  Spoil spoil_;
};

inline Subjects with(std::string name, Spoiled::Spoil spoil) {
  Subjects s;
  s.owned.push_back(std::make_unique<Spoiled>("reference", nullptr));
  s.owned.push_back(std::make_unique<Spoiled>(std::move(name), std::move(spoil)));
  return s;
}

// The reference as a GPU would be: its driver serves the process that first asked it for anything, and none
// that this one has forked since. With a fault, the first byte of its last output is wrong.
class OnAGpu final : public ForwardingSubject {
 public:
  explicit OnAGpu(bool faulty) : ForwardingSubject(make_reference_subject(), "gpu"), faulty_(faulty) {}
  Support present() const override {
    asked();
    return {};
  }
  Support supports(const Problem& p) const override {
    asked();
    return ForwardingSubject::supports(p);
  }
  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out,
             const Environment& env) override {
    asked();
    Environment alone = env;
    alone.threads = 1;
    const Served served = ForwardingSubject::run(p, in, out, alone);
    if (faulty_ && !out.back().bytes.empty()) out.back().bytes[0] ^= std::byte{1};
    return served;
  }

 private:
  void asked() const {
    if (started_ == 0) started_ = ::getpid();
    if (started_ != ::getpid()) throw std::runtime_error("initialization error");
  }
  bool faulty_;
  mutable pid_t started_ = 0;
};

inline Subjects on_a_gpu(bool faulty = false) {
  Subjects s;
  s.owned.push_back(std::make_unique<Spoiled>("reference", nullptr));
  s.owned.push_back(std::make_unique<OnAGpu>(faulty));
  return s;
}

inline Problem problem(const std::string& line) {
  Result<Problem> p = parse_line(line);
  if (!p) throw std::runtime_error(line + ": " + p.error().text());
  return *p;
}

// The output of this name. Claims run further lines, of one direction say, which lack some planes: what is
// spoiled there is thrown away.
inline const Buffer* output(std::span<const Buffer> out, std::string_view name) {
  static std::vector<std::byte> scratch(1 << 20);
  static const Buffer discarded{nullptr, scratch};
  const Buffer* found = find<Buffer>(out, name);
  return found ? found : &discarded;
}

}  // namespace assay::fakes

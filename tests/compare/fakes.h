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

inline Problem problem(const std::string& line) {
  Result<Problem> p = parse_line(line);
  if (!p) throw std::runtime_error(line + ": " + p.error().text());
  return *p;
}

// The output of this name. Claims run further lines, of one direction say, which lack some planes: what is
// spoiled there is nobody's.
inline const Buffer* output(std::span<const Buffer> out, std::string_view name) {
  static std::vector<std::byte> scratch(1 << 20);
  static const Buffer nobodys{nullptr, scratch};
  const Buffer* found = find<Buffer>(out, name);
  return found ? found : &nobodys;
}

}  // namespace assay::fakes

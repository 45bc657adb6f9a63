// A subject in whose run Ctrl-C comes: what a command makes of it must be true.
#pragma once
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "compare/process/guarded_run.h"
#include "compare/subjects/forwarding.h"
#include "reference/subject.h"

namespace assay::fakes {

// The reference, or another subject. Its n-th run, in whichever process that is, sends the process of the
// test a real SIGINT, and ends no more where it is in a worker. Later runs are as the first ones.
class Interrupting final : public ForwardingSubject {
 public:
  Interrupting(std::string name, int n, std::unique_ptr<Subject> of = make_reference_subject())
      : ForwardingSubject(std::move(of), std::move(name)),
        runs_(new (::mmap(nullptr, sizeof *runs_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                  std::atomic<int>(0)),
        n_(n) {}
  ~Interrupting() override { ::munmap(runs_, sizeof *runs_); }
  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out,
             const Environment& env) override {
    if (counted(p) && ++*runs_ == n_) {
      ::kill(test_, SIGINT);
      while (::getpid() != test_) ::pause();
    }
    Environment alone = env;
    alone.threads = 1;  // threads do not survive a fork, and these tests fork after a run
    return ForwardingSubject::run(p, in, out, alone);
  }
  int runs() const { return *runs_; }  // that were begun
  std::function<bool(const Problem&)> counted = [](const Problem&) {
    return true;
  };  // which runs are counted

 private:
  const pid_t test_ = ::getpid();
  std::atomic<int>* runs_;  // of all processes together
  int n_;
};

}  // namespace assay::fakes

// Which functions of a module a kernel may come to, which of them call themselves, and whose addresses are
// taken (9.7.12.5).
#pragma once
#include <map>
#include <set>
#include <vector>

namespace assay::ptx {

class Module;
struct Entry;
struct Function;

class CallGraph {
 public:
  // Reads the bodies of the entry and of all functions, without understanding them.
  CallGraph(const Module&, const Entry&);
  // Functions that the entry may reach and that may be called again before they return. A call through a
  // register may reach every function whose address is taken.
  const std::set<const Function*>& recursive() const { return recursive_; }
  // Functions with a body whose address the entry, a function or a variable takes.
  const std::set<const Function*>& taken() const { return taken_; }

 private:
  struct Named {
    std::set<const Function*> called;
    bool through_register = false;
  };
  Named read(const Module&, size_t at, unsigned line);
  std::set<const Function*> reached_from(const Named&) const;
  std::map<const Function*, Named> named_;
  std::set<const Function*> taken_, recursive_;
};

}  // namespace assay::ptx

// Scenarios: behaviours of the semantic layer, each stated as given, when and then, and run as code on any
// Subject. `assay list scenarios` prints them all.
//
//   assay run S-21            one of them          assay run scenarios        all
//
// A scenario makes Sessions, drives training/, and expects. What does not hold is noted with what was
// expected and found, and the run goes on, so that one report shows everything. A scenario that expects
// nothing is mistrusted, not passed.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/errors.h"
#include "training/base/session.h"
#include "training/formats/storage.h"

namespace assay::training {

// One expectation that does not hold.
struct Unmet {
  std::string what;             // "columns of H(MX|NVFP4), 48x80 bf16: _columnwise_data"
  std::string expected, found;  // one line each
};

class ScenarioRun {
 public:
  // Both subjects outlive the run. They may be the same one.
  ScenarioRun(Subject& subject, Subject& reference, Environment environment)
      : subject(subject), reference(reference), environment(environment) {}

  Subject& subject;    // what is judged
  Subject& reference;  // what its bytes are held to, where a scenario says so
  Environment environment;

  // A new process on the judged subject; `on` another one.
  Session session(Arch arch = Arch::sm100) const { return session_on(subject, arch); }
  Session session_on(Subject& on, Arch arch = Arch::sm100) const;

  // Says what the following expectations are about; prefixes their `what`.
  void about(std::string context) { context_ = std::move(context); }
  // Each returns whether it holds.
  bool expect(bool holds, std::string_view what, std::string expected = "true", std::string found = "false");
  bool expect_equal(int64_t got, int64_t want, std::string_view what);
  bool expect_equal(std::string_view got, std::string_view want, std::string_view what);
  bool expect_equal(const std::string& got, std::string_view want, std::string_view what) {
    return expect_equal(std::string_view(got), want, what);
  }
  bool expect_equal(const std::vector<std::string>& got, const std::vector<std::string>& want,
                    std::string_view what);
  bool expect_equal(const json::Value& got, const json::Value& want, std::string_view what);
  // Bit for bit: presence, dtype, shape and bytes. Two absent ones are equal.
  bool expect_equal(const ArrayPtr& got, const ArrayPtr& want, std::string_view what);
  // Every buffer, by name; hybrids by direction. Flags and class too.
  bool expect_equal(Storage& got, Storage& want, std::string_view what);
  bool expect_different(const ArrayPtr& got, const ArrayPtr& other, std::string_view what);
  // `work` must throw a SemanticError of this class (or one derived from it) whose text holds every one of
  // `mentions`.
  bool expect_error(ErrorClass want, std::string_view what, const std::function<void()>& work,
                    std::initializer_list<std::string_view> mentions = {});

  int64_t expectations() const { return expectations_; }
  int64_t bytes_compared() const { return bytes_; }
  const std::vector<Unmet>& unmet() const { return unmet_; }

 private:
  bool note(bool holds, std::string_view what, std::string expected, std::string found);
  std::string context_;
  int64_t expectations_ = 0, bytes_ = 0;
  std::vector<Unmet> unmet_;
};

struct Scenario {
  std::string_view id;     // "S-21"
  std::string_view title;  // "Same-format hybrid equals vanilla"
  std::string_view given, when, then;
  void (*run)(ScenarioRun&);     // null: unsupported
  std::string_view unsupported;  // why; empty where run is set
  int ranks = 1;  // the most that it runs at once (training/base/ranks.h); another number fails
};

// All, by number. Built from the tables of training/scenarios/.
const std::vector<Scenario>& scenarios();
const Scenario* find_scenario(std::string_view id);

}  // namespace assay::training

// The search for what made the bytes of one direction: stage by stage, from what says most of other tensors to what says least (docs/debugging-a-divergence.md). Each stage runs only where
// those before it found nothing exact; what is tried is screened on samples and then held to every byte. All limits are counts. For diagnose() alone.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/search/evidence.h"
#include "compare/diagnosis/patterns/layouts.h"

namespace assay::cause {

struct Found {
  std::vector<Candidate> candidates;       // exact ones first, then the runners-up by agreement
  Ids unseen;                              // that change nothing in the samples
  std::vector<std::string> under_scales;   // what holds of the codes under the scales that came
};

class Search {
 public:
  // `elsewhere`: what was found in the other direction, which is tried first where it was fitted.
  Search(Evidence& evidence, std::optional<Direction> d, const std::vector<Candidate>& elsewhere);
  Found run();

 private:
  // The stages, in order.
  void try_singles();
  void try_wide();
  void try_layouts();
  void try_map();
  void try_places();
  void try_regions();
  void try_named_sets();
  void try_displaced();
  void try_pairs();
  void try_tensor_values();
  void judge_codes_under_scales();
  void add_runners_up();

  // What they are made of.
  std::vector<Sample> sampled(int64_t elements, bool leading = false) const;
  std::vector<Candidate> screen(const std::vector<Ids>& list) const;
  std::vector<Candidate> screen(const std::vector<Sample>& samples, const std::vector<Ids>& list) const;
  void confirm(std::vector<Candidate>& candidates) const;
  std::vector<Candidate> exact_of(std::vector<Candidate> screened, size_t most) const;
  std::vector<Candidate> exact_of_ids(const std::vector<std::string>& ids, size_t most);
  std::vector<Ids> library(const std::function<bool(const Hypothesis&)>& wanted) const;
  const Hypothesis* known(const Candidate& c) const;
  void rank(std::vector<Candidate>& list) const;
  bool unexplained() const { return exact_.empty(); }
  bool whole_is_large() const;

  // Layouts.
  std::map<std::string, std::string> find_layouts();
  std::string add_layout(LaneState& lane, const Judged& j, const LayoutFit& fit) const;

  Evidence& evidence_;
  const std::optional<Direction> d_;
  const std::vector<Candidate>& elsewhere_;
  std::vector<LaneState*> bad_;            // lanes of this direction that differ
  std::vector<Sample> samples_;
  std::vector<Sample> prefix_;             // of long ones a short beginning; else empty
  std::vector<Candidate> singles_;         // that change something, the best first
  std::vector<Candidate> exact_;
  Ids alternatives_;                       // to the layouts that were found, exact as well
  Found found_;
};

// Layouts that make got of want; where codes are so few that none can be searched for, those known by name that make every byte.
std::vector<LayoutFit> layouts_between(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want);

}  // namespace assay::cause

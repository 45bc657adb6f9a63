// Holding hypotheses to the lanes of one direction that differ: on samples first, and then on every byte.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/search/fits.h"
#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

inline constexpr int64_t kSampleElements = 4096;

size_t elements_of(const std::vector<Sample>& samples);
void sort_by_loss(std::vector<Candidate>& list);

class Screening {
 public:
  Screening(JudgedCase& judged_case, std::optional<Direction> d);

  const std::vector<JudgedLane*>& lanes() const { return lanes_; }  // of this direction that differ
  const JudgedCase& of() const { return case_; }
  // The same of the bytes as they stand now, for a search within a search.
  Screening anew() const { return {case_, direction_}; }
  bool whole_is_large() const;
  bool can_sample() const { return !samples_.empty(); }
  const std::vector<Sample>& samples() const { return samples_; }
  bool is_long() const {
    return !prefix_.empty();
  }  // samples have to be long, and a beginning of them is tried first

  // Samples of up to three lanes: the first, the last, one between.
  std::vector<Sample> sampled(int64_t elements, bool leading = false) const;
  // How these fit the samples; those that do not apply are left out.
  std::vector<Candidate> screen(const std::vector<Ids>& list) const;
  std::vector<Candidate> screen(const std::vector<Sample>& samples, const std::vector<Ids>& list) const;
  // How these fit everything in the lanes that differ.
  void confirm(std::vector<Candidate>& candidates) const;
  // Of those that the samples leave, at most so many that make every byte.
  std::vector<Candidate> exact_of(std::vector<Candidate> screened, size_t most) const;
  // The same of rows that are known by name alone.
  std::vector<Candidate> exact_of_ids(const std::vector<std::string>& ids, size_t most);

  // Rows of the library, of the first lane.
  std::vector<Ids> library(const std::function<bool(const Hypothesis&)>& wanted) const;
  // The row of a candidate that is one cause which samples can show; nothing for any other candidate.
  const Hypothesis* known(const Candidate& c) const;

 private:
  JudgedCase& case_;
  const std::optional<Direction> direction_;
  std::vector<JudgedLane*> lanes_;
  std::vector<Sample> samples_;
  std::vector<Sample> prefix_;  // of long ones a short beginning; else empty
};

}  // namespace assay::cause

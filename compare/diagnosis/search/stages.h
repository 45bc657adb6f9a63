// The stages of the search, and what they work on. Each adds to what is exact, or to the singles.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/search/screening.h"

namespace assay::cause {

struct SearchState {
  Screening screening;
  const std::optional<Direction> direction;
  const std::vector<Candidate>& elsewhere;  // what was found in the other direction
  std::vector<Candidate> singles = {};      // that change something, the best first
  std::vector<Candidate> exact = {};
  Ids unseen = {};  // that change nothing in the samples
  std::vector<std::string> under_scales = {};

  bool unexplained() const { return exact.empty(); }
  const std::vector<JudgedLane*>& bad() const { return screening.lanes(); }
};

// library_stages.cpp: rows of the library, sets of them that have a name, and pairs.
void try_singles(SearchState& s);
void try_wide(SearchState& s);
void try_named_sets(SearchState& s);
void try_pairs(SearchState& s);

// residual_pairs.cpp: a second cause where a first one leaves something.
void try_residuals(SearchState& s);

// layout_stages.cpp: things that stand elsewhere, alone or under a single cause.
void try_layouts(SearchState& s);
void try_displaced(SearchState& s);

// fitted_stages.cpp: causes that are no rows of the library but fitted to the bytes that came.
void try_code_map(SearchState& s);
void try_places(SearchState& s);
void try_regions(SearchState& s);
void try_tensor_values(SearchState& s);

// fitted_factors.cpp: codes or scales of blocks that were made with another scale than the stored one.
void try_factors(SearchState& s);

// flip_stages.cpp: one scale for everything; few flipped bits, which no rule makes.
void try_constant_scales(SearchState& s);
void try_flips(SearchState& s);

// region_stages.cpp: regions that carry what belongs to other regions.
void try_moved_regions(SearchState& s);
void try_regions_under(SearchState& s);  // ... of the codes that a single cause makes

// codes_under_scales.cpp: N17.12, what made the codes where nothing explains the scales.
void judge_codes_under_scales(SearchState& s);

}  // namespace assay::cause

// The amaxes that NVFP4 goes by (N10.1), given or found by a pass over x. Defined in fast/formats/nvfp4.cu.
#pragma once
#include "fast/scratch.h"
#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// What is found stands in memory of its own: outputs may not be cleared before `noop` is known. The kernel
// that encodes stores it in them (Nvfp4Target::store_amax).
class Nvfp4Amaxes {
 public:
  explicit Nvfp4Amaxes(const Job&);

  // Whether some direction's is not given.
  bool computed() const { return raised_[0] != nullptr || raised_[1] != nullptr; }
  // Where a direction's is read, and where it is raised: null there where it is given, or none is needed.
  const uint32_t* of(Direction d) const { return amax_[index(d)]; }
  uint32_t* raised(Direction d) const { return raised_[index(d)]; }
  // Raises those that are computed to the amax of x.
  void find(const Job&) const;
  // Stores zeros in the outputs of a tensor without elements, for which no kernel encodes.
  static void store_for_nothing(const Job&);

 private:
  static int index(Direction d) { return d == Direction::row ? 0 : 1; }

  Scratch found_;
  const uint32_t* amax_[2] = {};
  uint32_t* raised_[2] = {};
};

}  // namespace assay::ASSAY_FAST_NAMESPACE

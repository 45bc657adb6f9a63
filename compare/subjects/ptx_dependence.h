// Whether what a kernel from PTX gives depends on what a GPU may do in another way: products and sums that
// ptxas may fuse, and the last bits of approximate functions. The kernel is run again with each of them
// changed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fast/ptx/contraction.h"
#include "fast/ptx/counters.h"

namespace assay {

// The pairs of each kernel that are fused in a run (contraction.h), by its text and its entry.
using KernelName = std::pair<std::string, std::string>;
using Fused = std::map<KernelName, std::vector<ptx::Contraction>>;

// How a run differs from the first: what is fused, and how approximate results are moved (ptx::RunOptions).
struct PtxChange {
  Fused fused;
  uint64_t perturb = 0;
  uint32_t perturb_line = 0;
};
// What it gave: the same bytes, or others, or the error with which it ended.
struct PtxRerun {
  bool same = false;
  std::string failure;
};
using RunAgain = std::function<PtxRerun(const PtxChange&)>;

struct LaunchedKernel {
  KernelName name;
  const ptx::Kernel* kernel = nullptr;
};

// "; independent of contraction (3 pairs)", or "; depends on contraction at " and the pair; with the products
// that were not tried. Empty where there is nothing to fuse.
std::string depends_on_contraction(std::span<const LaunchedKernel>, const RunAgain&);
// The same of approximate functions, and whether an H100's results of those that are known give the same
// bytes. Empty where none was carried out, as `counters` of the first run tell.
std::string depends_on_approximation(std::span<const LaunchedKernel>, const ptx::Counters& counters,
                                     const RunAgain&);

}  // namespace assay

#include "compare/subjects/ptx_dependence.h"

#include "fast/ptx/other_results.h"
#include "fast/ptx/run.h"

namespace assay {

namespace {

// The error of a changed run is not the kernel's own.
std::string told(const PtxRerun& changed) {
  return changed.failure.empty() ? "" : ", with which it fails: " + changed.failure;
}

std::string fused_or_not(std::span<const LaunchedKernel> kernels, const Fused& all, size_t pairs,
                         const RunAgain& again) {
  if (pairs == 0) return "";
  if (again({all}).same) return "; independent of contraction (" + std::to_string(pairs) + " pairs)";
  for (const LaunchedKernel& l : kernels)
    for (const ptx::Contraction& one : all.at(l.name))
      if (const PtxRerun changed = again({{{l.name, {one}}}}); !changed.same)
        return "; depends on contraction at " + to_text(*l.kernel, one) + told(changed);
  return "; depends on contraction of several of its " + std::to_string(pairs) + " pairs";
}

}  // namespace

std::string depends_on_contraction(std::span<const LaunchedKernel> kernels, const RunAgain& again) {
  Fused all;
  size_t pairs = 0, untried = 0;
  std::string first;
  for (const LaunchedKernel& l : kernels) {
    const auto [at, added] = all.try_emplace(l.name, ptx::contractions(*l.kernel));
    if (!added) continue;
    pairs += at->second.size();
    const std::vector<uint32_t> left = ptx::untried(*l.kernel, at->second);
    if (untried == 0 && !left.empty()) first = std::to_string(l.kernel->code[left.front()].line);
    untried += left.size();
  }
  const std::string verdict = fused_or_not(kernels, all, pairs, again);
  if (untried == 0) return verdict;
  return verdict + "; the contraction of " +
         (untried == 1 ? "one product" : std::to_string(untried) + " products") +
         " was not tried, the first at PTX line " + first;
}

namespace {

std::string verdict_of_moves(const std::map<uint32_t, std::string>& lines, const RunAgain& again) {
  constexpr uint64_t kWays = 3;  // toward zero, away from it, and a seed
  const auto changed = [&](uint32_t line) {
    PtxRerun run{true, ""};
    for (uint64_t way = 1; way <= kWays && run.same; ++way) run = again({{}, way, line});
    return run;
  };
  if (changed(0).same)
    return "; independent of approximate functions (" + std::to_string(lines.size()) + " lines)";
  for (const auto& [line, text] : lines)
    if (const PtxRerun run = changed(line); !run.same)
      return "; depends on " + text + " at PTX line " + std::to_string(line) + told(run);
  return "; depends on several of its " + std::to_string(lines.size()) + " approximate functions";
}

}  // namespace

std::string depends_on_approximation(std::span<const LaunchedKernel> kernels, const ptx::Counters& counters,
                                     const RunAgain& again) {
  std::map<uint32_t, std::string> lines;
  size_t known = 0;
  for (const LaunchedKernel& l : kernels)
    for (const ptx::Instruction& i : l.kernel->code)
      if (i.unpinned && i.kind == ptx::Class::special &&
          counters.unpinned.contains("PTX line " + std::to_string(i.line) + ": " + l.kernel->text(i)))
        known += lines.emplace(i.line, l.kernel->text(i)).second && ptx::known_of_hopper(*l.kernel, i);
  if (lines.empty()) return "";
  const std::string verdict = verdict_of_moves(lines, again);
  if (known == 0) return verdict;
  const PtxRerun hopper = again({{}, ptx::kAsHopper, 0});
  const std::string which = known == lines.size() ? "them" : std::to_string(known) + " of them";
  if (hopper.same) return verdict + "; the same with an H100's results of " + which;
  // Its results may be two places off, where moves by one change nothing.
  return (verdict.starts_with("; independent") ? "" : verdict) +
         "; depends on approximate functions: an H100's results of " + which + " give other bytes" +
         told(hopper);
}

}  // namespace assay

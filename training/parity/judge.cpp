#include "training/parity/judge.h"

#include <array>
#include <string_view>
#include <vector>

#include "contract/words.h"
#include "training/base/errors.h"
#include "training/parity/attention_route.h"
#include "training/parity/differences.h"
#include "training/parity/factory.h"
#include "training/parity/routes.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

struct Cause {
  string_view code, what;
  bool Removed::*removed;
  bool (*possible)(const Cell&);
};

bool uses(const Cell& c, string_view format) {
  return c.formats.fprop == format || c.formats.dgrad == format || c.formats.wgrad == format;
}
bool normed(const Cell& c) { return c.module.starts_with("layernorm") || c.module == "transformer_layer"; }
bool rounds_stochastically(const Cell& c) { return c.formats.dgrad == "nvfp4" || c.formats.wgrad == "nvfp4"; }
bool transposes(const Cell& c) {
  return uses(c, "fp8_current") && c.arch != Arch::sm100 && c.arch != Arch::sm110;
}

// Whether a hybrid of the cell has a role that a slot of attention's core has too: its own, or under fp8_mha
// that of the consumer of an edge, a layer's input or the gradient of its output.
bool meets_the_core(const Cell& c) {
  if (c.module == kAttention) return c.roles != kNoHybrid;
  if (!c.factory.empty()) return !c.core.empty();
  for (const string_view role : words_of(c.roles, ',')) {
    const bool of_edges = role == "input" || role == "grad_output";
    if (!c.core.empty() && c.roles != kNoHybrid && role != "weight" && (!of_edges || c.core == "fp8_mha"))
      return true;
  }
  return false;
}

constexpr Cause kCauses[] = {
    {"E13", "vanilla sums the bias gradient inside its kernel, in chunks of rows",
     &Removed::fused_bias_gradient, [](const Cell& c) { return uses(c, "mxfp8"); }},
    {"E1", "vanilla quantizes un-rounded values of a fused norm or activation", &Removed::fused_producers,
     normed},
    {"E2", "stochastic rounding draws another state per direction", &Removed::random_states,
     rounds_stochastically},
    {"E12", "kernel selection of MXFP8 decides the sign of a zero", &Removed::sign_of_zero,
     [](const Cell& c) { return c.flavour == Flavour::te && uses(c, "mxfp8"); }},
    {"E8", "per-tensor FP8 has no columns without rows where columns are a physical transpose",
     &Removed::tn_only, transposes},
    {"E14", "vanilla gathers codes between ranks, a hybrid dequantizes one direction and quantizes the whole",
     &Removed::gathers_of_codes, [](const Cell& c) { return c.sequence; }},
    {"E5", "the core of attention takes no hybrid", &Removed::core_hybrids, meets_the_core},
    {"E16",
     "under fp8_dpa alone a built-in recipe quantizes the edges of attention's core, a custom one does not",
     &Removed::built_in_edges, [](const Cell& c) { return c.core == "fp8_dpa"; }},
    {"E17", "under fp8_mha a custom recipe names consumers at edges of attention that are then not quantized",
     &Removed::early_names, [](const Cell& c) { return c.core == "fp8_mha"; }},
    {"E15", "NVFP4 within a hybrid has no buffers that FSDP2 could gather", &Removed::fsdp,
     [](const Cell& c) { return !c.fsdp.empty() && uses(c, "nvfp4"); }},
    {"E10", "packed grouped weights take neither hybrids nor Identity", &Removed::packed,
     [](const Cell& c) { return c.packed; }},
};

struct Compared {
  Found difference;
  int64_t bytes = 0;
};

Compared run_cell(const Cell& c, const Removed& removed, Subject& subject, const Environment& environment) {
  Compared out;
  if (c.module == kAttention) {
    out.difference = compare_attention(c, removed, subject, environment, out.bytes);
    return out;
  }
  const auto vanilla = [&](string_view format) {
    return run_route(c, vanilla_recipe(c, format), removed, subject, environment);
  };
  const GemmFormats& f = c.formats;
  std::array<std::vector<StepRecord>, 3> routes;
  routes[0] = vanilla(f.fprop);
  routes[1] = f.dgrad == f.fprop || !c.backward_override.empty() ? routes[0] : vanilla(f.dgrad);
  routes[2] = f.wgrad == f.dgrad ? routes[1] : f.wgrad == f.fprop ? routes[0] : vanilla(f.wgrad);
  std::vector<StepRecord> hybrid;
  try {
    hybrid = run_route(c, hybrid_recipe(c, removed), removed, subject, environment);
  } catch (const SemanticError& e) {
    out.difference = Difference{"hybrid's step", "a step", string(name_of(e.error_class)) + ": " + e.what()};
    return out;
  }
  for (size_t rank = 0; rank < hybrid.size() && !out.difference; ++rank) {
    out.difference = compare_steps(c, hybrid[rank], {routes[0][rank], routes[1][rank], routes[2][rank]},
                                   removed.random_states, out.bytes);
    if (out.difference && hybrid.size() > 1)
      out.difference->what = "rank " + std::to_string(rank) + ": " + out.difference->what;
  }
  return out;
}

using Causes = std::vector<const Cause*>;

// The sets of causes that could explain a cell's difference: single ones first, then pairs, then all.
std::vector<Causes> explanations(const Cell& c) {
  Causes possible;
  for (const Cause& cause : kCauses)
    if (cause.possible(c)) possible.push_back(&cause);
  std::vector<Causes> sets;
  for (size_t i = 0; i < possible.size(); ++i) sets.push_back({possible[i]});
  for (size_t i = 0; i < possible.size(); ++i)
    for (size_t j = i + 1; j < possible.size(); ++j) sets.push_back({possible[i], possible[j]});
  if (possible.size() > 2) sets.push_back(possible);
  return sets;
}

void note(CellResult& result, const Difference& d) {
  result.first = d.what;
  result.expected = d.expected;
  result.found = d.found;
}

// Takes causes away from a cell that differs, until one set makes it equal.
void exclude(CellResult& result, const Cell& c, Subject& subject, const Environment& environment) {
  string tried;
  for (const Causes& set : explanations(c)) {
    Removed removed;
    string codes, what;
    for (const Cause* cause : set) {
      removed.*(cause->removed) = true;
      codes += (codes.empty() ? "" : " ") + string(cause->code);
      what += (what.empty() ? "" : "; ") + string(cause->what);
    }
    const Compared again = run_cell(c, removed, subject, environment);
    if (!again.difference) {
      result.outcome = CellResult::Outcome::excluded;
      result.exclusions = codes;
      result.reason = what;
      result.compared += again.bytes;
      return;
    }
    tried += (tried.empty() ? "without " : ", without ") + codes + " still at " + again.difference->what;
  }
  result.reason = tried.empty() ? "no exclusion applies to this cell" : tried;
}

}  // namespace

CellResult judge_cell(const Cell& c, Subject& subject, const Environment& environment) {
  CellResult result;
  if (const Found d = compare_settings(c)) {
    note(result, *d);
    result.reason = "the two recipes ask for different settings, so nothing was run";
    return result;
  }
  const Compared plain = run_cell(c, {}, subject, environment);
  result.compared = plain.bytes;
  if (!plain.difference) {
    result.outcome = CellResult::Outcome::bitwise;
    return result;
  }
  note(result, *plain.difference);
  exclude(result, c, subject, environment);
  return result;
}

}  // namespace assay::training

#include "training/scenarios/steps.h"

#include <algorithm>
#include <utility>

#include "training/base/data.h"
#include "training/scenarios/common.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

// The bytes of a plane as an array, for comparisons.
ArrayPtr array_of(const PlaneData& p) {
  return from_bytes({static_cast<int64_t>(p.bytes.size())}, DType::uint8, p.bytes);
}

}  // namespace

Bench::Bench(const ScenarioRun& run, const ModuleSettings& s, Arch arch)
    : session(run.session(arch)), module(make_module(session, s)) {
  session.rng.reseed(7);
  fill_parameters(*module, 100);
  x = gradient({input_rows(s), s.in}, s.dtype, 10);
  dy = gradient({input_rows(s), output_columns(s)}, s.dtype, 20);
}

StepRecord step_of(const ScenarioRun& run, const ModuleSettings& settings, const StepOptions& options) {
  return Bench(run, settings).step(options);
}

StepOptions under(RecipePtr recipe, Fusions fusions) {
  StepOptions options = under(std::move(recipe));
  options.fusions = fusions;
  return options;
}

std::vector<string> differing_outputs(const StepRecord& got, const StepRecord& want) {
  std::vector<string> out;
  for (const NamedArray& w : want.outputs)
    if (const ArrayPtr g = output_of(got, w.name); !g || !equal_bytes(*g, *w.array)) out.push_back(w.name);
  return out;
}

void expect_same_gemms(ScenarioRun& run, const StepRecord& got, const StepRecord& want, string_view kind) {
  const std::vector<const GemmRecord*> a = gemms_of(got, kind), b = gemms_of(want, kind);
  if (!run.expect(!b.empty() && a.size() == b.size(), "GEMMs of " + string(kind), std::to_string(b.size()),
                  std::to_string(a.size())))
    return;
  for (size_t i = 0; i < a.size(); ++i) {
    const string& name = b[i]->name;
    run.expect_equal(a[i]->name, name, "name of a GEMM");
    run.expect_equal(a[i]->line, b[i]->line, name + ": settings");
    if (!run.expect_equal(static_cast<int64_t>(a[i]->planes.size()),
                          static_cast<int64_t>(b[i]->planes.size()), name + ": operand planes"))
      continue;
    for (size_t p = 0; p < a[i]->planes.size(); ++p)
      run.expect_equal(array_of(a[i]->planes[p]), array_of(b[i]->planes[p]),
                       name + ": " + b[i]->planes[p].plane.name);
    run.expect_equal(a[i]->out, b[i]->out, name + ": result");
  }
}

void expect_same_output(ScenarioRun& run, const StepRecord& got, const StepRecord& want, string_view name) {
  if (run.expect(output_of(want, name) != nullptr, string(name) + " of the other route", "present", "absent"))
    run.expect_equal(output_of(got, name), output_of(want, name), name);
}

void expect_same_outputs(ScenarioRun& run, const StepRecord& got, const StepRecord& want,
                         std::initializer_list<string_view> but) {
  run.expect_equal(static_cast<int64_t>(got.outputs.size()), static_cast<int64_t>(want.outputs.size()),
                   "outputs");
  for (const NamedArray& o : want.outputs)
    if (std::find(but.begin(), but.end(), o.name) == but.end()) expect_same_output(run, got, want, o.name);
}

void expect_same_steps(ScenarioRun& run, const StepRecord& got, const StepRecord& want,
                       std::initializer_list<string_view> but) {
  for (const string_view kind : {"fprop", "dgrad", "wgrad"}) expect_same_gemms(run, got, want, kind);
  expect_same_outputs(run, got, want, but);
}

void expect_same_traces(ScenarioRun& run, const StepRecord& got, const StepRecord& want) {
  const auto texts = [](const StepRecord& r) {
    std::vector<string> out;
    for (const RngDraw& d : r.draws)
      out.push_back(d.who + " " + std::to_string(d.offset) + (d.used ? "" : " unused"));
    out.push_back("generator at " + std::to_string(r.rng_offset));
    for (const Collective& c : r.collectives) out.push_back(to_text(c));
    for (const CacheEvent& e : r.cache) out.push_back(to_text(e));
    return out;
  };
  run.expect_equal(texts(got), texts(want), "draws, reductions and workspaces");
}

}  // namespace assay::training

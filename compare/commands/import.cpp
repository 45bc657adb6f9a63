#include "compare/commands/import.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/case_screen.h"
#include "compare/commands/checked_case.h"
#include "compare/commands/options.h"
#include "compare/diagnosis/identify/choice_runs.h"
#include "compare/diagnosis/identify/tried_choices.h"
#include "compare/packs/checkpoint_layers.h"
#include "compare/packs/dump.h"
#include "compare/process/interrupt.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "compare/text/terminal.h"
#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;

constexpr int64_t kProbeRows = 256;  // of the layer by which the choices are found

// What tells whose choices come first: config.json's word for what quantized, as a package.
string fingerprint_of(const Checkpoint& c) {
  if (c.method.empty()) return {};
  if (c.method == "fp8") return "deepseek=checkpoint transformers=checkpoint";  // both say so
  return c.method + "=checkpoint";
}

// A checkpoint beside its originals, layer by layer.
class Import {
 public:
  Import(const ImportOptions& options, const Subjects& subjects, Checkpoint quantized, Checkpoint originals,
         std::ostream& out)
      : options_(options),
        subjects_(subjects),
        quantized_(std::move(quantized)),
        originals_(std::move(originals)),
        out_(out) {
    pack_.path = options.quantized;
    pack_.fingerprint = fingerprint_of(quantized_);
  }

  std::vector<CheckpointLayer> layers() const {
    std::vector<CheckpointLayer> out = layers_of(quantized_);
    std::erase_if(out,
                  [&](const CheckpointLayer& l) { return l.name.find(options_.filter) == string::npos; });
    return out;
  }

  // One layer as a case whose line says by which choices it is judged. Errors: it cannot be a case.
  struct Ready {
    LayerCase layer;
    Problem problem;
    DumpCase place;
  };
  Result<std::unique_ptr<Ready>> ready(const CheckpointLayer& layer, int64_t rows = 0) {
    auto made = case_of_layer(layer, quantized_, originals_, rows);
    if (!made) return made.error();
    const auto line = parse_line(made->recorded.line);
    if (!line) return line.error();
    auto out = std::make_unique<Ready>(Ready{std::move(*made), *line, {}});
    out->place = {dump_key(out->layer.recorded.id), &pack_, &out->layer.recorded};
    if (rows) return out;
    const auto chosen = with_choice(out->problem, keys_of(layer));
    if (!chosen) return chosen.error();
    out->problem = *chosen;
    out->layer.recorded.line = to_line(out->problem);
    return out;
  }

  // Writes a case as a pack. Errors: the folder cannot be written.
  std::optional<Error> write(const Ready& one, const string& path) const {
    std::vector<safetensors::Tensor> tensors;
    for (const PackPlane& plane : one.layer.recorded.planes) tensors.push_back(*plane.tensor);
    return safetensors::write(path, tensors,
                              {{"assay.fingerprint", pack_.fingerprint},
                               {"assay.line." + one.layer.recorded.id, one.layer.recorded.line},
                               {"assay.pack", std::to_string(kPackVersion)}});
  }

 private:
  // The keys by which layers of a kind are judged: --flavour's, or those that make the most of the first rows
  // of the first layer of that kind. Said once.
  const string& keys_of(const CheckpointLayer& layer) {
    const string kind = layer.format + " " + layer.keys;
    const auto [at, is_new] = keys_.try_emplace(kind);
    if (!is_new) return at->second;
    if (!options_.flavour.empty()) return at->second = "flavour=" + options_.flavour;
    auto probe = ready(layer, kProbeRows);
    if (!probe) return at->second;
    identifying::Group group;
    group.format = ((*probe)->problem.row ? (*probe)->problem.row : (*probe)->problem.col)->format;
    auto inputs = dump_inputs((*probe)->layer.recorded, (*probe)->problem, subjects_.reference());
    if (!inputs) return at->second;
    group.cases.push_back({&(*probe)->place, (*probe)->problem, std::move(*inputs)});
    identifying::ChoiceRuns runs(group, subjects_.reference(), options_.jobs, options_.timeout);
    const auto ranking = rank(runs, choices_for(runs));
    if (ranking.empty() || interrupted()) return at->second;
    const Choice& best = ranking.front().choices.front();
    out_ << fmt::format("{}: judged as {}, which makes {} of the first rows of {}\n", layer.format,
                        best.called.empty() ? best.name : best.called + " (" + best.name + ")",
                        ranking.front().outcome.all()
                            ? string("every byte")
                            : fmt::format("the most, {:.2f} %,", 100 * ranking.front().outcome.agreement()),
                        printable(layer.name))
         << std::flush;
    return at->second = best.keys;
  }

  const ImportOptions& options_;
  const Subjects& subjects_;
  Checkpoint quantized_, originals_;
  Pack pack_;
  std::map<string, string> keys_;
  std::ostream& out_;
};

// "dump/model.layers.0.mlp.down_proj.safetensors".
string pack_path(const string& folder, string name) {
  std::ranges::replace(name, '/', '_');
  return (std::filesystem::path(folder) / (name + ".safetensors")).string();
}

// Judges the layers in their order and says where the first divergence comes from.
int judge_layers(const ImportOptions& options, const Subjects& subjects, Import& import, std::ostream& out,
                 std::ostream& err) {
  const std::vector<CheckpointLayer> layers = import.layers();
  CasePrinter printer(out);
  ProgressLine progress(err, options.progress);
  CaseSettings settings;
  settings.jobs = options.jobs;
  settings.timeout = options.timeout;
  const CheckpointLayer* first = nullptr;
  string kept;
  size_t at = 0;
  for (; at < layers.size() && !interrupted(); ++at) {
    const CheckpointLayer& layer = layers[at];
    if (!layer.why_not.empty()) {
      printer.skip(layer.name, layer.why_not);
      continue;
    }
    progress.show(fmt::format("{} of {}: {}", at + 1, layers.size(), printable(layer.name)));
    const auto one = import.ready(layer);
    progress.wipe();
    if (!one) {
      printer.skip(layer.name, one.error().text());
      continue;
    }
    CheckedCase checked = check_case((*one)->place, (*one)->problem, subjects, settings);
    if (checked.cut_short && !checked.report.breach) break;
    for (const string& note : (*one)->layer.notes) checked.report.notes.push_back(note);
    std::erase(checked.report.missing, "row.amax");
    std::erase(checked.report.missing, "row.scale");  // no checkpoint has them
    printer.print(layer.name, (*one)->layer.recorded.line, "checkpoint == reference", checked.report);
    if (!checked.explainable) continue;
    if (!options.folder.empty()) {
      const string path = pack_path(options.folder, layer.name);
      if (const auto error = import.write(**one, path)) return err << "assay: " << error->text() << "\n", 2;
      if (kept.empty()) kept = path;
    }
    if (!first) first = &layer;
  }
  printer.print_first();
  if (at < layers.size()) return printer.finish_interrupted(at, layers.size());
  if (first) {
    if (options.cause) {
      const auto again = import.ready(*first);
      const CheckedCase checked = check_case((*again)->place, (*again)->problem, subjects, settings);
      printer.print_cause(first_cause((*again)->place, (*again)->problem, checked, subjects.reference(),
                                      options.budget, options.jobs, options.timeout));
    }
    printer.print_next(kept.empty()
                           ? "the same command with -o FOLDER keeps the layers that differ, for assay explain"
                           : "assay explain " + shell_word(kept));
  }
  return printer.finish();
}

}  // namespace

int run_import(const ImportOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto fail = [&](const string& message) { return err << "assay: " << message << "\n", 2; };
  if (!options.flavour.empty() && options.flavour != "te" && options.flavour != "assay" &&
      std::ranges::find(flavours(), options.flavour, &FlavourInfo::name) == flavours().end() &&
      std::ranges::find(flavour_names(), options.flavour, &FlavourName::name) == flavour_names().end())
    return fail("--flavour: expected a name of `assay flavours`, found " + printable(options.flavour));
  if (!options.folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.folder, error);
    if (const auto refused = cannot_write(pack_path(options.folder, "layer"), "-o"))
      return fail(refused->text());
  }
  auto quantized = read_checkpoint(options.quantized);
  if (!quantized) return fail(quantized.error().text());
  auto originals = read_checkpoint(options.originals);
  if (!originals) return fail(originals.error().text());
  const InterruptScope scope;
  Import import(options, subjects, std::move(*quantized), std::move(*originals), out);
  if (import.layers().empty()) {
    err << "assay: no quantized layer"
        << (options.filter.empty() ? "" : " whose name contains '" + printable(options.filter) + "'")
        << ": expected <layer>.weight or <layer>.weight_packed beside <layer>.weight_scale or "
           ".weight_scale_inv, or GGUF's MXFP4 or NVFP4\n";
    return 3;
  }
  return judge_layers(options, subjects, import, out, err);
}

void register_import(Program& program) {
  const auto import = std::make_shared<ImportOptions>();
  Command c(program.app, "import",
            "judge the quantized weights of a checkpoint against their originals, layer by layer");
  c.footer(
      "A checkpoint is a folder, an index file (model.safetensors.index.json), a safetensors file or a GGUF "
      "file;\n"
      "pickle files are refused. Read are the forms of compressed-tensors, ModelOpt and DeepSeek, and GGUF's "
      "MXFP4 and NVFP4.\n"
      "Examples:\n"
      "  assay import Model-NVFP4/ --original Model/\n"
      "  assay import model-mxfp4.gguf --original model-bf16.gguf --filter mlp -o differing/\n"
      "Exit status: 0 every layer's bytes are the reference's; 1 a layer differs; 2 bad input; 3 no layer "
      "was judged; 130 it was interrupted before a layer differed.");
  c.option("checkpoint", import->quantized, "the quantized checkpoint").required();
  c.option("--original", import->originals, "the checkpoint that it was made from, in 16 or 32 bits")
      .required();
  c.option(
      "--flavour", import->flavour,
      "judge by these choices (assay flavours); without it by those that make most of a layer's first rows");
  c.option("--filter", import->filter, "only layers whose name contains this");
  c.option("-o,--out", import->folder,
           "write layers that differ into this folder, as packs for assay explain");
  c.option("--budget", import->budget,
           "time limit of the search for the cause of the first divergence, in seconds")
      .seconds()
      .show_default();
  c.flag(
      "--no-cause", [import] { import->cause = false; }, "do not search for that cause");
  add_timeout(c, program.common);
  add_jobs(c, program.common);
  c.callback([&program, import] {
    import->timeout = program.common.timeout;
    import->jobs = program.common.jobs;
    import->progress = program.progress;
    program.status = run_import(*import, program.make_subjects(program.common), std::cout, std::cerr);
  });
}

}  // namespace assay

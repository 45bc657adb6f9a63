#include "compare/commands/model.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/model/report.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "contract/line.h"
#include "fixtures/files.h"

namespace assay {

namespace {

std::string gpu_names() {
  std::string out;
  for (const model::Gpu& g : model::kGpus) out += (out.empty() ? "" : ", ") + std::string(g.name);
  return out;
}

// The models of the lines, in their order, and how many failed. What is not supported is named and left out.
struct Modelled {
  std::vector<model::Model> models;
  size_t failed = 0, reached = 0;  // reached: lines that no interrupt came before
};

// `done` is told of each model as soon as there is one.
Modelled models_of(const ModelCommand& command, Subject& subject, const Subjects& subjects,
                   const model::ModelOptions& options, const std::function<void(const model::Model&)>& done,
                   std::ostream& err) {
  Modelled out;
  model::Toolkit toolkit(command.ptxas, command.nvdisasm);
  for (const Problem& p : command.problems) {
    if (interrupted()) break;
    if (const Support yes = subject.supports(p); !yes.yes) {
      ++out.reached;
      err << "assay: " << command.subject << " does not support " << to_line(p) << ": " << yes.why << "\n";
      continue;
    }
    auto one = model::model_of(p, subject, subjects.reference(), toolkit, options);
    if (!one && interrupted()) break;
    ++out.reached;
    if (one) {
      out.failed += !one->proven();
      done(*one);
      out.models.push_back(std::move(*one));
    } else {
      err << "assay: " << command.subject << ": " << one.error().text() << "\n";
      ++out.failed;
    }
  }
  return out;
}

// One line is told in full, several as a table whose rows come as they are ready.
std::function<void(const model::Model&)> teller(const ModelCommand& command, const model::Gpu& gpu,
                                                std::ostream& out) {
  if (command.json) return [](const model::Model&) {};
  if (command.problems.size() == 1) return [&out](const model::Model& m) { out << model::to_text(m); };
  out << "A model of " << gpu.title << ": nothing was measured.\n" << model::table_header() << std::flush;
  return [&out](const model::Model& m) { out << model::to_row(m) << std::flush; };
}

void tell_missing(const std::vector<model::Model>& models, std::ostream& out) {
  std::vector<std::string> why;
  for (const model::Model& m : models)
    for (const std::string& one : missing(m))
      if (std::find(why.begin(), why.end(), one) == why.end()) why.push_back(one);
  for (const std::string& one : why) out << "missing: " << one << "\n";
}

json::Value json_of(const std::vector<model::Model>& models) {
  if (models.size() == 1) return model::to_json(models[0]);
  json::Value lines = json::array();
  for (const model::Model& m : models) lines.push(model::to_json(m));
  return json::object({{"schema", "assay.models/1"}, {"lines", std::move(lines)}});
}

}  // namespace

int run_model(const ModelCommand& command, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto refuse = [&](int status, const std::string& why) {
    err << "assay: " << why << "\n";
    return status;
  };
  const model::Gpu* gpu = model::gpu_named(command.gpu);
  if (!gpu) return refuse(2, "no GPU '" + command.gpu + "'; expected --arch " + gpu_names());
  if (const auto error = command.html.empty() ? std::nullopt : cannot_write(command.html, "--html"))
    return refuse(2, error->text());
  Subject* subject = subjects.find(command.subject);
  if (!subject) return refuse(2, "no subject '" + command.subject + "'");
  if (const Support here = present_in_child(*subject); !here.yes)
    return refuse(3, command.subject + " is absent: " + here.why);
  if (!subject->interprets())
    return refuse(
        2, command.subject +
               " does not carry out compiled kernels instruction by instruction; expected --subject ptx, "
               "--ptx-kernel FILE or --ptx FILE");
  model::ModelOptions options{gpu, command.environment, command.timeout};
  options.environment.architecture = gpu->architecture;
  const InterruptScope scope;
  const Modelled modelled = models_of(command, *subject, subjects, options, teller(command, *gpu, out), err);
  if (!modelled.models.empty()) {
    if (command.json) out << json::dump(json_of(modelled.models), 1) << "\n";
    else if (command.problems.size() > 1) tell_missing(modelled.models, out);
    if (!command.html.empty())
      if (const auto e = write_file(command.html, model::model_page(modelled.models)))
        return refuse(2, e->text());
  }
  const bool cut_short = modelled.reached < command.problems.size();
  if (cut_short)
    err << fmt::format("assay: interrupted: {} of {} lines were modelled\n", modelled.reached,
                       command.problems.size());
  return modelled.failed ? 1 : cut_short ? kInterrupted : modelled.models.empty() ? 3 : 0;
}

void register_model(Program& program) {
  const auto given = std::make_shared<ModelCommand>();
  CommonOptions& common = program.common;
  Command c(program.app, "model",
            "predict a compiled kernel's speed on a GPU that is not there, and what binds it");
  c.footer(
      "Examples:\n"
      "  assay model 'quantize mxfp8 16384x16384 bf16' --arch h200\n"
      "  assay model 'quantize mxfp8 16384x16384 bf16 dir=row' --ptx-kernel "
      "fixtures/triton/mxfp8_rows_sm90.json --json\n"
      "  assay model fixtures/suites/model.cases --arch b200 --html roofline.html\n"
      "Exit status: 0; 1 a kernel failed, or the counts of a line are NOT PROVEN for its size; 2 bad usage, "
      "or a file cannot be written; 3 the subject is absent "
      "or runs "
      "no line; 130 it was interrupted before anything failed, and the lines until then are modelled.");
  add_what(c, common);
  c.option("--arch", given->gpu, "the GPU: " + gpu_names()).show_default();
  c.flag("--json", given->json, "write every figure as JSON on standard output, and nothing else");
  c.option("--html", given->html, "write a page with the roofline");
  c.option("--ptxas", given->ptxas, "the ptxas to ask (default: of PATH, else of the CUDA toolkit)");
  c.option("--nvdisasm", given->nvdisasm,
           "the nvdisasm to ask (default: of PATH, else of the CUDA toolkit); from PyPI: pip install " +
               std::string(model::kNvdisasmRelease));
  add_compiled_subject(c, common);
  add_environment(c, common);
  add_timeout(c, common);
  c.callback([&program, given] {
    ModelCommand& command = *given;
    const Subjects subjects = program.make_subjects(program.common);
    for (const SuiteEntry& entry : entries_of(program.common)) command.problems.push_back(entry.problem);
    const std::vector<std::string> names = chosen_subjects(program.common, subjects, "ptx");
    if (names.size() != 1) throw Refusal{"this command takes one --subject"};
    command.subject = names[0];
    command.environment = environment_of(program.common);
    command.timeout = program.common.timeout;
    program.status = run_model(command, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay

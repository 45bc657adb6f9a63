// Makes the subjects and lists the commands. The only place of this room that names both sides.
#include "compare/program.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include <unistd.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "compare/commands/bad_usage.h"
#include "compare/commands/bench.h"
#include "compare/commands/certify.h"
#include "compare/commands/check.h"
#include "compare/commands/completion.h"
#include "compare/commands/count.h"
#include "compare/commands/coverage.h"
#include "compare/commands/diff.h"
#include "compare/commands/doctor.h"
#include "compare/commands/explain.h"
#include "compare/commands/flavours.h"
#include "compare/commands/hunt.h"
#include "compare/commands/identify.h"
#include "compare/commands/import.h"
#include "compare/commands/list.h"
#include "compare/commands/model.h"
#include "compare/commands/options.h"
#include "compare/commands/record.h"
#include "compare/commands/replay.h"
#include "compare/commands/run.h"
#include "compare/commands/selection.h"
#include "compare/commands/shrink.h"
#include "compare/commands/trace.h"
#include "compare/commands/vectors.h"
#include "compare/debug/shrink.h"
#include "compare/debug/trace.h"
#include "compare/packs/passed_blocks.h"
#include "compare/process/pool.h"
#include "compare/report/build.h"
#include "compare/subjects/pack_subject.h"
#include "compare/subjects/plugin.h"
#include "compare/subjects/ptx_kernel.h"
#include "compare/subjects/python_function.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "contract/recipes.h"
#include "contract/words.h"
#include "fast/device_memory.h"
#include "fast/subject_cublaslt.h"
#include "fast/subject_gpu.h"
#include "fast/subject_host.h"
#include "fast/subject_lanes.h"
#include "fast/subject_ptx.h"
#include "fast/subject_simd.h"
#include "fixtures/headers/subject_headers.h"
#include "fixtures/mpfr/subject_mpfr.h"
#include "reference/subject.h"

namespace {

using namespace assay;

const char kAbout[] =
    "Assay: a bit-exact test oracle for low-precision training.\n"
    "Runs the kernels and the reference on the same inputs, compares them bit for bit, and says where and "
    "why they part.\n";
const char kExamples[] =
    "What is judged: a suite by name or path (smoke, ci, fixtures/suites/ci.cases), or a line in quotes:\n"
    "  <op> <format>[/<column format>] <rows>x<cols> <source> key=value ...\n"
    "  quantize <format> ... role=<module>/<tensor> [recipe=<name>], quantize auto ... "
    "role=<module>/<tensor> factory=<name>\n"
    "or scenarios of the training layer: scenarios, S-21, and those of several ranks: ranks; or cells of the "
    "parity matrix: roles, 'roles "
    "factory=<name>',\n"
    "  'parity <module> factory=<name> [phase= arch= flavour= tokens= override= packed=]' "
    "(docs/custom-factories.md).\n"
    "Examples:\n"
    "  assay run smoke\n"
    "  assay run S-21 --subject reference,host -v\n"
    "  assay run 'quantize mxfp8 96x160 bf16 fill=ties seed=7' -v\n"
    "  assay run 'quantize nvfp4 64x256 bf16 role=linear/grad_output recipe=nvfp4 fill=wide'\n"
    "  assay run 'quantize auto 64x256 bf16 role=linear/weight factory=mxfp8_fwd_nvfp4_bwd_factory'\n"
    "  assay run 'roles factory=mxfp8_nvfp4' --html parity.html\n"
    "  assay run ci --subject gpu --require gpu --junit report.xml\n"
    "  assay list --keys\n"
    "Exit status: 0 all good; 1 something failed or is mistrusted; 2 bad usage or unreadable input; "
    "3 nothing ran, or a required subject is absent; 130 it was interrupted before anything failed.";

// In the order of the help.
constexpr void (*kCommands[])(Program&) = {
    register_list,       register_run,     register_bench,   register_check,    register_replay,
    register_diff,       register_vectors, register_explain, register_identify, register_flavours,
    register_shrink,     register_trace,   register_count,   register_model,    register_record,
    register_coverage,   register_hunt,    register_certify, register_import,   register_doctor,
    register_completion,
};

Subjects make_subjects(const CommonOptions& common) {
  Subjects s;
  s.owned.push_back(make_reference_subject());
  s.owned.push_back(make_host_subject());
  s.owned.push_back(make_gpu_subject());
  s.owned.push_back(make_ptx_subject());
  s.owned.push_back(make_cublaslt_subject());
  s.owned.push_back(make_headers_subject());
  s.owned.push_back(make_mpfr_subject());
  s.owned.push_back(make_lanes_subject());
  s.owned.push_back(make_lanes_twin_subject());
  s.owned.push_back(make_general_host_subject());
  s.owned.push_back(make_simd_subject());
  Subject& simd = *s.owned.back();
  if (auto* acceptor = dynamic_cast<Acceptor*>(&simd))
    s.owned.push_back(make_passed_blocks_subject(simd, *acceptor));
  if (!common.plugin.empty()) {
    auto plugin = make_plugin_subject(common.plugin, make_device_memory());
    if (!plugin) throw Refusal{plugin.error().text()};
    s.owned.push_back(std::move(*plugin));
  }
  if (!common.python.empty()) {
    auto function = make_python_subject(common.python, common.python_spec, common.timeout);
    if (!function) throw Refusal{function.error().text()};
    s.owned.push_back(std::move(*function));
  }
  if (!common.ptx_kernel.empty()) {
    auto kernel = make_ptx_kernel_subject(common.ptx_kernel, common.timeout);
    if (!kernel) throw Refusal{kernel.error().text()};
    s.owned.front() = reference_behind(std::move(s.owned.front()), **kernel);
    s.owned.push_back(std::move(*kernel));
  }
  if (const auto stray = check_words(common.ptx)) throw Refusal{stray->text()};
  if (!common.ptx.empty()) {
    auto kernel = make_ptx_kernel_subject(common.ptx, common.timeout);
    if (!kernel) throw Refusal{kernel.error().text()};
    s.owned.push_back(std::move(*kernel));
  }
  if (!common.pack.empty()) {
    auto pack = read_pack(common.pack);
    if (!pack) throw Refusal{pack.error().text()};
    s.owned.push_back(make_pack_subject(std::make_shared<const Pack>(std::move(*pack)), "pack"));
  }
  return s;
}

int run_program(int argc, char** argv) {
  CLI::App app{kAbout, "assay"};
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("assay ") + build::kVersion);
  Program program{app, make_subjects, false, false, {}, 0};
  const char* no_colour = std::getenv("NO_COLOR");
  program.colour = ::isatty(STDOUT_FILENO) == 1 && !(no_colour && *no_colour);
  program.progress = ::isatty(STDERR_FILENO) == 1;
  for (const auto& add : kCommands) add(program);
  if (argc <= 1) {
    fmt::print("{}", app.help());
    return 0;
  }
  return parse_and_run(program, argc, argv);
}

}  // namespace

int assay::program_main(int argc, char** argv) {
  std::string message;
  try {
    const int status = run_program(argc, argv);
    errno = 0;
    std::cout.flush();
    if (status == kBadUsage || (std::cout && std::fflush(stdout) == 0 && !std::ferror(stdout))) return status;
    message = "cannot write all of the result to standard output";
    if (errno)
      message += fmt::format(": {}", std::strerror(errno));  // where it failed before, the reason is gone
  } catch (const Refusal& r) {
    message = r.message;
  } catch (const std::exception& e) {
    message = e.what();
  }
  fmt::print(stderr, "assay: {}\n", printable(message));
  return kBadUsage;
}

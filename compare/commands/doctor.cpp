#include "compare/commands/doctor.h"

#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/report/doctor.h"
#include "contract/line.h"
#include "fixtures/json.h"
#include "training/base/rank_engine.h"

namespace assay {

namespace {

void print_row(std::ostream& out, std::string_view name, std::string_view value) {
  out << fmt::format("{:<12} {}\n", name, value);
}

void print_build(const json::Value& facts, std::ostream& out) {
  print_row(
      out, "assay",
      fmt::format("{} ({}), line grammar {}", facts.text("version"), facts.text("commit"), kLineVersion));
  print_row(out, "compiler",
            fmt::format("{}  {}  {}", facts.text("compiler"), facts.text("build_type"), facts.text("flags")));
  print_row(out, "sanitizers", facts.text("sanitizers").empty() ? "none" : facts.text("sanitizers"));
  print_row(out, "cuda",
            facts.find("cuda_toolkit")->is_null()
                ? "not compiled in: no nvcc at build, or ASSAY_CUDA=OFF"
                : fmt::format("toolkit {} at build", facts.text("cuda_toolkit")));
}

void print_machine(const json::Value& facts, bool sound, std::ostream& out) {
  print_row(out, "system", fmt::format("{}  {}", facts.text("os"), facts.text("distribution")));
  print_row(out, "processor",
            fmt::format("{}, {} cores", facts.text("cpu"), facts.find("cores")->to_int().value_or(0)));
  const auto& floats = *facts.find("float")->object();
  print_row(out, "float",
            sound ? fmt::format("as clause N1.1 asks: all {} probes hold", floats.size())
                  : "NOT as clause N1.1 asks:");
  for (const auto& [name, value] : floats)
    if (!value.to_bool()) print_row(out, "", fmt::format("{}: {}", name, *value.string()));
}

// What ranks are here, and what they could be.
json::Value rank_facts() {
  const training::RankEngine& engine = training::rank_engine();
  const std::string& library = training::rank_library();
  return json::object({{"engine", engine.name()},
                       {"processes", engine.processes()},
                       {"mpi", library.empty() ? json::Value() : json::Value(library)}});
}

void print_ranks(const json::Value& ranks, std::ostream& out) {
  const int64_t processes = ranks.find("processes")->to_int().value_or(1);
  if (processes > 1) print_row(out, "ranks", fmt::format("{} processes, {}", processes, ranks.text("mpi")));
  else if (ranks.text("mpi").empty())
    print_row(out, "ranks", "threads; no MPI in this program: ci/setup --mpi && ci/build mpi assay");
  else
    print_row(
        out, "ranks",
        fmt::format("threads, as no launcher started it; {}: mpirun -n 4 ... run ranks", ranks.text("mpi")));
}

void print_witnesses(const json::Value& facts, std::ostream& out) {
  for (const json::Value& s : *facts.find("subjects")->array()) {
    const bool present = s.find("present")->to_bool().value_or(false);
    const std::string detail = s.text("detail").empty() ? "" : ": " + std::string(s.text("detail"));
    print_row(out, &s == &facts.find("subjects")->array()->front() ? "subjects" : "",
              fmt::format("{:<10} {}{}", s.text("name"), present ? "present" : "absent", detail));
  }
  const json::Value* v = facts.find("vectors");
  print_row(out, "vectors",
            v->is_null()
                ? "absent: no fixtures/vectors/index.json here or in the source tree"
                : fmt::format("{} files in {}", v->find("files")->to_int().value_or(0), v->text("path")));
}

}  // namespace

int run_doctor(const DoctorOptions& options, std::span<Subject* const> subjects, std::ostream& out) {
  json::Value facts = doctor_facts(subjects);
  facts.set("ranks", rank_facts());
  bool sound = true;
  for (const auto& [name, value] : *facts.find("float")->object()) sound &= value.to_bool().value_or(false);
  if (options.json) {
    out << json::dump(facts, 2) << "\n";
  } else {
    print_build(facts, out);
    print_machine(facts, sound, out);
    print_ranks(*facts.find("ranks"), out);
    print_witnesses(facts, out);
    print_row(out, "id", facts.text("fingerprint"));
  }
  return sound ? 0 : 1;
}

void register_doctor(Program& program) {
  const auto doctor = std::make_shared<DoctorOptions>();
  Command c(program.app, "doctor", "compiler, flags, float environment, CUDA, GPU, witnesses");
  c.footer("Examples:\n  assay doctor\n  assay doctor --json");
  c.flag("--json", doctor->json, "as JSON");
  add_plugin(c, program.common);
  c.callback([&program, doctor] {
    const Subjects subjects = program.make_subjects(program.common);
    program.status = run_doctor(*doctor, pointers(subjects), std::cout);
  });
}

}  // namespace assay

// The program of the preset `mpi`: under a launcher its processes are the ranks (docs/ranks.md), or with
// --mpi share the tasks of one command (docs/scale.md). What is not about either the first process does
// alone.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compare/process/crew.h"
#include "compare/process/relay.h"
#include "compare/program.h"
#include "training/mpi/mpi_mail.h"
#include "training/mpi/mpi_ranks.h"
#include "training/mpi/nccl_ranks.h"

namespace {

using namespace assay::training;

// What ASSAY_RANKS says carries messages: mpi, which it is without, or nccl. False where that cannot be,
// which the first process says.
bool carried_as_asked(std::unique_ptr<RankEngine>& engine) {
  const char* given = std::getenv("ASSAY_RANKS");
  const std::string_view by = given ? given : "";
  if (!engine || by.empty() || by == "mpi") return true;
  const int process = engine->process();
  const auto refuse = [&](const char* why) {
    if (process == 0) std::fprintf(stderr, "assay: %s\n", why);
    return false;
  };
  if (by != "nccl") return refuse("ASSAY_RANKS: expected mpi or nccl, found another word");
  try {
    auto made = over_nccl(engine);
    if (!made) return refuse(made.error().text().c_str());
    engine = std::move(*made);
    return true;
  } catch (const RankError& e) {
    if (engine) engine->lost = true;
    return refuse(e.what());
  }
}

// The program, which knows of MPI only the descriptor to its relay. Output comes from the first process
// alone; what another says on standard error its relay reports.
int crew_program(int argc, char** argv, int descriptor, int errors) {
  auto crew = std::make_unique<assay::Crew>(descriptor);
  if (crew->process() > 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
  }
  assay::set_crew(std::move(crew));
  const int status = assay::program_main(argc, argv);
  assay::set_crew(nullptr);
  return status;
}

int crew_relay(int descriptor, pid_t program, int errors) {
  MpiMail post;
  assay::Mail mail;
  mail.process = post.process();
  mail.processes = post.processes();
  mail.send = [&](int to, std::string text) { post.send(to, std::move(text)); };
  mail.take = [&]() -> std::optional<assay::Letter> {
    auto l = post.take();
    if (!l) return std::nullopt;
    return assay::Letter{l->first, std::move(l->second)};
  };
  mail.sent = [&] { return post.sent(); };
  mail.told_to_end = [&] { return post.told_to_end(); };
  mail.abort = [&](int status) { post.abort(status); };
  try {
    return assay::relay(mail, descriptor, program, errors);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "assay: %s\n", e.what());
    post.abort(1);
  }
}

// One process of a launcher: the program and its relay, apart before MPI_Init, after which nobody may fork.
int crew_member(int argc, char** argv) {
  int ends[2];
  const int errors = ::memfd_create("assay-program-stderr", MFD_CLOEXEC);
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return std::perror("assay: socketpair"), 2;
  const pid_t program = ::fork();
  if (program < 0) return std::perror("assay: fork"), 2;
  if (program > 0) {
    ::close(ends[1]);
    return crew_relay(ends[0], program, errors);
  }
  ::close(ends[0]);
  try {
    return crew_program(argc, argv, ends[1], errors);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "assay: %s\n", e.what());
    return 2;
  }
}

bool asks_for_crew(int argc, char** argv) {
  for (int i = 2; i < argc; ++i)
    if (std::string_view(argv[i]) == "--mpi") return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  rank_library() = mpi_library() + (nccl_library().empty() ? "" : ", " + nccl_library());
  if (asks_for_crew(argc, argv) && launched()) return crew_member(argc, argv);
  std::unique_ptr<RankEngine> engine = make_mpi_ranks();
  const int process = engine ? engine->process() : 0;
  if (!carried_as_asked(engine)) return 2;  // the engine's end ends MPI
  // Other commands, such as `vectors`, have virtual ranks.
  if (command == "run" || command == "doctor") set_rank_engine(std::move(engine));
  const int status = process > 0 && command != "run" ? 0 : assay::program_main(argc, argv);
  set_rank_engine(nullptr);  // ends MPI
  return status;
}

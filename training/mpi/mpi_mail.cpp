#include "training/mpi/mpi_mail.h"

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <list>

#include <mpi.h>

#include "training/base/rank_engine.h"
#include "training/mpi/mpi_calls.h"

namespace assay::training {

namespace {

std::atomic<bool> end_noted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it
extern "C" void note_end_of_mail(int) { end_noted = true; }

constexpr int kTag = 1;

struct Leaving {
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;
};

}  // namespace

struct MpiMail::State {
  int process = 0, processes = 1;
  std::list<Leaving> leaving;  // addresses must stay
};

MpiMail::MpiMail() : state_(std::make_unique<State>()) {
  int given = 0;
  expect(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  expect(MPI_Comm_size(MPI_COMM_WORLD, &state_->processes), "MPI_Comm_size");
  expect(MPI_Comm_rank(MPI_COMM_WORLD, &state_->process), "MPI_Comm_rank");
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, note_end_of_mail);
}

MpiMail::~MpiMail() { MPI_Finalize(); }

int MpiMail::process() const { return state_->process; }
int MpiMail::processes() const { return state_->processes; }

void MpiMail::send(int to, std::string text) {
  if (text.size() > INT_MAX) throw RankError("a letter between processes: expected at most 2 GiB", true);
  Leaving& l = state_->leaving.emplace_back(Leaving{std::move(text)});
  expect(MPI_Isend(l.text.data(), static_cast<int>(l.text.size()), MPI_BYTE, to, kTag, MPI_COMM_WORLD,
                   &l.request),
         "MPI_Isend");
}

std::optional<std::pair<int, std::string>> MpiMail::take() {
  sent();
  int there = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  expect(MPI_Improbe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &there, &handle, &status), "MPI_Improbe");
  if (!there) return std::nullopt;
  int size = 0;
  expect(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
  std::string text(static_cast<size_t>(size), '\0');
  expect(MPI_Mrecv(text.data(), size, MPI_BYTE, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return std::pair(status.MPI_SOURCE, std::move(text));
}

bool MpiMail::sent() {
  std::list<Leaving>& leaving = state_->leaving;
  for (auto it = leaving.begin(); it != leaving.end();) {
    int done = 0;
    expect(MPI_Test(&it->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    it = done ? leaving.erase(it) : std::next(it);
  }
  return leaving.empty();
}

bool MpiMail::told_to_end() const { return end_noted; }

void MpiMail::abort(int status) {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace assay::training

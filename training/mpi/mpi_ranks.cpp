#include "training/mpi/mpi_ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <span>
#include <thread>

#include <mpi.h>

namespace assay::training {

namespace {

enum Tag { kMeeting = 1, kWords = 2 };

std::atomic<bool> end_noted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it
extern "C" void note_end(int) { end_noted = true; }

// What MPI itself cannot do ends the run like a rank that is gone.
void expect(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw RankError(std::string(call) + " failed: " + text, true);
}

class MpiMailbox final : public Mailbox {
 public:
  MpiMailbox(MPI_Comm comm, int process, int processes)
      : comm_(comm), process_(process), arriving_(static_cast<size_t>(processes)) {}

  void post(Message message) override {
    send(message, kMeeting);
    own_.push_back(std::move(message));
  }

  std::optional<Message> take(int from) override {
    if (from == process_) {
      if (own_.empty()) return std::nullopt;
      Message first = std::move(own_.front());
      own_.pop_front();
      return first;
    }
    std::optional<Arriving>& arriving = arriving_[static_cast<size_t>(from)];
    if (!arriving) arriving = begin_receive(from, kMeeting);
    if (!arriving) return std::nullopt;
    int done = 0;
    expect(MPI_Test(&arriving->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) return std::nullopt;
    Message message = std::move(*arriving->message);
    arriving.reset();
    return message;
  }

  bool sent() override {
    std::erase_if(leaving_, [](Leaving& l) {
      int done = 0;
      expect(MPI_Test(&l.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
    return leaving_.empty();
  }

  // Cores may be fewer than processes, so that waiting must not take one.
  void pause() override { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

  void give_up(const std::string& words) override {
    const auto bytes = std::as_bytes(std::span(words));
    send({bytes.begin(), bytes.end()}, kWords);
  }

  std::optional<std::string> ended() override {
    if (end_noted) return "the launcher ended the run";
    listen_for_words();
    if (words_.empty()) return std::nullopt;
    return "rank " + std::to_string(words_.front().first) + " gave up";
  }

  // By process, in the order in which they came.
  const std::vector<std::pair<int, std::string>>& listen_for_words() {
    while (std::optional<Arriving> next = begin_receive(MPI_ANY_SOURCE, kWords)) {
      expect(MPI_Wait(&next->request, MPI_STATUS_IGNORE), "MPI_Wait");
      words_.emplace_back(next->from, std::string(reinterpret_cast<const char*>(next->message->data()),
                                                  next->message->size()));
    }
    return words_;
  }

 private:
  struct Arriving {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<Message> message;
    int from = 0;
  };
  struct Leaving {
    MPI_Request request = MPI_REQUEST_NULL;
    std::shared_ptr<Message> message;
  };

  void send(const Message& message, Tag tag) {
    if (message.size() > INT_MAX)
      throw RankError("a message between ranks: expected at most 2 GiB, found " +
                          std::to_string(message.size()) + " bytes; take smaller tensors",
                      true);
    const auto kept = std::make_shared<Message>(message);
    for (int to = 0; to < static_cast<int>(arriving_.size()); ++to) {
      if (to == process_) continue;
      Leaving& l = leaving_.emplace_back(Leaving{MPI_REQUEST_NULL, kept});
      expect(MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_BYTE, to, tag, comm_, &l.request),
             "MPI_Isend");
    }
  }

  std::optional<Arriving> begin_receive(int from, Tag tag) {
    int there = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    expect(MPI_Improbe(from, tag, comm_, &there, &handle, &status), "MPI_Improbe");
    if (!there) return std::nullopt;
    int size = 0;
    expect(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
    Arriving out;
    out.message = std::make_unique<Message>(static_cast<size_t>(size));
    out.from = status.MPI_SOURCE;
    expect(MPI_Imrecv(out.message->data(), size, MPI_BYTE, &handle, &out.request), "MPI_Imrecv");
    return out;
  }

  MPI_Comm comm_;
  int process_;
  std::deque<Message> own_;
  std::vector<std::optional<Arriving>> arriving_;  // by process
  std::vector<Leaving> leaving_;
  std::vector<std::pair<int, std::string>> words_;
};

class MpiRanks final : public RankEngine {
 public:
  MpiRanks() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &processes_);
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    mailbox_ = std::make_unique<MpiMailbox>(MPI_COMM_WORLD, process_, processes_);
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, note_end);
    if (process_ > 0) silence();
  }
  // After a meeting that was lost somebody may never come to MPI_Finalize, which waits for all.
  ~MpiRanks() override {
    if (lost) MpiRanks::abort(1, "");
    MPI_Finalize();
  }

  std::string_view name() const override { return "mpi"; }
  int processes() const override { return processes_; }
  int process() const override { return process_; }
  void run(int size, const std::function<void(Mailbox&, int rank)>& take_part) override {
    take_part(*mailbox_, process_ < size ? process_ : -1);
  }

  std::vector<std::string> last_words(std::chrono::duration<double> wait) override {
    const auto until = std::chrono::steady_clock::now() + wait;
    while (mailbox_->listen_for_words().size() + 1 < static_cast<size_t>(processes_) &&
           std::chrono::steady_clock::now() < until)
      mailbox_->pause();
    std::vector<std::string> out;
    for (const auto& [process, words] : mailbox_->listen_for_words()) out.push_back(words);
    return out;
  }
  bool told_to_end() const override { return end_noted; }
  void abort(int status, const std::string& words) override {
    std::fflush(nullptr);
    if (!words.empty()) dprintf(error_output_, "%s\n", words.c_str());
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  // Output comes from the first process alone.
  void silence() {
    error_output_ = ::dup(STDERR_FILENO);
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::close(nowhere);
  }

  int processes_ = 1, process_ = 0;
  int error_output_ = STDERR_FILENO;
  std::unique_ptr<MpiMailbox> mailbox_;
};

}  // namespace

// Without a launcher MPI_Init would start a daemon of its own.
bool launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (const char* value = std::getenv(name); value && *value) return true;
  return false;
}

std::unique_ptr<RankEngine> make_mpi_ranks() {
  if (!launched()) return nullptr;
  int given = 0, processes = 1;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS) return nullptr;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  if (processes > 1) return std::make_unique<MpiRanks>();
  MPI_Finalize();
  return nullptr;
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, version = 0, subversion = 0;
  MPI_Get_library_version(text, &length);
  MPI_Get_version(&version, &subversion);
  const std::string all(text);
  return all.substr(0, all.find_first_of(",\n")) + " (MPI " + std::to_string(version) + "." +
         std::to_string(subversion) + ")";
}

}  // namespace assay::training

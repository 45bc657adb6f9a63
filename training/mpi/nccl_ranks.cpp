#include "training/mpi/nccl_ranks.h"

#include <cstring>
#include <deque>
#include <span>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

namespace assay::training {

namespace {

// What CUDA or NCCL cannot do ends the run like a rank that is gone.
void expect(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw RankError(std::string(call) + " failed: " + cudaGetErrorString(code), true);
}
void expect(ncclResult_t code, const char* call) {
  if (code != ncclSuccess && code != ncclInProgress)
    throw RankError(std::string(call) + " failed: " + ncclGetErrorString(code), true);
}

// Bytes on the GPU, and beside them where this process reads and writes them. Grows; what was in it is lost
// then.
class Staged {
 public:
  Staged() = default;
  Staged(const Staged&) = delete;
  ~Staged() { release(); }
  void reserve(size_t size) {
    if (size <= size_) return;
    release();
    expect(cudaMallocHost(&host_, size), "cudaMallocHost");
    expect(cudaMalloc(&device_, size), "cudaMalloc");
    size_ = size;
  }
  void* device() const { return device_; }
  std::byte* host() const { return static_cast<std::byte*>(host_); }
  uint64_t* numbers() const { return static_cast<uint64_t*>(host_); }
  void to_device(size_t size, cudaStream_t stream) {
    expect(cudaMemcpyAsync(device_, host_, size, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }
  void to_host(size_t size, cudaStream_t stream) {
    expect(cudaMemcpyAsync(host_, device_, size, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  }

 private:
  void release() {
    cudaFreeHost(host_);
    cudaFree(device_);
    host_ = device_ = nullptr;
    size_ = 0;
  }
  void *host_ = nullptr, *device_ = nullptr;
  size_t size_ = 0;
};

// NCCL receives what it was told the size of, so a meeting is two exchanges of everybody with everybody: of
// sizes, and of messages. A process that only listens says that it has none. Nothing waits: an event tells
// whether the GPU is done.
class NcclMailbox final : public Mailbox {
 public:
  NcclMailbox(ncclComm_t comm, int process, int processes)
      : comm_(comm), process_(process), from_(static_cast<size_t>(processes)), inbox_(from_.size()) {
    expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    expect(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~NcclMailbox() override {
    cudaEventDestroy(done_);
    cudaStreamDestroy(stream_);
  }
  Mailbox* words = nullptr;  // of MPI: what is said when a rank gives up

  void post(Message message) override {
    inbox_[static_cast<size_t>(process_)].push_back(message);
    leaving_.push_back(std::move(message));
    go_on(false);
  }
  std::optional<Message> take(int from) override {
    std::deque<Message>& box = inbox_[static_cast<size_t>(from)];
    go_on(box.empty() && from != process_);
    if (box.empty()) return std::nullopt;
    Message first = std::move(box.front());
    box.pop_front();
    return first;
  }
  bool sent() override {
    go_on(false);
    return state_ == State::idle && leaving_.empty();
  }
  void pause() override { std::this_thread::sleep_for(std::chrono::microseconds(100)); }
  void give_up(const std::string& text) override { words->give_up(text); }
  std::optional<std::string> ended() override { return words->ended(); }

 private:
  enum class State : uint8_t { idle, sizes, messages };
  static constexpr uint64_t kNone = ~uint64_t{0};

  // The next exchange, where the one before is done. `listens`: a message of another is wanted, so a meeting
  // begins although this process posts nothing.
  void go_on(bool listens) {
    ncclResult_t state = ncclSuccess;
    expect(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    expect(state, "an exchange of NCCL");
    if (state == ncclInProgress) return;
    if (state_ == State::idle) {
      if (!leaving_.empty() || listens) exchange_sizes();
      return;
    }
    if (queued_) fetch();
    const cudaError_t done = cudaEventQuery(done_);
    if (done == cudaErrorNotReady) return;
    expect(done, "cudaEventQuery");
    if (state_ == State::sizes) exchange_messages();
    else arrived();
  }

  // What follows a group, which cannot be queued before the group is: copies of what came, and the event.
  void fetch() {
    if (state_ == State::sizes) sizes_.to_host(from_.size() * sizeof(uint64_t), stream_);
    else
      for (size_t peer = 0; peer < from_.size(); ++peer)
        if (const size_t size = size_from(peer)) from_[peer].to_host(size, stream_);
    expect(cudaEventRecord(done_, stream_), "cudaEventRecord");
    queued_ = false;
  }

  // Of the message that this process is told about; 0 where there is none.
  size_t size_from(size_t peer) const {
    const uint64_t size = sizes_.numbers()[peer];
    return peer == static_cast<size_t>(process_) || size == kNone ? 0 : size;
  }

  template <class Send, class Receive> void exchange(State next, Send send, Receive receive) {
    expect(ncclGroupStart(), "ncclGroupStart");
    for (int peer = 0; peer < static_cast<int>(from_.size()); ++peer) {
      if (peer == process_) continue;
      send(peer);
      receive(peer);
    }
    expect(ncclGroupEnd(), "ncclGroupEnd");
    state_ = next;
    queued_ = true;
  }

  void exchange_sizes() {
    has_ = !leaving_.empty();
    own_size_.reserve(sizeof(uint64_t));
    *own_size_.numbers() = has_ ? leaving_.front().size() : kNone;
    own_size_.to_device(sizeof(uint64_t), stream_);
    sizes_.reserve(from_.size() * sizeof(uint64_t));
    exchange(
        State::sizes,
        [&](int peer) {
          expect(ncclSend(own_size_.device(), 1, ncclUint64, peer, comm_, stream_), "ncclSend");
        },
        [&](int peer) {
          expect(
              ncclRecv(static_cast<uint64_t*>(sizes_.device()) + peer, 1, ncclUint64, peer, comm_, stream_),
              "ncclRecv");
        });
  }

  void exchange_messages() {
    const size_t own = has_ ? leaving_.front().size() : 0;
    if (own) {
      own_.reserve(own);
      std::memcpy(own_.host(), leaving_.front().data(), own);
      own_.to_device(own, stream_);
    }
    for (size_t peer = 0; peer < from_.size(); ++peer) from_[peer].reserve(size_from(peer));
    exchange(
        State::messages,
        [&](int peer) {
          if (own) expect(ncclSend(own_.device(), own, ncclUint8, peer, comm_, stream_), "ncclSend");
        },
        [&](int peer) {
          const auto n = static_cast<size_t>(peer);
          if (const size_t size = size_from(n))
            expect(ncclRecv(from_[n].device(), size, ncclUint8, peer, comm_, stream_), "ncclRecv");
        });
  }

  void arrived() {
    for (size_t peer = 0; peer < from_.size(); ++peer) {
      if (peer == static_cast<size_t>(process_) || sizes_.numbers()[peer] == kNone) continue;
      const std::span<const std::byte> bytes(from_[peer].host(), size_from(peer));
      inbox_[peer].emplace_back(bytes.begin(), bytes.end());
    }
    if (has_) leaving_.pop_front();
    state_ = State::idle;
  }

  ncclComm_t comm_;
  int process_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  State state_ = State::idle;
  bool has_ = false;     // this process posts in the meeting under way
  bool queued_ = false;  // an exchange is queued, and no event follows it yet
  Staged sizes_, own_size_, own_;
  std::vector<Staged> from_;                // by process
  std::vector<std::deque<Message>> inbox_;  // by process
  std::deque<Message> leaving_;
};

class NcclRanks final : public RankEngine {
 public:
  NcclRanks(std::unique_ptr<RankEngine> mpi, ncclComm_t comm)
      : mpi_(std::move(mpi)), comm_(comm), mailbox_(comm, mpi_->process(), mpi_->processes()) {}
  ~NcclRanks() override {
    if (lost) ncclCommAbort(comm_);
    else ncclCommDestroy(comm_);
    mpi_->lost = lost;
  }
  std::string_view name() const override { return "nccl"; }
  int processes() const override { return mpi_->processes(); }
  int process() const override { return mpi_->process(); }
  void run(int size, const std::function<void(Mailbox&, int rank)>& take_part) override {
    mpi_->run(size, [&](Mailbox& words, int rank) {
      mailbox_.words = &words;
      take_part(mailbox_, rank);
    });
  }
  std::vector<std::string> last_words(std::chrono::duration<double> wait) override {
    return mpi_->last_words(wait);
  }
  bool told_to_end() const override { return mpi_->told_to_end(); }
  void abort(int status, const std::string& text) override { mpi_->abort(status, text); }

 private:
  std::unique_ptr<RankEngine> mpi_;
  ncclComm_t comm_;
  NcclMailbox mailbox_;
};

// Everybody's words, by process, over MPI.
std::vector<std::string> told_by_all(RankEngine& mpi, const std::string& mine, const char* what) {
  std::vector<std::string> out;
  mpi.run(mpi.processes(), [&](Mailbox& mailbox, int rank) {
    const auto bytes = std::as_bytes(std::span(mine));
    const MeetingText text{what, [](int) { return std::string("nothing"); }};
    for (const Message& m :
         meet(mailbox, rank, mpi.processes(), {bytes.begin(), bytes.end()}, text, mpi.deadline))
      out.emplace_back(reinterpret_cast<const char*>(m.data()), m.size());
  });
  return out;
}

// The GPU of this process, the nth of its machine for the nth process there; -1: there is none for it.
int own_device(RankEngine& mpi, int& found, int& needed) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  if (cudaGetDeviceCount(&found) != cudaSuccess) found = 0;
  const std::vector<std::string> hosts = told_by_all(mpi, host, "the names of machines");
  int before = 0;
  needed = 0;
  for (size_t p = 0; p < hosts.size(); ++p) {
    if (hosts[p] != host) continue;
    before += static_cast<int>(p) < mpi.process();
    ++needed;
  }
  return needed <= found ? before : -1;
}

}  // namespace

std::string nccl_library() {
  int v = 0;
  if (ncclGetVersion(&v) != ncclSuccess) return "NCCL";
  return "NCCL " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

Result<std::unique_ptr<RankEngine>> over_nccl(std::unique_ptr<RankEngine>& mpi) {
  int found = 0, needed = 0;
  const int device = own_device(*mpi, found, needed);
  std::string trouble;
  if (device < 0)
    trouble = "expected a GPU for each of the " + std::to_string(needed) + " processes on a machine, found " +
              std::to_string(found);
  else if (const cudaError_t e = cudaSetDevice(device); e != cudaSuccess) trouble = cudaGetErrorString(e);
  ncclUniqueId id{};
  if (trouble.empty() && mpi->process() == 0)
    if (const ncclResult_t e = ncclGetUniqueId(&id); e != ncclSuccess) trouble = ncclGetErrorString(e);
  for (const std::string& said : told_by_all(*mpi, trouble, "the GPUs"))
    if (!said.empty())
      return Error{"ASSAY_RANKS=nccl: " + said, 0, "leave ASSAY_RANKS out: ranks then meet over MPI"};
  const std::string ids =
      told_by_all(*mpi, std::string(id.internal, sizeof id.internal), "NCCL's id").front();
  std::memcpy(id.internal, ids.data(), sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclResult_t state = ncclCommInitRankConfig(&comm, mpi->processes(), id, mpi->process(), &config);
  const auto until = std::chrono::steady_clock::now() + mpi->deadline;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) state = asked;
  }
  const std::string mine = state == ncclSuccess ? "" : ncclGetErrorString(state);
  for (const std::string& said : told_by_all(*mpi, mine, "the start of NCCL"))
    if (!said.empty()) {
      if (comm) ncclCommAbort(comm);
      return Error{"ASSAY_RANKS=nccl: NCCL could not start: " + said, 0,
                   "leave ASSAY_RANKS out: ranks then meet over MPI"};
    }
  return std::unique_ptr<RankEngine>(std::make_unique<NcclRanks>(std::move(mpi), comm));
}

}  // namespace assay::training

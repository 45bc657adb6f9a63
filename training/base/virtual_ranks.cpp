#include "training/base/virtual_ranks.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

namespace assay::training {

namespace {

// Where the threads put their messages: a queue from every rank to every rank.
struct Board {
  explicit Board(int size) : queues(static_cast<size_t>(size) * static_cast<size_t>(size)), size(size) {}
  std::deque<Message>& queue(int from, int to) {
    return queues[static_cast<size_t>(from) * static_cast<size_t>(size) + static_cast<size_t>(to)];
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<Message>> queues;
  std::optional<std::string> ended;
  uint64_t changes = 0;  // of the queues and of `ended`
  int size;
};

class ThreadMailbox final : public Mailbox {
 public:
  ThreadMailbox(Board& board, int rank) : board_(board), rank_(rank) {}
  void post(Message message) override {
    const std::lock_guard lock(board_.mutex);
    for (int to = 0; to < board_.size; ++to) board_.queue(rank_, to).push_back(message);
    ++board_.changes;
    board_.changed.notify_all();
  }
  std::optional<Message> take(int from) override {
    const std::lock_guard lock(board_.mutex);
    std::deque<Message>& queue = board_.queue(from, rank_);
    if (queue.empty()) return std::nullopt;
    Message first = std::move(queue.front());
    queue.pop_front();
    return first;
  }
  bool sent() override { return true; }
  void pause() override {
    std::unique_lock lock(board_.mutex);
    board_.changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return board_.changes != seen_; });
    seen_ = board_.changes;
  }
  void give_up(const std::string& words) override {
    const std::lock_guard lock(board_.mutex);
    if (!board_.ended) board_.ended = "rank " + std::to_string(rank_) + " gave up: " + words;
    ++board_.changes;
    board_.changed.notify_all();
  }
  std::optional<std::string> ended() override {
    const std::lock_guard lock(board_.mutex);
    return board_.ended;
  }

 private:
  Board& board_;
  int rank_;
  uint64_t seen_ = 0;  // changes when this rank last looked
};

class VirtualRanks final : public RankEngine {
 public:
  std::string_view name() const override { return "virtual"; }
  void run(int size, const std::function<void(Mailbox&, int rank)>& take_part) override {
    Board board(size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&board, &take_part, rank] {
        ThreadMailbox mailbox(board, rank);
        take_part(mailbox, rank);
      });
    for (std::thread& t : threads) t.join();
  }
};

}  // namespace

std::unique_ptr<RankEngine> make_virtual_ranks() { return std::make_unique<VirtualRanks>(); }

}  // namespace assay::training

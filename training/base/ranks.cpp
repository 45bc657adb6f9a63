#include "training/base/ranks.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace assay::training {
namespace {

struct OtherRankFailed : std::runtime_error {
  OtherRankFailed() : std::runtime_error("another rank failed") {}
};

// Where all ranks hand in an item and leave with everybody's.
template <class Item> class Meeting {
 public:
  explicit Meeting(int size) : size_(size), items_(static_cast<size_t>(size)) {}
  std::vector<Item> meet(int rank, Item item) {
    std::unique_lock lock(mutex_);
    items_[static_cast<size_t>(rank)] = std::move(item);
    const int round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      results_ = items_;  // the next round may begin before the last rank has read this one's, but cannot end
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round || failed_; });
      if (round_ == round) throw OtherRankFailed();
    }
    return results_;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_, arrived_ = 0, round_ = 0;
  bool failed_ = false;
  std::vector<Item> items_, results_;
};

}  // namespace

void run_ranks(int size, const std::string& name,
               const std::function<void(int rank, const GroupPtr&)>& work) {
  Meeting<std::vector<F32Bits>> maxima(size);
  Meeting<ArrayPtr> tensors(size);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = std::make_shared<ProcessGroup>();
      group->name = name;
      group->size = size;
      group->rank = rank;
      group->all_reduce_max = [&maxima, rank](std::span<F32Bits> values) {
        for (const std::vector<F32Bits>& other : maxima.meet(rank, {values.begin(), values.end()}))
          for (size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], other.at(i));
      };
      group->all_gather = [&tensors, rank](const ArrayPtr& x) { return tensors.meet(rank, x); };
      try {
        work(rank, group);
      } catch (const OtherRankFailed&) {
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
      if (failures[static_cast<size_t>(rank)]) maxima.fail(), tensors.fail();
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace assay::training

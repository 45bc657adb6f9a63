#include "training/base/ranks.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>

#include <unistd.h>

#include "fixtures/sha256.h"
#include "training/base/errors.h"
#include "training/base/rank_engine.h"

namespace assay::training {
namespace {

struct OtherRankFailed : std::runtime_error {
  OtherRankFailed() : std::runtime_error("another rank failed") {}
};

// What a rank comes to a meeting for. Ranks that leave, and those that fail, meet like the others: so nobody
// waits for them in vain.
enum class Purpose : uint8_t { all_reduce_max, all_gather, end, failure, text };
constexpr const char* kPurposes[] = {"all_reduce_max", "all_gather", "the end of its work", "an error",
                                     "a text"};

struct Announcement {
  Purpose purpose = Purpose::end;
  uint64_t sequence = 0;  // the first meeting of a run has 1
  DType dtype = DType::uint8;
  Dims shape;
  std::string group;
  bool operator==(const Announcement&) const = default;
};
void wire(Wire& w, Announcement& a) { w(a.purpose, a.sequence, a.dtype, a.shape, a.group); }

// "all_gather bfloat16 64x256 of tp"; without dtype and shape where there is no tensor.
std::string text(const Announcement& a) {
  std::string out = kPurposes[static_cast<size_t>(a.purpose)];
  if (a.purpose == Purpose::all_reduce_max || a.purpose == Purpose::all_gather) {
    out += " " + std::string(name_of(a.dtype)) + " ";
    for (size_t i = 0; i < a.shape.size(); ++i) out += (i ? "x" : "") + std::to_string(a.shape[i]);
    if (a.shape.empty()) out += "scalar";
  }
  return out + " of " + a.group;
}

std::string short_digest(std::span<const std::byte> bytes) { return sha256(bytes).substr(0, 16); }

std::string this_process() {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  return std::string(host) + ":" + std::to_string(::getpid());
}

// An exception that can travel to another process.
struct Failure {
  std::optional<ErrorClass> error_class;  // of a SemanticError
  std::string words;
};
void wire(Wire& w, Failure& f) { w(f.error_class, f.words); }

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const SemanticError& e) {
    return {e.error_class, e.what()};
  } catch (const std::exception& e) {
    return {std::nullopt, e.what()};
  } catch (...) {
    return {std::nullopt, "an exception without words"};
  }
}

std::exception_ptr exception_of(const Failure& f) {
  if (f.error_class) return std::make_exception_ptr(SemanticError(*f.error_class, f.words));
  return std::make_exception_ptr(std::runtime_error(f.words));
}

// One rank among the others, or with the rank -1 one who listens to them.
class Member {
 public:
  Member(Mailbox& mailbox, int rank, int size, std::string group)
      : mailbox_(mailbox),
        rank_(rank),
        size_(size),
        group_(std::move(group)),
        last_(static_cast<size_t>(size)) {}

  // Everybody's payload. OtherRankFailed where a rank came with an error, which is then in failures().
  std::vector<Message> meet_for(Purpose purpose, DType dtype, const Dims& shape, Message payload) {
    Announcement own{purpose, ++sequence_, dtype, shape, group_};
    Wire w;
    w(own, payload);
    const MeetingText words{
        "meeting " + std::to_string(sequence_) + " (" + (rank_ < 0 ? "any of " + group_ : text(own)) + ")",
        [this](int r) {
          return last_[static_cast<size_t>(r)].empty() ? "nothing" : last_[static_cast<size_t>(r)];
        }};
    const std::vector<Message> messages =
        meet(mailbox_, rank_, size_, w.bytes(), words, rank_engine().deadline);
    std::vector<Announcement> announced(messages.size());
    std::vector<Message> payloads(messages.size());
    for (size_t r = 0; r < messages.size(); ++r) {
      Wire read(messages[r]);
      read(announced[r], payloads[r]);
      last_[r] = text(announced[r]);
    }
    for (size_t r = 0; r < messages.size(); ++r)
      if (announced[r].purpose == Purpose::failure) {
        Wire read(payloads[r]);
        read(failures_.emplace_back(static_cast<int>(r), Failure{}).second);
      }
    if (!failures_.empty() && purpose != Purpose::failure) throw OtherRankFailed();
    if (failures_.empty()) expect_agreement(announced);
    ended_ = announced.front().purpose == Purpose::end;
    return payloads;
  }

  bool ended() const { return ended_; }
  const std::vector<std::pair<int, Failure>>& failures() const { return failures_; }

 private:
  // Throws where two ranks came for different things. Every rank sees the same messages, so all of them
  // throw.
  void expect_agreement(const std::vector<Announcement>& announced) const {
    if (std::ranges::all_of(announced, [&](const Announcement& a) { return a == announced.front(); })) return;
    std::string found;
    for (size_t r = 0; r < announced.size(); ++r)
      found += (r ? "; rank " : "rank ") + std::to_string(r) + " has " + text(announced[r]) + ", meeting " +
               std::to_string(announced[r].sequence);
    throw RankError("the ranks disagree: expected one collective, found " + found, false);
  }

  Mailbox& mailbox_;
  int rank_, size_;
  std::string group_;
  uint64_t sequence_ = 0;
  std::vector<std::string> last_;
  std::vector<std::pair<int, Failure>> failures_;
  bool ended_ = false;
};

Message bytes_of_values(std::span<const F32Bits> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

GroupPtr group_of(Member& member, int rank, int size, const std::string& name, RankRecord& record) {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = name;
  group->size = size;
  group->rank = rank;
  const auto note = [&record, name](Purpose purpose, DType dtype, const Dims& shape, const Message& sent) {
    record.collectives.push_back(text({purpose, 0, dtype, shape, name}) + " " + short_digest(sent));
  };
  group->all_reduce_max = [&member, note](std::span<F32Bits> values) {
    const Dims shape = {static_cast<int64_t>(values.size())};
    const Message own = bytes_of_values(values);
    note(Purpose::all_reduce_max, DType::float32, shape, own);
    for (const Message& other : member.meet_for(Purpose::all_reduce_max, DType::float32, shape, own))
      for (size_t i = 0; i < values.size(); ++i) {
        F32Bits theirs = 0;
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(i * sizeof theirs), sizeof theirs,
                    std::as_writable_bytes(std::span(&theirs, 1)).begin());
        values[i] = std::max(values[i], theirs);
      }
  };
  group->all_gather = [&member, note](const ArrayPtr& x) {
    const ArrayPtr own = contiguous(x);
    const auto bytes = std::as_const(*own).bytes();
    const Message sent(bytes.begin(), bytes.end());
    note(Purpose::all_gather, own->dtype, own->shape, sent);
    std::vector<ArrayPtr> out;
    for (const Message& part : member.meet_for(Purpose::all_gather, own->dtype, own->shape, sent))
      out.push_back(from_bytes(own->shape, own->dtype, part));
    return out;
  };
  return group;
}

// One call of run_ranks, as one of its threads or processes sees it.
class Part {
 public:
  Part(Mailbox& mailbox, int rank, int size, const std::string& name, const Left& left)
      : member_(mailbox, rank, size, name), rank_(rank), size_(size), name_(name), left_(left) {}

  // Returns when every rank has ended; throws what the lowest rank that failed threw.
  void run(const std::function<void(int rank, const GroupPtr&)>& work) {
    std::vector<Message> payloads;
    try {
      payloads = rank_ < 0 ? listen() : take_part(work);
    } catch (const OtherRankFailed&) {}
    if (!member_.failures().empty()) {
      const auto& [rank, failure] = member_.failures().front();
      error_ = "rank " + std::to_string(rank) + ": " +
               (failure.error_class ? std::string(name_of(*failure.error_class)) + ": " : "") + failure.words;
      if (rank == rank_) std::rethrow_exception(own_failure_);
      if (rank_engine().processes() == 1) return;  // that rank's thread throws it
      std::rethrow_exception(exception_of(failure));
    }
    const bool elsewhere = rank_engine().processes() > 1;
    for (int r = 0; r < size_; ++r) {
      Wire read(payloads[static_cast<size_t>(r)]);
      read(records_.emplace_back());
      if (!elsewhere || r == rank_) continue;
      for (const auto& item : left_) {
        Message bytes;
        read(bytes);
        Wire from(bytes);
        item(from, r);
      }
    }
  }

  // What is known of the run, after it.
  RankRun told() { return {name_, size_, std::move(records_), error_}; }

 private:
  std::vector<Message> listen() {
    for (;;) {
      std::vector<Message> payloads = member_.meet_for(Purpose::end, DType::uint8, {}, {});
      if (member_.ended()) return payloads;
    }
  }

  std::vector<Message> take_part(const std::function<void(int rank, const GroupPtr&)>& work) {
    RankRecord record{rank_, this_process(), {}, {}};
    try {
      work(rank_, group_of(member_, rank_, size_, name_, record));
    } catch (const RankError&) {
      throw;
    } catch (const OtherRankFailed&) {
      throw;
    } catch (...) {
      own_failure_ = std::current_exception();
      Failure failure = failure_of(own_failure_);
      Wire w;
      w(failure);
      return member_.meet_for(Purpose::failure, DType::uint8, {}, w.bytes());
    }
    std::vector<Message> items;
    for (const auto& item : left_) {
      Wire w;
      item(w, rank_);
      record.left.push_back(w.bytes().empty() ? "" : short_digest(w.bytes()));
      items.push_back(w.bytes());
    }
    Wire w;
    w(record);
    if (rank_engine().processes() > 1)
      for (Message& item : items) w(item);
    return member_.meet_for(Purpose::end, DType::uint8, {}, w.bytes());
  }

  Member member_;
  int rank_, size_;
  const std::string& name_;
  const Left& left_;
  std::exception_ptr own_failure_;
  std::vector<RankRecord> records_;
  std::string error_;
};

thread_local RankTranscript* listening = nullptr;

// Throws the first of them; remembers that nobody can meet any more where it says so.
void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  for (const std::exception_ptr& e : errors) {
    if (!e) continue;
    try {
      std::rethrow_exception(e);
    } catch (const RankError& error) {
      rank_engine().lost = rank_engine().lost || (error.lost && rank_engine().processes() > 1);
      throw;
    }
  }
}

}  // namespace

void run_ranks(int size, const std::string& name, const std::function<void(int rank, const GroupPtr&)>& work,
               const Left& left) {
  RankEngine& engine = rank_engine();
  if (engine.processes() > 1 && size > engine.processes())
    throw std::runtime_error("expected " + std::to_string(size) + " processes, found " +
                             std::to_string(engine.processes()) + "; start more with mpirun -n");
  // By rank; the last of one that listens. A process has only that of its own rank.
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size) + 1);
  std::vector<std::optional<RankRun>> told(errors.size());
  engine.run(size, [&](Mailbox& mailbox, int rank) {
    const auto at = static_cast<size_t>(rank < 0 ? size : rank);
    Part part(mailbox, rank, size, name, left);
    try {
      part.run(work);
    } catch (...) {
      errors[at] = std::current_exception();
    }
    told[at] = part.told();
  });
  if (listening)
    listening->runs.push_back(std::move(**std::ranges::find_if(told, &std::optional<RankRun>::has_value)));
  rethrow_first(errors);
}

void wire(Wire& w, RankRecord& r) { w(r.rank, r.process, r.collectives, r.left); }

RankTranscript::RankTranscript() { listening = this; }
RankTranscript::~RankTranscript() { listening = nullptr; }
int RankTranscript::most() const {
  int most = 1;
  for (const RankRun& run : runs) most = std::max(most, run.size);
  return most;
}

std::vector<std::string> texts_of_processes(const std::string& what, const std::string& mine) {
  RankEngine& engine = rank_engine();
  if (engine.processes() == 1) return {mine};
  std::vector<std::string> out;
  std::vector<std::exception_ptr> errors(1);
  engine.run(engine.processes(), [&](Mailbox& mailbox, int rank) {
    try {
      Member member(mailbox, rank, engine.processes(), what);
      std::string own = mine;
      Wire w;
      w(own);
      for (const Message& m : member.meet_for(Purpose::text, DType::uint8, {}, w.bytes())) {
        Wire read(m);
        read(out.emplace_back());
      }
    } catch (...) {
      errors.front() = std::current_exception();
    }
  });
  rethrow_first(errors);
  return out;
}

}  // namespace assay::training

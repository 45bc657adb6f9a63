// What carries ranks. Virtual ranks are threads of this process, which is the default; the ranks of another
// engine are processes (training/mpi). run_ranks (ranks.h) is written on this interface alone, so that both
// run the same collectives in the same order on the same bytes.
//
// Everything that ranks do together is a meeting: each hands in one message, and none leaves before it has
// everybody's. The nth message of a rank belongs to the nth meeting.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace assay::training {

using Message = std::vector<std::byte>;

// One rank's end of the messages between ranks. No call waits.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  // Begins to send `message` to everybody, this rank included.
  virtual void post(Message message) = 0;
  // The next message of rank `from`, where it has come.
  virtual std::optional<Message> take(int from) = 0;
  // Whether everything that was posted has left.
  virtual bool sent() = 0;
  // Gives way until something may have come: some milliseconds at most.
  virtual void pause() = 0;
  // This rank takes part in no further meeting, for the reason that `words` say: everybody's ended() will say
  // it.
  virtual void give_up(const std::string& words) = 0;
  // Why nobody can be waited for any more, where that is known: what a rank said that gave up, or that the
  // launcher ends the run.
  virtual std::optional<std::string> ended() = 0;
};

// What ends a run of ranks beside errors of their own: one did not come in time, or they disagree about what
// they do together. `lost`: messages may be under way, so that these processes cannot meet again.
struct RankError : std::runtime_error {
  RankError(const std::string& what, bool lost) : std::runtime_error(what), lost(lost) {}
  bool lost;
};

class RankEngine {
 public:
  virtual ~RankEngine() = default;
  virtual std::string_view name() const = 0;  // "virtual", "mpi"
  // How many processes the launcher started, and which of them this is. 1 and 0 where ranks are threads: then
  // there are as many ranks as are asked for.
  virtual int processes() const { return 1; }
  virtual int process() const { return 0; }
  // Calls `take_part` for every rank 0..size-1 that lives in this process, at the same time; it does not
  // throw. A process that is none of these ranks calls it with -1: it posts nothing, and takes what they
  // post.
  virtual void run(int size, const std::function<void(Mailbox&, int rank)>& take_part) = 0;

  // What other processes said when they gave up, once all have or after `wait`.
  virtual std::vector<std::string> last_words(std::chrono::duration<double> /*wait*/) { return {}; }
  // Whether the launcher has asked this process to end.
  virtual bool told_to_end() const { return false; }
  // Ends all processes at once. `words` go to standard error, also where the process is otherwise silent.
  virtual void abort(int status, const std::string& words);

  std::chrono::duration<double> deadline{120};  // how long a rank waits for the others in a meeting
  bool lost = false;                            // a RankError has said so: nothing can meet any more
};

// The engine that run_ranks uses. Set it before anything runs; null stands for virtual ranks.
RankEngine& rank_engine();
void set_rank_engine(std::unique_ptr<RankEngine> engine);

// What this program can make processes of ranks with: "Open MPI v4.1.4 (MPI 3.1)"; empty: nothing, ranks are
// threads. main sets it.
std::string& rank_library();

// What errors of a meeting say.
struct MeetingText {
  std::string what;                               // "collective 5 of group tp (all_gather bfloat16 64x256)"
  std::function<std::string(int rank)> did_last;  // what that rank met for before this
};
// Everybody's message of one meeting, by rank; `mine` is posted unless `rank` is -1. Throws a RankError that
// says who waited for whom once `deadline` has passed, or somebody has given up; nobody can meet afterwards.
std::vector<Message> meet(Mailbox& mailbox, int rank, int size, Message mine, const MeetingText& text,
                          std::chrono::duration<double> deadline);

}  // namespace assay::training

#include "training/base/rank_engine.h"

#include <cstdio>
#include <cstdlib>

#include "training/base/virtual_ranks.h"

namespace assay::training {

namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<RankEngine>& current_engine() {
  static std::unique_ptr<RankEngine> engine = make_virtual_ranks();
  return engine;
}

std::string seconds_text(Clock::duration d) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f s", std::chrono::duration<double>(d).count());
  return out;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) out += (i ? ", " : "") + std::to_string(ranks[i]);
  return out;
}

// "rank 0 of 4 waited 3.0 s for rank 2 in <what>; ranks 1, 3 had come; rank 2 had met last for <that>".
std::string who_waited(int rank, const std::vector<std::optional<Message>>& messages, const MeetingText& text,
                       Clock::duration waited) {
  std::vector<int> missing, came;
  for (int r = 0; r < static_cast<int>(messages.size()); ++r)
    if (r != rank) (messages[static_cast<size_t>(r)] ? came : missing).push_back(r);
  std::string out = rank < 0 ? "a process without a rank"
                             : "rank " + std::to_string(rank) + " of " + std::to_string(messages.size());
  out += " waited " + seconds_text(waited) + " for ";
  out += missing.empty() ? "its own messages to leave" : rank_list(missing);
  out += " in " + text.what;
  if (!came.empty()) out += "; " + rank_list(came) + " had come";
  if (text.did_last)
    for (const int r : missing)
      out += "; rank " + std::to_string(r) + " had met last for " + text.did_last(r);
  return out;
}

}  // namespace

void RankEngine::abort(int status, const std::string& words) {
  if (!words.empty()) std::fprintf(stderr, "%s\n", words.c_str());
  std::fflush(nullptr);
  std::_Exit(status);
}

std::string& rank_library() {
  static std::string library;
  return library;
}

RankEngine& rank_engine() { return *current_engine(); }
void set_rank_engine(std::unique_ptr<RankEngine> engine) {
  current_engine() = engine ? std::move(engine) : make_virtual_ranks();
}

std::vector<Message> meet(Mailbox& mailbox, int rank, int size, Message mine, const MeetingText& text,
                          std::chrono::duration<double> deadline) {
  const Clock::time_point start = Clock::now();
  std::vector<std::optional<Message>> messages(static_cast<size_t>(size));
  if (rank >= 0) mailbox.post(std::move(mine));
  for (bool all = false;; mailbox.pause()) {
    all = true;
    for (int from = 0; from < size; ++from) {
      std::optional<Message>& slot = messages[static_cast<size_t>(from)];
      if (!slot) slot = mailbox.take(from);
      all = all && slot;
    }
    if (all && mailbox.sent()) break;
    const Clock::duration waited = Clock::now() - start;
    const std::optional<std::string> why = mailbox.ended();
    if (!why && waited < deadline) continue;
    const std::string words = who_waited(rank, messages, text, waited) + (why ? "; then " + *why : "");
    mailbox.give_up(words);
    throw RankError(words, true);
  }
  std::vector<Message> out;
  for (std::optional<Message>& m : messages) out.push_back(std::move(*m));
  return out;
}

}  // namespace assay::training

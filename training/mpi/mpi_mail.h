// Letters from one process to another over MPI, point to point: what the tasks of a command travel by that
// processes share (docs/scale.md). One process may be missing without another waiting for it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace assay::training {

class MpiMail {
 public:
  // Calls MPI_Init; one at a time. From here on this process must not fork. SIGTERM and SIGINT are noted.
  MpiMail();
  ~MpiMail();  // MPI_Finalize, which waits for the other processes
  MpiMail(const MpiMail&) = delete;
  MpiMail& operator=(const MpiMail&) = delete;

  int process() const;
  int processes() const;
  void send(int to, std::string text);                // begins to send
  std::optional<std::pair<int, std::string>> take();  // from whom, and what, where something has come
  bool sent();                                        // whether everything has left
  bool told_to_end() const;                           // by the launcher
  [[noreturn]] void abort(int status);                // ends all processes at once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::training

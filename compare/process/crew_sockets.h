// How the processes of one launcher connect to the first of them. What they need for it is one line, the
// word, which the launcher's own means carry from the first process to the others (MPI's broadcast).
#pragma once
#include <string>
#include <vector>

#include "compare/process/crew.h"

namespace assay {

// Where the first process lets the others in.
class Door {
 public:
  Door();  // listens on every address of this machine. Throws where that cannot be.
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Where it is, and two secrets: what another says, and what it is answered. Below kLongestWord bytes.
  const std::string& word() const { return word_; }
  // Waits for processes 1..processes - 1, `limit` seconds at most; the connections are in their order.
  // Whoever does not know the secret is not let in. Throws where some have not come.
  std::vector<Connection> let_in(int processes, double limit) const;

 private:
  int listening_;
  std::string word_;
};
constexpr size_t kLongestWord = 4096;

// In another process: the connection to the first, whose word it is. Throws where it cannot be reached within
// `limit` seconds.
Connection enter(const std::string& word, int process, double limit);

}  // namespace assay

// Lines that reach new edges of compiled code. libFuzzer finds them, in the program assay_edges
// (compare/main_edges.cpp), whose kernels, or whose plugin, count their edges.
//
//   edges/new/    of a round: lines that reached new edges or failed, and those that ended the program
//   edges/kept/   those of the rounds before, from which the next one goes on
//   edges/        those that failed or ended the program
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"

namespace assay::hunting {

struct EdgesOptions {
  std::string program;          // assay_edges
  std::string subject, plugin;  // plugin: the library of that subject, or empty
  std::string folder;           // of the hunt
  std::string only;
  int64_t max_elements = 4096;
  uint64_t seed = 1;
};

// What stands for the words of a program that ended without any.
inline constexpr std::string_view kNoWords = "it says nothing of why";

class Edges {
 public:
  explicit Edges(EdgesOptions options) : options_(std::move(options)) {}

  struct Found {
    std::vector<Problem> lines;  // that reached new edges, or failed
    // The line on which the program ended, and what the sanitizer or libFuzzer says of it.
    std::optional<Problem> ended;
    std::string words;
  };
  // Why the program cannot be started, or that it is another program; nothing where all is well.
  std::optional<Error> cannot_start() const;
  // A line that ran, to begin from: the subject may run few of those that are drawn at random.
  std::optional<Error> know(const Problem&);
  // One round: so many executions as `runs` beyond those of the lines that are kept. It follows from the
  // seed, the round and what is kept, unless `over` ends it before. Error: the program cannot be run, or
  // ended for another reason than a line.
  Result<Found> search(uint64_t round, int64_t runs, const std::function<bool()>& over = {});
  // What the program says of this line alone, as Found::words has it; empty where it ends well. Error: it
  // cannot be run, or refuses its words.
  Result<std::string> said_of(const Problem&) const;
  // Removes the file with that line, which a process leaves behind if it is killed meanwhile.
  void drop_trial() const;
  // What the last round found is judged: the next one goes on from it.
  std::optional<Error> taken();
  size_t kept() const { return kept_; }

 private:
  std::string path(const char* name) const;
  std::vector<std::string> command() const;
  std::optional<Error> make_folders() const;
  std::filesystem::path aside(const std::filesystem::path& file) const;

  EdgesOptions options_;
  size_t kept_ = 0;
};

}  // namespace assay::hunting

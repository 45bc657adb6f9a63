// What a command ended with: its status, and what it printed.
#pragma once
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>

namespace assay {

struct Ended {
  int status = 0;
  std::string out, err;
  bool says(const std::string& text) const { return (out + err).find(text) != std::string::npos; }
};

// Of run(out, err), a command that writes to files of C.
template <class Run> Ended of_files(const Run& run) {
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  Ended ended{run(out, err), {}, {}};
  for (auto [file, text] : {std::pair(out, &ended.out), {err, &ended.err}}) {
    std::rewind(file);
    for (int c; (c = std::fgetc(file)) != EOF;) *text += static_cast<char>(c);
    std::fclose(file);
  }
  return ended;
}

// Of one that writes to streams.
template <class Run> Ended of_streams(const Run& run) {
  std::ostringstream out, err;
  const int status = run(out, err);
  return {status, out.str(), err.str()};
}

}  // namespace assay

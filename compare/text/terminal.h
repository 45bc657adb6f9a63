// What a terminal shows beside text: a line of progress that the next one overwrites, and colour.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace assay {

// A line of progress. On a terminal (`on`) it is sent at once, so that it also stands there while something
// takes long. Elsewhere, in a log, a whole line is sent every ten seconds, and none by what takes less.
class ProgressLine {
 public:
  ProgressLine(std::FILE* to, bool on);
  ProgressLine(std::ostream& to, bool on);
  // Writes `text` over the line that stands there; it must be one line of printable text.
  void show(std::string_view text);
  // Removes the line before other text is printed. Does nothing where no line stands.
  void wipe();

 private:
  using Clock = std::chrono::steady_clock;
  std::function<void(const std::string&)> send_;
  bool on_, shown_ = false;
  Clock::time_point sent_ = Clock::now();  // the latest line of a log, or the beginning
};

// " 41 s left", " 3 min left": by what a share of the whole has taken. Empty where that says nothing yet.
std::string left_text(double seconds, size_t done, size_t of);

enum class Colour : uint8_t { red = 31, green = 32, cyan = 36 };
std::string coloured(std::string_view text, Colour colour);

}  // namespace assay

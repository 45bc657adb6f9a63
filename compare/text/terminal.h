// What a terminal shows beside text: a line of progress that the next one overwrites, and colour.
#pragma once
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace assay {

// A line of progress. It is sent at once, so that it also stands there while something takes long. Where `on`
// is false nothing is sent.
class ProgressLine {
 public:
  ProgressLine(std::FILE* to, bool on);
  ProgressLine(std::ostream& to, bool on);
  // Writes `text` over the line that stands there; it must be one line of printable text.
  void show(std::string_view text);
  // Removes the line before other text is printed. Does nothing where no line stands.
  void wipe();

 private:
  std::function<void(const std::string&)> send_;
  bool on_, shown_ = false;
};

enum class Colour : uint8_t { red = 31, green = 32, cyan = 36 };
std::string coloured(std::string_view text, Colour colour);

}  // namespace assay

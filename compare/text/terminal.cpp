#include "compare/text/terminal.h"

#include <ostream>

#include <fmt/format.h>

namespace assay {

namespace {

constexpr std::string_view kStartOfEmptyLine = "\r\033[K";

}  // namespace

ProgressLine::ProgressLine(std::FILE* to, bool on)
    : send_([to](const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), to);
        std::fflush(to);
      }),
      on_(on) {}

ProgressLine::ProgressLine(std::ostream& to, bool on)
    : send_([&to](const std::string& text) { to << text << std::flush; }), on_(on) {}

void ProgressLine::show(std::string_view text) {
  if (!on_) return;
  send_(fmt::format("{}{}", kStartOfEmptyLine, text));
  shown_ = true;
}

void ProgressLine::wipe() {
  if (shown_) send_(std::string(kStartOfEmptyLine));
  shown_ = false;
}

std::string coloured(std::string_view text, Colour colour) {
  return fmt::format("\033[{}m{}\033[0m", static_cast<int>(colour), text);
}

}  // namespace assay

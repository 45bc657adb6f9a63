#include "compare/text/terminal.h"

#include <algorithm>
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
  if (!on_) {
    constexpr auto kBetweenLines = std::chrono::seconds(10);
    if (Clock::now() - sent_ < kBetweenLines) return;
    sent_ = Clock::now();
    send_(fmt::format("{}\n", text));
    return;
  }
  send_(fmt::format("{}{}", kStartOfEmptyLine, text));
  shown_ = true;
}

void ProgressLine::wipe() {
  if (shown_) send_(std::string(kStartOfEmptyLine));
  shown_ = false;
}

std::string left_text(double seconds, size_t done, size_t of) {
  if (done == 0 || seconds < 1) return {};
  const double left = seconds * static_cast<double>(of - std::min(done, of)) / static_cast<double>(done);
  return left < 100 ? fmt::format("  {:.0f} s left", left) : fmt::format("  {:.0f} min left", left / 60);
}

std::string coloured(std::string_view text, Colour colour) {
  return fmt::format("\033[{}m{}\033[0m", static_cast<int>(colour), text);
}

}  // namespace assay

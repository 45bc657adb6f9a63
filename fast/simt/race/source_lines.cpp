#include "fast/simt/race/source_lines.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "fast/simt/report.h"

extern "C" const char __executable_start;  // of the linker: the program's first byte

namespace assay::simt::race {

namespace {

// What the loader added to the addresses in the program's file.
uintptr_t load_bias() {
  uintptr_t bias = 0;
  const auto first = [](dl_phdr_info* program, size_t, void* out) {  // comes before its libraries
    *static_cast<uintptr_t*>(out) = program->dlpi_addr;
    return 1;
  };
  dl_iterate_phdr(first, &bias);
  return bias;
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// The lines that a command prints; none where it fails.
std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char text[4096];
  while (pipe && std::fgets(text, sizeof text, pipe.get())) {
    lines.emplace_back(text);
    while (!lines.back().empty() && lines.back().back() == '\n') lines.back().pop_back();
  }
  return lines;
}

// What cmake/race.cmake has the compiler write for the folder of the sources.
constexpr std::string_view kRoot = "/assay/";

// "fast/move/pair.cuh:93" of "/assay/build/race/../../fast/move/pair.cuh:93 (discriminator 2)"; empty where
// it is unknown.
std::string short_line(std::string_view line) {
  const size_t colon = line.rfind(':');
  if (colon == std::string_view::npos || line.starts_with("??")) return {};
  const int number = std::atoi(line.data() + colon + 1);
  std::string path = std::filesystem::path(line.substr(0, colon)).lexically_normal();
  if (path.starts_with(kRoot)) path.erase(0, kRoot.size());
  return number ? to_text(Site{path.c_str(), number}) : std::string{};
}

// Innermost first. The words of the executor are nobody's line.
std::string joined(const std::vector<std::string>& frames) {
  std::vector<std::string> shown;
  for (const std::string& f : frames)
    if (!f.empty() && !f.starts_with("/") && !f.starts_with("fast/simt/") &&
        (shown.empty() || shown.back() != f))
      shown.push_back(f);
  if (shown.empty()) {
    const auto known =
        std::find_if(frames.begin(), frames.end(), [](const std::string& f) { return !f.empty(); });
    return known == frames.end() ? std::string{} : *known;
  }
  std::string text = shown[0];
  for (size_t i = 1; i < shown.size(); ++i) text += ", from " + shown[i];
  return text;
}

}  // namespace

uint32_t place_of(const void* return_address) {
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(return_address) - reinterpret_cast<uintptr_t>(&__executable_start);
  return offset <= UINT32_MAX ? static_cast<uint32_t>(offset) : 0;
}

std::map<uint32_t, std::string> source_lines(std::span<const uint32_t> places) {
  static std::map<uint32_t, std::string> known;  // a kernel is reported again in the next order or shape
  std::vector<uint32_t> asked;
  for (const uint32_t place : places)
    if (!known.contains(place)) asked.push_back(place);
  const uintptr_t start = reinterpret_cast<uintptr_t>(&__executable_start) - load_bias();
  std::string command = "addr2line -a -i -e /proc/" + std::to_string(getpid()) + "/exe";
  for (const uint32_t place : asked)
    command += " " + hex(start + place - 1);  // within the call, not after it
  const std::vector<std::string> output =
      asked.empty() ? std::vector<std::string>{} : lines_of(command + " 2>/dev/null");
  size_t at = 0;
  for (const uint32_t place : asked) {
    std::vector<std::string> frames;
    if (at < output.size() && output[at].starts_with("0x")) ++at;
    for (; at < output.size() && !output[at].starts_with("0x"); ++at)
      frames.push_back(short_line(output[at]));
    known[place] = joined(frames);
    if (known[place].empty()) known[place] = place ? "program+" + hex(place) : "outside the program";
  }
  std::map<uint32_t, std::string> lines;
  for (const uint32_t place : places) lines[place] = known[place];
  return lines;
}

}  // namespace assay::simt::race

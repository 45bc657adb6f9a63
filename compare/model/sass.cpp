#include "compare/model/sass.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "compare/model/pipes.h"

namespace assay::model {

namespace {

constexpr std::string_view kEndsBlock[] = {"BRA", "BRX", "JMP", "EXIT", "RET", "CALL", "BSYNC", "BREAK"};

std::string_view first_word(std::string_view text) { return text.substr(0, text.find_first_of(" ;")); }
std::string_view opcode_of(std::string_view text) { return text.substr(0, text.find_first_of(" .;")); }

std::string_view from_first_sign(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : line.substr(first);
}

// "/*0050*/  @!P0 BRA `(.L_x_0) ;" without its address and its guard; empty where the line is no instruction.
std::string_view instruction_on(std::string_view line) {
  line = from_first_sign(line);
  if (!line.starts_with("/*")) return {};
  const size_t end = line.find("*/");
  if (end == std::string_view::npos ||
      line.substr(2, end - 2).find_first_not_of("0123456789abcdef") != line.npos)
    return {};
  line = from_first_sign(line.substr(end + 2));
  if (line.starts_with('@')) line = from_first_sign(line.substr(std::min(line.find(' '), line.size())));
  const size_t stop = line.find(';');
  if (stop == std::string_view::npos) return {};
  line = line.substr(0, stop);
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

class Reader {
 public:
  void take(std::string_view line) {
    if (const size_t at = line.find("//## File"); at != std::string_view::npos) return take_place(line);
    if (!line.empty() && line[0] != ' ' && line[0] != '\t' && line.ends_with(':')) {
      ++block_;
      closed_ = false;
      label_ = line.substr(0, line.size() - 1);
      if (line[0] == '$') out.routines.emplace_back(line.substr(0, line.size() - 1)), ptx_line_ = 0;
      return;
    }
    const std::string_view text = instruction_on(line);
    if (text.empty()) return;
    const std::string_view opcode = opcode_of(text);
    if (opcode == "NOP" && closed_) return;
    const std::string label = std::exchange(label_, {});
    if (opcode == "BRA" && !label.empty() && line.find('@') == std::string_view::npos &&
        text.find("(" + label + ")") != std::string_view::npos)
      return void(closed_ = true);  // the trap behind the code: a branch to itself
    out.code.push_back({std::string(text), ptx_line_, block_, static_cast<uint32_t>(out.routines.size())});
    closed_ = std::find(std::begin(kEndsBlock), std::end(kEndsBlock), opcode) != std::end(kEndsBlock);
    if (closed_) ++block_;
  }
  Sass out;

 private:
  void take_place(std::string_view line) {
    constexpr std::string_view kLine = ", line ";
    const size_t at = line.find(kLine);
    if (at == std::string_view::npos) return;
    const char* begin = line.data() + at + kLine.size();
    std::from_chars(begin, line.data() + line.size(), ptx_line_);
  }
  std::string label_;  // of the next instruction
  uint32_t ptx_line_ = 0, block_ = 0;
  bool closed_ = false;
};

bool is_rare(std::string_view routine) {
  return routine.find("slowpath") != std::string_view::npos ||
         routine.find("f32") != std::string_view::npos || routine.find("f64") != std::string_view::npos;
}

// The subroutine that a call names, from 1; 0 where it calls none.
uint32_t called(const Sass& sass, std::string_view text) {
  if (opcode_of(text) != "CALL") return 0;
  for (size_t r = 0; r < sass.routines.size(); ++r)
    if (text.find(sass.routines[r]) != std::string_view::npos) return static_cast<uint32_t>(r + 1);
  return 0;
}

// How often each basic block of the kernel ran.
std::vector<double> runs_of_blocks(const Sass& sass, const std::unordered_map<uint32_t, uint64_t>& warps) {
  const uint32_t blocks = sass.code.empty() ? 0 : sass.code.back().block + 1;
  std::vector<std::vector<uint64_t>> counts(blocks);
  std::vector<bool> rare(blocks);
  for (const SassInstruction& i : sass.code) {
    if (i.routine == 0 && i.line) {
      const auto found = warps.find(i.line);
      counts[i.block].push_back(found == warps.end() ? 0 : found->second);
    }
    if (const uint32_t r = called(sass, i.text); r && is_rare(sass.routines[r - 1])) rare[i.block] = true;
  }
  std::vector<double> runs(blocks);
  for (uint32_t b = 0; b < blocks; ++b) {
    if (rare[b] || counts[b].empty()) continue;
    const auto middle = counts[b].begin() + static_cast<std::ptrdiff_t>(counts[b].size() / 2);
    std::nth_element(counts[b].begin(), middle, counts[b].end());
    runs[b] = static_cast<double>(*middle);
  }
  return runs;
}

}  // namespace

Sass read_sass(std::string_view listing) {
  Reader reader;
  while (!listing.empty()) {
    const size_t end = listing.find('\n');
    reader.take(listing.substr(0, end));
    listing.remove_prefix(end == std::string_view::npos ? listing.size() : end + 1);
  }
  return std::move(reader.out);
}

SassCounts count_sass(const Sass& sass, const std::unordered_map<uint32_t, uint64_t>& warps) {
  const std::vector<double> runs = runs_of_blocks(sass, warps);
  std::vector<double> calls(sass.routines.size() + 1);
  for (const SassInstruction& i : sass.code)
    if (const uint32_t r = called(sass, i.text); r && !is_rare(sass.routines[r - 1]))
      calls[r] += runs[i.block];
  SassCounts out;
  for (const SassInstruction& i : sass.code) {
    const double n = i.routine ? calls[i.routine] : runs[i.block];
    if (n == 0) continue;
    const Pipe pipe = pipe_of_sass(i.text);
    out.by_pipe[static_cast<size_t>(pipe)] += n;
    out.all += n;
    const std::string_view opcode = opcode_of(i.text);
    if (opcode == "LDL" || opcode == "STL") out.local += n;
    if (pipe == Pipe::other) out.unknown.emplace_back(first_word(i.text));
  }
  std::sort(out.unknown.begin(), out.unknown.end());
  out.unknown.erase(std::unique(out.unknown.begin(), out.unknown.end()), out.unknown.end());
  return out;
}

}  // namespace assay::model

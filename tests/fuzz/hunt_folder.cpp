// What the files of a hunt's folder say, which a kill or its user has changed: hunt.jsonl, kept.cases and
// found.cases, apart by bytes of 0.
#include "compare/commands/hunt/records.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fixtures/json.h"
#include "tests/fuzz/readers.h"

namespace {

using namespace assay;

// Everything that a hunt knows after it has read them.
std::string state_of(const hunting::Earlier& earlier) {
  std::string out = earlier.begun ? "begun" : "new";
  const hunting::Judged& judged = earlier.judged;
  for (const uint64_t n : {judged.batch, uint64_t{judged.lines}, uint64_t{judged.failures},
                           uint64_t{judged.unsupported}, uint64_t{earlier.kept.size()}})
    out += " " + std::to_string(n);
  for (const hunting::Finding& f : earlier.findings) out += json::dump(to_json(f));
  return out;
}

}  // namespace

void assay::fuzz::hunt_folder(std::string_view bytes) {
  hunting::Texts texts;
  for (std::string* text : {&texts.records, &texts.kept, &texts.found}) {
    const size_t end = bytes.find('\0');
    *text = bytes.substr(0, end);
    bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + 1);
  }
  const hunting::Texts given = texts;
  const std::string path = "folder";
  const hunting::Head head{"host", 1, 4096, ""};
  const auto first = hunting::read_texts(path, head, texts);
  if (!first) return;
  if (const auto found = hunting::found_lines(path, texts.found); !found) found.error().text();
  if (texts == given) return;
  // What reading has mended is read as before, and needs no more mending.
  const hunting::Texts mended = texts;
  const auto again = hunting::read_texts(path, head, texts);
  if (!again || state_of(*again) != state_of(*first) || !(texts == mended))
    throw std::logic_error("what was mended is not read back: " + state_of(*first));
}

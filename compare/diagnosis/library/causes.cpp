#include "compare/diagnosis/library/causes.h"

#include <algorithm>
#include <map>
#include <regex>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/library/hypotheses.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;

// Lines that between them reach every row: shapes with tails, both kinds of blocks, what draws, what rotates, what is given.
constexpr const char* kLines[] = {
    "quantize {} 200x200 bf16", "quantize {} 200x200 f32", "quantize {} 200x200 f16", "quantize {} 200x200 bf16 element=e5m2", "quantize {} 200x200 bf16 block=16x16", "quantize {} 200x200 bf16 block=32x32",
    "quantize {} 200x200 bf16 block=128x128", "quantize {} 200x264 bf16 pow2=0 eps=1e-6", "quantize {} 208x208 bf16 col.rht=1", "quantize {} 200x200 bf16 round=sr rng=7,3,0", "quantize {} 200x200 bf16 row_scaled=1", "quantize {} 200x200 bf16 amax=3"};

struct Row {
  string title, clause;
  std::vector<string> formats;
  std::vector<string> ids;             // that differ by a number
};

string escaped(const string& text) {   // letter by letter: g++ 12 warns falsely of string::insert
  string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

string causes_page(std::optional<FormatId> only) {
  static const std::regex kNumber("=[+-]?[0-9][0-9A-Fa-f.x,/e+-]*$");
  std::map<Stage, std::vector<std::pair<string, Row>>> stages;              // by the id without its number, in the library's order
  for (const FormatInfo& f : kFormats) {
    if (only && f.id != *only) continue;
    for (const char* form : kLines) {
      const auto p = parse_line(fmt::format(fmt::runtime(form), f.name));
      if (!p) continue;
      for (const Direction d : kDirections) {
        if (!p->quantizer(d)) continue;
        Problem lane = *p;
        lane.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
        for (const Hypothesis& h : hypotheses(lane, d)) {
          if (!h.keys.empty() && !h.element)
            if (const auto changed = with_keys(lane, h.keys); !changed || *changed == lane) continue;
          const string name = h.id.starts_with("line.") || h.named_set ? h.id : std::regex_replace(h.id, kNumber, "=N");
          auto& rows = stages[h.stage];
          auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == name; });
          if (row == rows.end()) row = rows.insert(rows.end(), {name, Row{h.title, h.clause, {}, {}}});
          if (std::find(row->second.ids.begin(), row->second.ids.end(), h.id) == row->second.ids.end()) row->second.ids.push_back(h.id);
          if (std::find(row->second.formats.begin(), row->second.formats.end(), f.name) == row->second.formats.end()) row->second.formats.emplace_back(f.name);
        }
      }
    }
  }
  string out;
  for (const auto& [stage, rows] : stages) {
    out += fmt::format("## {}\n\n| name | what is done | formats | clause |\n| --- | --- | --- | --- |\n", name_of(stage));
    for (const auto& [name, row] : rows)
      out += fmt::format("| `{}` | {}{} | {} | {} |\n", name, escaped(row.title), row.ids.size() > 1 ? fmt::format(" (and {} more)", row.ids.size() - 1) : "",
                         only ? string(info(*only).name) : row.formats.size() + 1 >= kFormats.size() ? "all" : fmt::format("{}", fmt::join(row.formats, " ")), row.clause);
    out += "\n";
  }
  return out;
}

}  // namespace assay

#include "compare/diagnosis/identify/choices.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "compare/diagnosis/identify/flavour_matrix.h"
#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/words.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

// "eps" of "row.eps=1".
string_view key_of(string_view word) {
  word = word.substr(0, word.find('='));
  for (string_view side : {"row.", "col."})
    if (word.starts_with(side)) word.remove_prefix(side.size());
  return word;
}

}  // namespace

// ---- choices ---------------------------------------------------------------------------------------------------------

std::vector<Choice> choices_of(FormatId format) {
  std::vector<Choice> out{{"defaults", ""}, {"te", "flavour=te"}};
  for (const FlavourInfo& f : flavours())
    if (f.is_of(format)) out.push_back({string(f.name), "flavour=" + string(f.name)});
  return out;
}

Result<Problem> with_choice(const Problem& base, string_view keys) {
  std::set<string_view> gone = {"flavour", "arch", "dispatch"};
  for (const NumericInfo& n : kNumerics) gone.insert(n.name);
  for (string_view word : words_of(keys, ' ')) {
    gone.insert(key_of(word));
    if (!word.starts_with("flavour=")) continue;
    for (const FlavourInfo& f : flavours())
      if (f.name == word.substr(8))
        for (string_view set : words_of(f.keys, ' ')) gone.insert(key_of(set));
  }
  const string line = to_line(base);
  string out;
  for (string_view word : words_of(line, ' '))
    if (word.find('=') == string_view::npos || !gone.contains(key_of(word))) out += string(word) + " ";
  return parse_line(out + string(keys));
}

Result<Problem> with_choice(const Problem& base, string_view keys, Direction d) {
  Problem alone = base;
  alone.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
  alone.col_source = ColSource::original;
  const auto chosen = with_choice(alone, keys);
  if (!chosen) return chosen.error();
  Problem out = base;
  out.quantizer(d) = chosen->quantizer(d);
  out.flavour = Flavour::assay;
  if (auto error = validate(out)) return *error;
  return out;
}

// ---- the command -----------------------------------------------------------------------------------------------------

namespace {

// "16.6 %" without its sign: three digits, "0" only where nothing differs.
string percent(int64_t n, int64_t of) {
  if (!n) return "0";
  const double share = 100.0 * static_cast<double>(n) / static_cast<double>(of);
  if (share < 0.001) return "<0.001";
  return share >= 100 ? "100" : fmt::format("{:.{}f}", share, share >= 10 ? 1 : share >= 1 ? 2 : 3);
}

string matrix_text(const FlavourMatrix& m) {
  string out;
  size_t width = 0;
  for (const Choice& c : m.choices) width = std::max(width, c.name.size());
  for (const FillMatrix& fill : m.fills) {
    out += fmt::format("{}\n  % of scales that differ right of the diagonal, % of codes left of it\n{:{}}", fill.line, "", width + 6);
    for (size_t b = 0; b < m.choices.size(); ++b) out += fmt::format("{:>7}", b + 1);
    out += "\n";
    for (size_t a = 0; a < m.choices.size(); ++a) {
      out += fmt::format("{:>4}  {:<{}}", a + 1, m.choices[a].name, width);
      for (size_t b = 0; b < m.choices.size(); ++b) {
        const Apart& x = fill.apart[a][b];
        out += fmt::format("{:>7}", a == b ? "-" : b > a ? percent(x.scales, x.scales_of) : percent(x.codes, x.codes_of));
      }
      out += "\n";
    }
    out += "\n";
  }
  return out;
}

json::Value to_json(const FlavourMatrix& m) {
  json::Value names = json::array(), fills = json::array();
  for (const Choice& c : m.choices) names.push(c.name);
  for (const FillMatrix& f : m.fills) {
    json::Value pairs = json::array();
    for (size_t a = 0; a < m.choices.size(); ++a)
      for (size_t b = a + 1; b < m.choices.size(); ++b) {
        const Apart& x = f.apart[a][b];
        pairs.push(json::object({{"a", m.choices[a].name}, {"b", m.choices[b].name}, {"scales_differ", x.scales}, {"scales_of", x.scales_of}, {"codes_differ", x.codes}, {"codes_of", x.codes_of}}));
      }
    fills.push(json::object({{"fill", f.fill}, {"line", f.line}, {"pairs", pairs}}));
  }
  return json::object({{"format", info(m.format).name}, {"choices", names}, {"fills", fills}});
}

}  // namespace

int run_flavours(const FlavoursOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  std::vector<FormatId> formats;
  for (const FormatInfo& f : kFormats) {
    const bool any = std::any_of(flavours().begin(), flavours().end(), [&](const FlavourInfo& row) { return row.is_of(f.id); });
    if (any && (options.format.empty() || options.format == f.name)) formats.push_back(f.id);
  }
  if (formats.empty()) {
    std::vector<string_view> names;
    for (const FormatInfo& f : kFormats)
      if (std::any_of(flavours().begin(), flavours().end(), [&](const FlavourInfo& row) { return row.is_of(f.id); })) names.push_back(f.name);
    string known;
    for (string_view n : names) known += (known.empty() ? "" : ", ") + string(n);
    const string near = nearest_word(options.format, names);
    fmt::print(err, "error: no flavour is of '{}': expected one of {}{}\n", options.format, known, near.empty() ? "" : "; did you mean '" + near + "'?");
    return 2;
  }
  json::Value all = json::array();
  string text;
  for (FormatId format : formats) {
    if (options.measure) {
      const auto matrix = measure_flavours(format, subjects.reference(), options.jobs);
      if (!matrix) {
        fmt::print(err, "error: {}\n", matrix.error().text());
        return 2;
      }
      fmt::print(out, "{}", matrix_text(*matrix));
      all.push(to_json(*matrix));
      continue;
    }
    json::Value rows = json::array();
    text += string(info(format).name) + "\n";
    for (const FlavourInfo& f : flavours()) {
      if (!f.is_of(format)) continue;
      text += fmt::format("  {:<28} {}\n  {:<28} {}\n  {:<28} {}\n", f.name, f.keys, "", f.users, "", f.source);
      rows.push(json::object({{"name", f.name}, {"keys", f.keys}, {"users", f.users}, {"source", f.source}}));
    }
    text += "\n";
    all.push(json::object({{"format", info(format).name}, {"flavours", rows}}));
  }
  fmt::print(out, "{}", text);
  if (!options.measure) fmt::print(out, "flavour=te follows TransformerEngine's kernel selection (docs/numerics.md, N8). `assay flavours <format> --measure` says how far they lie apart.\n");
  if (!options.json.empty())
    if (auto error = write_file(options.json, json::dump(json::object({{"version", 1}, {"formats", all}}), 1) + "\n")) {
      fmt::print(err, "error: {}\n", error->text());
      return 2;
    }
  return 0;
}

}  // namespace assay

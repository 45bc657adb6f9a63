#include "compare/commands/flavours.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/diagnosis/identify/flavour_matrix.h"
#include "compare/process/interrupt.h"
#include "contract/flavours.h"
#include "contract/format.h"
#include "contract/line.h"
#include "contract/words.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

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
    out += fmt::format("{}\n  % of scales that differ right of the diagonal, % of codes left of it\n{:{}}",
                       fill.line, "", width + 6);
    for (size_t b = 0; b < m.choices.size(); ++b) out += fmt::format("{:>7}", b + 1);
    out += "\n";
    for (size_t a = 0; a < m.choices.size(); ++a) {
      out += fmt::format("{:>4}  {:<{}}", a + 1, m.choices[a].name, width);
      for (size_t b = 0; b < m.choices.size(); ++b) {
        const Apart& x = fill.apart[a][b];
        out += fmt::format("{:>7}", a == b  ? "-"
                                    : b > a ? percent(x.scales, x.scales_of)
                                            : percent(x.codes, x.codes_of));
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
        pairs.push(json::object({{"a", m.choices[a].name},
                                 {"b", m.choices[b].name},
                                 {"scales_differ", x.scales},
                                 {"scales_of", x.scales_of},
                                 {"codes_differ", x.codes},
                                 {"codes_of", x.codes_of}}));
      }
    fills.push(json::object({{"fill", f.fill}, {"line", f.line}, {"pairs", pairs}}));
  }
  return json::object({{"format", info(m.format).name}, {"choices", names}, {"fills", fills}});
}

// The formats that have flavours.
std::vector<FormatInfo> formats_with_flavours() {
  std::vector<FormatInfo> out;
  for (const FormatInfo& f : kFormats)
    if (std::any_of(flavours().begin(), flavours().end(),
                    [&](const FlavourInfo& row) { return row.is_of(f.id); }))
      out.push_back(f);
  return out;
}

string no_such_format(const string& name, const std::vector<FormatInfo>& formats) {
  std::vector<string_view> names;
  for (const FormatInfo& f : formats) names.push_back(f.name);
  const string near = nearest_word(name, names);
  return fmt::format("no flavour applies to '{}': expected one of {}{}", name, fmt::join(names, ", "),
                     near.empty() ? "" : "; did you mean '" + near + "'?");
}

// The rows of one format, as text and as JSON.
json::Value list_rows(FormatId format, string& text) {
  json::Value rows = json::array();
  text += string(info(format).name) + "\n";
  for (const FlavourInfo& f : flavours()) {
    if (!f.is_of(format)) continue;
    text += fmt::format("  {:<28} {}\n  {:<28} {}\n  {:<28} {}\n", f.name, f.keys, "", f.users, "", f.source);
    rows.push(json::object({{"name", f.name}, {"keys", f.keys}, {"users", f.users}, {"source", f.source}}));
  }
  text += "\n";
  return json::object({{"format", info(format).name}, {"flavours", rows}});
}

}  // namespace

int run_flavours(const FlavoursOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  const auto fail = [&](const string& message) {
    fmt::print(err, "assay: {}\n", message);
    return 2;
  };
  const std::vector<FormatInfo> known = formats_with_flavours();
  std::vector<FormatInfo> formats = known;
  std::erase_if(formats,
                [&](const FormatInfo& f) { return !options.format.empty() && options.format != f.name; });
  if (formats.empty()) return fail(no_such_format(options.format, known));
  if (const auto error = options.json.empty() ? std::nullopt : cannot_write(options.json, "--json"))
    return fail(error->text());
  json::Value all = json::array();
  string text;
  const InterruptScope scope;
  size_t done = 0;  // formats
  for (const FormatInfo& format : formats) {
    if (interrupted()) break;
    if (!options.measure) {
      all.push(list_rows(format.id, text));
      continue;
    }
    const auto matrix = measure_flavours(format.id, subjects.reference(), options.jobs);
    if (!matrix) return fail(matrix.error().text());
    fmt::print(out, "{}", matrix_text(*matrix));
    if (!matrix->fills.empty()) all.push(to_json(*matrix));
    done += matrix->fills.size() == matrix->of;
  }
  const bool cut_short = options.measure && done < formats.size();
  if (cut_short)
    fmt::print(out,
               "interrupted: {} of {} formats were measured; a table that is not shown was not completed\n",
               done, formats.size());
  fmt::print(out, "{}", text);
  if (!options.measure)
    fmt::print(out,
               "flavour=te follows TransformerEngine's kernel selection (docs/numerics.md, N8). "
               "`assay flavours <format> --measure` measures how far their results differ.\n");
  if (!options.json.empty()) {
    json::Value file = json::object({{"schema", "assay.flavours"}, {"version", 1}, {"formats", all}});
    if (cut_short) file.set("cut_short", true);
    if (auto error = write_file(options.json, json::dump(file, 1) + "\n")) return fail(error->text());
  }
  return cut_short ? kInterrupted : 0;
}

void register_flavours(Program& program) {
  const auto flavours = std::make_shared<FlavoursOptions>();
  Command c(program.app, "flavours",
            "list the named sets of choices, and measure how far their results differ");
  c.footer(
      "Examples:\n  assay flavours\n  assay flavours mxfp8 --measure\n"
      "Exit status: 0; 2 no such format, or a file cannot be written; 130 it was interrupted, and what was "
      "measured "
      "until then is printed.");
  c.option("format", flavours->format, "of this format only");
  c.flag("--measure", flavours->measure, "the share of scales and codes in which each pair differs");
  c.option("--json", flavours->json, "write them here");
  add_jobs(c, program.common);
  c.callback([&program, flavours] {
    flavours->jobs = program.common.jobs;
    flavours->colour = program.colour;
    program.status = run_flavours(*flavours, program.make_subjects(program.common), stdout, stderr);
  });
}

}  // namespace assay

#include "compare/diagnosis/identify/choices.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/identify/identify.h"
#include "contract/line.h"
#include "contract/recipes.h"
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

// ---- the matrix ------------------------------------------------------------------------------------------------------

namespace {

// The tensors of a format: one line, or one for each seed. Scales of whole tensors need many tensors.
struct Sample {
  string fill;
  int seeds;
  string line;
};
std::vector<Sample> samples_of(FormatId format) {
  std::vector<Sample> out;
  const bool tensor = info(format).blocks == "tensor" || format == FormatId::nvfp4;
  for (const char* fill : {"normal", "wide"}) {
    const string scale = format == FormatId::fp8_delayed ? string(" scale=") + (string(fill) == "normal" ? "64" : "0.25") : "";
    out.push_back({fill, tensor ? 256 : 1, fmt::format("quantize {} {} bf16 dir=row{} fill={} seed=", info(format).name, tensor ? "64x64" : "1024x1024", scale, fill)});
  }
  return out;
}

using Planes = std::vector<PlaneData>;

int64_t differing(const PlaneData& a, const PlaneData& b, int64_t& of) {
  int64_t n = 0;
  of += a.plane.logical.count();
  for (int64_t r = 0; r < a.plane.logical.rows; ++r)
    for (int64_t c = 0; c < a.plane.logical.cols; ++c) {
      const int64_t at = index_of(a.plane, r, c);
      n += code_at(a.plane, a.bytes, at) != code_at(b.plane, b.bytes, at);
    }
  return n;
}

void add_difference(const Planes& a, const Planes& b, Apart& out) {
  for (const PlaneData& plane : a) {
    const PlaneData* other = find_plane(b, plane.plane.name);
    if (!other) continue;
    const bool same = plane.bytes == other->bytes;
    const string_view stem = string_view(plane.plane.name).substr(plane.plane.name.find('.') + 1);
    if (stem != "data" && stem != "scale_inv") continue;
    int64_t& of = stem == "data" ? out.codes_of : out.scales_of;
    int64_t& n = stem == "data" ? out.codes : out.scales;
    if (same) of += plane.plane.logical.count();
    else n += differing(plane, *other, of);
  }
}

}  // namespace

Result<FlavourMatrix> measure_flavours(FormatId format, Subject& reference, int jobs) {
  FlavourMatrix out{format, choices_of(format), {}};
  const string plain = format == FormatId::fp8_block ? "pow2=0" : format == FormatId::fp8_current ? "pow2=1" : "";   // the other default of these formats
  if (!plain.empty()) out.choices.insert(out.choices.begin() + 1, {plain, plain});
  Environment environment;
  environment.threads = std::max(1, jobs);
  for (const Sample& sample : samples_of(format)) {
    const size_t n = out.choices.size();
    FillMatrix matrix{sample.fill, sample.line + (sample.seeds == 1 ? string("1") : fmt::format("{{1..{}}}", sample.seeds)), std::vector(n, std::vector<Apart>(n))};
    for (int seed = 1; seed <= sample.seeds; ++seed) {
      const auto base = parse_line(sample.line + std::to_string(seed));
      if (!base) return base.error();
      const auto inputs = make_inputs(*base, reference);
      if (!inputs) return inputs.error();
      std::vector<Planes> made;
      for (const Choice& choice : out.choices) {
        const auto problem = with_choice(*base, choice.keys);
        if (!problem) return problem.error();
        if (const Support support = reference.supports(*problem); !support.yes) return Error{to_line(*problem) + ": " + support.why, 0, ""};
        Execution run = execute(reference, *problem, *inputs, environment);
        if (run.error) return Error{to_line(*problem) + ": " + *run.error, 0, ""};
        made.push_back(std::move(run.planes));
      }
      for (size_t a = 0; a < n; ++a)
        for (size_t b = a + 1; b < n; ++b) add_difference(made[a], made[b], matrix.apart[a][b]);
    }
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < a; ++b) matrix.apart[a][b] = matrix.apart[b][a];
    out.fills.push_back(std::move(matrix));
  }
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

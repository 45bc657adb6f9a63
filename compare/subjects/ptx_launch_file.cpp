#include "compare/subjects/ptx_launch_file.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <tuple>
#include <utility>

#include "compare/subjects/ptx_arguments.h"
#include "compare/text/shell.h"
#include "contract/encoding.h"
#include "contract/f32_text.h"
#include "contract/format.h"
#include "contract/line.h"
#include "fixtures/json.h"

namespace assay {

namespace {

Error wrong(const std::string& what) { return Error{what, 0, ""}; }

// The first member that no key of the list names.
std::optional<Error> unknown_key(const json::Value& object, std::initializer_list<std::string_view> known,
                                 const std::string& where) {
  for (const auto& [key, value] : *object.object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return wrong(where + ": unknown key \"" + key + "\"");
  return {};
}

// Cuts at commas outside of parentheses.
std::vector<std::string> cut(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

std::string trimmed(const std::string& text);

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// The text of a member, empty where it is absent.
Result<std::string> text_of(const json::Value& object, const char* key, const std::string& where,
                            const std::string& expected) {
  const json::Value* v = object.find(key);
  if (v && !v->string()) return wrong(where + " must be " + expected + ", found " + v->describe());
  return std::string(object.text(key));
}

// Behind the plane of a tensor map stand words with `=`, which belong to it.
std::vector<std::string> with_their_words(const std::vector<std::string>& parts) {
  std::vector<std::string> out;
  for (const std::string& part : parts) {
    const bool word = !out.empty() && trimmed(out.back()).starts_with("tensormap:") &&
                      part.find('=') != std::string::npos && part.find(':') == std::string::npos;
    if (word) out.back().append(",").append(trimmed(part));
    else out.push_back(part);
  }
  return out;
}

std::string trimmed(const std::string& text) {
  const size_t from = text.find_first_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') - from + 1);
}

// A number, or a text with an expression.
std::optional<std::string> expression_of(const json::Value& v) {
  if (const auto n = v.to_int()) return std::to_string(*n);
  if (v.string()) return *v.string();
  return {};
}

Result<std::array<std::string, 3>> three_sizes(const std::vector<std::string>& parts,
                                               const std::string& where, const std::string& found) {
  if (parts.empty() || parts.size() > 3) return wrong(where + " must be one to three sizes, found " + found);
  std::array<std::string, 3> out = {"1", "1", "1"};
  for (size_t n = 0; n < parts.size(); ++n) {
    if (parts[n].find_first_not_of(' ') == std::string::npos) return wrong(where + " has an empty size");
    out[n] = parts[n];
  }
  return out;
}

// One to three sizes: a number, a text with commas, or an array.
Result<std::array<std::string, 3>> sizes_of(const json::Value& v, const std::string& where) {
  std::vector<std::string> parts;
  if (const auto* list = v.array()) {
    for (const json::Value& each : *list) parts.push_back(expression_of(each).value_or(""));
  } else if (const auto text = expression_of(v)) {
    parts = cut(*text);
  }
  return three_sizes(parts, where, v.describe());
}

Result<PtxArgument> argument_of(const std::string& text) {
  using What = PtxArgument::What;
  static constexpr std::pair<std::string_view, What> kKinds[] = {
      {"i32", What::i32},       {"u32", What::u32},    {"i64", What::i64},     {"u64", What::u64},
      {"f32", What::f32},       {"bf16", What::bf16},  {"bytes", What::bytes}, {"scratch", What::scratch},
      {"poison", What::poison}, {"drawn", What::drawn}};
  PtxArgument a;
  a.spelled = text;
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    a.what = text == "null"    ? What::null
             : text == "zeros" ? What::zeros
             : text == "raw"   ? What::raw
                               : What::plane;
    a.text = text;
    return a;
  }
  std::string kind = text.substr(0, colon);
  a.text = text.substr(colon + 1);
  if (const size_t dot = kind.find('.'); dot != std::string::npos) {
    a.name = kind.substr(dot + 1);
    kind.resize(dot);
  }
  if (kind == "tensormap" && a.name.empty()) {
    a.what = What::map;
    a.name = trimmed(a.text.substr(0, a.text.find(',')));
    if (a.name.starts_with("scratch.")) {
      const size_t end = a.name.find(':');
      if (end == std::string::npos)
        return wrong("argument \"" + text +
                     "\" needs the size of its memory: tensormap:scratch.NAME:BYTES,box=..");
      a.size = a.name.substr(end + 1);
      a.name = a.name.substr(std::string_view("scratch.").size(), end - std::string_view("scratch.").size());
    }
    if (a.text.find(",box=") == std::string::npos && a.text.find(", box=") == std::string::npos)
      return wrong("argument \"" + text + "\" needs its box: tensormap:PLANE,box=ROWSxCOLUMNS");
    return a;
  }
  for (const auto& [word, what] : kKinds)
    if (word == kind && (what == What::drawn     ? !a.name.empty()
                         : what == What::scratch ? true
                         : what == What::poison  ? true
                                                 : a.name.empty())) {
      a.what = what;
      return a;
    }
  return wrong(
      "argument \"" + text +
      "\" has an unknown kind; expected one of (a plane, raw, null, zeros, i32: u32: i64: u64: f32: bf16: "
      "bytes: scratch: poison: drawn.NAME: tensormap:)");
}

std::optional<Error> check_expression(const std::string& text, const Bounds& bounds,
                                      const std::string& where) {
  if (const auto e = assay::check_expression(text, bounds)) return wrong(where + ": " + e->text());
  return {};
}

std::optional<Error> check_expressions(const PtxLaunch& l, const PtxArgument& a) {
  using What = PtxArgument::What;
  switch (a.what) {
    case What::f32:
    case What::bf16:
      if (parse_f32(a.text)) return {};
      [[fallthrough]];
    case What::i32:
    case What::u32:
    case What::i64:
    case What::u64:
    case What::scratch:
    case What::poison:
    case What::drawn: return check_expression(a.text, a.bounds(), l.called(a));
    case What::map: return a.size.empty() ? std::nullopt : check_expression(a.size, a.bounds(), l.called(a));
    default: return {};
  }
}

// What is wrong with sizes and numbers whatever the line is.
std::optional<Error> check_expressions(const PtxLaunch& l) {
  for (size_t n = 0; n < l.grid.size(); ++n) {
    if (auto e = check_expression(l.grid[n], grid_bounds(n), l.called("grid"))) return e;
    if (l.block[n].empty()) continue;
    if (auto e = check_expression(l.block[n], block_bounds(n), l.called("block"))) return e;
  }
  if (auto e = check_expression(l.shared, shared_bounds(), l.called("shared"))) return e;
  for (const PtxArgument& a : l.args)
    if (auto e = check_expressions(l, a)) return e;
  return {};
}

// Outputs that are zeroed are among those that the launches are given.
std::optional<Error> check_zeroed(const PtxLaunchFile& f, const std::string& called) {
  const std::vector<std::string> given = f.planes();
  for (const std::string& name : f.zeroed) {
    if (name == "x" || name == "noop")
      return wrong(called + " names " + name + ", which is an input; expected outputs alone");
    if (std::find(given.begin(), given.end(), name) == given.end())
      return wrong(called + " names '" + name +
                   "', which no launch is given; the planes that they are given are " + listed(given));
  }
  return {};
}

Result<PtxLaunch> launch_of(const json::Value& v, const std::string& where) {
  if (!v.object()) return wrong(where + " must be an object, found " + v.describe());
  if (auto e = unknown_key(v, {"ptx", "entry", "grid", "block", "shared", "args"}, where)) return *e;
  PtxLaunch l;
  l.where = where;
  for (auto& [key, to, what] : {std::tuple{"ptx", &l.ptx, "the name of a file"},
                                std::tuple{"entry", &l.entry, "the name of an entry"}}) {
    auto text = text_of(v, key, where + "." + key, what);
    if (!text) return text.error();
    *to = *text;
  }
  if (l.entry.empty()) return wrong(where + " needs \"entry\"");
  if (!v.find("grid"))
    return wrong(where + " needs \"grid\", one to three sizes, as \"cdiv(rows, 32), cols\" or 1 are");
  for (auto& [key, to] : {std::pair{"grid", &l.grid}, std::pair{"block", &l.block}}) {
    const json::Value* sizes = v.find(key);
    if (!sizes) continue;
    auto parsed = sizes_of(*sizes, where + "." + key);
    if (!parsed) return parsed.error();
    *to = *parsed;
  }
  if (const json::Value* shared = v.find("shared")) {
    const auto text = expression_of(*shared);
    if (!text) return wrong(where + ".shared must be a size, found " + shared->describe());
    l.shared = *text;
  }
  const json::Value* args = v.find("args");
  if (!args || !args->array()) return wrong(where + " needs \"args\", an array of texts");
  for (const json::Value& each : *args->array()) {
    if (!each.string()) return wrong(where + ".args must be texts, found " + each.describe());
    auto a = argument_of(*each.string());
    if (!a) return wrong(where + ": " + a.error().message);
    l.args.push_back(*a);
  }
  if (auto e = check_expressions(l)) return *e;
  return l;
}

// A word that no line has: no op, format, encoding or shape, and no key. The others may stand together in
// some line or in none; which, only the line says.
std::optional<std::string> unknown_word(const std::vector<std::string>& words) {
  const auto names = [](const auto& rows, std::string_view word) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == word; });
  };
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      const bool is_shape = word.find_first_not_of("0123456789x") == std::string::npos;
      const size_t slash = word.find('/');  // of a pair of formats
      const bool is_format = names(kFormats, word.substr(0, slash)) &&
                             (slash == std::string::npos || names(kFormats, word.substr(slash + 1)));
      const auto of_op = [&](const KeyInfo& k) {
        return std::find(k.ops.begin(), k.ops.end(), word) != k.ops.end();
      };
      const bool is_op = std::any_of(line_keys().begin(), line_keys().end(), of_op);
      if (!is_shape && !is_format && !is_op && !names(kEncodings, word)) return word;
      continue;
    }
    const std::string key = word.substr(0, equals);
    const size_t dot = key.find('.');  // behind the place: a direction, an operand or a slot
    const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
    const bool positional = name == "a" || name == "b";
    if (!positional && !names(line_keys(), name)) return word;
  }
  return {};
}

Result<PtxLaunchFile> file_of(const json::Value& v) {
  if (!v.object()) return wrong("a launch file is an object, found " + v.describe());
  if (auto e = unknown_key(v,
                           {"ptx", "for", "alignment", "zeroed", "stores", "products", "shuffles",
                            "addresses", "launches", "made_by"},
                           "launch file"))
    return *e;
  PtxLaunchFile f;
  std::string words;
  for (auto& [key, to, what] :
       {std::tuple{"ptx", &f.ptx, "the name of a file"},
        std::tuple{"for", &words, "a text of words of a line, as \"quantize mxfp8 bf16 dir=row\" is"}}) {
    auto text = text_of(v, key, "\"" + std::string(key) + "\"", what);
    if (!text) return text.error();
    *to = *text;
  }
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (end > at) f.words.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  if (const auto word = unknown_word(f.words))
    return wrong("no line has the word '" + *word + "' of \"for\" (assay list --keys names the keys)");
  if (const json::Value* a = v.find("alignment")) {
    const auto n = a->to_int();
    if (!n || *n < 1 || (*n & (*n - 1)))
      return wrong("\"alignment\" must be a power of two, found " + a->describe());
    f.alignment = *n;
  }
  if (const json::Value* zeroed = v.find("zeroed")) {
    if (!zeroed->array()) return wrong("\"zeroed\" must be an array of planes, found " + zeroed->describe());
    for (const json::Value& each : *zeroed->array()) {
      if (!each.string()) return wrong("\"zeroed\" must hold names of planes, found " + each.describe());
      f.zeroed.push_back(*each.string());
    }
  }
  struct Choice {
    const char *key, *usual, *other;
    bool* is_other;
  };
  for (const Choice& c : {Choice{"stores", "late", "at_once", &f.stores_at_once},
                          Choice{"products", "late", "at_once", &f.products_at_once},
                          Choice{"shuffles", "present", "any", &f.shuffles_any},
                          Choice{"addresses", "of_their_space", "lower_halves", &f.generic_as_shared}})
    if (const json::Value* said = v.find(c.key)) {
      const std::string word = said->string() ? *said->string() : said->describe();
      if (word != c.usual && word != c.other)
        return wrong(std::string("\"") + c.key + "\" must be \"" + c.usual + "\" or \"" + c.other +
                     "\", found " + word);
      *c.is_other = word == c.other;
    }
  const json::Value* launches = v.find("launches");
  if (!launches || !launches->array() || launches->array()->empty())
    return wrong("\"launches\" must be an array with at least one launch");
  for (size_t n = 0; n < launches->array()->size(); ++n) {
    auto l = launch_of((*launches->array())[n], "launches[" + std::to_string(n) + "]");
    if (!l) return l.error();
    if (l->ptx.empty() && f.ptx.empty()) return wrong("\"ptx\" must name the file of PTX text");
    f.launches.push_back(*l);
  }
  if (f.fused() && !f.names("x"))
    return wrong("a launch takes \"raw\", so one must be given \"x\" for what it makes of it");
  if (auto e = check_zeroed(f, "\"zeroed\"")) return *e;
  return f;
}

}  // namespace

Result<PtxLaunchFile> read_ptx_launch_file(const std::string& path) {
  auto text = json::read(path);
  if (!text) return text.error();
  auto file = file_of(*text);
  if (!file) return wrong(path + ": " + file.error().message);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  file->ptx = (folder / file->ptx).string();
  for (PtxLaunch& l : file->launches) {
    l.ptx = l.ptx.empty() ? file->ptx : (folder / l.ptx).string();
    l.where = path + ": " + l.where;
  }
  return file;
}

bool PtxLaunchFile::names(std::string_view argument) const {
  for (const PtxLaunch& l : launches)
    for (const PtxArgument& a : l.args)
      if (a.spelled == argument) return true;
  return false;
}

std::vector<std::string> PtxLaunchFile::planes() const {
  std::vector<std::string> out;
  for (const PtxLaunch& l : launches)
    for (const PtxArgument& a : l.args)
      if (a.what == PtxArgument::What::plane || (a.what == PtxArgument::What::map && a.size.empty()))
        out.push_back(a.what == PtxArgument::What::map ? a.name : a.text);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Bounds PtxArgument::bounds() const {
  constexpr auto of = []<class T>(const char* name, T) {
    return Bounds{name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
  };
  switch (what) {
    case What::i32: return of("i32", int32_t{});
    case What::u32: return of("u32", uint32_t{});
    case What::u64: return of("u64", uint64_t{});
    case What::scratch:
    case What::poison:
    case What::drawn:
    case What::map: return memory_bounds();
    default: return of("i64", int64_t{});
  }
}

std::optional<Error> check_words(const PtxLaunchWords& words) {
  PtxLaunchWords rest = words;
  rest.ptx.clear();
  const std::string stray = to_options(rest);
  if (!words.empty() || stray.empty()) return {};
  return wrong(stray.substr(0, stray.find(' ')) +
               " describes the launch of --ptx FILE, which is not given (docs/ptx.md)");
}

Result<PtxLaunchFile> launch_file_of(const PtxLaunchWords& words) {
  PtxLaunchFile f;
  f.ptx = words.ptx;
  PtxLaunch l;
  l.ptx = words.ptx;
  l.entry = words.entry;
  if (words.grid.empty())
    return wrong("--ptx needs --grid: one to three sizes, as 'cdiv(rows, 32), cols' or 1 are");
  for (const auto& [option, text, to] :
       {std::tuple{"--grid", &words.grid, &l.grid}, std::tuple{"--block", &words.block, &l.block}}) {
    if (text->empty()) continue;
    auto sizes = three_sizes(cut(*text), option, "'" + *text + "'");
    if (!sizes) return sizes.error();
    *to = *sizes;
  }
  if (!words.shared.empty()) l.shared = words.shared;
  if (words.args.empty())
    return wrong("--ptx needs --args: the arguments in the order of the entry's parameters");
  for (const std::string& each : with_their_words(cut(words.args))) {
    auto argument = argument_of(trimmed(each));
    if (!argument) return wrong("--args: " + argument.error().message);
    l.args.push_back(*argument);
  }
  if (!words.zeroed.empty())
    for (const std::string& each : cut(words.zeroed)) f.zeroed.push_back(trimmed(each));
  if (auto e = check_expressions(l)) return *e;
  f.launches.push_back(std::move(l));
  if (auto e = check_zeroed(f, "--zeroed")) return *e;
  return f;
}

std::string to_options(const PtxLaunchWords& words) {
  std::string out;
  for (const auto& [option, text] :
       {std::pair{"--ptx", &words.ptx}, std::pair{"--entry", &words.entry}, std::pair{"--grid", &words.grid},
        std::pair{"--block", &words.block}, std::pair{"--shared", &words.shared},
        std::pair{"--args", &words.args}, std::pair{"--zeroed", &words.zeroed}}) {
    if (text->empty()) continue;
    out += (out.empty() ? "" : " ") + std::string(option) + " " + shell_word(*text);
  }
  return out;
}

}  // namespace assay

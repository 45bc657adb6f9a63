// A cell by its text.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>

#include "contract/line.h"
#include "contract/words.h"
#include "training/parity/cells.h"
#include "training/parity/factory.h"
#include "training/recipes/line_factory.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr string_view kCores[] = {"fp8_dpa", "fp8_mha"};
constexpr string_view kOverrides[] = {"high_precision", "dequantized"};

// Reads the words of one text. Errors point into it.
class CellReader {
 public:
  explicit CellReader(string_view text) : text_(text) {}

  Result<Cell> read(const Words& words) {
    const Words modules = factory_modules();
    const Result<size_t> module = choose("module", words[1], modules);
    if (!module) return module.error();
    cell_.module = modules[*module];
    for (size_t i = 2; i < words.size(); ++i) {
      const size_t equals = std::min(words[i].find('='), words[i].size());
      const string_view key = words[i].substr(0, equals);
      const Result<size_t> read = read_key(key, words[i].substr(std::min(equals + 1, words[i].size())));
      if (!read) return read.error();
    }
    return cell_;
  }

 private:
  size_t at(string_view word) const { return static_cast<size_t>(word.data() - text_.data()) + 1; }

  // The place of `word` among `known`, or an error.
  Result<size_t> choose(string_view what, string_view word, const Words& known) const {
    if (const auto found = std::find(known.begin(), known.end(), word); found != known.end())
      return static_cast<size_t>(found - known.begin());
    string all;
    for (const string_view k : known) all += (all.empty() ? "" : ", ") + string(k);
    const string near = nearest_word(word, known);
    return Error{"unknown " + string(what) + " '" + string(word) + "'", at(word),
                 near.empty() ? "one of " + all : "did you mean '" + near + "'?"};
  }

  // Each key once, with a value that it knows. The number says nothing.
  Result<size_t> read_key(string_view key, string_view value) {
    static const Words kKeys = {"factory", "core",    "override", "phase",
                                "arch",    "flavour", "tokens",   "packed"};
    if (const Result<size_t> which = choose("key", key, kKeys); !which) return which;
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
      return Error{"key '" + string(key) + "' is given twice", at(key), ""};
    seen_.push_back(key);
    if (key == "factory") return read_factory(value);
    if (key == "tokens") return read_tokens(value);
    const Result<size_t> chosen = choose(key, value, values_of(key));
    if (!chosen) return chosen;
    if (key == "core") cell_.core = kCores[*chosen];
    if (key == "override") cell_.backward_override = kOverrides[*chosen];
    if (key == "phase") cell_.phase = static_cast<Phase>(*chosen);
    if (key == "arch") cell_.arch = static_cast<Arch>(*chosen);
    if (key == "flavour") cell_.flavour = *chosen ? Flavour::te : Flavour::assay;
    if (key == "packed") cell_.packed = *chosen == 1;
    return chosen;
  }

  static Words values_of(string_view key) {
    if (key == "core") return {std::begin(kCores), std::end(kCores)};
    if (key == "override") return {std::begin(kOverrides), std::end(kOverrides)};
    if (key == "phase") return {std::begin(kPhaseNames), std::end(kPhaseNames)};
    if (key == "arch") return words_of(kWords<Arch>, ',');
    if (key == "flavour") return {"assay", "te"};
    return {"0", "1"};
  }

  Result<size_t> read_factory(string_view value) {
    const Result<QFactoryPtr> factory = find_factory(value);
    if (!factory) return Error{factory.error().message, at(value), factory.error().hint};
    cell_.factory = (*factory)->name;  // the registry keeps it
    return size_t{0};
  }

  Result<size_t> read_tokens(string_view value) {
    const char* end = value.data() + value.size();
    int64_t& tokens = cell_.tokens;
    const auto read = std::from_chars(value.data(), end, tokens);
    if (read.ec != std::errc() || read.ptr != end || tokens < 32 || tokens > 1024 || tokens % 32)
      return Error{"tokens: expected a multiple of 32 up to 1024, found '" + string(value) + "'", at(value),
                   "tokens=96"};
    return size_t{0};
  }

  string_view text_;
  Cell cell_;
  Words seen_;
};

}  // namespace

Result<Cell> parity_cell(string_view text) {
  for (const std::vector<Cell>* cells : {&parity_cells(), &left_out_cells()})
    for (const Cell& c : *cells)
      if (to_text(c) == text) return c;
  Words words = words_of(text, ' ');
  std::erase(words, "");
  if (words.size() < 2 || words[0] != "parity" || text.find("factory=") == text.npos)
    return Error{"the parity matrix has no cell '" + string(text) + "'", 0,
                 "assay list 'roles all' prints them; 'parity linear factory=<name>' is one of a factory"};
  const Result<Cell> read = CellReader(text).read(words);
  if (!read) return read.error();
  const Cell& c = *read;
  if (c.factory.empty())
    return Error{"expected factory=<name> in '" + string(text) + "'", 0,
                 "parity linear factory=mxfp8_factory"};
  if (is_parallel(c.phase) && !has_tensor_parallelism(c.module))
    return Error{string(c.module) + " is not run over ranks: there is no phase=" + string(name_of(c.phase)),
                 0, "linear, layernorm_linear and layernorm_mlp are"};
  if (!c.core.empty() && !is_attention_module(c.module))
    return Error{string(c.module) + " has no core of attention: there is no core=" + string(c.core), 0,
                 "core= is only for mha, layernorm_mha and transformer_layer"};
  if (c.packed && c.module != "grouped_linear")
    return Error{string(c.module) + " has no weights to pack", 0, "packed= is only for grouped_linear"};
  return with_formats(c);
}

}  // namespace assay::training

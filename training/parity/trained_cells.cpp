#include "training/parity/trained_cells.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "training/parity/cells.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr GemmFormats kTrainedFormats[] = {{"fp8_current", "fp8_current", "fp8_current"},
                                           {"mxfp8", "mxfp8", "mxfp8"},
                                           {"fp8_block", "fp8_block", "fp8_block"},
                                           {"nvfp4", "nvfp4", "nvfp4"},
                                           {"mxfp8", "nvfp4", "nvfp4"},
                                           {"fp8_block", "fp8_current", "fp8_current"}};
constexpr Phase kTrainedPhases[] = {Phase::train, Phase::quantized_init, Phase::column, Phase::row};

bool on_ranks(const Cell& c) {
  const bool spread = is_parallel(c.phase) || !c.fsdp.empty();
  if (c.ranks == 0) return c.fsdp.empty() && !is_parallel(c.phase) && (c.adam || c.recompute);
  if (!spread || (is_parallel(c.phase) && c.module == "ops_grouped_linear")) return false;  // takes no group
  return !is_parallel(c.phase) || c.fsdp.empty() || c.ranks != 2;  // both kinds need one rank or two by two
}

bool uses(const GemmFormats& f, string_view format) {
  return f.fprop == format || f.dgrad == format || f.wgrad == format;
}

// What the original runs, and what has a vanilla beside it. GroupedLinear refuses the recipe of current
// scaling on more than one tensor parallel rank.
bool is_valid(const Cell& c) {
  if (!on_ranks(c)) return false;
  if (c.sequence && tensor_ranks(c) < 2) return false;
  const bool one = c.formats.one();
  if (!one && (c.module == "layernorm_mlp" || c.adam)) return false;  // E6; a trajectory of several formats
  if (c.module == "grouped_linear" && tensor_ranks(c) > 1 && uses(c.formats, "fp8_current")) return false;
  // A recompute needs rows where a gather in a backward pass brings columns alone.
  return !(c.recompute && c.fsdp == "reshard" && c.phase == Phase::quantized_init);
}

std::vector<Cell> make_all() {
  std::vector<Cell> out;
  Cell c;
  const auto add = [&] {
    for (const bool adam : {false, true})
      for (const bool recompute : {false, true}) {
        c.adam = adam;
        c.recompute = recompute;
        if (is_valid(c)) out.push_back(c);
      }
  };
  for (const string_view module : kModules)
    for (const GemmFormats& formats : kTrainedFormats)
      for (const Phase phase : kTrainedPhases)
        for (const int ranks : {0, 1, 2, 4})
          for (const bool sequence : {false, true})
            for (const string_view fsdp : {"", "reshard", "keep"}) {
              c.module = module;
              c.formats = formats;
              c.phase = phase;
              c.ranks = ranks;
              c.sequence = sequence;
              c.fsdp = fsdp;
              add();
            }
  return out;
}

// The values of a cell, axis by axis.
using Values = std::array<string, 8>;
Values values_of_cell(const Cell& c) {
  return {string(c.module),       to_text(c.formats), string(name_of(c.phase)), std::to_string(c.ranks),
          c.sequence ? "1" : "0", string(c.fsdp),     c.adam ? "1" : "0",       c.recompute ? "1" : "0"};
}
using Pair = std::tuple<size_t, string, size_t, string>;
std::vector<Pair> pairs_of(const Cell& c) {
  const Values v = values_of_cell(c);
  std::vector<Pair> out;
  for (size_t i = 0; i < v.size(); ++i)
    for (size_t j = i + 1; j < v.size(); ++j) out.emplace_back(i, v[i], j, v[j]);
  return out;
}
std::set<Pair> pairs_of_all(const std::vector<Cell>& cells) {
  std::set<Pair> out;
  for (const Cell& c : cells)
    out.merge(std::set<Pair>([&] {
      const std::vector<Pair> pairs = pairs_of(c);
      return std::set<Pair>(pairs.begin(), pairs.end());
    }()));
  return out;
}

// Greedy: always the cell that has most of the pairs that are still missing, the first one of equals.
std::vector<Cell> make_choice() {
  const std::vector<Cell>& all = all_trained_cells();
  std::map<Pair, size_t> numbers;
  std::vector<std::vector<size_t>> of_cell(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (const Pair& p : pairs_of(all[i]))
      of_cell[i].push_back(numbers.try_emplace(p, numbers.size()).first->second);
  std::vector<bool> missing(numbers.size(), true);
  std::set<size_t> chosen;
  for (size_t left = numbers.size(); left > 0;) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto gains = static_cast<size_t>(
          std::count_if(of_cell[i].begin(), of_cell[i].end(), [&](size_t p) { return missing[p]; }));
      if (gains > most) most = gains, best = i;
    }
    chosen.insert(best);
    for (const size_t p : of_cell[best]) missing[p] = false;
    left -= most;
  }
  std::vector<Cell> out;
  for (const size_t i : chosen) out.push_back(all[i]);
  return out;
}

}  // namespace

const std::vector<Cell>& all_trained_cells() {
  static const std::vector<Cell> kCells = make_all();
  return kCells;
}

const std::vector<Cell>& chosen_trained_cells() {
  static const std::vector<Cell> kCells = make_choice();
  return kCells;
}

size_t pairs_left_out(const std::vector<Cell>& cells) {
  std::set<Pair> missing = pairs_of_all(all_trained_cells());
  for (const Pair& p : pairs_of_all(cells)) missing.erase(p);
  return missing.size();
}

}  // namespace assay::training

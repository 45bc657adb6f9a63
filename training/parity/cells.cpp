#include "training/parity/cells.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "contract/words.h"
#include "training/parity/factory.h"
#include "training/parity/trained_cells.h"
#include "training/recipes/line_factory.h"

namespace assay::training {

namespace {

using std::string_view;

constexpr string_view kRoleSets[] = {"input,weight", "input", "weight", "input,weight,grad_output"};
constexpr string_view kFormatsAndIdentity[] = {"fp8_current", "mxfp8", "fp8_block", "nvfp4", "identity"};

Cell cell_of(string_view module, GemmFormats formats) {
  Cell c;
  c.module = module;
  c.formats = formats;
  return c;
}

// Phases, architectures, kernel selection, both sides of the fused kernels' row count.
void add_circumstances(std::vector<Cell>& cells, const Cell& cell, bool every_phase, bool long_sums) {
  const auto add = [&](auto set) {
    cells.push_back(cell);
    set(cells.back());
  };
  for (size_t p = 0; p < std::size(kPhaseNames); ++p) {
    const Phase phase = static_cast<Phase>(p);
    if (is_parallel(phase) && !has_tensor_parallelism(cell.module)) continue;
    if (every_phase || phase == Phase::train) add([&](Cell& c) { c.phase = phase; });
  }
  add([](Cell& c) { c.arch = Arch::sm90; });
  add([](Cell& c) { c.flavour = Flavour::te; });
  add([](Cell& c) { c.tokens = 96; });
  if (long_sums) add([](Cell& c) { c.tokens = 160; });
}

// One format, each set of roles.
void add_one_format(std::vector<Cell>& cells) {
  for (const string_view module : kModules)
    for (const string_view f : kFormats)
      for (const string_view roles : kRoleSets) {
        Cell c = cell_of(module, {f, f, f});
        c.roles = roles;
        const bool all = roles == kRoleSets[3];
        add_circumstances(cells, c, all || roles == kRoleSets[0], all);
      }
}

// Two formats: forward and gradients apart; Identity stands for one that is not quantized.
void add_two_formats(std::vector<Cell>& cells) {
  const auto with_quantized_init = [&](Cell c) {
    cells.push_back(c);
    c.phase = Phase::quantized_init;
    cells.push_back(c);
  };
  for (const string_view module : kModules) {
    if (module == "layernorm_mlp")
      continue;  // two layers have no single vanilla recipe: E6 of docs/parity.md
    for (const string_view row : kFormatsAndIdentity)
      for (const string_view col : kFormatsAndIdentity) {
        if (row == col && row != "identity") continue;
        const Cell c = cell_of(module, {row, col, col});
        if (module == "linear") with_quantized_init(c);
        else cells.push_back(c);
      }
  }
  with_quantized_init(cell_of("layernorm_mlp", {"identity", "identity", "identity"}));
}

// Gradients in high precision, against the built-in override.
void add_overrides(std::vector<Cell>& cells) {
  for (const string_view module : {"linear", "layernorm_linear", "grouped_linear"})
    for (const string_view f : {"fp8_current", "mxfp8", "fp8_block"})
      for (const string_view how : {"high_precision", "dequantized"}) {
        Cell c = cell_of(module, {f, "identity", "identity"});
        c.backward_override = how;
        cells.push_back(c);
      }
}

void add_three_formats(std::vector<Cell>& cells) {
  for (const string_view module : {"linear", "layernorm_linear"})
    for (const string_view f : kFormats)
      for (const string_view d : kFormats)
        for (const string_view w : kFormats)
          if (f != d && d != w && f != w) cells.push_back(cell_of(module, {f, d, w}));
}

// Attention's core: custom recipes of plain quantizers, and hybrids in one slot or in all. Requests for
// delayed scaling cannot be in a hybrid (E4).
void add_attention(std::vector<Cell>& cells) {
  struct Row {
    string_view format, hybrids;
  };
  constexpr Row kRows[] = {
      {"fp8_delayed", ""}, {"fp8_current", "qkv o do dqkv"}, {"mxfp8", "qkv o s do dp dqkv s,dp"}};
  for (const Row& row : kRows) {
    Cell c = cell_of(kAttention, {row.format, row.format, row.format});
    c.roles = kNoHybrid;
    for (const Phase phase : {Phase::train, Phase::trajectory}) {
      c.phase = phase;
      cells.push_back(c);
      for (const string_view roles : words_of(row.hybrids, ' ')) {
        if (roles.empty()) continue;
        Cell hybrid = c;
        hybrid.roles = roles;
        cells.push_back(hybrid);
      }
    }
    c.phase = Phase::train;
    c.arch = Arch::sm90;
    cells.push_back(c);
    c.arch = Arch::sm100;
    c.flavour = Flavour::te;
    cells.push_back(c);
  }
}

Cell multihead(string_view module, string_view format, string_view core, string_view roles) {
  Cell c = cell_of(module, {format, format, format});
  c.core = core;
  c.roles = roles;
  return c;
}

// Multi-head attention around a core in 16 bits, and around a quantized one.
void add_multihead(std::vector<Cell>& cells) {
  for (const string_view module : kAttentionModules) {
    if (module == "transformer_layer") continue;  // fewer, below
    const auto add = [&](string_view f, string_view core, string_view roles, auto... set) {
      cells.push_back(multihead(module, f, core, roles));
      (set(cells.back()), ...);
    };
    const auto trajectory = [](Cell& c) { c.phase = Phase::trajectory; };
    const auto checkpointed = [](Cell& c) { c.checkpoint_core = true; };
    for (const string_view f : kFormats) {
      add(f, "", kRoleSets[0]);
      add(f, "", kRoleSets[3]);
      add(f, "", kRoleSets[0], [](Cell& c) { c.phase = Phase::quantized_init; });
    }
    for (const string_view core : {"fp8_dpa", "fp8_mha"})
      for (const string_view f : {"fp8_delayed", "fp8_current", "mxfp8"}) {
        add(f, core, kNoHybrid);
        add(f, core, kNoHybrid, trajectory);
        add(f, core, kNoHybrid, checkpointed);
        if (f == "fp8_delayed") continue;  // in no hybrid (E4)
        for (const string_view roles : {kRoleSets[0], kRoleSets[2], kRoleSets[3]}) add(f, core, roles);
        if (module != kAttentionModules[0]) continue;
        add(f, core, "qkv");
        add(f, core, kRoleSets[2], trajectory);
        add(f, core, kNoHybrid, [](Cell& c) { c.arch = Arch::sm90; });
        add(f, core, kNoHybrid, [](Cell& c) { c.flavour = Flavour::te; });
      }
  }
}

// A whole layer: what its parts do is in their own cells.
void add_layers(std::vector<Cell>& cells) {
  const auto add = [&](string_view f, string_view core, string_view roles, auto... set) {
    cells.push_back(multihead("transformer_layer", f, core, roles));
    (set(cells.back()), ...);
  };
  for (const string_view f : kFormats) {
    add(f, "", kRoleSets[0]);
    add(f, "", kRoleSets[0], [](Cell& c) { c.phase = Phase::quantized_init; });
  }
  for (const string_view core : {"fp8_dpa", "fp8_mha"})
    for (const string_view f : {"fp8_delayed", "fp8_current", "mxfp8"}) {
      add(f, core, kNoHybrid);
      add(f, core, kNoHybrid, [](Cell& c) { c.phase = Phase::trajectory; });
      if (f != "fp8_delayed") add(f, core, kRoleSets[0]);
    }
  add("mxfp8", "fp8_dpa", kRoleSets[0], [](Cell& c) { c.recompute = true; });
  add("fp8_current", "fp8_mha", kNoHybrid, [](Cell& c) { c.checkpoint_core = true; });
  add("mxfp8", "fp8_dpa", kRoleSets[0], [](Cell& c) { c.phase = Phase::column, c.ranks = 2; });
  add("nvfp4", "", kRoleSets[0], [](Cell& c) { c.ranks = 2, c.fsdp = "keep", c.adam = true; });
}

// Multi-head attention on ranks, with an optimizer or a recompute of the whole.
void add_multihead_on_ranks(std::vector<Cell>& cells) {
  const Cell kRows[] = {multihead("mha", "fp8_current", "fp8_mha", "weight"),
                        multihead("mha", "mxfp8", "fp8_dpa", kRoleSets[0]),
                        multihead("mha", "nvfp4", "", kRoleSets[0])};
  for (const Cell& c : kRows) {
    const auto add = [&](auto set) {
      cells.push_back(c);
      set(cells.back());
    };
    add([](Cell& x) { x.phase = Phase::column; });
    add([](Cell& x) { x.phase = Phase::column, x.ranks = 2; });
    add([](Cell& x) { x.phase = Phase::column, x.ranks = 2, x.sequence = true; });
    add([](Cell& x) { x.phase = Phase::column, x.ranks = 4, x.fsdp = "reshard"; });
    add([](Cell& x) { x.ranks = 2, x.fsdp = "keep", x.adam = true; });
    add([](Cell& x) { x.recompute = true; });
    add([](Cell& x) { x.recompute = x.checkpoint_core = true; });
  }
}

// A factory's cells of multi-head attention.
void add_factory_attention(std::vector<Cell>& cells, Cell c) {
  for (const string_view core : {"", "fp8_dpa", "fp8_mha"}) {
    c.core = core;
    for (const Phase phase : {Phase::train, Phase::quantized_init}) {
      c.phase = phase;
      cells.push_back(c);
    }
  }
}

Cell packed(Cell c) {
  c.phase = Phase::quantized_init;
  c.packed = true;
  return c;
}

std::vector<Cell> make_cells() {
  std::vector<Cell> cells;
  add_one_format(cells);
  add_two_formats(cells);
  add_overrides(cells);
  add_three_formats(cells);
  cells.push_back(packed(cell_of("grouped_linear", {"mxfp8", "mxfp8", "mxfp8"})));
  add_attention(cells);
  add_multihead(cells);
  add_multihead_on_ranks(cells);
  add_layers(cells);
  const std::vector<Cell>& trained = chosen_trained_cells();
  cells.insert(cells.end(), trained.begin(), trained.end());
  return cells;
}

}  // namespace

bool has_tensor_parallelism(string_view module) {
  return !module.starts_with("ops") && module != "grouped_linear";
}

const std::vector<Cell>& parity_cells() {
  static const std::vector<Cell> kCells = make_cells();
  return kCells;
}

const std::vector<Cell>& left_out_cells() {
  static const std::vector<Cell> kCells = [] {
    const std::vector<Cell>& chosen = chosen_trained_cells();
    std::vector<Cell> rest = all_trained_cells();
    std::erase_if(rest,
                  [&](const Cell& c) { return std::find(chosen.begin(), chosen.end(), c) != chosen.end(); });
    return rest;
  }();
  return kCells;
}

std::vector<string_view> factory_modules() {
  std::vector<string_view> out(std::begin(kModules), std::end(kModules));
  out.insert(out.end(), {"mha", "layernorm_mha", "transformer_layer"});
  return out;
}

Result<std::vector<FactoryCell>> factory_cells(string_view name) {
  const Result<QFactoryPtr> factory = find_factory(name);
  if (!factory) return factory.error();
  std::vector<FactoryCell> out;
  std::optional<Error> first;
  bool any = false;
  for (const string_view module : factory_modules()) {
    Cell c;
    c.module = module;
    c.factory = (*factory)->name;  // the registry keeps it
    std::vector<Cell> cells;
    if (is_attention_module(module)) add_factory_attention(cells, c);
    else add_circumstances(cells, c, true, true);
    if (module == "grouped_linear") cells.push_back(packed(c));
    for (const Cell& cell : cells) {
      const Result<Cell> whole = with_formats(cell);
      any |= static_cast<bool>(whole);
      if (!whole && !first) first = whole.error();
      out.push_back(whole ? FactoryCell{*whole, ""} : FactoryCell{cell, whole.error().text()});
    }
  }
  if (!any) return *first;
  return out;
}

}  // namespace assay::training

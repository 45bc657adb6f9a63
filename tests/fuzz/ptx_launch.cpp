// A launch file: its launches held against an entry, and its expressions.
#include "compare/subjects/ptx_launch_file.h"

#include "compare/subjects/ptx_arguments.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/scratch.h"

void assay::fuzz::ptx_launch(std::string_view bytes) {
  static const ptx::Module module(
      ".version 8.7\n.target sm_90a\n.address_size 64\n"
      ".visible .entry rows(.param .u64 .ptr .global .align 1 x, .param .u64 y, .param .u32 cols, .param "
      ".align 64 .b8 map[128]) "
      ".reqntid 128 { ret; }");
  static const Plane plane = [] {
    Plane x;
    x.name = "x", x.encoding = Encoding::bf16, x.logical = x.padded = {64, 256};
    return x;
  }();
  const auto file = read_ptx_launch_file(written("fuzz.json", bytes));
  if (!file) return;
  const auto lookup = [](std::string_view name) -> std::optional<int64_t> {
    return name == "rows"   ? 64
           : name == "cols" ? 256
           : name == "most" ? std::optional(INT64_MAX)
                            : std::nullopt;
  };
  for (const PtxLaunch& launch : file->launches) {
    check_arguments(module.entry("rows"), launch);
    for (const auto& sizes : {launch.grid, launch.block, {launch.shared, "1", "1"}})
      for (const std::string& size : sizes) evaluate(size, lookup);
    for (const PtxArgument& a : launch.args) {
      evaluate(a.text, lookup);
      if (a.what == PtxArgument::What::map) try {
          tensor_map_of(a, plane, 1 << 20, [&](const std::string& text) {
            const auto value = evaluate(text, lookup);
            if (!value) throw std::runtime_error(value.error().text());
            return *value;
          });
        } catch (const std::runtime_error&) {}
    }
  }
}

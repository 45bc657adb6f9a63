#include "training/parity/factory.h"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/line.h"
#include "contract/words.h"
#include "training/formats/hybrid.h"
#include "training/recipes/factories.h"
#include "training/recipes/format_table.h"
#include "training/recipes/producers.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr string_view kGemms[] = {"fprop", "dgrad", "wgrad"};

// One direction of a tensor: what the factory makes it with, and the GEMM that reads it.
struct Operand {
  RolePtr role;
  Direction direction;
  size_t gemm;
  QuantizerPtr quantizer = nullptr;
  string_view format = "";
  bool from_rows = false;  // columns of dequantized rows
  bool plain = false;      // a built-in recipe's quantizer, no hybrid
  string text() const {
    return string(direction == Direction::row ? "rows of " : "columns of ") + role->module_type + "/" +
           role->tensor_type + (role->name.empty() ? "" : "/" + role->name);
  }
};
using Operands = std::vector<Operand>;

// The GEMMs that read the two directions of a tensor, as places in kGemms.
constexpr struct Readers {
  string_view tensor;
  size_t row, col;
} kReaders[] = {{"input", 0, 2}, {"weight", 0, 1}, {"grad_output", 1, 2}};

// The format word of a quantizer; empty where no recipe of one format makes it from the first step on.
string_view format_of(const Quantizer& q) {
  const FormatRow* row = row_of_quantizer(q);
  return row && row->format != "fp8_delayed" ? row->format : "";
}

// The roles of a module's slots, each once; of self attention those of the layers around its core.
std::vector<RolePtr> roles_of(string_view module) {
  std::vector<RolePtr> roles;
  const auto add = [&](Producer producer, const string& name) {
    for (const Mode mode : {Mode::forward, Mode::backward})
      for (const RolePtr& role : role_list(producer, name, mode, slots_of_module(mode, 2)))
        if (role &&
            std::none_of(roles.begin(), roles.end(), [&](const RolePtr& r) { return same_role(r, role); }))
          roles.push_back(role);
  };
  if (!is_attention_module(module)) {
    add(producer_of(module), "m");
    return roles;
  }
  const bool layer = module == "transformer_layer";
  const string attention = layer ? "m.self_attention" : "m";
  if (module == "mha") add(Producer::linear, attention + ".linear_qkv");
  else add(Producer::layernorm_linear, attention + ".layernorm_linear_qkv");
  add(Producer::linear, attention + ".proj");
  if (layer) add(Producer::layernorm_mlp, "m.layernorm_mlp");
  return roles;
}

// What a factory returned where a quantizer of a built-in recipe was expected.
string found_text(const QuantizerLike& made, const Operand& o) {
  if (o.quantizer) return string(o.quantizer->class_name());
  if (std::holds_alternative<DelayedScalingRequest>(made))
    return "a request for delayed scaling (exclusion E4 of docs/parity.md)";
  const auto* other = std::get_if<NotAQuantizer>(&made);
  return other ? other->what : "nothing";
}

// Both directions of a tensor as a factory makes them, rows first.
Result<Operands> operands_of(const QFactory& factory, const RolePtr& role, const Readers& reader) {
  Operand row{role, Direction::row, reader.row}, col{role, Direction::col, reader.col};
  QuantizerLike made;
  try {
    made = factory.call(role);
  } catch (const std::exception& e) {
    return Error{factory.name + " raises for " + to_text(*role) + ": " + e.what(), 0, ""};
  }
  if (const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made); q && *q) {
    row.quantizer = col.quantizer = *q;
    if (const auto* pair = dynamic_cast<const HybridQuantizer*>(q->get())) {
      row.quantizer = pair->rowwise_quantizer;
      col.quantizer = pair->columnwise_quantizer;
      col.from_rows = pair->columnwise_source == "rowwise_dequantized";
    }
  }
  for (Operand* o : {&row, &col}) {
    if (o->quantizer) o->format = format_of(*o->quantizer);
    o->plain = o->quantizer && o->format != "identity" && row.quantizer == col.quantizer &&
               !only_by_factory(o->format);
    if (o->format.empty())
      return Error{"expected a quantizer that a built-in recipe also has for " + o->text() + ", which " +
                       string(kGemms[o->gemm]) + " reads; " + factory.name + " returns " +
                       found_text(made, *o),
                   0, "scenarios judge quantizers without a vanilla counterpart: assay list scenarios"};
  }
  return Operands{row, col};
}

// The operands of every GEMM of a factory's cell, layer by layer.
Result<Operands> operands_of(const Cell& c) {
  const QFactoryPtr factory = factory_named(c.factory);
  Operands out;
  for (const RolePtr& role : roles_of(c.module))
    for (const Readers& reader : kReaders) {
      if (role->tensor_type != reader.tensor) continue;
      const Result<Operands> both = operands_of(*factory, role, reader);
      if (!both) return both.error();
      out.insert(out.end(), both->begin(), both->end());
    }
  return out;
}

// The one format of each GEMM, or an error where its operands have two.
Result<GemmFormats> formats_of(const Cell& c, const Operands& operands) {
  std::array<const Operand*, 3> first{};
  for (const Operand& o : operands) {
    const Operand*& seen = first[o.gemm];
    if (!seen) seen = &o;
    if (seen->format == o.format) continue;
    const bool layers = seen->role->name != o.role->name;
    const string both = layers ? "both layers of " + string(c.module) + " in " : "both operands of ";
    return Error{"expected one format for " + both + string(kGemms[o.gemm]) + ", found " +
                     string(seen->format) + " for " + seen->text() + " and " + string(o.format) + " for " +
                     o.text(),
                 0,
                 layers ? "E6 of docs/parity.md: no single vanilla recipe has both"
                        : "vanilla has a recipe per GEMM, not per operand"};
  }
  return GemmFormats{first[0]->format, first[1]->format, first[2]->format};
}

// The error of a cell that needs a kernel of the original for a format that only a factory makes, or nothing.
std::optional<Error> kernel_refusal(const Cell& c) {
  for (const string_view f : {c.formats.fprop, c.formats.dgrad, c.formats.wgrad}) {
    if (!only_by_factory(f)) continue;
    if (c.flavour == Flavour::te)
      return Error{"expected formats that TransformerEngine has kernels for, found " + string(f), 0,
                   "leave flavour=te out"};
    if (c.packed)
      return Error{
          "expected formats that TransformerEngine has recipes for in packed grouped weights, found " +
              string(f),
          0, "leave packed=1 out"};
  }
  return std::nullopt;
}

// The error of a cell of attention that has no vanilla, or nothing.
std::optional<Error> attention_refusal(const Cell& c) {
  if (!is_attention_module(c.module)) return std::nullopt;
  const string found = ", found " + to_text(c.formats) + " (fprop | dgrad | wgrad)";
  if (!c.formats.one())
    return Error{"expected one format for all GEMMs of " + string(c.module) + found, 0,
                 "E6 of docs/parity.md: the core's backward depends on both formats, and no single vanilla "
                 "step has both"};
  if (!c.core.empty() && c.formats.fprop != "fp8_current" && c.formats.fprop != "mxfp8")
    return Error{
        "expected a format that a built-in recipe has for attention's core too, fp8_current or mxfp8" + found,
        0, "leave core= out: the core then runs in 16 bits"};
  if (c.core.empty() || c.formats.fprop != "fp8_current") return std::nullopt;
  for (const char* tensor : {"s", "dp"}) {
    const RolePtr role = std::make_shared<const QuantizerRole>(QuantizerRole{
        "dpa", tensor,
        (c.module == "transformer_layer" ? "m.self_attention" : "m") + string(".core_attention")});
    const QuantizerLike made = factory_named(c.factory)->call(role);
    if (std::holds_alternative<DelayedScalingRequest>(made)) continue;
    Operand o{role, Direction::row, 0};
    if (const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made)) o.quantizer = *q;
    return Error{"expected a request for delayed scaling for dpa/" + string(tensor) +
                     ", as the built-in recipe of current scaling has it, found " + found_text(made, o),
                 0, "nvfp4_linear_fp8_dpa_factory shows one"};
  }
  return std::nullopt;
}

// The error of a cell that vanilla cannot run, or nothing.
std::optional<Error> refusal(const Cell& c, const Operands& operands) {
  if (auto error = kernel_refusal(c)) return error;
  if (auto error = attention_refusal(c)) return error;
  const string formats = to_text(c.formats) + " (fprop | dgrad | wgrad)";
  const bool keeps_weights =
      c.phase == Phase::quantized_init || c.phase == Phase::trajectory || c.phase == Phase::evaluation;
  const auto plain = std::find_if(operands.begin(), operands.end(), [](const Operand& o) {
    return o.role->tensor_type == "weight" && o.plain;
  });
  if (keeps_weights && plain != operands.end() && !c.module.starts_with("ops"))
    return Error{"expected a hybrid for a weight that stays quantized, found " +
                     string(plain->quantizer->class_name()) +
                     ", which the original refuses under CustomRecipe",
                 0, "return a HybridQuantizer of two"};
  if (c.phase == Phase::trajectory && c.backward_override.empty() && !c.formats.one())
    return Error{"expected one format for a trajectory, found " + formats, 0,
                 "no vanilla trajectory has its weights: each step of vanilla's updates by gradients of its "
                 "own format"};
  return std::nullopt;
}

// The settings of one direction, as keys of a line.
string settings_text(const assay::Quantizer& q, Direction d) {
  Problem p;
  p.op = Quantize{};
  p.quantizer(d) = q;
  const string line = to_line(p);
  const Words words = words_of(line, ' ');
  string out(words[1]);
  for (size_t i = 4; i < words.size(); ++i)  // behind op, format, shape and source
    if (!words[i].starts_with("dir=")) out += " " + string(words[i]);
  return out;
}

// One operand's settings against those of the built-in recipe of its format.
Found compare_settings(const Operand& o) {
  const Direction d = o.direction;
  const std::optional<assay::Quantizer> got = o.quantizer->line(d);
  if (only_by_factory(o.format)) {
    const assay::Quantizer want = *base_quantizer(o.format, o.role)->line(d);
    if (got == want) return std::nullopt;
    return Difference{"settings of " + o.text() + ", which " + string(kGemms[o.gemm]) + " reads",
                      settings_text(want, d), settings_text(*got, d)};
  }
  const Result<Problem> vanilla =
      parse_line("quantize " + string(o.format) + " 128x256 bf16 role=" + o.role->module_type + "/" +
                 o.role->tensor_type);
  if (vanilla && got && *got == *vanilla->quantizer(d)) return std::nullopt;
  const string want = vanilla ? settings_text(*vanilla->quantizer(d), d) : vanilla.error().text();
  const string reads = vanilla && got ? ", which " + string(kGemms[o.gemm]) + " reads" : "";
  return Difference{"settings of " + o.text() + reads, want, got ? settings_text(*got, d) : "none"};
}

}  // namespace

Result<Cell> with_formats(Cell c) {
  const Result<Operands> operands = operands_of(c);
  if (!operands) return operands.error();
  const Result<GemmFormats> formats = formats_of(c, *operands);
  if (!formats) return formats.error();
  c.formats = *formats;
  const string found = ", found " + to_text(c.formats) + " (fprop | dgrad | wgrad)";
  if (c.module == "layernorm_mlp" && !c.formats.one())
    return Error{"expected one format for all GEMMs of layernorm_mlp" + found, 0,
                 "E6 of docs/parity.md: its second layer's backward depends on both formats, and no single "
                 "vanilla step has both"};
  const bool gradients_plain =
      c.formats.dgrad == "identity" && c.formats.wgrad == "identity" && c.formats.fprop != "identity";
  const bool dequantized = std::all_of(operands->begin(), operands->end(), [](const Operand& o) {
    return o.direction == Direction::row || o.role->tensor_type == "grad_output" || o.from_rows;
  });
  if (gradients_plain && dequantized && c.backward_override.empty()) c.backward_override = "dequantized";
  if (const auto error = refusal(c, *operands)) return *error;
  if (!c.backward_override.empty() && !gradients_plain)
    return Error{"expected gradients in high precision with override=" + string(c.backward_override) + found,
                 0, "leave override= out"};
  return c;
}

Found compare_settings(const Cell& c) {
  if (c.factory.empty()) return std::nullopt;
  const Result<Operands> operands = operands_of(c);
  if (!operands) return Difference{"quantizers", "those of the cell", operands.error().text()};
  for (const Operand& o : *operands)
    if (o.format != "identity")
      if (Found d = compare_settings(o)) return d;
  return std::nullopt;
}

}  // namespace assay::training

// Producers: who hands role lists to a recipe. Modules and operations say, slot by slot, which tensor of whom
// a quantizer will quantize; their lists are the rows of contract/roles.def.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/recipes/role.h"

namespace assay::training {

enum class Producer : uint8_t {
#define PRODUCER(id, te_class, module_type, list) id,
#define SLOT(producer, mode, boundary, part, tensor_type)
#include "contract/roles.def"
#undef SLOT
#undef PRODUCER
};
// By the original's class ("LayerNormMLP"), which a module and an operation may share ("GroupedLinear");
// nothing where the class gives no list.
std::optional<Producer> module_named(std::string_view te_class);
std::optional<Producer> operation_named(std::string_view te_class);

// What a module lets others configure: the roles of its output and of its grad input, null until their
// consumers are known.
struct Boundaries {
  RolePtr output, grad_input;
};

// The roles of `count` slots of a producer called `name`; fewer where the list is shorter and does not
// repeat. Slots that repeat hold the very same role.
std::vector<RolePtr> role_list(Producer, const std::string& name, Mode, size_t count, const Boundaries& = {});

// Slots of a module of `num_gemms` GEMMs: three per GEMM forward (input, weight, output), two backward
// (grad_output, grad_input).
size_t slots_of_module(Mode, size_t num_gemms);

// An operation's slots (TE ops/op.py). `mode` is a word, as in the original: an unknown one has no slots and
// no list.
struct Operation {
  std::string te_class;  // "BasicLinear"; a class without a list of its own has no roles
  std::string name;      // empty unless given: operations get no automatic name
  size_t num_groups = 1;
  bool quantize_forward = true, quantize_backward = true;  // of "Quantize" only
  size_t num_quantizers(std::string_view mode) const;
  RoleList get_quantizer_roles(std::string_view mode) const;
};

// "forward" or "backward".
std::optional<Mode> mode_named(std::string_view);
// `part` of the producer `name`, joined with a dot; either may be empty.
std::string dotted(const std::string& name, std::string_view part);

}  // namespace assay::training

// The role of a quantizer: which tensor of which module it will quantize. Immutable, compared by value (TE
// quantization.py).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace assay::training {

struct QuantizerRole {
  std::string module_type;  // "linear", "grouped_linear", "dpa", or empty
  std::string
      tensor_type;   // "input", "weight", "grad_output", "qkv", "s", "do", "dp", or anything a producer says
  std::string name;  // "decoder.mlp.fc1", or empty
  bool operator==(const QuantizerRole&) const = default;
};
// The non-empty fields as "module_type=linear|name=fc1"; of an empty role "QuantizerRole()".
std::string to_text(const QuantizerRole&);
// By value, as roles compare.
size_t hash_of(const QuantizerRole&);

// A slot's role; null where the producer configured none. Shared, because the original keeps and compares the
// very object.
using RolePtr = std::shared_ptr<const QuantizerRole>;
// Both null, or equal by value.
bool same_role(const RolePtr&, const RolePtr&);
// The roles of all slots of one direction; nothing where a producer gives no list.
using RoleList = std::optional<std::vector<RolePtr>>;

// The two lists of slots that a module has.
enum class Mode { forward, backward };

}  // namespace assay::training

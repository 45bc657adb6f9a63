#include "training/recipes/producers.h"

#include <algorithm>
#include <iterator>

namespace assay::training {

namespace {

enum class List : uint8_t { cycle, cut, groups };
enum class Boundary : uint8_t { none, output, grad_input };
struct ProducerRow {
  std::string_view te_class, module_type;
  List list;
};
struct SlotRow {
  Producer producer;
  Mode mode;
  Boundary boundary;
  std::string_view part, tensor_type;
};

constexpr ProducerRow kProducers[] = {
#define PRODUCER(id, te_class, module_type, list) {te_class, module_type, List::list},
#define SLOT(producer, mode, boundary, part, tensor_type)
#include "contract/roles.def"
#undef SLOT
#undef PRODUCER
};
constexpr SlotRow kSlots[] = {
#define PRODUCER(id, te_class, module_type, list)
#define SLOT(producer, mode, boundary, part, tensor_type) \
  {Producer::producer, Mode::mode, Boundary::boundary, part, tensor_type},
#include "contract/roles.def"
#undef SLOT
#undef PRODUCER
};

const ProducerRow& row_of(Producer p) { return kProducers[static_cast<size_t>(p)]; }

std::optional<Producer> named(std::string_view te_class, bool operation) {
  for (size_t i = 0; i < std::size(kProducers); ++i)
    if (kProducers[i].te_class == te_class && (kProducers[i].list == List::groups) == operation)
      return static_cast<Producer>(i);
  return std::nullopt;
}

// A producer's slots of one mode, once.
std::vector<RolePtr> pattern(Producer p, const std::string& name, Mode mode, const Boundaries& boundaries) {
  std::vector<RolePtr> roles;
  for (const SlotRow& slot : kSlots) {
    if (slot.producer != p || slot.mode != mode) continue;
    const auto made = [&](std::string_view module_type) {
      return std::make_shared<const QuantizerRole>(
          QuantizerRole{std::string(module_type), std::string(slot.tensor_type), dotted(name, slot.part)});
    };
    const RolePtr configured = slot.boundary == Boundary::output       ? boundaries.output
                               : slot.boundary == Boundary::grad_input ? boundaries.grad_input
                                                                       : nullptr;
    if (slot.boundary == Boundary::none) roles.push_back(made(row_of(p).module_type));
    else
      roles.push_back(configured || slot.part.empty()
                          ? configured
                          : made(""));  // a hint belongs to no module: it only names the place
  }
  return roles;
}

}  // namespace

std::optional<Producer> module_named(std::string_view te_class) { return named(te_class, false); }
std::optional<Producer> operation_named(std::string_view te_class) { return named(te_class, true); }

std::vector<RolePtr> role_list(Producer p, const std::string& name, Mode mode, size_t count,
                               const Boundaries& boundaries) {
  const std::vector<RolePtr> once = pattern(p, name, mode, boundaries);
  if (row_of(p).list == List::cut) count = std::min(count, once.size());
  std::vector<RolePtr> roles(count);
  for (size_t i = 0; i < count; ++i) roles[i] = once[i % once.size()];
  return roles;
}

size_t slots_of_module(Mode mode, size_t num_gemms) { return num_gemms * (mode == Mode::forward ? 3 : 2); }

size_t Operation::num_quantizers(std::string_view word) const {
  const auto mode = mode_named(word);
  if (!mode) return 0;
  if (te_class == "Quantize") return *mode == Mode::forward ? quantize_forward : quantize_backward;
  const auto producer = operation_named(te_class);
  return producer ? pattern(*producer, name, *mode, {}).size() * num_groups : 0;
}

RoleList Operation::get_quantizer_roles(std::string_view word) const {
  const auto mode = mode_named(word);
  const auto producer = operation_named(te_class);
  if (!mode || !producer) return std::nullopt;
  return role_list(*producer, name, *mode, num_quantizers(word));
}

std::optional<Mode> mode_named(std::string_view word) {
  if (word == "forward") return Mode::forward;
  if (word == "backward") return Mode::backward;
  return std::nullopt;
}

std::string dotted(const std::string& name, std::string_view part) {
  if (name.empty() || part.empty()) return name + std::string(part);
  return name + "." + std::string(part);
}

}  // namespace assay::training

#include "contract/line/places.h"

#include "contract/attention.h"
#include "contract/flavours.h"
#include "contract/planes.h"
#include "contract/recipes.h"

namespace assay::line {

namespace {

constexpr std::string_view kDirectionPlaces[] = {"row", "col"}, kOperandPlaces[] = {"a", "b", "c"};
constexpr int kPlaceOfC = 2;

bool of_operands(const Key& k, const Problem& p) { return p.as<Gemm>() && (k.ops & kOperand); }
bool of_slots(const Key& k, const Problem& p) {
  return p.as<Attention>() && k.directional && (k.ops & kOperand);
}

}  // namespace

std::span<const std::string_view> places_of(const Problem& p) {
  if (p.as<Gemm>()) return kOperandPlaces;
  if (p.as<Attention>()) return kSlotNames;
  return kDirectionPlaces;
}

bool prefixed(const Key& k, const Problem& p) {
  return p.as<Gemm>() ? of_operands(k, p) : p.as<Attention>() ? of_slots(k, p) : k.directional;
}

bool applies_at(const Key& k, const Problem& p, int place) {
  if (!(k.ops & op_bits(p))) return false;
  if (const Gemm* g = p.as<Gemm>(); g && of_operands(k, p)) {
    const bool draws_c = (g->reads_c() || g->bias) && !k.directional && k.name != kSource;
    return (place != kPlaceOfC || draws_c) && At(k, p, place).applies();
  }
  if (const Attention* a = p.as<Attention>(); a && of_slots(k, p))
    return has_slot(*a, static_cast<AttentionSlot>(place)) && At(k, p, place).applies();
  if (p.as<Attention>()) return place == 0 && !k.directional && (k.ops & kAttention);
  if (!k.directional) return place == 0 && k.applies(p, Direction::row);
  const Direction d = static_cast<Direction>(place);
  return p.quantizer(d) && k.applies(p, d);
}

std::vector<int> places(const Key& k, const Problem& p) {
  std::vector<int> out;
  for (int place = 0; place < static_cast<int>(places_of(p).size()); ++place)
    if (applies_at(k, p, place)) out.push_back(place);
  return out;
}

At::At(const Key& k, const Problem& p, int place)
    : key_(k),
      problem_(p),
      direction_(static_cast<Direction>(place)),
      viewed_(of_operands(k, p) && place != kPlaceOfC) {
  if (place == kPlaceOfC) direction_ = Direction::row;
  if (of_slots(k, p)) {
    viewed_ = true;
    slot_ = static_cast<AttentionSlot>(place);
    direction_ = Direction::row;
    view_ = slot_problem(p, slot_);
    return;
  }
  if (!viewed_) return;
  side_ = static_cast<Side>(place);
  direction_ = p.as<Gemm>()->direction(side_);
  view_ = operand_problem(p, side_);
  view_.x.fill = p.as<Gemm>()->operand(side_).fill;
}

std::string At::fallback() const {
  const std::optional<Quantizer>& q = seen().quantizer(direction_);
  const FlavourInfo* flavour = info(seen().flavour);
  if (flavour && key_.directional && q && flavour->is_of(q->format))
    if (const auto value = setting(flavour->keys, key_.name, direction_)) {
      Problem set = seen();
      return key_.set(set, direction_, *value) ? std::string(*value)
                                               : key_.get(set, direction_);  // as a line prints it: eps=1e-04
    }
  return key_.fallback(seen(), direction_);
}

MaybeError At::set(Problem& p, std::string_view text) {
  if (!viewed_) return key_.set(p, direction_, text);
  if (auto error = key_.set(view_, direction_, text)) return error;
  if (Attention* a = p.as<Attention>()) {
    a->slot(slot_) = *view_.row;
    return {};
  }
  p.as<Gemm>()->operand(side_) = {*view_.quantizer(direction_), view_.x.source, view_.x.fill};
  return {};
}

}  // namespace assay::line

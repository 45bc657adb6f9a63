#include "fast/ptx/registers.h"

#include <algorithm>

namespace assay::ptx {

namespace {

// 64 MiB for each warp: no kernel that a compiler made comes near it.
constexpr uint32_t kMostWords = 1u << 24;

struct SpecialName {
  std::string_view name;
  Special special;
};
constexpr SpecialName kSpecialNames[] = {{"%tid.x", Special::tid_x},
                                         {"%tid.y", Special::tid_y},
                                         {"%tid.z", Special::tid_z},
                                         {"%ntid.x", Special::ntid_x},
                                         {"%ntid.y", Special::ntid_y},
                                         {"%ntid.z", Special::ntid_z},
                                         {"%ctaid.x", Special::ctaid_x},
                                         {"%ctaid.y", Special::ctaid_y},
                                         {"%ctaid.z", Special::ctaid_z},
                                         {"%nctaid.x", Special::nctaid_x},
                                         {"%nctaid.y", Special::nctaid_y},
                                         {"%nctaid.z", Special::nctaid_z},
                                         {"%laneid", Special::laneid},
                                         {"%warpid", Special::warpid},
                                         {"%nwarpid", Special::nwarpid},
                                         {"%lanemask_eq", Special::lanemask_eq},
                                         {"%lanemask_lt", Special::lanemask_lt},
                                         {"%lanemask_le", Special::lanemask_le},
                                         {"%lanemask_gt", Special::lanemask_gt},
                                         {"%lanemask_ge", Special::lanemask_ge},
                                         {"%dynamic_smem_size", Special::dynamic_smem_size},
                                         {"%total_smem_size", Special::total_smem_size},
                                         // One multiprocessor, and clusters of one block.
                                         {"%smid", Special::zero},
                                         {"%nsmid", Special::one},
                                         {"%cluster_ctarank", Special::zero},
                                         {"%cluster_nctarank", Special::one},
                                         {"%cluster_ctaid.x", Special::zero},
                                         {"%cluster_ctaid.y", Special::zero},
                                         {"%cluster_ctaid.z", Special::zero},
                                         {"%cluster_nctaid.x", Special::one},
                                         {"%cluster_nctaid.y", Special::one},
                                         {"%cluster_nctaid.z", Special::one},
                                         {"%is_explicit_cluster", Special::zero},
                                         {"%clusterid.x", Special::ctaid_x},
                                         {"%clusterid.y", Special::ctaid_y},
                                         {"%clusterid.z", Special::ctaid_z},
                                         {"%nclusterid.x", Special::nctaid_x},
                                         {"%nclusterid.y", Special::nctaid_y},
                                         {"%nclusterid.z", Special::nctaid_z}};

}  // namespace

Names::Names(Kernel& kernel) : k_(kernel) {
  std::fill(std::begin(k_.special), std::end(k_.special), kUnused);
  k_.true_predicate = k_.predicates++;
}

uint32_t Names::allocate(bool wide) {
  const uint32_t place = k_.words;
  k_.words += wide ? 2 * kLanes : kLanes;
  if (k_.words > kMostWords)
    throw Fault("the registers go beyond the " + std::to_string(kMostWords) + " words that a warp may have");
  k_.wide.resize(k_.words / kLanes, false);
  k_.wide[place / kLanes] = wide;
  return place;
}

Register Names::Declared::at(uint64_t number) const {
  Register r = first;
  const uint32_t each = r.predicate() ? 1 : r.bits() > 64 ? 4 * kLanes : r.wide() ? 2 * kLanes : kLanes;
  r.place += static_cast<uint32_t>(number) * each;
  return r;
}

void Names::declare(Type type, std::string_view name, uint64_t count, bool row) {
  if (count > kMostWords)
    throw Fault("the registers go beyond the " + std::to_string(kMostWords) + " words that a warp may have");
  Declared declared{{type, k_.predicates}, count};
  if (type == Type::pred) {
    k_.predicates += static_cast<uint32_t>(count);
    if (k_.predicates > kMostWords)
      throw Fault("the registers go beyond the " + std::to_string(kMostWords) +
                  " words that a warp may have");
  } else {
    declared.first.place = k_.words;
    // Of 128 bits the upper half lies right behind the lower one.
    for (uint64_t n = 0; n < count * (type == Type::b128 ? 2 : 1); ++n) allocate(info(type).bits > 32);
  }
  for (uint64_t n = 0; declared_ && n < count; ++n) declared_->push_back(declared.at(n));
  Scope& scope = scopes_.back();
  (row ? scope.rows : scope.single)[std::string(name)] = declared;
}

std::optional<Register> Names::Scope::find(std::string_view name) const {
  if (const auto found = single.find(name); found != single.end()) return found->second.first;
  // The number of a register has no zero before it, so every cut of the digits at the end is one of one row.
  uint64_t number = 0, power = 1;
  for (size_t cut = name.size(); cut > 1 && power <= kMostWords; power *= 10) {
    const char digit = name[--cut];
    if (digit < '0' || digit > '9') break;
    number += power * static_cast<uint64_t>(digit - '0');
    if (digit == '0' && power > 1) continue;
    const auto found = rows.find(name.substr(0, cut));
    if (found == rows.end() || number >= found->second.count) continue;
    return found->second.at(number);
  }
  return {};
}

std::optional<Register> Names::find_register(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(name)) return found;
  return {};
}

const Variable* Names::find_variable(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->variables.find(name); found != scope->variables.end())
      return &found->second;
  return nullptr;
}

const Register* Names::find_special(std::string_view name) {
  if (const auto found = specials_.find(name); found != specials_.end()) return &found->second;
  for (const SpecialName& s : kSpecialNames) {
    if (s.name != name) continue;
    uint32_t& place = k_.special[static_cast<size_t>(s.special)];
    if (place == kUnused) place = allocate(false);
    return &(specials_[std::string(name)] = {Type::b32, place});
  }
  // Every launch stands alone: it is the first of its context.
  if (name == "%gridid") return &(specials_[std::string(name)] = {Type::b64, constant(0, true)});
  if (const auto clock = clock_named(name)) {
    // The register holds nothing: whoever reads it is given the count instead (decode.cpp).
    const uint32_t place = allocate(clock->wide);
    k_.constants.push_back({place, clock->wide, 0});
    clocks_[place] = *clock;
    return &(specials_[std::string(name)] = {clock->wide ? Type::b64 : Type::b32, place});
  }
  return nullptr;
}

uint32_t Names::constant(uint64_t value, bool wide) {
  if (!wide) value = static_cast<uint32_t>(value);
  const auto [found, fresh] = constants_.try_emplace({value, wide}, 0);
  if (fresh) {
    found->second = allocate(wide);
    k_.constants.push_back({found->second, wide, value});
  }
  return found->second;
}

uint32_t Names::dynamic_address(uint64_t offset, bool wide) {
  const auto [found, fresh] = dynamic_.try_emplace({offset, wide}, k_.constants.size());
  if (fresh) k_.constants.push_back({allocate(wide), wide, offset});
  return k_.constants[found->second].place;
}

void Names::set_dynamic_base(uint64_t base) {
  for (const auto& [key, index] : dynamic_) k_.constants[index].value += base;
}

uint32_t Names::sink() {
  if (sink_ == kUnused) sink_ = allocate(true);
  return sink_;
}

uint32_t Names::predicate_sink() {
  if (predicate_sink_ == kUnused) predicate_sink_ = k_.predicates++;
  return predicate_sink_;
}

}  // namespace assay::ptx

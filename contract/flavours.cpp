#include "contract/flavours.h"

#include <algorithm>
#include <array>

namespace assay {

namespace {

constexpr std::array kFlavours = {
#define FLAVOUR(id, name, formats, keys, users, source) FlavourInfo{Flavour::id, name, formats, keys, users, source},
#include "contract/flavours.def"
#undef FLAVOUR
};

}  // namespace

bool FlavourInfo::is_of(FormatId f) const {
  std::string_view rest = formats;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == assay::info(f).name) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::span<const FlavourInfo> flavours() { return kFlavours; }

const FlavourInfo* info(Flavour f) {
  for (const FlavourInfo& row : kFlavours)
    if (row.flavour == f) return &row;
  return nullptr;
}

}  // namespace assay

#include "contract/flavours.h"

#include <algorithm>
#include <array>

#include "contract/words.h"

namespace assay {

namespace {

constexpr std::array kFlavours = {
#define FLAVOUR(id, name, formats, keys, users, source) \
  FlavourInfo{Flavour::id, name, formats, keys, users, source},
#include "contract/flavours.def"
#undef FLAVOUR
};

}  // namespace

bool FlavourInfo::is_of(FormatId f) const {
  const Words names = words_of(formats, ' ');
  return std::find(names.begin(), names.end(), assay::info(f).name) != names.end();
}

std::span<const FlavourInfo> flavours() { return kFlavours; }

const FlavourInfo* info(Flavour f) {
  for (const FlavourInfo& row : kFlavours)
    if (row.flavour == f) return &row;
  return nullptr;
}

}  // namespace assay

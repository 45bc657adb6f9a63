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

constexpr std::array kNames = {
#define FLAVOUR_NAME(name, formats, row) FlavourName{name, formats, Flavour::row},
#include "contract/flavour_names.def"
#undef FLAVOUR_NAME
};

bool among(std::string_view formats, FormatId f) {
  const Words names = words_of(formats, ' ');
  return std::find(names.begin(), names.end(), info(f).name) != names.end();
}

}  // namespace

bool FlavourInfo::is_of(FormatId f) const { return among(formats, f); }

bool FlavourName::is_of(FormatId f) const { return among(formats, f); }

std::span<const FlavourName> flavour_names() { return kNames; }

std::span<const FlavourInfo> flavours() { return kFlavours; }

const FlavourInfo* info(Flavour f) {
  for (const FlavourInfo& row : kFlavours)
    if (row.flavour == f) return &row;
  return nullptr;
}

}  // namespace assay

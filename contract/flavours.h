// Flavours: the sets of choices that libraries make, by name. Generated from flavours.def. Kernels with
// approximate reciprocals have none: their bytes are held to N17.13.
#pragma once
#include <span>
#include <string_view>

#include "contract/format.h"
#include "contract/problem.h"

namespace assay {

// One row of flavours.def.
struct FlavourInfo {
  Flavour flavour;
  std::string_view name;     // "torchao.rceil"
  std::string_view formats;  // "mxfp8 mxfp4"
  std::string_view keys;     // "mx_inf=nan nan_amax=propagate"; setting() of contract/recipes.h reads them
  std::string_view users, source;
  bool is_of(FormatId) const;
};
std::span<const FlavourInfo> flavours();
// Another name of a flavour, in a library's own words. Generated from flavour_names.def.
struct FlavourName {
  std::string_view name;     // "torchao.floor"
  std::string_view formats;  // of which it is a name
  Flavour flavour;           // what it names: a row, or assay, the defaults
  bool is_of(FormatId) const;
};
std::span<const FlavourName> flavour_names();
// The row of a flavour, or null for assay and te, which have none.
const FlavourInfo* info(Flavour);

}  // namespace assay
